//! What each change to the graph sets in motion.

use keleustes_objects::Key;
use proptest::prelude::*;

use super::story::{Seen, Story, object};

const DEPLOYMENT: &str = "apps/v1 Deployment";
const REPLICA_SET: &str = "apps/v1 ReplicaSet";
const NODE: &str = "v1 Node";
const POD: &str = "v1 Pod";

fn pod(key: &str, uid: &str) -> Seen {
    object(POD, key, uid)
}

fn set(uid: &str) -> Seen {
    object(REPLICA_SET, "ns/set", uid)
}

fn identity(seen: &Seen) -> super::Identity {
    super::Identity { line: seen.line.clone(), key: seen.meta().key, uid: seen.meta().uid }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

/// Proves GC-30, GC-31, GC-142.
#[test]
fn an_object_becomes_a_node_with_what_was_seen_of_it() {
    let mut story = Story::default();
    assert_eq!(story.saw(&set("set")), nothing());
    assert_eq!(story.saw(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set")), nothing());
    assert_eq!(story.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] <- a");
    assert_eq!(story.node("a"), "[v1/Pod, namespace: ns, name: a, uid: a]");
    story.saw(&pod("ns/b", "b").deleted(&["other"]));
    assert_eq!(story.node("b"), "[v1/Pod, namespace: ns, name: b, uid: b] beingDeleted");
    story.saw(&pod("ns/c", "c").deleted(&["foregroundDeletion"]));
    assert_eq!(story.node("c"), "[v1/Pod, namespace: ns, name: c, uid: c] beingDeleted deletingDependents");
    assert_eq!(story.saw(&pod("ns/odd", "")), nothing(), "what has no uid is passed over");
    assert_eq!(story.graph.len(), 4);
}

/// Proves GC-32.
#[test]
fn an_owner_that_nobody_has_seen_is_virtual_and_checked() {
    let mut story = Story::default();
    let motion = story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set").owned(NODE, "n", "n"));
    assert_eq!(motion, ["check virtual set", "check virtual n"]);
    assert_eq!(story.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] virtual <- a");
    assert_eq!(story.node("n"), "[v1/Node, namespace: ns, name: n, uid: n] virtual <- a", "a guess");
    assert_eq!(story.saw(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set")), nothing(), "once is enough");
}

/// Proves GC-33, GC-142.
#[test]
fn references_are_compared_by_uid() {
    let mut story = Story::default();
    ["x", "y", "z"].iter().for_each(|uid| drop(story.saw(&object(NODE, uid, uid))));
    story.saw(&pod("ns/a", "a").owned(NODE, "x", "x").owned(NODE, "y", "y"));
    assert_eq!(story.saw(&pod("ns/a", "a").owned(NODE, "y", "y").owned(NODE, "z", "z")), nothing());
    let dependents = |uid: &str| story.node(uid).split_once(" <- ").map(|(_, names)| names.to_owned());
    assert_eq!(
        [dependents("x"), dependents("y"), dependents("z")],
        [None, Some("a".to_owned()), Some("a".to_owned())]
    );
}

/// Proves GC-34, GC-72.
#[test]
fn an_owner_is_checked_when_nothing_of_a_dependent_blocks_it_any_more() {
    let mut story = Story::default();
    story.saw(&set("set"));
    story.saw(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    assert_eq!(story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set")), ["check set"]);
    assert_eq!(story.saw(&pod("ns/a", "a")), nothing(), "it did not block");
    story.saw(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    assert_eq!(story.saw(&pod("ns/a", "a")), ["check set"]);
    story.saw(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    story.lost(&set("set"));
    assert_eq!(story.saw(&pod("ns/a", "a")), nothing(), "the owner is gone");
}

/// Proves GC-135.
#[test]
fn two_references_to_one_owner_block_if_either_does() {
    let mut story = Story::default();
    story.saw(&set("set"));
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    let twice = pod("ns/a", "a").owned(REPLICA_SET, "set", "set").blocking(REPLICA_SET, "typo", "set");
    assert_eq!(story.saw(&twice), ["check a"], "the second is new, and does not match");
    assert_eq!(story.graph.blocking_dependents(&"set".into()).len(), 1);
    assert_eq!(story.saw(&twice), nothing());
    assert_eq!(story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set")), ["check set"]);
    assert!(story.node("set").ends_with("<- a"), "one of the two is still there");
}

/// Proves GC-35.
#[test]
fn there_is_no_way_back_from_deletion() {
    let mut story = Story::default();
    story.saw(&set("set").deleted(&["foregroundDeletion"]));
    story.saw(&set("set"));
    assert!(story.node("set").ends_with("beingDeleted deletingDependents"));
}

/// Proves GC-36, GC-38, GC-130.
#[test]
fn foreground_deletion_begins_when_its_finalizer_is_first_seen_on_a_deleted_object() {
    let mut story = Story::default();
    story.saw(&set("set"));
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    story.saw(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(story.saw(&set("set").deleted(&["other"])), nothing());
    let waiting = set("set").deleted(&["other", "foregroundDeletion"]);
    assert_eq!(story.saw(&waiting), ["check a", "check b", "check set"]);
    assert!(story.node("set").contains("deletingDependents"));
    assert_eq!(story.saw(&waiting), nothing(), "it was seen before");
    assert_eq!(story.saw(&set("set").deleted(&["other"])), nothing());
    assert_eq!(story.saw(&waiting), ["check a", "check b", "check set"], "asked for a second time");
}

/// Proves GC-36, GC-37.
#[test]
fn orphaning_comes_before_foreground_deletion() {
    let mut story = Story::default();
    story.saw(&set("set"));
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    let both = set("set").deleted(&["foregroundDeletion", "orphan"]);
    assert_eq!(story.saw(&both), ["orphan set"]);
    assert!(!story.node("set").contains("deletingDependents"));
    assert_eq!(story.saw(&both), nothing(), "nobody deletes what is being orphaned");
    let foreground = set("set").deleted(&["foregroundDeletion"]);
    assert_eq!(story.saw(&foreground), ["check a", "check set"], "what is left is not forgotten");
}

/// Proves GC-39, GC-131.
#[test]
fn an_object_first_seen_on_its_way_out_is_taken_care_of() {
    for (finalizer, expected) in [("orphan", "orphan set"), ("foregroundDeletion", "check set")] {
        let mut story = Story::default();
        assert_eq!(story.saw(&set("set").deleted(&[finalizer])), [expected]);
        let mut story = Story::default();
        story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
        let motion = story.saw(&set("set").deleted(&[finalizer]));
        assert_eq!(motion.last().map(String::as_str), Some(expected), "also if its dependents came first");
    }
}

/// Proves GC-40, GC-41, GC-42.
#[test]
fn what_goes_wakes_its_dependents_and_the_owners_that_wait_for_it() {
    let mut story = Story::default();
    story.saw(&object(DEPLOYMENT, "ns/web", "web").deleted(&["foregroundDeletion"]));
    story.saw(&object(NODE, "n", "n"));
    let owned = set("set").blocking(DEPLOYMENT, "web", "web").owned(NODE, "n", "n");
    story.saw(&owned);
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    story.saw(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(story.lost(&owned), ["check a", "check b", "check web"]);
    assert_eq!(story.node("set"), "none");
    assert!(story.node("web").ends_with("deletingDependents"), "{}", story.node("web"));
    assert!(story.graph.is_absent_owner(&identity(&owned)), "nobody has to ask the API whether it is there");
    assert_eq!(story.lost(&owned), nothing(), "what is not known cannot go");

    let lonely = pod("ns/lonely", "lonely");
    story.saw(&lonely);
    story.lost(&lonely);
    assert!(!story.graph.is_absent_owner(&identity(&lonely)), "nobody will ask for it");
}

#[test]
fn however_many_owners_go_at_once_none_is_asked_for_while_somebody_refers_to_it() {
    let mut story = Story::default();
    let name = |n: usize| format!("set-{n}");
    let owner = |n: usize| object(REPLICA_SET, &format!("ns/{}", name(n)), &name(n));
    let gone = |n: usize| identity(&owner(n));
    for n in 0..600 {
        story.saw(&owner(n));
        story.saw(&pod(&format!("ns/pod-{n}"), &format!("pod-{n}")).owned(REPLICA_SET, &name(n), &name(n)));
    }
    for n in 0..600 {
        story.lost(&owner(n));
    }
    assert!((0..600).all(|n| story.graph.is_absent_owner(&gone(n))));
    let elsewhere = super::Identity { key: Key::namespaced("else", &*name(0)), ..gone(0) };
    assert!(!story.graph.is_absent_owner(&elsewhere), "only what was seen to go is known to be gone");

    // What is seen again, of a server whose past was restored, is there; nobody remembers otherwise.
    story.saw(&owner(0));
    assert!(!story.graph.is_absent_owner(&gone(0)));
}

/// What is at one place gone may be at another: of the last place that somebody guessed nothing is known.
#[test]
fn only_the_place_that_was_asked_about_is_known_to_be_empty() {
    let mut story = Story::default();
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    let doubter = pod("else/b", "b").owned(REPLICA_SET, "set", "set");
    story.saw(&doubter);
    // The node moves on to the other place; then nobody says any more that it is there.
    story.absent(REPLICA_SET, "ns/set", "set");
    story.lost(&doubter);
    story.absent(REPLICA_SET, "ns/set", "set");
    assert_eq!(story.node("set"), "none");
    let at = |namespace: &str| identity(&object(REPLICA_SET, &format!("{namespace}/set"), "set"));
    assert!(story.graph.is_absent_owner(&at("ns")));
    assert!(!story.graph.is_absent_owner(&at("else")));
}

/// Proves GC-142.
#[test]
fn what_still_refers_to_something_gone_is_linked_when_that_is_seen_after_all() {
    let mut story = Story::default();
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(story.absent(REPLICA_SET, "ns/set", "set"), ["check a"]);
    assert_eq!(story.node("set"), "none");
    story.saw(&set("set"));
    assert!(story.node("set").ends_with("<- a"), "a late list can show what is gone by now");
    assert_eq!(story.lost(&set("set")), ["check a"]);
    story.saw(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(story.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] virtual <- a b");
}

/// Proves GC-43, GC-44, GC-102.
#[test]
fn the_first_sight_of_an_owner_settles_where_it_is() {
    let mut story = Story::default();
    story.saw(&pod("ns/good", "good").owned(NODE, "n", "n"));
    story.saw(&pod("ns/typo", "typo").owned(NODE, "m", "n"));
    assert_eq!(story.saw(&object(NODE, "n", "n")), ["check typo"]);
    assert_eq!(story.node("n"), "[v1/Node, namespace: , name: n, uid: n] <- good typo");

    let mut story = Story::default();
    story.saw(&pod("here/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(
        story.saw(&object(REPLICA_SET, "there/set", "set")),
        [
            "check a",
            "Warning OwnerRefInvalidNamespace on a: ownerRef [apps/v1/ReplicaSet, namespace: here, name: set, \
         uid: set] does not exist in namespace \"here\"",
        ]
    );
    assert_eq!(story.saw(&object(REPLICA_SET, "there/set", "set")), nothing(), "it was told once");

    let mut story = Story::default();
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(story.saw(&set("set")), nothing(), "a right guess wakes nobody");
    assert_eq!(story.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] <- a");
}

/// Proves GC-45, GC-46, GC-100, GC-102.
#[test]
fn a_reference_that_does_not_match_its_owner_has_the_dependent_checked() {
    let mut story = Story::default();
    story.saw(&set("set"));
    story.saw(&object(NODE, "n", "n"));
    assert_eq!(
        story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set").owned(NODE, "n", "n")),
        nothing()
    );
    for wrong in [(REPLICA_SET, "typo"), ("apps/v1beta1 ReplicaSet", "set"), ("apps/v1 Typo", "set")] {
        let dependent = pod("ns/b", "b").owned(wrong.0, wrong.1, "set");
        assert_eq!(story.saw(&dependent), ["check b"]);
        story.lost(&dependent);
    }
    let elsewhere = story.saw(&pod("else/c", "c").owned(REPLICA_SET, "set", "set"));
    assert_eq!(
        elsewhere,
        [
            "check c",
            "Warning OwnerRefInvalidNamespace on c: ownerRef [apps/v1/ReplicaSet, namespace: else, name: set, \
         uid: set] does not exist in namespace \"else\"",
        ]
    );
    let cluster_scoped = story.saw(&object(NODE, "d", "d").owned(REPLICA_SET, "set", "set"));
    assert_eq!(cluster_scoped[0], "check d");
    assert!(cluster_scoped[1].ends_with(
        "ownerRef [apps/v1/ReplicaSet, namespace: , name: set, uid: set] does not exist in namespace \"\""
    ));
}

/// Proves GC-46, GC-102, GC-127.
#[test]
fn while_an_owner_is_virtual_its_dependents_are_only_checked() {
    let mut story = Story::default();
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    assert_eq!(story.saw(&pod("else/b", "b").owned(REPLICA_SET, "set", "set")), ["check b"], "no event");
    assert_eq!(story.saw(&pod("ns/c", "c").owned(REPLICA_SET, "typo", "set")), ["check c"]);

    let mut story = Story::default();
    story.saw(&object(NODE, "bad", "bad").owned(REPLICA_SET, "set", "set"));
    let good = story.saw(&pod("ns/good", "good").owned(REPLICA_SET, "set", "set"));
    assert_eq!(good, ["check good"], "the owner may be namespaced, though who named it first is not");
}

/// Proves GC-80.
#[test]
fn a_virtual_owner_that_does_not_exist_goes_if_nobody_says_it_is_elsewhere() {
    let mut story = Story::default();
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    story.saw(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(story.absent(REPLICA_SET, "ns/set", "set"), ["check a", "check b"]);
    assert_eq!(story.node("set"), "none");
    assert_eq!(story.absent(REPLICA_SET, "ns/set", "set"), nothing());
}

/// Proves GC-80, GC-81, GC-82, GC-83, GC-121.
#[test]
fn a_disputed_owner_is_looked_for_in_one_place_after_the_other() {
    let mut story = Story::default();
    story.saw(&pod("ns/first", "first").owned(REPLICA_SET, "m", "set"));
    story.saw(&pod("ns/later", "later").owned(REPLICA_SET, "z", "set"));
    story.saw(&pod("ns/earlier", "earlier").owned(REPLICA_SET, "b", "set"));
    story.saw(&pod("ns/kind", "kind").owned("v1 Pod", "m", "set"));
    let motion = story.absent(REPLICA_SET, "ns/m", "set");
    assert_eq!(motion, ["check first", "check virtual set slowly"]);
    assert!(story.node("set").contains("name: z,"), "the next in order: {}", story.node("set"));
    assert_eq!(story.absent(REPLICA_SET, "ns/z", "set"), ["check later", "check virtual set slowly"]);
    // Kinds order before everything else, and Pod comes before ReplicaSet, where the search begins again.
    assert!(story.node("set").starts_with("[v1/Pod"), "{}", story.node("set"));
    assert_eq!(story.absent("v1 Pod", "ns/m", "set"), ["check kind", "check virtual set slowly"]);
    assert!(story.node("set").contains("name: b,"), "{}", story.node("set"));
    assert!(story.node("set").contains(" virtual "));
    assert_eq!(
        story.absent(REPLICA_SET, "ns/elsewhere", "set"),
        nothing(),
        "of a place that is neither the node's nor anybody's nothing follows"
    );
    assert_eq!(
        story.absent(REPLICA_SET, "ns/m", "set"),
        ["check first"],
        "not the node's own place any more"
    );
    let bad = object("v1 Pod", "ns/bad", "x").owned(REPLICA_SET, "b", "set").owned(REPLICA_SET, "m", "set");
    story.saw(&bad);
    let motion = story.absent(REPLICA_SET, "ns/b", "set");
    assert!(motion.contains(&"check x".to_owned()), "a dependent can say both: {motion:?}");
}

/// Proves GC-83, GC-84.
#[test]
fn an_alternative_place_has_a_namespace_if_its_kind_may_have_one() {
    let mut story = Story::default();
    story.saw(&object(NODE, "one", "one").owned(NODE, "n", "o"));
    story.saw(&pod("ns/two", "two").owned(NODE, "m", "o"));
    story.saw(&pod("ns/three", "three").owned(POD, "p", "o"));
    let motion = story.absent(NODE, "n", "o");
    assert_eq!(motion, ["check one", "check virtual o slowly"]);
    assert_eq!(
        story.node("o"),
        "[v1/Pod, namespace: ns, name: p, uid: o] virtual <- one two three",
        "the dependent's namespace, for a kind of which nothing is known"
    );
    story.absent(POD, "ns/p", "o");
    assert!(story.node("o").starts_with("[v1/Node, namespace: , name: n"), "{}", story.node("o"));

    let mut story = Story::default();
    story.saw(&object(NODE, "one", "one").owned(NODE, "m", "o"));
    story.saw(&pod("ns/two", "two").owned(NODE, "n", "o"));
    story.absent(NODE, "m", "o");
    assert!(
        story.node("o").starts_with("[v1/Node, namespace: , name: n,"),
        "a kind that was just seen to have no namespaces: {}",
        story.node("o")
    );
}

/// Proves GC-84, GC-127.
#[test]
fn without_another_place_nothing_is_replaced() {
    let mut story = Story::default();
    // A cluster-scoped object cannot have a namespaced owner, but may say so.
    story.saw(&pod("ns/good", "good").owned(REPLICA_SET, "set", "set"));
    story.saw(&object(NODE, "bad", "bad").owned(REPLICA_SET, "set", "set"));
    let motion = story.absent(REPLICA_SET, "ns/set", "set");
    assert_eq!(motion, ["check good", "check virtual set slowly"]);
    assert_eq!(
        story.node("set"),
        "[apps/v1/ReplicaSet, namespace: , name: set, uid: set] virtual <- good bad",
        "which the API cannot even be asked for"
    );
    assert_eq!(story.absent(REPLICA_SET, "else/set", "set"), nothing());
    let alone = Story::default().absent(REPLICA_SET, "ns/set", "set");
    assert_eq!(alone, nothing());
}

/// Proves GC-85, GC-86.
#[test]
fn what_was_seen_is_gone_only_if_it_is_gone_from_there() {
    let mut story = Story::default();
    story.saw(&set("set"));
    story.saw(&pod("ns/good", "good").owned(REPLICA_SET, "set", "set"));
    story.saw(&pod("ns/typo", "typo").owned(REPLICA_SET, "typo", "set"));
    assert_eq!(story.absent(REPLICA_SET, "ns/typo", "set"), ["check typo"]);
    assert_eq!(story.absent(REPLICA_SET, "ns/else", "set"), nothing(), "nobody says so");
    assert!(story.node("set").ends_with("<- good typo"));
    let wrong = object(REPLICA_SET, "ns/typo", "set");
    let wrong = super::Identity { line: wrong.line.clone(), key: wrong.meta().key, uid: wrong.meta().uid };
    assert!(story.graph.is_absent_owner(&wrong));
    assert_eq!(story.absent(REPLICA_SET, "ns/set", "set"), ["check good", "check typo"]);
    assert_eq!(story.node("set"), "none");
}

/// Proves GC-136.
#[test]
fn a_whole_list_tells_what_is_gone() {
    let mut story = Story::default();
    let owner = set("set");
    story.saw(&owner);
    story.saw(&pod("ns/a", "a").owned(REPLICA_SET, "set", "set"));
    story.saw(&pod("ns/b", "b").owned(REPLICA_SET, "set", "set"));
    assert_eq!(
        story.saw_all(POD, &[pod("ns/a", "a").owned(REPLICA_SET, "set", "set")], &["ns/b"]),
        nothing()
    );
    assert!(story.node("set").ends_with("<- a b"), "what cannot be read is not gone");
    assert_eq!(story.saw_all(POD, &[], &[]), nothing());
    assert_eq!((story.node("a"), story.node("b")), ("none".to_owned(), "none".to_owned()));
    assert!(!story.node("set").contains("<-"));
    story.saw(&pod("ns/c", "c").owned(REPLICA_SET, "set", "set").owned(DEPLOYMENT, "web", "web"));
    let newer = object("apps/v2 ReplicaSet", "ns/other", "other");
    assert_eq!(story.saw_all("apps/v2 ReplicaSet", &[newer], &[]), ["check c"], "versions are one kind");
    assert!(story.node("web").contains("virtual"), "what was never seen cannot be missed");
}

#[test]
fn an_object_is_known_by_the_version_it_was_last_seen_in() {
    let mut story = Story::default();
    story.saw(&object("apps/v1beta1 ReplicaSet", "ns/set", "set"));
    story.saw(&set("set"));
    assert_eq!(story.node("set"), "[apps/v1/ReplicaSet, namespace: ns, name: set, uid: set]");
}

#[test]
fn an_object_that_owns_itself_comes_and_goes() {
    let mut story = Story::default();
    let selfish = pod("ns/a", "a").blocking(POD, "a", "a");
    assert_eq!(story.saw(&selfish), nothing());
    assert!(story.node("a").ends_with("<- a"));
    story.lost(&selfish);
    assert!(story.graph.is_empty());
}

/// Proves GC-39.
#[test]
fn whoever_begins_to_act_is_told_of_all_that_is_under_way() {
    let mut story = Story::default();
    story.saw(&set("set").deleted(&["foregroundDeletion"]));
    story.saw(&pod("ns/a", "a").blocking(REPLICA_SET, "set", "set"));
    story.saw(&object(REPLICA_SET, "ns/free", "free").deleted(&["orphan"]));
    story.saw(&pod("ns/b", "b").owned(REPLICA_SET, "unseen", "unseen"));
    story.saw(&object(NODE, "n", "n"));
    story.saw(&pod("ns/c", "c").owned(NODE, "n", "n"));
    story.lost(&object(NODE, "n", "n"));
    story.saw(&pod("else/d", "d").owned(REPLICA_SET, "set", "set"));
    story.saw(&pod("ns/fine", "fine").owned(POD, "a", "a"));
    let mut motion = story.requeue_all();
    motion.sort();
    assert_eq!(
        motion,
        [
            "Warning OwnerRefInvalidNamespace on d: ownerRef [apps/v1/ReplicaSet, namespace: else, name: set, \
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

/// One thing that may happen to a small world.
#[derive(Clone, Debug)]
enum Step {
    Saw { who: usize, owners: Vec<(usize, bool, bool)>, finalizers: Option<bool> },
    Lost(usize),
    Absent { who: usize, wrong: bool },
    All(Vec<usize>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..6usize;
    let owners = prop::collection::vec((0..6usize, any::<bool>(), any::<bool>()), 0..3);
    let step = prop_oneof![
        4 => (who.clone(), owners, prop::option::of(any::<bool>()))
            .prop_map(|(who, owners, finalizers)| Step::Saw { who, owners, finalizers }),
        2 => who.clone().prop_map(Step::Lost),
        2 => (who.clone(), any::<bool>()).prop_map(|(who, wrong)| Step::Absent { who, wrong }),
        1 => prop::collection::vec(who, 0..4).prop_map(Step::All),
    ];
    prop::collection::vec(step, 1..60)
}

fn one(who: usize, wrong: bool) -> (&'static str, String, String) {
    let line = if who < 2 { NODE } else { POD };
    let name = if wrong { "wrong".to_owned() } else { format!("o{who}") };
    (line, name, format!("u{who}"))
}

fn whole(who: usize) -> Seen {
    let (line, name, uid) = one(who, false);
    let key = if who < 2 { name } else { format!("ns{}/{name}", who % 2) };
    object(line, &key, &uid)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn links_hold_whatever_happens(steps in steps()) {
        let mut story = Story::default();
        for step in steps {
            match step {
                Step::Saw { who, owners, finalizers } => {
                    let mut seen = whole(who);
                    for (owner, wrong, blocks) in owners {
                        let (line, name, uid) = one(owner, wrong);
                        seen = if blocks { seen.blocking(line, &name, &uid) } else { seen.owned(line, &name, &uid) };
                    }
                    let finalizer = finalizers.map(|orphans| if orphans { "orphan" } else { "foregroundDeletion" });
                    story.saw(&match finalizer {
                        Some(finalizer) => seen.deleted(&[finalizer]),
                        None => seen,
                    });
                }
                Step::Lost(who) => drop(story.lost(&whole(who))),
                Step::Absent { who, wrong } => {
                    let (line, name, uid) = one(who, wrong);
                    let key = if who < 2 { name } else { format!("ns{}/{name}", who % 2) };
                    story.absent(line, &key, &uid);
                }
                Step::All(seen) => {
                    let seen: Vec<Seen> = seen.into_iter().filter(|who| *who >= 2).map(whole).collect();
                    story.saw_all(POD, &seen, &[]);
                }
            }
        }
        story.requeue_all();
        (0..6).for_each(|who| drop(story.lost(&whole(who))));
        story.saw_all(POD, &[], &[]);
        for who in 0..6 {
            // Guesses that nobody confirmed are all that is left.
            let node = story.node(&format!("u{who}"));
            prop_assert!(node == "none" || node.contains("virtual"), "{node}");
        }
    }
}
