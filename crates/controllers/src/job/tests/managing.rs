//! How many pods are made and removed, which, and what they look like.

use keleustes_objects::ErrorReason;
use serde_json::{Value, json};

use super::stage::{Stage, at, ended, indexed, indexed_spec, job, merge, pod};

fn spec(more: &Value) -> Value {
    job(&json!({"spec": more}))
}

/// Proves JOB-40, JOB-41, JOB-58, JOB-67, JOB-134, JOB-140, JOB-27.
#[test]
fn a_new_job_gets_its_pods_and_a_start() {
    let template = json!({"template": {"metadata": {"annotations": {"x": "y"}, "finalizers": ["f"]},
                                       "spec": {"unheard": 1}}, "parallelism": 2, "completions": 5});
    let turn = Stage::of(spec(&template)).turn();
    let [body, _] = &turn.created()[..] else { panic!("{}", turn.0) };
    let metadata = &body["metadata"];
    assert_eq!(metadata["generateName"], "j-");
    assert_eq!(metadata["labels"], json!({"job": "j"}));
    assert_eq!(metadata["annotations"], json!({"x": "y"}));
    assert_eq!(metadata["finalizers"], json!(["f", "batch.kubernetes.io/job-tracking"]));
    assert_eq!(metadata["ownerReferences"], json!([super::stage::owner()]));
    assert_eq!(body["spec"]["unheard"], 1);
    assert_eq!(body["spec"]["hostname"], Value::Null);
    let status = turn.status();
    assert_eq!(
        (&status["active"], &status["ready"], &status["terminating"]),
        (&json!(2), &json!(0), &json!(0))
    );
    assert_eq!(status["startTime"], at(0));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert_eq!(turn.events(), ["Normal SuccessfulCreate: Created pod: j-new"; 2]);
    // The finalizer is there once, also if the template has it.
    let template = json!({"template": {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}});
    let turn = Stage::of(spec(&template)).turn();
    assert_eq!(turn.created()[0]["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
}

/// Proves JOB-41.
#[test]
fn nothing_is_written_if_nothing_changed() {
    let status = json!({"status": {"startTime": at(-9), "active": 1, "ready": 0, "terminating": 0,
                                   "uncountedTerminatedPods": {}}});
    let turn = |status: &Value| Stage::of(job(status)).pods([pod("p", "Running", &json!({}))]).turn();
    assert_eq!(turn(&status).requests(), Vec::<String>::new());
    for field in ["active", "ready", "terminating"] {
        let mut other = status.clone();
        other["status"][field] = json!(3);
        assert_eq!(turn(&other).requests(), ["put jobs.batch/status a/j"], "{field}");
    }
}

/// Proves JOB-58.
#[test]
fn as_many_as_are_missing_are_wanted() {
    let wanted = |more: Value, succeeded: i32, active: usize| {
        let mut job = spec(&more);
        merge(&mut job, &json!({"status": {"succeeded": succeeded}}));
        let pods = (0..active).map(|n| pod(&format!("p{n}"), "Running", &json!({})));
        let turn = Stage::of(job).pods(pods).turn();
        (turn.created().len(), turn.deleted().len())
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
fn surplus_pods_lose_the_finalizer_and_are_deleted_and_none_is_made() {
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let pods = || ["p1", "p2"].map(|name| pod(name, "Running", &ready));
    let turn = Stage::of(spec(&json!({"parallelism": 0}))).pods(pods()).turn();
    assert_eq!(
        turn.requests()[..4],
        ["patch pods a/p1", "patch pods a/p2", "delete pods a/p1", "delete pods a/p2"]
    );
    assert_eq!(turn.status()["uncountedTerminatedPods"], json!({}));
    let counts =
        |status: &Value| [&status["active"], &status["ready"], &status["terminating"]].map(Value::to_string);
    assert_eq!(counts(&turn.status()), ["0", "0", "2"]);
    assert_eq!(
        turn.events(),
        ["Normal SuccessfulDelete: Deleted pod: p1", "Normal SuccessfulDelete: Deleted pod: p2"]
    );
    assert_eq!(turn.measured("job_syncs_total"), ["NonIndexed,success,pods_deleted} 1"]);
    // A pod that keeps its finalizer is not deleted, and the turn is tried again.
    let stage = Stage::of(spec(&json!({"parallelism": 0}))).pods(pods());
    let turn = stage.refusing("patch", "p1", ErrorReason::Unavailable).turn();
    assert_eq!((turn.deleted(), turn.is_retried()), (vec!["p2"], true));
    assert_eq!(counts(&turn.status()), ["1", "1", "1"]);
    // One that is gone is as good as removed.
    let stage = Stage::of(spec(&json!({"parallelism": 0}))).pods(pods());
    let turn = stage
        .refusing("delete", "p1", ErrorReason::NotFound)
        .refusing("patch", "p1", ErrorReason::NotFound)
        .turn();
    assert_eq!((counts(&turn.status()), turn.is_retried()), (["0", "0", "2"].map(str::to_owned), false));
    let stage = Stage::of(spec(&json!({"parallelism": 0}))).pods(pods());
    let turn = stage.refusing("delete", "p1", ErrorReason::Unavailable).turn();
    assert_eq!((counts(&turn.status()), turn.is_retried()), (["1", "0", "1"].map(str::to_owned), true));
    assert_eq!(turn.events()[0], "Warning FailedDelete: Error deleting: refused");
}

/// Proves JOB-59, JOB-61.
#[test]
fn a_turn_makes_or_removes_five_hundred_pods_at_most() {
    let many = json!({"parallelism": 600, "completions": 900});
    assert_eq!(Stage::of(spec(&many)).turn().created().len(), 500);
    let pods = || (0..520).map(|n| pod(&format!("p{n}"), "Running", &json!({})));
    let turn = Stage::of(spec(&json!({"parallelism": 0, "completions": 900}))).pods(pods()).turn();
    assert_eq!((turn.deleted().len(), turn.status()["active"].as_i64()), (500, Some(20)));
    // Two share an index and another one is missing: removing comes first.
    let pods = [indexed("a0", "Running", "0", &json!({})), indexed("b0", "Pending", "0", &json!({}))];
    let turn = Stage::of(indexed_spec(3, &json!({}))).pods(pods).turn();
    assert_eq!((turn.deleted(), turn.created().len()), (vec!["b0"], 0));
}

/// Proves JOB-60.
#[test]
fn those_that_have_done_the_least_go_first() {
    let ready = |seconds: i64| json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(seconds)}]});
    let restarts = |count: i32| json!({"containerStatuses": [{"name": "c", "restartCount": count}]});
    let sidecar = |count: i32| {
        json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]},
               "status": {"initContainerStatuses": [{"name": "s", "restartCount": count}]}})
    };
    // Each pair: who goes, who stays. Names are against the order that decides.
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
    for (goes, stays) in pairs {
        let turn = Stage::of(spec(&json!({"completions": 5}))).pods([stays.clone(), goes.clone()]).turn();
        assert_eq!(turn.deleted(), ["z"], "{goes} {stays}");
    }
}

/// Proves JOB-61, JOB-80, JOB-88, JOB-170.
#[test]
fn pods_without_a_place_among_the_indexes_go_first() {
    let odd = ["", "x", "-1", "3", "99999999999999999999"];
    let mut pods: Vec<Value> = odd
        .iter()
        .map(|index| indexed(&format!("odd{index}").to_lowercase(), "Running", index, &json!({})))
        .collect();
    pods.push(pod("none", "Running", &json!({})));
    pods.extend((0..3).map(|n| indexed(&format!("p{n}"), "Running", &n.to_string(), &json!({}))));
    pods.push(indexed("second", "Pending", "1", &json!({})));
    let turn = Stage::of(indexed_spec(3, &json!({"spec": {"parallelism": 10}}))).pods(pods).turn();
    let mut deleted = turn.deleted();
    deleted.sort_unstable();
    assert_eq!(deleted, ["none", "odd", "odd-1", "odd3", "odd99999999999999999999", "oddx", "second"]);
    // Scaled to nothing: all pods go, and it is complete with no index once they are gone.
    let pods = [indexed("p0", "Running", "0", &json!({}))];
    let mut stage =
        Stage::of(indexed_spec(0, &json!({"status": {"completedIndexes": "0,1", "succeeded": 2}})))
            .pods(pods);
    let turn = stage.turn();
    assert_eq!((turn.deleted(), turn.released()), (vec!["p0"], vec!["p0"]));
    let gone =
        Stage::of(indexed_spec(0, &json!({"status": {"completedIndexes": "0,1", "succeeded": 2}}))).turn();
    assert_eq!(
        gone.conditions(),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
    assert_eq!(
        (gone.status()["succeeded"].as_i64(), &gone.status()["completedIndexes"]),
        (Some(0), &Value::Null)
    );
}

/// Proves JOB-62, JOB-159, JOB-84, JOB-36.
#[test]
fn who_is_going_is_replaced_at_once_or_once_it_has_ended() {
    let going = json!({"metadata": {"deletionTimestamp": at(0)}});
    let policy =
        |policy: &str| spec(&json!({"podReplacementPolicy": policy, "parallelism": 2, "completions": 2}));
    let pods = || [pod("p1", "Running", &going), pod("p2", "Running", &json!({}))];
    let turn = Stage::of(policy("Failed")).pods(pods()).turn();
    assert_eq!((turn.created().len(), turn.released()), (0, vec![]));
    assert_eq!((turn.status()["terminating"].as_i64(), turn.status()["active"].as_i64()), (Some(1), Some(1)));
    assert_eq!(turn.status()["failed"], 0);
    let turn = Stage::of(policy("Failed"))
        .pods([pod("p1", "Failed", &going), pod("p2", "Running", &json!({}))])
        .turn();
    assert_eq!((turn.released(), turn.status()["failed"].as_i64()), (vec!["p1"], Some(1)));
    // Its index is not free before either.
    let replaced = json!({"spec": {"podReplacementPolicy": "Failed", "parallelism": 2}});
    let turn = Stage::of(indexed_spec(3, &replaced)).pods([indexed("p0", "Running", "0", &going)]).turn();
    let index =
        |body: &Value| body["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone();
    assert_eq!(turn.created().iter().map(index).collect::<Vec<_>>(), [json!("1")]);
    let gone = json!({"metadata": {"deletionTimestamp": at(-700)}});
    let turn = Stage::of(indexed_spec(3, &json!({"spec": {"parallelism": 1}})))
        .pods([indexed("p0", "Running", "0", &gone)])
        .turn();
    assert_eq!(turn.created().iter().map(index).collect::<Vec<_>>(), [json!("0")]);
}

/// Proves JOB-64, JOB-65, JOB-140, JOB-145, JOB-153, JOB-151.
#[test]
fn a_creation_that_fails_ends_the_batches_and_the_turn_is_tried_again() {
    let stage = Stage::of(spec(&json!({"parallelism": 3, "completions": 3})));
    let turn = stage.refusing("create", "", ErrorReason::Forbidden).turn();
    assert_eq!(turn.requests().iter().filter(|line| line.starts_with("create")).count(), 1);
    assert_eq!(turn.events(), ["Warning FailedCreate: Error creating: refused"]);
    assert_eq!((turn.status()["active"].as_i64(), turn.is_retried()), (Some(0), true));
    assert_eq!(turn.measured("job_pods_creation_total"), ["new,succeeded} 1", "new,failed} 1"]);
    assert_eq!(turn.measured("job_syncs_total"), ["NonIndexed,error,pods_created} 1"]);
    assert_eq!(turn.measured("job_sync_duration_seconds"), ["NonIndexed,error,pods_created} 0"]);
}

/// Proves JOB-66, JOB-141.
#[test]
fn a_namespace_that_is_going_takes_no_pod_and_nobody_minds() {
    let turn = Stage::of(spec(&json!({}))).refusing("create", "", ErrorReason::NamespaceTerminating).turn();
    assert!(!turn.is_retried() && turn.status()["active"] == 1, "{}", turn.0);
    assert!(!turn.0.contains("FailedCreate"));
}

/// Proves JOB-141.
#[test]
fn nobody_is_told_of_a_pod_that_was_gone_already() {
    let pods = [pod("p", "Running", &json!({}))];
    let turn = Stage::of(spec(&json!({"parallelism": 0})))
        .pods(pods)
        .refusing("delete", "p", ErrorReason::NotFound)
        .turn();
    assert!(!turn.0.contains("FailedDelete"), "{}", turn.0);
}

/// Proves JOB-171.
#[test]
fn a_template_without_labels_makes_no_pod() {
    let turn = Stage::of(spec(&json!({"template": {"metadata": {"labels": null}}}))).turn();
    assert!(turn.is_retried() && turn.created().is_empty() && turn.0.contains("no labels"), "{}", turn.0);
}

/// Proves JOB-57, JOB-68, JOB-69, JOB-143, JOB-173, JOB-146, JOB-118.
#[test]
fn a_suspended_job_has_no_pods_and_says_so() {
    let suspended = json!({"spec": {"suspend": true, "parallelism": 600, "completions": 600},
                           "status": {"startTime": at(-50), "conditions": [{"type": "X", "status": "True"}]}});
    let pods = || (0..510).map(|n| pod(&format!("p{n}"), "Running", &json!({})));
    let turn = Stage::of(job(&suspended)).pods(pods()).turn();
    assert_eq!((turn.deleted().len(), turn.released().len()), (510, 510));
    let status = turn.status();
    assert_eq!((&status["failed"], &status["startTime"]), (&json!(0), &Value::Null));
    assert_eq!(
        status["conditions"][1],
        json!({"type": "Suspended", "status": "True", "reason": "JobSuspended",
        "message": "Job suspended", "lastProbeTime": at(0), "lastTransitionTime": at(0)})
    );
    assert!(turn.events().contains(&"Normal Suspended: Job suspended"));
    assert_eq!(turn.measured("job_syncs_total"), ["NonIndexed,success,pods_deleted} 1"]);
    let kept = super::super::JobOptions {
        clear_start_time_on_suspend: false,
        ..super::super::JobOptions::default()
    };
    assert_eq!(Stage::told(&kept, job(&suspended)).turn().status()["startTime"], at(-50));
    // It has said so already.
    let mut told = suspended;
    told["status"] = json!({"startTime": at(-5), "active": 3, "conditions": [{"type": "Suspended", "status": "True",
        "reason": "JobSuspended", "message": "Job suspended", "lastTransitionTime": at(-9)}]});
    let turn = Stage::of(job(&told)).turn();
    assert_eq!((turn.events().len(), &turn.status()["startTime"]), (0, &json!(at(-5))));
    assert_eq!(turn.measured("job_syncs_total"), ["NonIndexed,success,pods_deleted} 1"]);
}

/// Proves JOB-70, JOB-143, JOB-40, JOB-118.
#[test]
fn a_resumed_job_starts_anew() {
    let told = json!({"status": {"startTime": at(-50), "conditions": [
        {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"},
        {"type": "X", "status": "True"}]}});
    let turn = Stage::of(job(&told)).turn();
    assert_eq!(turn.status()["conditions"][0]["status"], "False");
    assert_eq!(turn.conditions()[0], "Suspended=False JobResumed");
    assert_eq!(turn.status()["startTime"], at(0));
    assert!(turn.events().contains(&"Normal Resumed: Job resumed"));
    let fresh = Stage::of(job(&json!({}))).turn();
    assert_eq!(fresh.status()["conditions"], Value::Null);
    let suspended = Stage::of(job(&json!({"spec": {"suspend": true}}))).turn();
    assert_eq!(suspended.status()["startTime"], Value::Null);
}

/// Proves JOB-63, JOB-72, JOB-73, JOB-75, JOB-154, JOB-146, JOB-166.
#[test]
fn after_failures_the_next_pod_waits_longer_and_longer() {
    let wish = json!({"spec": {"parallelism": 2, "completions": 9, "backoffLimit": 99}});
    let mut stage = Stage::of(job(&wish)).pods([
        pod("f1", "Failed", &ended(1, -7)),
        pod("f2", "Failed", &ended(1, -4)),
        pod("r", "Running", &json!({})),
    ]);
    let turn = stage.turn();
    // Two failures: 20 s from the later one.
    assert_eq!((turn.created().len(), turn.revisit()), (0, Some("16s")));
    assert_eq!(turn.status()["active"], 1);
    assert_eq!(turn.measured("job_syncs_total"), ["NonIndexed,success,pods_created} 1"]);
    // The pods are counted and gone by now; the process remembers.
    for name in ["f1", "f2"] {
        stage.world.take::<keleustes_objects::Pod>(
            &stage.controller.loops[0],
            &keleustes_objects::Key::namespaced("a", name),
        );
    }
    stage.change_job(job(&merged(&wish, &json!({"status": {"failed": 2, "startTime": at(0)}}))));
    assert_eq!(stage.turn().revisit(), Some("16s"));
    stage.world.advance_clock(std::time::Duration::from_secs(15));
    assert_eq!(stage.turn().revisit(), Some("1s"));
    stage.world.advance_clock(std::time::Duration::from_secs(1));
    assert_eq!(stage.turn().created().len(), 1);
    // Another process knows nothing of it.
    let turn = Stage::of(job(&merged(&wish, &json!({"status": {"failed": 2}})))).turn();
    assert_eq!(turn.created().len(), 2);
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut both = one.clone();
    merge(&mut both, other);
    both
}

/// Proves JOB-72.
#[test]
fn failures_are_remembered_only_if_the_status_could_be_written() {
    let wish = json!({"spec": {"parallelism": 2, "completions": 9}});
    let mut stage = Stage::of(job(&wish)).pods([pod("f1", "Failed", &ended(1, -4))]);
    stage = stage.refusing_job("update", ErrorReason::Conflict, Some(1));
    assert!(stage.turn().is_retried());
    // Still one failure, not two: 10 s from its end.
    assert_eq!(stage.turn().revisit(), Some("6s"));
}

/// Proves JOB-81, JOB-82, JOB-83.
#[test]
fn a_pod_of_an_index_knows_it() {
    let own = json!([{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]);
    let template = json!({"spec": {"template": {"spec": {"hostname": "h", "initContainers": [{"name": "i"}],
        "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}, {"name": "d", "env": own}]}}}});
    let turn = Stage::of(indexed_spec(1, &template)).turn();
    let body = &turn.created()[0];
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
    let mut stage = Stage::of(indexed_spec(1, &json!({"metadata": {"name": long}})));
    let turn = super::stage::Turn(
        stage.world.reconcile(&stage.controller.loops[0], keleustes_objects::Key::namespaced("a", &*long)),
    );
    let prefix = turn.created()[0]["metadata"]["generateName"].as_str().unwrap().to_owned();
    assert_eq!(prefix, format!("{}-0-", "x".repeat(55)));
}

/// Proves JOB-77, JOB-78, JOB-84, JOB-90, JOB-91, JOB-92, JOB-95, JOB-166.
#[test]
fn an_index_that_failed_waits_on_its_own_and_tells_its_next_pod() {
    let wish = json!({"spec": {"backoffLimitPerIndex": 9, "backoffLimit": i32::MAX}});
    let told = |counted: &str, ignored: &str, seconds: i64| {
        let mut more = ended(1, seconds);
        let names = [
            "batch.kubernetes.io/job-index-failure-count",
            "batch.kubernetes.io/job-index-ignored-failure-count",
        ];
        merge(&mut more, &json!({"metadata": {"annotations": {names[0]: counted, names[1]: ignored}}}));
        more
    };
    // 1 + 1 + 1 failures: 40 s; nothing else is missing.
    let pods = [indexed("f", "Failed", "0", &told("1", "1", -15)), indexed("r", "Running", "1", &json!({}))];
    let turn = Stage::of(indexed_spec(2, &wish)).pods(pods.clone()).turn();
    assert_eq!((turn.created().len(), turn.revisit(), turn.released()), (0, Some("25s"), vec![]));
    // Index 2 does not wait.
    let turn = Stage::of(indexed_spec(3, &wish)).pods(pods).turn();
    let annotations = |turn: &super::stage::Turn| turn.created()[0]["metadata"]["annotations"].clone();
    assert_eq!(
        annotations(&turn),
        json!({"batch.kubernetes.io/job-completion-index": "2",
        "batch.kubernetes.io/job-index-failure-count": "0"})
    );
    // Its time has come.
    let late = |counted: &str, ignored: &str| {
        let pods = [indexed("f", "Failed", "0", &told(counted, ignored, -700))];
        annotations(&Stage::of(indexed_spec(1, &wish)).pods(pods).turn())
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
    let pods = [indexed("f", "Failed", "0", &told("1", "1", -700))];
    let turn = Stage::of(indexed_spec(1, &merged(&wish, &ignoring))).pods(pods).turn();
    assert_eq!(annotations(&turn), counts("1", Some("2")));
}

/// Proves JOB-95, JOB-96.
#[test]
fn the_failed_pod_that_is_replaced_keeps_its_finalizer_until_then() {
    let wish = json!({"spec": {"backoffLimitPerIndex": 9, "backoffLimit": i32::MAX}});
    let failed = |name: &str, count: &str, seconds: i64| {
        let mut more = ended(1, seconds);
        merge(
            &mut more,
            &json!({"metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": count}}}),
        );
        indexed(name, "Failed", "0", &more)
    };
    let pods = [failed("a", "0", -9), failed("b", "1", -5), failed("c", "1", -7), failed("d", "0", -1)];
    let turn = Stage::of(indexed_spec(1, &wish)).pods(pods.clone()).turn();
    assert_eq!((turn.released(), turn.status()["failed"].as_i64()), (vec!["a", "c", "d"], Some(3)));
    let again = pods.into_iter().chain([indexed("r", "Running", "0", &json!({}))]);
    let turn = Stage::of(indexed_spec(1, &wish)).pods(again).turn();
    assert_eq!((turn.released(), turn.status()["failed"].as_i64()), (vec!["a", "b", "c", "d"], Some(4)));
}

/// Proves JOB-151.
#[test]
fn created_pods_are_counted_by_what_they_are_for() {
    let going = json!({"metadata": {"deletionTimestamp": at(-700)}});
    let reason = |policy: &str, pods: Vec<Value>| {
        let job = spec(&json!({"podReplacementPolicy": policy, "parallelism": 3, "completions": 3}));
        let turn = Stage::of(job).pods(pods).turn();
        turn.measured("job_pods_creation_total").first().map(|line| (*line).to_owned())
    };
    let failed = || pod("f", "Failed", &ended(1, -700));
    assert_eq!(reason("TerminatingOrFailed", vec![]).as_deref(), Some("new,succeeded} 3"));
    assert_eq!(reason("Failed", vec![failed()]).as_deref(), Some("recreate_failed,succeeded} 3"));
    let other = Some("recreate_terminating_or_failed,succeeded} 3");
    assert_eq!(reason("TerminatingOrFailed", vec![failed()]).as_deref(), other);
    assert_eq!(reason("TerminatingOrFailed", vec![pod("g", "Running", &going)]).as_deref(), other);
    let going = reason("Failed", vec![pod("g", "Running", &going)]);
    assert_eq!(going.as_deref(), Some("recreate_terminating_or_failed,succeeded} 2"));
}
