//! Which DaemonSets hear of which change.

use std::sync::Arc;
use std::time::Duration;

use keleustes_plan::{Change, Enqueue, Store};

use super::*;

/// `agent`, and `other`, which wants other pods.
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

fn nobody() -> Vec<String> {
    Vec::new()
}

/// What wakes when an object changes from one state to another.
fn between<T: keleustes_objects::Kind>(before: Value, after: Value) -> Vec<String> {
    let mut world = both();
    world.put::<T>(&the_loop(), before);
    world.put::<T>(&the_loop(), with_field(after, "/metadata/resourceVersion", json!("9")))
}

/// Proves DS-4, DS-107.
#[test]
fn every_change_of_a_set_wakes_it() {
    let mut world = both();
    assert_eq!(
        world.put::<DaemonSet>(&the_loop(), with_field(set(), "/metadata/uid", json!("u-new"))),
        ["a/agent"]
    );
    assert_eq!(world.enqueued_by(&the_loop(), Change::<DaemonSet>::resync(decoded(set()))), ["a/agent"]);
    assert_eq!(world.take::<DaemonSet>(&the_loop(), &agent()), ["a/agent"]);
}

/// Proves DS-5, DS-94.
#[test]
fn a_revision_that_appears_wakes_those_who_might_adopt_it() {
    let appears = |revision: Value| both().put::<ControllerRevision>(&the_loop(), revision);
    assert_eq!(appears(revision("h1", 1, "v1")), nobody());
    assert_eq!(appears(terminating(revision("h1", 1, "v1"))), ["a/agent"], "that is its end");
    assert_eq!(appears(unowned(revision("h1", 1, "v1"))), ["a/agent"]);
    assert_eq!(appears(unowned(relabelled(revision("h1", 1, "v1")))), ["a/other"]);
    assert_eq!(appears(terminating(unowned(revision("h1", 1, "v1")))), nobody());
}

/// Proves DS-6.
#[test]
fn a_revision_that_changes_wakes_its_owner_and_the_one_before() {
    let plain = || revision("h1", 1, "v1");
    let between = between::<ControllerRevision>;
    assert_eq!(between(plain(), revision("h1", 2, "v1")), ["a/agent"]);
    assert_eq!(between(plain(), of_other(plain())), ["a/agent", "a/other"]);
    assert_eq!(between(plain(), unowned(relabelled(plain()))), ["a/agent", "a/other"]);
    assert_eq!(between(unowned(plain()), unowned(revision("h1", 2, "v1"))), nobody());
    assert_eq!(between(unowned(plain()), unowned(relabelled(plain()))), ["a/other"]);
    assert_eq!(
        both().enqueued_by(&the_loop(), Change::<ControllerRevision>::resync(decoded(plain()))),
        nobody()
    );
}

/// Proves DS-7, DS-11.
#[test]
fn the_end_of_something_wakes_its_owner() {
    let world = both();
    let of_revision =
        |it: Value| world.enqueued_by(&the_loop(), Change::<ControllerRevision>::deleted(decoded(it)));
    assert_eq!(of_revision(revision("h1", 1, "v1")), ["a/agent"]);
    assert_eq!(of_revision(unowned(revision("h1", 1, "v1"))), nobody());
    let of_pod = |pod: Value| world.enqueued_by(&the_loop(), Change::<Pod>::deleted(decoded(pod)));
    assert_eq!(of_pod(pod("x", "n")), ["a/agent"]);
    assert_eq!(of_pod(orphan("x", "n")), nobody());
}

/// Proves DS-8, DS-12.
#[test]
fn a_pod_that_appears_wakes_its_owner_or_those_who_might_adopt_it() {
    let appears = |pod: Value| both().put::<Pod>(&the_loop(), pod);
    assert_eq!(appears(pod("x", "n")), ["a/agent"]);
    assert_eq!(appears(terminating(pod("x", "n"))), ["a/agent"]);
    assert_eq!(appears(orphan("x", "n")), ["a/agent"]);
    assert_eq!(appears(terminating(orphan("x", "n"))), nobody());
    for (field, value) in [("uid", "u-before"), ("kind", "ReplicaSet"), ("name", "gone")] {
        let stranger =
            with_field(pod("x", "n"), &format!("/metadata/ownerReferences/0/{field}"), json!(value));
        assert_eq!(appears(stranger), nobody());
    }
}

/// Proves DS-9.
#[test]
fn a_pod_that_changes_wakes_its_owner_and_the_one_before() {
    let plain = || pod("x", "n");
    assert_eq!(between::<Pod>(plain(), unready(plain())), ["a/agent"]);
    assert_eq!(between::<Pod>(plain(), terminating(plain())), ["a/agent"]);
    assert_eq!(between::<Pod>(plain(), of_other(plain())), ["a/agent", "a/other"]);
    assert_eq!(between::<Pod>(orphan("x", "n"), unready(orphan("x", "n"))), nobody());
    assert_eq!(between::<Pod>(orphan("x", "n"), relabelled(orphan("x", "n"))), ["a/other"]);
    assert_eq!(both().enqueued_by(&the_loop(), Change::<Pod>::resync(decoded(plain()))), nobody());
}

/// Proves DS-10.
#[test]
fn a_pod_that_becomes_ready_wakes_its_owner_again_a_second_after_it_is_available() {
    let delays = |seconds: i32| {
        let world = bare(with_field(set(), "/spec/minReadySeconds", json!(seconds)), [], []);
        let (mut pods, mut woken) = (Store::default(), Enqueue::default());
        pods.apply(decoded::<Pod>(unready(pod("x", "n"))));
        let change = pods.apply(decoded(with_field(pod("x", "n"), "/metadata/resourceVersion", json!("2"))));
        enqueue::pod_changed(&change, &world.view(), &mut woken);
        woken.into_items().into_iter().map(|(_, delay)| delay).collect::<Vec<Duration>>()
    };
    assert_eq!(delays(10), [Duration::ZERO, Duration::from_secs(11)]);
    assert_eq!(delays(0), [Duration::ZERO]);
}

/// Proves DS-13.
#[test]
fn of_a_node_only_labels_and_taints_matter() {
    let mut world = both();
    assert_eq!(world.put::<Node>(&the_loop(), node("n")), ["a/agent"]);
    let ready =
        with_field(node("n"), "/status", json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    assert_eq!(world.put::<Node>(&the_loop(), ready), nobody());
    let labelled = with_field(node("n"), "/metadata/labels/zone", json!("a"));
    assert_eq!(world.put::<Node>(&the_loop(), labelled), ["a/agent"]);
    assert_eq!(world.put::<Node>(&the_loop(), tainted("n", "x", "PreferNoSchedule")), ["a/agent"]);
    assert_eq!(world.enqueued_by(&the_loop(), Change::<Node>::resync(decoded(node("n")))), nobody());
    assert_eq!(world.take::<Node>(&the_loop(), &Key::cluster("n")), nobody());
}

/// Proves DS-14, DS-15, INF-5.
#[test]
fn a_node_wakes_those_for_whom_it_has_too_many_or_too_few() {
    let changes = |set: Value, pods: Vec<Value>, node: Value| {
        let mut world = bare(set, [], pods);
        world.put::<Node>(&the_loop(), with_field(node.clone(), "/metadata/labels/zone", json!("before")));
        world.put::<Node>(&the_loop(), node)
    };
    assert_eq!(changes(set(), vec![], node("n")), ["a/agent"]);
    assert_eq!(changes(set(), vec![pod("x", "n")], node("n")), nobody());
    assert_eq!(changes(set(), vec![unbound("x", "n")], node("n")), ["a/agent"], "only bound ones count");
    assert_eq!(changes(set(), vec![], tainted("n", "x", "NoSchedule")), nobody());
    assert_eq!(changes(set(), vec![pod("x", "n")], tainted("n", "x", "NoSchedule")), nobody());
    assert_eq!(changes(set(), vec![pod("x", "n")], tainted("n", "x", "NoExecute")), ["a/agent"]);
    let misplaced = with_field(set(), "/status/numberMisscheduled", json!(1));
    assert_eq!(changes(misplaced, vec![pod("x", "n")], node("n")), ["a/agent"]);
    let of_earlier = with_field(pod("x", "n"), "/metadata/ownerReferences/0/uid", json!("u-before"));
    assert_eq!(changes(set(), vec![of_earlier], node("n")), ["a/agent"], "it will go, and tell nobody");
    assert_eq!(changes(set(), vec![of_other(pod("x", "n"))], node("n")), ["a/agent"]);
}

#[test]
fn a_node_that_comes_back_to_a_pod_wakes_its_owner() {
    let mut world = bare(set(), [], vec![pod("x", "n")]);
    assert_eq!(world.put::<Node>(&the_loop(), node("n")), ["a/agent"]);
    assert_eq!(world.put::<Node>(&the_loop(), node("m")), ["a/agent"]);
}
