//! How many pods are created and deleted, which ones, and the bodies of new pods.

use keleustes_objects::ErrorReason;
use serde_json::{Value, json};

use super::fixture::{JobFixture, at, indexed, indexed_spec, job, merge, pod, terminated};

fn spec(more: &Value) -> Value {
    job(&json!({"spec": more}))
}

/// Proves JOB-40, JOB-41, JOB-58, JOB-67, JOB-134, JOB-140, JOB-27.
#[test]
fn a_new_job_gets_pods_and_a_start_time() {
    let template = json!({"template": {"metadata": {"annotations": {"x": "y"}, "finalizers": ["f"]},
                                       "spec": {"unknownField": 1}}, "parallelism": 2, "completions": 5});
    let transcript = JobFixture::of(spec(&template)).reconcile();
    let [body, _] = &transcript.created()[..] else { panic!("{}", transcript.0) };
    let metadata = &body["metadata"];
    assert_eq!(metadata["generateName"], "j-");
    assert_eq!(metadata["labels"], json!({"job": "j"}));
    assert_eq!(metadata["annotations"], json!({"x": "y"}));
    assert_eq!(metadata["finalizers"], json!(["f", "batch.kubernetes.io/job-tracking"]));
    assert_eq!(metadata["ownerReferences"], json!([super::fixture::owner()]));
    assert_eq!(body["spec"]["unknownField"], 1);
    assert_eq!(body["spec"]["hostname"], Value::Null);
    let status = transcript.status();
    assert_eq!(
        (&status["active"], &status["ready"], &status["terminating"]),
        (&json!(2), &json!(0), &json!(0))
    );
    assert_eq!(status["startTime"], at(0));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert_eq!(transcript.events(), ["Normal SuccessfulCreate on Job a/j uid=j-1: Created pod: j-new"; 2]);
    // The finalizer is added once, even if the template has it.
    let template = json!({"template": {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}});
    let transcript = JobFixture::of(spec(&template)).reconcile();
    assert_eq!(
        transcript.created()[0]["metadata"]["finalizers"],
        json!(["batch.kubernetes.io/job-tracking"])
    );
}

/// Proves JOB-41.
#[test]
fn an_unchanged_status_is_not_written() {
    let status = json!({"status": {"startTime": at(-9), "active": 1, "ready": 0, "terminating": 0,
                                   "uncountedTerminatedPods": {}}});
    let transcript =
        |status: &Value| JobFixture::of(job(status)).pods([pod("p", "Running", &json!({}))]).reconcile();
    assert_eq!(transcript(&status).requests(), Vec::<String>::new());
    for field in ["active", "ready", "terminating"] {
        let mut other = status.clone();
        other["status"][field] = json!(3);
        assert_eq!(transcript(&other).requests(), ["put jobs.batch/status a/j"], "{field}");
    }
}

/// Proves REV-76.
#[test]
fn a_field_of_a_newer_api_server_changes_no_pod() {
    let newer = json!({
        "spec": {"template": {"spec": {"invented": {"by": "default"}}}},
        "status": {"startTime": at(-9), "active": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}},
    });
    let mut fixture = JobFixture::of(job(&newer)).pods([pod("p", "Running", &json!({}))]);
    assert_eq!(fixture.reconcile().requests(), Vec::<String>::new());
}

/// Proves JOB-58.
#[test]
fn the_desired_number_of_active_pods_follows_parallelism_and_completions() {
    let wanted = |more: Value, succeeded: i32, active: usize| {
        let mut job = spec(&more);
        merge(&mut job, &json!({"status": {"succeeded": succeeded}}));
        let pods = (0..active).map(|n| pod(&format!("p{n}"), "Running", &json!({})));
        let transcript = JobFixture::of(job).pods(pods).reconcile();
        (transcript.created().len(), transcript.deleted().len())
    };
    assert_eq!(wanted(json!({"parallelism": 3, "completions": 5}), 0, 0), (3, 0));
    assert_eq!(wanted(json!({"parallelism": 3, "completions": 5}), 3, 0), (2, 0));
    assert_eq!(wanted(json!({"parallelism": 3, "completions": 5}), 4, 3), (0, 2));
    assert_eq!(wanted(json!({"parallelism": 3, "completions": null}), 0, 1), (2, 0));
    assert_eq!(wanted(json!({"parallelism": 3, "completions": null}), 1, 1), (0, 0));
    assert_eq!(wanted(json!({"parallelism": 1, "completions": null}), 1, 2), (0, 0));
}

/// Proves JOB-59, JOB-137, JOB-54, JOB-140.
#[test]
fn surplus_pods_lose_the_finalizer_and_are_deleted() {
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let pods = || ["p1", "p2"].map(|name| pod(name, "Running", &ready));
    let transcript = JobFixture::of(spec(&json!({"parallelism": 0}))).pods(pods()).reconcile();
    assert_eq!(
        transcript.requests()[..4],
        ["patch pods a/p1", "patch pods a/p2", "delete pods a/p1", "delete pods a/p2"]
    );
    assert_eq!(transcript.status()["uncountedTerminatedPods"], json!({}));
    let counts =
        |status: &Value| [&status["active"], &status["ready"], &status["terminating"]].map(Value::to_string);
    assert_eq!(counts(&transcript.status()), ["0", "0", "2"]);
    assert_eq!(
        transcript.events(),
        [
            "Normal SuccessfulDelete on Job a/j uid=j-1: Deleted pod: p1",
            "Normal SuccessfulDelete on Job a/j uid=j-1: Deleted pod: p2"
        ]
    );
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,success,pods_deleted} 1"]);
    // A pod whose finalizer cannot be removed is not deleted, and the reconcile is retried.
    let fixture = JobFixture::of(spec(&json!({"parallelism": 0}))).pods(pods());
    let transcript = fixture.failing("patch", "p1", ErrorReason::Unavailable).reconcile();
    assert_eq!((transcript.deleted(), transcript.is_retried()), (vec!["p2"], true));
    assert_eq!(counts(&transcript.status()), ["1", "1", "1"]);
    // A pod that is not found counts as deleted.
    let fixture = JobFixture::of(spec(&json!({"parallelism": 0}))).pods(pods());
    let transcript = fixture
        .failing("delete", "p1", ErrorReason::NotFound)
        .failing("patch", "p1", ErrorReason::NotFound)
        .reconcile();
    assert_eq!(
        (counts(&transcript.status()), transcript.is_retried()),
        (["0", "0", "2"].map(str::to_owned), false)
    );
    let fixture = JobFixture::of(spec(&json!({"parallelism": 0}))).pods(pods());
    let transcript = fixture.failing("delete", "p1", ErrorReason::Unavailable).reconcile();
    assert_eq!(
        (counts(&transcript.status()), transcript.is_retried()),
        (["1", "0", "1"].map(str::to_owned), true)
    );
    assert_eq!(transcript.events()[0], "Warning FailedDelete on Job a/j uid=j-1: Error deleting: refused");
}

/// Proves JOB-59, JOB-61.
#[test]
fn a_reconcile_creates_or_deletes_at_most_500_pods() {
    let many = json!({"parallelism": 600, "completions": 900});
    assert_eq!(JobFixture::of(spec(&many)).reconcile().created().len(), 500);
    let pods = || (0..520).map(|n| pod(&format!("p{n}"), "Running", &json!({})));
    let transcript =
        JobFixture::of(spec(&json!({"parallelism": 0, "completions": 900}))).pods(pods()).reconcile();
    assert_eq!((transcript.deleted().len(), transcript.status()["active"].as_i64()), (500, Some(20)));
    // Two pods have the same index and another index has none: the deletion comes first.
    let pods = [indexed("a0", "Running", "0", &json!({})), indexed("b0", "Pending", "0", &json!({}))];
    let transcript = JobFixture::of(indexed_spec(3, &json!({}))).pods(pods).reconcile();
    assert_eq!((transcript.deleted(), transcript.created().len()), (vec!["b0"], 0));
}

/// Proves JOB-60.
#[test]
fn pods_with_the_least_progress_are_deleted_first() {
    let ready = |seconds: i64| json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(seconds)}]});
    let restarts = |count: i32| json!({"containerStatuses": [{"name": "c", "restartCount": count}]});
    let sidecar = |count: i32| {
        json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]},
               "status": {"initContainerStatuses": [{"name": "s", "restartCount": count}]}})
    };
    // Each pair: the deleted pod, the kept pod. The names sort in the opposite order.
    let pairs = [
        (pod("z", "Running", &json!({"spec": {"nodeName": ""}})), pod("a", "Pending", &json!({}))),
        (pod("z", "Pending", &json!({})), pod("a", "Unknown", &json!({}))),
        (pod("z", "Unknown", &json!({})), pod("a", "Running", &json!({}))),
        (pod("z", "Running", &json!({})), pod("a", "Running", &json!({"status": ready(-5)}))),
        (
            pod("z", "Running", &json!({"status": ready(-5)})),
            pod("a", "Running", &json!({"status": ready(-9)})),
        ),
        (
            pod("z", "Running", &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})),
            pod("a", "Running", &json!({"status": ready(-1)})),
        ),
        (
            pod("z", "Running", &json!({"status": restarts(3)})),
            pod("a", "Running", &json!({"status": restarts(2)})),
        ),
        (pod("z", "Running", &sidecar(3)), pod("a", "Running", &sidecar(2))),
        (
            pod("z", "Running", &json!({"metadata": {"creationTimestamp": at(-10)}})),
            pod("a", "Running", &json!({})),
        ),
    ];
    for (deleted, kept) in pairs {
        let transcript = JobFixture::of(spec(&json!({"completions": 5})))
            .pods([kept.clone(), deleted.clone()])
            .reconcile();
        assert_eq!(transcript.deleted(), ["z"], "{deleted} {kept}");
    }
}

/// Proves JOB-61, JOB-80, JOB-88, JOB-170.
#[test]
fn pods_with_invalid_or_duplicate_indexes_are_deleted_first() {
    let odd = ["", "x", "-1", "3", "99999999999999999999"];
    let mut pods: Vec<Value> = odd
        .iter()
        .map(|index| indexed(&format!("odd{index}").to_lowercase(), "Running", index, &json!({})))
        .collect();
    pods.push(pod("none", "Running", &json!({})));
    pods.extend((0..3).map(|n| indexed(&format!("p{n}"), "Running", &n.to_string(), &json!({}))));
    pods.push(indexed("second", "Pending", "1", &json!({})));
    let transcript =
        JobFixture::of(indexed_spec(3, &json!({"spec": {"parallelism": 10}}))).pods(pods).reconcile();
    let mut deleted = transcript.deleted();
    deleted.sort_unstable();
    assert_eq!(deleted, ["none", "odd", "odd-1", "odd3", "odd99999999999999999999", "oddx", "second"]);
    // Scaled to zero completions: all pods are deleted, and then the Job is complete without indexes.
    let pods = [indexed("p0", "Running", "0", &json!({}))];
    let mut fixture =
        JobFixture::of(indexed_spec(0, &json!({"status": {"completedIndexes": "0,1", "succeeded": 2}})))
            .pods(pods);
    let transcript = fixture.reconcile();
    assert_eq!((transcript.deleted(), transcript.patched()), (vec!["p0"], vec!["p0"]));
    let without_pods =
        JobFixture::of(indexed_spec(0, &json!({"status": {"completedIndexes": "0,1", "succeeded": 2}})))
            .reconcile();
    assert_eq!(
        without_pods.conditions(),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
    assert_eq!(
        (without_pods.status()["succeeded"].as_i64(), &without_pods.status()["completedIndexes"]),
        (Some(0), &Value::Null)
    );
}

/// Proves JOB-62, JOB-159, JOB-84, JOB-36.
#[test]
fn a_terminating_pod_is_replaced_at_once_or_after_it_has_finished() {
    let terminating = json!({"metadata": {"deletionTimestamp": at(0)}});
    let policy =
        |policy: &str| spec(&json!({"podReplacementPolicy": policy, "parallelism": 2, "completions": 2}));
    let pods = || [pod("p1", "Running", &terminating), pod("p2", "Running", &json!({}))];
    let transcript = JobFixture::of(policy("Failed")).pods(pods()).reconcile();
    assert_eq!((transcript.created().len(), transcript.patched()), (0, vec![]));
    assert_eq!(
        (transcript.status()["terminating"].as_i64(), transcript.status()["active"].as_i64()),
        (Some(1), Some(1))
    );
    assert_eq!(transcript.status()["failed"], 0);
    let transcript = JobFixture::of(policy("Failed"))
        .pods([pod("p1", "Failed", &terminating), pod("p2", "Running", &json!({}))])
        .reconcile();
    assert_eq!((transcript.patched(), transcript.status()["failed"].as_i64()), (vec!["p1"], Some(1)));
    // Its index is not reused earlier either.
    let replaced = json!({"spec": {"podReplacementPolicy": "Failed", "parallelism": 2}});
    let transcript = JobFixture::of(indexed_spec(3, &replaced))
        .pods([indexed("p0", "Running", "0", &terminating)])
        .reconcile();
    let index =
        |body: &Value| body["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone();
    assert_eq!(transcript.created().iter().map(index).collect::<Vec<_>>(), [json!("1")]);
    let long_terminating = json!({"metadata": {"deletionTimestamp": at(-700)}});
    let transcript = JobFixture::of(indexed_spec(3, &json!({"spec": {"parallelism": 1}})))
        .pods([indexed("p0", "Running", "0", &long_terminating)])
        .reconcile();
    assert_eq!(transcript.created().iter().map(index).collect::<Vec<_>>(), [json!("0")]);
}

/// Proves JOB-64, JOB-65, JOB-140, JOB-145, JOB-153, JOB-151.
#[test]
fn a_failed_creation_ends_the_batches_and_the_reconcile_is_retried() {
    let fixture = JobFixture::of(spec(&json!({"parallelism": 3, "completions": 3})));
    let transcript = fixture.failing("create", "", ErrorReason::Forbidden).reconcile();
    assert_eq!(transcript.requests().iter().filter(|line| line.starts_with("create")).count(), 1);
    assert_eq!(transcript.events(), ["Warning FailedCreate on Job a/j uid=j-1: Error creating: refused"]);
    assert_eq!((transcript.status()["active"].as_i64(), transcript.is_retried()), (Some(0), true));
    assert_eq!(transcript.measured("job_pods_creation_total"), ["new,succeeded} 1", "new,failed} 1"]);
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,error,pods_created} 1"]);
    assert_eq!(transcript.measured("job_sync_duration_seconds"), ["NonIndexed,error,pods_created} 0"]);
}

/// Proves JOB-66, JOB-141.
#[test]
fn a_creation_in_a_terminating_namespace_is_not_an_error() {
    let transcript =
        JobFixture::of(spec(&json!({}))).failing("create", "", ErrorReason::NamespaceTerminating).reconcile();
    assert!(!transcript.is_retried() && transcript.status()["active"] == 1, "{}", transcript.0);
    assert!(!transcript.0.contains("FailedCreate"));
    assert_eq!(transcript.measured("job_pods_creation_total"), [""; 0]);
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,success,pods_created} 1"]);
}

/// Proves JOB-146.
#[test]
fn the_action_is_pods_created_even_if_no_index_is_left_for_a_missing_pod() {
    let one_failed = json!({"spec": {"backoffLimitPerIndex": 0, "maxFailedIndexes": 9, "backoffLimit": 99},
                            "status": {"failedIndexes": "0"}});
    let pods = || ["1", "2"].map(|index| indexed(&format!("p{index}"), "Running", index, &json!({})));
    let transcript = JobFixture::of(indexed_spec(3, &one_failed)).pods(pods()).reconcile();
    assert_eq!((transcript.created().len(), transcript.is_retried()), (0, false), "{}", transcript.0);
    assert_eq!(transcript.measured("job_syncs_total"), ["Indexed,success,pods_created} 1"]);
    assert_eq!(transcript.measured("job_pods_creation_total"), [""; 0]);
    let fewer = json!({"spec": {"parallelism": 2}});
    let transcript = JobFixture::of(indexed_spec(3, &merged(&one_failed, &fewer))).pods(pods()).reconcile();
    assert_eq!(transcript.measured("job_syncs_total"), ["Indexed,success,tracking} 1"]);
    let invalid = json!({"spec": {"selector": {"matchExpressions": [{"key": "job", "operator": "Odd"}]}}});
    let transcript = JobFixture::of(job(&invalid)).reconcile();
    assert!(transcript.is_retried());
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,error,reconciling} 1"]);
}

/// Proves JOB-141.
#[test]
fn no_event_is_recorded_for_a_pod_that_was_already_deleted() {
    let pods = [pod("p", "Running", &json!({}))];
    let transcript = JobFixture::of(spec(&json!({"parallelism": 0})))
        .pods(pods)
        .failing("delete", "p", ErrorReason::NotFound)
        .reconcile();
    assert!(!transcript.0.contains("FailedDelete"), "{}", transcript.0);
}

/// Proves JOB-171.
#[test]
fn no_pod_is_created_from_a_template_without_labels() {
    let transcript = JobFixture::of(spec(&json!({"template": {"metadata": {"labels": null}}}))).reconcile();
    assert!(
        transcript.is_retried() && transcript.created().is_empty() && transcript.0.contains("no labels"),
        "{}",
        transcript.0
    );
}

/// Proves JOB-57, JOB-68, JOB-69, JOB-143, JOB-173, JOB-146, JOB-118.
#[test]
fn a_suspended_job_has_no_pods_and_a_suspended_condition() {
    let suspended = json!({"spec": {"suspend": true, "parallelism": 600, "completions": 600},
                           "status": {"startTime": at(-50), "conditions": [{"type": "X", "status": "True"}]}});
    let pods = || (0..510).map(|n| pod(&format!("p{n}"), "Running", &json!({})));
    let transcript = JobFixture::of(job(&suspended)).pods(pods()).reconcile();
    assert_eq!((transcript.deleted().len(), transcript.patched().len()), (510, 510));
    let status = transcript.status();
    assert_eq!((&status["failed"], &status["startTime"]), (&json!(0), &Value::Null));
    assert_eq!(
        status["conditions"][1],
        json!({"type": "Suspended", "status": "True", "reason": "JobSuspended",
        "message": "Job suspended", "lastProbeTime": at(0), "lastTransitionTime": at(0)})
    );
    assert!(transcript.events().contains(&"Normal Suspended on Job a/j uid=j-1: Job suspended"));
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,success,pods_deleted} 1"]);
    let kept = super::super::JobOptions {
        clear_start_time_on_suspend: false,
        ..super::super::JobOptions::default()
    };
    assert_eq!(JobFixture::with_options(&kept, job(&suspended)).reconcile().status()["startTime"], at(-50));
    // The condition is already set.
    let mut already_suspended = suspended;
    already_suspended["status"] = json!({"startTime": at(-5), "active": 3, "conditions": [{"type": "Suspended", "status": "True",
        "reason": "JobSuspended", "message": "Job suspended", "lastTransitionTime": at(-9)}]});
    let transcript = JobFixture::of(job(&already_suspended)).reconcile();
    assert_eq!((transcript.events().len(), &transcript.status()["startTime"]), (0, &json!(at(-5))));
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,success,pods_deleted} 1"]);
}

/// Proves JOB-70, JOB-143, JOB-40, JOB-118.
#[test]
fn a_resumed_job_gets_a_new_start_time() {
    let suspended = json!({"status": {"startTime": at(-50), "conditions": [
        {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"},
        {"type": "X", "status": "True"}]}});
    let transcript = JobFixture::of(job(&suspended)).reconcile();
    assert_eq!(transcript.status()["conditions"][0]["status"], "False");
    assert_eq!(transcript.conditions()[0], "Suspended=False JobResumed");
    assert_eq!(transcript.status()["startTime"], at(0));
    assert!(transcript.events().contains(&"Normal Resumed on Job a/j uid=j-1: Job resumed"));
    let fresh = JobFixture::of(job(&json!({}))).reconcile();
    assert_eq!(fresh.status()["conditions"], Value::Null);
    let suspended = JobFixture::of(job(&json!({"spec": {"suspend": true}}))).reconcile();
    assert_eq!(suspended.status()["startTime"], Value::Null);
}

/// Proves JOB-63, JOB-72, JOB-73, JOB-75, JOB-154, JOB-146, JOB-166.
#[test]
fn the_backoff_grows_with_the_failures() {
    let overrides = json!({"spec": {"parallelism": 2, "completions": 9, "backoffLimit": 99}});
    let mut fixture = JobFixture::of(job(&overrides)).pods([
        pod("f1", "Failed", &terminated(1, -7)),
        pod("f2", "Failed", &terminated(1, -4)),
        pod("r", "Running", &json!({})),
    ]);
    let transcript = fixture.reconcile();
    // Two failures: 20 s after the later one.
    assert_eq!((transcript.created().len(), transcript.requeue_after()), (0, Some("16s")));
    assert_eq!(transcript.status()["active"], 1);
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,success,pods_created} 1"]);
    // The pods are counted and deleted; the process remembers the failures.
    for name in ["f1", "f2"] {
        fixture.cluster.take::<keleustes_objects::Pod>(
            &fixture.controller.loops[0],
            &keleustes_objects::Key::namespaced("a", name),
        );
    }
    fixture.change_job(job(&merged(&overrides, &json!({"status": {"failed": 2, "startTime": at(0)}}))));
    assert_eq!(fixture.reconcile().requeue_after(), Some("16s"));
    fixture.cluster.advance_clock(std::time::Duration::from_secs(15));
    assert_eq!(fixture.reconcile().requeue_after(), Some("1s"));
    fixture.cluster.advance_clock(std::time::Duration::from_secs(1));
    assert_eq!(fixture.reconcile().created().len(), 1);
    // A new process does not know the failures.
    let transcript = JobFixture::of(job(&merged(&overrides, &json!({"status": {"failed": 2}})))).reconcile();
    assert_eq!(transcript.created().len(), 2);
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut both = one.clone();
    merge(&mut both, other);
    both
}

/// Proves JOB-72.
#[test]
fn failures_are_only_remembered_if_the_status_write_succeeded() {
    let overrides = json!({"spec": {"parallelism": 2, "completions": 9}});
    let mut fixture = JobFixture::of(job(&overrides)).pods([pod("f1", "Failed", &terminated(1, -4))]);
    fixture = fixture.failing_job("update", ErrorReason::Conflict, Some(1));
    assert!(fixture.reconcile().is_retried());
    // Still one failure, not two: 10 s after it finished.
    assert_eq!(fixture.reconcile().requeue_after(), Some("6s"));
}

/// Proves JOB-81, JOB-82, JOB-83.
#[test]
fn a_pod_of_an_indexed_job_gets_its_index() {
    let own = json!([{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]);
    let template = json!({"spec": {"template": {"spec": {"hostname": "h", "initContainers": [{"name": "i"}],
        "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}, {"name": "d", "env": own}]}}}});
    let transcript = JobFixture::of(indexed_spec(1, &template)).reconcile();
    let body = &transcript.created()[0];
    let name = "batch.kubernetes.io/job-completion-index";
    assert_eq!(
        (&body["metadata"]["labels"][name], &body["metadata"]["annotations"][name]),
        (&json!("0"), &json!("0"))
    );
    assert_eq!(
        (&body["metadata"]["generateName"], &body["spec"]["hostname"]),
        (&json!("j-0-"), &json!("j-0"))
    );
    let variable = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef":
        {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}});
    let spec = &body["spec"];
    assert_eq!(spec["initContainers"][0]["env"], json!([variable]));
    assert_eq!(spec["containers"][0]["env"], json!([{"name": "A", "value": "b"}, variable]));
    assert_eq!(spec["containers"][1]["env"], own);
    let long = "x".repeat(60);
    let mut fixture = JobFixture::of(indexed_spec(1, &json!({"metadata": {"name": long}})));
    let transcript = super::fixture::Transcript(
        fixture
            .cluster
            .reconcile(&fixture.controller.loops[0], keleustes_objects::Key::namespaced("a", &*long)),
    );
    let prefix = transcript.created()[0]["metadata"]["generateName"].as_str().unwrap().to_owned();
    assert_eq!(prefix, format!("{}-0-", "x".repeat(55)));
}

/// Proves JOB-77, JOB-78, JOB-84, JOB-90, JOB-91, JOB-92, JOB-95, JOB-166.
#[test]
fn a_failed_index_has_its_own_backoff_and_passes_its_failure_count_on() {
    let overrides = json!({"spec": {"backoffLimitPerIndex": 9, "backoffLimit": i32::MAX}});
    let failures = |counted: &str, ignored: &str, seconds: i64| {
        let mut more = terminated(1, seconds);
        let names = [
            "batch.kubernetes.io/job-index-failure-count",
            "batch.kubernetes.io/job-index-ignored-failure-count",
        ];
        merge(&mut more, &json!({"metadata": {"annotations": {names[0]: counted, names[1]: ignored}}}));
        more
    };
    // 1 + 1 + 1 failures: 40 s; no other index needs a pod.
    let pods =
        [indexed("f", "Failed", "0", &failures("1", "1", -15)), indexed("r", "Running", "1", &json!({}))];
    let transcript = JobFixture::of(indexed_spec(2, &overrides)).pods(pods.clone()).reconcile();
    assert_eq!(
        (transcript.created().len(), transcript.requeue_after(), transcript.patched()),
        (0, Some("25s"), vec![])
    );
    // Index 2 has no backoff.
    let transcript = JobFixture::of(indexed_spec(3, &overrides)).pods(pods).reconcile();
    let annotations =
        |transcript: &super::fixture::Transcript| transcript.created()[0]["metadata"]["annotations"].clone();
    assert_eq!(
        annotations(&transcript),
        json!({"batch.kubernetes.io/job-completion-index": "2",
        "batch.kubernetes.io/job-index-failure-count": "0"})
    );
    // The backoff is over.
    let late = |counted: &str, ignored: &str| {
        let pods = [indexed("f", "Failed", "0", &failures(counted, ignored, -700))];
        annotations(&JobFixture::of(indexed_spec(1, &overrides)).pods(pods).reconcile())
    };
    let counts = |counted: &str, ignored: Option<&str>| {
        let mut counts = json!({"batch.kubernetes.io/job-completion-index": "0",
            "batch.kubernetes.io/job-index-failure-count": counted});
        if let Some(ignored) = ignored {
            counts["batch.kubernetes.io/job-index-ignored-failure-count"] = json!(ignored);
        }
        counts
    };
    assert_eq!(late("1", "1"), counts("2", Some("1")));
    for odd in ["x", "-1", "2147483648", ""] {
        assert_eq!(late(odd, odd), counts("1", None), "{odd}");
    }
    let ignoring = json!({"spec": {"podFailurePolicy": {"rules": [{"action": "Ignore",
        "onExitCodes": {"operator": "In", "values": [1]}}]}}});
    let pods = [indexed("f", "Failed", "0", &failures("1", "1", -700))];
    let transcript = JobFixture::of(indexed_spec(1, &merged(&overrides, &ignoring))).pods(pods).reconcile();
    assert_eq!(annotations(&transcript), counts("1", Some("2")));
}

/// Proves JOB-95, JOB-96.
#[test]
fn a_failed_pod_keeps_its_finalizer_until_it_is_replaced() {
    let overrides = json!({"spec": {"backoffLimitPerIndex": 9, "backoffLimit": i32::MAX}});
    let failed = |name: &str, count: &str, seconds: i64| {
        let mut more = terminated(1, seconds);
        merge(
            &mut more,
            &json!({"metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": count}}}),
        );
        indexed(name, "Failed", "0", &more)
    };
    let pods = [failed("a", "0", -9), failed("b", "1", -5), failed("c", "1", -7), failed("d", "0", -1)];
    let transcript = JobFixture::of(indexed_spec(1, &overrides)).pods(pods.clone()).reconcile();
    assert_eq!(
        (transcript.patched(), transcript.status()["failed"].as_i64()),
        (vec!["a", "c", "d"], Some(3))
    );
    let with_replacement = pods.into_iter().chain([indexed("r", "Running", "0", &json!({}))]);
    let transcript = JobFixture::of(indexed_spec(1, &overrides)).pods(with_replacement).reconcile();
    assert_eq!(
        (transcript.patched(), transcript.status()["failed"].as_i64()),
        (vec!["a", "b", "c", "d"], Some(4))
    );
}

/// Proves JOB-151.
#[test]
fn created_pods_are_counted_by_reason() {
    let terminating = json!({"metadata": {"deletionTimestamp": at(-700)}});
    let reason = |policy: &str, pods: Vec<Value>| {
        let job = spec(&json!({"podReplacementPolicy": policy, "parallelism": 3, "completions": 3}));
        let transcript = JobFixture::of(job).pods(pods).reconcile();
        transcript.measured("job_pods_creation_total").first().map(|line| (*line).to_owned())
    };
    let failed = || pod("f", "Failed", &terminated(1, -700));
    assert_eq!(reason("TerminatingOrFailed", vec![]).as_deref(), Some("new,succeeded} 3"));
    assert_eq!(reason("Failed", vec![failed()]).as_deref(), Some("recreate_failed,succeeded} 3"));
    let other = Some("recreate_terminating_or_failed,succeeded} 3");
    assert_eq!(reason("TerminatingOrFailed", vec![failed()]).as_deref(), other);
    assert_eq!(reason("TerminatingOrFailed", vec![pod("g", "Running", &terminating)]).as_deref(), other);
    let terminating = reason("Failed", vec![pod("g", "Running", &terminating)]);
    assert_eq!(terminating.as_deref(), Some("recreate_terminating_or_failed,succeeded} 2"));
}
