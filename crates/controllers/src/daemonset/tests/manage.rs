//! Missing and surplus pods on each node.

use std::time::Duration;

use super::*;

fn surging() -> Value {
    allowing(0, 1)
}

/// A pod that was created this many days after the others.
fn created(day: i32, pod: Value) -> Value {
    with_field(pod, "/metadata/creationTimestamp", json!(format!("2027-01-0{}T00:00:00Z", day + 1)))
}

fn on_n(set: Value, pods: impl IntoIterator<Item = Value>) -> Vec<String> {
    pod_changes(cluster(set, [node("n")], pods))
}

/// Proves DS-40, DS-42, DS-108.
#[test]
fn each_node_gets_one_pod() {
    assert_eq!(on_n(set(), []), ["create on n"]);
    assert!(on_n(set(), [pod("x", "n")]).is_empty());
    assert!(on_n(set(), [unbound("x", "n")]).is_empty(), "the pod targets the node");
    // Pods that target several nodes or none are on no node.
    let several = with_field(
        unbound("x", "n"),
        &format!("{REQUIRED}/nodeSelectorTerms/0/matchFields/0/values"),
        json!(["n", "m"]),
    );
    assert_eq!(on_n(set(), [several]), ["create on n"]);
    assert_eq!(on_n(set(), [unready(pod("x", ""))]), ["create on n"]);
    assert_eq!(
        on_n(set(), [with_phase("Failed", pod("x", ""))]),
        ["create on n"],
        "and the pod is not deleted"
    );
}

/// Proves DS-41, DS-114.
#[test]
fn a_finished_terminating_pod_is_replaced_at_once() {
    for ended in ["Failed", "Succeeded"] {
        assert_eq!(on_n(set(), [terminating(with_phase(ended, pod("x", "n")))]), ["create on n"]);
    }
    // Its revision is kept until the pod is deleted.
    let limited = with_field(content(1), "/spec/revisionHistoryLimit", json!(0));
    let pods = [pod("y", "n"), terminating(with_phase("Failed", old("x", "n")))];
    assert!(
        !transcript_of(cluster(limited.clone(), [node("n")], pods)).contains("delete controllerrevisions")
    );
    assert!(
        transcript_of(cluster(limited, [node("n")], [pod("y", "n")])).contains("delete controllerrevisions")
    );
}

/// Proves DS-43.
#[test]
fn all_pods_on_an_ineligible_node_are_deleted() {
    let pods = [pod("x", "n"), with_phase("Failed", pod("y", "n")), terminating(pod("z", "n"))];
    assert_eq!(pod_changes(cluster(set(), [tainted("n", "x", "NoExecute")], pods)), ["delete x", "delete y"]);
}

/// Proves DS-44, DS-45, DS-90.
#[test]
fn finished_pods_are_deleted_and_terminating_ones_awaited() {
    assert_eq!(
        transcript_of(cluster(set(), [node("n")], [with_phase("Failed", pod("x", "n"))])),
        format!(
            "event Warning FailedDaemonPod on DaemonSet a/agent uid=u-agent: Found failed daemon pod a/x on node n, will try to kill it\n\
             delete pods a/x because the pod failed\n\
             event Normal SuccessfulDelete on DaemonSet a/agent uid=u-agent: Deleted pod: x\n\
             {STATUS}"
        )
    );
    assert_eq!(
        transcript_of(cluster(set(), [node("n")], [with_phase("Succeeded", pod("x", "n"))])),
        format!(
            "event Normal SucceededDaemonPod on DaemonSet a/agent uid=u-agent: Found succeeded daemon pod a/x on node n, will try to delete it\n\
             delete pods a/x because the pod succeeded, but daemon pods must keep running\n\
             event Normal SuccessfulDelete on DaemonSet a/agent uid=u-agent: Deleted pod: x\n\
             {STATUS}"
        )
    );
    assert!(on_n(set(), [terminating(pod("x", "n"))]).is_empty());
    // The same holds on a node where pods may only continue to run, but none is created.
    let mut unschedulable =
        cluster(set(), [tainted("n", "x", "NoSchedule")], [with_phase("Failed", pod("x", "n"))]);
    assert_eq!(pod_changes_in(&the_loop(), &mut unschedulable), ["delete x"]);
}

/// Proves DS-46.
#[test]
fn of_several_pods_the_oldest_stays() {
    let deleted = |pods: [Value; 3]| on_n(set(), pods);
    assert_eq!(
        deleted([created(2, pod("a", "n")), created(1, pod("b", "n")), created(3, pod("c", "n"))]),
        ["delete a", "delete c"]
    );
    assert_eq!(
        deleted([unbound("a", "n"), created(1, pod("b", "n")), pod("c", "n")]),
        ["delete b", "delete a"]
    );
    assert_eq!(deleted([pod("b", "n"), pod("a", "n"), terminating(pod("c", "n"))]), ["delete b"]);
    assert!(on_n(set(), [terminating(pod("a", "n")), terminating(pod("b", "n"))]).is_empty());
}

/// Proves DS-47.
#[test]
fn with_surge_a_terminating_pod_is_replaced_at_once() {
    assert_eq!(on_n(surging(), [terminating(pod("x", "n"))]), ["create on n"]);
    assert_eq!(
        on_n(allowing(0, "1%"), [terminating(pod("x", "n"))]),
        ["create on n"],
        "the percentage is rounded up to one"
    );
    assert!(on_n(allowing(1, "0%"), [terminating(pod("x", "n"))]).is_empty());
    let on_delete = with_field(surging(), "/spec/updateStrategy/type", json!("OnDelete"));
    assert!(on_n(on_delete, [terminating(pod("x", "n"))]).is_empty());
    let unschedulable = cluster(surging(), [tainted("n", "x", "NoSchedule")], [terminating(pod("x", "n"))]);
    assert!(pod_changes(unschedulable).is_empty());
}

/// Proves DS-48, DS-49, DS-97.
#[test]
fn with_surge_an_outdated_pod_stays_until_the_updated_one_is_available() {
    let new = |name: &str| unready(pod(name, "n"));
    let old = |name: &str| old(name, "n");
    assert!(on_n(surging(), [new("new"), old("old")]).is_empty());
    assert_eq!(on_n(surging(), [pod("new", "n"), old("old")]), ["delete old"]);
    assert_eq!(on_n(surging(), [new("new"), unready(old("old"))]), ["delete old"]);
    let patient = with_field(surging(), "/spec/minReadySeconds", json!(5));
    assert!(on_n(patient.clone(), [recently_ready(pod("new", "n")), old("old")]).is_empty());
    assert_eq!(on_n(patient, [pod("new", "n"), old("old")]), ["delete old"]);
    // The oldest updated and the oldest outdated pod stay.
    let four = [new("a"), created(1, new("b")), old("c"), created(1, old("d"))];
    assert_eq!(on_n(surging(), four), ["delete b", "delete d"]);
    // Only the hash decides here whether a pod is updated.
    let by_generation = with_field(new("x"), "/metadata/labels/controller-revision-hash", json!("h1"));
    assert_eq!(on_n(surging(), [by_generation, created(1, old("y"))]), ["delete y"]);
}

/// Proves DS-50.
#[test]
fn an_unbound_pod_for_a_missing_node_is_deleted() {
    let pods = [unbound("x", "gone"), pod("y", "gone"), terminating(unbound("z", "gone"))];
    assert_eq!(pod_changes(cluster(set(), [], pods)), ["delete x"]);
}

/// Proves DS-52, DS-105.
#[test]
fn failed_pods_on_a_node_are_deleted_with_backoff() {
    let a_loop = the_loop();
    let mut cluster =
        cluster(set(), [node("n"), node("m")], [with_phase("Failed", pod("x", "n")), pod("y", "m")]);
    assert_eq!(pod_changes_in(&a_loop, &mut cluster), ["delete x"]);
    let outline = |cluster: &mut RehearsalCluster| cluster.outline(&a_loop, agent());
    assert_eq!(outline(&mut cluster), format!("{STATUS}requeue after 1s\n"));
    cluster.advance_clock(Duration::from_secs(1));
    assert_eq!(pod_changes_in(&a_loop, &mut cluster), ["delete x"]);
    cluster.advance_clock(Duration::from_secs(1));
    assert_eq!(
        outline(&mut cluster),
        format!("{STATUS}requeue after 2s\n"),
        "the whole delay, not the rest of it"
    );
    // A new observed generation resets the backoff.
    let seen = with_field(set(), "/metadata/resourceVersion", json!("8"));
    cluster.put::<DaemonSet>(&a_loop, with_field(seen, "/status/observedGeneration", json!(3)));
    assert_eq!(pod_changes_in(&a_loop, &mut cluster), ["delete x"]);
}

/// Proves DS-53.
#[test]
fn with_surge_a_backed_off_failed_pod_gets_a_replacement() {
    let a_loop = the_loop();
    let mut cluster = cluster(surging(), [node("n")], [with_phase("Failed", pod("x", "n"))]);
    assert_eq!(pod_changes_in(&a_loop, &mut cluster), ["create on n", "delete x"]);
    assert_eq!(pod_changes_in(&a_loop, &mut cluster), ["create on n"]);
}
