//! Which endpoints a Service is to have: one set for each address family and set of ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use keleustes_objects::{
    Address, Addresses, ArcStr, Endpoint, EndpointConditions, EndpointPort, IntOrString, Interned,
    InternedStr, Pod, PodSpec, Service, ServicePort, TargetRef,
};

use super::gather::{Inputs, SelectedPod};

/// An address family that slices can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AddressType {
    V4,
    V6,
}

impl AddressType {
    /// As slices and Services spell it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The families that a Service has. Servers say so in `ipFamilies`; should one not, the address tells,
    /// and without an address both are served.
    pub(super) fn of(service: &Service) -> Vec<Self> {
        let both = [Self::V4, Self::V6];
        let told = |family: &Self| service.ip_families.iter().any(|told| *told == family.as_str());
        let families: Vec<_> = both.into_iter().filter(told).collect();
        if !families.is_empty() {
            return families;
        }
        if service.is_headless() {
            return both.to_vec();
        }
        let is_v6 = Address::from(&*service.cluster_ip).ip().is_some_and(|ip| ip.is_ipv6());
        vec![if is_v6 { Self::V6 } else { Self::V4 }]
    }

    /// An address in its canonical spelling, if it is of this family.
    fn canonical(self, address: &Address) -> Option<Address> {
        let ip = address.ip()?.to_canonical();
        let family = if matches!(ip, IpAddr::V6(_)) { Self::V6 } else { Self::V4 };
        (family == self).then(|| Address::from(ip))
    }
}

/// What is wanted in one family.
#[derive(Default)]
pub(super) struct DesiredEndpoints {
    pub(super) groups: BTreeMap<PortSet, PortGroup>,
    /// Why some pods were left out although they should not be for long.
    pub(super) complaints: Vec<String>,
}

/// The endpoints that share their ports.
pub(super) struct PortGroup {
    /// The ports, in the order of the Service.
    pub(super) ports: Arc<[EndpointPort]>,
    pub(super) endpoints: BTreeMap<EndpointIdentity, Endpoint>,
}

/// Ports regardless of their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PortSet(Arc<[EndpointPort]>);

impl PortSet {
    pub(super) fn of(ports: &[EndpointPort]) -> Self {
        let mut ports = ports.to_vec();
        ports.sort();
        Self(ports.into())
    }
}

/// What makes two endpoints of one set of ports the same one. By name first, so that pods of one owner
/// end up side by side.
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
    pub(super) fn of(facts: &Inputs, family: AddressType) -> Self {
        let (mut wanted, mut resolved) = (Self::default(), Resolved::default());
        let service = &facts.service;
        let listed = |backend: &&SelectedPod| !backend.pod.is_terminal() && !backend.pod.pod_ips.is_empty();
        for SelectedPod { pod, zone } in facts.backends.iter().filter(listed) {
            let (set, ports) = resolved.ports(service, &pod.spec);
            let empty = || PortGroup { ports, endpoints: BTreeMap::new() };
            let group = wanted.groups.entry(set).or_insert_with(empty);
            if zone.is_none() && !service.publish_not_ready_addresses {
                wanted.complaints.push(format!(
                    "skipping Pod {} for Service {}: Node {} Not Found",
                    pod.meta.key.name, service.meta.key, pod.node_name
                ));
                continue;
            }
            if let Some(endpoint) = endpoint(service, pod, zone.as_ref(), family) {
                group.endpoints.insert(EndpointIdentity::of(&endpoint), endpoint);
            }
        }
        wanted
    }
}

/// The ports of the last pod: all pods of one template have the same.
#[derive(Default)]
struct Resolved {
    last: Option<(Interned<PodSpec>, PortSet, Arc<[EndpointPort]>)>,
}

impl Resolved {
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

/// A port of a Service as a pod has it; `None` if the pod has no port of the name that the Service asks for.
fn resolve(port: &ServicePort, spec: &PodSpec) -> Option<EndpointPort> {
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let containers = spec.containers.iter().chain(&spec.sidecars);
            let mut ports = containers.flat_map(|container| &container.ports);
            ports.find(|there| there.name == *name && there.protocol == port.protocol)?.container_port
        }
    };
    Some(EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(number),
        app_protocol: port.app_protocol.clone(),
    })
}

/// The endpoint that a pod is in one family, if it has an address there.
fn endpoint(
    service: &Service,
    pod: &Pod,
    zone: Option<&InternedStr>,
    family: AddressType,
) -> Option<Endpoint> {
    let mut addresses: Vec<_> = pod.pod_ips.iter().filter_map(|ip| family.canonical(ip)).collect();
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
