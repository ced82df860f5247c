//! Which Services a change enqueues, and when.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{EndpointSlice, Kind, Node, Pod, Service};
use keleustes_plan::{Change, Store};
use serde_json::{Value, json};

use super::super::EndpointSliceOptions;
use super::{TestCluster, node, pod, service, service_with, slice_of, terminating, unready, with};

fn object<T: Kind>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).unwrap())
}

fn added<T: Kind>(json: Value) -> Change<T> {
    Change::added(object(json))
}

fn deleted<T: Kind>(json: Value) -> Change<T> {
    Change::deleted(object(json))
}

/// An update; the new state gets another resourceVersion.
pub(super) fn updated<T: Kind>(old: Value, new: Value) -> Change<T> {
    let mut store = Store::default();
    store.apply(object(old));
    store.apply(object(with(new, "metadata/resourceVersion", json!("999"))))
}

/// A cluster with `a/web`, which selects `app: web`, and `a/other`, which selects `app: other`.
fn cluster(updates_batch_period: Duration) -> TestCluster {
    let mut cluster =
        TestCluster::with(&EndpointSliceOptions { updates_batch_period, ..EndpointSliceOptions::default() });
    let other = with(service_with("metadata/name", json!("other")), "spec/selector", json!({"app": "other"}));
    let without_selector =
        with(service_with("metadata/name", json!("without-selector")), "spec/selector", Value::Null);
    cluster.service(service()).service(other).service(without_selector);
    cluster
}

fn at_once(names: &[&str]) -> Vec<(String, u128)> {
    names.iter().map(|name| ((*name).to_owned(), 0)).collect()
}

fn after_a_second(names: &[&str]) -> Vec<(String, u128)> {
    names.iter().map(|name| ((*name).to_owned(), 1000)).collect()
}

/// Proves EPS-6.
#[test]
fn every_change_of_a_service_enqueues_it_at_once() {
    let cluster = cluster(Duration::from_secs(5));
    let same = object::<Service>(service());
    for change in [added(service()), updated(service(), service()), deleted(service()), Change::resync(same)]
    {
        assert_eq!(cluster.enqueues::<Service>(change), at_once(&["a/web"]));
    }
}

/// Proves EPS-3, EPS-7.
#[test]
fn a_new_or_deleted_pod_enqueues_its_services_after_the_batch_period() {
    for (period, millis) in [(Duration::ZERO, 0), (Duration::from_millis(1500), 1500)] {
        let cluster = cluster(period);
        let wanted = vec![("a/web".to_owned(), millis)];
        assert_eq!(cluster.enqueues::<Pod>(added(pod("p1"))), wanted);
        assert_eq!(cluster.enqueues::<Pod>(deleted(pod("p1"))), wanted);
        let unselected = with(pod("p1"), "metadata/labels", json!({"app": "none"}));
        assert!(cluster.enqueues::<Pod>(added(unselected)).is_empty());
        let elsewhere = with(pod("p1"), "metadata/namespace", json!("b"));
        assert!(cluster.enqueues::<Pod>(added(elsewhere)).is_empty());
    }
}

/// Proves EPS-8.
#[test]
fn a_pod_update_enqueues_only_if_its_endpoint_changed() {
    let cluster = cluster(Duration::ZERO);
    let enqueued = |new: Value| cluster.enqueues::<Pod>(updated(pod("p1"), new));
    let two = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    for changed in [
        terminating(pod("p1")),
        unready(pod("p1")),
        with(pod("p1"), "status/podIPs", two),
        with(pod("p1"), "status/podIPs/0/ip", json!("10.0.0.99")),
    ] {
        assert_eq!(enqueued(changed), at_once(&["a/web"]));
    }
    assert!(enqueued(with(pod("p1"), "metadata/annotations", json!({"x": "y"}))).is_empty());
    assert!(enqueued(with(pod("p1"), "status/startTime", json!("2026-01-01T00:00:00Z"))).is_empty());
    let mut store = Store::default();
    store.apply(object::<Pod>(pod("p1")));
    let repeated = store.apply(object(unready(pod("p1"))));
    assert!(cluster.enqueues::<Pod>(repeated).is_empty(), "an equal resourceVersion is the same state");
}

/// Proves EPS-9.
#[test]
fn a_relabelled_pod_enqueues_the_services_that_gain_and_lose_it() {
    let cluster = cluster(Duration::ZERO);
    let labelled = |pod: Value, app: &str| with(pod, "metadata/labels", json!({"app": app, "x": app}));
    let enqueued = |old: Value, new: Value| cluster.enqueues::<Pod>(updated(old, new));
    assert_eq!(enqueued(pod("p1"), labelled(pod("p1"), "other")), at_once(&["a/other", "a/web"]));
    assert!(
        enqueued(pod("p1"), labelled(pod("p1"), "web")).is_empty(),
        "a Service that keeps the pod is not enqueued"
    );
    assert_eq!(
        enqueued(pod("p1"), labelled(unready(pod("p1")), "web")),
        at_once(&["a/web"]),
        "unless the endpoint changed as well"
    );
    assert_eq!(enqueued(pod("p1"), labelled(unready(pod("p1")), "other")), at_once(&["a/other", "a/web"]));
    assert_eq!(enqueued(pod("p1"), labelled(pod("p1"), "none")), at_once(&["a/web"]));
}

/// Proves EPS-10.
#[test]
fn phase_and_node_changes_enqueue_only_for_terminating_pods() {
    let cluster = cluster(Duration::ZERO);
    let failed = |pod: Value| with(pod, "status/phase", json!("Failed"));
    assert!(cluster.enqueues::<Pod>(updated(pod("p1"), failed(pod("p1")))).is_empty());
    assert!(cluster.enqueues::<Pod>(updated(pod("p1"), super::pod_on("p1", "n2"))).is_empty());
    let ending = terminating(pod("p1"));
    assert_eq!(cluster.enqueues::<Pod>(updated(ending.clone(), failed(ending))), at_once(&["a/web"]));
}

/// Proves EPS-11, EPS-15.
#[test]
fn a_new_slice_enqueues_its_service_after_a_second_or_the_batch_period() {
    let managed = slice_of("web-1", 0..1);
    let mut theirs = managed.clone();
    theirs["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("me");
    let mut unselected = managed.clone();
    unselected["metadata"]["labels"].as_object_mut().unwrap().remove("kubernetes.io/service-name");
    let quick = cluster(Duration::ZERO);
    assert_eq!(quick.enqueues::<EndpointSlice>(added(managed.clone())), after_a_second(&["a/web"]));
    assert!(quick.enqueues::<EndpointSlice>(added(theirs)).is_empty());
    assert!(quick.enqueues::<EndpointSlice>(added(unselected)).is_empty());
    let slow = cluster(Duration::from_secs(3));
    assert_eq!(slow.enqueues::<EndpointSlice>(added(managed)), [("a/web".to_owned(), 3000)]);
}

fn labelled(mut slice: Value, label: &str, value: &str) -> Value {
    slice["metadata"]["labels"][label] = json!(value);
    slice
}

fn newer(slice: Value) -> Value {
    with(slice, "metadata/generation", json!(2))
}

/// Proves EPS-12, EPS-13, EPS-117, EPS-121.
#[test]
fn a_slice_update_enqueues_its_old_and_its_new_service() {
    let cluster = cluster(Duration::ZERO);
    let enqueued = |old: Value, new: Value| cluster.enqueues::<EndpointSlice>(updated(old, new));
    let ours = slice_of("web-1", 0..1);
    let moved = newer(labelled(ours.clone(), "kubernetes.io/service-name", "other"));
    assert_eq!(enqueued(ours.clone(), moved), after_a_second(&["a/other", "a/web"]));
    let theirs = newer(labelled(ours.clone(), "endpointslice.kubernetes.io/managed-by", "me"));
    assert_eq!(
        enqueued(ours.clone(), theirs.clone()),
        after_a_second(&["a/web"]),
        "another controller manages it now"
    );
    assert_eq!(
        enqueued(theirs.clone(), ours.clone()),
        after_a_second(&["a/web"]),
        "this controller manages it now"
    );
    assert_eq!(enqueued(ours.clone(), newer(ours.clone())), after_a_second(&["a/web"]));
    assert!(enqueued(theirs.clone(), newer(theirs)).is_empty());
    let noted = with(ours.clone(), "metadata/annotations", json!({"by": "hand"}));
    assert!(enqueued(ours, noted).is_empty(), "annotations do not change the generation");
}

/// Proves EPS-14, EPS-119.
#[test]
fn a_deleted_slice_enqueues_its_service() {
    let cluster = cluster(Duration::ZERO);
    assert_eq!(
        cluster.enqueues::<EndpointSlice>(deleted(slice_of("web-1", 0..1))),
        after_a_second(&["a/web"])
    );
    let theirs = labelled(slice_of("web-1", 0..1), "endpointslice.kubernetes.io/managed-by", "me");
    assert!(cluster.enqueues::<EndpointSlice>(deleted(theirs)).is_empty());
}

/// Proves EPS-16, EPS-17.
#[test]
fn nodes_enqueue_the_zones_when_added_deleted_or_with_new_readiness_or_zone() {
    let cluster = cluster(Duration::ZERO);
    let enqueued = |change| cluster.enqueues::<Node>(change);
    assert_eq!(enqueued(added(node("n1", "z1"))), at_once(&["zones"]));
    assert_eq!(enqueued(deleted(node("n1", "z1"))), at_once(&["zones"]));
    assert_eq!(enqueued(updated(node("n1", "z1"), node("n1", "z2"))), at_once(&["zones"]));
    let unknown = with(node("n1", "z1"), "status/conditions/0/status", json!("Unknown"));
    assert_eq!(enqueued(updated(node("n1", "z1"), unknown)), at_once(&["zones"]));
    let larger = with(node("n1", "z1"), "status/allocatable/cpu", json!("64"));
    assert!(enqueued(updated(node("n1", "z1"), larger)).is_empty());
    assert!(enqueued(Change::resync(object(node("n1", "z1")))).is_empty());
}

/// Proves EPS-132.
#[test]
fn a_new_node_enqueues_the_services_that_skipped_its_pods() {
    let mut cluster = cluster(Duration::ZERO);
    cluster.pods(0..2).no_node("n1");
    assert_eq!(cluster.a_loop.max_retries, Some(15));
    // The first attempt and each retry fail, and then none follows: nothing but the rate-limited retry, which is counted,
    // enqueues the Service again.
    for _ in 0..=15 {
        cluster.advance_clock(Duration::from_secs(1000));
        let result = cluster.sync();
        assert!(result.retry.is_some(), "its pods are skipped");
        assert_eq!((result.requeue_after, result.enqueued), (None, Vec::new()));
    }
    assert_eq!(cluster.enqueues::<Node>(added(node("n2", "z1"))), at_once(&["zones"]));
    assert_eq!(cluster.enqueues::<Node>(added(node("n1", "z1"))), at_once(&["a/web", "zones"]));
    cluster.node(node("n1", "z1")).advance_clock(Duration::from_secs(1));
    assert!(cluster.sync().retry.is_none());
    assert_eq!(
        cluster.enqueues::<Node>(added(node("n1", "z1"))),
        at_once(&["zones"]),
        "no Service skips its pods now"
    );
}

/// Proves EPS-7.
#[test]
fn pod_changes_are_debounced_after_a_write() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..2);
    let delay = |cluster: &TestCluster| cluster.enqueues::<Pod>(added(pod("p009")))[0].1;
    assert_eq!(delay(&cluster), 0, "the first change is enqueued at once");
    assert_eq!(cluster.sync().verbs(), ["create"]);
    assert_eq!(delay(&cluster), 100);
    // A change during the reconcile is debounced as well, unless the Service itself changes.
    let key = || keleustes_objects::Key::namespaced("a", "web");
    assert_eq!(cluster.pods(2..3).sync_now(key()).requeue_after.as_deref(), Some("100ms"));
    cluster.enqueues::<Service>(updated(service(), service()));
    assert_eq!(cluster.sync_now(key()).verbs(), ["put"]);
    cluster.advance_clock(Duration::from_millis(60));
    assert_eq!(delay(&cluster), 40);
    cluster.advance_clock(Duration::from_millis(60));
    assert_eq!(delay(&cluster), 0);
    assert!(cluster.sync().is_noop());
    assert_eq!(delay(&cluster), 0, "a reconcile without a write starts no debounce interval");
    assert_eq!(cluster.pods(2..250).sync().verbs().len(), 3);
    assert_eq!(delay(&cluster), 300, "the interval grows with the number of written slices");
    cluster.advance_clock(Duration::from_secs(1)).pods(250..2000).sync();
    assert_eq!(delay(&cluster), 500, "up to the maximum");
}

/// Proves EPS-7.
#[test]
fn continuous_changes_double_the_debounce_interval_up_to_a_second() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..2).sync();
    let delay = |cluster: &TestCluster| cluster.enqueues::<Pod>(added(pod("p099")))[0].1;
    let mut delays = Vec::new();
    for count in 3..9 {
        delays.push(delay(&cluster));
        let pause = Duration::from_millis(u64::try_from(delay(&cluster)).unwrap() + 20);
        cluster.advance_clock(pause).pods(0..count).sync_now(keleustes_objects::Key::namespaced("a", "web"));
    }
    assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
    cluster.advance_clock(Duration::from_secs(2)).pods(0..9).sync();
    assert_eq!(delay(&cluster), 100, "after a pause the interval starts small again");
}
