//! The desired endpoints of a Service: one set for each address type and set of ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{
    Address, Addresses, Endpoint, EndpointConditions, EndpointPort, InternedStr, Pod, Service,
};

use super::gather::{Inputs, SelectedPod};
use crate::service_endpoints::{
    AddressType, EndpointIdentity, PortSet, ResolvedPorts, has_endpoint, hostname, target_ref,
};

/// The desired endpoints of one address type.
#[derive(Default)]
pub(super) struct DesiredEndpoints {
    pub(super) groups: BTreeMap<PortSet, PortGroup>,
    /// Errors for pods that are skipped because their node is not in the cache.
    pub(super) errors: Vec<String>,
}

/// The endpoints with the same ports.
pub(super) struct PortGroup {
    /// The ports in the Service's order.
    pub(super) ports: Arc<[EndpointPort]>,
    pub(super) endpoints: BTreeMap<EndpointIdentity, Endpoint>,
}

impl DesiredEndpoints {
    pub(super) fn of(inputs: &Inputs, address_type: AddressType) -> Self {
        let (mut desired, mut resolved) = (Self::default(), ResolvedPorts::default());
        let service = &inputs.service;
        for SelectedPod { pod, zone } in
            inputs.selected_pods.iter().filter(|selected| has_endpoint(&selected.pod))
        {
            let (set, ports) = resolved.ports(service, &pod.spec);
            let empty = || PortGroup { ports, endpoints: BTreeMap::new() };
            let group = desired.groups.entry(set).or_insert_with(empty);
            if zone.is_none() && !service.publish_not_ready_addresses {
                desired.errors.push(format!(
                    "skipping Pod {} for Service {}: Node {} Not Found",
                    pod.meta.key.name, service.meta.key, pod.node_name
                ));
                continue;
            }
            if let Some(endpoint) = endpoint(service, pod, zone.as_ref(), address_type) {
                group.endpoints.insert(EndpointIdentity::of(&endpoint), endpoint);
            }
        }
        desired
    }
}

/// The endpoint of a pod, if it has an address of this type.
fn endpoint(
    service: &Service,
    pod: &Pod,
    zone: Option<&InternedStr>,
    address_type: AddressType,
) -> Option<Endpoint> {
    let mut addresses: Vec<_> = pod.pod_ips().iter().filter_map(|ip| address_type.canonical(ip)).collect();
    if addresses.is_empty() {
        return None;
    }
    addresses.sort_by_cached_key(Address::to_string);
    let (serving, terminating) = (pod.is_ready(), pod.is_terminating());
    Some(Endpoint {
        addresses: Addresses::from_iter(addresses),
        conditions: EndpointConditions {
            ready: Some(service.publish_not_ready_addresses || serving && !terminating),
            serving: Some(serving),
            terminating: Some(terminating),
        },
        hostname: hostname(service, pod),
        target_ref: Some(target_ref(pod)),
        node_name: pod.node_name.clone(),
        zone: zone.cloned().unwrap_or_default(),
        ..Endpoint::default()
    })
}
