//! The effects of each change to the graph.

use keleustes_objects::Key;
use proptest::prelude::*;

use super::test_graph::{TestGraph, TestObject, object};

const DEPLOYMENT: &str = "apps/v1 Deployment";
const REPLICA_SET: &str = "apps/v1 ReplicaSet";
const NODE: &str = "v1 Node";
const POD: &str = "v1 Pod";

fn pod(key: &str, uid: &str) -> TestObject {
    object(POD, key, uid)
}

fn set(uid: &str) -> TestObject {
    object(REPLICA_SET, "ns/set", uid)
}

fn identity(seen: &TestObject) -> super::Identity {
    super::Identity { type_meta: seen.type_meta.clone(), key: seen.meta().key, uid: seen.meta().uid }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

/// Proves GC-30, GC-31, GC-142.
#[test]
fn observed_object_becomes_a_node_with_its_state() {
    let mut test = TestGraph::default();
    assert_eq!(test.update(&set("set")), nothing());
    assert_eq!(test.update(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set")), nothing());
    assert_eq!(test.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] <- a");
    assert_eq!(test.node("a"), "[v1/Pod, namespace: ns, name: a, uid: a]");
    test.update(&pod("ns/b", "b").terminating(&["other"]));
    assert_eq!(test.node("b"), "[v1/Pod, namespace: ns, name: b, uid: b] beingDeleted");
    test.update(&pod("ns/c", "c").terminating(&["foregroundDeletion"]));
    assert_eq!(test.node("c"), "[v1/Pod, namespace: ns, name: c, uid: c] beingDeleted deletingDependents");
    assert_eq!(test.update(&pod("ns/odd", "")), nothing(), "an object without UID is ignored");
    assert_eq!(test.graph.len(), 4);
}

/// A client may write as many owner references as fit into an object, and change them again and again.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures how long the graph is locked")]
fn time_for_owner_references_grows_in_proportion_to_their_number() {
    const COUNT: usize = 20_000;
    let with = |blocks: usize, reference: fn(usize) -> (String, String)| {
        (0..COUNT).fold(pod("ns/pod", "pod"), |pod, n| {
            let (name, uid) = reference(n);
            if n < blocks { pod.blocking(POD, &name, &uid) } else { pod.owned(POD, &name, &uid) }
        })
    };
    let begun = std::time::Instant::now();
    for reference in [|n| ("owner".to_owned(), format!("u{n}")), |n| (format!("owner-{n}"), "u".to_owned())] {
        let mut graph = super::Graph::new(7);
        for blocks in [COUNT, 0, COUNT / 2] {
            let object = with(blocks, reference);
            graph.apply_update(&object.type_meta, &object.meta(), &mut super::GraphEffects::default());
        }
        assert!(begun.elapsed().as_secs() < 8, "{:?}", begun.elapsed());
    }
}

/// Proves GC-32.
#[test]
fn unobserved_owner_becomes_a_virtual_node_and_is_enqueued() {
    let mut test = TestGraph::default();
    let effects = test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set").owned(NODE, "n", "n"));
    assert_eq!(effects, ["check virtual set", "check virtual n"]);
    assert_eq!(test.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] virtual <- a");
    assert_eq!(test.node("n"), "[v1/Node, namespace: ns, name: n, uid: n] virtual <- a", "a guess");
    assert_eq!(
        test.update(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set")),
        nothing(),
        "it is already enqueued"
    );
}

/// Proves GC-33, GC-142.
#[test]
fn references_are_compared_by_uid() {
    let mut test = TestGraph::default();
    ["x", "y", "z"].iter().for_each(|uid| drop(test.update(&object(NODE, uid, uid))));
    test.update(&pod("ns/a", "a").owned(NODE, "x", "x").owned(NODE, "y", "y"));
    assert_eq!(test.update(&pod("ns/a", "a").owned(NODE, "y", "y").owned(NODE, "z", "z")), nothing());
    let dependents = |uid: &str| test.node(uid).split_once(" <- ").map(|(_, names)| names.to_owned());
    assert_eq!(
        [dependents("x"), dependents("y"), dependents("z")],
        [None, Some("a".to_owned()), Some("a".to_owned())]
    );
}

/// Proves GC-34, GC-72.
#[test]
fn owner_is_enqueued_when_a_dependent_stops_blocking_it() {
    let mut test = TestGraph::default();
    test.update(&set("set"));
    test.update(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    assert_eq!(test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set")), ["check set"]);
    assert_eq!(test.update(&pod("ns/a", "a")), nothing(), "it did not block the owner");
    test.update(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    assert_eq!(test.update(&pod("ns/a", "a")), ["check set"]);
    test.update(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    test.delete(&set("set"));
    assert_eq!(test.update(&pod("ns/a", "a")), nothing(), "the owner is deleted");
}

/// Proves GC-135.
#[test]
fn two_references_to_one_owner_block_if_one_of_them_does() {
    let mut test = TestGraph::default();
    test.update(&set("set"));
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    let twice = pod("ns/a", "a").owned(REPLICA_SET, "set", "set").blocking(REPLICA_SET, "typo", "set");
    assert_eq!(test.update(&twice), ["check a"], "the second reference is new and does not match");
    assert_eq!(test.graph.blocking_dependents(&"set".into()).len(), 1);
    assert_eq!(test.update(&twice), nothing());
    assert_eq!(test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set")), ["check set"]);
    assert!(test.node("set").ends_with("<- a"), "one of the two references remains");
}

/// Proves GC-35.
#[test]
fn being_deleted_is_never_reset() {
    let mut test = TestGraph::default();
    test.update(&set("set").terminating(&["foregroundDeletion"]));
    test.update(&set("set"));
    assert!(test.node("set").ends_with("beingDeleted deletingDependents"));
}

/// Proves GC-36, GC-38, GC-130.
#[test]
fn foreground_deletion_starts_when_its_finalizer_is_first_observed_on_a_terminating_object() {
    let mut test = TestGraph::default();
    test.update(&set("set"));
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    test.update(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.update(&set("set").terminating(&["other"])), nothing());
    let waiting = set("set").terminating(&["other", "foregroundDeletion"]);
    assert_eq!(test.update(&waiting), ["check a", "check b", "check set"]);
    assert!(test.node("set").contains("deletingDependents"));
    assert_eq!(test.update(&waiting), nothing(), "the finalizer was observed before");
    assert_eq!(test.update(&set("set").terminating(&["other"])), nothing());
    assert_eq!(test.update(&waiting), ["check a", "check b", "check set"], "the finalizer was added again");
}

/// Proves GC-36, GC-37.
#[test]
fn orphaning_comes_before_foreground_deletion() {
    let mut test = TestGraph::default();
    test.update(&set("set"));
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    let both = set("set").terminating(&["foregroundDeletion", "orphan"]);
    assert_eq!(test.update(&both), ["orphan set"]);
    assert!(!test.node("set").contains("deletingDependents"));
    assert_eq!(test.update(&both), nothing(), "dependents are not deleted while they are orphaned");
    let foreground = set("set").terminating(&["foregroundDeletion"]);
    assert_eq!(test.update(&foreground), ["check a", "check set"], "foreground deletion follows");
}

/// Proves GC-39, GC-131.
#[test]
fn object_first_observed_as_terminating_is_enqueued() {
    for (finalizer, expected) in [("orphan", "orphan set"), ("foregroundDeletion", "check set")] {
        let mut test = TestGraph::default();
        assert_eq!(test.update(&set("set").terminating(&[finalizer])), [expected]);
        let mut test = TestGraph::default();
        test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
        let effects = test.update(&set("set").terminating(&[finalizer]));
        assert_eq!(
            effects.last().map(String::as_str),
            Some(expected),
            "also if its dependents were observed first"
        );
    }
}

/// Proves GC-40, GC-41, GC-42.
#[test]
fn deleted_object_enqueues_its_dependents_and_the_owners_that_wait_for_it() {
    let mut test = TestGraph::default();
    test.update(&object(DEPLOYMENT, "ns/web", "web").terminating(&["foregroundDeletion"]));
    test.update(&object(NODE, "n", "n"));
    let owned = set("set").blocking(DEPLOYMENT, "web", "web").owned(NODE, "n", "n");
    test.update(&owned);
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    test.update(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.delete(&owned), ["check a", "check b", "check web"]);
    assert_eq!(test.node("set"), "none");
    assert!(test.node("web").ends_with("deletingDependents"), "{}", test.node("web"));
    assert!(test.graph.is_absent_owner(&identity(&owned)), "no live read is needed");
    assert_eq!(test.delete(&owned), nothing(), "an unknown object cannot be deleted");

    let lonely = pod("ns/lonely", "lonely");
    test.update(&lonely);
    test.delete(&lonely);
    assert!(!test.graph.is_absent_owner(&identity(&lonely)), "no dependent will look it up");
}

#[test]
fn owners_deleted_in_bulk_are_known_absent_while_a_dependent_refers_to_them() {
    let mut test = TestGraph::default();
    let name = |n: usize| format!("set-{n}");
    let owner = |n: usize| object(REPLICA_SET, &format!("ns/{}", name(n)), &name(n));
    let gone = |n: usize| identity(&owner(n));
    for n in 0..600 {
        test.update(&owner(n));
        test.update(&pod(&format!("ns/pod-{n}"), &format!("pod-{n}")).owned(REPLICA_SET, &name(n), &name(n)));
    }
    for n in 0..600 {
        test.delete(&owner(n));
    }
    assert!((0..600).all(|n| test.graph.is_absent_owner(&gone(n))));
    let elsewhere = super::Identity { key: Key::namespaced("else", &*name(0)), ..gone(0) };
    assert!(!test.graph.is_absent_owner(&elsewhere), "only the deleted identity is known absent");

    // An object observed again, after etcd was restored from a backup, exists; the absent entry is dropped.
    test.update(&owner(0));
    assert!(!test.graph.is_absent_owner(&gone(0)));
}

/// An object that is absent at one set of coordinates may exist at another: nothing is known about the latest
/// virtual coordinates.
#[test]
fn only_the_coordinates_that_were_read_are_known_absent() {
    let mut test = TestGraph::default();
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    let doubter = pod("else/b", "b").owned(REPLICA_SET, "set", "set");
    test.update(&doubter);
    // The node takes the alternative coordinates; then no dependent states them any more.
    test.virtual_delete(REPLICA_SET, "ns/set", "set");
    test.delete(&doubter);
    test.virtual_delete(REPLICA_SET, "ns/set", "set");
    assert_eq!(test.node("set"), "none");
    let at = |namespace: &str| identity(&object(REPLICA_SET, &format!("{namespace}/set"), "set"));
    assert!(test.graph.is_absent_owner(&at("ns")));
    assert!(!test.graph.is_absent_owner(&at("else")));
}

/// Proves GC-142.
#[test]
fn dependents_of_a_deleted_owner_are_linked_when_it_is_observed_again() {
    let mut test = TestGraph::default();
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.virtual_delete(REPLICA_SET, "ns/set", "set"), ["check a"]);
    assert_eq!(test.node("set"), "none");
    test.update(&set("set"));
    assert!(test.node("set").ends_with("<- a"), "a stale list can contain deleted objects");
    assert_eq!(test.delete(&set("set")), ["check a"]);
    test.update(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] virtual <- a b");
}

/// Proves GC-43, GC-44, GC-102.
#[test]
fn first_observation_of_an_owner_fixes_its_coordinates() {
    let mut test = TestGraph::default();
    test.update(&pod("ns/good", "good").owned(NODE, "n", "n"));
    test.update(&pod("ns/typo", "typo").owned(NODE, "m", "n"));
    assert_eq!(test.update(&object(NODE, "n", "n")), ["check typo"]);
    assert_eq!(test.node("n"), "[v1/Node, namespace: , name: n, uid: n] <- good typo");

    let mut test = TestGraph::default();
    test.update(&pod("here/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(
        test.update(&object(REPLICA_SET, "there/set", "set")),
        [
            "check a",
            "Warning OwnerRefInvalidNamespace on Pod here/a uid=a: ownerRef [apps/v1/ReplicaSet, namespace: here, name: set, \
         uid: set] does not exist in namespace \"here\"",
        ]
    );
    assert_eq!(
        test.update(&object(REPLICA_SET, "there/set", "set")),
        nothing(),
        "the event was recorded once"
    );

    let mut test = TestGraph::default();
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.update(&set("set")), nothing(), "matching coordinates enqueue nothing");
    assert_eq!(test.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] <- a");
}

/// Proves GC-45, GC-46, GC-100, GC-102.
#[test]
fn reference_that_does_not_match_its_owner_enqueues_the_dependent() {
    let mut test = TestGraph::default();
    test.update(&set("set"));
    test.update(&object(NODE, "n", "n"));
    assert_eq!(
        test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set").owned(NODE, "n", "n")),
        nothing()
    );
    for wrong in [(REPLICA_SET, "typo"), ("apps/v1beta1 ReplicaSet", "set"), ("apps/v1 Typo", "set")] {
        let dependent = pod("ns/b", "b").owned(wrong.0, wrong.1, "set");
        assert_eq!(test.update(&dependent), ["check b"]);
        test.delete(&dependent);
    }
    let elsewhere = test.update(&pod("else/c", "c").owned(REPLICA_SET, "set", "set"));
    assert_eq!(
        elsewhere,
        [
            "check c",
            "Warning OwnerRefInvalidNamespace on Pod else/c uid=c: ownerRef [apps/v1/ReplicaSet, namespace: else, name: set, \
         uid: set] does not exist in namespace \"else\"",
        ]
    );
    let cluster_scoped = test.update(&object(NODE, "d", "d").owned(REPLICA_SET, "set", "set"));
    assert_eq!(cluster_scoped[0], "check d");
    assert!(cluster_scoped[1].ends_with(
        "ownerRef [apps/v1/ReplicaSet, namespace: , name: set, uid: set] does not exist in namespace \"\""
    ));
}

/// Proves GC-46, GC-102, GC-127.
#[test]
fn mismatch_with_a_virtual_owner_enqueues_the_dependent_without_an_event() {
    let mut test = TestGraph::default();
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.update(&pod("else/b", "b").owned(REPLICA_SET, "set", "set")), ["check b"], "no event");
    assert_eq!(test.update(&pod("ns/c", "c").owned(REPLICA_SET, "typo", "set")), ["check c"]);

    let mut test = TestGraph::default();
    test.update(&object(NODE, "bad", "bad").owned(REPLICA_SET, "set", "set"));
    let good = test.update(&pod("ns/good", "good").owned(REPLICA_SET, "set", "set"));
    assert_eq!(
        good,
        ["check good"],
        "the owner may be namespaced although the object that first referred to it is not"
    );
}

/// Proves GC-80.
#[test]
fn absent_virtual_owner_is_removed_if_no_dependent_states_other_coordinates() {
    let mut test = TestGraph::default();
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    test.update(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.virtual_delete(REPLICA_SET, "ns/set", "set"), ["check a", "check b"]);
    assert_eq!(test.node("set"), "none");
    assert_eq!(test.virtual_delete(REPLICA_SET, "ns/set", "set"), nothing());
}

/// Proves GC-80, GC-81, GC-82, GC-83, GC-121.
#[test]
fn owner_with_conflicting_references_is_read_at_each_of_its_coordinates() {
    let mut test = TestGraph::default();
    test.update(&pod("ns/first", "first").owned(REPLICA_SET, "m", "set"));
    test.update(&pod("ns/later", "later").owned(REPLICA_SET, "z", "set"));
    test.update(&pod("ns/earlier", "earlier").owned(REPLICA_SET, "b", "set"));
    test.update(&pod("ns/kind", "kind").owned("v1 Pod", "m", "set"));
    let effects = test.virtual_delete(REPLICA_SET, "ns/m", "set");
    assert_eq!(effects, ["check first", "check virtual set rate-limited"]);
    assert!(test.node("set").contains("name: z,"), "the next coordinates in order: {}", test.node("set"));
    assert_eq!(
        test.virtual_delete(REPLICA_SET, "ns/z", "set"),
        ["check later", "check virtual set rate-limited"]
    );
    // Kinds order first, and Pod comes before ReplicaSet, where the search wraps around.
    assert!(test.node("set").starts_with("[v1/Pod"), "{}", test.node("set"));
    assert_eq!(
        test.virtual_delete("v1 Pod", "ns/m", "set"),
        ["check kind", "check virtual set rate-limited"]
    );
    assert!(test.node("set").contains("name: b,"), "{}", test.node("set"));
    assert!(test.node("set").contains(" virtual "));
    assert_eq!(
        test.virtual_delete(REPLICA_SET, "ns/elsewhere", "set"),
        nothing(),
        "coordinates of neither the node nor a dependent have no effect"
    );
    assert_eq!(
        test.virtual_delete(REPLICA_SET, "ns/m", "set"),
        ["check first"],
        "no longer the node's own coordinates"
    );
    let bad = object("v1 Pod", "ns/bad", "x").owned(REPLICA_SET, "b", "set").owned(REPLICA_SET, "m", "set");
    test.update(&bad);
    let effects = test.virtual_delete(REPLICA_SET, "ns/b", "set");
    assert!(effects.contains(&"check x".to_owned()), "a dependent can state both: {effects:?}");
}

/// Proves GC-83, GC-84.
#[test]
fn alternative_coordinates_have_a_namespace_if_the_kind_may_be_namespaced() {
    let mut test = TestGraph::default();
    test.update(&object(NODE, "one", "one").owned(NODE, "n", "o"));
    test.update(&pod("ns/two", "two").owned(NODE, "m", "o"));
    test.update(&pod("ns/three", "three").owned(POD, "p", "o"));
    let effects = test.virtual_delete(NODE, "n", "o");
    assert_eq!(effects, ["check one", "check virtual o rate-limited"]);
    assert_eq!(
        test.node("o"),
        "[v1/Pod, namespace: ns, name: p, uid: o] virtual <- one two three",
        "the dependent's namespace, for a kind of which nothing is known"
    );
    test.virtual_delete(POD, "ns/p", "o");
    assert!(test.node("o").starts_with("[v1/Node, namespace: , name: n"), "{}", test.node("o"));

    let mut test = TestGraph::default();
    test.update(&object(NODE, "one", "one").owned(NODE, "m", "o"));
    test.update(&pod("ns/two", "two").owned(NODE, "n", "o"));
    test.virtual_delete(NODE, "m", "o");
    assert!(
        test.node("o").starts_with("[v1/Node, namespace: , name: n,"),
        "a kind that is known to be cluster-scoped: {}",
        test.node("o")
    );
}

/// Proves GC-84, GC-127.
#[test]
fn node_is_unchanged_without_alternative_coordinates() {
    let mut test = TestGraph::default();
    // A cluster-scoped object cannot have a namespaced owner, but its reference may claim one.
    test.update(&pod("ns/good", "good").owned(REPLICA_SET, "set", "set"));
    test.update(&object(NODE, "bad", "bad").owned(REPLICA_SET, "set", "set"));
    let effects = test.virtual_delete(REPLICA_SET, "ns/set", "set");
    assert_eq!(effects, ["check good", "check virtual set rate-limited"]);
    assert_eq!(
        test.node("set"),
        "[apps/v1/ReplicaSet, namespace: , name: set, uid: set] virtual <- good bad",
        "which the API cannot even be asked for"
    );
    assert_eq!(test.virtual_delete(REPLICA_SET, "else/set", "set"), nothing());
    let alone = TestGraph::default().virtual_delete(REPLICA_SET, "ns/set", "set");
    assert_eq!(alone, nothing());
}

/// Proves GC-85, GC-86.
#[test]
fn observed_object_is_removed_only_if_absent_at_its_own_coordinates() {
    let mut test = TestGraph::default();
    test.update(&set("set"));
    test.update(&pod("ns/good", "good").owned(REPLICA_SET, "set", "set"));
    test.update(&pod("ns/typo", "typo").owned(REPLICA_SET, "typo", "set"));
    assert_eq!(test.virtual_delete(REPLICA_SET, "ns/typo", "set"), ["check typo"]);
    assert_eq!(
        test.virtual_delete(REPLICA_SET, "ns/else", "set"),
        nothing(),
        "no dependent states these coordinates"
    );
    assert!(test.node("set").ends_with("<- good typo"));
    let wrong = object(REPLICA_SET, "ns/typo", "set");
    let wrong =
        super::Identity { type_meta: wrong.type_meta.clone(), key: wrong.meta().key, uid: wrong.meta().uid };
    assert!(test.graph.is_absent_owner(&wrong));
    assert_eq!(test.virtual_delete(REPLICA_SET, "ns/set", "set"), ["check good", "check typo"]);
    assert_eq!(test.node("set"), "none");
}

/// Proves GC-136.
#[test]
fn complete_list_removes_missing_objects() {
    let mut test = TestGraph::default();
    let owner = set("set");
    test.update(&owner);
    test.update(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    test.update(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(test.list(POD, &[pod("ns/a", "a").owned(REPLICA_SET, "set", "set")], &["ns/b"]), nothing());
    assert!(test.node("set").ends_with("<- a b"), "an unreadable object is not deleted");
    assert_eq!(test.list(POD, &[], &[]), nothing());
    assert_eq!((test.node("a"), test.node("b")), ("none".to_owned(), "none".to_owned()));
    assert!(!test.node("set").contains("<-"));
    test.update(&pod("ns/c", "c").owned(REPLICA_SET, "set", "set").owned(DEPLOYMENT, "web", "web"));
    let newer = object("apps/v2 ReplicaSet", "ns/other", "other");
    assert_eq!(test.list("apps/v2 ReplicaSet", &[newer], &[]), ["check c"], "all versions are one kind");
    assert!(test.node("web").contains("virtual"), "a virtual node cannot be missing from a list");
}

#[test]
fn node_has_the_api_version_it_was_last_observed_in() {
    let mut test = TestGraph::default();
    test.update(&object("apps/v1beta1 ReplicaSet", "ns/set", "set"));
    test.update(&set("set"));
    assert_eq!(test.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set]");
}

#[test]
fn object_that_owns_itself_is_added_and_removed() {
    let mut test = TestGraph::default();
    let selfish = pod("ns/a", "a").blocking(POD, "a", "a");
    assert_eq!(test.update(&selfish), nothing());
    assert!(test.node("a").ends_with("<- a"));
    test.delete(&selfish);
    assert!(test.graph.is_empty());
}

/// Proves GC-39.
#[test]
fn new_leader_enqueues_all_work_in_progress() {
    let mut test = TestGraph::default();
    test.update(&set("set").terminating(&["foregroundDeletion"]));
    test.update(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    test.update(&object(REPLICA_SET, "ns/free", "free").terminating(&["orphan"]));
    test.update(&pod("ns/b", "b").owned(REPLICA_SET, "unseen", "unseen"));
    test.update(&object(NODE, "n", "n"));
    test.update(&pod("ns/c", "c").owned(NODE, "n", "n"));
    test.delete(&object(NODE, "n", "n"));
    test.update(&pod("else/d", "d").owned(REPLICA_SET, "set", "set"));
    test.update(&pod("ns/fine", "fine").owned(POD, "a", "a"));
    let mut effects = test.requeue_all();
    effects.sort();
    assert_eq!(
        effects,
        [
            "Warning OwnerRefInvalidNamespace on Pod else/d uid=d: ownerRef [apps/v1/ReplicaSet, namespace: else, name: set, \
         uid: set] does not exist in namespace \"else\"",
            "check a",
            "check c",
            "check d",
            "check d",
            "check set",
            "check virtual unseen",
            "orphan free",
        ]
    );
}

/// One event in a small cluster.
#[derive(Clone, Debug)]
enum Step {
    Update { index: usize, owners: Vec<(usize, bool, bool)>, finalizers: Option<bool> },
    Delete(usize),
    VirtualDelete { index: usize, wrong: bool },
    List(Vec<usize>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0..6usize;
    let owners = prop::collection::vec((0..6usize, any::<bool>(), any::<bool>()), 0..3);
    let step = prop_oneof![
        4 => (index.clone(), owners, prop::option::of(any::<bool>()))
            .prop_map(|(index, owners, finalizers)| Step::Update { index, owners, finalizers }),
        2 => index.clone().prop_map(Step::Delete),
        2 => (index.clone(), any::<bool>()).prop_map(|(index, wrong)| Step::VirtualDelete { index, wrong }),
        1 => prop::collection::vec(index, 0..4).prop_map(Step::List),
    ];
    prop::collection::vec(step, 1..60)
}

fn coordinates(index: usize, wrong: bool) -> (&'static str, String, String) {
    let type_meta = if index < 2 { NODE } else { POD };
    let name = if wrong { "wrong".to_owned() } else { format!("o{index}") };
    (type_meta, name, format!("u{index}"))
}

fn test_object(index: usize) -> TestObject {
    let (type_meta, name, uid) = coordinates(index, false);
    let key = if index < 2 { name } else { format!("ns{}/{name}", index % 2) };
    object(type_meta, &key, &uid)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn links_hold_after_any_events(steps in steps()) {
        let mut test = TestGraph::default();
        for step in steps {
            match step {
                Step::Update { index, owners, finalizers } => {
                    let mut seen = test_object(index);
                    for (owner, wrong, blocks) in owners {
                        let (type_meta, name, uid) = coordinates(owner, wrong);
                        seen = if blocks { seen.blocking(type_meta, &name, &uid) } else { seen.owned(type_meta, &name, &uid) };
                    }
                    let finalizer = finalizers.map(|orphans| if orphans { "orphan" } else { "foregroundDeletion" });
                    test.update(&match finalizer {
                        Some(finalizer) => seen.terminating(&[finalizer]),
                        None => seen,
                    });
                }
                Step::Delete(index) => drop(test.delete(&test_object(index))),
                Step::VirtualDelete { index, wrong } => {
                    let (type_meta, name, uid) = coordinates(index, wrong);
                    let key = if index < 2 { name } else { format!("ns{}/{name}", index % 2) };
                    test.virtual_delete(type_meta, &key, &uid);
                }
                Step::List(seen) => {
                    let seen: Vec<TestObject> = seen.into_iter().filter(|index| *index >= 2).map(test_object).collect();
                    test.list(POD, &seen, &[]);
                }
            }
        }
        test.requeue_all();
        (0..6).for_each(|index| drop(test.delete(&test_object(index))));
        test.list(POD, &[], &[]);
        for index in 0..6 {
            // Only virtual nodes that no live read confirmed are left.
            let node = test.node(&format!("u{index}"));
            prop_assert!(node == "none" || node.contains("virtual"), "{node}");
        }
    }
}
