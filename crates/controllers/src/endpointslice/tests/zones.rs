//! Hints in proportion to CPUs.

use serde_json::{Value, json};

use super::{Stage, node, pod_on, service_with, unready, with};

fn auto() -> Value {
    service_with("metadata/annotations", json!({"service.kubernetes.io/topology-mode": "Auto"}))
}

/// A stage with these zones, a node `n-{zone}` in each, and so many pods on it.
fn stage(zones: &[(&str, usize)]) -> Stage {
    let mut stage = Stage::new();
    stage.no_node("n1").service(auto());
    for (zone, pods) in zones {
        stage.node(node(&format!("n-{zone}"), zone));
        for n in 0..*pods {
            stage.pod(pod_on(&format!("{zone}{n:03}"), &format!("n-{zone}")));
        }
    }
    stage
}

/// How many endpoints are hinted to a zone.
fn hinted(stage: &Stage, zone: &str) -> usize {
    let all = stage.slices.values().flat_map(super::endpoints);
    all.filter(|endpoint| endpoint["hints"]["forZones"][0]["name"] == zone).count()
}

const ENABLED: &str =
    "Normal TopologyAwareHintsEnabled: Topology Aware Hints has been enabled, addressType: IPv4";

fn disabled(why: &str) -> Vec<String> {
    vec![format!("Warning TopologyAwareHintsDisabled: {why}, addressType: IPv4")]
}

/// Proves EPS-84, EPS-87, EPS-103.
#[test]
fn zones_get_endpoints_in_proportion_and_that_is_told_once() {
    let mut stage = stage(&[("a", 8), ("b", 3), ("c", 1)]);
    stage.survey();
    let minutes = stage.sync();
    assert_eq!((minutes.verbs(), &*minutes.events), (vec!["create"], &[ENABLED.to_owned()][..]));
    assert_eq!(["a", "b", "c"].map(|zone| hinted(&stage, zone)), [4, 4, 4]);
    for zone in ["b000", "b001", "b002", "c000"] {
        let hint = &stage.endpoint(zone).unwrap()["hints"]["forZones"][0]["name"];
        assert_eq!(*hint, zone[..1], "who is in a zone that lacks some stays");
    }
    assert!(stage.sync().is_calm());
}

/// A new process looks at the zones before it touches any hint.
#[test]
fn hints_survive_a_restart() {
    let mut before = stage(&[("a", 4), ("b", 4)]);
    before.sync();
    let mut after = stage(&[("a", 4), ("b", 4)]);
    after.slices = before.slices;
    let minutes = after.sync();
    assert_eq!((minutes.verbs(), &*minutes.events), (vec![], &[ENABLED.to_owned()][..]));
}

/// Proves EPS-77.
#[test]
fn nodes_that_are_not_ready_or_run_the_control_plane_do_not_count() {
    let events = |odd: Value| {
        let mut stage = stage(&[("a", 4), ("b", 4)]);
        stage.node(odd).survey();
        stage.sync().events
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
fn why_there_are_no_hints_is_told_each_time() {
    let mut one_zone = stage(&[("a", 2)]);
    assert_eq!(one_zone.sync().events, disabled(INSUFFICIENT));
    assert_eq!(one_zone.sync().events, disabled(INSUFFICIENT));
    let after_survey = |mut stage: Stage| {
        stage.survey();
        stage.sync().events
    };
    assert_eq!(
        after_survey(stage(&[("a", 1), ("b", 1), ("c", 0)])),
        disabled("Insufficient number of endpoints (2 endpoints, 3 zones)")
    );
    assert_eq!(
        after_survey(stage(&[("a", 2), ("b", 1), ("c", 1)])),
        disabled(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
             (4 endpoints, 3 zones)"
        )
    );
    let mut zoneless = stage(&[("a", 2), ("b", 2)]);
    zoneless.survey();
    zoneless.node(node("n-b", ""));
    assert_eq!(zoneless.sync().events, disabled("One or more endpoints do not have a zone specified"));
}

/// Proves EPS-88.
#[test]
fn no_endpoints_no_hints() {
    use super::super::endpoints::AddressType;
    use super::super::memory::EndpointSliceMemory;
    use super::super::packing::SliceChanges;
    use super::super::topology::{NoHints, add_hints};
    use super::super::zones::ZoneCpuRatios;
    // With two zones there are always two ready endpoints before it comes to this; with none there are none.
    let none = ZoneCpuRatios::Shares(std::collections::BTreeMap::new());
    assert_eq!(add_hints(&mut SliceChanges::default(), &none), Err(NoHints::Nothing));
    assert_eq!(NoHints::Nothing.to_string(), "No hints allocated for zones");
    assert!(
        !EndpointSliceMemory::default()
            .remove_hint_counts(&keleustes_objects::Key::namespaced("a", "web"), AddressType::V4)
    );
}

/// Proves EPS-83.
#[test]
fn slices_with_good_hints_stay_as_they_are() {
    let mut stage = stage(&[("a", 6), ("b", 6)]);
    stage.survey();
    stage.sync();
    let odd = |change: &dyn Fn(&mut Value)| {
        let mut changed = stage.only().clone();
        change(&mut changed["endpoints"][0]);
        changed
    };
    for wrong in [
        odd(&|endpoint| endpoint["hints"] = Value::Null),
        odd(&|endpoint| endpoint["hints"] = json!({"forZones": []})),
        odd(&|endpoint| endpoint["hints"]["forZones"][0]["name"] = json!("unknown")),
    ] {
        stage.slice(wrong);
        assert_eq!(stage.sync().verbs(), ["put"]);
        assert_eq!(["a", "b"].map(|zone| hinted(&stage, zone)), [6, 6]);
    }
    // One more than the maximum: five each is the least, so seven at most.
    let mut crowded = stage.only().clone();
    for at in 0..12 {
        let zone = if at < 7 { "a" } else { "b" };
        crowded["endpoints"][at]["hints"] = json!({"forZones": [{"name": zone}]});
    }
    assert!(stage.slice(crowded.clone()).sync().is_calm(), "seven are borne");
    crowded["endpoints"][7]["hints"]["forZones"][0]["name"] = json!("a");
    assert_eq!(stage.slice(crowded).sync().verbs(), ["put"], "eight are not");
}

/// Proves EPS-89.
#[test]
fn without_hints_all_are_stripped() {
    let mut stage = stage(&[("a", 6), ("b", 6)]);
    stage.survey();
    stage.sync();
    stage.node(node("odd", "")).survey();
    let minutes = stage.sync();
    assert_eq!((minutes.verbs(), &minutes.events), (vec!["put"], &disabled(INSUFFICIENT)));
    assert_eq!(["a", "b"].map(|zone| hinted(&stage, zone)), [0, 0]);
    assert_eq!(stage.sync().verbs(), [""; 0]);
    assert!(stage.survey().woken.is_empty(), "and it is not counted any more");
}

/// Proves EPS-90.
#[test]
fn services_that_the_zones_do_not_bear_any_more_are_woken() {
    let mut stage = stage(&[("a", 6), ("b", 6)]);
    assert!(stage.survey().woken.is_empty());
    stage.sync();
    assert!(stage.survey().woken.is_empty(), "all is well");
    stage.node(with(node("n-b", "b"), "status/allocatable/cpu", json!("12")));
    assert_eq!(stage.survey().woken, ["a/web"]);
    assert_eq!(stage.sync().verbs(), ["put"]);
    assert_eq!(["a", "b"].map(|zone| hinted(&stage, zone)), [3, 9]);
    assert!(stage.survey().woken.is_empty());
}

/// Proves EPS-126.
#[test]
fn an_endpoint_in_a_zone_that_does_not_count_keeps_its_zone() {
    let mut stage = stage(&[("a", 6), ("b", 6), ("far", 1)]);
    stage.node(with(node("n-far", "far"), "status/conditions/0/status", json!("False"))).survey();
    stage.sync();
    assert_eq!(["a", "b", "far"].map(|zone| hinted(&stage, zone)), [6, 6, 1]);
    assert!(stage.sync().is_calm(), "as the same comes out, nothing is written");
}

/// Proves EPS-128.
#[test]
fn that_hints_are_there_is_remembered_of_the_service_not_of_the_family() {
    let mut stage = stage(&[("a", 2), ("b", 2)]);
    stage.service(with(auto(), "spec/ipFamilies", json!(["IPv4", "IPv6"]))).survey();
    let events = stage.sync().events;
    assert!(
        events[0] == ENABLED && events[1].ends_with("(0 endpoints, 2 zones), addressType: IPv6"),
        "{events:?}"
    );
    // The second family took it back, so the first announces it again.
    assert_eq!(stage.sync().events, events);
}

/// Proves EPS-89.
#[test]
fn endpoints_that_are_not_ready_do_not_count() {
    let mut stage = stage(&[("a", 2), ("b", 2)]);
    stage.survey();
    assert_eq!(stage.sync().events, [ENABLED]);
    for pod in ["a000", "b000", "b001"] {
        stage.pod(unready(pod_on(pod, &format!("n-{}", &pod[..1]))));
    }

    let events = stage.sync().events;
    assert_eq!(events, disabled("Insufficient number of endpoints (1 endpoints, 2 zones)"));
}
