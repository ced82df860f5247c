//! The condition `Unused`.

use super::*;

/// The condition of the live claim after a reconcile.
fn condition_of(claim: &Value) -> &Value {
    let conditions = claim["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|condition| condition["type"] == "Unused").expect("Unused")
}

/// Proves PVCP-31, PVCP-32, PVCP-33, PVCP-34, PVCP-41, PVCP-62.
#[test]
fn condition_says_whether_a_pod_uses_the_claim_and_since_when() {
    let now = "2027-01-15T08:00:00Z";
    let used = json!({"type": "Unused", "status": "False", "reason": "PodUsingPVC",
        "message": "A pod is currently referencing this PVC", "lastTransitionTime": now});
    let unused = json!({"type": "Unused", "status": "True", "reason": "NoPodsUsingPVC",
        "message": "No pods are currently referencing this PVC", "lastTransitionTime": now});
    for before in ["", "True"] {
        assert_eq!(sync(cluster(claim(before)).with::<Pod>(pod())), USED, "{before}");
        let after = written(cluster(claim(before)).with::<Pod>(pod()));
        assert_eq!(after["status"]["conditions"], json!([{"type": "Resizing", "status": "True"}, used]));
    }
    for before in ["", "False"] {
        assert_eq!(sync(cluster(claim(before))), format!("{LISTED}{UNUSED}"), "{before}");
        let after = written(cluster(claim(before)));
        assert_eq!(after["status"]["conditions"], json!([{"type": "Resizing", "status": "True"}, unused]));
        let mut rest = after;
        rest["status"]["conditions"] = claim(before)["status"]["conditions"].clone();
        assert_eq!(rest, claim(before), "nothing else changes");
    }
    // The right condition stays, and so does its time.
    assert_eq!(sync(cluster(claim("True"))), "");
    assert_eq!(sync(cluster(claim("False")).with::<Pod>(pod())), "");
    let mut first = claim("True");
    first["status"]["conditions"].as_array_mut().unwrap().reverse();
    let after = written(cluster(first).with::<Pod>(pod()));
    assert_eq!(after["status"]["conditions"][0], used, "replaced in place");
    let mut none = claim("");
    none["status"].as_object_mut().unwrap().remove("conditions");
    assert_eq!(written(cluster(none))["status"]["conditions"], json!([unused]));
}

/// Proves PVCP-35.
#[test]
fn unknown_condition_stays_while_used_and_becomes_true_when_unused() {
    assert_eq!(sync(cluster(claim("Unknown")).with::<Pod>(pod())), "");
    assert_eq!(condition_of(&written(cluster(claim("Unknown"))))["status"], "True");
}

/// Proves PVCP-30, PVCP-56, PVCP-58, PVCP-68.
#[test]
fn only_bound_claims_without_deletion_timestamp_have_the_condition_written() {
    for phase in ["Pending", "Lost", ""] {
        assert_eq!(sync(cluster(with_phase(claim(""), phase))), "", "{phase}");
        assert_eq!(
            sync(cluster(with_phase(claim("True"), phase)).with::<Pod>(pod())),
            "",
            "kept when {phase}"
        );
    }
    let after = written(cluster(deleted(claim("False"))));
    assert_eq!(condition_of(&after)["status"], "False", "kept while the finalizer goes");
    assert_eq!(after["metadata"]["finalizers"], json!(["example.com/first", "example.com/last"]));
    // The live claim decides: meanwhile it may be lost or deleted.
    for live in [with_phase(claim("False"), "Lost"), deleted(claim("False")), claim("True")] {
        let cluster = RehearsalCluster::of(&the_loop())
            .with_cached::<PersistentVolumeClaim>(claim("False"))
            .with_live::<PersistentVolumeClaim>(changed(live, "8"));
        assert!(sync(cluster).ends_with("(unneeded)\n"));
    }
}

/// Proves PVCP-22, PVCP-23.
#[test]
fn pod_that_no_longer_runs_does_not_use_the_claim() {
    let used = |pod: Value| !sync(cluster(claim("False")).with::<Pod>(pod)).contains(UNUSED);
    assert!(used(pod()) && used(unscheduled(pod())) && used(with_phase(pod(), "Unknown")));
    assert!(!used(with_phase(pod(), "Succeeded")) && !used(with_phase(pod(), "Failed")));
    assert!(used(terminating(pod(), 30)), "its container runs");
    for state in [json!({"waiting": {}}), json!({"terminated": {"exitCode": 0}})] {
        let mut pod = terminating(pod(), 30);
        pod["status"]["containerStatuses"][0]["state"] = state;
        assert!(!used(pod.clone()));
        pod["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        assert!(used(pod), "it may start again");
    }
    let mut unstarted = terminating(pod(), 30);
    unstarted["status"] = json!({"phase": "Pending"});
    assert!(!used(unstarted));
    let ephemeral = |owner: &str, pod: Value| {
        let mut cluster = cluster(ephemeral_claim("False", owner)).with::<Pod>(pod);
        cluster.reconcile(&the_loop(), Key::namespaced("a", "p-v")).is_empty()
    };
    assert!(ephemeral("p-uid", unscheduled(ephemeral_pod())));
    assert!(!ephemeral("another", ephemeral_pod()));
}

/// Proves PVCP-11, PVCP-50.
#[test]
fn condition_comes_before_the_finalizer_and_an_error_ends_the_pass() {
    let mut cluster = cluster(without_finalizer(claim(""))).with::<Pod>(pod());
    let a_loop = the_loop();
    assert_eq!(cluster.reconcile(&a_loop, key()), format!("{USED}{ADDED}"));
    // On a server the first write makes the second one stale; the event of the first enqueues the claim again.
    let stored = cluster.live_object::<PersistentVolumeClaim>(&key()).unwrap().clone();
    let condition_only = changed(without_finalizer(stored), "8");
    let items = cluster.put::<PersistentVolumeClaim>(&a_loop, condition_only);
    assert_eq!(items, ["a/c"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), ADDED);
    let error = ApiError::transport(ErrorReason::Conflict, "refused");
    let cluster = super::cluster(without_finalizer(claim("")))
        .with::<Pod>(pod())
        .failing::<PersistentVolumeClaim>("update", &key(), error);
    let transcript = sync(cluster);
    assert!(transcript.contains(USED.trim_end()) && !transcript.contains(ADDED.trim_end()), "{transcript}");
}

/// Proves PVCP-60, PVCP-63.
#[test]
fn condition_follows_the_pods_that_come_and_go() {
    let a_loop = the_loop();
    let second = named(pod(), "q");
    let mut cluster = cluster(claim("False")).with::<Pod>(pod()).with::<Pod>(second);
    assert_eq!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "p")), ["a/c"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), "", "the other pod uses it: no list, no write");
    assert_eq!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "q")), ["a/c"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), format!("{LISTED}{UNUSED}"));
    let unused = changed(cluster.live_object::<PersistentVolumeClaim>(&key()).unwrap().clone(), "8");
    cluster.put::<PersistentVolumeClaim>(&a_loop, unused);
    cluster.advance_clock(Duration::from_secs(5));
    assert_eq!(cluster.put::<Pod>(&a_loop, changed(pod(), "9")), ["a/c"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), USED);
    let back = cluster.live_object::<PersistentVolumeClaim>(&key()).unwrap();
    assert_eq!(condition_of(back)["lastTransitionTime"], "2027-01-15T08:00:05Z");
}
