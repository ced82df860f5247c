//! The ports of a Service, resolved for its pods.

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
            let containers = spec.containers().iter().chain(spec.sidecars());
            let mut ports = containers.flat_map(|container| container.ports());
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
