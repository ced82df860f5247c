//! How Jobs finish, which pods are counted, and the order of the writes.

use keleustes_objects::{ErrorReason, Key, Pod};
use serde_json::{Value, json};

use super::fixture::{JobFixture, Transcript, at, indexed, indexed_spec, job, merge, pod, terminated};

fn conditions_of(job: Value, pods: impl IntoIterator<Item = Value>) -> Vec<String> {
    JobFixture::of(job).pods(pods).reconcile().conditions()
}

fn condition(r#type: &str, status: &str, reason: &str) -> Value {
    json!({"type": r#type, "status": status, "reason": reason, "message": "m"})
}

/// Proves JOB-52, JOB-109, JOB-112, JOB-113, JOB-115, JOB-116, JOB-117, JOB-118, JOB-135, JOB-138, JOB-142, JOB-147, JOB-39.
#[test]
fn the_last_succeeded_pod_is_listed_untracked_and_counted_and_completes_the_job() {
    let transcript =
        JobFixture::of(job(&json!({}))).pods([pod("p", "Succeeded", &terminated(0, -1))]).reconcile();
    let [first, second] = &transcript.statuses()[..] else { panic!("{}", transcript.0) };
    assert_eq!(first["uncountedTerminatedPods"], json!({"succeeded": ["p-1"]}));
    assert_eq!((&first["succeeded"], &first["completionTime"]), (&json!(0), &Value::Null));
    assert_eq!(first["conditions"][0]["type"], "SuccessCriteriaMet");
    assert_eq!(first["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(second["uncountedTerminatedPods"], json!({}));
    assert_eq!((&second["succeeded"], &second["completionTime"]), (&json!(1), &json!(at(0))));
    let condition = |r#type: &str| {
        json!({"type": r#type, "status": "True", "reason": "CompletionsReached",
        "message": "Reached expected number of succeeded pods", "lastProbeTime": at(0), "lastTransitionTime": at(0)})
    };
    assert_eq!(second["conditions"], json!([condition("SuccessCriteriaMet"), condition("Complete")]));
    let order = ["put jobs.batch/status a/j", "patch pods a/p", "put jobs.batch/status a/j"];
    assert_eq!(transcript.requests(), order);
    let patch =
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}"#;
    assert!(transcript.0.contains(patch));
    assert_eq!(transcript.events(), ["Normal Completed on Job a/j uid=j-1: Job completed"]);
    assert_eq!(transcript.measured("jobs_finished_total"), ["NonIndexed,succeeded,CompletionsReached} 1"]);
    // Both series exist after the first status write, which counts no pod.
    let finished = [
        "NonIndexed,succeeded} 0",
        "NonIndexed,failed} 0",
        "NonIndexed,succeeded} 1",
        "NonIndexed,failed} 0",
    ];
    assert_eq!(transcript.measured("job_pods_finished_total"), finished);
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,success,tracking} 1"]);
}

/// Proves JOB-52, JOB-142.
#[test]
fn without_completions_one_success_completes_the_job_once_no_pod_is_active() {
    let open = json!({"spec": {"completions": null, "parallelism": 2}});
    let done = || pod("p", "Succeeded", &terminated(0, -1));
    let transcript = JobFixture::of(job(&open)).pods([done(), pod("r", "Running", &json!({}))]).reconcile();
    assert_eq!((transcript.conditions().len(), transcript.created().len()), (0, 0));
    assert_eq!(conditions_of(job(&open), [done()])[1], "Complete=True CompletionsReached");
    // More successes than completions.
    let transcript =
        JobFixture::of(job(&json!({}))).pods([done(), pod("q", "Succeeded", &terminated(0, -1))]).reconcile();
    assert_eq!(
        transcript.events()[0].split(':').next(),
        Some("Warning TooManySucceededPods on Job a/j uid=j-1")
    );
    assert_eq!(transcript.events()[1], "Normal Completed on Job a/j uid=j-1: Job completed");
}

/// Proves JOB-55.
#[test]
fn a_suspended_job_with_zero_completions_completes() {
    let job = job(&json!({"spec": {"suspend": true, "completions": 0}}));
    assert_eq!(
        conditions_of(job, []),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
}

/// Proves JOB-46, JOB-53, JOB-54, JOB-110, JOB-115, JOB-116, JOB-142, JOB-168, JOB-160, JOB-147.
#[test]
fn exceeding_the_backoff_limit_fails_the_job_once_all_pods_are_terminated() {
    let overrides = json!({"spec": {"backoffLimit": 1, "parallelism": 3, "completions": 9}});
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let failed = ["f1", "f2"].map(|name| pod(name, "Failed", &terminated(1, -1)));
    let transcript = JobFixture::of(job(&overrides))
        .pods(failed.clone().into_iter().chain([pod("r", "Running", &ready)]))
        .reconcile();
    assert_eq!((transcript.deleted(), transcript.created().len()), (vec!["r"], 0));
    assert_eq!(transcript.requests()[..2], ["delete pods a/r", "put jobs.batch/status a/j"]);
    assert_eq!(transcript.conditions(), ["FailureTarget=True BackoffLimitExceeded"]);
    assert_eq!(
        transcript.statuses()[0]["uncountedTerminatedPods"],
        json!({"failed": ["f1-1", "f2-1", "r-1"]})
    );
    let status = transcript.status();
    assert_eq!(
        ["active", "ready", "terminating", "failed"].map(|field| status[field].as_i64().unwrap()),
        [0, 0, 1, 3]
    );
    assert_eq!(transcript.measured("job_syncs_total"), ["NonIndexed,success,reconciling} 1"]);
    let finished = transcript.measured("job_pods_finished_total");
    assert_eq!(finished[2..], ["NonIndexed,succeeded} 0", "NonIndexed,failed} 3"]);
    assert!(transcript.measured("jobs_finished_total").is_empty());
    // Without other pods the Job fails at once.
    let transcript = JobFixture::of(job(&overrides)).pods(failed).reconcile();
    assert_eq!(
        transcript.conditions(),
        ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]
    );
    let status = transcript.status();
    assert_eq!(status["conditions"][1]["message"], "Job has reached the specified backoff limit");
    assert_eq!(status["completionTime"], Value::Null);
    assert_eq!(
        transcript.events(),
        ["Warning BackoffLimitExceeded on Job a/j uid=j-1: Job has reached the specified backoff limit"]
    );
    assert_eq!(transcript.measured("jobs_finished_total"), ["NonIndexed,failed,BackoffLimitExceeded} 1"]);
    // A terminating pod without the finalizer delays the Failed condition.
    let terminating = json!({"metadata": {"deletionTimestamp": at(0), "finalizers": []}});
    let announced =
        merged(&overrides, &json!({"status": {"conditions": [condition("FailureTarget", "True", "X")]}}));
    let transcript = JobFixture::of(job(&announced)).pods([pod("g", "Running", &terminating)]).reconcile();
    assert_eq!(transcript.conditions(), ["FailureTarget=True X"]);
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut both = one.clone();
    merge(&mut both, other);
    both
}

/// Proves JOB-53.
#[test]
fn the_job_is_not_failed_while_a_pod_could_not_be_deleted() {
    let overrides = json!({"spec": {"backoffLimit": 0, "parallelism": 600, "completions": 900}});
    let running = (0..510).map(|n| pod(&format!("r{n}"), "Running", &json!({})));
    let fixture =
        JobFixture::of(job(&overrides)).pods([pod("f", "Failed", &terminated(1, -1))]).pods(running);
    let transcript = fixture.failing("delete", "r1", ErrorReason::Unavailable).reconcile();
    assert_eq!((transcript.deleted().len(), transcript.is_retried()), (510, true));
    assert_eq!((transcript.conditions().len(), transcript.status()["active"].as_i64()), (0, Some(1)));
    assert_eq!(transcript.patched(), ["f"]);
}

/// Proves JOB-47, JOB-161.
#[test]
fn a_job_that_exceeds_its_active_deadline_fails() {
    let started = |seconds: i64| {
        job(&json!({"spec": {"activeDeadlineSeconds": 30}, "status": {"startTime": at(-seconds)}}))
    };
    let transcript = JobFixture::of(started(12)).reconcile();
    assert_eq!((transcript.requeue_after(), transcript.created().len()), (Some("18s"), 1));
    let over = ["FailureTarget=True DeadlineExceeded", "Failed=True DeadlineExceeded"];
    assert_eq!(conditions_of(started(30), []), over);
    let transcript = JobFixture::of(started(30)).reconcile();
    assert_eq!(
        transcript.events(),
        ["Warning DeadlineExceeded on Job a/j uid=j-1: Job was active longer than specified deadline"]
    );
    let suspended = merged(&started(30), &json!({"spec": {"suspend": true}}));
    assert_eq!(conditions_of(suspended, []), ["Suspended=True JobSuspended"]);
    let both = merged(&started(30), &json!({"spec": {"backoffLimit": 0}}));
    assert_eq!(
        conditions_of(both, [pod("f", "Failed", &terminated(1, -1))])[0],
        "FailureTarget=True BackoffLimitExceeded"
    );
}

/// Proves JOB-47. The backoff of the error may be longer than the time that is left.
#[test]
fn a_job_whose_reconcile_fails_is_enqueued_at_its_deadline() {
    let started = || job(&json!({"spec": {"activeDeadlineSeconds": 30}, "status": {"startTime": at(-12)}}));
    let is_enqueued = |fixture: JobFixture| {
        let mut fixture = fixture;
        let transcript = fixture.reconcile();
        assert!(transcript.is_retried(), "{}", transcript.0);
        transcript.0.contains("enqueue a/j after 18s\n")
    };
    assert!(is_enqueued(JobFixture::of(started()).failing("create", "", ErrorReason::Forbidden)));
    assert!(is_enqueued(JobFixture::of(started()).failing_job("update", ErrorReason::Forbidden, None)));
    let suspended = merged(&started(), &json!({"spec": {"suspend": true}}));
    assert!(!is_enqueued(JobFixture::of(suspended).failing_job("update", ErrorReason::Forbidden, None)));
}

/// Proves JOB-48.
#[test]
fn container_restarts_count_as_failures_with_restart_policy_on_failure() {
    let restarted = |phase: &str, counts: [i32; 2]| {
        pod(
            "p",
            phase,
            &json!({"status": {
            "containerStatuses": [{"name": "c", "restartCount": counts[0]}],
            "initContainerStatuses": [{"name": "i", "restartCount": counts[1]}]}}),
        )
    };
    let fails = |limit: i32, policy: &str, pod: Value| {
        let overrides =
            json!({"spec": {"backoffLimit": limit, "template": {"spec": {"restartPolicy": policy}}}});
        !conditions_of(job(&overrides), [pod]).is_empty()
    };
    assert!(fails(3, "OnFailure", restarted("Running", [2, 1])));
    assert!(fails(3, "OnFailure", restarted("Pending", [3, 0])));
    assert!(!fails(3, "OnFailure", restarted("Running", [1, 1])));
    assert!(!fails(3, "Never", restarted("Running", [2, 1])));
    assert!(fails(0, "OnFailure", restarted("Running", [1, 0])));
    assert!(!fails(0, "OnFailure", restarted("Running", [0, 0])));
    assert!(!fails(3, "OnFailure", restarted("Unknown", [9, 9])));
}

/// Proves JOB-43, JOB-44, JOB-162, JOB-163.
#[test]
fn an_interim_condition_takes_precedence() {
    let announced =
        |conditions: Value| job(&json!({"spec": {"backoffLimit": 0}, "status": {"conditions": conditions}}));
    let failed = || [pod("f", "Failed", &terminated(1, -1))];
    let both = json!([condition("SuccessCriteriaMet", "True", "S"), condition("FailureTarget", "True", "F")]);
    assert_eq!(conditions_of(announced(both), failed())[2], "Complete=True S");
    let transcript = JobFixture::of(announced(json!([condition("FailureTarget", "True", "F")]))).reconcile();
    assert_eq!(transcript.conditions(), ["FailureTarget=True F", "Failed=True F"]);
    assert_eq!(transcript.status()["conditions"][1]["message"], "m");
    let neither =
        json!([condition("SuccessCriteriaMet", "False", "S"), condition("FailureTarget", "False", "F")]);
    let conditions = conditions_of(announced(neither), failed());
    assert_eq!(conditions.last().map(String::as_str), Some("Failed=True BackoffLimitExceeded"));
}

/// Proves JOB-37, JOB-38, JOB-107, JOB-108, JOB-156.
#[test]
fn each_pod_is_listed_once_and_counted_after_its_finalizer_is_removed() {
    let status = json!({"spec": {"completions": 9, "parallelism": 0},
        "status": {"succeeded": 4, "failed": 2, "uncountedTerminatedPods": {
            "succeeded": ["s1-1", "gone-1"], "failed": ["f1-1", "free-1", "late-1"]}}});
    let untracked = json!({"metadata": {"finalizers": []}});
    let terminating = json!({"metadata": {"deletionTimestamp": at(0)}});
    let pods = [
        pod("s1", "Succeeded", &json!({})),
        pod("s2", "Succeeded", &json!({})),
        pod("f1", "Failed", &json!({})),
        pod("late", "Succeeded", &json!({})),
        pod("free", "Failed", &untracked),
        pod("terminating", "Running", &terminating),
        pod("counted", "Failed", &untracked),
    ];
    let transcript = JobFixture::of(job(&status)).pods(pods).reconcile();
    let first = &transcript.statuses()[0];
    assert_eq!((&first["succeeded"], &first["failed"]), (&json!(5), &json!(3)));
    let listed = json!({"succeeded": ["s1-1", "s2-1"], "failed": ["f1-1", "late-1", "terminating-1"]});
    assert_eq!(first["uncountedTerminatedPods"], listed);
    assert_eq!(transcript.patched(), ["f1", "late", "s1", "s2", "terminating"]);
    let last = transcript.status();
    assert_eq!((&last["succeeded"], &last["failed"]), (&json!(7), &json!(6)));
}

/// Proves JOB-156, JOB-87, JOB-39.
#[test]
fn a_pod_listed_as_failed_that_exits_with_0_completes_its_index_and_counts_as_failed() {
    let listed = json!({"status": {"uncountedTerminatedPods": {"failed": ["p0-1"]}}});
    let pods =
        || [indexed("p0", "Succeeded", "0", &terminated(0, -1)), indexed("p1", "Running", "1", &json!({}))];
    let transcript = JobFixture::of(indexed_spec(2, &listed)).pods(pods()).reconcile();
    let status = transcript.status();
    assert_eq!(
        (&status["completedIndexes"], &status["succeeded"], &status["failed"]),
        (&json!("0"), &json!(1), &json!(1))
    );
    assert_eq!((transcript.created().len(), transcript.deleted().len()), (0, 0), "{}", transcript.0);
    // Other Jobs count pods, so one that counts as failed is replaced.
    let overrides = merged(&listed, &json!({"spec": {"completions": 2, "parallelism": 2}}));
    let pods = [pod("p0", "Succeeded", &terminated(0, -1)), pod("p1", "Running", &json!({}))];
    let transcript = JobFixture::of(job(&overrides)).pods(pods).reconcile();
    let status = transcript.status();
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(0), &json!(1)));
    assert_eq!((transcript.created().len(), transcript.deleted().len()), (1, 0), "{}", transcript.0);
}

/// Proves JOB-113, JOB-114, JOB-133.
#[test]
fn a_finalizer_is_removed_only_after_listing_and_a_pod_counted_only_after_removal() {
    let pods = || ["p1", "p2", "p3"].map(|name| pod(name, "Succeeded", &json!({})));
    let overrides = || job(&json!({"spec": {"completions": 3}}));
    for reason in [ErrorReason::Conflict, ErrorReason::Unavailable] {
        let transcript =
            JobFixture::of(overrides()).pods(pods()).failing_job("update", reason, None).reconcile();
        assert_eq!((transcript.patched().len(), transcript.is_retried()), (0, true));
        assert_eq!(transcript.requests(), ["put jobs.batch/status a/j"]);
    }
    let fixture = JobFixture::of(overrides()).pods(pods()).failing("patch", "p2", ErrorReason::Unavailable);
    let transcript = fixture.failing("patch", "p3", ErrorReason::NotFound).reconcile();
    assert!(transcript.is_retried());
    let last = transcript.status();
    assert_eq!(
        (&last["succeeded"], &last["uncountedTerminatedPods"]),
        (&json!(2), &json!({"succeeded": ["p2-1"]}))
    );
    assert_eq!(transcript.conditions(), ["SuccessCriteriaMet=True CompletionsReached"]);
}

/// Proves JOB-18, JOB-38, JOB-20.
#[test]
fn an_untracked_pod_is_not_listed_again_while_the_cache_shows_its_finalizer() {
    let overrides = json!({"spec": {"completions": 9, "parallelism": 0}});
    let mut fixture = JobFixture::of(job(&overrides)).pods([pod("p", "Failed", &json!({}))]);
    assert_eq!(fixture.reconcile().status()["failed"], 1);
    // The cache shows the new status, but the old pod.
    let counted = json!({"status": {"failed": 1, "startTime": at(0), "active": 0, "ready": 0, "terminating": 0,
                                    "uncountedTerminatedPods": {}}});
    fixture.change_job(job(&merged(&overrides, &counted)));
    let transcript = fixture.reconcile();
    assert_eq!(transcript.requests(), Vec::<String>::new(), "{}", transcript.0);
    // A deleted Job is forgotten together with its removed finalizers.
    fixture.cluster.take::<keleustes_objects::Job>(&fixture.controller.loops[0], &Key::namespaced("a", "j"));
    assert_eq!(fixture.reconcile().0, "");
    fixture.change_job(job(&overrides));
    assert_eq!(fixture.reconcile().patched(), ["p"]);
}

/// Proves JOB-111.
#[test]
fn a_reconcile_counts_at_most_500_pods() {
    let overrides = json!({"spec": {"completions": 510, "parallelism": 0}});
    let pods = || (0..510).map(|n| pod(&format!("p{n:03}"), "Succeeded", &json!({})));
    let transcript = JobFixture::of(job(&overrides)).pods(pods()).reconcile();
    assert_eq!((transcript.patched().len(), transcript.status()["succeeded"].as_i64()), (500, Some(500)));
    assert_eq!(transcript.conditions(), ["SuccessCriteriaMet=True CompletionsReached"]);
    let pods = (0..510).map(|n| indexed(&format!("p{n:03}"), "Succeeded", &n.to_string(), &json!({})));
    let transcript = JobFixture::of(indexed_spec(510, &json!({}))).pods(pods).reconcile();
    assert_eq!((transcript.patched().len(), transcript.patched()[499]), (500, "p499"));
    assert_eq!(transcript.conditions().len(), 1);
}

/// Proves JOB-87, JOB-88, JOB-109, JOB-157, JOB-158, JOB-108, JOB-150.
#[test]
fn an_index_succeeds_once_with_any_number_of_succeeded_pods() {
    let status = json!({"spec": {"parallelism": 0}, "status": {"succeeded": 3, "completedIndexes": "0,1,7"}});
    let done = |name: &str, index: &str| indexed(name, "Succeeded", index, &json!({}));
    let pods = [
        done("e", "0"),
        done("d", "3"),
        done("c", "3"),
        done("b", "9"),
        done("a", "2"),
        pod("none", "Succeeded", &json!({})),
        pod("bad", "Failed", &json!({})),
        indexed("far", "Failed", "6", &json!({})),
        indexed("free", "Succeeded", "4", &json!({"metadata": {"finalizers": []}})),
    ];
    let transcript = JobFixture::of(indexed_spec(5, &status)).pods(pods).reconcile();
    let first = &transcript.statuses()[0];
    assert_eq!((&first["completedIndexes"], &first["succeeded"]), (&json!("0-3"), &json!(4)));
    assert_eq!(first["uncountedTerminatedPods"], json!({}));
    assert_eq!(first["failedIndexes"], Value::Null);
    assert_eq!(transcript.patched(), ["bad", "none", "e", "a", "c", "d", "far", "b"]);
    assert_eq!(transcript.status()["failed"], 0);
    assert_eq!(transcript.measured("job_finished_indexes_total"), ["succeeded,global} 2"]);
    let finished = ["Indexed,succeeded} 2", "Indexed,failed} 0"];
    assert_eq!(transcript.measured("job_pods_finished_total"), finished);
    // A status write that counts no index makes the series of succeeded ones exist, not that of failed ones.
    let failed = [indexed("f", "Failed", "0", &json!({}))];
    let transcript =
        JobFixture::of(indexed_spec(5, &json!({"spec": {"parallelism": 0}}))).pods(failed).reconcile();
    assert_eq!(transcript.measured("job_finished_indexes_total"), ["succeeded,global} 0"; 2]);
}

/// Proves JOB-49, JOB-50, JOB-93, JOB-94, JOB-102, JOB-150.
#[test]
fn indexes_fail_individually_with_a_backoff_limit_per_index() {
    let overrides = |more: Value| {
        let limits = json!({"spec": {"backoffLimitPerIndex": 1, "backoffLimit": i32::MAX, "parallelism": 0}});
        indexed_spec(3, &merged(&limits, &more))
    };
    let failed = |name: &str, index: &str, count: &str, code: i32| {
        let failure_count =
            json!({"metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": count}}});
        indexed(name, "Failed", index, &merged(&terminated(code, -1), &failure_count))
    };
    // The index has not failed yet.
    let transcript = JobFixture::of(overrides(json!({}))).pods([failed("a", "0", "0", 1)]).reconcile();
    assert_eq!(transcript.status()["failedIndexes"], "");
    let transcript = JobFixture::of(overrides(json!({"status": {"failedIndexes": "2-7"}})))
        .pods([failed("a", "0", "1", 1)])
        .reconcile();
    assert_eq!((&transcript.status()["failedIndexes"], transcript.patched()), (&json!("0,2"), vec!["a"]));
    let finished = transcript.measured("job_finished_indexes_total");
    assert_eq!(finished[..2], ["succeeded,perIndex} 0", "failed,perIndex} 1"]);
    let most = json!({"spec": {"maxFailedIndexes": 1}, "status": {"failedIndexes": "2"}});
    let transcript = JobFixture::of(overrides(most)).pods([failed("a", "0", "1", 1)]).reconcile();
    assert_eq!(transcript.conditions()[0], "FailureTarget=True MaxFailedIndexesExceeded");
    let rest = json!({"status": {"completedIndexes": "1,2", "succeeded": 2}});
    let transcript = JobFixture::of(overrides(rest)).pods([failed("a", "0", "1", 1)]).reconcile();
    assert_eq!(transcript.conditions(), ["FailureTarget=True FailedIndexes", "Failed=True FailedIndexes"]);
    assert_eq!(transcript.status()["conditions"][1]["message"], "Job has failed indexes");
    // A FailIndex rule fails the index immediately, an Ignore rule ignores the failure.
    let rule = |action: &str| {
        json!({"spec": {"podFailurePolicy": {"rules": [
        {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]}}})
    };
    let transcript =
        JobFixture::of(overrides(rule("FailIndex"))).pods([failed("a", "0", "0", 42)]).reconcile();
    assert_eq!(
        (&transcript.status()["failedIndexes"], &transcript.status()["failed"]),
        (&json!("0"), &json!(1))
    );
    let transcript = JobFixture::of(overrides(rule("Ignore"))).pods([failed("a", "0", "1", 42)]).reconcile();
    assert_eq!(transcript.status()["failedIndexes"], "");
}

/// Proves JOB-51, JOB-104, JOB-105, JOB-110, JOB-162.
#[test]
fn a_success_policy_completes_the_job_early() {
    let with_rules = |rules: Value, more: Value| {
        let overrides = json!({"spec": {"successPolicy": {"rules": rules}, "parallelism": 0}});
        indexed_spec(5, &merged(&overrides, &more))
    };
    let met = |rules: Value, completed: &str| {
        let transcript =
            JobFixture::of(with_rules(rules, json!({"status": {"completedIndexes": completed}}))).reconcile();
        let status = transcript.status();
        status["conditions"][0]["message"].as_str().map(str::to_owned)
    };
    let at_0 = Some("Matched rules at index 0".to_owned());
    assert_eq!(met(json!([{"succeededIndexes": "1-2"}]), "1"), None);
    assert_eq!(met(json!([{"succeededIndexes": "1-2"}]), "1,2"), at_0);
    assert_eq!(met(json!([{"succeededIndexes": "1-9"}]), "1-4"), at_0);
    assert_eq!(met(json!([{"succeededIndexes": "0-2", "succeededCount": 2}]), "2-4"), None);
    assert_eq!(met(json!([{"succeededIndexes": "0-2", "succeededCount": 2}]), "1-2"), at_0);
    assert_eq!(met(json!([{"succeededCount": 2}]), "3"), None);
    assert_eq!(met(json!([{"succeededCount": 2}]), "3,4"), at_0);
    let unreadable = json!([{"succeededIndexes": "x", "succeededCount": 0}, {"succeededIndexes": "", "succeededCount": 0}, {"succeededCount": 1}]);
    assert_eq!(met(unreadable, "3").as_deref(), Some("Matched rules at index 2"));
    assert_eq!(met(json!([{"succeededCount": 0}]), ""), None);
    // Running pods are deleted and not counted.
    let enough = with_rules(json!([{"succeededCount": 1}]), json!({"status": {"completedIndexes": "3"}}));
    let transcript = JobFixture::of(enough).pods([indexed("r", "Running", "0", &json!({}))]).reconcile();
    assert_eq!((transcript.deleted(), transcript.patched()), (vec!["r"], vec!["r"]));
    assert_eq!(
        (transcript.conditions(), &transcript.status()["failed"]),
        (vec!["SuccessCriteriaMet=True SuccessPolicy".to_owned()], &json!(0))
    );
    // Failure takes precedence over success.
    let both = with_rules(
        json!([{"succeededCount": 1}]),
        json!({"spec": {"backoffLimit": 0}, "status": {"completedIndexes": "3"}}),
    );
    let conditions = conditions_of(both, [indexed("f", "Failed", "0", &json!({}))]);
    assert_eq!(conditions[0], "FailureTarget=True BackoffLimitExceeded");
}

/// Proves JOB-155, JOB-59.
#[test]
fn a_terminating_job_removes_the_finalizers_of_all_pods() {
    let terminating = json!({"metadata": {"deletionTimestamp": at(0), "finalizers": ["foregroundDeletion"]},
        "spec": {"completions": 9, "parallelism": 3, "suspend": true}});
    let pods = || [pod("r", "Running", &json!({})), pod("s", "Succeeded", &json!({}))];
    let transcript = JobFixture::of(job(&terminating)).pods(pods()).reconcile();
    assert_eq!(
        (transcript.deleted().len(), transcript.created().len(), transcript.patched()),
        (0, 0, vec!["r", "s"])
    );
    assert_eq!((&transcript.status()["succeeded"], &transcript.status()["failed"]), (&json!(1), &json!(0)));
    assert_eq!((transcript.conditions().len(), transcript.events().len()), (0, 0));
    let failing = merged(&terminating, &json!({"spec": {"backoffLimit": 0}}));
    let transcript = JobFixture::of(job(&failing))
        .pods(pods().into_iter().chain([pod("f", "Failed", &json!({}))]))
        .reconcile();
    assert_eq!((transcript.deleted(), transcript.conditions().len()), (vec!["r"], 1));
}

/// Proves JOB-30, JOB-31, JOB-32, JOB-33, JOB-34, JOB-136.
#[test]
fn adoption_adds_and_release_removes_the_finalizer() {
    let untracked = json!({"metadata": {"finalizers": [], "ownerReferences": []}});
    let other = json!({"metadata": {"labels": {"job": "other"}}});
    let overrides = || job(&json!({"spec": {"completions": 9, "parallelism": 0}}));
    let pods = || {
        [
            pod("new", "Succeeded", &untracked),
            pod(
                "terminating",
                "Succeeded",
                &merged(&untracked, &json!({"metadata": {"deletionTimestamp": at(0)}})),
            ),
            pod("strange", "Failed", &merged(&untracked, &other)),
            pod("lost", "Failed", &other),
        ]
    };
    let transcript = JobFixture::of(overrides()).pods(pods()).reconcile();
    let lines: Vec<&str> = transcript.0.lines().filter(|line| line.starts_with("patch")).collect();
    let adoption = json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"], "ownerReferences": [super::fixture::owner()]}});
    let release = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [{"$patch": "delete", "uid": "j-1"}]}});
    assert!(
        lines[0].starts_with("patch pods a/lost") && lines[0].ends_with(&release.to_string()),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].starts_with("patch pods a/new") && lines[1].ends_with(&adoption.to_string()),
        "{}",
        lines[1]
    );
    assert_eq!(transcript.patched(), ["lost", "new", "new"]);
    assert_eq!((&transcript.status()["succeeded"], &transcript.status()["failed"]), (&json!(1), &json!(0)));
    // An adopted surplus pod is deleted without being counted, after its new finalizer is removed.
    let surplus = JobFixture::of(overrides()).pods([pod("extra", "Running", &untracked)]).reconcile();
    assert_eq!((surplus.patched(), surplus.deleted()), (vec!["extra", "extra"], vec!["extra"]));
    for (name, reason) in [("new", ErrorReason::Forbidden), ("lost", ErrorReason::Forbidden)] {
        let transcript = JobFixture::of(overrides()).pods(pods()).failing("patch", name, reason).reconcile();
        assert!(transcript.is_retried() && transcript.statuses().is_empty(), "{}", transcript.0);
    }
    for reason in [ErrorReason::NotFound, ErrorReason::Invalid] {
        let transcript =
            JobFixture::of(overrides()).pods(pods()).failing("patch", "lost", reason).reconcile();
        assert!(!transcript.is_retried(), "{}", transcript.0);
    }
    // A pod that is not found during adoption does not count.
    let not_found =
        JobFixture::of(overrides()).pods(pods()).failing("patch", "new", ErrorReason::NotFound).reconcile();
    assert!(!not_found.is_retried() && not_found.status()["succeeded"] != 1, "{}", not_found.0);
    let terminating = merged(&overrides(), &json!({"metadata": {"deletionTimestamp": at(0)}}));
    assert_eq!(JobFixture::of(terminating).pods(pods()).reconcile().patched(), Vec::<&str>::new());
}

/// With `JobManagedBy` off, which an emulated 1.34 allows, the field has no meaning.
#[test]
fn job_of_another_controller_is_reconciled_while_its_gate_is_off() {
    let off = super::super::JobOptions { honor_managed_by: false, ..super::super::JobOptions::default() };
    let foreign = || job(&json!({"spec": {"managedBy": "example.com/other"}}));
    assert_eq!(JobFixture::of(foreign()).reconcile().0, "");
    let plain = JobFixture::of(job(&json!({}))).reconcile().0;
    assert_eq!(JobFixture::with_options(&off, foreign()).reconcile().0, plain);
}

/// Proves JOB-24.
#[test]
fn a_finished_job_loses_its_backoff_and_its_removed_finalizers() {
    let overrides = json!({"spec": {"completions": 9}});
    let counted = json!({"status": {"failed": 1, "startTime": at(0), "uncountedTerminatedPods": {}}});
    let again = |end: &str| {
        let mut fixture = JobFixture::of(job(&overrides)).pods([pod("f", "Failed", &terminated(1, -1))]);
        assert_eq!(fixture.reconcile().requeue_after(), Some("9s"));
        let ended = json!({"status": {"conditions": [condition("Complete", end, "R")]}});
        fixture.change_job(job(&merged(&merged(&overrides, &counted), &ended)));
        let is_skipped = fixture.reconcile().0.is_empty();
        fixture.change_job(job(&merged(&overrides, &counted)));
        let transcript = fixture.reconcile();
        (
            is_skipped,
            transcript.created().len(),
            transcript.requeue_after().map(str::to_owned),
            transcript.patched().len(),
        )
    };
    // The cache still shows the finalizer of the counted pod. Only a process that has forgotten removes it again.
    assert_eq!(again("False"), (false, 0, Some("9s".to_owned()), 0));
    assert_eq!(again("True"), (true, 0, Some("9s".to_owned()), 1), "the failure is seen again");
    let mut fixture = JobFixture::of(job(&overrides)).pods([pod("f", "Failed", &terminated(1, -1))]);
    fixture.reconcile();
    fixture.cluster.take::<Pod>(&fixture.controller.loops[0], &Key::namespaced("a", "f"));
    fixture.change_job(job(&merged(
        &overrides,
        &json!({"status": {"conditions": [condition("Failed", "True", "R")]}}),
    )));
    assert_eq!(fixture.reconcile().0, "");
    fixture.change_job(job(&merged(&overrides, &counted)));
    let transcript = fixture.reconcile();
    assert_eq!((transcript.created().len(), transcript.requeue_after()), (1, None));
}

/// Proves JOB-23, JOB-26, JOB-143, JOB-146, JOB-20.
#[test]
fn finished_externally_managed_and_unknown_jobs_are_skipped() {
    let transcript =
        |more: Value| JobFixture::of(job(&more)).pods([pod("p", "Failed", &json!({}))]).reconcile().0;
    assert_eq!(transcript(json!({"spec": {"managedBy": "example.com/other"}})), "");
    assert_ne!(transcript(json!({"spec": {"managedBy": "kubernetes.io/job-controller"}})), "");
    for end in ["Complete", "Failed"] {
        assert_eq!(transcript(json!({"status": {"conditions": [condition(end, "True", "R")]}})), "");
        assert_ne!(transcript(json!({"status": {"conditions": [condition(end, "False", "R")]}})), "");
    }
    let unknown_mode = "event Warning UnknownCompletionMode on Job a/j uid=j-1: Skipped Job sync because completion mode is unknown\n";
    assert_eq!(transcript(json!({"spec": {"completionMode": "Strange"}})), unknown_mode);
    let mut fixture = JobFixture::of(job(&json!({})));
    fixture.cluster.take::<keleustes_objects::Job>(&fixture.controller.loops[0], &Key::namespaced("a", "j"));
    assert_eq!(fixture.reconcile().0, "");
}

/// Proves JOB-45, JOB-98, JOB-99, JOB-100, JOB-101, JOB-102, JOB-148.
#[test]
fn the_first_matching_rule_of_the_failure_policy_decides() {
    let transcript = |rules: Value, status: Value| -> Transcript {
        let overrides =
            json!({"spec": {"completions": 9, "parallelism": 0, "podFailurePolicy": {"rules": rules}}});
        JobFixture::of(job(&overrides)).pods([pod("p", "Failed", &json!({"status": status}))]).reconcile()
    };
    let message =
        |transcript: &Transcript| transcript.status()["conditions"][0]["message"].as_str().map(str::to_owned);
    let exit = |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": at(-1)}}});
    let codes = |operator: &str, values: &[i32], name: Value| json!([{"action": "FailJob", "onExitCodes": {"operator": operator, "values": values, "containerName": name}}]);
    let containers = json!({"containerStatuses": [exit("a", 0), {"name": "w", "state": {"running": {}}}, exit("b", -5)],
                            "initContainerStatuses": [exit("i", 7)]});
    let failed = |name: &str, code: i32| {
        Some(format!(
            "Container {name} for pod a/p failed with exit code {code} matching FailJob rule at index 0"
        ))
    };
    assert_eq!(message(&transcript(codes("In", &[7, -5], Value::Null), containers.clone())), failed("b", -5));
    assert_eq!(message(&transcript(codes("In", &[7], Value::Null), containers.clone())), failed("i", 7));
    assert_eq!(message(&transcript(codes("NotIn", &[-5], Value::Null), containers.clone())), failed("i", 7));
    assert_eq!(message(&transcript(codes("In", &[-5, 7], json!("i")), containers.clone())), failed("i", 7));
    for none in
        [codes("In", &[0], Value::Null), codes("NotIn", &[-5], json!("a")), codes("Odd", &[7], Value::Null)]
    {
        assert_eq!(message(&transcript(none, containers.clone())), None);
    }
    let condition = |action: &str, status: &str| json!({"action": action, "onPodConditions": [{"type": "Never", "status": "True"}, {"type": "DisruptionTarget", "status": status}]});
    let disrupted = json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let rules =
        json!([condition("FailJob", "False"), condition("Dream", "True"), condition("FailJob", "True")]);
    let failing = transcript(rules, disrupted.clone());
    assert_eq!(
        message(&failing).as_deref(),
        Some("Pod a/p has condition DisruptionTarget matching FailJob rule at index 2")
    );
    assert_eq!(failing.conditions()[0], "FailureTarget=True PodFailurePolicy");
    assert_eq!(failing.measured("pod_failures_handled"), ["FailJob} 1"]);
    // The first matching rule decides: Ignore or Count.
    for (action, failures) in [("Ignore", 0), ("Count", 1)] {
        let transcript =
            transcript(json!([condition(action, "True"), condition("FailJob", "True")]), disrupted.clone());
        assert_eq!(
            (transcript.status()["failed"].as_i64(), transcript.patched()),
            (Some(failures), vec!["p"]),
            "{action}"
        );
        assert_eq!(transcript.measured("pod_failures_handled"), [format!("{action}}} 1")]);
    }
    // An ignored failure still causes a backoff.
    let overrides =
        json!({"spec": {"podFailurePolicy": {"rules": [condition("Ignore", "True")]}, "backoffLimit": 0}});
    let recent = pod("p", "Failed", &merged(&terminated(1, -3), &json!({"status": disrupted})));
    let transcript = JobFixture::of(job(&overrides)).pods([recent]).reconcile();
    assert_eq!((transcript.created().len(), transcript.requeue_after()), (0, Some("7s")));
}

/// Proves JOB-100, JOB-101.
#[test]
fn a_failure_policy_names_the_first_matching_condition_of_the_pod() {
    // Not the first matching pattern of the rule.
    let patterns = ["Ready", "Last", "DisruptionTarget", "PodScheduled", "Absent"]
        .map(|r#type| json!({"type": r#type, "status": "True"}));
    let rules = json!([{"action": "FailJob", "onPodConditions": patterns}]);
    let overrides =
        json!({"spec": {"completions": 9, "parallelism": 0, "podFailurePolicy": {"rules": rules}}});
    let named = |conditions: &[(&str, &str)]| {
        let conditions: Vec<_> =
            conditions.iter().map(|(r#type, status)| json!({"type": r#type, "status": status})).collect();
        let failed = pod("p", "Failed", &json!({"status": {"conditions": conditions}}));
        let transcript = JobFixture::of(job(&overrides)).pods([failed]).reconcile();
        let message = transcript.status()["conditions"][0]["message"].as_str().map(str::to_owned)?;
        message.split(' ').nth(4).map(str::to_owned)
    };
    let all = ["Other", "PodScheduled", "DisruptionTarget", "Ready", "Last"].map(|r#type| (r#type, "True"));
    assert_eq!(named(&all).as_deref(), Some("PodScheduled"));
    for first in 2..5 {
        assert_eq!(named(&all[first..]).as_deref(), Some(all[first].0));
    }
    let others = [("PodScheduled", "False"), ("Ready", "Unknown"), ("Last", "True")];
    assert_eq!(named(&others).as_deref(), Some("Last"));
    assert_eq!(named(&[("PodScheduled", "False"), ("Other", "True")]), None);
}

/// Proves JOB-73, JOB-74, JOB-75, JOB-76, JOB-167.
#[test]
fn the_backoff_follows_the_failures_since_the_last_success() {
    let wait = |pods: Vec<Value>| {
        let transcript = JobFixture::of(job(&json!({"spec": {"completions": 99, "backoffLimit": 99}})))
            .pods(pods)
            .reconcile();
        transcript.requeue_after().map(str::to_owned)
    };
    let failures =
        |count: usize| (0..count).map(|n| pod(&format!("f{n}"), "Failed", &terminated(1, -1))).collect();
    let waits = [
        None,
        Some("9s"),
        Some("19s"),
        Some("39s"),
        Some("79s"),
        Some("159s"),
        Some("319s"),
        Some("599s"),
        Some("599s"),
    ];
    for (count, expected) in waits.into_iter().enumerate() {
        assert_eq!(wait(failures(count)).as_deref(), expected, "{count}");
    }
    let failed = |seconds: i64| pod(&format!("f{}", -seconds), "Failed", &terminated(1, seconds));
    assert_eq!(
        wait(vec![failed(-9), failed(-3), pod("s", "Succeeded", &terminated(0, -5))]).as_deref(),
        Some("7s")
    );
    assert_eq!(wait(vec![failed(-5), pod("s", "Succeeded", &terminated(0, -5))]), None);
    assert_eq!(wait(vec![pod("f", "Failed", &terminated(1, 20))]).as_deref(), Some("30s"));
    // When a pod finished, if its containers have no finish time.
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(-2)}]}});
    assert_eq!(wait(vec![pod("f", "Failed", &unready)]).as_deref(), Some("8s"));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-2)}]},
                       "metadata": {"deletionTimestamp": at(26), "deletionGracePeriodSeconds": 30}});
    assert_eq!(wait(vec![pod("f", "Failed", &ready)]).as_deref(), Some("6s"));
    assert_eq!(
        wait(vec![pod("f", "Failed", &json!({"metadata": {"creationTimestamp": at(-1)}}))]).as_deref(),
        Some("9s")
    );
    let sidecar = merged(
        &terminated(1, -5),
        &json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]},
        "status": {"initContainerStatuses": [{"name": "s", "state": {"terminated": {"exitCode": 0, "finishedAt": at(-1)}}}]}}),
    );
    assert_eq!(wait(vec![pod("f", "Failed", &sidecar)]).as_deref(), Some("9s"));
    let half = json!({"status": {"containerStatuses": [
        {"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": at(-1)}}}, {"name": "d", "state": {"running": {}}}]}});
    assert_eq!(wait(vec![pod("f", "Failed", &merged(&half, &unready))]).as_deref(), Some("8s"));
}

/// Proves JOB-165.
#[test]
fn a_recreated_job_has_no_backoff_and_no_pods_of_its_predecessor() {
    let overrides = json!({"spec": {"completions": 9}});
    let mut fixture = JobFixture::of(job(&overrides)).pods([pod("f", "Failed", &terminated(1, -1))]);
    assert_eq!(fixture.reconcile().requeue_after(), Some("9s"));
    fixture.cluster.take::<keleustes_objects::Job>(&fixture.controller.loops[0], &Key::namespaced("a", "j"));
    fixture.change_job(job(&merged(&overrides, &json!({"metadata": {"uid": "j-2"}}))));
    let transcript = fixture.reconcile();
    assert_eq!(
        (transcript.created().len(), transcript.patched(), transcript.requeue_after()),
        (1, vec![], None)
    );
    assert!(fixture.cluster.view().get::<Pod>(&Key::namespaced("a", "f")).is_some());
}
