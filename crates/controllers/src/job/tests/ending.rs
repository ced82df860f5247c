//! How Jobs end, what is counted on the way, and in which order it is written.

use keleustes_objects::{ErrorReason, Key, Pod};
use serde_json::{Value, json};

use super::stage::{Stage, Turn, at, ended, indexed, indexed_spec, job, merge, pod};

fn ends(job: Value, pods: impl IntoIterator<Item = Value>) -> Vec<String> {
    Stage::of(job).pods(pods).turn().conditions()
}

fn told(r#type: &str, status: &str, reason: &str) -> Value {
    json!({"type": r#type, "status": status, "reason": reason, "message": "m"})
}

/// Proves JOB-52, JOB-109, JOB-112, JOB-113, JOB-115, JOB-116, JOB-117, JOB-118, JOB-135, JOB-138, JOB-142, JOB-147, JOB-39.
#[test]
fn the_last_success_is_listed_let_go_counted_and_ends_the_job() {
    let turn = Stage::of(job(&json!({}))).pods([pod("p", "Succeeded", &ended(0, -1))]).turn();
    let [first, second] = &turn.statuses()[..] else { panic!("{}", turn.0) };
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
    assert_eq!(turn.requests(), order);
    let patch =
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}"#;
    assert!(turn.0.contains(patch));
    assert_eq!(turn.events(), ["Normal Completed: Job completed"]);
    assert_eq!(turn.measured("jobs_finished_total"), ["NonIndexed,succeeded,CompletionsReached} 1"]);
    assert_eq!(turn.measured("job_pods_finished_total"), ["NonIndexed,succeeded} 1"]);
    assert_eq!(turn.measured("job_syncs_total"), ["NonIndexed,success,tracking} 1"]);
}

/// Proves JOB-52, JOB-142.
#[test]
fn without_a_number_one_success_is_enough_once_nobody_works() {
    let open = json!({"spec": {"completions": null, "parallelism": 2}});
    let done = || pod("p", "Succeeded", &ended(0, -1));
    let turn = Stage::of(job(&open)).pods([done(), pod("r", "Running", &json!({}))]).turn();
    assert_eq!((turn.conditions().len(), turn.created().len()), (0, 0));
    assert_eq!(ends(job(&open), [done()])[1], "Complete=True CompletionsReached");
    // More than were wanted.
    let turn = Stage::of(job(&json!({}))).pods([done(), pod("q", "Succeeded", &ended(0, -1))]).turn();
    assert_eq!(turn.events()[0].split(':').next(), Some("Warning TooManySucceededPods"));
    assert_eq!(turn.events()[1], "Normal Completed: Job completed");
}

/// Proves JOB-55.
#[test]
fn a_suspended_job_without_work_completes() {
    let job = job(&json!({"spec": {"suspend": true, "completions": 0}}));
    assert_eq!(
        ends(job, []),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
}

/// Proves JOB-46, JOB-53, JOB-54, JOB-110, JOB-115, JOB-116, JOB-142, JOB-168, JOB-160, JOB-147.
#[test]
fn too_many_failures_end_the_job_once_all_pods_are_gone() {
    let wish = json!({"spec": {"backoffLimit": 1, "parallelism": 3, "completions": 9}});
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let failed = ["f1", "f2"].map(|name| pod(name, "Failed", &ended(1, -1)));
    let turn =
        Stage::of(job(&wish)).pods(failed.clone().into_iter().chain([pod("r", "Running", &ready)])).turn();
    assert_eq!((turn.deleted(), turn.created().len()), (vec!["r"], 0));
    assert_eq!(turn.requests()[..2], ["delete pods a/r", "put jobs.batch/status a/j"]);
    assert_eq!(turn.conditions(), ["FailureTarget=True BackoffLimitExceeded"]);
    assert_eq!(turn.statuses()[0]["uncountedTerminatedPods"], json!({"failed": ["f1-1", "f2-1", "r-1"]}));
    let status = turn.status();
    assert_eq!(
        ["active", "ready", "terminating", "failed"].map(|field| status[field].as_i64().unwrap()),
        [0, 0, 1, 3]
    );
    assert_eq!(turn.measured("job_syncs_total"), ["NonIndexed,success,reconciling} 1"]);
    assert_eq!(turn.measured("job_pods_finished_total"), ["NonIndexed,failed} 3"]);
    assert!(turn.measured("jobs_finished_total").is_empty());
    // Nobody else is there: it is over at once.
    let turn = Stage::of(job(&wish)).pods(failed).turn();
    assert_eq!(
        turn.conditions(),
        ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]
    );
    let status = turn.status();
    assert_eq!(status["conditions"][1]["message"], "Job has reached the specified backoff limit");
    assert_eq!(status["completionTime"], Value::Null);
    assert_eq!(turn.events(), ["Warning BackoffLimitExceeded: Job has reached the specified backoff limit"]);
    assert_eq!(turn.measured("jobs_finished_total"), ["NonIndexed,failed,BackoffLimitExceeded} 1"]);
    // One that is going without its finalizer keeps the end waiting.
    let going = json!({"metadata": {"deletionTimestamp": at(0), "finalizers": []}});
    let announced = merged(&wish, &json!({"status": {"conditions": [told("FailureTarget", "True", "X")]}}));
    let turn = Stage::of(job(&announced)).pods([pod("g", "Running", &going)]).turn();
    assert_eq!(turn.conditions(), ["FailureTarget=True X"]);
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut both = one.clone();
    merge(&mut both, other);
    both
}

/// Proves JOB-53.
#[test]
fn it_is_not_the_end_while_a_pod_could_not_be_deleted() {
    let wish = json!({"spec": {"backoffLimit": 0, "parallelism": 600, "completions": 900}});
    let running = (0..510).map(|n| pod(&format!("r{n}"), "Running", &json!({})));
    let stage = Stage::of(job(&wish)).pods([pod("f", "Failed", &ended(1, -1))]).pods(running);
    let turn = stage.refusing("delete", "r1", ErrorReason::Unavailable).turn();
    assert_eq!((turn.deleted().len(), turn.is_retried()), (510, true));
    assert_eq!((turn.conditions().len(), turn.status()["active"].as_i64()), (0, Some(1)));
    assert_eq!(turn.released(), ["f"]);
}

/// Proves JOB-47, JOB-161.
#[test]
fn a_job_that_runs_for_too_long_fails() {
    let started = |seconds: i64| {
        job(&json!({"spec": {"activeDeadlineSeconds": 30}, "status": {"startTime": at(-seconds)}}))
    };
    let turn = Stage::of(started(12)).turn();
    assert_eq!((turn.revisit(), turn.created().len()), (Some("18s"), 1));
    let over = ["FailureTarget=True DeadlineExceeded", "Failed=True DeadlineExceeded"];
    assert_eq!(ends(started(30), []), over);
    let turn = Stage::of(started(30)).turn();
    assert_eq!(turn.events(), ["Warning DeadlineExceeded: Job was active longer than specified deadline"]);
    let suspended = merged(&started(30), &json!({"spec": {"suspend": true}}));
    assert_eq!(ends(suspended, []), ["Suspended=True JobSuspended"]);
    let both = merged(&started(30), &json!({"spec": {"backoffLimit": 0}}));
    assert_eq!(ends(both, [pod("f", "Failed", &ended(1, -1))])[0], "FailureTarget=True BackoffLimitExceeded");
}

/// Proves JOB-48.
#[test]
fn restarts_in_place_count_as_failures() {
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
        let wish = json!({"spec": {"backoffLimit": limit, "template": {"spec": {"restartPolicy": policy}}}});
        !ends(job(&wish), [pod]).is_empty()
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
fn what_was_announced_comes_before_everything() {
    let announced =
        |conditions: Value| job(&json!({"spec": {"backoffLimit": 0}, "status": {"conditions": conditions}}));
    let failed = || [pod("f", "Failed", &ended(1, -1))];
    let both = json!([told("SuccessCriteriaMet", "True", "S"), told("FailureTarget", "True", "F")]);
    assert_eq!(ends(announced(both), failed())[2], "Complete=True S");
    let turn = Stage::of(announced(json!([told("FailureTarget", "True", "F")]))).turn();
    assert_eq!(turn.conditions(), ["FailureTarget=True F", "Failed=True F"]);
    assert_eq!(turn.status()["conditions"][1]["message"], "m");
    let neither = json!([told("SuccessCriteriaMet", "False", "S"), told("FailureTarget", "False", "F")]);
    let ends = ends(announced(neither), failed());
    assert_eq!(ends.last().map(String::as_str), Some("Failed=True BackoffLimitExceeded"));
}

/// Proves JOB-37, JOB-38, JOB-107, JOB-108, JOB-156.
#[test]
fn each_pod_is_listed_once_and_counted_once_it_is_free() {
    let status = json!({"spec": {"completions": 9, "parallelism": 0},
        "status": {"succeeded": 4, "failed": 2, "uncountedTerminatedPods": {
            "succeeded": ["s1-1", "gone-1"], "failed": ["f1-1", "free-1", "late-1"]}}});
    let free = json!({"metadata": {"finalizers": []}});
    let going = json!({"metadata": {"deletionTimestamp": at(0)}});
    let pods = [
        pod("s1", "Succeeded", &json!({})),
        pod("s2", "Succeeded", &json!({})),
        pod("f1", "Failed", &json!({})),
        pod("late", "Succeeded", &json!({})),
        pod("free", "Failed", &free),
        pod("going", "Running", &going),
        pod("counted", "Failed", &free),
    ];
    let turn = Stage::of(job(&status)).pods(pods).turn();
    let first = &turn.statuses()[0];
    assert_eq!((&first["succeeded"], &first["failed"]), (&json!(5), &json!(3)));
    let listed = json!({"succeeded": ["s1-1", "s2-1"], "failed": ["f1-1", "late-1", "going-1"]});
    assert_eq!(first["uncountedTerminatedPods"], listed);
    assert_eq!(turn.released(), ["f1", "going", "late", "s1", "s2"]);
    let last = turn.status();
    assert_eq!((&last["succeeded"], &last["failed"]), (&json!(7), &json!(6)));
}

/// Proves JOB-113, JOB-114, JOB-133.
#[test]
fn nobody_is_let_go_before_he_is_listed_nor_counted_before_he_is_free() {
    let pods = || ["p1", "p2", "p3"].map(|name| pod(name, "Succeeded", &json!({})));
    let wish = || job(&json!({"spec": {"completions": 3}}));
    for reason in [ErrorReason::Conflict, ErrorReason::Unavailable] {
        let turn = Stage::of(wish()).pods(pods()).refusing_job("update", reason, None).turn();
        assert_eq!((turn.released().len(), turn.is_retried()), (0, true));
        assert_eq!(turn.requests(), ["put jobs.batch/status a/j"]);
    }
    let stage = Stage::of(wish()).pods(pods()).refusing("patch", "p2", ErrorReason::Unavailable);
    let turn = stage.refusing("patch", "p3", ErrorReason::NotFound).turn();
    assert!(turn.is_retried());
    let last = turn.status();
    assert_eq!(
        (&last["succeeded"], &last["uncountedTerminatedPods"]),
        (&json!(2), &json!({"succeeded": ["p2-1"]}))
    );
    assert_eq!(turn.conditions(), ["SuccessCriteriaMet=True CompletionsReached"]);
}

/// Proves JOB-18, JOB-38, JOB-20.
#[test]
fn a_pod_that_is_free_is_not_listed_again_although_the_cache_shows_it_held() {
    let wish = json!({"spec": {"completions": 9, "parallelism": 0}});
    let mut stage = Stage::of(job(&wish)).pods([pod("p", "Failed", &json!({}))]);
    assert_eq!(stage.turn().status()["failed"], 1);
    // The cache has seen the status, and not the pod.
    let counted = json!({"status": {"failed": 1, "startTime": at(0), "active": 0, "ready": 0, "terminating": 0,
                                    "uncountedTerminatedPods": {}}});
    stage.change_job(job(&merged(&wish, &counted)));
    let turn = stage.turn();
    assert_eq!(turn.requests(), Vec::<String>::new(), "{}", turn.0);
    // A Job that is gone is forgotten, and with it all that was known of its pods.
    stage.world.take::<keleustes_objects::Job>(&stage.controller.loops[0], &Key::namespaced("a", "j"));
    assert_eq!(stage.turn().0, "");
    stage.change_job(job(&wish));
    assert_eq!(stage.turn().released(), ["p"]);
}

/// Proves JOB-111.
#[test]
fn five_hundred_are_enough_for_one_turn() {
    let wish = json!({"spec": {"completions": 510, "parallelism": 0}});
    let pods = || (0..510).map(|n| pod(&format!("p{n:03}"), "Succeeded", &json!({})));
    let turn = Stage::of(job(&wish)).pods(pods()).turn();
    assert_eq!((turn.released().len(), turn.status()["succeeded"].as_i64()), (500, Some(500)));
    assert_eq!(turn.conditions(), ["SuccessCriteriaMet=True CompletionsReached"]);
    let pods = (0..510).map(|n| indexed(&format!("p{n:03}"), "Succeeded", &n.to_string(), &json!({})));
    let turn = Stage::of(indexed_spec(510, &json!({}))).pods(pods).turn();
    assert_eq!((turn.released().len(), turn.released()[499]), (500, "p499"));
    assert_eq!(turn.conditions().len(), 1);
}

/// Proves JOB-87, JOB-88, JOB-109, JOB-157, JOB-158, JOB-108, JOB-150.
#[test]
fn an_index_succeeds_once_however_many_pods_do() {
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
    let turn = Stage::of(indexed_spec(5, &status)).pods(pods).turn();
    let first = &turn.statuses()[0];
    assert_eq!((&first["completedIndexes"], &first["succeeded"]), (&json!("0-3"), &json!(4)));
    assert_eq!(first["uncountedTerminatedPods"], json!({}));
    assert_eq!(first["failedIndexes"], Value::Null);
    assert_eq!(turn.released(), ["bad", "none", "e", "a", "c", "d", "far", "b"]);
    assert_eq!(turn.status()["failed"], 0);
    assert_eq!(turn.measured("job_finished_indexes_total"), ["succeeded,global} 2"]);
    assert_eq!(turn.measured("job_pods_finished_total"), ["Indexed,succeeded} 2"]);
}

/// Proves JOB-49, JOB-50, JOB-93, JOB-94, JOB-102, JOB-150.
#[test]
fn indexes_fail_one_by_one() {
    let wish = |more: Value| {
        let limits = json!({"spec": {"backoffLimitPerIndex": 1, "backoffLimit": i32::MAX, "parallelism": 0}});
        indexed_spec(3, &merged(&limits, &more))
    };
    let failed = |name: &str, index: &str, count: &str, code: i32| {
        let told =
            json!({"metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": count}}});
        indexed(name, "Failed", index, &merged(&ended(code, -1), &told))
    };
    // Nothing failed for good.
    let turn = Stage::of(wish(json!({}))).pods([failed("a", "0", "0", 1)]).turn();
    assert_eq!(turn.status()["failedIndexes"], "");
    let turn =
        Stage::of(wish(json!({"status": {"failedIndexes": "2-7"}}))).pods([failed("a", "0", "1", 1)]).turn();
    assert_eq!((&turn.status()["failedIndexes"], turn.released()), (&json!("0,2"), vec!["a"]));
    assert_eq!(turn.measured("job_finished_indexes_total"), ["failed,perIndex} 1"]);
    let most = json!({"spec": {"maxFailedIndexes": 1}, "status": {"failedIndexes": "2"}});
    let turn = Stage::of(wish(most)).pods([failed("a", "0", "1", 1)]).turn();
    assert_eq!(turn.conditions()[0], "FailureTarget=True MaxFailedIndexesExceeded");
    let rest = json!({"status": {"completedIndexes": "1,2", "succeeded": 2}});
    let turn = Stage::of(wish(rest)).pods([failed("a", "0", "1", 1)]).turn();
    assert_eq!(turn.conditions(), ["FailureTarget=True FailedIndexes", "Failed=True FailedIndexes"]);
    assert_eq!(turn.status()["conditions"][1]["message"], "Job has failed indexes");
    // A rule fails the index at once, another one ignores the failure.
    let rule = |action: &str| {
        json!({"spec": {"podFailurePolicy": {"rules": [
        {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]}}})
    };
    let turn = Stage::of(wish(rule("FailIndex"))).pods([failed("a", "0", "0", 42)]).turn();
    assert_eq!((&turn.status()["failedIndexes"], &turn.status()["failed"]), (&json!("0"), &json!(1)));
    let turn = Stage::of(wish(rule("Ignore"))).pods([failed("a", "0", "1", 42)]).turn();
    assert_eq!(turn.status()["failedIndexes"], "");
}

/// Proves JOB-51, JOB-104, JOB-105, JOB-110, JOB-162.
#[test]
fn a_success_policy_ends_the_job_early() {
    let with_rules = |rules: Value, more: Value| {
        let wish = json!({"spec": {"successPolicy": {"rules": rules}, "parallelism": 0}});
        indexed_spec(5, &merged(&wish, &more))
    };
    let met = |rules: Value, completed: &str| {
        let turn = Stage::of(with_rules(rules, json!({"status": {"completedIndexes": completed}}))).turn();
        let status = turn.status();
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
    // Who still works is deleted and counts for nothing.
    let enough = with_rules(json!([{"succeededCount": 1}]), json!({"status": {"completedIndexes": "3"}}));
    let turn = Stage::of(enough).pods([indexed("r", "Running", "0", &json!({}))]).turn();
    assert_eq!((turn.deleted(), turn.released()), (vec!["r"], vec!["r"]));
    assert_eq!(
        (turn.conditions(), &turn.status()["failed"]),
        (vec!["SuccessCriteriaMet=True SuccessPolicy".to_owned()], &json!(0))
    );
    // Failure comes first.
    let both = with_rules(
        json!([{"succeededCount": 1}]),
        json!({"spec": {"backoffLimit": 0}, "status": {"completedIndexes": "3"}}),
    );
    let ends = ends(both, [indexed("f", "Failed", "0", &json!({}))]);
    assert_eq!(ends[0], "FailureTarget=True BackoffLimitExceeded");
}

/// Proves JOB-155, JOB-59.
#[test]
fn a_job_that_is_going_lets_all_pods_go() {
    let leaving = json!({"metadata": {"deletionTimestamp": at(0), "finalizers": ["foregroundDeletion"]},
        "spec": {"completions": 9, "parallelism": 3, "suspend": true}});
    let pods = || [pod("r", "Running", &json!({})), pod("s", "Succeeded", &json!({}))];
    let turn = Stage::of(job(&leaving)).pods(pods()).turn();
    assert_eq!((turn.deleted().len(), turn.created().len(), turn.released()), (0, 0, vec!["r", "s"]));
    assert_eq!((&turn.status()["succeeded"], &turn.status()["failed"]), (&json!(1), &json!(0)));
    assert_eq!((turn.conditions().len(), turn.events().len()), (0, 0));
    let failing = merged(&leaving, &json!({"spec": {"backoffLimit": 0}}));
    let turn =
        Stage::of(job(&failing)).pods(pods().into_iter().chain([pod("f", "Failed", &json!({}))])).turn();
    assert_eq!((turn.deleted(), turn.conditions().len()), (vec!["r"], 1));
}

/// Proves JOB-30, JOB-31, JOB-32, JOB-33, JOB-34, JOB-136.
#[test]
fn pods_are_adopted_and_let_go_with_their_finalizer() {
    let free = json!({"metadata": {"finalizers": [], "ownerReferences": []}});
    let other = json!({"metadata": {"labels": {"job": "other"}}});
    let wish = || job(&json!({"spec": {"completions": 9, "parallelism": 0}}));
    let pods = || {
        [
            pod("new", "Succeeded", &free),
            pod("going", "Succeeded", &merged(&free, &json!({"metadata": {"deletionTimestamp": at(0)}}))),
            pod("strange", "Failed", &merged(&free, &other)),
            pod("lost", "Failed", &other),
        ]
    };
    let turn = Stage::of(wish()).pods(pods()).turn();
    let lines: Vec<&str> = turn.0.lines().filter(|line| line.starts_with("patch")).collect();
    let adoption = json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"], "ownerReferences": [super::stage::owner()]}});
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
    assert_eq!(turn.released(), ["lost", "new", "new"]);
    assert_eq!((&turn.status()["succeeded"], &turn.status()["failed"]), (&json!(1), &json!(0)));
    // One that is adopted and not wanted goes without being counted, and without the finalizer that it has just got.
    let surplus = Stage::of(wish()).pods([pod("extra", "Running", &free)]).turn();
    assert_eq!((surplus.released(), surplus.deleted()), (vec!["extra", "extra"], vec!["extra"]));
    for (name, reason) in [("new", ErrorReason::Forbidden), ("lost", ErrorReason::Forbidden)] {
        let turn = Stage::of(wish()).pods(pods()).refusing("patch", name, reason).turn();
        assert!(turn.is_retried() && turn.statuses().is_empty(), "{}", turn.0);
    }
    for reason in [ErrorReason::NotFound, ErrorReason::Invalid] {
        let turn = Stage::of(wish()).pods(pods()).refusing("patch", "lost", reason).turn();
        assert!(!turn.is_retried(), "{}", turn.0);
    }
    // One that turns out to be gone does not count.
    let gone = Stage::of(wish()).pods(pods()).refusing("patch", "new", ErrorReason::NotFound).turn();
    assert!(!gone.is_retried() && gone.status()["succeeded"] != 1, "{}", gone.0);
    let leaving = merged(&wish(), &json!({"metadata": {"deletionTimestamp": at(0)}}));
    assert_eq!(Stage::of(leaving).pods(pods()).turn().released(), Vec::<&str>::new());
}

/// Proves JOB-23, JOB-24, JOB-26, JOB-143, JOB-146, JOB-20.
#[test]
fn some_jobs_are_left_alone() {
    let turn = |more: Value| Stage::of(job(&more)).pods([pod("p", "Failed", &json!({}))]).turn().0;
    assert_eq!(turn(json!({"spec": {"managedBy": "example.com/other"}})), "");
    assert_ne!(turn(json!({"spec": {"managedBy": "kubernetes.io/job-controller"}})), "");
    for end in ["Complete", "Failed"] {
        assert_eq!(turn(json!({"status": {"conditions": [told(end, "True", "R")]}})), "");
        assert_ne!(turn(json!({"status": {"conditions": [told(end, "False", "R")]}})), "");
    }
    let strange =
        "event Warning UnknownCompletionMode: Skipped Job sync because completion mode is unknown\n";
    assert_eq!(turn(json!({"spec": {"completionMode": "Strange"}})), strange);
    let mut stage = Stage::of(job(&json!({})));
    stage.world.take::<keleustes_objects::Job>(&stage.controller.loops[0], &Key::namespaced("a", "j"));
    assert_eq!(stage.turn().0, "");
}

/// Proves JOB-45, JOB-98, JOB-99, JOB-100, JOB-101, JOB-102, JOB-148.
#[test]
fn the_first_rule_that_fits_says_what_a_failure_means() {
    let turn = |rules: Value, status: Value| -> Turn {
        let wish =
            json!({"spec": {"completions": 9, "parallelism": 0, "podFailurePolicy": {"rules": rules}}});
        Stage::of(job(&wish)).pods([pod("p", "Failed", &json!({"status": status}))]).turn()
    };
    let message = |turn: &Turn| turn.status()["conditions"][0]["message"].as_str().map(str::to_owned);
    let exit = |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": at(-1)}}});
    let codes = |operator: &str, values: &[i32], name: Value| json!([{"action": "FailJob", "onExitCodes": {"operator": operator, "values": values, "containerName": name}}]);
    let containers = json!({"containerStatuses": [exit("a", 0), {"name": "w", "state": {"running": {}}}, exit("b", -5)],
                            "initContainerStatuses": [exit("i", 7)]});
    let failed = |name: &str, code: i32| {
        Some(format!(
            "Container {name} for pod a/p failed with exit code {code} matching FailJob rule at index 0"
        ))
    };
    assert_eq!(message(&turn(codes("In", &[7, -5], Value::Null), containers.clone())), failed("b", -5));
    assert_eq!(message(&turn(codes("In", &[7], Value::Null), containers.clone())), failed("i", 7));
    assert_eq!(message(&turn(codes("NotIn", &[-5], Value::Null), containers.clone())), failed("i", 7));
    assert_eq!(message(&turn(codes("In", &[-5, 7], json!("i")), containers.clone())), failed("i", 7));
    for none in
        [codes("In", &[0], Value::Null), codes("NotIn", &[-5], json!("a")), codes("Odd", &[7], Value::Null)]
    {
        assert_eq!(message(&turn(none, containers.clone())), None);
    }
    let condition = |action: &str, status: &str| json!({"action": action, "onPodConditions": [{"type": "Never", "status": "True"}, {"type": "DisruptionTarget", "status": status}]});
    let disrupted = json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let rules =
        json!([condition("FailJob", "False"), condition("Dream", "True"), condition("FailJob", "True")]);
    let failing = turn(rules, disrupted.clone());
    assert_eq!(
        message(&failing).as_deref(),
        Some("Pod a/p has condition DisruptionTarget matching FailJob rule at index 2")
    );
    assert_eq!(failing.conditions()[0], "FailureTarget=True PodFailurePolicy");
    assert_eq!(failing.measured("pod_failures_handled"), ["FailJob} 1"]);
    // The first counts: ignored, or counted.
    for (action, failures) in [("Ignore", 0), ("Count", 1)] {
        let turn = turn(json!([condition(action, "True"), condition("FailJob", "True")]), disrupted.clone());
        assert_eq!(
            (turn.status()["failed"].as_i64(), turn.released()),
            (Some(failures), vec!["p"]),
            "{action}"
        );
        assert_eq!(turn.measured("pod_failures_handled"), [format!("{action}}} 1")]);
    }
    // Ignored, it is still waited for.
    let wish =
        json!({"spec": {"podFailurePolicy": {"rules": [condition("Ignore", "True")]}, "backoffLimit": 0}});
    let recent = pod("p", "Failed", &merged(&ended(1, -3), &json!({"status": disrupted})));
    let turn = Stage::of(job(&wish)).pods([recent]).turn();
    assert_eq!((turn.created().len(), turn.revisit()), (0, Some("7s")));
}

/// Proves JOB-73, JOB-74, JOB-75, JOB-76, JOB-167.
#[test]
fn the_wait_follows_the_failures_since_the_last_success() {
    let wait = |pods: Vec<Value>| {
        let turn =
            Stage::of(job(&json!({"spec": {"completions": 99, "backoffLimit": 99}}))).pods(pods).turn();
        turn.revisit().map(str::to_owned)
    };
    let failures =
        |count: usize| (0..count).map(|n| pod(&format!("f{n}"), "Failed", &ended(1, -1))).collect();
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
    let failed = |seconds: i64| pod(&format!("f{}", -seconds), "Failed", &ended(1, seconds));
    assert_eq!(
        wait(vec![failed(-9), failed(-3), pod("s", "Succeeded", &ended(0, -5))]).as_deref(),
        Some("7s")
    );
    assert_eq!(wait(vec![failed(-5), pod("s", "Succeeded", &ended(0, -5))]), None);
    assert_eq!(wait(vec![pod("f", "Failed", &ended(1, 20))]).as_deref(), Some("30s"));
    // When a pod ended, if its containers do not say.
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
        &ended(1, -5),
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
fn a_successor_of_the_same_name_has_nothing_of_its_predecessor() {
    let wish = json!({"spec": {"completions": 9}});
    let mut stage = Stage::of(job(&wish)).pods([pod("f", "Failed", &ended(1, -1))]);
    assert_eq!(stage.turn().revisit(), Some("9s"));
    stage.world.take::<keleustes_objects::Job>(&stage.controller.loops[0], &Key::namespaced("a", "j"));
    stage.change_job(job(&merged(&wish, &json!({"metadata": {"uid": "j-2"}}))));
    let turn = stage.turn();
    assert_eq!((turn.created().len(), turn.released(), turn.revisit()), (1, vec![], None));
    assert!(stage.world.view().get::<Pod>(&Key::namespaced("a", "f")).is_some());
}
