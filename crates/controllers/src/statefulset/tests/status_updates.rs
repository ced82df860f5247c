//! The status, and when it is written.

use keleustes_objects::Kind as _;
use keleustes_plan::rehearsal::is_retried_because;
use std::time::Duration;

use keleustes_plan::StatusUrgency;
use proptest::prelude::*;

use super::*;

/// Proves STS-85, STS-86, STS-87.
#[test]
fn pods_are_counted_by_phase_readiness_and_revision() {
    let pods = [
        pod(0),
        old(1),
        terminating(pod(2)),
        with_phase("Pending", old(3)),
        unready(pod(4)),
        recently_ready(pod(5)),
        // Out of range, and counted all the same.
        old(9),
        // A Ready condition in another phase than Running does not count.
        with_phase("Unknown", pod(6)),
        // Without a phase yet.
        with_phase("", pod(7)),
    ];
    let patient = parallel(with_field(set(8), "/spec/minReadySeconds", json!(5)));
    let patient = with_field(patient, "/spec/updateStrategy", json!({"type": "OnDelete"}));
    let written = status(cluster(patient, pods));
    let count = |name: &str| written[name].as_i64().unwrap();
    assert_eq!(count("replicas"), 8);
    assert_eq!(count("readyReplicas"), 5, "0, 1, 2, 5 and 9");
    assert_eq!(count("availableReplicas"), 4, "5 is not available yet");
    assert_eq!(count("currentReplicas"), 3, "1, 3 and 9");
    assert_eq!(count("updatedReplicas"), 4, "0, 4, 5 and 6");
    // Pods created in the same reconcile do not count; with one revision current and updated are equal.
    let one = with_field(set(2), "/status/currentRevision", json!("web-2"));
    let written = status(cluster(one, [pod(0)]));
    assert_eq!(
        (&written["replicas"], &written["currentReplicas"], &written["updatedReplicas"]),
        (&json!(1), &json!(1), &json!(1))
    );
}

/// Proves STS-88, REV-58.
#[test]
fn other_status_fields_are_kept() {
    let mut before = with_field(set(1), "/metadata/generation", json!(4));
    before["status"]["collisionCount"] = json!(3);
    before["status"]["conditions"] = json!([{"type": "Odd", "status": "True"}]);
    before["status"]["future"] = json!({"a": 1});
    let written = status(cluster(before, [old(0)]));
    assert_eq!(
        written,
        json!({
            "observedGeneration": 4, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "currentReplicas": 0, "updatedReplicas": 0, "currentRevision": "web-1", "updateRevision": "web-2",
            "collisionCount": 3, "conditions": [{"type": "Odd", "status": "True"}], "future": {"a": 1},
        })
    );
    let uncounted = with_field(set(1), "/status/collisionCount", Value::Null);
    assert_eq!(status(cluster(uncounted, [pod(0)]))["collisionCount"], 0);
}

/// Proves STS-89.
#[test]
fn only_a_changed_status_is_written() {
    let writes_status = |set: Value, pods: Vec<Value>| reconcile(cluster(set, pods)).contains(STATUS);
    assert!(!writes_status(up_to_date(2), vec![pod(0), pod(1)]));
    assert!(writes_status(with_field(up_to_date(2), "/metadata/generation", json!(3)), vec![pod(0), pod(1)]));
    for count in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert!(
            writes_status(
                with_field(up_to_date(2), &format!("/status/{count}"), json!(9)),
                vec![pod(0), pod(1)]
            ),
            "{count}"
        );
    }
    for revision in ["currentRevision", "updateRevision"] {
        assert!(writes_status(
            with_field(up_to_date(2), &format!("/status/{revision}"), json!("x")),
            vec![pod(0), pod(1)]
        ));
    }
    // A changed collision count alone is not written.
    let uncounted = with_field(up_to_date(2), "/status/collisionCount", Value::Null);
    assert!(!writes_status(uncounted, vec![pod(0), pod(1)]));
}

/// Proves STS-90.
#[test]
fn a_status_write_is_tried_five_times_after_conflicts_and_once_after_other_errors() {
    let attempts = |reason, times| {
        let path = StatefulSet::RESOURCE.object_path(&web());
        let cluster = cluster(set(1), [pod(0)]).failing_at("update", &path, api_error(reason), times);
        let transcript = reconcile(cluster);
        let put = STATUS.trim_end();
        let count = transcript.lines().filter(|line| line.starts_with(put)).count();
        (
            count,
            transcript.matches("get statefulsets.apps a/web").count(),
            is_retried_because(&transcript, "refused"),
        )
    };
    assert_eq!(attempts(ErrorReason::Conflict, Some(1)), (2, 1, false));
    assert_eq!(attempts(ErrorReason::Conflict, Some(4)), (5, 4, false));
    assert_eq!(attempts(ErrorReason::Conflict, None), (5, 4, true));
    assert_eq!(attempts(ErrorReason::Unavailable, Some(1)), (1, 0, true));
}

/// Proves STS-91, STS-121.
#[test]
fn the_key_is_requeued_when_a_pod_becomes_available() {
    let patient = || with_field(parallel(set(2)), "/spec/minReadySeconds", json!(5));
    let last = |cluster: RehearsalCluster| reconcile(cluster).lines().last().unwrap_or_default().to_owned();
    assert_eq!(last(cluster(patient(), [recently_ready(pod(0)), pod(1)])), "requeue after 2s");
    // By this process's clock: a kubelet whose clock is ahead delays it.
    let ahead = with_field(pod(0), "/status/conditions/0/lastTransitionTime", json!("2027-01-15T08:01:00Z"));
    assert_eq!(last(cluster(patient(), [ahead, pod(1)])), "requeue after 65s");
    let silent = with_field(pod(0), "/status/conditions/0/lastTransitionTime", Value::Null);
    assert_eq!(last(cluster(patient(), [silent, pod(1)])), "requeue after 5s");
    let later =
        cluster(patient(), [recently_ready(pod(0)), pod(1)]).with_clock_advanced(Duration::from_secs(2));
    assert!(!last(later).starts_with("requeue"));
    assert!(!last(cluster(parallel(set(2)), [recently_ready(pod(0)), pod(1)])).starts_with("requeue"));
    assert!(!last(cluster(patient(), [unready(pod(0)), pod(1)])).starts_with("requeue"));
}

/// Proves STS-92, STS-103, STS-104.
#[test]
fn max_unavailable_and_unavailable_replicas_are_measured() {
    let lines = |set: Value, pods: Vec<Value>| {
        let transcript = reconcile(cluster(set, pods));
        let measured =
            transcript.lines().filter_map(|line| line.strip_prefix("measure statefulset_controller_"));
        measured.map(str::to_owned).collect::<Vec<_>>()
    };
    let max = "statefulset_max_unavailable{a,web,OrderedReady} 1";
    assert_eq!(
        lines(up_to_date(1), vec![pod(0)]),
        ["statefulset_unavailable_replicas{a,web,OrderedReady} 0", max]
    );
    // Without a replacement the unavailable replicas are not measured.
    assert_eq!(lines(up_to_date(1), vec![unready(pod(0))]), [max]);
    assert_eq!(lines(terminating(up_to_date(1)), vec![pod(0)]), [max]);
    let by_hand = with_field(up_to_date(1), "/spec/updateStrategy", json!({"type": "OnDelete"}));
    assert_eq!(lines(by_hand, vec![pod(0)]), [max]);
    let most = with_field(
        parallel(up_to_date(4)),
        "/spec/updateStrategy/rollingUpdate/maxUnavailable",
        json!("50%"),
    );
    assert_eq!(
        lines(most, vec![pod(0), unready(pod(1)), pod(2), terminating(pod(3))]),
        [
            "statefulset_unavailable_replicas{a,web,Parallel} 2",
            "statefulset_max_unavailable{a,web,Parallel} 2"
        ]
    );
}

/// Proves STS-93, STS-108.
#[test]
fn the_update_revision_becomes_current_when_all_pods_are_updated() {
    let written = status(cluster(set(2), [pod(0), pod(1)]));
    assert_eq!((&written["currentRevision"], &written["currentReplicas"]), (&json!("web-2"), &json!(2)));
    for not_yet in
        [vec![pod(0)], vec![pod(0), unready(pod(1))], vec![pod(0), old(1)], vec![pod(0), pod(1), old(2)]]
    {
        assert_eq!(status(cluster(set(2), not_yet))["currentRevision"], "web-1");
    }
    // Neither availability nor the strategy matters.
    let patient = with_field(set(1), "/spec/minReadySeconds", json!(60));
    let by_hand = with_field(patient, "/spec/updateStrategy", json!({"type": "OnDelete"}));
    assert_eq!(status(cluster(by_hand, [recently_ready(pod(0))]))["currentRevision"], "web-2");
    let none = status(cluster(set(0), []));
    assert_eq!((&none["currentRevision"], &none["replicas"]), (&json!("web-2"), &json!(0)));
}

#[test]
fn status_is_immediate_for_new_generations_and_completion() {
    let status_urgency = |set: Value, change: fn(&mut keleustes_objects::StatefulSetStatus)| {
        let set: StatefulSet = serde_json::from_value(set).unwrap();
        let mut new_status = set.status.clone();
        change(&mut new_status);
        status::status_urgency(&max_unavailable::inputs(set, &[]), &new_status)
    };
    let revision_hash = || {
        with_field(
            with_field(up_to_date(3), "/status/availableReplicas", json!(1)),
            "/status/readyReplicas",
            json!(1),
        )
    };
    assert_eq!(
        status_urgency(revision_hash(), |new_status| new_status.available_replicas = 2),
        StatusUrgency::Coalesce
    );
    assert_eq!(
        status_urgency(revision_hash(), |new_status| new_status.available_replicas = 3),
        StatusUrgency::Immediate
    );
    for lose in [
        (|new_status| new_status.replicas = 2) as fn(&mut keleustes_objects::StatefulSetStatus),
        |new_status| new_status.ready_replicas = 2,
        |new_status| new_status.available_replicas = 2,
        |new_status| new_status.current_replicas = 2,
    ] {
        assert_eq!(status_urgency(up_to_date(3), lose), StatusUrgency::Immediate);
    }
    assert_eq!(
        status_urgency(up_to_date(3), |new_status| new_status.observed_generation = 9),
        StatusUrgency::Immediate
    );
    assert_eq!(
        status_urgency(up_to_date(3), |new_status| new_status.current_revision = "web-9".into()),
        StatusUrgency::Immediate
    );
}

proptest! {
    /// A client must not read counts of pods that are lost.
    #[test]
    fn a_loss_is_written_at_once_and_progress_is_coalesced(
        wanted in 0..7_i32,
        old in prop::array::uniform4(0..7_i32),
        new in prop::array::uniform4(0..7_i32),
    ) {
        let status = |[replicas, ready, available, current]: [i32; 4]| json!({
            "observedGeneration": 2, "currentRevision": "web-2", "updateRevision": "web-2", "replicas": replicas,
            "readyReplicas": ready, "availableReplicas": available, "currentReplicas": current,
            "updatedReplicas": current,
        });
        let set: StatefulSet =
            serde_json::from_value(with_field(set(wanted), "/status", status(old))).unwrap();
        let new_status = serde_json::from_value(status(new)).unwrap();
        let is_complete =
            |[all, _, available, updated]: [i32; 4]| [all, updated, available].iter().all(|it| *it == wanted);
        let is_goal = is_complete(new) && !is_complete(old);
        let is_loss = old.iter().zip(&new).any(|(old, new)| new < old);
        let urgency = status::status_urgency(&max_unavailable::inputs(set, &[]), &new_status);
        prop_assert_eq!(urgency == StatusUrgency::Immediate, is_loss || is_goal);
    }
}
