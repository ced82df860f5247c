//! All at once, if a gate allows it.

use super::*;

fn recreating(set: Value) -> Value {
    with_field(set, "/spec/updateStrategy", json!({"type": "Recreate"}))
}

fn allowed() -> Loop {
    loop_of(&StatefulSetOptions { allow_recreate_strategy: true, ..StatefulSetOptions::default() })
}

/// The condition that a turn tells, in three words.
fn written_condition(mut cluster: RehearsalCluster) -> [String; 3] {
    let bodies = cluster.bodies(&allowed(), web(), "put statefulsets.apps/status ");
    let conditions = &bodies[0].1["status"]["conditions"];
    assert_eq!(conditions[0]["type"], "Progressing");
    ["status", "reason", "message"].map(|word| conditions[0][word].as_str().unwrap_or_default().to_owned())
}

/// Proves STS-81.
#[test]
fn with_the_gate_off_it_is_refused() {
    let why =
        "statefulset a/web uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled";
    let expected = format!("event Warning UnknownStrategy: {why}\nretry: {why}\n");
    assert_eq!(reconcile(cluster(recreating(set(2)), [old(0)])), expected);
    // History is kept all the same.
    let limited = with_field(recreating(up_to_date(0)), "/spec/revisionHistoryLimit", json!(0));
    assert!(reconcile(cluster(limited, [])).contains("delete controllerrevisions.apps a/web-1"));
}

/// Proves STS-82, STS-83.
#[test]
fn all_old_pods_go_before_any_new_one_comes() {
    let pods = || [unready(old(0)), pod(1), terminating(old(2)), old(5)];
    assert_eq!(
        pod_actions_by(&allowed(), cluster(recreating(set(3)), pods())),
        ["delete web-0", "delete web-5"]
    );
    let deleting = ["True", "RecreateInProgress", "Deleting old revision pods"];
    assert_eq!(written_condition(cluster(recreating(set(3)), pods())), deleting);
    // Until the last one is gone nothing comes.
    let last = || [pod(1), terminating(old(2))];
    assert!(pod_actions_by(&allowed(), cluster(recreating(set(3)), last())).is_empty());
    assert_eq!(written_condition(cluster(recreating(set(3)), last())), deleting);
    let waiting = ["True", "RecreateInProgress", "Waiting for new-revision pods to be created"];
    assert_eq!(written_condition(cluster(recreating(set(3)), [])), waiting);
    assert_eq!(pod_actions_by(&allowed(), cluster(recreating(set(3)), [])), ["create web-0"]);
    // A failure is told of by the retry.
    let failing = cluster(recreating(set(3)), pods());
    let mut failing = failing.failing::<Pod>("delete", &key("web-0"), api_error(ErrorReason::Forbidden));
    let transcript = failing.reconcile(&allowed(), web());
    assert!(!transcript.contains("Progressing") && transcript.ends_with("retry: refused\n"), "{transcript}");
}

/// Proves STS-84.
#[test]
fn the_end_is_told_if_the_beginning_was() {
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
    // The moment is that of the last change of status.
    let mut waiting = cluster(begun, [pod(0)]);
    let bodies = waiting.bodies(&allowed(), web(), "put statefulsets.apps/status ");
    assert_eq!(bodies[0].1["status"]["conditions"][0]["lastTransitionTime"], since);
    // Another strategy does not touch what there is.
    let rolling = with_field(up_to_date(2), "/status/conditions", condition);
    assert_eq!(actions(cluster(rolling, pods())), "");
}
