//! Adoption and release of pods.

use keleustes_plan::PatchKind;
use keleustes_plan::{Action, Write};

use super::*;

const RELEASE: &str = "because it does not match the selector any more";

fn stray(name: &str) -> Value {
    with_field(pod(name), "/metadata/labels", json!({"app": "none"}))
}

fn claimed_by(set: Value, pods: &[Value]) -> (Vec<String>, Vec<Write>) {
    let set: ReplicaSet = serde_json::from_value(set).unwrap();
    let pods: Vec<std::sync::Arc<Pod>> =
        pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect();
    let mut claimed = crate::workloads::adoption::claim(&set, &set.selector().unwrap(), pods.iter());
    let owned = claimed.owned.iter().map(|pod| pod.meta.key.name.to_string()).collect();
    (owned, claimed.take_writes())
}

/// Proves RS-31, RS-88, INF-100.
#[test]
fn pods_of_another_controller_are_ignored_and_own_pods_are_kept() {
    let of_another = owned_by("ReplicaSet", "other", "u-other", orphan("x"));
    let elsewhere = with_field(orphan("z"), "/metadata/namespace", json!("b"));
    check(with_pods(cluster(set(1)), [of_another, pod("y"), elsewhere]), STATUS);
    // A terminating ReplicaSet keeps its pods as well.
    let (owned, writes) = claimed_by(terminating(set(1)), &[pod("y")]);
    assert_eq!((owned, writes.len()), (vec!["y".to_owned()], 0));
}

/// Proves RS-32, RS-37, INF-95, INF-101, INF-106, INF-107.
#[test]
fn pods_that_no_longer_match_are_released() {
    let strays = || with_pods(cluster(up_to_date(1)), [pod("x"), stray("y")]);
    check(strays(), &format!("patch pods a/y {RELEASE}\n"));
    let (owned, writes) = claimed_by(set(1), &[stray("y")]);
    let [write] = &writes[..] else { panic!("one write") };
    assert!(owned.is_empty());
    assert_eq!(write.target.uid.to_string(), "u-y", "a UID precondition");
    let Action::Patch { form: PatchKind::Strategic, body, subresource: "" } = &write.action else {
        panic!("a strategic patch")
    };
    assert_eq!(*body, json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "u-web"}]}}));
    for fine in [ErrorReason::NotFound, ErrorReason::Invalid] {
        let cluster = strays().failing::<Pod>("patch", &Key::namespaced("a", "y"), api_error(fine));
        check(cluster, &format!("patch pods a/y {RELEASE} (ignored: refused)\n"));
    }
    let raced =
        strays().failing::<Pod>("patch", &Key::namespaced("a", "y"), api_error(ErrorReason::Conflict));
    check(
        raced,
        &format!("patch pods a/y {RELEASE} FAILED: refused\nretry: patch pods a/y {RELEASE}: refused\n"),
    );
    // A terminating ReplicaSet releases nothing, and does not count a pod that no longer matches.
    check(with_pods(cluster(terminating(up_to_date(1))), [pod("x"), stray("y")]), "");
}

/// Proves RS-33, RS-36, INF-95, INF-102, INF-105, INF-107.
#[test]
fn matching_orphans_are_adopted() {
    let (owned, writes) = claimed_by(set(1), &[orphan("x")]);
    let [write] = &writes[..] else { panic!("one write") };
    assert_eq!((owned, write.target.uid.to_string()), (vec!["x".to_owned()], "u-x".to_owned()));
    let Action::Patch { form: PatchKind::Strategic, body, subresource: "" } = &write.action else {
        panic!("a strategic patch")
    };
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web",
        "controller": true, "blockOwnerDeletion": true,
    });
    assert_eq!(*body, json!({"metadata": {"ownerReferences": [owner]}}));
    for (set, pod) in [
        (terminating(set(1)), orphan("x")),
        (set(1), terminating(orphan("x"))),
        (set(1), with_field(orphan("x"), "/metadata/labels", json!({"app": "none"}))),
        (set(1), with_field(orphan("x"), "/metadata/namespace", json!("b"))),
    ] {
        let (owned, writes) = claimed_by(set, &[pod]);
        assert!(owned.is_empty() && writes.is_empty());
    }
    // An orphan that was deleted is no error, and is not counted.
    let gone = with_pods(cluster(set(1)), [orphan("x")]);
    let gone = gone.failing::<Pod>("patch", &Key::namespaced("a", "x"), api_error(ErrorReason::NotFound));
    check(gone, &format!("patch pods a/x {ADOPT} (ignored: refused)\n{CREATE}"));
}

/// Proves RS-34.
#[test]
fn no_orphan_is_adopted_by_a_deleted_or_terminating_replica_set() {
    let cached = || RehearsalCluster::of(&the_loop()).with_cached::<ReplicaSet>(set(2));
    let another = with_field(set(2), "/metadata/uid", json!("u-another"));
    for (cluster, why) in [
        (cached(), "the owner is gone"),
        (cached().with_live::<ReplicaSet>(another), "the owner is another one"),
        (cached().with_live::<ReplicaSet>(terminating(set(2))), "the owner is being deleted"),
    ] {
        check(
            with_pods(cluster, [orphan("x"), orphan("y")]),
            &format!(
                "patch pods a/x {ADOPT} FAILED: {why}\npatch pods a/y {ADOPT} FAILED: {why}\n\
                 retry: patch pods a/x {ADOPT}: {why}\n"
            ),
        );
    }
}

/// Proves RS-28, RS-35, INF-108.
#[test]
fn a_failed_adoption_stops_the_reconcile_but_no_other_adoption() {
    let cluster = with_pods(cluster(set(5)), [orphan("x"), orphan("y"), stray("z")]);
    // Another ReplicaSet has adopted it first.
    let cluster =
        cluster.failing::<Pod>("patch", &Key::namespaced("a", "x"), api_error(ErrorReason::Invalid));
    check(
        cluster,
        &format!(
            "patch pods a/z {RELEASE}\n\
             patch pods a/x {ADOPT} FAILED: refused\n\
             patch pods a/y {ADOPT}\n\
             retry: patch pods a/x {ADOPT}: refused\n"
        ),
    );
}

/// Proves RS-27, INF-96.
#[test]
fn only_active_pods_are_adopted_counted_and_deleted() {
    let phase = |phase: &str, pod| with_field(pod, "/status/phase", json!(phase));
    let inactive = [
        phase("Succeeded", pod("x")),
        phase("Failed", pod("y")),
        phase("Succeeded", orphan("z")),
        phase("Failed", stray("s")),
        terminating(stray("t")),
    ];
    check(with_pods(cluster(set(1)), inactive.clone()), CREATE);
    check(with_pods(cluster(set(0)), inactive), "");
}

/// Proves RS-84.
#[test]
fn a_terminating_replica_set_only_updates_its_status() {
    for replicas in [0, 2] {
        let cluster = with_pods(cluster(terminating(set(replicas))), [pod("x"), orphan("y"), stray("z")]);
        check(cluster, STATUS);
    }
}
