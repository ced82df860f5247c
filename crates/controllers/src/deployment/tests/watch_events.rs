//! Which Deployments are enqueued for which watch event.

use std::sync::Arc;

use keleustes_plan::{Change, Store};

use super::*;

fn decoded<T: keleustes_objects::Kind>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).expect("a well-formed object"))
}

fn other() -> Value {
    let other = with_field(
        with_field(deployment(1), "/metadata/name", json!("other")),
        "/metadata/uid",
        json!("u-other"),
    );
    with_field(other, "/spec/selector", json!({"matchLabels": {"app": "other"}}))
}

fn enqueue(before: Option<Value>, now: Value) -> Vec<String> {
    let (a_loop, mut sets) = (the_loop(), Store::<ReplicaSet>::default());
    if let Some(before) = before {
        sets.apply(decoded(before));
    }
    let cluster = cluster(deployment(1), []).with::<Deployment>(other());
    cluster
        .enqueued_by(&a_loop, sets.apply(decoded(with_field(now, "/metadata/resourceVersion", json!("6")))))
}

fn orphan() -> Value {
    with_field(old(1, 1), "/metadata/ownerReferences", json!([]))
}

fn of_other(set: Value) -> Value {
    let set = with_field(set, "/metadata/ownerReferences/0/uid", json!("u-other"));
    with_field(set, "/metadata/ownerReferences/0/name", json!("other"))
}

fn labelled(app: &str, set: Value) -> Value {
    with_field(set, "/metadata/labels", json!({"app": app}))
}

/// Proves DEP-5.
#[test]
fn every_change_of_a_deployment_enqueues_it() {
    let (a_loop, mut table) = (the_loop(), Store::<Deployment>::default());
    let cluster = RehearsalCluster::of(&a_loop);
    assert_eq!(cluster.enqueued_by(&a_loop, table.apply(decoded(deployment(1)))), ["a/web"]);
    let written = with_field(deployment(1), "/metadata/resourceVersion", json!("8"));
    assert_eq!(cluster.enqueued_by(&a_loop, table.apply(decoded(written))), ["a/web"]);
    let last = table.get(&web()).unwrap().clone();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(last.clone())), ["a/web"]);
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(last)), ["a/web"]);
}

/// Proves DEP-6.
#[test]
fn a_new_replica_set_enqueues_its_controller_or_possible_adopters() {
    assert_eq!(enqueue(None, old(1, 1)), ["a/web"]);
    assert_eq!(enqueue(None, terminating(old(1, 1))), ["a/web"]);
    for (field, value) in [("kind", "Thing"), ("name", "gone"), ("uid", "u-gone")] {
        let pointer = format!("/metadata/ownerReferences/0/{field}");
        assert!(enqueue(None, with_field(old(1, 1), &pointer, json!(value))).is_empty(), "{field}");
    }
    assert_eq!(enqueue(None, orphan()), ["a/web"]);
    assert!(enqueue(None, terminating(orphan())).is_empty());
    assert!(enqueue(None, labelled("none", orphan())).is_empty());
    assert!(enqueue(None, with_field(orphan(), "/metadata/labels", json!({}))).is_empty());
}

/// Proves DEP-7.
#[test]
fn a_changed_replica_set_enqueues_old_and_new_controllers() {
    assert_eq!(enqueue(Some(old(1, 1)), old(1, 0)), ["a/web"]);
    assert_eq!(enqueue(Some(of_other(old(1, 1))), old(1, 1)), ["a/other", "a/web"]);
    assert_eq!(enqueue(Some(old(1, 1)), labelled("other", orphan())), ["a/web", "a/other"]);
    assert!(enqueue(Some(orphan()), with_field(orphan(), "/status/replicas", json!(9))).is_empty());
    assert_eq!(enqueue(Some(labelled("none", orphan())), orphan()), ["a/web"]);
    let (a_loop, size) = (the_loop(), cluster(deployment(1), []));
    assert!(size.enqueued_by(&a_loop, Change::<ReplicaSet>::resync(decoded(old(1, 1)))).is_empty());
}

/// Proves DEP-8.
#[test]
fn a_deleted_replica_set_enqueues_its_controller() {
    let (a_loop, size) = (the_loop(), cluster(deployment(1), []));
    assert_eq!(size.enqueued_by(&a_loop, Change::<ReplicaSet>::deleted(decoded(old(1, 1)))), ["a/web"]);
    assert!(size.enqueued_by(&a_loop, Change::<ReplicaSet>::deleted(decoded(orphan()))).is_empty());
}

/// Proves DEP-9, DEP-114.
#[test]
fn a_deleted_pod_enqueues_only_a_recreate_deployment() {
    let a_loop = the_loop();
    let end = |deployment: Value, pod: Value| {
        cluster(deployment, [old(0, 0)]).enqueued_by(&a_loop, Change::<Pod>::deleted(decoded(pod)))
    };
    assert_eq!(end(recreating(deployment(1)), rollouts::pod("old", "Running")), ["a/web"]);
    assert!(end(deployment(1), rollouts::pod("old", "Running")).is_empty());
    assert!(end(recreating(deployment(1)), rollouts::pod("gone", "Running")).is_empty());
    let size = cluster(recreating(deployment(1)), [old(0, 0)]);
    let pod = || decoded::<Pod>(rollouts::pod("old", "Running"));
    assert!(size.enqueued_by(&a_loop, Change::added(pod())).is_empty());
    assert!(size.enqueued_by(&a_loop, Change::resync(pod())).is_empty());
}
