//! Rolling updates, Recreate, pauses and the cleanup of old ReplicaSets.

use super::*;
use keleustes_plan::rehearsal::is_retried_because;

/// A pod of a ReplicaSet.
pub(super) fn pod(set: &str, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("{set}-pod"), "namespace": "a", "uid": format!("u-{set}-pod"), "labels": {"app": "web"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": format!("u-{set}"),
                "controller": true,
            }],
        },
        "status": {"phase": phase},
    })
}

fn deleted(cluster: RehearsalCluster) -> Vec<String> {
    let transcript = reconcile(cluster);
    let names = transcript.lines().filter_map(|line| line.strip_prefix("delete replicasets.apps a/"));
    names.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
}

/// Proves DEP-55, DEP-56, DEP-57, DEP-58, DEP-59.
#[test]
fn one_step_scales_up_the_new_or_scales_down_the_old_replica_sets() {
    for (olds, new_set, step) in [
        // One surge pod is possible; the old ReplicaSets wait.
        (old(3, 3), new(0, 0), ("new", 1)),
        // No surge is left: as many old pods are removed as may be unavailable.
        (old(3, 3), new(1, 0), ("old", 2)),
        (old(3, 3), new(1, 1), ("old", 1)),
        // Unavailable pods are removed first.
        (old(3, 2), new(1, 1), ("old", 1)),
        (old(1, 1), new(3, 3), ("old", 0)),
        // Larger than desired.
        (old(0, 0), new(5, 5), ("new", 3)),
    ] {
        let names = format!("{olds} {new_set}");
        assert_eq!(sizes(cluster(deployment(3), [olds, new_set])), sized(&[step]), "{names}");
    }
    let two = [set("older", "v0", 1, 1), old(2, 1), new(1, 1)];
    assert_eq!(sizes(cluster(deployment(3), two)), sized(&[("older", 0), ("old", 1)]));
}

/// Proves DEP-60.
#[test]
fn a_failed_step_is_retried() {
    let raced = cluster(deployment(3), [old(3, 3), new(1, 1)]);
    let raced =
        raced.failing::<ReplicaSet>("patch", &Key::namespaced("a", "old"), api_error(ErrorReason::Conflict));
    check(
        raced,
        "patch replicasets.apps a/old because the Deployment scales it down FAILED: refused\n\
         retry: patch replicasets.apps a/old because the Deployment scales it down: refused\n",
    );
}

#[test]
fn recreate_waits_for_the_pod_cache_and_rolling_update_does_not() {
    // Kinds that the loop starts without are not in the view.
    let mut begun = the_loop();
    begun.reads.retain(|kind| !begun.starts_without.contains(kind));
    let without_pods = |deployment: Value, sets: &[Value]| {
        let cluster = RehearsalCluster::of(&begun).with::<Deployment>(deployment);
        let mut cluster = sets.iter().cloned().fold(cluster, RehearsalCluster::with::<ReplicaSet>);
        cluster.outline(&the_loop(), web())
    };
    assert_eq!(
        without_pods(recreating(deployment(3)), &[old(0, 0)]),
        format!("{STATUS}requeue after 100ms\n")
    );
    let rolled = without_pods(deployment(3), &[old(3, 3), new(1, 1)]);
    assert!(rolled.starts_with("patch replicasets.apps a/old"), "{rolled}");
}

/// Proves DEP-63, DEP-64, DEP-65.
#[test]
fn recreate_deletes_all_old_pods_before_creating_new_ones() {
    let recreate = |sets: &[Value]| cluster(recreating(deployment(3)), sets.to_vec());
    let both = [set("older", "v0", 1, 1), old(3, 3)];
    check(
        recreate(&both),
        &format!(
            "patch replicasets.apps a/older because the Deployment scales it down\n\
             event Normal ScalingReplicaSet on Deployment a/web uid=u-web: Scaled down replica set older from 1 to 0\n\
             patch replicasets.apps a/old because the Deployment scales it down\n\
             event Normal ScalingReplicaSet on Deployment a/web uid=u-web: Scaled down replica set old from 3 to 0\n{STATUS}"
        ),
    );
    let still_there = with_field(old(0, 0), "/status/replicas", json!(1));
    check(recreate(&[still_there, new(0, 0)]), STATUS);
    // A pod without a phase has not been seen by its kubelet and may start at any moment.
    for phase in ["Running", "Pending", "Unknown", ""] {
        check(recreate(&[old(0, 0)]).with::<Pod>(pod("old", phase)), STATUS);
        check(recreate(&[old(0, 0)]).with::<Pod>(terminating(pod("old", phase))), STATUS);
    }
    for phase in ["Failed", "Succeeded"] {
        let ended = recreate(&[old(0, 0)]).with::<Pod>(pod("old", phase));
        assert!(reconcile(ended).starts_with("create replicasets.apps"), "{phase}");
    }
    let of_newest = recreate(&[old(0, 0), new(1, 1)]).with::<Pod>(pod("new", "Running"));
    assert_eq!(sizes(of_newest), sized(&[("new", 3)]));
}

/// Proves DEP-68, DEP-69, DEP-106.
#[test]
fn a_pause_and_a_resume_are_reported() {
    let progressing = |deployment: Value, reason: &str| {
        with_field(deployment, "/status/conditions/1", condition("Progressing", "True", reason, "m"))
    };
    let there = |deployment| cluster(deployment, [new(3, 3)]);
    let condition = written_condition(there(paused(complete(3))), "Progressing");
    assert_eq!(words(&condition), ["Unknown", "DeploymentPaused", "Deployment is paused"]);
    check(there(progressing(paused(complete(3)), "DeploymentPaused")), "");
    // The progress deadline restarts.
    let mut resumed = progressing(complete(3), "DeploymentPaused");
    resumed["status"]["updatedReplicas"] = json!(2);
    let unready = || cluster(resumed.clone(), [new(3, 2), old(0, 0)]);
    let condition = written_condition(unready(), "Progressing");
    assert_eq!(condition["lastUpdateTime"], "2027-01-15T08:00:00Z");
    resumed["status"]["updatedReplicas"] = json!(3);
    let condition = written_condition(cluster(resumed, [new(3, 2), old(0, 0)]), "Progressing");
    assert_eq!(words(&condition), ["Unknown", "DeploymentResumed", "Deployment is resumed"]);
    check(there(progressing(paused(complete(3)), "ProgressDeadlineExceeded")), "");
    let endless = with_field(paused(complete(3)), "/spec/progressDeadlineSeconds", Value::Null);
    check(there(endless), "");
    // The deadline is not checked meanwhile.
    let late = progressing(paused(complete(3)), "DeploymentPaused");
    assert_eq!(written_condition(cluster(late, [new(3, 0)]), "Progressing")["reason"], "DeploymentPaused");
}

/// Proves DEP-70.
#[test]
fn a_paused_deployment_is_scaled_and_cleaned_up_but_not_rolled_out() {
    let mut held = paused(with_field(complete(3), "/spec/revisionHistoryLimit", json!(0)));
    held["spec"]["template"] = template("v3");
    let there = |held: &Value| reconcile(cluster(held.clone(), [new(3, 3), old(0, 0)]));
    assert!(!there(&held).contains("create"));
    assert!(there(&held).contains("delete replicasets.apps a/old"));
    held["metadata"]["annotations"][annotations::ROLLBACK_TO] = json!("1");
    assert!(!there(&held).contains("delete"));
}

/// Proves DEP-62, DEP-80, DEP-81, DEP-93, DEP-112, DEP-113.
#[test]
fn old_replica_sets_beyond_the_history_limit_are_deleted_when_complete() {
    let limited = |limit: Value| with_field(complete(3), "/spec/revisionHistoryLimit", limit);
    let olds = |oldest: Value| [oldest, old(0, 0), new(3, 3)];
    let older = || set("older", "v0", 0, 0);
    let left = |limit: Value, oldest: Value| deleted(cluster(limited(limit), olds(oldest)));
    assert_eq!(left(json!(0), older()), ["older", "old"]);
    assert_eq!(left(json!(1), older()), ["older"]);
    assert_eq!(left(json!(2), older()), [""; 0]);
    assert_eq!(left(Value::Null, older()), [""; 0]);
    assert_eq!(left(json!(i32::MAX), older()), [""; 0]);
    // By revision, whatever their age.
    let renumbered =
        with_field(older(), "/metadata/annotations/deployment.kubernetes.io~1revision", json!("1"));
    let renumbered = with_field(renumbered, "/metadata/creationTimestamp", json!("2027-01-02T12:00:00Z"));
    assert_eq!(left(json!(1), renumbered), ["old"]);
    // Next to a revision that is not a number, by age: `old` is younger, so `older` is deleted.
    let odd =
        |set: Value| with_field(set, "/metadata/annotations/deployment.kubernetes.io~1revision", json!("x"));
    let high = with_field(older(), "/metadata/annotations/deployment.kubernetes.io~1revision", json!("9"));
    assert_eq!(deleted(cluster(limited(json!(1)), [high, odd(old(0, 0)), new(3, 3)])), ["older"]);
    // A ReplicaSet that has pods or an unobserved generation stays, and none is deleted in its place.
    assert_eq!(left(json!(1), with_field(older(), "/status/replicas", json!(1))), [""; 0]);
    assert_eq!(left(json!(1), with_field(older(), "/metadata/generation", json!(2))), [""; 0]);
    assert_eq!(left(json!(1), terminating(older())), [""; 0]);
    // Terminating pods do not matter.
    assert_eq!(left(json!(1), with_field(older(), "/status/terminatingReplicas", json!(1))), ["older"]);
    // Not before the status reports completion, and not in a reconcile that resizes anything.
    let early = with_field(limited(json!(0)), "/status/updatedReplicas", json!(2));
    assert_eq!(deleted(cluster(early, olds(older()))), [""; 0]);
    assert_eq!(deleted(cluster(limited(json!(0)), [older(), old(1, 1), new(3, 3)])), [""; 0]);
    let gone = |reason| {
        let cluster = cluster(limited(json!(0)), olds(older()));
        reconcile(cluster.failing::<ReplicaSet>("delete", &Key::namespaced("a", "older"), api_error(reason)))
    };
    assert!(gone(ErrorReason::NotFound).contains("delete replicasets.apps a/old "));
    assert!(is_retried_because(&gone(ErrorReason::Forbidden), "refused"));
}
