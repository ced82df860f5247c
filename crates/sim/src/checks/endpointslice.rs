//! EndpointSlices: no endpoint is listed twice, and in the end every Service lists exactly the endpoints of
//! its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe, is_active, is_terminating, number};
use crate::recorder::{ObservedWrite, text};

/// Compares pods with endpoints.
#[derive(Default)]
pub struct EndpointSlices {
    /// By Service: creates whose result the controller never received, and which it may repeat.
    unconfirmed_creates: BTreeSet<(String, String)>,
}

/// The UID of the Service that owns a slice.
const OWNER: &str = "/metadata/ownerReferences/0/uid";
const SLICES: &str = "endpointslices.discovery.k8s.io";

/// The Service of a slice that the controller manages and that is not terminating.
fn service_of(slice: &Value) -> Option<(&str, &str)> {
    let label = |name: &str| text(slice, &format!("/metadata/labels/{name}"));
    let is_managed = label("endpointslice.kubernetes.io~1managed-by") == "endpointslice-controller.k8s.io"
        && !is_terminating(slice);
    is_managed.then(|| (text(slice, "/metadata/namespace"), label("kubernetes.io~1service-name")))
}

fn addresses(slice: &Value) -> impl Iterator<Item = &str> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.map(|endpoint| text(endpoint, "/addresses/0"))
}

impl Checker for EndpointSlices {
    fn name(&self) -> &'static str {
        "endpointslice-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let creates = write.by_manager()
            && write.succeeded()
            && write.request.method == Method::POST
            && write.request.resource == "endpointslices";
        let Some((namespace, name)) = service_of(&write.body).filter(|_| creates) else { return Ok(()) };
        let service = (namespace.to_owned(), name.to_owned());
        if write.response_lost {
            self.unconfirmed_creates.insert(service.clone());
        }
        let slices = server.objects(SLICES);
        let slices_of_service = slices.iter().filter(|slice| service_of(slice) == Some((namespace, name)));
        // Slices of a deleted Service with the same name are replaced by new ones, created before the old
        // ones are deleted.
        let owner = text(&write.body, OWNER);
        let alike = slices_of_service
            .filter(|slice| slice["ports"] == write.body["ports"] && text(slice, OWNER) == owner);
        let mut addresses_seen = BTreeSet::new();
        let duplicate =
            alike.flat_map(|slice| addresses(slice)).find(|address| !addresses_seen.insert(*address));
        match duplicate.filter(|_| !self.unconfirmed_creates.contains(&service)) {
            Some(address) => Err(format!("{address} is listed a second time")),
            None => Ok(()),
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let (pods, slices, nodes) = (server.objects("pods"), server.objects(SLICES), server.objects("nodes"));
        let zone = |node: &Arc<Value>| text(node, "/metadata/labels/topology.kubernetes.io~1zone").to_owned();
        let one_zone = nodes.iter().map(zone).collect::<BTreeSet<_>>().len() < 2;
        server.objects("services").iter().try_for_each(|service| {
            let Some(app) = service.pointer("/spec/selector/app").and_then(Value::as_str) else {
                return Ok(());
            };
            let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
            let mut wanted = BTreeMap::new();
            for pod in
                pods.iter().filter(|pod| is_active(pod) && text(pod, "/metadata/namespace") == namespace)
            {
                let address = text(pod, "/status/podIP");
                if text(pod, "/metadata/labels/app") == app && !address.is_empty() {
                    wanted.insert(address, condition_is_true(pod, "Ready"));
                }
            }
            let port = number(service, "/spec/ports/0/port");
            let mut found = BTreeMap::new();
            for slice in slices.iter().filter(|slice| service_of(slice) == Some((namespace, name))) {
                for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                    let ready = endpoint.pointer("/conditions/ready") == Some(&Value::Bool(true));
                    if found.insert(text(endpoint, "/addresses/0"), ready).is_some() {
                        return Err(format!("{}: an endpoint is listed twice", describe(service)));
                    }
                    if number(slice, "/ports/0/port") != port {
                        return Err(format!(
                            "{}: an endpoint is listed with another port",
                            describe(service)
                        ));
                    }
                    if one_zone && endpoint.pointer("/hints/forZones/0").is_some() {
                        return Err(format!(
                            "{}: it has zone hints although there is only one zone",
                            describe(service)
                        ));
                    }
                }
            }
            // A pod that ends while it is not ready changes nothing that the original looks at.
            let has_ended = |address: &str| {
                pods.iter().any(|pod| text(pod, "/status/podIP") == address && !is_active(pod))
            };
            found.retain(|address, ready| *ready || wanted.contains_key(address) || !has_ended(address));
            let differs =
                || Err(format!("{}: its endpoints are {found:?}, not {wanted:?}", describe(service)));
            if found == wanted { Ok(()) } else { differs() }
        })
    }
}
