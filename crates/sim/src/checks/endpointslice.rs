//! EndpointSlices: no endpoint is told twice, and in the end every Service has exactly the endpoints of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{active, going, holds, named, number};
use crate::witness::{Effect, text};

/// Compares pods with endpoints.
#[derive(Default)]
pub struct EndpointSlices {
    /// By Service: creates whose outcome the controller never learnt, which it may repeat.
    unknown: BTreeSet<(String, String)>,
}

/// The uid of the Service that a slice was made for.
const OWNER: &str = "/metadata/ownerReferences/0/uid";
const SLICES: &str = "endpointslices.discovery.k8s.io";

/// The Service that the controller keeps a slice for.
fn service_of(slice: &Value) -> Option<(&str, &str)> {
    let label = |name: &str| text(slice, &format!("/metadata/labels/{name}"));
    let is_managed = label("endpointslice.kubernetes.io~1managed-by") == "endpointslice-controller.k8s.io"
        && !going(slice);
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

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        let makes = effect.by_manager()
            && effect.done()
            && effect.route.method == Method::POST
            && effect.route.resource == "endpointslices";
        let Some((namespace, name)) = service_of(&effect.body).filter(|_| makes) else { return Ok(()) };
        let service = (namespace.to_owned(), name.to_owned());
        if effect.lost {
            self.unknown.insert(service.clone());
        }
        let slices = server.objects(SLICES);
        let its = slices.iter().filter(|slice| service_of(slice) == Some((namespace, name)));
        // Those of a Service that had its name before are given up for new ones, in this order.
        let owner = text(&effect.body, OWNER);
        let alike = its.filter(|slice| slice["ports"] == effect.body["ports"] && text(slice, OWNER) == owner);
        let mut told = BTreeSet::new();
        let again = alike.flat_map(|slice| addresses(slice)).find(|address| !told.insert(*address));
        match again.filter(|_| !self.unknown.contains(&service)) {
            Some(address) => Err(format!("{address} is told a second time")),
            None => Ok(()),
        }
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let (pods, slices, nodes) = (server.objects("pods"), server.objects(SLICES), server.objects("nodes"));
        let zone = |node: &Arc<Value>| text(node, "/metadata/labels/topology.kubernetes.io~1zone").to_owned();
        let one_zone = nodes.iter().map(zone).collect::<BTreeSet<_>>().len() < 2;
        server.objects("services").iter().try_for_each(|service| {
            let Some(app) = service.pointer("/spec/selector/app").and_then(Value::as_str) else {
                return Ok(());
            };
            let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
            let mut wanted = BTreeMap::new();
            for pod in pods.iter().filter(|pod| active(pod) && text(pod, "/metadata/namespace") == namespace)
            {
                let address = text(pod, "/status/podIP");
                if text(pod, "/metadata/labels/app") == app && !address.is_empty() {
                    wanted.insert(address, holds(pod, "Ready"));
                }
            }
            let port = number(service, "/spec/ports/0/port");
            let mut found = BTreeMap::new();
            for slice in slices.iter().filter(|slice| service_of(slice) == Some((namespace, name))) {
                for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                    let ready = endpoint.pointer("/conditions/ready") == Some(&Value::Bool(true));
                    if found.insert(text(endpoint, "/addresses/0"), ready).is_some() {
                        return Err(format!("{}: an endpoint is told twice", named(service)));
                    }
                    if number(slice, "/ports/0/port") != port {
                        return Err(format!("{}: an endpoint is told with another port", named(service)));
                    }
                    if one_zone && endpoint.pointer("/hints/forZones/0").is_some() {
                        return Err(format!("{}: there is only one zone to prefer", named(service)));
                    }
                }
            }
            let differs = || Err(format!("{}: its endpoints are {found:?}, not {wanted:?}", named(service)));
            if found == wanted { Ok(()) } else { differs() }
        })
    }
}
