//! The canonical form of the subsets of Endpoints.
//!
//! Parity: pkg/api/v1/endpoints/util.go. The order of subsets and ports is another one: only determinism matters, because
//! subsets are compared in this form.

use std::collections::BTreeMap;

use keleustes_objects::{Address, EndpointAddress, EndpointSubset, SubsetPort, Uid};

/// Expands subsets to the addresses of each port, and groups the ports with equal addresses and readiness. An address is
/// identified by its IP and the UID of its target, and its first occurrence counts, but it is not ready if one of its
/// occurrences for the port is not. Ports that are not positive count as none.
pub(crate) fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut addresses = NumberedAddresses::default();
    let listed: Vec<_> = subsets.iter().map(|subset| addresses.number(subset)).collect();
    let mut by_addresses: BTreeMap<Vec<(usize, bool)>, Vec<SubsetPort>> = BTreeMap::new();
    for (places, ports) in ports_by_places(subsets) {
        let mut readiness = BTreeMap::new();
        for (number, is_ready) in places.into_iter().flat_map(|place| &listed[place]) {
            readiness.entry(*number).and_modify(|ready| *ready &= is_ready).or_insert(*is_ready);
        }
        if !readiness.is_empty() {
            by_addresses.entry(readiness.into_iter().collect()).or_default().extend(ports);
        }
    }
    let mut repacked: Vec<_> =
        by_addresses.into_iter().map(|(listed, ports)| addresses.subset(&listed, ports)).collect();
    repacked.sort_by_cached_key(|subset| (subset.ports.clone(), first_address(subset)));
    repacked
}

/// The ports by the numbers of the subsets that have them. Ports of the same subsets have the same addresses, which are
/// collected once for all of them: an object may have thousands of ports.
fn ports_by_places(subsets: &[EndpointSubset]) -> BTreeMap<Vec<usize>, Vec<SubsetPort>> {
    let mut places: BTreeMap<Option<&SubsetPort>, Vec<usize>> = BTreeMap::new();
    for (place, subset) in subsets.iter().enumerate() {
        let without_ports = subset.ports.is_empty().then_some(None);
        for port in subset.ports.iter().map(Some).chain(without_ports) {
            places.entry(port).or_default().push(place);
        }
    }
    let mut by_places: BTreeMap<Vec<usize>, Vec<SubsetPort>> = BTreeMap::new();
    for (port, places) in places {
        by_places.entry(places).or_default().extend(port.filter(|port| port.port > 0).cloned());
    }
    by_places
}

/// The text of the first address, in the order of the API server's canonical form.
fn first_address(subset: &EndpointSubset) -> Option<String> {
    let address = subset.addresses.first().or_else(|| subset.not_ready_addresses.first())?;
    Some(address.ip.to_string())
}

/// The distinct addresses of some subsets, numbered by their first occurrence.
#[derive(Default)]
struct NumberedAddresses<'s> {
    addresses: Vec<&'s EndpointAddress>,
    numbers: BTreeMap<(&'s Address, Uid), usize>,
}

impl<'s> NumberedAddresses<'s> {
    /// The numbers of a subset's addresses, and whether they are ready.
    fn number(&mut self, subset: &'s EndpointSubset) -> Vec<(usize, bool)> {
        let ready = subset.addresses.iter().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().map(|address| (address, false));
        let mut number = |address: &'s EndpointAddress| {
            let uid = address.target_ref.as_ref().map(|target| target.uid.clone()).unwrap_or_default();
            *self.numbers.entry((&address.ip, uid)).or_insert_with(|| {
                self.addresses.push(address);
                self.addresses.len() - 1
            })
        };
        ready.chain(not_ready).map(|(address, is_ready)| (number(address), is_ready)).collect()
    }

    fn subset(&self, listed: &[(usize, bool)], mut ports: Vec<SubsetPort>) -> EndpointSubset {
        let sorted = |wanted: bool| {
            let listed = listed.iter().filter(|(_, is_ready)| *is_ready == wanted);
            let mut addresses: Vec<_> = listed.map(|(number, _)| self.addresses[*number].clone()).collect();
            // By the bytes of the text, not by the number: 10.0.0.10 comes before 10.0.0.9.
            addresses.sort_by_cached_key(|address| {
                (address.ip.to_string(), address.target_ref.as_ref().map(|target| target.uid.to_string()))
            });
            addresses.into_boxed_slice()
        };
        ports.sort();
        EndpointSubset { addresses: sorted(true), not_ready_addresses: sorted(false), ports: ports.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn repacked(subsets: Value) -> Value {
        let subsets: Vec<EndpointSubset> = serde_json::from_value(subsets).unwrap();
        let once = repack(&subsets);
        assert_eq!(repack(&once), once, "the canonical form of a canonical form is itself");
        json!(once)
    }

    fn port(number: i32) -> Value {
        json!({"port": number, "protocol": "TCP"})
    }

    fn ip(ip: &str) -> Value {
        json!({"ip": ip})
    }

    fn of_pod(ip: &str, uid: &str) -> Value {
        json!({"ip": ip, "targetRef": {"kind": "Pod", "uid": uid}})
    }

    /// Proves EP-38, EP-39.
    #[test]
    fn ports_with_equal_addresses_share_a_subset_and_not_ready_wins() {
        let first = json!({"ip": "1.1.1.1", "hostname": "first"});
        let subsets = json!([
            {"addresses": [first], "notReadyAddresses": [ip("2.2.2.2")], "ports": [port(80)]},
            {"addresses": [ip("2.2.2.2"), {"ip": "1.1.1.1", "hostname": "second"}], "ports": [port(443)]},
            {"addresses": [ip("2.2.2.2")], "ports": [port(80)]},
            {"notReadyAddresses": [ip("2.2.2.2")], "ports": [port(443)]},
            {"addresses": [ip("2.2.2.2")], "ports": [port(8080)]},
        ]);
        let wanted = json!([
            {"addresses": [first], "notReadyAddresses": [ip("2.2.2.2")], "ports": [port(80), port(443)]},
            {"addresses": [ip("2.2.2.2")], "ports": [port(8080)]},
        ]);
        assert_eq!(repacked(subsets), wanted);
    }

    /// Proves EP-40, EP-82.
    #[test]
    fn addresses_without_ports_are_kept_unless_a_port_has_exactly_them() {
        let alone = json!([{"addresses": [ip("1.1.1.1")]}]);
        assert_eq!(repacked(alone.clone()), alone);
        let subsets =
            json!([{"addresses": [ip("1.1.1.1")]}, {"addresses": [ip("1.1.1.1")], "ports": [port(80)]}]);
        assert_eq!(repacked(subsets), json!([{"addresses": [ip("1.1.1.1")], "ports": [port(80)]}]));
        let differs = json!([
            {"addresses": [ip("1.1.1.1")]},
            {"notReadyAddresses": [ip("1.1.1.1")], "ports": [port(80)]},
        ]);
        assert_eq!(repacked(differs.clone()), differs, "the readiness differs");
        for number in [0, -5] {
            let odd = json!([{"addresses": [ip("1.1.1.1")], "ports": [port(number)]}]);
            assert_eq!(repacked(odd), alone, "{number}");
        }
        assert_eq!(repacked(json!([{"ports": [port(80)]}, {}])), json!([]));
    }

    /// Proves EP-41, EP-83, EP-97.
    #[test]
    fn addresses_are_sorted_by_their_text_and_the_uid_of_their_target() {
        let subsets = json!([{"ports": [port(80)], "addresses": [
            ip("10.0.0.9"), of_pod("10.0.0.10", "b"), of_pod("10.0.0.10", "a"), ip("10.0.0.10"), ip("10.0.0.9"),
            ip("bad"), ip("fd00::1"),
        ]}]);
        let sorted = json!([
            ip("10.0.0.10"),
            of_pod("10.0.0.10", "a"),
            of_pod("10.0.0.10", "b"),
            ip("10.0.0.9"),
            ip("bad"),
            ip("fd00::1")
        ]);
        assert_eq!(repacked(subsets)[0]["addresses"], sorted);
    }

    /// Proves EP-42.
    #[test]
    fn canonical_form_does_not_depend_on_the_order() {
        let mut subsets = vec![
            json!({"addresses": [ip("1.1.1.1"), ip("2.2.2.2")], "ports": [port(80), port(443)]}),
            json!({"addresses": [ip("3.3.3.3")], "ports": [port(8080)]}),
            json!({"addresses": [ip("4.4.4.4")]}),
            json!({"notReadyAddresses": [ip("5.5.5.5")], "ports": [{"port": 80, "protocol": "UDP"}]}),
        ];
        let wanted = repacked(json!(subsets));
        assert_eq!(wanted.as_array().map(Vec::len), Some(4));
        subsets.reverse();
        subsets[3]["addresses"].as_array_mut().unwrap().reverse();
        subsets[3]["ports"].as_array_mut().unwrap().reverse();
        assert_eq!(repacked(json!(subsets)), wanted);
    }

    /// Proves EPSM-19.
    #[test]
    fn large_objects_are_repacked_quickly() {
        let ip = |n: u32| Address::from(std::net::IpAddr::from(n.to_be_bytes()));
        let addresses: Box<[_]> =
            (0..100_000).map(|n| EndpointAddress { ip: ip(n), ..EndpointAddress::default() }).collect();
        let port = |port| SubsetPort { port, ..SubsetPort::default() };
        let subset = |ports: Box<[SubsetPort]>| EndpointSubset {
            addresses: addresses.clone(),
            ports,
            ..EndpointSubset::default()
        };
        let subsets = [subset((1..20_000).map(port).collect()), subset((1..20_000).map(port).collect())];
        let repacked = repack(&subsets);
        assert_eq!(repacked.len(), 1);
        assert_eq!((repacked[0].addresses.len(), repacked[0].ports.len()), (100_000, 19_999));
    }
}
