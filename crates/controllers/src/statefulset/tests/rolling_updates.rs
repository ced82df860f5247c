//! How pods of older revisions are replaced.

use super::*;
use keleustes_plan::rehearsal::is_retried_because;

/// A StatefulSet with so many replicas and this maxUnavailable.
fn allowing(replicas: i32, most: impl Into<Value>) -> Value {
    with_field(set(replicas), "/spec/updateStrategy/rollingUpdate/maxUnavailable", most.into())
}

fn parted(set: Value, at: i32) -> Value {
    with_field(set, "/spec/updateStrategy/rollingUpdate/partition", json!(at))
}

fn all_old(replicas: i32) -> Vec<Value> {
    (0..replicas).map(old).collect()
}

/// Old pods, except for some.
fn old_but(replicas: i32, others: impl IntoIterator<Item = (usize, Value)>) -> Vec<Value> {
    let mut pods = all_old(replicas);
    others.into_iter().for_each(|(index, pod)| pods[index] = pod);
    pods
}

#[track_caller]
fn check(set: Value, pods: Vec<Value>, expected: &[&str]) {
    assert_eq!(pod_actions(cluster(set, pods)), expected);
}

/// Proves STS-71, STS-125.
#[test]
fn as_many_pods_are_replaced_as_max_unavailable_allows() {
    check(allowing(4, 1), all_old(4), &["delete web-3"]);
    check(allowing(4, 2), all_old(4), &["delete web-3", "delete web-2"]);
    check(allowing(4, "75%"), all_old(4), &["delete web-3", "delete web-2", "delete web-1"]);
    check(allowing(4, "49%"), all_old(4), &["delete web-3"]);
    check(allowing(4, "10%"), all_old(4), &["delete web-3"]);
    check(allowing(4, Value::Null), all_old(4), &["delete web-3"]);
    let silent = with_field(set(4), "/spec/updateStrategy", json!({"type": "RollingUpdate"}));
    check(silent, all_old(4), &["delete web-3"]);
    // They are recreated one at a time, the lowest first.
    check(allowing(4, 2), vec![old(0), old(1)], &["create web-2"]);
    check(allowing(4, 2), vec![old(0), old(1), pod(2)], &["create web-3"]);
}

/// Proves STS-72.
#[test]
fn in_order_nothing_is_replaced_while_max_unavailable_is_reached() {
    check(allowing(3, 1), old_but(3, [(2, unready(pod(2)))]), &[]);
    check(allowing(3, 1), old_but(3, [(2, pod(2))]), &["delete web-1"]);
    check(allowing(3, 2), old_but(3, [(2, terminating(old(2)))]), &[]);
    check(parted(allowing(3, 2), 2), all_old(3), &["delete web-2"]);
}

/// Proves STS-39, STS-73, STS-74, STS-75, STS-78, STS-79.
#[test]
fn in_parallel_unavailable_pods_are_replaced_first() {
    let set = |replicas, most: i32| parallel(allowing(replicas, most));
    check(
        set(5, 3),
        old_but(5, [(0, unready(old(0))), (1, unready(old(1)))]),
        &["delete web-1", "delete web-0", "delete web-4"],
    );
    check(
        set(5, 3),
        old_but(5, [(4, terminating(old(4))), (3, unready(old(3)))]),
        &["delete web-3", "delete web-2"],
    );
    check(set(3, 1), old_but(3, [(2, terminating(old(2)))]), &[]);
    check(parted(set(5, 1), 2), old_but(5, [(1, unready(old(1)))]), &[]);
    check(parted(set(5, 1), 2), old_but(5, [(2, unready(old(2)))]), &["delete web-2"]);
    // An unhealthy new pod counts as unavailable, and is not replaced.
    check(set(3, 1), old_but(3, [(2, unready(pod(2)))]), &[]);
    // A pod that was just created counts as unavailable, and so does one in phase Unknown.
    assert_eq!(pod_actions(cluster(set(3, 2), [old(0), old(1)])), ["create web-2", "delete web-1"]);
    check(set(3, 1), old_but(3, [(2, with_phase("Unknown", old(2)))]), &["delete web-2"]);
    let patient = with_field(set(3, 1), "/spec/minReadySeconds", json!(5));
    check(patient, old_but(3, [(0, recently_ready(old(0)))]), &["delete web-0"]);
}

/// Proves STS-70.
#[test]
fn nothing_is_replaced_before_all_ordinals_are_healthy() {
    check(allowing(3, 3), vec![old(0), old(1)], &["create web-2"]);
    check(allowing(3, 3), old_but(3, [(0, with_phase("Pending", old(0)))]), &[]);
    check(allowing(3, 3), [all_old(3), vec![pod(3)]].concat(), &["delete web-3"]);
    // The partition counts from the first ordinal.
    let shifted = with_field(parted(allowing(2, 2), 1), "/spec/ordinals", json!({"start": 4}));
    check(shifted, vec![old(4), old(5)], &["delete web-5"]);
}

/// Proves STS-76, STS-107.
#[test]
fn each_replaced_pod_decrements_current_replicas() {
    let written = |pods: Vec<Value>| status(cluster(allowing(3, 2), pods))["currentReplicas"].clone();
    assert_eq!(written(all_old(3)), 1);
    let third = || with_field(old(2), "/metadata/labels/controller-revision-hash", json!("web-0"));
    assert_eq!(written(old_but(3, [(2, third())])), 0);
    // Pods of neither revision may be deleted, but the count is never negative.
    let strange =
        |number: i32| with_field(old(number), "/metadata/labels/controller-revision-hash", json!("web-0"));
    let deep = with_field(set(3), "/status/replicas", json!(9));
    let none = status(cluster(deep, (0..3).map(strange).collect::<Vec<_>>()));
    assert_eq!(none["currentReplicas"], 0);
    // A pod whose deletion failed still counts.
    let failing = cluster(allowing(3, 2), all_old(3));
    let failing = failing.failing::<Pod>("delete", &key("web-2"), api_error(ErrorReason::Forbidden));
    assert_eq!(pod_actions(cluster(allowing(3, 2), all_old(3))).len(), 2);
    let mut failing = failing;
    let transcript = failing.reconcile(&the_loop(), web());
    assert!(!transcript.contains("delete pods a/web-1"), "{transcript}");
    assert!(transcript.contains(r#""currentReplicas":3"#) && is_retried_because(&transcript, "refused"));
}

/// Proves STS-77, STS-126.
#[test]
fn without_the_gate_one_pod_is_replaced_at_a_time() {
    let a_loop =
        loop_of(&StatefulSetOptions { honor_max_unavailable: false, ..StatefulSetOptions::default() });
    let pod_actions = |set: Value, pods: Vec<Value>| pod_actions_by(&a_loop, cluster(set, pods));
    assert_eq!(pod_actions(allowing(4, 3), all_old(4)), ["delete web-3"]);
    assert_eq!(pod_actions(parallel(allowing(4, 3)), all_old(4)), ["delete web-3"]);
    let in_parallel = |pods| pod_actions(parallel(allowing(3, 3)), pods);
    assert!(in_parallel(old_but(3, [(2, unready(pod(2)))])).is_empty(), "web-2 is not healthy");
    assert!(in_parallel(old_but(3, [(2, terminating(old(2)))])).is_empty());
    assert_eq!(in_parallel(old_but(3, [(0, unready(old(0))), (2, pod(2))])), ["delete web-1"]);
    // A ready pod that is not available yet stops the walk as well.
    let recent =
        || with_field(pod(2), "/status/conditions/0/lastTransitionTime", json!("2027-01-15T07:59:55Z"));
    let patient = |seconds: i32| with_field(allowing(3, 3), "/spec/minReadySeconds", json!(seconds));
    for (seconds, expected) in [(10, vec![]), (5, vec!["delete web-1"])] {
        assert_eq!(
            pod_actions(parallel(patient(seconds)), old_but(3, [(2, recent())])),
            expected,
            "{seconds}"
        );
    }
    assert_eq!(in_parallel(old_but(3, [(2, unready(old(2)))])), ["delete web-2"]);
    // A missing pod is created, and no healthy one is deleted meanwhile.
    assert_eq!(in_parallel(vec![old(0), old(1)]), ["create web-2"]);
    assert_eq!(in_parallel(vec![old(1), pod(2)]), ["create web-0", "delete web-1"], "only pods above count");
    assert_eq!(pod_actions(parted(set(3), 3), all_old(3)), Vec::<String>::new());
    let mut cluster = cluster(allowing(4, 3), all_old(4));
    assert!(!cluster.reconcile(&a_loop, web()).contains("measure"));
}

/// Proves STS-105.
#[test]
fn a_broken_pod_blocks_a_rollback_in_order_but_not_in_parallel() {
    // `web-2` has a revision that never becomes ready; the template is `v1` again.
    let back = with_field(set(3), "/spec/template", template("v1"));
    let broken = || {
        [
            with_field(pod(0), "/metadata/labels/controller-revision-hash", json!("web-1")),
            old(1),
            unready(pod(2)),
        ]
    };
    assert!(pod_actions(cluster(back.clone(), broken())).is_empty());
    assert_eq!(pod_actions(cluster(parallel(back), broken())), ["delete web-2"]);
}

/// Proves STS-106.
#[test]
fn a_second_update_supersedes_the_first() {
    let third = with_field(set(3), "/spec/template", template("v3"));
    let third =
        with_field(with_field(third, "/metadata/generation", json!(3)), "/status/currentReplicas", json!(1));
    let cluster =
        cluster(third, [old(0), pod(1), pod(2)]).with::<ControllerRevision>(revision("web-3", 3, "v3"));
    let written = status(cluster);
    assert_eq!((&written["currentRevision"], &written["updateRevision"]), (&json!("web-1"), &json!("web-3")));
    assert_eq!((&written["currentReplicas"], &written["updatedReplicas"]), (&json!(0), &json!(0)));
}
