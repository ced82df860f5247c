//! The list of running Jobs, the last successful time, and the history.

use super::*;
use crate::cronjob::active;
use keleustes_objects::{CronJobStatus, ResourceVersion, Uid};

/// A CronJob that is not due for an hour.
fn idle(change: impl FnOnce(&mut Value)) -> Value {
    let mut cron_job = cron_job("0 9 * * *");
    change(&mut cron_job);
    cron_job
}

const IDLE: &str = "requeue after 3600.1s\n";
const UNEXPECTED: &str = "event Warning UnexpectedJob on CronJob a/sum uid=c1: Saw a job that the controller did not create or forgot: 1\n";

/// Proves CRON-13, CRON-114.
#[test]
fn missing_cron_job_is_done_and_namespaces_share_nothing() {
    assert_eq!(outline(&mut RehearsalCluster::of(&the_loop())), "");
    let mut other = job("1", &["Complete"]);
    other["metadata"]["namespace"] = json!("b");
    let none_kept = idle(|cron_job| cron_job["spec"]["successfulJobsHistoryLimit"] = json!(0));
    assert_eq!(sync(none_kept, &[other]), IDLE);
}

/// Proves CRON-17, CRON-72, CRON-68.
#[test]
fn unlisted_unfinished_job_is_reported_after_a_live_read() {
    let wanted = format!("get cronjobs.batch a/sum\n{UNEXPECTED}{IDLE}");
    assert_eq!(sync(idle(|_| {}), &[job("1", &[])]), wanted, "and not added to the list");
    let twice = sync(idle(|_| {}), &[job("1", &[]), job("2", &[])]);
    assert_eq!(twice.matches("UnexpectedJob").count(), 2, "one per Job: {twice}");
}

/// Proves CRON-17, CRON-83.
#[test]
fn live_cron_job_that_lists_the_job_is_used_and_a_write_of_the_cached_one_conflicts() {
    let live = |active: Value| {
        let mut live = idle(|cron_job| cron_job["status"]["active"] = active);
        live["metadata"]["resourceVersion"] = json!("6");
        live
    };
    let cluster_with = |cached: Value, active: Value, jobs: &[Value]| {
        let cluster = RehearsalCluster::of(&the_loop())
            .with_cached::<CronJob>(cached)
            .with_live::<CronJob>(live(active));
        jobs.iter().cloned().fold(cluster, RehearsalCluster::with::<Job>)
    };
    let mut listed = cluster_with(idle(|_| {}), json!([entry("1")]), &[job("1", &[])]);
    assert_eq!(outline(&mut listed), format!("get cronjobs.batch a/sum\n{IDLE}"));
    let jobs = [job("1", &[]), job("2", &["Complete"])];
    let mut changed = cluster_with(idle(|_| {}), json!([entry("1"), entry("2")]), &jobs);
    let bodies = changed.bodies(&the_loop(), key("sum"), "put cronjobs.batch/status ");
    assert_eq!(bodies[0].1["metadata"]["resourceVersion"], "5", "the cached one, which the server refuses");
}

/// Proves CRON-94.
#[test]
fn failed_live_read_of_the_cron_job_ends_the_reconcile() {
    let cached = || {
        RehearsalCluster::of(&the_loop()).with_cached::<CronJob>(minutely(|_| {})).with::<Job>(job("1", &[]))
    };
    let wanted = "get cronjobs.batch a/sum\nretry: cronjobs.batch \"sum\" not found\n";
    assert_eq!(outline(&mut cached()), wanted);
    let mut down = cached().failing::<CronJob>("get", &key("sum"), error(ErrorReason::Unavailable));
    assert_eq!(outline(&mut down), "get cronjobs.batch a/sum\nretry: reading a/sum: refused\n");
}

/// Proves CRON-95.
#[test]
fn terminating_unfinished_job_stays_active() {
    let mut terminating = job("1", &[]);
    terminating["metadata"]["deletionTimestamp"] = json!(at(-5));
    let forbidding = minutely(|cron_job| {
        cron_job["spec"]["concurrencyPolicy"] = json!("Forbid");
        cron_job["status"]["active"] = json!([entry("1")]);
    });
    let transcript = sync(forbidding, &[terminating]);
    assert!(transcript.contains("JobAlreadyActive"), "{transcript}");
}

/// Proves CRON-18.
#[test]
fn finished_listed_job_leaves_the_list_with_an_event() {
    let listed = || idle(|cron_job| cron_job["status"]["active"] = json!([entry("1"), entry("2")]));
    for (conditions, first) in [(&["Complete"][..], "Complete"), (&["Failed", "Complete"], "Failed")] {
        let transcript = sync(listed(), &[job("1", conditions), job("2", &[])]);
        let event = format!(
            "event Normal SawCompletedJob on CronJob a/sum uid=c1: Saw completed job: 1, condition: {first}\n"
        );
        assert_eq!(transcript, format!("{event}{PUT}{IDLE}"));
    }
    let status = written_status(&mut cluster(listed(), &[job("1", &["Failed"]), job("2", &[])]));
    assert_eq!(status["active"], json!([entry("2")]));
}

fn complete_at(uid: &str, seconds: i64) -> Value {
    let mut complete = job(uid, &["Complete"]);
    complete["status"]["completionTime"] = json!(at(seconds));
    complete
}

/// Proves CRON-19, CRON-89.
#[test]
fn last_successful_time_is_the_latest_completion() {
    let known = |seconds: i64| idle(|cron_job| cron_job["status"]["lastSuccessfulTime"] = json!(at(seconds)));
    let latest = |cron_job: Value, jobs: &[Value]| {
        written_status(&mut cluster(cron_job, jobs))["lastSuccessfulTime"].clone()
    };
    assert_eq!(latest(idle(|_| {}), &[complete_at("1", -50), complete_at("2", -70)]), at(-50));
    assert_eq!(latest(known(-60), &[complete_at("1", -50)]), at(-50));
    assert_eq!(sync(known(-60), &[complete_at("1", -70)]), IDLE, "an older one changes nothing");
    assert_eq!(sync(known(-60), &[job("1", &["Complete"])]), IDLE);
    assert_eq!(sync(idle(|_| {}), &[job("1", &["Failed"])]), IDLE);
    assert_eq!(
        sync(idle(|_| {}), &[job("1", &["Complete"])]),
        format!("{PUT}{IDLE}"),
        "written without a time"
    );
    assert_eq!(latest(idle(|_| {}), &[job("1", &["Complete"])]), Value::Null);
}

/// Proves CRON-20, CRON-96.
#[test]
fn entry_without_a_cached_job_is_removed_only_after_a_live_404() {
    let listed = || idle(|cron_job| cron_job["status"]["active"] = json!([entry("1")]));
    let get = "get jobs.batch a/1\n";
    let missing = format!(
        "{get}event Normal MissingJob on CronJob a/sum uid=c1: Active job went missing: 1\n{PUT}{IDLE}"
    );
    assert_eq!(sync(listed(), &[]), missing);
    let mut failing =
        cluster(listed(), &[]).failing::<Job>("get", &key("1"), error(ErrorReason::Unavailable));
    assert_eq!(outline(&mut failing), format!("{get}retry: refused\n"));
    let mut recreated = job("1", &["Complete"]);
    recreated["metadata"]["uid"] = json!("2");
    recreated["metadata"]["ownerReferences"] = json!([]);
    let mut found = cluster(listed(), &[]).with_live::<Job>(recreated);
    assert_eq!(outline(&mut found), format!("{get}{IDLE}"), "the name exists");
}

/// Proves CRON-91, CRON-111.
#[test]
fn job_of_another_uid_name_or_namespace_is_not_owned() {
    let none_kept = || {
        idle(|cron_job| {
            cron_job["spec"]["successfulJobsHistoryLimit"] = json!(0);
            cron_job["spec"]["failedJobsHistoryLimit"] = json!(0);
        })
    };
    assert!(sync(none_kept(), &[job("1", &["Failed"])]).starts_with("delete"));
    let mut recreated = job("1", &["Failed"]);
    recreated["metadata"]["ownerReferences"][0]["uid"] = json!("c0");
    assert_eq!(sync(none_kept(), &[recreated]), IDLE, "the CronJob was re-created");
    let mut elsewhere = job("1", &["Complete"]);
    elsewhere["metadata"]["namespace"] = json!("b");
    assert_eq!(sync(none_kept(), &[elsewhere]), IDLE);
    let mut of_another_kind = job("1", &["Complete"]);
    of_another_kind["metadata"]["ownerReferences"][0]["kind"] = json!("Workflow");
    assert_eq!(sync(none_kept(), &[of_another_kind]), IDLE);
}

/// A finished Job that started this many seconds ago.
fn started(uid: &str, condition: &str, seconds_ago: i64) -> Value {
    let mut job = job(uid, &[condition]);
    job["status"]["startTime"] = json!(at(-seconds_ago));
    job["status"]["completionTime"] = json!(at(-10_000));
    job
}

fn limits(successful: Value, failed: Value) -> Value {
    idle(|cron_job| {
        cron_job["status"]["lastSuccessfulTime"] = json!(at(-10_000));
        cron_job["spec"]["successfulJobsHistoryLimit"] = successful;
        cron_job["spec"]["failedJobsHistoryLimit"] = failed;
    })
}

fn deletes(uid: &str) -> String {
    format!("delete jobs.batch a/{uid} because it is beyond the history limit (Background)\n")
}

/// Proves CRON-50, CRON-51, CRON-67.
#[test]
fn oldest_finished_jobs_beyond_the_limits_are_deleted() {
    let jobs = [
        started("c1", "Complete", 30),
        started("c2", "Complete", 40),
        started("c3", "Complete", 40),
        started("f1", "Failed", 50),
        started("f2", "Failed", 20),
        job("c0", &["Complete"]),
        job("r1", &[]),
    ];
    let deleted = |successful: Value, failed: Value| -> Vec<String> {
        let transcript = sync(limits(successful, failed), &jobs);
        let names = transcript.lines().filter_map(|line| line.strip_prefix("delete jobs.batch a/"));
        names.map(|line| line[..2].to_owned()).collect()
    };
    assert_eq!(deleted(json!(1), json!(1)), ["c2", "c3", "c1", "f1"], "without a start time last");
    assert_eq!(deleted(json!(0), Value::Null), ["c2", "c3", "c1", "c0"]);
    assert_eq!(deleted(Value::Null, json!(0)), ["f1", "f2"]);
    assert_eq!(deleted(Value::Null, Value::Null), [""; 0]);
    assert_eq!(deleted(json!(9), json!(9)), [""; 0]);
    assert_eq!(deleted(json!(-5), Value::Null).len(), 4, "a negative limit is no panic");
}

/// Proves CRON-50, CRON-85.
#[test]
fn history_is_trimmed_whatever_else_holds() {
    for change in [
        json!({"spec": {"suspend": true}}),
        json!({"spec": {"schedule": "nonsense"}}),
        json!({"metadata": {"deletionTimestamp": at(0)}}),
    ] {
        let mut cron_job = limits(json!(0), json!(0));
        for (part, fields) in change.as_object().unwrap() {
            for (field, value) in fields.as_object().unwrap() {
                cron_job[part][field] = value.clone();
            }
        }
        assert!(sync(cron_job, &[job("1", &["Failed"])]).starts_with(&deletes("1")), "{change}");
    }
    let mut due = limits(json!(0), json!(0));
    due["spec"]["schedule"] = json!("* * * * *");
    let path = "/apis/batch/v1/namespaces/a/jobs/sum-30000000";
    let mut over_quota = cluster(due, &[job("1", &["Failed"])]).failing_at(
        "create",
        path,
        error(ErrorReason::Forbidden),
        None,
    );
    let transcript = outline(&mut over_quota);
    assert!(transcript.starts_with(&deletes("1")), "{transcript}");
    assert!(transcript.ends_with(&format!("{PUT}retry: refused\n")), "{transcript}");
}

/// Proves CRON-52, CRON-102.
#[test]
fn deletions_report_success_and_failure() {
    let jobs = [started("1", "Failed", 20), started("2", "Failed", 10)];
    let event =
        |uid: &str| format!("event Normal SuccessfulDelete on CronJob a/sum uid=c1: Deleted job {uid}\n");
    let wanted = format!("{}{}{}{}{PUT}{IDLE}", deletes("1"), event("1"), deletes("2"), event("2"));
    assert_eq!(sync(limits(json!(0), json!(0)), &jobs), wanted, "a status write although nothing changes");
    for reason in [ErrorReason::NotFound, ErrorReason::Forbidden] {
        let cluster = cluster(limits(json!(0), json!(0)), &jobs);
        let transcript = outline(&mut cluster.failing::<Job>("delete", &key("1"), error(reason)));
        assert!(
            transcript.contains("event Warning FailedDelete on CronJob a/sum uid=c1: Deleted job: refused\n"),
            "{transcript}"
        );
        assert!(transcript.contains(&event("2")) && transcript.ends_with(IDLE), "{transcript}");
    }
    let mut terminating = started("1", "Failed", 20);
    terminating["metadata"]["deletionTimestamp"] = json!(at(-1));
    assert!(sync(limits(json!(0), json!(0)), &[terminating]).starts_with(&deletes("1")), "again");
}

/// Proves CRON-52, CRON-84.
#[test]
fn deleted_job_leaves_the_list_and_still_counts_as_success() {
    let mut none_kept = limits(json!(0), json!(0));
    none_kept["status"] = json!({"lastScheduleTime": at(-60), "active": [entry("1")]});
    let status = written_status(&mut cluster(none_kept, &[complete_at("1", -5)]));
    assert_eq!(status, json!({"lastScheduleTime": at(-60), "lastSuccessfulTime": at(-5)}));
}

/// Proves CRON-74.
#[test]
fn entries_of_the_list_are_object_references() {
    let mut status = CronJobStatus::default();
    let time = Time::from_unix_seconds(NOW);
    active::add(&mut status, &key("sum-1"), Uid::from("u"), ResourceVersion::from("7"), time);
    let entry = json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "a", "name": "sum-1", "uid": "u",
                       "resourceVersion": "7"});
    assert_eq!(serde_json::to_value(&status).unwrap(), json!({"active": [entry], "lastScheduleTime": at(0)}));
}
