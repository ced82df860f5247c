//! When and how the status is written.

use keleustes_objects::{ApiError, ErrorReason};

use super::*;

/// A budget in sync with two ready pods, and these pods.
fn settled() -> (Value, Vec<Value>) {
    let budget = budget(json!({"minAvailable": 1}));
    let pods = vec![pod("p"), pod("q")];
    let status = sync(&mut cluster(budget.clone(), &pods)).status().clone();
    (with_status(budget, status), pods)
}

fn update_fails(reason: ErrorReason, message: &str, times: Option<u32>) -> (RehearsalCluster, Value) {
    let (mut budget, pods) = settled();
    budget["metadata"]["generation"] = json!(3);
    let path = "/apis/policy/v1/namespaces/a/poddisruptionbudgets/web";
    let error = ApiError { code: 500, ..ApiError::transport(reason, message) };
    (cluster(budget.clone(), &pods).failing_at("update", path, error, times), budget)
}

/// Proves PDB-44, PDB-55, PDB-56.
#[test]
fn the_whole_status_is_written_over_the_cached_version() {
    let mut cluster = cluster(budget(json!({"minAvailable": 1})), &[pod("p"), pod("q")]);
    let synced = sync(&mut cluster);
    let metadata =
        json!({"namespace": "a", "name": "web", "uid": "b1", "resourceVersion": "5", "generation": 2});
    let condition = json!({"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
                           "observedGeneration": 2, "lastTransitionTime": at(0)});
    assert_eq!(
        synced.updates,
        [json!({
            "metadata": metadata,
            "status": {"observedGeneration": 2, "expectedPods": 2, "desiredHealthy": 1, "currentHealthy": 2,
                       "disruptionsAllowed": 1, "conditions": [condition]},
        })]
    );
}

/// Proves PDB-44, PDB-45.
#[test]
fn the_transition_time_changes_with_the_status_only_and_other_conditions_stay() {
    let other = json!({"type": "Other", "status": "True", "reason": "Foreign", "message": "mine"});
    let allowed = |status: &str, reason: &str| {
        json!({"type": "DisruptionAllowed", "status": status, "reason": reason, "message": "old",
               "observedGeneration": 1, "lastTransitionTime": at(-50)})
    };
    for (status, reason, since) in [
        ("True", "SufficientPods", -50),
        ("True", "Whatever", -50),
        ("False", "InsufficientPods", 0),
        ("False", "SyncFailed", 0),
    ] {
        let old = json!({"conditions": [other, allowed(status, reason)]});
        let budget = with_status(budget(json!({"minAvailable": 1})), old);
        let synced = sync(&mut cluster(budget, &[pod("p"), pod("q")]));
        assert_eq!(
            synced.status()["conditions"],
            json!([other, {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
                           "observedGeneration": 2, "lastTransitionTime": at(since)}]),
            "{status} {reason}"
        );
    }
}

/// Proves PDB-46, PDB-85, PDB-86.
#[test]
fn an_equal_status_is_not_written() {
    let (budget, pods) = settled();
    let is_written = |change: &dyn Fn(&mut Value)| {
        let mut budget = budget.clone();
        change(&mut budget);
        !sync(&mut cluster(budget, &pods)).updates.is_empty()
    };
    assert!(!is_written(&|_| {}));
    // Neither the rest of the condition nor the form of an empty map counts.
    assert!(!is_written(&|budget| budget["status"]["conditions"][0]["message"] = json!("hello")));
    assert!(!is_written(&|budget| budget["status"]["conditions"][0]["observedGeneration"] = json!(1)));
    assert!(!is_written(&|budget| budget["status"]["conditions"][0]["lastTransitionTime"] = json!(at(-9))));
    assert!(!is_written(&|budget| budget["status"]["disruptedPods"] = json!({})));
    for field in
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed", "observedGeneration"]
    {
        assert!(is_written(&|budget| budget["status"][field] = json!(7)), "{field}");
    }
    assert!(is_written(&|budget| budget["metadata"]["generation"] = json!(3)), "a new generation alone");
    assert!(is_written(&|budget| budget["status"]["disruptedPods"] = json!({"gone": at(0)})));
    assert!(is_written(&|budget| budget["status"]["conditions"] = json!([])));
    assert!(is_written(&|budget| budget["status"]["conditions"][0]["status"] = json!("False")));
    // Such as a failed sync whose cause is gone.
    assert!(is_written(&|budget| budget["status"]["conditions"][0]["reason"] = json!("SyncFailed")));
}

/// Proves PDB-40, PDB-84.
#[test]
fn a_failed_sync_allows_nothing_and_keeps_everything_else() {
    let status = json!({
        "observedGeneration": 1, "expectedPods": 9, "desiredHealthy": 8, "currentHealthy": 7, "disruptionsAllowed": 6,
        "disruptedPods": {"x": at(-5)},
        "conditions": [{"type": "Other", "status": "True", "reason": "R", "message": "m"}],
    });
    let broken = budget(json!({"maxUnavailable": "x%"}));
    let synced = sync(&mut cluster(with_status(broken.clone(), status.clone()), &pods_of_web(0)));
    let mut expected = status;
    expected["disruptionsAllowed"] = json!(0);
    expected["conditions"].as_array_mut().unwrap().push(json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "observedGeneration": 1,
        "lastTransitionTime": at(0),
        "message": "invalid value for IntOrString: invalid value \"x%\": strconv.Atoi: parsing \"x\": invalid syntax",
    }));
    assert_eq!(*synced.status(), expected);
    assert!(synced.queued.is_empty() && synced.retry.is_none(), "{synced:?}");
    // The same error later gives the same object, which the server does not store again.
    let mut later = cluster(with_status(broken, expected.clone()), &[]);
    later.advance_clock(Duration::from_secs(60));
    assert_eq!(*sync(&mut later).status(), expected);
}

/// Proves PDB-40, PDB-41, PDB-55.
#[test]
fn a_refused_update_is_followed_by_one_that_allows_nothing() {
    let (mut cluster, budget) = update_fails(ErrorReason::Invalid, "status is invalid", Some(1));
    let synced = sync(&mut cluster);
    assert_eq!((synced.failed_updates, synced.retry.clone()), (1, None));
    assert_eq!(synced.failure(), "status is invalid");
    assert_eq!(synced.status()["observedGeneration"], 2, "not the generation of the failed update");
    assert_eq!(synced.updates[0]["metadata"]["resourceVersion"], budget["metadata"]["resourceVersion"]);
}

/// Proves PDB-41.
#[test]
fn a_budget_whose_fail_safe_update_fails_is_retried() {
    let (mut cluster, _) = update_fails(ErrorReason::Unavailable, "etcd is down", None);
    let synced = sync(&mut cluster);
    assert_eq!((synced.failed_updates, synced.updates.len()), (2, 0));
    assert!(synced.retry.is_some_and(|error| error.ends_with("etcd is down")));
    // A conflict of the fail-safe update is retried like any other error.
    let broken = budget(json!({"maxUnavailable": "x%"}));
    let conflict = ApiError::transport(ErrorReason::Conflict, "the object has been modified");
    let mut cluster =
        super::cluster(broken, &[]).failing::<PodDisruptionBudget>("update", &key("web"), conflict);
    let synced = sync(&mut cluster);
    assert_eq!((synced.failed_updates, synced.updates.len()), (1, 0));
    assert!(synced.retry.is_some_and(|error| error.ends_with("the object has been modified")));
}

/// As long as another process may lead; the budget is not counted as failed.
#[test]
fn an_update_that_was_not_sent_is_retried() {
    let (_, pods) = settled();
    let mut cluster = super::cluster(budget(json!({"minAvailable": 1})), &pods).without_leading();
    let synced = sync(&mut cluster);
    assert_eq!((synced.failed_updates, synced.updates.len()), (0, 0));
    assert_eq!(synced.retry.as_deref(), Some("not sent: this process does not lead any more"));
}

/// Proves PDB-42, PDB-98.
#[test]
fn a_conflict_is_retried_without_a_fail_safe_update() {
    let (mut cluster, _) = update_fails(ErrorReason::Conflict, "the object has been modified", None);
    let synced = sync(&mut cluster);
    assert_eq!(
        (synced.failed_updates, synced.updates.len()),
        (1, 0),
        "the eviction's update is not overwritten"
    );
    assert!(synced.retry.is_some_and(|error| error.ends_with("the object has been modified")));
    // The next reconcile sees what the eviction wrote, and lowers nothing beyond that.
    let (mut evicted, pods) = settled();
    evicted["status"]["disruptionsAllowed"] = json!(0);
    evicted["status"]["disruptedPods"] = json!({"p": at(0)});
    evicted["status"]["conditions"][0]["status"] = json!("False");
    evicted["status"]["conditions"][0]["reason"] = json!("InsufficientPods");
    let synced = sync(&mut super::cluster(evicted, &pods));
    assert_eq!(synced.numbers(), [2, 1, 1, 0]);
    assert_eq!(synced.status()["disruptedPods"], json!({"p": at(0)}));
}
