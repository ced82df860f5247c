//! Counts, conditions and requeue delays.

use keleustes_plan::StatusUrgency;
use proptest::prelude::*;

use super::*;
use crate::deployment::inputs::Inputs;
use crate::deployment::status::StatusDraft;

fn with_progress(deployment: Value, progress: &Value) -> Value {
    let conditions = json!([
        condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        progress.clone(),
    ]);
    with_field(deployment, "/status/conditions", conditions)
}

/// A rollout with two of three pods available, as its status reports.
fn halfway(progress: &Value) -> Value {
    let mut halfway = with_progress(deployment(3), progress);
    for (count, number) in
        [("replicas", 3), ("updatedReplicas", 3), ("readyReplicas", 2), ("availableReplicas", 2)]
    {
        halfway["status"][count] = json!(number);
    }
    halfway["status"]["unavailableReplicas"] = json!(1);
    halfway["status"]["terminatingReplicas"] = json!(0);
    halfway
}

/// A Progressing condition, last updated so many seconds ago.
fn progress(status: &str, reason: &str, seconds_ago: u32) -> Value {
    let (minutes, seconds) = (59 - seconds_ago / 60, 60 - seconds_ago % 60);
    let mut progress = condition("Progressing", status, reason, "m");
    progress["lastUpdateTime"] = json!(match seconds_ago % 60 {
        0 => format!("2027-01-15T07:{:02}:00Z", minutes + 1),
        _ => format!("2027-01-15T07:{minutes:02}:{seconds:02}Z"),
    });
    progress
}

/// Proves DEP-76.
#[test]
fn counts_are_sums_over_replica_sets() {
    let counted = with_field(deployment(3), "/status/collisionCount", json!(4));
    let counted = with_field(counted, "/metadata/generation", json!(9));
    let mut new_set = new(2, 1);
    new_set["status"]["readyReplicas"] = json!(2);
    let status = put(cluster(counted, [new_set, old(3, 2)]))["status"].take();
    let count = |field: &str| status[field].as_i64().unwrap();
    assert_eq!(
        ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"]
            .map(count),
        [5, 2, 4, 3, 2]
    );
    assert_eq!(["observedGeneration", "collisionCount"].map(count), [9, 4]);
    let many = with_field(new(3, 5), "/status/replicas", json!(5));
    assert_eq!(put(cluster(deployment(3), [many]))["status"]["unavailableReplicas"], 0);
}

/// Proves DEP-77.
#[test]
fn terminating_pods_are_counted_if_all_replica_sets_report_them() {
    let status_urgency = |set: Value, count: Value| with_field(set, "/status/terminatingReplicas", count);
    let sum = |one: Value, other: Value| {
        put(cluster(deployment(3), [one, other]))["status"]["terminatingReplicas"].clone()
    };
    assert_eq!(sum(status_urgency(old(1, 1), json!(2)), status_urgency(new(3, 3), json!(3))), 5);
    assert_eq!(sum(status_urgency(old(1, 1), Value::Null), status_urgency(new(3, 3), json!(3))), Value::Null);
    let unseen = with_field(status_urgency(old(1, 1), Value::Null), "/status/observedGeneration", json!(0));
    assert_eq!(sum(unseen, status_urgency(new(3, 3), json!(3))), 3);
    let silent = DeploymentOptions { count_terminating_replicas: false, ..DeploymentOptions::default() };
    let transcript = cluster(complete(3), [new(3, 3)]).reconcile(&controller(&silent).loops.remove(0), web());
    assert!(transcript.starts_with("put deployments.apps/status") && !transcript.contains("terminating"));
}

/// Proves DEP-78, DEP-98, DEP-109.
#[test]
fn available_is_true_if_enough_pods_are_available() {
    for (desired, available, status) in [(3, 2, "True"), (3, 1, "False"), (1, 0, "True"), (0, 0, "True")] {
        let condition =
            written_condition(cluster(deployment(desired), [new(desired, available)]), "Available");
        assert_eq!(condition["status"], status, "{available} of {desired}");
    }
    let strict = written_condition(cluster(recreating(deployment(3)), [new(3, 2)]), "Available");
    assert_eq!(
        words(&strict),
        ["False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."]
    );
    let fine = written_condition(cluster(recreating(deployment(3)), [new(3, 3)]), "Available");
    assert_eq!(words(&fine), ["True", "MinimumReplicasAvailable", "Deployment has minimum availability."]);
    // Zero replicas: all pods are removed, and that is complete.
    assert_eq!(sizes(cluster(deployment(0), [new(3, 3)])), sized(&[("new", 0)]));
    let none = written_condition(cluster(deployment(0), [new(0, 0)]), "Progressing");
    assert_eq!(words(&none)[1], "NewReplicaSetAvailable");
}

/// Proves DEP-79.
#[test]
fn an_unchanged_condition_is_kept() {
    // Only the counts changed.
    let stale = with_field(complete(3), "/status/readyReplicas", json!(2));
    let status = put(cluster(stale.clone(), [new(3, 3)]))["status"].take();
    assert_eq!(status["conditions"], stale["status"]["conditions"]);
    // The same status with another reason: the condition moves to the end and keeps its lastTransitionTime.
    let running = with_field(
        complete(3),
        "/status/conditions/0",
        condition("Progressing", "True", "ReplicaSetUpdated", "m"),
    );
    let running = with_field(running, "/status/conditions/1", condition("Available", "False", "x", "y"));
    let status = put(cluster(running, [new(3, 3)]))["status"].take();
    let of = |at: usize, field: &str| status["conditions"][at][field].clone();
    assert_eq!((of(0, "type"), of(1, "type")), (json!("Available"), json!("Progressing")));
    assert_eq!(of(0, "lastTransitionTime"), "2027-01-15T08:00:00Z");
    assert_eq!(
        (of(1, "lastTransitionTime"), of(1, "lastUpdateTime")),
        (json!("2027-01-15T07:00:00Z"), json!("2027-01-15T08:00:00Z"))
    );
}

/// Proves DEP-82, DEP-83.
#[test]
fn progressing_exists_only_with_a_deadline() {
    for endless in [Value::Null, json!(i32::MAX)] {
        let endless = with_field(
            halfway(&progress("True", "ReplicaSetUpdated", 9)),
            "/spec/progressDeadlineSeconds",
            endless,
        );
        assert_eq!(written_condition(cluster(endless, [new(3, 2)]), "Progressing"), Value::Null);
    }
    // After completion, failing pods do not count as a stalled rollout.
    let completed = || halfway(&progress("True", "NewReplicaSetAvailable", 900));
    check(cluster(completed(), [new(3, 2)]), "");
    // Nor does their return count as a rollout that progresses.
    let one_returned = with_field(completed(), "/status/availableReplicas", json!(1));
    assert_eq!(reason(one_returned, vec![new(3, 2)]), "NewReplicaSetAvailable");
    // Pods of another ReplicaSet do: a new rollout has begun.
    let another = with_field(completed(), "/status/updatedReplicas", json!(0));
    assert_eq!(reason(another, vec![new(1, 0), old(3, 3)]), "ReplicaSetUpdated");
}

fn reason(deployment: Value, sets: Vec<Value>) -> Value {
    written_condition(cluster(deployment, sets), "Progressing")["reason"].take()
}

/// Proves DEP-84, DEP-120.
#[test]
fn a_rollout_is_complete_when_all_replicas_are_updated_and_available() {
    let running = || halfway(&progress("True", "ReplicaSetUpdated", 9));
    let condition = written_condition(cluster(running(), [new(3, 3)]), "Progressing");
    assert_eq!(
        words(&condition),
        ["True", "NewReplicaSetAvailable", "ReplicaSet \"new\" has successfully progressed."]
    );
    for sets in [vec![new(3, 3), old(1, 1)], vec![new(2, 2)], vec![new(3, 2)]] {
        let mut there = running();
        there["status"]["replicas"] = json!(9);
        assert_ne!(
            written_condition(cluster(there, sets), "Progressing")["reason"],
            "NewReplicaSetAvailable"
        );
    }
}

/// Proves DEP-85, DEP-86, DEP-120.
#[test]
fn a_rollout_progresses_if_any_count_improves() {
    let before = |field: &str, number: i32, status: &str| {
        let there = halfway(&progress(status, "ReplicaSetUpdated", 9));
        with_field(there, &format!("/status/{field}"), json!(number))
    };
    for (field, number) in
        [("updatedReplicas", 2), ("replicas", 4), ("readyReplicas", 1), ("availableReplicas", 1)]
    {
        let condition = written_condition(cluster(before(field, number, "True"), [new(3, 2)]), "Progressing");
        assert_eq!(
            words(&condition),
            ["True", "ReplicaSetUpdated", "ReplicaSet \"new\" is progressing."],
            "{field}"
        );
        assert_eq!(condition["lastUpdateTime"], "2027-01-15T08:00:00Z");
        assert_eq!(condition["lastTransitionTime"], "2027-01-15T07:00:00Z");
    }
    let condition =
        written_condition(cluster(before("readyReplicas", 1, "Unknown"), [new(3, 2)]), "Progressing");
    assert_eq!(condition["lastTransitionTime"], "2027-01-15T08:00:00Z");
    // Without a new ReplicaSet the message names the Deployment.
    let waiting = recreating(before("readyReplicas", 1, "True"));
    let condition = written_condition(cluster(waiting, [old(3, 2)]), "Progressing");
    assert_eq!(words(&condition)[2], "Deployment \"web\" is progressing.");
}

/// Proves DEP-87, DEP-107, DEP-117, DEP-120.
#[test]
fn a_stalled_rollout_times_out_and_recovers() {
    let reason = |progress: Value| {
        let transcript = reconcile(cluster(halfway(&progress), [new(3, 2)]));
        match transcript.contains(STATUS) {
            true => {
                written_condition(cluster(halfway(&progress), [new(3, 2)]), "Progressing")["reason"].clone()
            }
            false => json!(transcript),
        }
    };
    assert_eq!(reason(progress("True", "ReplicaSetUpdated", 601)), "ProgressDeadlineExceeded");
    assert_eq!(reason(progress("Unknown", "DeploymentResumed", 601)), "ProgressDeadlineExceeded");
    assert_eq!(reason(progress("True", "ReplicaSetUpdated", 600)), "requeue after 1s\n");
    let timed_out = written_condition(
        cluster(halfway(&progress("True", "ReplicaSetUpdated", 601)), [new(3, 2)]),
        "Progressing",
    );
    assert_eq!(
        words(&timed_out),
        ["False", "ProgressDeadlineExceeded", "ReplicaSet \"new\" has timed out progressing."]
    );
    // It stays timed out, the rollout continues all the same, and the condition recovers.
    assert_eq!(reason(progress("False", "ProgressDeadlineExceeded", 9)), "");
    let late = || halfway(&progress("False", "ProgressDeadlineExceeded", 9));
    assert_eq!(sizes(cluster(late(), [new(1, 1), old(3, 3)])), sized(&[("old", 1)]));
    let better = with_field(late(), "/status/readyReplicas", json!(1));
    assert_eq!(
        words(&written_condition(cluster(better, [new(3, 2)]), "Progressing"))[..2],
        ["True", "ReplicaSetUpdated"]
    );
    // A time in the future postpones the deadline.
    let mut future = progress("True", "ReplicaSetUpdated", 9);
    future["lastUpdateTime"] = json!("2027-01-15T09:00:00Z");
    assert_eq!(reason(future), "requeue after 4201s\n");
}

/// Proves DEP-88.
#[test]
fn replica_failure_is_copied_from_the_replica_set() {
    let failing = |set: Value, message: &str| {
        let mut failure = condition("ReplicaFailure", "True", "FailedCreate", message);
        failure["lastUpdateTime"].take();
        with_field(set, "/status/conditions", json!([failure]))
    };
    let there = |sets: [Value; 2]| written_condition(cluster(complete(3), sets), "ReplicaFailure");
    let copied_annotations = there([failing(old(1, 1), "old"), failing(new(3, 2), "new")]);
    assert_eq!(words(&copied_annotations), ["True", "FailedCreate", "new"]);
    assert_eq!(copied_annotations["lastUpdateTime"], copied_annotations["lastTransitionTime"]);
    assert_eq!(words(&there([failing(old(1, 1), "old"), new(3, 2)]))[2], "old");
    // An existing condition keeps its message, and is removed when nothing fails any more.
    let mut with_condition = complete(3);
    let earlier = condition("ReplicaFailure", "True", "FailedCreate", "earlier");
    with_condition["status"]["conditions"].as_array_mut().unwrap().insert(0, earlier);
    check(cluster(with_condition.clone(), [failing(new(3, 3), "new")]), "");
    assert_eq!(written_condition(cluster(with_condition, [new(3, 3)]), "ReplicaFailure"), Value::Null);
}

/// Proves DEP-89.
#[test]
fn the_deployment_is_requeued_after_its_progress_deadline() {
    let there = |progress: Value| cluster(halfway(&progress), [new(3, 2)]);
    check(there(progress("True", "ReplicaSetUpdated", 100)), "requeue after 501s\n");
    check(there(progress("False", "ProgressDeadlineExceeded", 100)), "");
    let endless =
        with_field(halfway(&progress("True", "x", 100)), "/spec/progressDeadlineSeconds", Value::Null);
    assert!(
        !reconcile(cluster(with_field(endless, "/status/conditions", json!([])), [new(3, 2)]))
            .contains("requeue")
    );
}

/// Proves DEP-90.
#[test]
fn without_a_rollout_only_counts_and_available_are_updated() {
    let failure = condition("ReplicaFailure", "True", "FailedCreate", "m");
    for still in [terminating(complete(3)), with_field(complete(3), "/spec/replicas", json!(2))] {
        let mut still = with_progress(still, &progress("True", "ReplicaSetUpdated", 900));
        still["status"]["conditions"].as_array_mut().unwrap().push(failure.clone());
        let status = put(cluster(still.clone(), [new(3, 0)]))["status"].take();
        let kinds: Vec<_> = status["conditions"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
        assert_eq!(kinds, ["Progressing", "ReplicaFailure", "Available"]);
        assert_eq!(status["conditions"][0], still["status"]["conditions"][1]);
        assert_eq!(status["conditions"][1], failure);
    }
}

/// The urgency of the status that a Deployment with these ReplicaSets gets.
fn status_urgency(deployment: Value, sets: &[Value], changed_anything: bool) -> StatusUrgency {
    let cluster = cluster(deployment, sets.iter().cloned());
    let view = cluster.view();
    let (deployment, _) = Inputs::claim(&view, &web()).unwrap();
    let inputs = Inputs::gather(&view, deployment, view.all::<ReplicaSet>().cloned().collect());
    let mut draft = StatusDraft::of(&inputs);
    draft.count(&inputs, true);
    draft.update_progressing(&inputs);
    draft.status_urgency(&inputs, changed_anything)
}

/// A status that is not sent is computed again, and the next reconcile finds a ReplicaSet that exists: without the condition,
/// a rollout that cannot start would never exceed its deadline.
#[test]
fn status_is_immediate_if_the_new_replica_set_was_created() {
    let cluster = cluster(complete(3), [new(3, 3)]);
    let view = cluster.view();
    let (deployment, _) = Inputs::claim(&view, &web()).unwrap();
    let inputs = Inputs::gather(&view, deployment, view.all::<ReplicaSet>().cloned().collect());
    let mut draft = StatusDraft::of(&inputs);
    draft.count(&inputs, true);
    assert_ne!(draft.status_urgency(&inputs, true), StatusUrgency::Immediate);
    draft.note_creation(&inputs, "web-x", 3);
    assert_eq!(draft.status_urgency(&inputs, false), StatusUrgency::Immediate);
    assert_eq!(draft.status_urgency(&inputs, true), StatusUrgency::Immediate);
}

#[test]
fn status_is_immediate_for_new_generations_completion_and_conditions() {
    let halfway = || halfway(&progress("True", "ReplicaSetUpdated", 10));
    // One more pod, one fewer, and the last one.
    assert_eq!(
        status_urgency(with_field(halfway(), "/spec/replicas", json!(9)), &[new(9, 8)], false),
        StatusUrgency::Coalesce
    );
    assert_eq!(status_urgency(halfway(), &[new(3, 2), old(1, 0)], true), StatusUrgency::Superseded);
    assert_eq!(status_urgency(halfway(), &[new(3, 3)], false), StatusUrgency::Immediate);
    assert_eq!(status_urgency(halfway(), &[new(3, 3)], true), StatusUrgency::Immediate);
    // Complete stays complete while old pods terminate.
    let ending = with_field(old(0, 0), "/status/terminatingReplicas", json!(1));
    assert_eq!(status_urgency(complete(3), &[new(3, 3), ending], false), StatusUrgency::Coalesce);
    // A ready pod is lost, while the Deployment stays available.
    let lost = with_field(new(3, 3), "/status/readyReplicas", json!(2));
    assert_eq!(status_urgency(complete(3), &[lost], false), StatusUrgency::Immediate);
    assert_eq!(status_urgency(complete(3), &[new(3, 2)], true), StatusUrgency::Immediate);
    // The user has changed the spec.
    let replicas = with_field(halfway(), "/metadata/generation", json!(3));
    assert_eq!(status_urgency(replicas, &[new(3, 2)], true), StatusUrgency::Immediate);
    // Fewer than the minimum are available, and the deadline has passed.
    assert_eq!(status_urgency(halfway(), &[new(3, 1)], false), StatusUrgency::Immediate);
    let patient = with_field(
        with_progress(halfway(), &progress("True", "ReplicaSetUpdated", 700)),
        "/spec/progressDeadlineSeconds",
        json!(600),
    );
    assert_eq!(status_urgency(patient, &[new(3, 2)], false), StatusUrgency::Immediate);
}

proptest! {
    /// A client must not read counts of pods that are lost.
    #[test]
    fn a_loss_is_written_at_once_and_progress_is_coalesced(
        wanted in 0..7_i32,
        old in prop::array::uniform4(0..7_i32),
        new in prop::array::uniform4(0..7_i32),
        changed_anything in any::<bool>(),
    ) {
        let status = |[replicas, updated, ready, available]: [i32; 4]| json!({
            "observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
            "availableReplicas": available,
        });
        let cluster = cluster(with_field(deployment(wanted), "/status", status(old)), []);
        let view = cluster.view();
        let (deployment, _) = Inputs::claim(&view, &web()).unwrap();
        let inputs = Inputs::gather(&view, deployment, Vec::new());
        let mut draft = StatusDraft::of(&inputs);
        draft.status = serde_json::from_value(status(new)).unwrap();
        let is_complete =
            |[all, updated, _, available]: [i32; 4]| [all, updated, available].iter().all(|it| *it == wanted);
        let is_goal = is_complete(new) && !is_complete(old);
        let is_loss = old.iter().zip(&new).any(|(old, new)| new < old);
        let is_immediate = draft.status_urgency(&inputs, changed_anything) == StatusUrgency::Immediate;
        prop_assert_eq!(is_immediate, is_loss || is_goal);
    }
}
