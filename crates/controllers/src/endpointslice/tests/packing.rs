//! How endpoints are distributed over slices.

use serde_json::{Value, json};

use super::{TestCluster, endpoint, pod, service, service_with, slice, slice_of, terminating, unready, with};

/// A cluster with these slices and their pods: `sizes` endpoints in each.
fn cluster(max_endpoints_per_slice: usize, sizes: &[usize]) -> TestCluster {
    let (mut cluster, mut next) = (TestCluster::of_slices(max_endpoints_per_slice), 0);
    cluster.service(service());
    for (at, size) in sizes.iter().enumerate() {
        cluster.slice(slice_of(&format!("web-{at}"), next..next + size)).pods(next..next + size);
        next += size;
    }
    cluster
}

/// Proves EPS-118.
#[test]
fn up_to_date_slices_are_not_written() {
    assert!(cluster(100, &[3, 2]).sync().is_noop());
}

/// Proves EPS-46.
#[test]
fn the_order_of_ports_does_not_matter() {
    let two =
        json!([{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 2, "protocol": "TCP"}]);
    let reversed =
        json!([{"name": "b", "port": 2, "protocol": "TCP"}, {"name": "a", "port": 1, "protocol": "TCP"}]);
    let mut cluster = TestCluster::new();
    cluster.service(service_with("spec/ports", two)).pods(0..1).slice(with(
        slice_of("web-1", 0..1),
        "ports",
        reversed,
    ));
    assert!(cluster.sync().is_noop());
    let headless = with(service_with("spec/ports", json!([])), "spec/clusterIP", json!("None"));
    let mut bare = slice_of("web-1", 0..1);
    bare["ports"] = Value::Null;
    bare["metadata"]["labels"]["service.kubernetes.io/headless"] = json!("");
    let mut cluster = TestCluster::new();
    cluster.service(headless).pods(0..1).slice(bare);
    assert!(cluster.sync().is_noop(), "null and an empty list are equal");
}

/// Proves EPS-47, EPS-116.
#[test]
fn slices_of_a_service_with_another_uid_are_deleted_and_not_reused() {
    for (path, value) in [("uid", "service-0"), ("kind", "Pod"), ("apiVersion", "v2")] {
        let foreign =
            with(slice_of("web-0", 0..2), &format!("metadata/ownerReferences/0/{path}"), json!(value));
        let mut cluster = TestCluster::new();
        let result = cluster.service(service()).pods(0..2).slice(foreign).sync();
        assert_eq!(result.verbs(), ["create", "delete"]);
        assert_eq!(cluster.only()["metadata"]["ownerReferences"][0]["uid"], "service-1");
        assert!(cluster.sync().is_noop());
    }
}

/// Proves EPS-48, EPS-49.
#[test]
fn a_duplicate_endpoint_stays_in_the_first_slice_only() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..3).slice(slice_of("web-1", 0..2)).slice(slice_of("web-2", 1..3));
    let result = cluster.sync();
    assert_eq!(result.writes.iter().map(|write| &*write.name).collect::<Vec<_>>(), ["web-2"]);
    assert_eq!(cluster.sizes(), [2, 1]);
    let twice = slice("web-1", &[endpoint("p000"), endpoint("p000")]);
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..1).slice(twice).sync();
    assert_eq!(cluster.sizes(), [1]);
    // A different address makes a different endpoint.
    let mut cluster = TestCluster::new();
    let moved = with(pod("p000"), "status/podIPs/0/ip", json!("10.9.9.9"));
    let result = cluster.service(service()).pod(moved).slice(slice_of("web-1", 0..1)).sync();
    assert_eq!(result.measured("endpoints_added_per_sync"), ["{} 1"]);
}

/// Proves EPS-50, EPS-51.
#[test]
fn a_slice_is_written_if_an_endpoint_differs_in_a_field_other_than_hints() {
    let written = |path: &str, value: Value| {
        let mut cluster = cluster(100, &[2]);
        let changed = with(cluster.slices["web-0"].clone(), &format!("endpoints/0/{path}"), value);
        cluster.slice(changed).sync().verbs().join(" ")
    };
    for (path, value) in [
        ("nodeName", json!("n9")),
        ("zone", Value::Null),
        ("conditions/ready", json!(false)),
        ("conditions/serving", Value::Null),
        ("conditions/terminating", json!(true)),
        ("targetRef/uid", json!("another")),
        ("targetRef/kind", json!("Machine")),
    ] {
        assert_eq!(written(path, value), "put", "{path}");
    }
    assert_eq!(written("targetRef/resourceVersion", json!("7")), "");
    // A slice without endpoints is deleted, unless it is the last one of the Service.
    let mut cluster = cluster(100, &[2, 2]);
    cluster.no_pod("p002").no_pod("p003");
    assert_eq!(cluster.sync().verbs(), ["delete"]);
    // Changed labels alone.
    cluster.service(service_with("metadata/labels", json!({"team": "x"})));
    assert_eq!(cluster.sync().verbs(), ["put"]);
    assert_eq!(cluster.only()["metadata"]["labels"]["team"], "x");
    assert!(cluster.sync().is_noop());
}

/// Proves EPS-52, EPS-57.
#[test]
fn new_endpoints_first_fill_changed_slices_the_fullest_first() {
    let mut cluster = cluster(100, &[81, 21]);
    cluster.no_pod("p000").no_pod("p081").pods(200..215);
    assert_eq!(cluster.sync().verbs(), ["put", "put"]);
    assert_eq!(cluster.sizes(), [95, 20]);
}

/// Proves EPS-53, EPS-54, EPS-56, EPS-57.
#[test]
fn remaining_endpoints_go_to_one_slice_or_to_new_ones() {
    let grow = |sizes: &[usize], more: usize| {
        let mut cluster = cluster(100, sizes);
        let result = cluster.pods(500..500 + more).sync();
        (result.verbs().join(" "), cluster.sizes())
    };
    assert_eq!(grow(&[62, 61], 127), ("create put".to_owned(), vec![100, 89, 61]));
    assert_eq!(grow(&[74, 74], 152), ("create create".to_owned(), vec![100, 74, 74, 52]));
    assert_eq!(
        grow(&[30, 60, 90], 10),
        ("put".to_owned(), vec![100, 60, 30]),
        "the slice that gets closest to full"
    );
    assert_eq!(grow(&[70, 80], 25), ("put".to_owned(), vec![95, 80]), "the only slice with room for all");
    assert_eq!(grow(&[80, 80], 30), ("create".to_owned(), vec![80, 80, 30]), "never split over two slices");
    assert_eq!(grow(&[], 250), ("create create create".to_owned(), vec![100, 100, 50]));
}

/// Proves EPS-55.
#[test]
fn slices_are_never_merged_or_rebalanced() {
    let mut cluster = cluster(100, &[30; 10]);
    assert!(cluster.sync().is_noop());
    cluster.pod(unready(pod("p000")));
    assert_eq!(cluster.sync().verbs(), ["put"]);
    assert_eq!(cluster.sizes(), [30; 10]);
}

/// Proves EPS-58, EPS-59.
#[test]
fn a_change_of_ports_rewrites_slices_in_place() {
    let mut cluster = TestCluster::new();
    assert_eq!(cluster.service(service()).pods(0..250).sync().verbs(), ["create"; 3]);
    cluster.service(service_with("spec/ports/0/targetPort", json!(9090)));
    assert_eq!(cluster.sync().verbs(), ["put"; 3]);
    assert_eq!(cluster.sizes(), [100, 100, 50]);
    assert!(cluster.slices.values().all(|slice| slice["ports"][0]["port"] == 9090));
    assert!(cluster.sync().is_noop());
}

/// Proves EPS-123, EPS-124.
#[test]
fn a_recreated_pod_is_the_same_endpoint_and_another_pod_is_not() {
    let mut cluster = cluster(100, &[2]);
    let result = cluster.pod(with(pod("p000"), "metadata/uid", json!("recreated"))).sync();
    assert_eq!(result.measured("endpoints_added_per_sync"), ["{} 0"]);
    assert_eq!(cluster.endpoint("p000").unwrap()["targetRef"]["uid"], "recreated");
    let successor = with(pod("p000"), "metadata/name", json!("successor"));
    let result = cluster.no_pod("p000").pod(successor).sync();
    assert_eq!(result.measured("endpoints_added_per_sync"), ["{} 1"]);
    assert_eq!(result.measured("endpoints_removed_per_sync"), ["{} 1"]);
    assert!(cluster.endpoint("p000").is_none() && cluster.endpoint("successor").is_some());
}

/// Proves EPS-134.
#[test]
fn overfull_slices_are_kept_and_get_no_more_endpoints() {
    let mut cluster = cluster(10, &[20]);
    assert!(cluster.sync().is_noop());
    assert_eq!(cluster.pods(100..101).sync().verbs(), ["create"]);
    assert_eq!(cluster.sizes(), [20, 1]);
    assert_eq!(cluster.pod(terminating(pod("p000"))).sync().verbs(), ["put"]);
    assert_eq!(cluster.sizes(), [20, 1]);
}
