//! In which order pods come and go.

use super::*;

const MADE: &str = "create pods a/web-0 because the set has no pod of this number\n\
                    event Normal SuccessfulCreate: Create Pod web-0 in StatefulSet web successful\n";

/// Proves STS-16, STS-98.
#[test]
fn claims_then_pods_then_the_status_then_history() {
    let limited = with_field(set(2), "/spec/revisionHistoryLimit", json!(0));
    let limited = with_field(limited, "/status/currentRevision", json!("web-2"));
    const GONE: &str =
        "delete controllerrevisions.apps a/web-1 because it is older than the history that is kept";
    assert_eq!(reconcile(cluster(limited.clone(), [])), format!("{MADE}{MAX}{GONE}\n"));
    // History is kept short also after a failure.
    let cluster =
        cluster(limited, []).failing::<Pod>("create", &key("web-0"), api_error(ErrorReason::Forbidden));
    assert_eq!(
        reconcile(cluster),
        format!(
            "create pods a/web-0 because the set has no pod of this number FAILED: refused\n\
             event Warning FailedCreate: Create Pod web-0 in StatefulSet web failed error: refused\n\
             {MAX}{GONE}\nretry: refused\n"
        )
    );
}

/// Proves STS-17, STS-99.
#[test]
fn what_is_known_is_told_even_if_something_failed() {
    let failing = |cluster: RehearsalCluster| {
        cluster.failing::<Pod>("create", &key("web-1"), api_error(ErrorReason::Forbidden))
    };
    let transcript = reconcile(failing(cluster(set(2), [pod(0)])));
    assert!(transcript.contains(STATUS) && transcript.ends_with("retry: refused\n"), "{transcript}");
    let why = ApiError::transport(ErrorReason::Other, "deaf");
    let both = failing(cluster(set(2), [pod(0)])).failing::<StatefulSet>("update", &web(), why.clone());
    assert!(reconcile(both).ends_with("FAILED: deaf\nretry: refused\n"), "what was not done matters more");
    let only_deaf = cluster(set(1), [pod(0)]).failing::<StatefulSet>("update", &web(), why);
    assert!(reconcile(only_deaf).ends_with("FAILED: deaf\nretry: deaf\n"));
}

/// Proves STS-18, STS-48.
#[test]
fn a_pod_that_is_there_unseen_is_no_news_to_people() {
    let unseen =
        cluster(set(1), []).failing::<Pod>("create", &key("web-0"), api_error(ErrorReason::AlreadyExists));
    let transcript = reconcile(unseen);
    assert!(!transcript.contains("event") && transcript.ends_with("retry: refused\n"), "{transcript}");
    // Its claims are left alone then; after any other refusal they are not.
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
fn one_after_another_each_waits_for_the_one_before() {
    assert_eq!(pod_actions(cluster(set(3), [])), ["create web-0"]);
    assert_eq!(pod_actions(cluster(set(3), [pod(0)])), ["create web-1"]);
    for waiting in
        [with_phase("Pending", pod(0)), unready(pod(0)), with_phase("Unknown", pod(0)), terminating(pod(0))]
    {
        assert!(pod_actions(cluster(set(3), [waiting, old(4)])).is_empty(), "nor does any go");
    }
    let patient = with_field(set(3), "/spec/minReadySeconds", json!(5));
    assert!(pod_actions(cluster(patient.clone(), [recently_ready(pod(0))])).is_empty());
    assert_eq!(pod_actions(cluster(patient, [pod(0)])), ["create web-1"]);
    let from_five = with_field(set(2), "/spec/ordinals", json!({"start": 5}));
    assert_eq!(pod_actions(cluster(from_five.clone(), [])), ["create web-5"]);
    assert_eq!(pod_actions(cluster(from_five, [pod(5), pod(6)])), Vec::<String>::new());
}

/// Proves STS-53, STS-54.
#[test]
fn from_the_top_down_one_at_a_time() {
    assert_eq!(pod_actions(cluster(set(1), [pod(0), pod(1), pod(2)])), ["delete web-2"]);
    assert!(pod_actions(cluster(set(1), [pod(0), pod(1), terminating(pod(2))])).is_empty(), "one at a time");
    assert!(pod_actions(cluster(set(1), [unready(pod(0)), pod(1)])).is_empty(), "those that stay come first");
    // One that is not well goes only if none below is unwell.
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

/// Proves STS-41, STS-55.
#[test]
fn in_parallel_all_come_and_go_at_once() {
    let made = pod_actions(cluster(parallel(set(3)), []));
    assert_eq!(made, ["create web-0", "create web-1", "create web-2"]);
    let pods = || [unready(pod(0)), pod(1), unready(pod(4)), terminating(pod(3))];
    assert_eq!(pod_actions(cluster(parallel(set(3)), pods())), ["create web-2", "delete web-4"]);
    // The first batch with a failure is the last, and pods out of range wait.
    let cluster = cluster(parallel(set(7)), [pod(9)]);
    let cluster = cluster.failing::<Pod>("create", &key("web-1"), api_error(ErrorReason::Forbidden));
    assert_eq!(pod_actions(cluster), ["create web-0", "create web-1", "create web-2"]);
    let sizes: Vec<_> = (replicas::batches(&[(); 2000])).into_iter().map(<[()]>::len).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500, 489]);
}

/// Proves STS-45, STS-117.
#[test]
fn what_has_ended_is_deleted_and_made_anew_later() {
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
    // Below the partition the next one is of the current revision.
    let parted = with_field(set(2), "/spec/updateStrategy/rollingUpdate/partition", json!(2));
    assert_eq!(
        pod_actions(cluster(parted.clone(), [with_phase("Failed", old(0)), old(1)])),
        ["delete web-0"]
    );
    let made = body(cluster(parted, [old(1)]), "create pods ");
    assert_eq!(made["metadata"]["labels"]["controller-revision-hash"], "web-1");
    assert_eq!(made["spec"]["containers"][0]["image"], "v1");
}

/// Proves STS-44, STS-80, STS-109, STS-110.
#[test]
fn the_partition_says_which_revision_a_new_pod_is_of() {
    let made = |set: Value, pods: Vec<Value>| {
        let pod = body(cluster(set, pods), "create pods ");
        let revision = pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap().to_owned();
        (revision, pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned())
    };
    let (current, update) = (("web-1".to_owned(), "v1".to_owned()), ("web-2".to_owned(), "v2".to_owned()));
    let parted = |at: i32| with_field(set(3), "/spec/updateStrategy/rollingUpdate/partition", json!(at));
    assert_eq!(made(parted(0), vec![]), update);
    assert_eq!(made(parted(1), vec![]), current);
    assert_eq!(made(parted(1), vec![old(0)]), update);
    assert_eq!(made(parted(9), vec![old(0), old(1)]), current);
    // A partition counts from the first number.
    let shifted = with_field(parted(1), "/spec/ordinals", json!({"start": 5}));
    assert_eq!(made(shifted.clone(), vec![]), current);
    assert_eq!(made(shifted, vec![old(5)]), update);
    // Without a word about it as many as the status says are current.
    let silent = with_field(set(3), "/spec/updateStrategy", json!({"type": "RollingUpdate"}));
    let silent = with_field(silent, "/status/currentReplicas", json!(1));
    assert_eq!(made(silent.clone(), vec![]), current);
    assert_eq!(made(silent, vec![old(0)]), update);
    let by_hand = with_field(set(3), "/spec/updateStrategy", json!({"type": "OnDelete"}));
    assert_eq!(made(with_field(by_hand, "/status/currentReplicas", json!(3)), vec![]), update);
    // A current revision that is gone is the wanted one.
    assert_eq!(made(with_field(parted(3), "/status/currentRevision", json!("web-0")), vec![]), update);
    // Nothing at or above the replicas moves.
    let all_kept = with_field(parted(3), "/status/currentReplicas", json!(3));
    assert!(pod_actions(cluster(all_kept.clone(), [old(0), old(1), old(2)])).is_empty());
    let written = status(cluster(all_kept, [old(0), old(1), old(2)]));
    assert_eq!((&written["currentRevision"], &written["updateRevision"]), (&json!("web-1"), &json!("web-2")));
}

/// Proves STS-113, STS-114, STS-116.
#[test]
fn numbers_may_shift_and_come_back() {
    let from_two = with_field(set(2), "/spec/ordinals", json!({"start": 2}));
    assert_eq!(
        pod_actions(cluster(from_two.clone(), [pod(0), pod(1)])),
        ["create web-2"],
        "new ones come first"
    );
    assert_eq!(pod_actions(cluster(from_two, [pod(0), pod(1), pod(2), pod(3)])), ["delete web-1"]);
    // A pod that still goes keeps its number, and counts.
    let terminating_owner = terminating(with_field(pod(1), "/metadata/finalizers", json!(["x/y"])));
    for set in [set(2), parallel(set(2))] {
        assert!(pod_actions(cluster(set.clone(), [pod(0), terminating_owner.clone()])).is_empty());
        assert_eq!(status(cluster(set, [pod(0), terminating_owner.clone()]))["replicas"], 2);
    }
}
