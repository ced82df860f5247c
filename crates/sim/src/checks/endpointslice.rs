//! EndpointSlices: in the end every Service has exactly the endpoints of its pods, each once.

use std::collections::BTreeMap;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{active, holds, named};
use crate::witness::text;

/// Compares pods with endpoints.
pub struct EndpointSlices;

impl Checker for EndpointSlices {
    fn name(&self) -> &'static str {
        "endpointslice-controller"
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let (pods, slices) = (server.objects("pods"), server.objects("endpointslices.discovery.k8s.io"));
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
            let mut found = BTreeMap::new();
            for slice in &slices {
                let label = text(slice, "/metadata/labels/kubernetes.io~1service-name");
                if text(slice, "/metadata/namespace") != namespace || label != name {
                    continue;
                }
                for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                    let ready = endpoint.pointer("/conditions/ready") == Some(&Value::Bool(true));
                    if found.insert(text(endpoint, "/addresses/0"), ready).is_some() {
                        return Err(format!("{}: an endpoint is told twice", named(service)));
                    }
                }
            }
            let differs = || Err(format!("{}: its endpoints are {found:?}, not {wanted:?}", named(service)));
            if found == wanted { Ok(()) } else { differs() }
        })
    }
}
