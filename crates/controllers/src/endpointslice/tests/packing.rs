//! How endpoints are spread over slices.

use serde_json::{Value, json};

use super::{Stage, endpoint, pod, service, service_with, slice, slice_of, terminating, unready, with};

/// A stage where these slices are there and their pods too: `sizes` endpoints in each.
fn stage(max_endpoints_per_slice: usize, sizes: &[usize]) -> Stage {
    let (mut stage, mut next) = (Stage::of_slices(max_endpoints_per_slice), 0);
    stage.service(service());
    for (at, size) in sizes.iter().enumerate() {
        stage.slice(slice_of(&format!("web-{at}"), next..next + size)).pods(next..next + size);
        next += size;
    }
    stage
}

/// Proves EPS-118.
#[test]
fn what_is_as_it_should_be_is_not_written() {
    assert!(stage(100, &[3, 2]).sync().is_calm());
}

/// Proves EPS-46.
#[test]
fn the_order_of_ports_does_not_matter() {
    let two =
        json!([{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 2, "protocol": "TCP"}]);
    let turned =
        json!([{"name": "b", "port": 2, "protocol": "TCP"}, {"name": "a", "port": 1, "protocol": "TCP"}]);
    let mut stage = Stage::new();
    stage.service(service_with("spec/ports", two)).pods(0..1).slice(with(
        slice_of("web-1", 0..1),
        "ports",
        turned,
    ));
    assert!(stage.sync().is_calm());
    let headless = with(service_with("spec/ports", json!([])), "spec/clusterIP", json!("None"));
    let mut bare = slice_of("web-1", 0..1);
    bare["ports"] = Value::Null;
    bare["metadata"]["labels"]["service.kubernetes.io/headless"] = json!("");
    let mut stage = Stage::new();
    stage.service(headless).pods(0..1).slice(bare);
    assert!(stage.sync().is_calm(), "no list and an empty list are the same");
}

/// Proves EPS-47, EPS-116.
#[test]
fn slices_of_another_life_of_the_service_are_deleted_and_not_used() {
    for (path, value) in [("uid", "service-0"), ("kind", "Pod"), ("apiVersion", "v2")] {
        let foreign =
            with(slice_of("web-0", 0..2), &format!("metadata/ownerReferences/0/{path}"), json!(value));
        let mut stage = Stage::new();
        let minutes = stage.service(service()).pods(0..2).slice(foreign).sync();
        assert_eq!(minutes.verbs(), ["create", "delete"]);
        assert_eq!(stage.only()["metadata"]["ownerReferences"][0]["uid"], "service-1");
        assert!(stage.sync().is_calm());
    }
}

/// Proves EPS-48, EPS-49.
#[test]
fn an_endpoint_is_in_one_slice_only_the_first_that_has_it() {
    let mut stage = Stage::new();
    stage.service(service()).pods(0..3).slice(slice_of("web-1", 0..2)).slice(slice_of("web-2", 1..3));
    let minutes = stage.sync();
    assert_eq!(minutes.writes.iter().map(|write| &*write.name).collect::<Vec<_>>(), ["web-2"]);
    assert_eq!(stage.sizes(), [2, 1]);
    let twice = slice("web-1", &[endpoint("p000"), endpoint("p000")]);
    let mut stage = Stage::new();
    stage.service(service()).pods(0..1).slice(twice).sync();
    assert_eq!(stage.sizes(), [1]);
    // Another hostname, another address or another pod is another endpoint.
    let mut stage = Stage::new();
    let moved = with(pod("p000"), "status/podIPs/0/ip", json!("10.9.9.9"));
    let minutes = stage.service(service()).pod(moved).slice(slice_of("web-1", 0..1)).sync();
    assert_eq!(minutes.measured("endpoints_added_per_sync"), ["{} 1"]);
}

/// Proves EPS-50, EPS-51.
#[test]
fn a_slice_is_written_when_an_endpoint_differs_in_anything_but_its_hints() {
    let written = |path: &str, value: Value| {
        let mut stage = stage(100, &[2]);
        let changed = with(stage.slices["web-0"].clone(), &format!("endpoints/0/{path}"), value);
        stage.slice(changed).sync().verbs().join(" ")
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
    // All endpoints gone: deleted, unless it has to stand for the Service.
    let mut stage = stage(100, &[2, 2]);
    stage.no_pod("p002").no_pod("p003");
    assert_eq!(stage.sync().verbs(), ["delete"]);
    // Labels alone.
    stage.service(service_with("metadata/labels", json!({"team": "x"})));
    assert_eq!(stage.sync().verbs(), ["put"]);
    assert_eq!(stage.only()["metadata"]["labels"]["team"], "x");
    assert!(stage.sync().is_calm());
}

/// Proves EPS-52, EPS-57.
#[test]
fn new_endpoints_go_first_where_something_changed_anyway_the_fullest_first() {
    let mut stage = stage(100, &[81, 21]);
    stage.no_pod("p000").no_pod("p081").pods(200..215);
    assert_eq!(stage.sync().verbs(), ["put", "put"]);
    assert_eq!(stage.sizes(), [95, 20]);
}

/// Proves EPS-53, EPS-54, EPS-56, EPS-57.
#[test]
fn what_is_left_fits_whole_into_one_slice_or_opens_new_ones() {
    let grow = |sizes: &[usize], more: usize| {
        let mut stage = stage(100, sizes);
        let minutes = stage.pods(500..500 + more).sync();
        (minutes.verbs().join(" "), stage.sizes())
    };
    assert_eq!(grow(&[62, 61], 127), ("create put".to_owned(), vec![100, 89, 61]));
    assert_eq!(grow(&[74, 74], 152), ("create create".to_owned(), vec![100, 74, 74, 52]));
    assert_eq!(
        grow(&[30, 60, 90], 10),
        ("put".to_owned(), vec![100, 60, 30]),
        "the one that gets closest to full"
    );
    assert_eq!(grow(&[70, 80], 25), ("put".to_owned(), vec![95, 80]), "the one that all fit into");
    assert_eq!(grow(&[80, 80], 30), ("create".to_owned(), vec![80, 80, 30]), "never split over two");
    assert_eq!(grow(&[], 250), ("create create create".to_owned(), vec![100, 100, 50]));
}

/// Proves EPS-55.
#[test]
fn slices_are_never_merged_for_the_sake_of_order() {
    let mut stage = stage(100, &[30; 10]);
    assert!(stage.sync().is_calm());
    stage.pod(unready(pod("p000")));
    assert_eq!(stage.sync().verbs(), ["put"]);
    assert_eq!(stage.sizes(), [30; 10]);
}

/// Proves EPS-58, EPS-59.
#[test]
fn a_change_of_ports_rewrites_slices_in_place() {
    let mut stage = Stage::new();
    assert_eq!(stage.service(service()).pods(0..250).sync().verbs(), ["create"; 3]);
    stage.service(service_with("spec/ports/0/targetPort", json!(9090)));
    assert_eq!(stage.sync().verbs(), ["put"; 3]);
    assert_eq!(stage.sizes(), [100, 100, 50]);
    assert!(stage.slices.values().all(|slice| slice["ports"][0]["port"] == 9090));
    assert!(stage.sync().is_calm());
}

/// Proves EPS-123, EPS-124.
#[test]
fn another_life_of_a_pod_is_the_same_endpoint_and_another_pod_is_not() {
    let mut stage = stage(100, &[2]);
    let minutes = stage.pod(with(pod("p000"), "metadata/uid", json!("reborn"))).sync();
    assert_eq!(minutes.measured("endpoints_added_per_sync"), ["{} 0"]);
    assert_eq!(stage.endpoint("p000").unwrap()["targetRef"]["uid"], "reborn");
    let heir = with(pod("p000"), "metadata/name", json!("heir"));
    let minutes = stage.no_pod("p000").pod(heir).sync();
    assert_eq!(minutes.measured("endpoints_added_per_sync"), ["{} 1"]);
    assert_eq!(minutes.measured("endpoints_removed_per_sync"), ["{} 1"]);
    assert!(stage.endpoint("p000").is_none() && stage.endpoint("heir").is_some());
}

/// Proves EPS-134.
#[test]
fn slices_that_are_too_full_stay_so_until_they_change_and_get_nothing_more() {
    let mut stage = stage(10, &[20]);
    assert!(stage.sync().is_calm());
    assert_eq!(stage.pods(100..101).sync().verbs(), ["create"]);
    assert_eq!(stage.sizes(), [20, 1]);
    assert_eq!(stage.pod(terminating(pod("p000"))).sync().verbs(), ["put"]);
    assert_eq!(stage.sizes(), [20, 1]);
}
