//! The desired endpoints of a Service: one set for each address type and set of ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use keleustes_objects::{
    Address, Addresses, ArcStr, Endpoint, EndpointConditions, EndpointPort, IntOrString, Interned,
    InternedStr, Pod, PodSpec, Service, ServicePort, TargetRef,
};

use super::gather::{Inputs, SelectedPod};

/// An address type of slices that this controller manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AddressType {
    Ipv4,
    Ipv6,
}

impl AddressType {
    /// The spelling of the API.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }

    /// The address types of a Service: those in `ipFamilies`; without it, the type of the cluster IP, or
    /// both for a headless Service.
    pub(super) fn of(service: &Service) -> Vec<Self> {
        let both = [Self::Ipv4, Self::Ipv6];
        let is_listed =
            |address_type: &Self| service.ip_families.iter().any(|name| *name == address_type.as_str());
        let address_types: Vec<_> = both.into_iter().filter(is_listed).collect();
        if !address_types.is_empty() {
            return address_types;
        }
        if service.is_headless() {
            return both.to_vec();
        }
        let is_v6 = Address::from(&*service.cluster_ip).ip().is_some_and(|ip| ip.is_ipv6());
        vec![if is_v6 { Self::Ipv6 } else { Self::Ipv4 }]
    }

    /// An address in canonical form, if it is of this type.
    fn canonical(self, address: &Address) -> Option<Address> {
        let ip = address.ip()?.to_canonical();
        let address_type = if matches!(ip, IpAddr::V6(_)) { Self::Ipv6 } else { Self::Ipv4 };
        (address_type == self).then(|| Address::from(ip))
    }
}

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

/// Ports in canonical order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PortSet(Arc<[EndpointPort]>);

impl PortSet {
    pub(super) fn of(ports: &[EndpointPort]) -> Self {
        let mut ports = ports.to_vec();
        ports.sort();
        Self(ports.into())
    }
}

/// The identity of an endpoint among those with the same ports. It sorts by name first, so that pods of one
/// owner are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndpointIdentity {
    name: ArcStr,
    namespace: InternedStr,
    hostname: ArcStr,
    addresses: Vec<Address>,
}

impl EndpointIdentity {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let mut addresses = endpoint.addresses.to_vec();
        addresses.sort();
        let target = endpoint.target_ref.as_ref();
        Self {
            name: target.map(|target| target.name.clone()).unwrap_or_default(),
            namespace: target.map(|target| target.namespace.clone()).unwrap_or_default(),
            hostname: endpoint.hostname.clone(),
            addresses,
        }
    }
}

impl DesiredEndpoints {
    pub(super) fn of(inputs: &Inputs, address_type: AddressType) -> Self {
        let (mut desired, mut resolved) = (Self::default(), ResolvedPorts::default());
        let service = &inputs.service;
        let has_endpoint =
            |selected: &&SelectedPod| !selected.pod.is_terminal() && !selected.pod.pod_ips.is_empty();
        for SelectedPod { pod, zone } in inputs.selected_pods.iter().filter(has_endpoint) {
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

/// The resolved ports of the last pod: pods of one template have the same ports.
#[derive(Default)]
struct ResolvedPorts {
    last: Option<(Interned<PodSpec>, PortSet, Arc<[EndpointPort]>)>,
}

impl ResolvedPorts {
    fn ports(&mut self, service: &Service, spec: &Interned<PodSpec>) -> (PortSet, Arc<[EndpointPort]>) {
        if let Some((last, set, ports)) = &self.last
            && last == spec
        {
            return (set.clone(), ports.clone());
        }
        let ports: Arc<[_]> = service.ports.iter().filter_map(|port| resolve(port, spec)).collect();
        let set = PortSet::of(&ports);
        self.last = Some((spec.clone(), set.clone(), ports.clone()));
        (set, ports)
    }
}

/// Resolves a port of a Service for a pod; `None` if the pod has no port with the requested name.
fn resolve(port: &ServicePort, spec: &PodSpec) -> Option<EndpointPort> {
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let containers = spec.containers.iter().chain(&spec.sidecars);
            let mut ports = containers.flat_map(|container| &container.ports);
            ports
                .find(|candidate| candidate.name == *name && candidate.protocol == port.protocol)?
                .container_port
        }
    };
    Some(EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(number),
        app_protocol: port.app_protocol.clone(),
    })
}

/// The endpoint of a pod, if it has an address of this type.
fn endpoint(
    service: &Service,
    pod: &Pod,
    zone: Option<&InternedStr>,
    address_type: AddressType,
) -> Option<Endpoint> {
    let mut addresses: Vec<_> = pod.pod_ips.iter().filter_map(|ip| address_type.canonical(ip)).collect();
    if addresses.is_empty() {
        return None;
    }
    addresses.sort_by_cached_key(Address::to_string);
    let (serving, terminating) = (pod.is_ready(), pod.is_terminating());
    let has_hostname = !pod.hostname().is_empty() && *pod.spec.subdomain == *service.meta.key.name;
    Some(Endpoint {
        addresses: Addresses::from_iter(addresses),
        conditions: EndpointConditions {
            ready: Some(service.publish_not_ready_addresses || serving && !terminating),
            serving: Some(serving),
            terminating: Some(terminating),
        },
        hostname: if has_hostname { pod.hostname().into() } else { ArcStr::default() },
        target_ref: Some(TargetRef {
            kind: "Pod".into(),
            namespace: pod.meta.key.namespace.clone(),
            name: pod.meta.key.name.clone(),
            uid: pod.meta.uid.clone(),
            ..TargetRef::default()
        }),
        node_name: pod.node_name.clone(),
        zone: zone.cloned().unwrap_or_default(),
        ..Endpoint::default()
    })
}
