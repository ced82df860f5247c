//! The ports of a Service, resolved for its pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{EndpointPort, IntOrString, Interned, PodSpec, Service, ServicePort};

/// Ports in canonical order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortSet(Arc<[EndpointPort]>);

impl PortSet {
    pub(crate) fn of(ports: &[EndpointPort]) -> Self {
        let mut ports = ports.to_vec();
        ports.sort();
        Self(ports.into())
    }
}

/// Resolves the ports of a Service. The last result is kept: pods of one template have the same ports.
#[derive(Default)]
pub(crate) struct ResolvedPorts {
    last: Option<(Interned<PodSpec>, PortSet, Arc<[EndpointPort]>)>,
}

impl ResolvedPorts {
    /// The ports of a Service for a pod with this spec: as a set, and in the Service's order.
    pub(crate) fn ports(
        &mut self,
        service: &Service,
        spec: &Interned<PodSpec>,
    ) -> (PortSet, Arc<[EndpointPort]>) {
        if let Some((last, set, ports)) = &self.last
            && last == spec
        {
            return (set.clone(), ports.clone());
        }
        let is_named = |port: &ServicePort| matches!(port.target_port, Some(IntOrString::String(_)));
        let named = if service.ports.iter().any(is_named) { named_ports(spec) } else { NamedPorts::new() };
        let ports: Arc<[_]> = service.ports.iter().filter_map(|port| resolve(port, &named)).collect();
        let set = PortSet::of(&ports);
        self.last = Some((spec.clone(), set.clone(), ports.clone()));
        (set, ports)
    }
}

/// Container ports by name and protocol.
type NamedPorts<'a> = BTreeMap<(&'a str, &'a str), i32>;

/// The container ports of a pod, the first one of each name and protocol: both a Service and a pod may have thousands.
fn named_ports(spec: &PodSpec) -> NamedPorts<'_> {
    let mut named = NamedPorts::new();
    let containers = spec.containers().iter().chain(spec.sidecars());
    for port in containers.flat_map(|container| container.ports()) {
        named.entry((&*port.name, &*port.protocol)).or_insert(port.container_port);
    }
    named
}

/// Resolves a port of a Service for a pod; `None` if the pod has no port with the requested name.
fn resolve(port: &ServicePort, named: &NamedPorts<'_>) -> Option<EndpointPort> {
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => *named.get(&(&**name, &*port.protocol))?,
    };
    Some(EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(number),
        app_protocol: port.app_protocol.clone(),
    })
}

#[cfg(test)]
mod tests {
    use keleustes_objects::Pod;
    use serde_json::{Value, json};

    use super::*;
    use crate::cpu_time::cpu_seconds;

    fn service(ports: &[Value]) -> Service {
        let metadata = json!({"name": "s", "namespace": "a", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"ports": ports}})).unwrap()
    }

    fn pod(ports: &[Value]) -> Pod {
        let metadata = json!({"name": "p", "namespace": "a", "uid": "u"});
        let spec = json!({"containers": [{"name": "c", "ports": ports}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn numbers(service: &Service, pod: &Pod) -> Vec<Option<i32>> {
        let (_, ports) = ResolvedPorts::default().ports(service, &pod.spec);
        ports.iter().map(|port| port.port).collect()
    }

    #[test]
    fn first_container_port_of_a_name_and_protocol_counts() {
        let port = |protocol: &str, number: i32| json!({"name": "web", "protocol": protocol, "containerPort": number});
        let pod = pod(&[port("UDP", 1), port("TCP", 2), port("TCP", 3)]);
        let target = |name: &str| json!({"port": 80, "protocol": "TCP", "targetPort": name});
        let service = service(&[target("web"), target("absent"), json!({"port": 81, "protocol": "TCP"})]);
        assert_eq!(numbers(&service, &pod), [Some(2), Some(81)]);
    }

    #[test]
    fn many_named_ports_are_resolved_quickly() {
        let target = |n: i32| json!({"port": 80, "protocol": "TCP", "targetPort": format!("absent-{n}")});
        let port = |n: i32| json!({"name": format!("web-{n}"), "protocol": "TCP", "containerPort": 1});
        let (service, pod) = (
            service(&(0..30_000).map(target).collect::<Vec<_>>()),
            pod(&(0..30_000).map(port).collect::<Vec<_>>()),
        );
        let began = cpu_seconds();
        assert!(numbers(&service, &pod).is_empty());
        let seconds = cpu_seconds() - began;
        assert!(seconds < 5.0, "{seconds} s of CPU time");
    }
}
