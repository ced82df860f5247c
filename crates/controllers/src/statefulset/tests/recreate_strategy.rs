//! Strategy Recreate, behind its feature gate.

use super::*;
use keleustes_plan::rehearsal::is_retried_because;

fn recreating(set: Value) -> Value {
    with_field(set, "/spec/updateStrategy", json!({"type": "Recreate"}))
}

fn allowed() -> Loop {
    loop_of(&StatefulSetOptions { allow_recreate_strategy: true, ..StatefulSetOptions::default() })
}

/// Status, reason and message of the condition that one reconcile writes.
fn written_condition(mut cluster: RehearsalCluster) -> [String; 3] {
    let bodies = cluster.bodies(&allowed(), web(), "put statefulsets.apps/status ");
    let conditions = &bodies[0].1["status"]["conditions"];
    assert_eq!(conditions[0]["type"], "Progressing");
    ["status", "reason", "message"].map(|word| conditions[0][word].as_str().unwrap_or_default().to_owned())
}

/// Proves STS-81.
#[test]
fn without_the_gate_recreate_is_rejected() {
    let why =
        "statefulset a/web uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled";
    let expected =
        format!("event Warning UnknownStrategy on StatefulSet a/web uid=u-web: {why}\nretry: {why}\n");
    assert_eq!(reconcile(cluster(recreating(set(2)), [old(0)])), expected);
    // Revisions are cleaned up all the same.
    let limited = with_field(recreating(up_to_date(0)), "/spec/revisionHistoryLimit", json!(0));
    assert!(reconcile(cluster(limited, [])).contains("delete controllerrevisions.apps a/web-1"));
}

/// Proves STS-82, STS-83.
#[test]
fn all_old_pods_are_deleted_before_new_ones_are_created() {
    let pods = || [unready(old(0)), pod(1), terminating(old(2)), old(5)];
    assert_eq!(
        pod_actions_by(&allowed(), cluster(recreating(set(3)), pods())),
        ["delete web-0", "delete web-5"]
    );
    let deleting = ["True", "RecreateInProgress", "Deleting old revision pods"];
    assert_eq!(written_condition(cluster(recreating(set(3)), pods())), deleting);
    // Nothing is created until the last old pod is deleted.
    let last = || [pod(1), terminating(old(2))];
    assert!(pod_actions_by(&allowed(), cluster(recreating(set(3)), last())).is_empty());
    assert_eq!(written_condition(cluster(recreating(set(3)), last())), deleting);
    let waiting = ["True", "RecreateInProgress", "Waiting for new-revision pods to be created"];
    assert_eq!(written_condition(cluster(recreating(set(3)), [])), waiting);
    assert_eq!(pod_actions_by(&allowed(), cluster(recreating(set(3)), [])), ["create web-0"]);
    // A failed deletion is reported by the retry.
    let failing = cluster(recreating(set(3)), pods());
    let mut failing = failing.failing::<Pod>("delete", &key("web-0"), api_error(ErrorReason::Forbidden));
    let transcript = failing.reconcile(&allowed(), web());
    assert!(
        !transcript.contains("Progressing") && is_retried_because(&transcript, "refused"),
        "{transcript}"
    );
}

/// Proves STS-84.
#[test]
fn completion_is_reported_if_progress_was() {
    let since = "2027-01-10T00:00:00Z";
    let condition = json!([{
        "type": "Progressing", "status": "True", "reason": "RecreateInProgress", "message": "x",
        "lastTransitionTime": since,
    }]);
    let begun = with_field(recreating(set(2)), "/status/conditions", condition.clone());
    let pods = || [pod(0), pod(1)];
    let done = ["False", "RecreateCompleted", "All pods recreated successfully"];
    assert_eq!(written_condition(cluster(begun.clone(), pods())), done);
    let unseen = with_field(recreating(up_to_date(2)), "/metadata/generation", json!(3));
    let never_begun = cluster(unseen, pods()).bodies(&allowed(), web(), "put statefulsets.apps/status ");
    assert_eq!(never_begun[0].1["status"]["conditions"], Value::Null);
    // lastTransitionTime is the time of the last change of status.
    let mut waiting = cluster(begun, [pod(0)]);
    let bodies = waiting.bodies(&allowed(), web(), "put statefulsets.apps/status ");
    assert_eq!(bodies[0].1["status"]["conditions"][0]["lastTransitionTime"], since);
    // Another strategy does not change an existing condition.
    let rolling = with_field(up_to_date(2), "/status/conditions", condition);
    assert_eq!(actions(cluster(rolling, pods())), "");
}
