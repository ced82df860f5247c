//! The contents and the urgency of the status.

use keleustes_objects::Kind as _;
use proptest::prelude::*;

use super::*;

/// Proves DS-80, DS-81, DS-82.
#[test]
fn the_first_pod_of_each_node_is_counted() {
    let nodes = ["a", "b", "c", "d", "e", "f"].map(node).into_iter().chain([
        tainted("x", "x", "NoSchedule"),
        tainted("y", "x", "NoExecute"),
        tainted("z", "x", "NoExecute"),
    ]);
    let later = |pod: Value| with_field(pod, "/metadata/creationTimestamp", json!("2027-01-05T00:00:00Z"));
    let pods = [
        pod("on-a", "a"),
        // The oldest pod counts, ready or not, and so does a terminating one.
        unready(old("on-b", "b")),
        later(pod("second-on-b", "b")),
        terminating(pod("on-c", "c")),
        recently_ready(pod("on-d", "d")),
        unbound("on-e", "e"),
        pod("on-x", "x"),
        pod("on-y", "y"),
    ];
    let patient = with_field(set(), "/spec/minReadySeconds", json!(5));
    let status = status(cluster(patient, nodes, pods));
    let count = |name: &str| status[name].as_i64().unwrap();
    assert_eq!(count("desiredNumberScheduled"), 6);
    assert_eq!(count("currentNumberScheduled"), 5);
    assert_eq!(count("numberMisscheduled"), 2);
    assert_eq!(count("numberReady"), 3, "a, c and d");
    assert_eq!(count("numberAvailable"), 2, "d has not been ready for minReadySeconds");
    assert_eq!(count("numberUnavailable"), 4);
    assert_eq!(count("updatedNumberScheduled"), 4, "all but b");
}

/// Proves DS-87.
#[test]
fn the_status_is_written_once_more_to_the_live_daemonset_after_any_error() {
    const GET: &str = "get daemonsets.apps a/agent\n";
    let condition = json!([{"type": "Paged", "status": "True"}]);
    let mut live = with_field(content(1), "/metadata/resourceVersion", json!("8"));
    live["status"] = json!({"conditions": condition, "collisionCount": 3, "numberReady": 7, "odd": "kept"});
    let path = DaemonSet::RESOURCE.object_path(&agent());
    for reason in [ErrorReason::Conflict, ErrorReason::Unavailable, ErrorReason::Forbidden] {
        let failing = |times| {
            let cluster = bare(set(), [node("n")], [pod("x", "n")]);
            let cluster = cluster.with::<ControllerRevision>(revision("h2", 2, "v2"));
            let cluster = cluster.with_live::<DaemonSet>(live.clone());
            cluster.failing_at("update", &path, api_error(reason), times)
        };
        let mut cluster = failing(Some(1));
        let puts = cluster.bodies(&the_loop(), agent(), "put daemonsets.apps/status ");
        let [(_, put)] = &puts[..] else { panic!("{puts:?}") };
        assert_eq!(put["metadata"]["resourceVersion"], "8");
        let status = &put["status"];
        assert_eq!(
            (&status["conditions"], &status["collisionCount"]),
            (&condition_of(&live), &json!(3)),
            "{status}"
        );
        assert_eq!((&status["numberReady"], &status["odd"]), (&json!(1), &json!("kept")), "{status}");
        // There is no third attempt.
        let failed = format!("{} FAILED: refused\n", STATUS.trim_end());
        let retry = format!("retry: {}: refused\n", STATUS.trim_end());
        assert_eq!(transcript_of(failing(None)), format!("{failed}{GET}{failed}{retry}"), "{reason:?}");
    }
    // Another DaemonSet has the name, or none.
    let other = with_field(live.clone(), "/metadata/uid", json!("u-other"));
    for live in [Some(other), None] {
        let cluster = bare(set(), [node("n")], [pod("x", "n")]);
        let cluster = cluster.with::<ControllerRevision>(revision("h2", 2, "v2"));
        let cluster = cluster.failing_at("update", &path, api_error(ErrorReason::Conflict), Some(1));
        let transcript = transcript_of(cluster.changing_on_failure(&path, live));
        assert!(transcript.ends_with(&format!("{GET}retry: writing the status: refused\n")), "{transcript}");
    }
}

fn condition_of(set: &Value) -> Value {
    set["status"]["conditions"].clone()
}

/// Proves DS-83.
#[test]
fn an_unchanged_status_is_not_written() {
    let is_written = |set: Value| transcript_of(cluster(set, [node("n")], [pod("x", "n")])).contains(STATUS);
    assert!(!is_written(content(1)));
    assert!(is_written(with_field(content(1), "/metadata/generation", json!(3))));
    for count in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ] {
        assert!(is_written(with_field(content(1), &format!("/status/{count}"), json!(9))), "{count}");
    }
    let mut before = with_field(set(), "/metadata/generation", json!(5));
    before["status"]["conditions"] = json!([{"type": "Odd", "status": "True"}]);
    before["status"]["collisionCount"] = json!(4);
    let status = status(cluster(before, [node("n")], [pod("x", "n")]));
    assert_eq!((&status["observedGeneration"], &status["collisionCount"]), (&json!(5), &json!(4)));
    assert_eq!(status["conditions"], json!([{"type": "Odd", "status": "True"}]), "conditions are kept");
}

/// Proves DS-84.
#[test]
fn the_daemonset_is_requeued_after_min_ready_seconds() {
    let last = |seconds: i32, pod: Value| {
        let set = with_field(set(), "/spec/minReadySeconds", json!(seconds));
        transcript_of(cluster(set, [node("n")], [pod])).lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(last(5, recently_ready(pod("x", "n"))), "requeue after 5s");
    assert!(!last(5, pod("x", "n")).starts_with("requeue"));
    assert!(!last(0, recently_ready(pod("x", "n"))).starts_with("requeue"));
    assert!(!last(5, unready(pod("x", "n"))).starts_with("requeue"));
}

/// Proves DS-104.
#[test]
fn a_deleted_node_is_not_counted() {
    let status = status(cluster(set(), [node("n")], [pod("x", "n"), pod("y", "gone")]));
    assert_eq!((&status["desiredNumberScheduled"], &status["numberMisscheduled"]), (&json!(1), &json!(0)));
}

#[test]
fn a_new_observed_generation_and_a_completed_rollout_are_written_at_once() {
    let urgency = |set: Value, changed_anything, change: fn(&mut keleustes_objects::DaemonSetStatus)| {
        let set: DaemonSet = serde_json::from_value(set).unwrap();
        let mut new_status = set.status.clone();
        change(&mut new_status);
        crate::daemonset::status::status_urgency(&bounds::inputs(set, &[]), &new_status, changed_anything)
    };
    let short = || with_field(content(3), "/status/numberAvailable", json!(1));
    assert_eq!(
        urgency(short(), false, |new_status| new_status.number_available = 2),
        StatusUrgency::Coalesce
    );
    assert_eq!(
        urgency(short(), true, |new_status| new_status.number_available = 2),
        StatusUrgency::Superseded
    );
    assert_eq!(
        urgency(short(), true, |new_status| new_status.number_available = 3),
        StatusUrgency::Immediate
    );
    for lose in [
        (|new_status| new_status.current_number_scheduled = 2) as fn(&mut keleustes_objects::DaemonSetStatus),
        |new_status| new_status.number_ready = 2,
        |new_status| new_status.number_available = 2,
    ] {
        assert_eq!(urgency(content(3), false, lose), StatusUrgency::Immediate);
        assert_eq!(urgency(content(3), true, lose), StatusUrgency::Immediate);
    }
    assert_eq!(
        urgency(content(3), false, |new_status| new_status.observed_generation = 9),
        StatusUrgency::Immediate
    );
}

proptest! {
    /// A client must not read counts of pods that are lost.
    #[test]
    fn a_loss_is_written_at_once_and_progress_is_coalesced(
        wanted in 0..7_i32,
        old in prop::array::uniform3(0..7_i32),
        new in prop::array::uniform3(0..7_i32),
        changed_anything in any::<bool>(),
    ) {
        let status = |[current, ready, available]: [i32; 3]| json!({
            "observedGeneration": 2, "desiredNumberScheduled": wanted, "currentNumberScheduled": current,
            "updatedNumberScheduled": wanted, "numberReady": ready, "numberAvailable": available,
        });
        let set: DaemonSet = serde_json::from_value(with_field(set(), "/status", status(old))).unwrap();
        let new_status = serde_json::from_value(status(new)).unwrap();
        let is_goal = new[2] == wanted && old[2] != wanted;
        let is_loss = old.iter().zip(&new).any(|(old, new)| new < old);
        let inputs = bounds::inputs(set, &[]);
        let urgency = crate::daemonset::status::status_urgency(&inputs, &new_status, changed_anything);
        prop_assert_eq!(urgency == StatusUrgency::Immediate, is_loss || is_goal);
    }
}
