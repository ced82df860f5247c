//! Which changes wake which Services, and when.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{EndpointSlice, Kind, Node, Pod, Service};
use keleustes_plan::{Change, Store};
use serde_json::{Value, json};

use super::super::EndpointSliceOptions;
use super::{Stage, node, pod, service, service_with, slice_of, terminating, unready, with};

fn object<T: Kind>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).unwrap())
}

fn added<T: Kind>(json: Value) -> Change<T> {
    Change::added(object(json))
}

fn deleted<T: Kind>(json: Value) -> Change<T> {
    Change::deleted(object(json))
}

/// An update; the new state gets a version of its own.
pub(super) fn updated<T: Kind>(old: Value, new: Value) -> Change<T> {
    let mut table = Store::default();
    table.apply(object(old));
    table.apply(object(with(new, "metadata/resourceVersion", json!("999"))))
}

/// A stage with `a/web`, which selects `app: web`, and `a/other`, which selects `app: other`.
fn stage(updates_batch_period: Duration) -> Stage {
    let mut stage =
        Stage::with(&EndpointSliceOptions { updates_batch_period, ..EndpointSliceOptions::default() });
    let other = with(service_with("metadata/name", json!("other")), "spec/selector", json!({"app": "other"}));
    let blind = with(service_with("metadata/name", json!("blind")), "spec/selector", Value::Null);
    stage.service(service()).service(other).service(blind);
    stage
}

fn at_once(names: &[&str]) -> Vec<(String, u128)> {
    names.iter().map(|name| ((*name).to_owned(), 0)).collect()
}

fn after_a_second(names: &[&str]) -> Vec<(String, u128)> {
    names.iter().map(|name| ((*name).to_owned(), 1000)).collect()
}

/// Proves EPS-6.
#[test]
fn every_change_of_a_service_wakes_it_at_once() {
    let stage = stage(Duration::from_secs(5));
    let same = object::<Service>(service());
    for change in [added(service()), updated(service(), service()), deleted(service()), Change::resync(same)]
    {
        assert_eq!(stage.wakes::<Service>(change), at_once(&["a/web"]));
    }
}

/// Proves EPS-3, EPS-7.
#[test]
fn a_pod_that_comes_or_goes_wakes_who_selects_it_after_the_batch_period() {
    for (period, millis) in [(Duration::ZERO, 0), (Duration::from_millis(1500), 1500)] {
        let stage = stage(period);
        let wanted = vec![("a/web".to_owned(), millis)];
        assert_eq!(stage.wakes::<Pod>(added(pod("p1"))), wanted);
        assert_eq!(stage.wakes::<Pod>(deleted(pod("p1"))), wanted);
        let nobodys = with(pod("p1"), "metadata/labels", json!({"app": "nobody"}));
        assert!(stage.wakes::<Pod>(added(nobodys)).is_empty());
        let elsewhere = with(pod("p1"), "metadata/namespace", json!("b"));
        assert!(stage.wakes::<Pod>(added(elsewhere)).is_empty());
    }
}

/// Proves EPS-8.
#[test]
fn an_update_of_a_pod_wakes_only_if_endpoints_show_it() {
    let stage = stage(Duration::ZERO);
    let wakes = |new: Value| stage.wakes::<Pod>(updated(pod("p1"), new));
    let two = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    for shown in [
        terminating(pod("p1")),
        unready(pod("p1")),
        with(pod("p1"), "status/podIPs", two),
        with(pod("p1"), "status/podIPs/0/ip", json!("10.0.0.99")),
    ] {
        assert_eq!(wakes(shown), at_once(&["a/web"]));
    }
    assert!(wakes(with(pod("p1"), "metadata/annotations", json!({"x": "y"}))).is_empty());
    assert!(wakes(with(pod("p1"), "status/startTime", json!("2026-01-01T00:00:00Z"))).is_empty());
    let mut table = Store::default();
    table.apply(object::<Pod>(pod("p1")));
    let repeated = table.apply(object(unready(pod("p1"))));
    assert!(stage.wakes::<Pod>(repeated).is_empty(), "the same version is the same state");
}

/// Proves EPS-9.
#[test]
fn a_relabelled_pod_wakes_who_gains_and_who_loses_it() {
    let stage = stage(Duration::ZERO);
    let labelled = |pod: Value, app: &str| with(pod, "metadata/labels", json!({"app": app, "x": app}));
    let wakes = |old: Value, new: Value| stage.wakes::<Pod>(updated(old, new));
    assert_eq!(wakes(pod("p1"), labelled(pod("p1"), "other")), at_once(&["a/other", "a/web"]));
    assert!(wakes(pod("p1"), labelled(pod("p1"), "web")).is_empty(), "who keeps it sees no change");
    assert_eq!(
        wakes(pod("p1"), labelled(unready(pod("p1")), "web")),
        at_once(&["a/web"]),
        "unless it changed, too"
    );
    assert_eq!(wakes(pod("p1"), labelled(unready(pod("p1")), "other")), at_once(&["a/other", "a/web"]));
    assert_eq!(wakes(pod("p1"), labelled(pod("p1"), "nobody")), at_once(&["a/web"]));
}

/// Proves EPS-10.
#[test]
fn phase_and_node_alone_wake_nobody_but_everything_counts_at_the_end() {
    let stage = stage(Duration::ZERO);
    let failed = |pod: Value| with(pod, "status/phase", json!("Failed"));
    assert!(stage.wakes::<Pod>(updated(pod("p1"), failed(pod("p1")))).is_empty());
    assert!(stage.wakes::<Pod>(updated(pod("p1"), super::pod_on("p1", "n2"))).is_empty());
    let ending = terminating(pod("p1"));
    assert_eq!(stage.wakes::<Pod>(updated(ending.clone(), failed(ending))), at_once(&["a/web"]));
}

/// Proves EPS-11, EPS-15.
#[test]
fn a_slice_that_appears_wakes_its_service_after_a_second_or_the_batch_period() {
    let managed = slice_of("web-1", 0..1);
    let mut theirs = managed.clone();
    theirs["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("me");
    let mut nobodys = managed.clone();
    nobodys["metadata"]["labels"].as_object_mut().unwrap().remove("kubernetes.io/service-name");
    let quick = stage(Duration::ZERO);
    assert_eq!(quick.wakes::<EndpointSlice>(added(managed.clone())), after_a_second(&["a/web"]));
    assert!(quick.wakes::<EndpointSlice>(added(theirs)).is_empty());
    assert!(quick.wakes::<EndpointSlice>(added(nobodys)).is_empty());
    let slow = stage(Duration::from_secs(3));
    assert_eq!(slow.wakes::<EndpointSlice>(added(managed)), [("a/web".to_owned(), 3000)]);
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
fn a_slice_that_somebody_changes_wakes_those_it_was_and_is_of() {
    let stage = stage(Duration::ZERO);
    let wakes = |old: Value, new: Value| stage.wakes::<EndpointSlice>(updated(old, new));
    let ours = slice_of("web-1", 0..1);
    let moved = newer(labelled(ours.clone(), "kubernetes.io/service-name", "other"));
    assert_eq!(wakes(ours.clone(), moved), after_a_second(&["a/other", "a/web"]));
    let theirs = newer(labelled(ours.clone(), "endpointslice.kubernetes.io/managed-by", "me"));
    assert_eq!(wakes(ours.clone(), theirs.clone()), after_a_second(&["a/web"]), "given away");
    assert_eq!(wakes(theirs.clone(), ours.clone()), after_a_second(&["a/web"]), "taken over");
    assert_eq!(wakes(ours.clone(), newer(ours.clone())), after_a_second(&["a/web"]));
    assert!(wakes(theirs.clone(), newer(theirs)).is_empty());
    let noted = with(ours.clone(), "metadata/annotations", json!({"by": "hand"}));
    assert!(wakes(ours, noted).is_empty(), "annotations have no generation");
}

/// Proves EPS-14, EPS-119.
#[test]
fn a_slice_that_somebody_deletes_wakes_its_service() {
    let stage = stage(Duration::ZERO);
    assert_eq!(stage.wakes::<EndpointSlice>(deleted(slice_of("web-1", 0..1))), after_a_second(&["a/web"]));
    let theirs = labelled(slice_of("web-1", 0..1), "endpointslice.kubernetes.io/managed-by", "me");
    assert!(stage.wakes::<EndpointSlice>(deleted(theirs)).is_empty());
}

/// Proves EPS-16, EPS-17.
#[test]
fn nodes_concern_the_zones_when_they_come_go_change_health_or_move() {
    let stage = stage(Duration::ZERO);
    let wakes = |change| stage.wakes::<Node>(change);
    assert_eq!(wakes(added(node("n1", "z1"))), at_once(&["zones"]));
    assert_eq!(wakes(deleted(node("n1", "z1"))), at_once(&["zones"]));
    assert_eq!(wakes(updated(node("n1", "z1"), node("n1", "z2"))), at_once(&["zones"]));
    let ill = with(node("n1", "z1"), "status/conditions/0/status", json!("Unknown"));
    assert_eq!(wakes(updated(node("n1", "z1"), ill)), at_once(&["zones"]));
    let larger = with(node("n1", "z1"), "status/allocatable/cpu", json!("64"));
    assert!(wakes(updated(node("n1", "z1"), larger)).is_empty());
    assert!(wakes(Change::resync(object(node("n1", "z1")))).is_empty());
}

#[test]
fn a_node_that_comes_wakes_the_services_that_miss_it() {
    let mut stage = stage(Duration::ZERO);
    stage.pods(0..2).no_node("n1");
    assert!(stage.sync().retry.is_some(), "its pods are left out");
    assert_eq!(stage.wakes::<Node>(added(node("n2", "z1"))), at_once(&["zones"]));
    assert_eq!(stage.wakes::<Node>(added(node("n1", "z1"))), at_once(&["a/web", "zones"]));
    stage.node(node("n1", "z1")).advance_clock(Duration::from_secs(1));
    assert!(stage.sync().retry.is_none());
    assert_eq!(stage.wakes::<Node>(added(node("n1", "z1"))), at_once(&["zones"]), "nobody misses it now");
}

/// Proves EPS-7.
#[test]
fn changes_of_pods_gather_for_a_moment_after_a_write() {
    let mut stage = Stage::new();
    stage.service(service()).pods(0..2);
    let delay = |stage: &Stage| stage.wakes::<Pod>(added(pod("p009")))[0].1;
    assert_eq!(delay(&stage), 0, "the first change is told at once");
    assert_eq!(stage.sync().verbs(), ["create"]);
    assert_eq!(delay(&stage), 100);
    // A change that came while the write was being decided waits as well, unless the Service itself changes.
    let key = || keleustes_objects::Key::namespaced("a", "web");
    assert_eq!(stage.pods(2..3).turn(key()).waits.as_deref(), Some("waiting for 100ms"));
    stage.wakes::<Service>(updated(service(), service()));
    assert_eq!(stage.turn(key()).verbs(), ["put"]);
    stage.advance_clock(Duration::from_millis(60));
    assert_eq!(delay(&stage), 40);
    stage.advance_clock(Duration::from_millis(60));
    assert_eq!(delay(&stage), 0);
    assert!(stage.sync().is_calm());
    assert_eq!(delay(&stage), 0, "a turn without a write starts nothing");
    assert_eq!(stage.pods(2..250).sync().verbs().len(), 3);
    assert_eq!(delay(&stage), 300, "longer, the more slices were written");
    stage.advance_clock(Duration::from_secs(1)).pods(250..2000).sync();
    assert_eq!(delay(&stage), 500, "but not for ever");
}

/// Proves EPS-7.
#[test]
fn in_a_row_of_changes_they_gather_for_up_to_a_second() {
    let mut stage = Stage::new();
    stage.service(service()).pods(0..2).sync();
    let delay = |stage: &Stage| stage.wakes::<Pod>(added(pod("p099")))[0].1;
    let mut delays = Vec::new();
    for count in 3..9 {
        delays.push(delay(&stage));
        let pause = Duration::from_millis(u64::try_from(delay(&stage)).unwrap() + 20);
        stage.advance_clock(pause).pods(0..count).turn(keleustes_objects::Key::namespaced("a", "web"));
    }
    assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
    stage.advance_clock(Duration::from_secs(2)).pods(0..9).sync();
    assert_eq!(delay(&stage), 100, "after a pause it begins anew");
}
