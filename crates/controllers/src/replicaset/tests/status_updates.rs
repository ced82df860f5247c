//! The status, when it is written, and when the key is requeued.

use keleustes_objects::Kind as _;
use keleustes_plan::StatusUrgency;
use keleustes_plan::rehearsal::is_retried_because;
use proptest::prelude::*;

use super::*;

fn ready_at(name: &str, at: &str) -> Value {
    with_field(pod(name), "/status/conditions/0/lastTransitionTime", json!(at))
}

fn unready(name: &str) -> Value {
    with_field(pod(name), "/status/conditions/0/status", json!("False"))
}

fn patient(set: Value, seconds: i32) -> Value {
    with_field(set, "/spec/minReadySeconds", json!(seconds))
}

fn counts(cluster: RehearsalCluster) -> [i64; 4] {
    let status = status(cluster);
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"].map(count)
}

fn refusing_creates(set: Value) -> RehearsalCluster {
    let path = "/api/v1/namespaces/a/pods/";
    cluster(set).failing_at("create", path, api_error(ErrorReason::Forbidden), None)
}

/// Proves RS-61, RS-62, RS-63.
#[test]
fn the_status_counts_the_pods_before_the_reconcile_s_writes() {
    let labels = json!({"app": "web", "more": "yes"});
    let labelled = with_field(set(5), "/spec/template/metadata/labels", labels.clone());
    let full = with_field(pod("full"), "/metadata/labels", labels);
    let there =
        || [full.clone(), unready("unready"), with_field(pod("odd"), "/status/phase", json!("Pending"))];
    assert_eq!(counts(with_pods(cluster(labelled), there())), [3, 1, 2, 2]);
    // Ready for ten seconds, for nine, and without a transition time. The current time is 08:00:00.
    let there = || {
        [
            ready_at("x", "2027-01-15T07:59:50Z"),
            ready_at("y", "2027-01-15T07:59:51Z"),
            with_field(pod("z"), "/status/conditions/0/lastTransitionTime", Value::Null),
        ]
    };
    assert_eq!(counts(with_pods(cluster(patient(set(3), 10)), there())), [3, 3, 3, 1]);
    assert_eq!(counts(with_pods(cluster(set(3)), there())), [3, 3, 3, 3]);
}

/// Proves RS-64, RS-95, INF-96.
#[test]
fn terminating_pods_are_counted_if_the_gate_is_on() {
    let stranger = owned_by("ReplicaSet", "other", "u-other", orphan("s"));
    let there = [
        terminating(pod("x")),
        with_field(terminating(pod("ended")), "/status/phase", json!("Failed")),
        with_field(terminating(pod("stray")), "/metadata/labels", json!({"app": "none"})),
        terminating(orphan("orphan")),
        terminating(stranger),
        pod("y"),
    ];
    assert_eq!(status(with_pods(cluster(set(1)), there))["terminatingReplicas"], 1);
    let written = status(with_pods(cluster(set(1)), [pod("y")]));
    assert_eq!(written["terminatingReplicas"], 0, "written even if there are none");
    let silent = ReplicaSetOptions { count_terminating_replicas: false, ..ReplicaSetOptions::default() };
    let transcript =
        with_pods(cluster(up_to_date(1)), [pod("y")]).reconcile(&controller(&silent).loops.remove(0), web());
    assert!(transcript.starts_with("put replicasets.apps/status") && !transcript.contains("terminating"));
}

/// Proves RS-30, RS-65, RS-77, RS-79, INF-89, INF-93.
#[test]
fn replica_failure_is_set_once_and_keeps_its_transition_time() {
    let written = status(refusing_creates(set(2)))["conditions"].take();
    let condition = |reason: &str, message: &str| {
        json!([{
            "type": "ReplicaFailure", "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }])
    };
    assert_eq!(written, condition("FailedCreate", "refused"));
    let failing = with_pods(cluster(set(0)), [pod("x")]);
    let failing =
        failing.failing::<Pod>("delete", &Key::namespaced("a", "x"), api_error(ErrorReason::Forbidden));
    assert_eq!(status(failing)["conditions"], condition("FailedDelete", "unable to delete pods: refused"));
    // An existing condition is kept, whatever its content.
    let older = with_field(set(2), "/status/conditions", condition("FailedDelete", "older"));
    let transcript = reconcile(refusing_creates(older));
    assert!(!transcript.contains(STATUS) && is_retried_because(&transcript, "refused"), "{transcript}");
}

/// Proves RS-29, RS-66.
#[test]
fn replica_failure_is_removed_when_nothing_failed() {
    let failed = json!([{"type": "ReplicaFailure", "status": "True"}, {"type": "Other", "status": "True"}]);
    let failed = |set| with_field(set, "/status/conditions", failed.clone());
    for set in [failed(up_to_date(1)), failed(terminating(up_to_date(1)))] {
        let left = status(with_pods(cluster(set), [pod("x")]))["conditions"].take();
        assert_eq!(left.as_array().unwrap().len(), 1);
        assert_eq!(left[0]["type"], "Other");
    }
}

/// Proves RS-67.
#[test]
fn an_unchanged_status_is_not_written() {
    check(with_pods(cluster(up_to_date(1)), [pod("x")]), "");
    for (field, value) in [
        ("replicas", json!(2)),
        ("fullyLabeledReplicas", json!(2)),
        ("readyReplicas", json!(2)),
        ("availableReplicas", json!(2)),
        ("terminatingReplicas", Value::Null),
        ("observedGeneration", json!(1)),
    ] {
        let stale = with_field(up_to_date(1), &format!("/status/{field}"), value);
        check(with_pods(cluster(stale), [pod("x")]), STATUS);
    }
}

/// Proves RS-97.
#[test]
fn the_status_is_put_with_the_cached_metadata() {
    let mut whole = with_field(set(1), "/metadata/labels", json!({"l": "1"}));
    whole["metadata"]["annotations"] = json!({"a": "2"});
    whole["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    whole["metadata"]["generation"] = json!(9);
    let put = body(with_pods(cluster(whole.clone()), [pod("x")]), "put replicasets.apps/status");
    let metadata = &put["metadata"];
    assert_eq!((&metadata["resourceVersion"], &metadata["uid"]), (&json!("7"), &json!("u-web")));
    assert_eq!((&metadata["labels"], &metadata["annotations"]), (&json!({"l": "1"}), &json!({"a": "2"})));
    assert_eq!(put["status"]["observedGeneration"], 9);
    assert!(metadata.get("managedFields").is_none() && put.get("spec").is_none());
}

/// Proves RS-68, RS-74.
#[test]
fn after_a_conflict_the_status_of_the_cached_generation_is_put_once_more() {
    const GET: &str = "get replicasets.apps a/web\n";
    let mut newer = with_field(set(1), "/metadata/generation", json!(9));
    newer["metadata"]["resourceVersion"] = json!("8");
    let path = ReplicaSet::RESOURCE.object_path(&web());
    let failing = |reason, times| {
        let cluster = with_pods(cluster(set(1)), [pod("x")]).with_live::<ReplicaSet>(newer.clone());
        cluster.failing_at("update", &path, api_error(reason), times)
    };
    let put = body(failing(ErrorReason::Conflict, Some(1)), "put replicasets.apps/status");
    assert_eq!(
        (&put["metadata"]["resourceVersion"], &put["status"]["observedGeneration"]),
        (&json!("8"), &json!(2))
    );
    let (failed, retry) = (
        format!("{} FAILED: refused\n", STATUS.trim_end()),
        format!("retry: {}: refused\n", STATUS.trim_end()),
    );
    check(failing(ErrorReason::Conflict, None), &format!("{failed}{GET}{failed}{retry}"));
    check(failing(ErrorReason::Unavailable, None), &format!("{failed}{retry}"));
}

/// Proves RS-69, RS-93, RS-94, INF-98.
#[test]
fn the_key_is_requeued_when_the_next_pod_becomes_available() {
    let requeue_after = |seconds: i32, pods: Vec<Value>| {
        let replicas = i32::try_from(pods.len()).unwrap();
        let transcript = reconcile(with_pods(cluster(patient(set(replicas), seconds)), pods));
        transcript.lines().find_map(|line| line.strip_prefix("requeue after ").map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    let (recent, newest) = ("2027-01-15T07:59:53Z", "2027-01-15T07:59:55Z");
    assert_eq!(
        requeue_after(10, vec![ready_at("x", recent), ready_at("y", newest), unready("z")]),
        some("3s")
    );
    assert_eq!(requeue_after(0, vec![ready_at("x", recent)]), None);
    assert_eq!(requeue_after(5, vec![ready_at("x", recent), unready("z")]), None);
    // Without a transition time the key is requeued after the full minReadySeconds.
    let timeless = with_field(pod("x"), "/status/conditions/0/lastTransitionTime", Value::Null);
    assert_eq!(requeue_after(10, vec![timeless]), some("10s"));
    // After the clock was set back, an available pod is no longer available.
    assert_eq!(requeue_after(10, vec![ready_at("x", "2027-01-15T09:00:00Z")]), some("3610s"));
}

#[test]
fn status_is_immediate_when_replicas_are_complete_or_conditions_change() {
    let status_urgency = |set: Value, counts: Value, changed_anything| {
        let set: ReplicaSet = serde_json::from_value(set).unwrap();
        let status: ReplicaSetStatus = serde_json::from_value(counts).unwrap();
        status::status_urgency(&set, &status, changed_anything)
    };
    let counts = |replicas: i32, available: i32| json!({"observedGeneration": 2, "replicas": replicas, "readyReplicas": available, "availableReplicas": available});
    for (set, counts, changed_anything, expected) in [
        // Scaling up, pod by pod; then the last one.
        (set(3), counts(3, 1), false, StatusUrgency::Coalesce),
        (set(3), counts(3, 3), false, StatusUrgency::Immediate),
        (set(3), counts(3, 3), true, StatusUrgency::Immediate),
        // Pods were created or deleted in this reconcile.
        (set(3), counts(0, 0), true, StatusUrgency::Superseded),
        (set(3), counts(2, 1), true, StatusUrgency::Coalesce),
        // One pod becomes unready, then ready again.
        (up_to_date(3), counts(3, 2), false, StatusUrgency::Immediate),
        (
            with_field(up_to_date(3), "/status/availableReplicas", json!(2)),
            counts(3, 3),
            false,
            StatusUrgency::Immediate,
        ),
        // All replicas are available and reported: a change of other counts is coalesced.
        (up_to_date(3), counts(3, 3), false, StatusUrgency::Coalesce),
        // Scaled down to 0.
        (
            with_field(up_to_date(3), "/spec/replicas", json!(0)),
            counts(0, 0),
            false,
            StatusUrgency::Immediate,
        ),
    ] {
        assert_eq!(
            status_urgency(set.clone(), counts.clone(), changed_anything),
            expected,
            "{set} {counts} {changed_anything}"
        );
    }
    let mut failing = counts(1, 1);
    failing["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]);
    assert_eq!(status_urgency(set(3), failing, true), StatusUrgency::Immediate);
}

/// The urgency of a change between two statuses with these counts of replicas, ready and available pods.
fn urgency_between(replicas: i32, old: [i32; 3], new: [i32; 3], changed_anything: bool) -> StatusUrgency {
    let of = |counts: [i32; 3]| {
        let [replicas, ready, available] = counts;
        json!({"observedGeneration": 2, "replicas": replicas, "readyReplicas": ready, "availableReplicas": available})
    };
    let set: ReplicaSet =
        serde_json::from_value(with_field(set(replicas), "/status", of(old))).expect("a ReplicaSet");
    let status: ReplicaSetStatus = serde_json::from_value(of(new)).expect("a status");
    status::status_urgency(&set, &status, changed_anything)
}

proptest! {
    /// A client must not read counts of pods that are lost.
    #[test]
    fn a_loss_is_written_at_once_and_progress_is_coalesced(
        replicas in 0..9_i32,
        old in prop::array::uniform3(0..9_i32),
        new in prop::array::uniform3(0..9_i32),
        changed_anything in any::<bool>(),
    ) {
        let urgency = urgency_between(replicas, old, new, changed_anything);
        let is_loss = old.iter().zip(&new).any(|(old, new)| new < old);
        let is_complete = |[all, _, available]: [i32; 3]| all == replicas && available == replicas;
        let is_goal = is_complete(new) && !is_complete(old);
        prop_assert_eq!(urgency == StatusUrgency::Immediate, is_loss || is_goal);
    }
}

#[test]
fn an_observed_generation_is_written_at_once() {
    let resized = with_field(up_to_date(3), "/metadata/generation", json!(3));
    let resized: ReplicaSet = serde_json::from_value(resized).unwrap();
    let mut status = resized.status.clone();
    status.observed_generation = 3;
    for changed_anything in [false, true] {
        assert_eq!(status::status_urgency(&resized, &status, changed_anything), StatusUrgency::Immediate);
    }
}
