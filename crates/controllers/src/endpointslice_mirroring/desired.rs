//! The endpoints that Endpoints stand for: one set for each address type and set of ports.

use std::collections::BTreeMap;

use keleustes_objects::{
    Addresses, Endpoint, EndpointAddress, EndpointConditions, EndpointPort, Endpoints, SubsetPort,
};

use crate::service_endpoints::subsets::repack;
use crate::service_endpoints::{AddressType, EndpointIdentity, PortSet};

/// The desired endpoints.
#[derive(Default)]
pub(super) struct Desired {
    pub(super) groups: BTreeMap<(AddressType, PortSet), PortGroup>,
    /// The number of addresses that are no IP addresses.
    pub(super) invalid: usize,
    /// The number of addresses that are left out: invalid ones, and those beyond the maximum.
    pub(super) skipped: usize,
}

/// The endpoints of one address type with the same ports, which one slice holds. It may be empty.
pub(super) struct PortGroup {
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: BTreeMap<EndpointIdentity, Endpoint>,
}

impl Desired {
    pub(super) fn of(endpoints: &Endpoints, max_endpoints_per_subset: usize) -> Self {
        let mut desired = Self::default();
        for subset in repack(&endpoints.subsets) {
            let ports: Vec<_> = subset.ports.iter().map(slice_port).collect();
            let set = PortSet::of(&ports);
            for address_type in [AddressType::Ipv4, AddressType::Ipv6] {
                let new_group = || PortGroup { ports: ports.clone(), endpoints: BTreeMap::new() };
                desired.groups.entry((address_type, set.clone())).or_insert_with(new_group);
            }
            let mut added = 0;
            let ready = subset.addresses.iter().map(|address| (address, true));
            let not_ready = subset.not_ready_addresses.iter().map(|address| (address, false));
            for (address, is_ready) in ready.chain(not_ready) {
                if added >= max_endpoints_per_subset {
                    break;
                }
                let Some((address_type, endpoint)) = endpoint(address, is_ready) else {
                    desired.invalid += 1;
                    continue;
                };
                added += 1;
                if let Some(group) = desired.groups.get_mut(&(address_type, set.clone())) {
                    group.endpoints.insert(EndpointIdentity::of(&endpoint), endpoint);
                }
            }
            desired.skipped += subset.addresses.len() + subset.not_ready_addresses.len() - added;
        }
        desired
    }
}

fn slice_port(port: &SubsetPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(port.port),
        app_protocol: port.app_protocol.clone(),
    }
}

/// The endpoint of an address, if that is an IP address.
fn endpoint(address: &EndpointAddress, is_ready: bool) -> Option<(AddressType, Endpoint)> {
    let (address_type, ip) = AddressType::of_address(&address.ip)?;
    let endpoint = Endpoint {
        addresses: Addresses::from_iter([ip]),
        conditions: EndpointConditions { ready: Some(is_ready), ..EndpointConditions::default() },
        hostname: address.hostname.clone(),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        ..Endpoint::default()
    };
    Some((address_type, endpoint))
}
