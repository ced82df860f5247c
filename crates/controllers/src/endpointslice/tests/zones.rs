//! Topology aware hints in proportion to CPUs.

use serde_json::{Value, json};

use super::{TestCluster, node, pod_on, service_with, unready, with};

fn auto() -> Value {
    service_with("metadata/annotations", json!({"service.kubernetes.io/topology-mode": "Auto"}))
}

/// A cluster with these zones, a node `n-{zone}` in each, and this many pods on it.
fn cluster(zones: &[(&str, usize)]) -> TestCluster {
    let mut cluster = TestCluster::new();
    cluster.no_node("n1").service(auto());
    for (zone, pods) in zones {
        cluster.node(node(&format!("n-{zone}"), zone));
        for n in 0..*pods {
            cluster.pod(pod_on(&format!("{zone}{n:03}"), &format!("n-{zone}")));
        }
    }
    cluster
}

/// The number of endpoints with a hint for a zone.
fn hinted(cluster: &TestCluster, zone: &str) -> usize {
    let all = cluster.slices.values().flat_map(super::endpoints);
    all.filter(|endpoint| endpoint["hints"]["forZones"][0]["name"] == zone).count()
}

const ENABLED: &str = "Normal TopologyAwareHintsEnabled on Service a/web uid=service-1: Topology Aware Hints has been enabled, addressType: IPv4";

fn disabled(why: &str) -> Vec<String> {
    vec![format!(
        "Warning TopologyAwareHintsDisabled on Service a/web uid=service-1: {why}, addressType: IPv4"
    )]
}

/// Proves EPS-84, EPS-87, EPS-103.
#[test]
fn zones_get_proportional_endpoints_and_one_event_is_recorded() {
    let mut cluster = cluster(&[("a", 8), ("b", 3), ("c", 1)]);
    cluster.sync_zones();
    let result = cluster.sync();
    assert_eq!((result.verbs(), &*result.events), (vec!["create"], &[ENABLED.to_owned()][..]));
    assert_eq!(["a", "b", "c"].map(|zone| hinted(&cluster, zone)), [4, 4, 4]);
    for zone in ["b000", "b001", "b002", "c000"] {
        let hint = &cluster.endpoint(zone).unwrap()["hints"]["forZones"][0]["name"];
        assert_eq!(*hint, zone[..1], "endpoints in a zone with a deficit keep their zone");
    }
    assert!(cluster.sync().is_noop());
}

/// A new process computes the zones before it changes any hint.
#[test]
fn hints_survive_a_restart() {
    let mut before = cluster(&[("a", 4), ("b", 4)]);
    before.sync();
    let mut after = cluster(&[("a", 4), ("b", 4)]);
    after.slices = before.slices;
    let result = after.sync();
    assert_eq!((result.verbs(), &*result.events), (vec![], &[ENABLED.to_owned()][..]));
}

/// Proves EPS-77.
#[test]
fn nodes_that_are_not_ready_or_run_the_control_plane_do_not_count() {
    let events = |odd: Value| {
        let mut cluster = cluster(&[("a", 4), ("b", 4)]);
        cluster.node(odd).sync_zones();
        cluster.sync().events
    };
    assert_eq!(events(node("odd", "")), disabled(INSUFFICIENT));
    assert_eq!(events(with(node("odd", ""), "status/conditions/0/status", json!("Unknown"))), [ENABLED]);
    for label in ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"] {
        assert_eq!(events(with(node("odd", ""), "metadata/labels", json!({label: "x"}))), [ENABLED]);
    }
}

const INSUFFICIENT: &str =
    "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";

/// Proves EPS-104, EPS-105, EPS-106, EPS-107.
#[test]
fn the_reason_for_missing_hints_is_recorded_each_time() {
    let mut one_zone = cluster(&[("a", 2)]);
    assert_eq!(one_zone.sync().events, disabled(INSUFFICIENT));
    assert_eq!(one_zone.sync().events, disabled(INSUFFICIENT));
    let after_survey = |mut cluster: TestCluster| {
        cluster.sync_zones();
        cluster.sync().events
    };
    assert_eq!(
        after_survey(cluster(&[("a", 1), ("b", 1), ("c", 0)])),
        disabled("Insufficient number of endpoints (2 endpoints, 3 zones)")
    );
    assert_eq!(
        after_survey(cluster(&[("a", 2), ("b", 1), ("c", 1)])),
        disabled(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
             (4 endpoints, 3 zones)"
        )
    );
    let mut zoneless = cluster(&[("a", 2), ("b", 2)]);
    zoneless.sync_zones();
    zoneless.node(node("n-b", ""));
    assert_eq!(zoneless.sync().events, disabled("One or more endpoints do not have a zone specified"));
}

/// Proves EPS-88.
#[test]
fn without_endpoints_there_are_no_hints() {
    use super::super::memory::EndpointSliceMemory;
    use super::super::packing::SliceChanges;
    use super::super::topology::{NoHints, add_hints};
    use super::super::zones::ZoneCpuRatios;
    use crate::service_endpoints::AddressType;
    // Two zones need two ready endpoints, so only an empty set of zones gets here without endpoints.
    let none = ZoneCpuRatios::Ratios(std::collections::BTreeMap::new());
    assert_eq!(add_hints(&mut SliceChanges::default(), &none), Err(NoHints::NoEndpoints));
    assert_eq!(NoHints::NoEndpoints.to_string(), "No hints allocated for zones");
    // With zones there are too few endpoints, which is another reason.
    let two = ["a", "b"].map(|zone| (keleustes_objects::InternedStr::from(zone), 0.5));
    let two = ZoneCpuRatios::Ratios(std::collections::BTreeMap::from(two));
    let why = add_hints(&mut SliceChanges::default(), &two).map_err(|why| why.to_string());
    assert!(why.is_err_and(|why| why.starts_with("Insufficient number of endpoints")));
    assert!(
        !EndpointSliceMemory::default()
            .remove_hint_counts(&keleustes_objects::Key::namespaced("a", "web"), AddressType::Ipv4)
    );
}

/// Proves EPS-83.
#[test]
fn slices_with_valid_hints_are_not_written() {
    let mut cluster = cluster(&[("a", 6), ("b", 6)]);
    cluster.sync_zones();
    cluster.sync();
    let odd = |change: &dyn Fn(&mut Value)| {
        let mut changed = cluster.only().clone();
        change(&mut changed["endpoints"][0]);
        changed
    };
    for wrong in [
        odd(&|endpoint| endpoint["hints"] = Value::Null),
        odd(&|endpoint| endpoint["hints"] = json!({"forZones": []})),
        odd(&|endpoint| endpoint["hints"]["forZones"][0]["name"] = json!("unknown")),
    ] {
        cluster.slice(wrong);
        assert_eq!(cluster.sync().verbs(), ["put"]);
        assert_eq!(["a", "b"].map(|zone| hinted(&cluster, zone)), [6, 6]);
    }
    // The minimum is five endpoints per zone, so the maximum is seven.
    let mut overloaded = cluster.only().clone();
    for at in 0..12 {
        let zone = if at < 7 { "a" } else { "b" };
        overloaded["endpoints"][at]["hints"] = json!({"forZones": [{"name": zone}]});
    }
    assert!(cluster.slice(overloaded.clone()).sync().is_noop(), "seven are within the maximum");
    overloaded["endpoints"][7]["hints"]["forZones"][0]["name"] = json!("a");
    assert_eq!(cluster.slice(overloaded).sync().verbs(), ["put"], "eight exceed it");
}

/// Proves EPS-89.
#[test]
fn all_hints_are_removed_when_hints_are_not_possible() {
    let mut cluster = cluster(&[("a", 6), ("b", 6)]);
    cluster.sync_zones();
    cluster.sync();
    cluster.node(node("odd", "")).sync_zones();
    let result = cluster.sync();
    assert_eq!((result.verbs(), &result.events), (vec!["put"], &disabled(INSUFFICIENT)));
    assert_eq!(["a", "b"].map(|zone| hinted(&cluster, zone)), [0, 0]);
    assert_eq!(cluster.sync().verbs(), [""; 0]);
    assert!(cluster.sync_zones().enqueued.is_empty(), "the Service has no hints any more");
}

/// Proves EPS-90.
#[test]
fn services_whose_hints_overload_a_zone_are_enqueued() {
    let mut cluster = cluster(&[("a", 6), ("b", 6)]);
    assert!(cluster.sync_zones().enqueued.is_empty());
    cluster.sync();
    assert!(cluster.sync_zones().enqueued.is_empty(), "no zone is overloaded");
    cluster.node(with(node("n-b", "b"), "status/allocatable/cpu", json!("12")));
    assert_eq!(cluster.sync_zones().enqueued, ["a/web"]);
    assert_eq!(cluster.sync().verbs(), ["put"]);
    assert_eq!(["a", "b"].map(|zone| hinted(&cluster, zone)), [3, 9]);
    assert!(cluster.sync_zones().enqueued.is_empty());
}

/// Proves EPS-126.
#[test]
fn an_endpoint_in_an_excluded_zone_keeps_its_zone() {
    let mut cluster = cluster(&[("a", 6), ("b", 6), ("far", 1)]);
    cluster.node(with(node("n-far", "far"), "status/conditions/0/status", json!("False"))).sync_zones();
    cluster.sync();
    assert_eq!(["a", "b", "far"].map(|zone| hinted(&cluster, zone)), [6, 6, 1]);
    assert!(cluster.sync().is_noop(), "the hints are unchanged, so nothing is written");
}

/// Proves EPS-128.
#[test]
fn enabled_hints_are_remembered_per_service_not_per_address_type() {
    let mut cluster = cluster(&[("a", 2), ("b", 2)]);
    cluster.service(with(auto(), "spec/ipFamilies", json!(["IPv4", "IPv6"]))).sync_zones();
    let events = cluster.sync().events;
    assert!(
        events[0] == ENABLED && events[1].ends_with("(0 endpoints, 2 zones), addressType: IPv6"),
        "{events:?}"
    );
    // The second address type has reset the state, so the first one records the event again.
    assert_eq!(cluster.sync().events, events);
}

/// Proves EPS-128.
#[test]
fn hints_of_a_lost_address_type_are_forgotten_before_the_others_are_set() {
    let mut cluster = cluster(&[("a", 2), ("b", 2)]);
    for (at, name) in ["a000", "a001", "b000", "b001"].iter().enumerate() {
        let ips = json!([{"ip": format!("10.0.0.{at}")}, {"ip": format!("fd00::{at}")}]);
        cluster.pod(with(pod_on(name, &format!("n-{}", &name[..1])), "status/podIPs", ips));
    }
    cluster.service(with(auto(), "spec/ipFamilies", json!(["IPv4", "IPv6"]))).sync_zones();
    assert_eq!(cluster.sync().events, [ENABLED], "once for both address types");
    assert_eq!(cluster.sync().events, [""; 0]);
    let result = cluster.service(with(auto(), "spec/ipFamilies", json!(["IPv4"]))).sync();
    assert_eq!((result.verbs(), &*result.events), (vec!["delete"], &[ENABLED.to_owned()][..]));
    assert_eq!(cluster.sync().events, [""; 0], "the state is the one of the remaining address type");
}

/// Proves EPS-89.
#[test]
fn endpoints_that_are_not_ready_do_not_count() {
    let mut cluster = cluster(&[("a", 2), ("b", 2)]);
    cluster.sync_zones();
    assert_eq!(cluster.sync().events, [ENABLED]);
    for pod in ["a000", "b000", "b001"] {
        cluster.pod(unready(pod_on(pod, &format!("n-{}", &pod[..1]))));
    }

    let events = cluster.sync().events;
    assert_eq!(events, disabled("Insufficient number of endpoints (1 endpoints, 2 zones)"));
}
