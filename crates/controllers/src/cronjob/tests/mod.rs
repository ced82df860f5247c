//! Decision tables of the controller. The clock of a rehearsal starts at 2027-01-15T08:00:00Z, a Friday, which is
//! minute 30,000,000 since 1970.

mod active_jobs;
mod create;
mod due_times;
mod enqueue;
mod schedules;
mod verdicts;

use keleustes_objects::{ApiError, CronJob, ErrorReason, Job, Key, Time};
use keleustes_plan::Loop;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;

fn the_loop() -> Loop {
    controller(&CronJobOptions::default()).loops.remove(0)
}

/// The time this many seconds from now.
fn at(seconds: i64) -> String {
    Time::from_unix_seconds(NOW + seconds).to_string()
}

/// Seconds since 1970 of a time in RFC 3339.
fn unix(text: &str) -> i64 {
    serde_json::from_value::<Time>(json!(text)).unwrap().unix_seconds()
}

fn key(name: &str) -> Key {
    Key::namespaced("a", name)
}

/// A CronJob `a/sum` with this schedule that last ran a minute ago.
fn cron_job(schedule: &str) -> Value {
    json!({
        "metadata": {"namespace": "a", "name": "sum", "uid": "c1", "resourceVersion": "5",
                     "creationTimestamp": at(-86_400)},
        "spec": {"schedule": schedule, "concurrencyPolicy": "Allow",
                 "jobTemplate": {"metadata": {"labels": {"app": "sum"}}, "spec": {"template": {}}}},
        "status": {"lastScheduleTime": at(-60)},
    })
}

/// A CronJob that is due every minute, with changes.
fn minutely(change: impl FnOnce(&mut Value)) -> Value {
    let mut cron_job = cron_job("* * * * *");
    change(&mut cron_job);
    cron_job
}

/// A Job of the CronJob with this UID, which is also its name.
fn job(uid: &str, conditions: &[&str]) -> Value {
    let conditions: Vec<_> = conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
    json!({
        "metadata": {"namespace": "a", "name": uid, "uid": uid, "resourceVersion": "3",
                     "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "sum", "uid": "c1",
                                          "controller": true}]},
        "status": {"conditions": conditions},
    })
}

/// An entry of `status.active` for a Job with this UID, which is also its name.
fn entry(uid: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "a", "name": uid, "uid": uid})
}

fn cluster(cron_job: Value, jobs: &[Value]) -> RehearsalCluster {
    let cluster = RehearsalCluster::of(&the_loop()).with::<CronJob>(cron_job);
    jobs.iter().cloned().fold(cluster, RehearsalCluster::with::<Job>)
}

/// The transcript of one reconcile without the bodies of writes.
fn outline(cluster: &mut RehearsalCluster) -> String {
    cluster.outline(&the_loop(), key("sum"))
}

fn sync(cron_job: Value, jobs: &[Value]) -> String {
    outline(&mut cluster(cron_job, jobs))
}

/// The status that a reconcile writes.
fn written_status(cluster: &mut RehearsalCluster) -> Value {
    let mut bodies = cluster.bodies(&the_loop(), key("sum"), "put cronjobs.batch/status ");
    assert_eq!(bodies.len(), 1, "one status write");
    bodies.remove(0).1["status"].take()
}

fn error(reason: ErrorReason) -> ApiError {
    ApiError::transport(reason, "refused")
}

const PUT: &str = "put cronjobs.batch/status a/sum because its Jobs or its schedule times have changed\n";
const WAIT: &str = "requeue after 60.1s\n";

/// The lines of a run of `sum-30000000`.
fn runs() -> String {
    format!("{}{PUT}{WAIT}", creates("sum-30000000", 0))
}

fn creates(name: &str, skew: i64) -> String {
    format!(
        "create jobs.batch a/{name} because a scheduled time is due\n\
         event Normal SuccessfulCreate on CronJob a/sum uid=c1: Created job {name}\n\
         measure cronjob_controller_job_creation_skew_duration_seconds{{}} {skew}\n"
    )
}

/// Proves CRON-1, CRON-2, CRON-3, CRON-70, CRON-75.
#[test]
fn controller_has_upstreams_names_and_numbers() {
    let controller = controller(&CronJobOptions::default());
    assert_eq!((controller.name, crate::names::aliases_of(controller.name)), (NAME, &["cronjob"][..]));
    assert_eq!((controller.service_account, controller.event_component), (Some(NAME), Some(NAME)));
    let a_loop = the_loop();
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("cronjob", 5, None));
    assert_eq!(a_loop.rate_limiter, keleustes_plan::RateLimiter::DEFAULT);
    assert!(a_loop.starts_without.is_empty(), "workers start after both caches are synced");
    let read: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(read, ["cronjobs.batch", "jobs.batch"]);
    let buckets = Buckets::Exponential { first: 1.0, factor: 2.0, count: 10 };
    assert_eq!(CREATION_SKEW.metric_type, keleustes_plan::MetricType::Histogram(buckets));
    assert_eq!(CREATION_SKEW.stability, "STABLE");
}
