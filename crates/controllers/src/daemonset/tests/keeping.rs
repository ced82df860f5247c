//! What is missing and what is too much on each node.

use std::time::Duration;

use super::*;

fn surging() -> Value {
    allowing(0, 1)
}

/// A pod that was born so many days after the others.
fn born(day: i32, pod: Value) -> Value {
    with_field(pod, "/metadata/creationTimestamp", json!(format!("2027-01-0{}T00:00:00Z", day + 1)))
}

fn on_n(set: Value, pods: impl IntoIterator<Item = Value>) -> Vec<String> {
    moves(world(set, [node("n")], pods))
}

/// Proves DS-40, DS-42, DS-108.
#[test]
fn each_node_gets_one() {
    assert_eq!(on_n(set(), []), ["create on n"]);
    assert!(on_n(set(), [pod("x", "n")]).is_empty());
    assert!(on_n(set(), [unbound("x", "n")]).is_empty(), "it is meant for the node");
    // Pods that name several nodes or none are nowhere.
    let several = with_field(
        unbound("x", "n"),
        &format!("{REQUIRED}/nodeSelectorTerms/0/matchFields/0/values"),
        json!(["n", "m"]),
    );
    assert_eq!(on_n(set(), [several]), ["create on n"]);
    assert_eq!(on_n(set(), [unready(pod("x", ""))]), ["create on n"]);
    assert_eq!(on_n(set(), [with_phase("Failed", pod("x", ""))]), ["create on n"], "nor is one deleted");
}

/// Proves DS-41, DS-114.
#[test]
fn what_has_ended_and_goes_makes_room_at_once() {
    for ended in ["Failed", "Succeeded"] {
        assert_eq!(on_n(set(), [terminating(with_phase(ended, pod("x", "n")))]), ["create on n"]);
    }
    // Its revision stays until it is gone.
    let limited = with_field(content(1), "/spec/revisionHistoryLimit", json!(0));
    let pods = [pod("y", "n"), terminating(with_phase("Failed", old("x", "n")))];
    assert!(!turn(world(limited.clone(), [node("n")], pods)).contains("delete controllerrevisions"));
    assert!(turn(world(limited, [node("n")], [pod("y", "n")])).contains("delete controllerrevisions"));
}

/// Proves DS-43.
#[test]
fn a_node_that_may_not_have_one_loses_all() {
    let pods = [pod("x", "n"), with_phase("Failed", pod("y", "n")), terminating(pod("z", "n"))];
    assert_eq!(moves(world(set(), [tainted("n", "x", "NoExecute")], pods)), ["delete x", "delete y"]);
}

/// Proves DS-44, DS-45, DS-90.
#[test]
fn what_has_ended_is_deleted_and_what_goes_is_waited_for() {
    assert_eq!(
        turn(world(set(), [node("n")], [with_phase("Failed", pod("x", "n"))])),
        format!(
            "event Warning FailedDaemonPod: Found failed daemon pod a/x on node n, will try to kill it\n\
             delete pods a/x because it has failed\n\
             event Normal SuccessfulDelete: Deleted pod: x\n\
             {STATUS}"
        )
    );
    assert_eq!(
        turn(world(set(), [node("n")], [with_phase("Succeeded", pod("x", "n"))])),
        format!(
            "event Normal SucceededDaemonPod: Found succeeded daemon pod a/x on node n, will try to delete it\n\
             delete pods a/x because it has ended, which a daemon does not\n\
             event Normal SuccessfulDelete: Deleted pod: x\n\
             {STATUS}"
        )
    );
    assert!(on_n(set(), [terminating(pod("x", "n"))]).is_empty());
    // Where pods may only stay the same holds, but none is made.
    let mut staying = world(set(), [tainted("n", "x", "NoSchedule")], [with_phase("Failed", pod("x", "n"))]);
    assert_eq!(moves_in(&the_loop(), &mut staying), ["delete x"]);
}

/// Proves DS-46.
#[test]
fn of_several_the_senior_stays() {
    let gone = |pods: [Value; 3]| on_n(set(), pods);
    assert_eq!(
        gone([born(2, pod("a", "n")), born(1, pod("b", "n")), born(3, pod("c", "n"))]),
        ["delete a", "delete c"]
    );
    assert_eq!(gone([unbound("a", "n"), born(1, pod("b", "n")), pod("c", "n")]), ["delete b", "delete a"]);
    assert_eq!(gone([pod("b", "n"), pod("a", "n"), terminating(pod("c", "n"))]), ["delete b"]);
    assert!(on_n(set(), [terminating(pod("a", "n")), terminating(pod("b", "n"))]).is_empty());
}

/// Proves DS-47.
#[test]
fn with_surplus_a_node_is_never_without() {
    assert_eq!(on_n(surging(), [terminating(pod("x", "n"))]), ["create on n"]);
    assert_eq!(
        on_n(allowing(0, "1%"), [terminating(pod("x", "n"))]),
        ["create on n"],
        "any part of one is one"
    );
    assert!(on_n(allowing(1, "0%"), [terminating(pod("x", "n"))]).is_empty());
    let by_hand = with_field(surging(), "/spec/updateStrategy/type", json!("OnDelete"));
    assert!(on_n(by_hand, [terminating(pod("x", "n"))]).is_empty());
    let only_staying = world(surging(), [tainted("n", "x", "NoSchedule")], [terminating(pod("x", "n"))]);
    assert!(moves(only_staying).is_empty());
}

/// Proves DS-48, DS-49, DS-97.
#[test]
fn with_surplus_one_of_each_stays_until_the_new_one_can_do_it_alone() {
    let new = |name: &str| unready(pod(name, "n"));
    let old = |name: &str| old(name, "n");
    assert!(on_n(surging(), [new("new"), old("old")]).is_empty());
    assert_eq!(on_n(surging(), [pod("new", "n"), old("old")]), ["delete old"]);
    assert_eq!(on_n(surging(), [new("new"), unready(old("old"))]), ["delete old"]);
    let patient = with_field(surging(), "/spec/minReadySeconds", json!(5));
    assert!(on_n(patient.clone(), [recently_ready(pod("new", "n")), old("old")]).is_empty());
    assert_eq!(on_n(patient, [pod("new", "n"), old("old")]), ["delete old"]);
    // The oldest of each kind stays.
    let four = [new("a"), born(1, new("b")), old("c"), born(1, old("d"))];
    assert_eq!(on_n(surging(), four), ["delete b", "delete d"]);
    // What kind it is goes by the hash alone.
    let by_generation = with_field(new("x"), "/metadata/labels/controller-revision-hash", json!("h1"));
    assert_eq!(on_n(surging(), [by_generation, born(1, old("y"))]), ["delete y"]);
}

/// Proves DS-50.
#[test]
fn what_is_meant_for_a_node_that_does_not_exist_is_deleted() {
    let pods = [unbound("x", "gone"), pod("y", "gone"), terminating(unbound("z", "gone"))];
    assert_eq!(moves(world(set(), [], pods)), ["delete x"]);
}

/// Proves DS-52, DS-105.
#[test]
fn a_node_that_refuses_pods_gets_them_more_slowly() {
    let a_loop = the_loop();
    let mut world =
        world(set(), [node("n"), node("m")], [with_phase("Failed", pod("x", "n")), pod("y", "m")]);
    assert_eq!(moves_in(&a_loop, &mut world), ["delete x"]);
    let waits = |world: &mut RehearsalCluster| world.outline(&a_loop, agent());
    assert_eq!(waits(&mut world), format!("{STATUS}requeue after 1s\n"));
    world.advance_clock(Duration::from_secs(1));
    assert_eq!(moves_in(&a_loop, &mut world), ["delete x"]);
    world.advance_clock(Duration::from_secs(1));
    assert_eq!(waits(&mut world), format!("{STATUS}requeue after 2s\n"), "the whole of it");
    // Once a new wish was looked at, all is forgiven.
    let seen = with_field(set(), "/metadata/resourceVersion", json!("8"));
    world.put::<DaemonSet>(&a_loop, with_field(seen, "/status/observedGeneration", json!(3)));
    assert_eq!(moves_in(&a_loop, &mut world), ["delete x"]);
}

/// Proves DS-53.
#[test]
fn with_surplus_a_pod_that_is_held_back_gets_company() {
    let a_loop = the_loop();
    let mut world = world(surging(), [node("n")], [with_phase("Failed", pod("x", "n"))]);
    assert_eq!(moves_in(&a_loop, &mut world), ["create on n", "delete x"]);
    assert_eq!(moves_in(&a_loop, &mut world), ["create on n"]);
}
