//! Endpoints and mirrored slices: in the end the Endpoints of every Service list exactly its pods, mirrored slices are a copy
//! of their Endpoints, and every node has its TTL. No write leaves its object as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe, is_active, is_terminating, namespace, number};
use crate::bodies::CUSTOM_ENDPOINTS_PREFIX;
use crate::recorder::{ObservedWrite, text};

/// Compares Endpoints with pods and with mirrored slices.
#[derive(Default)]
pub struct EndpointsAgree {
    /// Responses that a controller never received: it may repeat these writes.
    unconfirmed: BTreeSet<(String, String)>,
}

const MIRRORED: &str = "endpointslicemirroring-controller.k8s.io";
const COMPONENTS: [&str; 3] = ["endpoint-controller", "endpointslicemirroring-controller", "ttl-controller"];

/// The listed addresses by port and IP, and whether they are ready.
type Listed = BTreeMap<(i64, String), bool>;

fn list<'v>(object: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    object[field].as_array().into_iter().flatten()
}

fn listed_by_endpoints(endpoints: &Value) -> Listed {
    let mut listed = Listed::new();
    for subset in list(endpoints, "subsets") {
        let ready = list(subset, "addresses").map(|address| (address, true));
        for (address, is_ready) in
            ready.chain(list(subset, "notReadyAddresses").map(|address| (address, false)))
        {
            for port in list(subset, "ports") {
                let entry = listed.entry((number(port, "/port"), text(address, "/ip").to_owned()));
                *entry.or_insert(true) &= is_ready;
            }
        }
    }
    listed
}

/// The endpoints of mirrored slices; an error if one is listed twice.
fn listed_by_slices<'v>(slices: impl Iterator<Item = &'v Arc<Value>>) -> Result<Listed, String> {
    let mut listed = Listed::new();
    for slice in slices {
        for (endpoint, port) in
            list(slice, "endpoints").flat_map(|e| list(slice, "ports").map(move |p| (e, p)))
        {
            let ready = endpoint.pointer("/conditions/ready") == Some(&Value::Bool(true));
            let key = (number(port, "/port"), text(endpoint, "/addresses/0").to_owned());
            if listed.insert(key, ready).is_some() {
                return Err(format!("{}: an endpoint is mirrored twice", describe(slice)));
            }
        }
    }
    Ok(listed)
}

fn same_name<'v>(objects: &'v [Arc<Value>], object: &Value) -> Option<&'v Arc<Value>> {
    let name = |object: &Value| (namespace(object).to_owned(), text(object, "/metadata/name").to_owned());
    objects.iter().find(|candidate| name(candidate) == name(object))
}

impl Checker for EndpointsAgree {
    fn name(&self) -> &'static str {
        "endpoints-controller, endpointslice-mirroring-controller and ttl-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let updates = matches!(write.request.method, Method::PUT | Method::PATCH);
        if !write.by_manager()
            || !COMPONENTS.contains(&write.component.as_str())
            || !updates
            // An event is sent again until a response arrives.
            || write.request.resource == "events"
            || !write.succeeded()
        {
            return Ok(());
        }
        let object = (write.request.to_string(), write.component.clone());
        let version = |object: Option<&Arc<Value>>| {
            object.map(|object| text(object, "/metadata/resourceVersion").to_owned())
        };
        let changed = version(write.before.as_ref()) != version(write.after.as_ref());
        if write.response_lost {
            self.unconfirmed.insert(object);
            return Ok(());
        }
        // A repeated write may find that the first one took effect.
        if changed || self.unconfirmed.remove(&object) {
            Ok(())
        } else {
            Err("the write changes nothing".to_owned())
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let (services, all_endpoints) = (server.objects("services"), server.objects("endpoints"));
        check_pods(server, &services, &all_endpoints)?;
        check_mirrored(server, &services, &all_endpoints)?;
        for node in server.objects("nodes") {
            // A simulated cluster has fewer than a hundred nodes.
            if text(&node, "/metadata/annotations/node.alpha.kubernetes.io~1ttl") != "0" {
                return Err(format!("{}: its TTL is not 0", describe(&node)));
            }
        }
        Ok(())
    }
}

/// Services with a selector list their pods, and Endpoints that the controller made have a Service.
fn check_pods(
    server: &ApiServer,
    services: &[Arc<Value>],
    all_endpoints: &[Arc<Value>],
) -> Result<(), String> {
    let pods = server.objects("pods");
    for service in services {
        let app = service.pointer("/spec/selector/app").and_then(Value::as_str);
        // An edit of Endpoints by a user stays until their Service or a pod changes.
        let is_edited = text(service, "/metadata/name").starts_with(CUSTOM_ENDPOINTS_PREFIX);
        let Some(app) = app.filter(|_| !is_edited) else { continue };
        let port = number(service, "/spec/ports/0/port");
        let selected = pods.iter().filter(|pod| {
            is_active(pod) && namespace(pod) == namespace(service) && text(pod, "/metadata/labels/app") == app
        });
        let listed = |pod: &Arc<Value>| {
            let ip = text(pod, "/status/podIP");
            (!ip.is_empty()).then(|| ((port, ip.to_owned()), condition_is_true(pod, "Ready")))
        };
        let wanted: Listed = selected.filter_map(listed).collect();
        let Some(endpoints) = same_name(all_endpoints, service) else {
            return Err(format!("{}: it has no Endpoints", describe(service)));
        };
        let mut found = listed_by_endpoints(endpoints);
        // A pod that was not ready when it finished enqueues nothing, and stays listed until the next change (EP-74).
        let finished = pods.iter().filter(|pod| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed"));
        for pod in finished {
            let listed = (port, text(pod, "/status/podIP").to_owned());
            if found.get(&listed) == Some(&false) && !wanted.contains_key(&listed) {
                found.remove(&listed);
            }
        }
        if found != wanted {
            return Err(format!("{}: its Endpoints are {found:?}, not {wanted:?}", describe(service)));
        }
    }
    let is_managed = |endpoints: &Value| {
        !text(endpoints, "/metadata/labels/endpoints.kubernetes.io~1managed-by").is_empty()
    };
    let mut managed =
        all_endpoints.iter().filter(|endpoints| is_managed(endpoints) && !is_terminating(endpoints));
    match managed.find(|endpoints| same_name(services, endpoints).is_none()) {
        Some(endpoints) => Err(format!("{}: its Service is deleted", describe(endpoints))),
        None => Ok(()),
    }
}

/// Mirrored slices equal the Endpoints of Services without a selector, and there are no others.
fn check_mirrored(
    server: &ApiServer,
    services: &[Arc<Value>],
    all_endpoints: &[Arc<Value>],
) -> Result<(), String> {
    let slices = server.objects("endpointslices.discovery.k8s.io");
    let label = |slice: &Value, name: &str| text(slice, &format!("/metadata/labels/{name}")).to_owned();
    let is_mirrored = |slice: &&Arc<Value>| {
        label(slice, "endpointslice.kubernetes.io~1managed-by") == MIRRORED && !is_terminating(slice)
    };
    let mut mirrored: BTreeMap<(String, String), Vec<&Arc<Value>>> = BTreeMap::new();
    for slice in slices.iter().filter(is_mirrored) {
        let key = (namespace(slice).to_owned(), label(slice, "kubernetes.io~1service-name"));
        mirrored.entry(key).or_default().push(slice);
    }
    for endpoints in all_endpoints {
        let service =
            same_name(services, endpoints).filter(|service| service.pointer("/spec/selector").is_none());
        let is_skipped = label(endpoints, "endpointslice.kubernetes.io~1skip-mirror") == "true";
        if service.is_none() || is_skipped || is_terminating(endpoints) {
            continue;
        }
        let key = (namespace(endpoints).to_owned(), text(endpoints, "/metadata/name").to_owned());
        let found = listed_by_slices(mirrored.remove(&key).unwrap_or_default().into_iter())?;
        let wanted = listed_by_endpoints(endpoints);
        if found != wanted {
            return Err(format!(
                "{}: its mirrored slices are {found:?}, not {wanted:?}",
                describe(endpoints)
            ));
        }
    }
    match mirrored.into_values().flatten().next() {
        Some(slice) => Err(format!("{}: it mirrors nothing", describe(slice))),
        None => Ok(()),
    }
}
