//! Who should prefer which endpoint.

use serde_json::{Value, json};

use super::{Stage, node, pod, pod_on, service, service_with, unready, with};

/// A stage with two nodes in two zones, one in none, and a pod on each.
fn stage(service: Value) -> Stage {
    let mut stage = Stage::new();
    stage.node(node("n2", "z2")).node(with(node("n3", ""), "metadata/labels", json!({})));
    stage.service(service).pod(pod("p1")).pod(pod_on("p2", "n2")).pod(pod_on("p3", "n3"));
    stage
}

fn prefers(distribution: &str) -> Value {
    service_with("spec/trafficDistribution", json!(distribution))
}

/// The hints of the pods, in order.
fn hints(stage: &Stage) -> [Value; 3] {
    ["p1", "p2", "p3"].map(|pod| stage.endpoint(pod).unwrap().get("hints").cloned().unwrap_or_default())
}

fn zone(zone: &str) -> Value {
    json!({"forZones": [{"name": zone}]})
}

/// A Service with the older and the newer annotation, and the field.
fn annotated(old: Option<&str>, new: Option<&str>) -> Value {
    let mut annotations = serde_json::Map::new();
    let keys = ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];
    for (key, value) in keys.into_iter().zip([old, new]) {
        annotations.extend(value.map(|value| (key.to_owned(), json!(value))));
    }
    with(prefers("PreferSameZone"), "metadata/annotations", json!(annotations))
}

/// Proves EPS-70, EPS-71.
#[test]
fn the_older_annotation_wins_and_either_wins_over_the_field() {
    let is_proportional = |service: Value| {
        stage(service).sync().events.iter().any(|event| event.contains("TopologyAwareHintsDisabled"))
    };
    for (old, new, proportional) in [
        (None, Some("Auto"), true),
        (None, Some("auto"), true),
        (Some("Auto"), Some("Disabled"), true),
        (Some("Disabled"), Some("Auto"), false),
        (Some(""), Some("Auto"), false),
        (None, Some("AUTO"), false),
        (None, None, false),
    ] {
        assert_eq!(is_proportional(annotated(old, new)), proportional, "{old:?} {new:?}");
    }
}

/// Proves EPS-72, EPS-74.
#[test]
fn clients_stay_in_their_zone_or_on_their_node() {
    for distribution in ["PreferClose", "PreferSameZone"] {
        let mut stage = stage(prefers(distribution));
        stage.sync();
        assert_eq!(hints(&stage), [zone("z1"), zone("z2"), Value::Null]);
    }
    let mut both = stage(prefers("PreferSameNode"));
    both.sync();
    let on = |node: &str| json!([{"name": node}]);
    assert_eq!(
        hints(&both),
        [
            json!({"forZones": on("z1"), "forNodes": on("n1")}),
            json!({"forZones": on("z2"), "forNodes": on("n2")}),
            json!({"forNodes": on("n3")}),
        ]
    );
    for nothing in [json!(null), json!("PreferElsewhere")] {
        let mut stage = stage(prefers("PreferSameNode"));
        stage.sync();
        assert_eq!(stage.service(service_with("spec/trafficDistribution", nothing)).sync().verbs(), ["put"]);
        assert_eq!(hints(&stage), [Value::Null, Value::Null, Value::Null]);
    }
}

/// Proves EPS-73, EPS-76.
#[test]
fn slices_are_written_when_their_hints_are_wrong_and_only_then() {
    let written = |service: Value, hint: Value| {
        let mut stage = stage(service);
        stage.sync();
        let mut changed = stage.only().clone();
        changed["endpoints"][0]["hints"] = hint;
        let minutes = stage.slice(changed).sync();
        assert!(stage.sync().is_calm());
        minutes.verbs().join(" ")
    };
    let both = json!({"forZones": [{"name": "z1"}], "forNodes": [{"name": "n1"}]});
    let two = json!({"forZones": [{"name": "z1"}, {"name": "z2"}]});
    for (hint, by_zone, by_node, without) in [
        (zone("z1"), "", "put", "put"),
        (zone("z2"), "put", "put", "put"),
        (both, "put", "", "put"),
        (two, "put", "put", "put"),
        (Value::Null, "put", "put", ""),
    ] {
        assert_eq!(written(prefers("PreferSameZone"), hint.clone()), by_zone, "{hint}");
        assert_eq!(written(prefers("PreferSameNode"), hint.clone()), by_node, "{hint}");
        assert_eq!(written(service(), hint.clone()), without, "{hint}");
    }
}

/// Proves EPS-75.
#[test]
fn endpoints_that_are_not_ready_are_neither_given_nor_checked_for_hints() {
    let mut stage = stage(prefers("PreferSameZone"));
    stage.pod(unready(pod("p1"))).sync();
    assert_eq!(hints(&stage), [Value::Null, zone("z2"), Value::Null]);
    let mut odd = stage.only().clone();
    odd["endpoints"][0]["hints"] = zone("elsewhere");
    assert!(stage.slice(odd).sync().is_calm());
}

/// Proves EPS-127.
#[test]
fn from_the_annotation_to_the_field_hints_change_in_one_step() {
    let mut stage = stage(annotated(None, Some("Auto")));
    stage.no_pod("p3").node(with(node("n3", ""), "status/conditions/0/status", json!("False"))).survey();
    assert_eq!(
        stage.sync().events,
        ["Normal TopologyAwareHintsEnabled: Topology Aware Hints has been enabled, addressType: IPv4"]
    );
    let mut turned = stage.only().clone();
    turned["endpoints"][0]["hints"] = zone("z2");
    let minutes = stage.slice(turned).service(prefers("PreferSameZone")).sync();
    assert_eq!(minutes.verbs(), ["put"]);
    assert_eq!(
        minutes.events,
        ["Warning TopologyAwareHintsDisabled: Topology Aware Hints has been disabled, addressType: IPv4"]
    );
    assert_eq!(stage.endpoint("p1").unwrap()["hints"], zone("z1"));
    assert!(stage.sync().is_calm());
}
