//! The order in which pods are created and deleted.

use super::*;
use keleustes_plan::rehearsal::is_retried_because;

const CREATED: &str = "create pods a/web-0 because the StatefulSet has no pod with this ordinal\n\
                    event Normal SuccessfulCreate on StatefulSet a/web uid=u-web: Create Pod web-0 in StatefulSet web successful\n";

/// Proves STS-16, STS-98.
#[test]
fn pods_then_status_then_revisions_are_written() {
    let limited = with_field(set(2), "/spec/revisionHistoryLimit", json!(0));
    let limited = with_field(limited, "/status/currentRevision", json!("web-2"));
    const DELETED_REVISION: &str =
        "delete controllerrevisions.apps a/web-1 because it exceeds revisionHistoryLimit";
    assert_eq!(reconcile(cluster(limited.clone(), [])), format!("{CREATED}{MAX}{DELETED_REVISION}\n"));
    // Revisions are cleaned up after a failure as well.
    let cluster =
        cluster(limited, []).failing::<Pod>("create", &key("web-0"), api_error(ErrorReason::Forbidden));
    assert_eq!(
        reconcile(cluster),
        format!(
            "create pods a/web-0 because the StatefulSet has no pod with this ordinal FAILED: refused\n\
             event Warning FailedCreate on StatefulSet a/web uid=u-web: Create Pod web-0 in StatefulSet web failed error: refused\n\
             {MAX}{DELETED_REVISION}\n\
             retry: create pods a/web-0 because the StatefulSet has no pod with this ordinal: refused\n"
        )
    );
}

/// Proves STS-17, STS-99.
#[test]
fn the_status_is_written_even_if_a_pod_write_failed() {
    let failing = |cluster: RehearsalCluster| {
        cluster.failing::<Pod>("create", &key("web-1"), api_error(ErrorReason::Forbidden))
    };
    let transcript = reconcile(failing(cluster(set(2), [pod(0)])));
    assert!(transcript.contains(STATUS) && is_retried_because(&transcript, "refused"), "{transcript}");
    let why = ApiError::transport(ErrorReason::Other, "deaf");
    let both = failing(cluster(set(2), [pod(0)])).failing::<StatefulSet>("update", &web(), why.clone());
    assert!(is_retried_because(&reconcile(both), "refused"), "the error of the pod write takes precedence");
    let only_deaf = cluster(set(1), [pod(0)]).failing::<StatefulSet>("update", &web(), why);
    assert!(is_retried_because(&reconcile(only_deaf), "deaf"));
}

/// Proves STS-18, STS-48.
#[test]
fn a_pod_that_already_exists_records_no_event() {
    let unseen =
        cluster(set(1), []).failing::<Pod>("create", &key("web-0"), api_error(ErrorReason::AlreadyExists));
    let transcript = reconcile(unseen);
    assert!(!transcript.contains("event") && is_retried_because(&transcript, "refused"), "{transcript}");
    // Its claims are not changed then; after any other error they are.
    let refusing = |reason| {
        let set = with_claim_template(with_retention_policy(set(1), "Retain", "Delete"));
        let cluster = with_claims(cluster(set, []), [claim(0, &[])]);
        actions(cluster.failing::<Pod>("create", &key("web-0"), api_error(reason)))
    };
    assert!(!refusing(ErrorReason::AlreadyExists).contains("edit persistentvolumeclaims a/data-web-0"));
    assert!(refusing(ErrorReason::Forbidden).contains("edit persistentvolumeclaims a/data-web-0"));
}

/// Proves STS-20, STS-40, STS-42, STS-43, STS-50.
#[test]
fn in_order_each_pod_waits_for_the_previous_one() {
    assert_eq!(pod_actions(cluster(set(3), [])), ["create web-0"]);
    assert_eq!(pod_actions(cluster(set(3), [pod(0)])), ["create web-1"]);
    for waiting in
        [with_phase("Pending", pod(0)), unready(pod(0)), with_phase("Unknown", pod(0)), terminating(pod(0))]
    {
        assert!(pod_actions(cluster(set(3), [waiting, old(4)])).is_empty(), "nothing is deleted either");
    }
    let patient = with_field(set(3), "/spec/minReadySeconds", json!(5));
    assert!(pod_actions(cluster(patient.clone(), [recently_ready(pod(0))])).is_empty());
    assert_eq!(pod_actions(cluster(patient, [pod(0)])), ["create web-1"]);
    let from_five = with_field(set(2), "/spec/ordinals", json!({"start": 5}));
    assert_eq!(pod_actions(cluster(from_five.clone(), [])), ["create web-5"]);
    assert_eq!(pod_actions(cluster(from_five, [pod(5), pod(6)])), Vec::<String>::new());
    let last = with_field(set(1), "/spec/ordinals", json!({"start": i32::MAX}));
    assert_eq!(pod_actions(cluster(last.clone(), [])), ["create web-2147483647"]);
    assert!(pod_actions(cluster(last, [pod(i32::MAX)])).is_empty());
}

/// Proves STS-53, STS-54.
#[test]
fn scale_down_deletes_from_the_highest_ordinal_one_at_a_time() {
    assert_eq!(pod_actions(cluster(set(1), [pod(0), pod(1), pod(2)])), ["delete web-2"]);
    assert!(pod_actions(cluster(set(1), [pod(0), pod(1), terminating(pod(2))])).is_empty(), "one at a time");
    assert!(pod_actions(cluster(set(1), [unready(pod(0)), pod(1)])).is_empty(), "pods in range come first");
    // An unhealthy pod is deleted only if none below it is unhealthy.
    assert_eq!(pod_actions(cluster(set(1), [pod(0), pod(1), unready(pod(2))])), ["delete web-2"]);
    assert!(pod_actions(cluster(set(1), [pod(0), unready(pod(1)), unready(pod(2))])).is_empty());
    assert_eq!(pod_actions(cluster(set(1), [pod(0), unready(pod(1)), pod(2)])), ["delete web-2"]);
    let patient = with_field(set(1), "/spec/minReadySeconds", json!(5));
    assert!(
        pod_actions(cluster(patient.clone(), [pod(0), recently_ready(pod(1)), recently_ready(pod(2))]))
            .is_empty()
    );
    assert_eq!(pod_actions(cluster(patient, [pod(0), pod(1), recently_ready(pod(2))])), ["delete web-2"]);
}

/// A user may ask for two billion replicas; the manager must survive it.
#[test]
fn any_number_of_replicas_is_created_a_thousand_pods_at_a_time() {
    let huge = || with_claim_template(parallel(set(i32::MAX)));
    let transcript = reconcile(cluster(huge(), [pod(1), old(3)]));
    assert_eq!(transcript.matches("create pods a/web-").count(), 1000);
    assert!(transcript.contains("create pods a/web-0 ") && transcript.contains("create pods a/web-1001 "));
    assert!(!transcript.contains("delete pods"), "outdated pods wait until none is missing");
    assert!(transcript.contains("requeue after 1s"), "{transcript}");
    assert_eq!(transcript.matches("create persistentvolumeclaims a/data-web-").count(), 1002);
    // In order one missing pod is created at a time, and its event enqueues the StatefulSet.
    let ordered = reconcile(cluster(with_claim_template(set(i32::MAX)), []));
    assert_eq!(ordered.matches("create pods a/web-").count(), 1);
    assert!(!ordered.contains("requeue after"), "{ordered}");
    // Nor does anything limit the number of claim templates, each of which is a claim per pod.
    let templates: Vec<_> = (0..1000).map(|n| json!({"metadata": {"name": format!("data-{n}")}})).collect();
    let many = with_field(parallel(set(i32::MAX)), "/spec/volumeClaimTemplates", json!(templates));
    let transcript = reconcile(cluster(many, []));
    assert_eq!(transcript.matches("create pods a/web-").count(), 10);
    assert!(transcript.contains("requeue after 1s"));
    // The range of ordinals ends at 32 bits.
    let last = with_field(parallel(set(i32::MAX)), "/spec/ordinals", json!({"start": i32::MAX - 1}));
    let created = pod_actions(cluster(last, []));
    assert_eq!(created, ["create web-2147483646", "create web-2147483647"]);
}

/// Proves STS-41, STS-55.
#[test]
fn in_parallel_all_pods_are_created_and_deleted_at_once() {
    let created = pod_actions(cluster(parallel(set(3)), []));
    assert_eq!(created, ["create web-0", "create web-1", "create web-2"]);
    let pods = || [unready(pod(0)), pod(1), unready(pod(4)), terminating(pod(3))];
    assert_eq!(pod_actions(cluster(parallel(set(3)), pods())), ["create web-2", "delete web-4"]);
    // No batch follows one with a failure, and pods out of range wait.
    let cluster = cluster(parallel(set(7)), [pod(9)]);
    let cluster = cluster.failing::<Pod>("create", &key("web-1"), api_error(ErrorReason::Forbidden));
    assert_eq!(pod_actions(cluster), ["create web-0", "create web-1", "create web-2"]);
    let sizes: Vec<_> = (replicas::batches(&[(); 2000])).into_iter().map(<[()]>::len).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500, 489]);
}

/// Proves STS-45, STS-117.
#[test]
fn terminal_pods_are_deleted_and_recreated_later() {
    for ended in ["Failed", "Succeeded"] {
        for set in [
            set(2),
            parallel(set(2)),
            with_field(set(2), "/spec/updateStrategy", json!({"type": "OnDelete"})),
        ] {
            let pod_actions = pod_actions(cluster(set, [with_phase(ended, pod(0)), pod(1)]));
            assert_eq!(pod_actions, ["delete web-0"]);
        }
        assert!(pod_actions(cluster(set(2), [terminating(with_phase(ended, pod(0)))])).is_empty());
    }
    // Below the partition the pod is recreated from the current revision.
    let parted = with_field(set(2), "/spec/updateStrategy/rollingUpdate/partition", json!(2));
    assert_eq!(
        pod_actions(cluster(parted.clone(), [with_phase("Failed", old(0)), old(1)])),
        ["delete web-0"]
    );
    let created = body(cluster(parted, [old(1)]), "create pods ");
    assert_eq!(created["metadata"]["labels"]["controller-revision-hash"], "web-1");
    assert_eq!(created["spec"]["containers"][0]["image"], "v1");
}

/// Proves STS-44, STS-80, STS-109, STS-110.
#[test]
fn the_partition_determines_the_revision_of_a_new_pod() {
    let created = |set: Value, pods: Vec<Value>| {
        let pod = body(cluster(set, pods), "create pods ");
        let revision = pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap().to_owned();
        (revision, pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned())
    };
    let (current, update) = (("web-1".to_owned(), "v1".to_owned()), ("web-2".to_owned(), "v2".to_owned()));
    let parted = |at: i32| with_field(set(3), "/spec/updateStrategy/rollingUpdate/partition", json!(at));
    assert_eq!(created(parted(0), vec![]), update);
    assert_eq!(created(parted(1), vec![]), current);
    assert_eq!(created(parted(1), vec![old(0)]), update);
    assert_eq!(created(parted(9), vec![old(0), old(1)]), current);
    // The partition counts from the first ordinal.
    let shifted = with_field(parted(1), "/spec/ordinals", json!({"start": 5}));
    assert_eq!(created(shifted.clone(), vec![]), current);
    assert_eq!(created(shifted, vec![old(5)]), update);
    // Without a partition as many pods as `status.currentReplicas` use the current revision.
    let silent = with_field(set(3), "/spec/updateStrategy", json!({"type": "RollingUpdate"}));
    let silent = with_field(silent, "/status/currentReplicas", json!(1));
    assert_eq!(created(silent.clone(), vec![]), current);
    assert_eq!(created(silent, vec![old(0)]), update);
    let by_hand = with_field(set(3), "/spec/updateStrategy", json!({"type": "OnDelete"}));
    assert_eq!(created(with_field(by_hand, "/status/currentReplicas", json!(3)), vec![]), update);
    // If the current revision does not exist, the update revision is used.
    assert_eq!(created(with_field(parted(3), "/status/currentRevision", json!("web-0")), vec![]), update);
    // With a partition at or above the replicas nothing is replaced.
    let all_kept = with_field(parted(3), "/status/currentReplicas", json!(3));
    assert!(pod_actions(cluster(all_kept.clone(), [old(0), old(1), old(2)])).is_empty());
    let written = status(cluster(all_kept, [old(0), old(1), old(2)]));
    assert_eq!((&written["currentRevision"], &written["updateRevision"]), (&json!("web-1"), &json!("web-2")));
}

/// Proves STS-113, STS-114, STS-116.
#[test]
fn the_first_ordinal_may_change() {
    let from_two = with_field(set(2), "/spec/ordinals", json!({"start": 2}));
    assert_eq!(
        pod_actions(cluster(from_two.clone(), [pod(0), pod(1)])),
        ["create web-2"],
        "missing pods are created first"
    );
    assert_eq!(pod_actions(cluster(from_two, [pod(0), pod(1), pod(2), pod(3)])), ["delete web-1"]);
    // A terminating pod keeps its ordinal, and counts.
    let terminating_owner = terminating(with_field(pod(1), "/metadata/finalizers", json!(["x/y"])));
    for set in [set(2), parallel(set(2))] {
        assert!(pod_actions(cluster(set.clone(), [pod(0), terminating_owner.clone()])).is_empty());
        assert_eq!(status(cluster(set, [pod(0), terminating_owner.clone()]))["replicas"], 2);
    }
}
