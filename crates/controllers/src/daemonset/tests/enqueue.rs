//! Which DaemonSets a change enqueues.

use std::sync::Arc;
use std::time::Duration;

use keleustes_plan::{Change, Effects, Store};

use super::*;

/// `agent`, and `other`, which selects other pods.
fn both() -> RehearsalCluster {
    let other =
        with_field(with_field(set(), "/metadata/name", json!("other")), "/metadata/uid", json!("u-other"));
    let other = with_field(other, "/spec/selector", json!({"matchLabels": {"app": "other"}}));
    let other = with_field(other, "/spec/template/spec/nodeName", json!("elsewhere"));
    bare(set(), [], []).with::<DaemonSet>(other)
}

fn of_other(object: Value) -> Value {
    let object = with_field(object, "/metadata/ownerReferences/0/name", json!("other"));
    with_field(object, "/metadata/ownerReferences/0/uid", json!("u-other"))
}

fn relabelled(object: Value) -> Value {
    with_field(object, "/metadata/labels/app", json!("other"))
}

fn unowned(object: Value) -> Value {
    with_field(object, "/metadata/ownerReferences", json!([]))
}

fn decoded<T: keleustes_objects::Kind>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).expect("a well-formed object"))
}

fn nothing() -> Vec<String> {
    Vec::new()
}

/// The keys that an update of an object enqueues.
fn between<T: keleustes_objects::Kind>(old: Value, new: Value) -> Vec<String> {
    let mut cluster = both();
    cluster.put::<T>(&the_loop(), old);
    cluster.put::<T>(&the_loop(), with_field(new, "/metadata/resourceVersion", json!("9")))
}

/// Proves DS-4, DS-107.
#[test]
fn every_change_of_a_daemonset_enqueues_it() {
    let mut cluster = both();
    assert_eq!(
        cluster.put::<DaemonSet>(&the_loop(), with_field(set(), "/metadata/uid", json!("u-new"))),
        ["a/agent"]
    );
    assert_eq!(cluster.enqueued_by(&the_loop(), Change::<DaemonSet>::resync(decoded(set()))), ["a/agent"]);
    assert_eq!(cluster.take::<DaemonSet>(&the_loop(), &agent()), ["a/agent"]);
}

/// Proves DS-5, DS-94.
#[test]
fn a_new_orphaned_revision_enqueues_the_daemonsets_that_select_it() {
    let added = |revision: Value| both().put::<ControllerRevision>(&the_loop(), revision);
    assert_eq!(added(revision("h1", 1, "v1")), nothing());
    assert_eq!(added(terminating(revision("h1", 1, "v1"))), ["a/agent"], "a terminating revision");
    assert_eq!(added(unowned(revision("h1", 1, "v1"))), ["a/agent"]);
    assert_eq!(added(unowned(relabelled(revision("h1", 1, "v1")))), ["a/other"]);
    assert_eq!(added(terminating(unowned(revision("h1", 1, "v1")))), nothing());
}

/// Proves DS-6.
#[test]
fn a_revision_update_enqueues_its_new_and_its_old_owner() {
    let plain = || revision("h1", 1, "v1");
    let between = between::<ControllerRevision>;
    assert_eq!(between(plain(), revision("h1", 2, "v1")), ["a/agent"]);
    assert_eq!(between(plain(), of_other(plain())), ["a/agent", "a/other"]);
    assert_eq!(between(plain(), unowned(relabelled(plain()))), ["a/agent", "a/other"]);
    assert_eq!(between(unowned(plain()), unowned(revision("h1", 2, "v1"))), nothing());
    assert_eq!(between(unowned(plain()), unowned(relabelled(plain()))), ["a/other"]);
    assert_eq!(
        both().enqueued_by(&the_loop(), Change::<ControllerRevision>::resync(decoded(plain()))),
        nothing()
    );
}

/// Proves DS-7, DS-11.
#[test]
fn a_deletion_enqueues_the_owner() {
    let cluster = both();
    let of_revision = |revision: Value| {
        cluster.enqueued_by(&the_loop(), Change::<ControllerRevision>::deleted(decoded(revision)))
    };
    assert_eq!(of_revision(revision("h1", 1, "v1")), ["a/agent"]);
    assert_eq!(of_revision(unowned(revision("h1", 1, "v1"))), nothing());
    let of_pod = |pod: Value| cluster.enqueued_by(&the_loop(), Change::<Pod>::deleted(decoded(pod)));
    assert_eq!(of_pod(pod("x", "n")), ["a/agent"]);
    assert_eq!(of_pod(orphan("x", "n")), nothing());
}

/// Proves DS-8, DS-12.
#[test]
fn a_new_pod_enqueues_its_owner_or_the_daemonsets_that_select_it() {
    let added = |pod: Value| both().put::<Pod>(&the_loop(), pod);
    assert_eq!(added(pod("x", "n")), ["a/agent"]);
    assert_eq!(added(terminating(pod("x", "n"))), ["a/agent"]);
    assert_eq!(added(orphan("x", "n")), ["a/agent"]);
    assert_eq!(added(terminating(orphan("x", "n"))), nothing());
    for (field, value) in [("uid", "u-before"), ("kind", "ReplicaSet"), ("name", "gone")] {
        let foreign =
            with_field(pod("x", "n"), &format!("/metadata/ownerReferences/0/{field}"), json!(value));
        assert_eq!(added(foreign), nothing());
    }
}

/// Proves DS-9.
#[test]
fn a_pod_update_enqueues_its_new_and_its_old_owner() {
    let plain = || pod("x", "n");
    assert_eq!(between::<Pod>(plain(), unready(plain())), ["a/agent"]);
    assert_eq!(between::<Pod>(plain(), terminating(plain())), ["a/agent"]);
    assert_eq!(between::<Pod>(plain(), of_other(plain())), ["a/agent", "a/other"]);
    assert_eq!(between::<Pod>(orphan("x", "n"), unready(orphan("x", "n"))), nothing());
    assert_eq!(between::<Pod>(orphan("x", "n"), relabelled(orphan("x", "n"))), ["a/other"]);
    assert_eq!(both().enqueued_by(&the_loop(), Change::<Pod>::resync(decoded(plain()))), nothing());
}

/// Proves DS-10.
#[test]
fn a_pod_that_becomes_ready_enqueues_its_owner_again_a_second_after_it_is_available() {
    let delays = |seconds: i32| {
        let cluster = bare(with_field(set(), "/spec/minReadySeconds", json!(seconds)), [], []);
        let (mut pods, mut queue) = (Store::default(), Effects::default());
        pods.apply(decoded::<Pod>(unready(pod("x", "n"))));
        let change = pods.apply(decoded(with_field(pod("x", "n"), "/metadata/resourceVersion", json!("2"))));
        crate::daemonset::enqueue::pod_changed(&change, &cluster.view(), &mut queue);
        queue.into_items().into_iter().map(|(_, delay)| delay).collect::<Vec<_>>()
    };
    assert_eq!(delays(10), [None, Some(Duration::from_secs(11))]);
    assert_eq!(delays(0), [None]);
}

/// Proves DS-13.
#[test]
fn only_labels_and_taints_of_a_node_enqueue() {
    let mut cluster = both();
    assert_eq!(cluster.put::<Node>(&the_loop(), node("n")), ["a/agent"]);
    let ready =
        with_field(node("n"), "/status", json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    assert_eq!(cluster.put::<Node>(&the_loop(), ready), nothing());
    let labelled = with_field(node("n"), "/metadata/labels/zone", json!("a"));
    assert_eq!(cluster.put::<Node>(&the_loop(), labelled), ["a/agent"]);
    assert_eq!(cluster.put::<Node>(&the_loop(), tainted("n", "x", "PreferNoSchedule")), ["a/agent"]);
    assert_eq!(cluster.enqueued_by(&the_loop(), Change::<Node>::resync(decoded(node("n")))), nothing());
    assert_eq!(cluster.take::<Node>(&the_loop(), &Key::cluster("n")), nothing());
}

/// Proves DS-14, DS-15, INF-5.
#[test]
fn a_node_change_enqueues_daemonsets_with_missing_or_surplus_pods_there() {
    let changes = |set: Value, pods: Vec<Value>, node: Value| {
        let mut cluster = bare(set, [], pods);
        cluster.put::<Node>(&the_loop(), with_field(node.clone(), "/metadata/labels/zone", json!("before")));
        cluster.put::<Node>(&the_loop(), node)
    };
    assert_eq!(changes(set(), vec![], node("n")), ["a/agent"]);
    assert_eq!(changes(set(), vec![pod("x", "n")], node("n")), nothing());
    assert_eq!(changes(set(), vec![unbound("x", "n")], node("n")), ["a/agent"], "only bound ones count");
    assert_eq!(changes(set(), vec![], tainted("n", "x", "NoSchedule")), nothing());
    assert_eq!(changes(set(), vec![pod("x", "n")], tainted("n", "x", "NoSchedule")), nothing());
    assert_eq!(changes(set(), vec![pod("x", "n")], tainted("n", "x", "NoExecute")), ["a/agent"]);
    let misplaced = with_field(set(), "/status/numberMisscheduled", json!(1));
    assert_eq!(changes(misplaced, vec![pod("x", "n")], node("n")), ["a/agent"]);
    let of_earlier = with_field(pod("x", "n"), "/metadata/ownerReferences/0/uid", json!("u-before"));
    assert_eq!(changes(set(), vec![of_earlier], node("n")), ["a/agent"], "its deletion will enqueue nothing");
    assert_eq!(changes(set(), vec![of_other(pod("x", "n"))], node("n")), ["a/agent"]);
}

#[test]
fn a_new_node_with_a_pod_enqueues_its_daemonset() {
    let mut cluster = bare(set(), [], vec![pod("x", "n")]);
    assert_eq!(cluster.put::<Node>(&the_loop(), node("n")), ["a/agent"]);
    assert_eq!(cluster.put::<Node>(&the_loop(), node("m")), ["a/agent"]);
}
