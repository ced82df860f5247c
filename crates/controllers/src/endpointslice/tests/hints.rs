//! Topology hints of endpoints.

use serde_json::{Value, json};

use super::{TestCluster, node, pod, pod_on, service, service_with, unready, with};

/// A cluster with two nodes in two zones, one without a zone, and a pod on each.
fn cluster(service: Value) -> TestCluster {
    let mut cluster = TestCluster::new();
    cluster.node(node("n2", "z2")).node(with(node("n3", ""), "metadata/labels", json!({})));
    cluster.service(service).pod(pod("p1")).pod(pod_on("p2", "n2")).pod(pod_on("p3", "n3"));
    cluster
}

fn prefers(distribution: &str) -> Value {
    service_with("spec/trafficDistribution", json!(distribution))
}

/// The hints of the pods, in order.
fn hints(cluster: &TestCluster) -> [Value; 3] {
    ["p1", "p2", "p3"].map(|pod| cluster.endpoint(pod).unwrap().get("hints").cloned().unwrap_or_default())
}

fn zone(zone: &str) -> Value {
    json!({"forZones": [{"name": zone}]})
}

/// A Service with the deprecated and the newer annotation, and the field.
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
fn the_deprecated_annotation_wins_and_either_annotation_wins_over_the_field() {
    let is_proportional = |service: Value| {
        cluster(service).sync().events.iter().any(|event| event.contains("TopologyAwareHintsDisabled"))
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
fn traffic_distribution_sets_zone_and_node_hints() {
    for distribution in ["PreferClose", "PreferSameZone"] {
        let mut cluster = cluster(prefers(distribution));
        cluster.sync();
        assert_eq!(hints(&cluster), [zone("z1"), zone("z2"), Value::Null]);
    }
    let mut both = cluster(prefers("PreferSameNode"));
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
        let mut cluster = cluster(prefers("PreferSameNode"));
        cluster.sync();
        assert_eq!(
            cluster.service(service_with("spec/trafficDistribution", nothing)).sync().verbs(),
            ["put"]
        );
        assert_eq!(hints(&cluster), [Value::Null, Value::Null, Value::Null]);
    }
}

/// Proves EPS-73, EPS-76.
#[test]
fn slices_are_only_written_if_their_hints_are_wrong() {
    let written = |service: Value, hint: Value| {
        let mut cluster = cluster(service);
        cluster.sync();
        let mut changed = cluster.only().clone();
        changed["endpoints"][0]["hints"] = hint;
        let result = cluster.slice(changed).sync();
        assert!(cluster.sync().is_noop());
        result.verbs().join(" ")
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
fn hints_of_endpoints_that_are_not_ready_are_neither_set_nor_compared() {
    let mut cluster = cluster(prefers("PreferSameZone"));
    cluster.pod(unready(pod("p1"))).sync();
    assert_eq!(hints(&cluster), [Value::Null, zone("z2"), Value::Null]);
    let mut odd = cluster.only().clone();
    odd["endpoints"][0]["hints"] = zone("elsewhere");
    assert!(cluster.slice(odd).sync().is_noop());
}

/// Proves EPS-127.
#[test]
fn a_change_from_the_annotation_to_the_field_rewrites_hints_once() {
    let mut cluster = cluster(annotated(None, Some("Auto")));
    cluster
        .no_pod("p3")
        .node(with(node("n3", ""), "status/conditions/0/status", json!("False")))
        .sync_zones();
    assert_eq!(
        cluster.sync().events,
        [
            "Normal TopologyAwareHintsEnabled on Service a/web uid=service-1: Topology Aware Hints has been enabled, addressType: IPv4"
        ]
    );
    let mut misdirected = cluster.only().clone();
    misdirected["endpoints"][0]["hints"] = zone("z2");
    let result = cluster.slice(misdirected).service(prefers("PreferSameZone")).sync();
    assert_eq!(result.verbs(), ["put"]);
    assert_eq!(
        result.events,
        [
            "Warning TopologyAwareHintsDisabled on Service a/web uid=service-1: Topology Aware Hints has been disabled, addressType: IPv4"
        ]
    );
    assert_eq!(cluster.endpoint("p1").unwrap()["hints"], zone("z1"));
    assert!(cluster.sync().is_noop());
}
