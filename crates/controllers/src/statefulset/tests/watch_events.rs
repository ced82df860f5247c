//! Which StatefulSets are enqueued for which watch event.

use std::sync::Arc;
use std::time::Duration;

use keleustes_plan::{Change, Effects, Store};

use super::*;

/// The StatefulSet `web`, and `other` with another selector.
fn both() -> RehearsalCluster {
    let other =
        with_field(with_field(set(1), "/metadata/name", json!("other")), "/metadata/uid", json!("u-other"));
    cluster(set(1), []).with::<StatefulSet>(with_field(
        other,
        "/spec/selector",
        json!({"matchLabels": {"app": "other"}}),
    ))
}

fn of_other(pod: Value) -> Value {
    let pod = with_field(pod, "/metadata/ownerReferences/0/name", json!("other"));
    with_field(pod, "/metadata/ownerReferences/0/uid", json!("u-other"))
}

fn decoded<T: keleustes_objects::Kind>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).expect("a well-formed object"))
}

/// The keys enqueued when a pod changes from one state to another.
fn between(before: Value, after: Value) -> Vec<String> {
    let mut cluster = both();
    cluster.put::<Pod>(&the_loop(), before);
    cluster.put::<Pod>(&the_loop(), with_field(after, "/metadata/resourceVersion", json!("2")))
}

/// Proves STS-4.
#[test]
fn every_change_of_a_stateful_set_enqueues_it() {
    let mut cluster = both();
    assert_eq!(
        cluster.put::<StatefulSet>(&the_loop(), with_field(set(1), "/status/replicas", json!(4))),
        ["a/web"]
    );
    assert_eq!(cluster.enqueued_by(&the_loop(), Change::<StatefulSet>::resync(decoded(set(1)))), ["a/web"]);
    assert_eq!(cluster.take::<StatefulSet>(&the_loop(), &web()), ["a/web"]);
}

/// Proves STS-5.
#[test]
fn a_new_pod_enqueues_its_controller_or_possible_adopters() {
    let none = Vec::<String>::new();
    assert_eq!(both().put::<Pod>(&the_loop(), pod(0)), ["a/web"]);
    assert_eq!(both().put::<Pod>(&the_loop(), terminating(pod(0))), ["a/web"]);
    assert_eq!(both().put::<Pod>(&the_loop(), orphan("x")), ["a/web"], "by its labels, whatever its name");
    assert_eq!(both().put::<Pod>(&the_loop(), terminating(orphan("x"))), none);
    let stranger = with_field(pod(0), "/metadata/ownerReferences/0/uid", json!("u-before"));
    assert_eq!(both().put::<Pod>(&the_loop(), stranger), none);
    let of_kind = with_field(pod(0), "/metadata/ownerReferences/0/kind", json!("ReplicaSet"));
    assert_eq!(both().put::<Pod>(&the_loop(), of_kind), none);
    let all = with_field(set(1), "/spec/selector", json!({}));
    assert_eq!(cluster(all, []).put::<Pod>(&the_loop(), orphan("x")), none);
}

/// Proves STS-6.
#[test]
fn a_changed_pod_enqueues_old_and_new_controllers() {
    let none = Vec::<String>::new();
    assert_eq!(both().enqueued_by(&the_loop(), Change::<Pod>::resync(decoded(pod(0)))), none);
    assert_eq!(between(pod(0), unready(pod(0))), ["a/web"]);
    assert_eq!(between(pod(0), terminating(pod(0))), ["a/web"]);
    assert_eq!(between(pod(0), of_other(pod(0))), ["a/web", "a/other"]);
    assert_eq!(between(of_other(pod(0)), orphan("web-0")), ["a/other", "a/web"]);
    assert_eq!(between(orphan("x"), unready(orphan("x"))), none);
    let relabelled = with_field(orphan("x"), "/metadata/labels/app", json!("other"));
    assert_eq!(between(orphan("x"), relabelled), ["a/other"]);
}

/// Proves STS-7.
#[test]
fn a_pod_that_becomes_ready_enqueues_its_controller_when_it_is_available() {
    let delays = |seconds: i32| {
        let cluster = cluster(with_field(set(1), "/spec/minReadySeconds", json!(seconds)), []);
        let (mut pods, mut enqueued) = (Store::default(), Effects::default());
        pods.apply(decoded::<Pod>(unready(pod(0))));
        let change = pods.apply(decoded(with_field(pod(0), "/metadata/resourceVersion", json!("2"))));
        enqueue::pod_changed(&change, &cluster.view(), &mut enqueued);
        enqueued.into_items().into_iter().map(|(_, delay)| delay).collect::<Vec<_>>()
    };
    assert_eq!(delays(10), [None, Some(Duration::from_secs(10))]);
    assert_eq!(delays(0), [None]);
}

/// Proves STS-8.
#[test]
fn a_deleted_pod_enqueues_its_controller_and_an_orphan_nothing() {
    let cluster = both();
    assert_eq!(cluster.enqueued_by(&the_loop(), Change::<Pod>::deleted(decoded(pod(0)))), ["a/web"]);
    assert!(cluster.enqueued_by(&the_loop(), Change::<Pod>::deleted(decoded(orphan("web-0")))).is_empty());
}
