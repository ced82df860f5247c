//! Counts, conditions, and when to look again.

use keleustes_plan::StatusUrgency;

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

/// A rollout of which two of three pods are there, as its status says already.
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

/// `Progressing` for a reason, last heard of so many seconds ago.
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
fn counts_are_sums_and_what_is_missing_is_missing() {
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
fn terminating_pods_are_counted_if_all_tell() {
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
fn it_is_available_if_enough_pods_are() {
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
    // None wanted: all go, and that is complete.
    assert_eq!(sizes(cluster(deployment(0), [new(3, 3)])), sized(&[("new", 0)]));
    let none = written_condition(cluster(deployment(0), [new(0, 0)]), "Progressing");
    assert_eq!(words(&none)[1], "NewReplicaSetAvailable");
}

/// Proves DEP-79.
#[test]
fn a_condition_that_says_the_same_is_left_alone() {
    // Only the counts are news.
    let stale = with_field(complete(3), "/status/readyReplicas", json!(2));
    let status = put(cluster(stale.clone(), [new(3, 3)]))["status"].take();
    assert_eq!(status["conditions"], stale["status"]["conditions"]);
    // The same status for another reason: it moves to the end and keeps its transition.
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
fn progress_is_judged_while_there_is_a_deadline_and_a_rollout() {
    for endless in [Value::Null, json!(i32::MAX)] {
        let endless = with_field(
            halfway(&progress("True", "ReplicaSetUpdated", 9)),
            "/spec/progressDeadlineSeconds",
            endless,
        );
        assert_eq!(written_condition(cluster(endless, [new(3, 2)]), "Progressing"), Value::Null);
    }
    // Once all was available, pods that fail later are no rollout that stands still.
    check(cluster(halfway(&progress("True", "NewReplicaSetAvailable", 900)), [new(3, 2)]), "");
}

/// Proves DEP-84, DEP-120.
#[test]
fn it_is_complete_when_the_newest_has_all_and_all_are_available() {
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
fn it_gets_on_if_any_count_is_better_than_before() {
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
    // Without a newest one it is the Deployment that gets on.
    let waiting = recreating(before("readyReplicas", 1, "True"));
    let condition = written_condition(cluster(waiting, [old(3, 2)]), "Progressing");
    assert_eq!(words(&condition)[2], "Deployment \"web\" is progressing.");
}

/// Proves DEP-87, DEP-107, DEP-117, DEP-120.
#[test]
fn it_times_out_when_it_stands_still_and_recovers_when_it_gets_on() {
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
    // It stays so, is moved on all the same, and recovers.
    assert_eq!(reason(progress("False", "ProgressDeadlineExceeded", 9)), "");
    let late = || halfway(&progress("False", "ProgressDeadlineExceeded", 9));
    assert_eq!(sizes(cluster(late(), [new(1, 1), old(3, 3)])), sized(&[("old", 1)]));
    let better = with_field(late(), "/status/readyReplicas", json!(1));
    assert_eq!(
        words(&written_condition(cluster(better, [new(3, 2)]), "Progressing"))[..2],
        ["True", "ReplicaSetUpdated"]
    );
    // A time from the future puts it off.
    let mut future = progress("True", "ReplicaSetUpdated", 9);
    future["lastUpdateTime"] = json!("2027-01-15T09:00:00Z");
    assert_eq!(reason(future), "requeue after 4201s\n");
}

/// Proves DEP-88.
#[test]
fn what_keeps_a_replica_set_from_its_pods_is_passed_on() {
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
    // One that is told already keeps its words, and goes when nothing fails any more.
    let mut told_before = complete(3);
    let earlier = condition("ReplicaFailure", "True", "FailedCreate", "earlier");
    told_before["status"]["conditions"].as_array_mut().unwrap().insert(0, earlier);
    check(cluster(told_before.clone(), [failing(new(3, 3), "new")]), "");
    assert_eq!(written_condition(cluster(told_before, [new(3, 3)]), "ReplicaFailure"), Value::Null);
}

/// Proves DEP-89.
#[test]
fn it_is_looked_at_again_when_the_deadline_will_have_passed() {
    let there = |progress: Value| cluster(halfway(&progress), [new(3, 2)]);
    check(there(progress("True", "ReplicaSetUpdated", 100)), "requeue after 501s\n");
    check(there(progress("False", "ProgressDeadlineExceeded", 100)), "");
    let endless =
        with_field(halfway(&progress("True", "x", 100)), "/spec/progressDeadlineSeconds", Value::Null);
    assert!(
        !reconcile(cluster(with_field(endless, "/status/conditions", json!([])), [new(3, 2)]))
            .contains("revisit")
    );
}

/// Proves DEP-90.
#[test]
fn where_nothing_is_rolled_only_counts_and_availability_are_told() {
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

/// How soon the status must be known that a Deployment with these sets comes to.
fn status_urgency(deployment: Value, sets: &[Value], changed_anything: bool) -> StatusUrgency {
    let cluster = cluster(deployment, sets.iter().cloned());
    let view = cluster.view();
    let (deployment, _) = Inputs::claim(&view, &web().into()).unwrap();
    let inputs = Inputs::gather(&view, deployment, view.all::<ReplicaSet>().cloned().collect());
    let mut draft = StatusDraft::of(&inputs);
    draft.count(&inputs, true);
    draft.update_progressing(&inputs);
    draft.status_urgency(&inputs, changed_anything)
}

#[test]
fn wishes_seen_and_fulfilled_and_conditions_must_be_known_at_once() {
    let halfway = || halfway(&progress("True", "ReplicaSetUpdated", 10));
    // One more, one less, and the last one.
    assert_eq!(
        status_urgency(with_field(halfway(), "/spec/replicas", json!(9)), &[new(9, 8)], false),
        StatusUrgency::Coalesce
    );
    assert_eq!(status_urgency(halfway(), &[new(3, 2), old(1, 0)], true), StatusUrgency::Superseded);
    assert_eq!(status_urgency(halfway(), &[new(3, 3)], false), StatusUrgency::Immediate);
    assert_eq!(status_urgency(halfway(), &[new(3, 3)], true), StatusUrgency::Immediate);
    // What is complete stays so, while old pods take their time to end.
    let ending = with_field(old(0, 0), "/status/terminatingReplicas", json!(1));
    assert_eq!(status_urgency(complete(3), &[new(3, 3), ending], false), StatusUrgency::Coalesce);
    // Somebody has asked for something else.
    let replicas = with_field(halfway(), "/metadata/generation", json!(3));
    assert_eq!(status_urgency(replicas, &[new(3, 2)], true), StatusUrgency::Immediate);
    // Too few are left, and nothing gets on any more.
    assert_eq!(status_urgency(halfway(), &[new(3, 1)], false), StatusUrgency::Immediate);
    let patient = with_field(
        with_progress(halfway(), &progress("True", "ReplicaSetUpdated", 700)),
        "/spec/progressDeadlineSeconds",
        json!(600),
    );
    assert_eq!(status_urgency(patient, &[new(3, 2)], false), StatusUrgency::Immediate);
}
