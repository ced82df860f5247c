//! `DisruptionTarget` conditions of pods that are not deleted.

use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::Change;

use super::*;

/// A pod with a DisruptionTarget condition that was set this many seconds ago.
fn target(seconds_ago: i64) -> Value {
    let mut pod = pod("p");
    pod["status"]["conditions"].as_array_mut().unwrap().insert(
        0,
        json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
               "message": "Eviction API: evicting", "lastTransitionTime": at(-seconds_ago)}),
    );
    pod
}

fn changed(mut pod: Value, change: impl FnOnce(&mut Value)) -> Value {
    change(&mut pod);
    pod
}

fn rehearse(pod: &Value) -> String {
    let a_loop = loop_of(STALE_QUEUE);
    RehearsalCluster::of(&a_loop).with::<Pod>(pod.clone()).reconcile(&a_loop, key("p"))
}

/// The items that a new pod enqueues, with their delays.
fn enqueued(pod: &Value) -> Vec<(String, Duration)> {
    let a_loop = loop_of(STALE_QUEUE);
    let pod = std::sync::Arc::new(serde_json::from_value::<Pod>(pod.clone()).unwrap());
    let cluster = RehearsalCluster::of(&a_loop);
    let resynced = cluster.enqueued_with_delays(&a_loop, Change::resync(pod.clone()));
    assert_eq!(cluster.enqueued_with_delays(&a_loop, Change::added(pod.clone())), resynced);
    assert!(cluster.enqueued_by(&a_loop, Change::deleted(pod)).is_empty());
    resynced
}

/// Proves PDB-8, PDB-50, PDB-51, PDB-83.
#[test]
fn a_pod_is_enqueued_for_the_time_when_its_condition_is_stale() {
    for (seconds_ago, delay) in [(0, 120), (50, 70), (119, 1), (120, 0), (100_000, 0), (-30, 150)] {
        let pod = target(seconds_ago);
        assert_eq!(enqueued(&pod), [("a/p".to_owned(), Duration::from_secs(delay))], "{seconds_ago} s ago");
        let transcript = rehearse(&pod);
        if delay == 0 {
            assert!(transcript.starts_with("patch pods/status a/p because "), "{transcript}");
        } else {
            assert_eq!(transcript, format!("requeue after {delay}s\n"));
        }
    }
    let unknown_since =
        changed(target(0), |pod| pod["status"]["conditions"][0]["lastTransitionTime"] = json!(null));
    assert_eq!(enqueued(&unknown_since), [("a/p".to_owned(), Duration::ZERO)]);
}

/// Proves PDB-8, PDB-50, PDB-51, PDB-82.
#[test]
fn conditions_that_may_stay_are_never_reset() {
    let pod_with = |field: &'static str, value: &str| {
        changed(target(500), |pod| pod["status"]["conditions"][0][field] = json!(value))
    };
    for pod in [
        terminating(target(500)),
        changed(target(500), |pod| pod["status"]["phase"] = json!("Succeeded")),
        changed(target(500), |pod| pod["status"]["phase"] = json!("Failed")),
        pod_with("reason", "TerminationByKubelet"),
        pod_with("status", "False"),
        pod_with("status", "Unknown"),
        pod_with("type", "Other"),
        super::pod("p"),
    ] {
        assert!(enqueued(&pod).is_empty() && rehearse(&pod).is_empty(), "{pod}");
    }
    let a_loop = loop_of(STALE_QUEUE);
    assert_eq!(RehearsalCluster::of(&a_loop).reconcile(&a_loop, key("p")), "", "a deleted pod");
}

/// Proves PDB-52.
#[test]
fn a_stale_condition_becomes_false_without_a_reason() {
    let a_loop = loop_of(STALE_QUEUE);
    let mut cluster = RehearsalCluster::of(&a_loop).with::<Pod>(target(121));
    let bodies = cluster.bodies(&a_loop, key("p"), "patch pods/status ");
    let condition = json!({"type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
                           "lastProbeTime": null, "observedGeneration": 4, "lastTransitionTime": at(0)});
    let body = json!({"metadata": {"resourceVersion": "3"}, "status": {"conditions": [condition]}});
    assert_eq!(bodies, [("p".to_owned(), body)]);
}

/// Proves PDB-57.
#[test]
fn a_failed_reset_is_retried() {
    let a_loop = loop_of(STALE_QUEUE);
    assert_eq!(a_loop.max_retries, None);
    for (reason, message) in [(ErrorReason::Conflict, "modified"), (ErrorReason::NotFound, "not found")] {
        let error = ApiError::transport(reason, message);
        let mut cluster =
            RehearsalCluster::of(&a_loop).with::<Pod>(target(121)).failing::<Pod>("patch", &key("p"), error);
        let transcript = cluster.reconcile(&a_loop, key("p"));
        let is_retried = keleustes_plan::rehearsal::is_retried_because(&transcript, message);
        assert!(is_retried, "{transcript}");
    }
}
