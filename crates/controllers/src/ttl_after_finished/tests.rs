//! Decision tables of the controller. The clock of a rehearsal starts at 2027-01-15T08:00:00Z.

use std::sync::Arc;

use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;
const GET: &str = "get jobs.batch a/sum\n";
const DELETE: &str = "delete jobs.batch a/sum because its TTL after it finished has expired (Foreground)\n";

fn the_loop() -> Loop {
    controller(&TtlAfterFinishedOptions::default()).loops.remove(0)
}

fn at(seconds_from_now: i64) -> String {
    Time::from_unix_seconds(NOW + seconds_from_now).to_string()
}

fn condition(kind: &str, status: &str, seconds_from_now: i64) -> Value {
    json!({"type": kind, "status": status, "lastTransitionTime": at(seconds_from_now)})
}

/// A Job `a/sum` with this TTL and these conditions.
fn job(ttl: Value, conditions: &[Value]) -> Value {
    let mut job = json!({
        "metadata": {"namespace": "a", "name": "sum", "uid": "u1", "resourceVersion": "7"},
        "status": {"conditions": conditions},
    });
    job["spec"]["ttlSecondsAfterFinished"] = ttl;
    job
}

/// A complete Job that finished this many seconds before now.
fn finished(ttl: i64, seconds_ago: i64) -> Value {
    job(json!(ttl), &[condition("Complete", "True", -seconds_ago)])
}

fn at_version(version: &str, mut job: Value) -> Value {
    job["metadata"]["resourceVersion"] = json!(version);
    job
}

fn sync(cluster: &mut RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(), Key::namespaced("a", "sum"))
}

fn cluster_of(job: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop()).with::<Job>(job)
}

fn reconcile_once(job: Value) -> String {
    sync(&mut cluster_of(job))
}

fn deletes(measured: &str) -> String {
    format!(
        "{GET}{DELETE}measure ttl_after_finished_controller_job_deletion_duration_seconds{{}} {measured}\n"
    )
}

/// What a change of the cached Job enqueues.
fn enqueued(change: Change<Job>) -> Vec<(String, Duration)> {
    let a_loop = the_loop();
    RehearsalCluster::of(&a_loop).enqueued_with_delays(&a_loop, change)
}

fn decoded(job: Value) -> Arc<Job> {
    Arc::new(serde_json::from_value(job).unwrap())
}

/// The verdict about a Job without a sub-second part of the clock.
fn verdict(job: Value) -> Verdict {
    let now =
        Now { wall: Time::from_unix_seconds(NOW), wall_subsecond_nanoseconds: 0, monotonic: Duration::ZERO };
    decide(&decoded(job), now)
}

/// Proves TTLF-1, TTLF-2, TTLF-3, TTLF-41, TTLF-44.
#[test]
fn added_updated_and_resynced_finished_jobs_with_a_ttl_are_enqueued_at_once() {
    let due = decoded(finished(100, 10));
    let at_once = [("a/sum".to_owned(), Duration::ZERO)];
    assert_eq!(enqueued(Change::added(due.clone())), at_once, "also by the first list after a start");
    assert_eq!(enqueued(Change::resync(due.clone())), at_once);
    assert_eq!(enqueued(Change::deleted(due)), [], "deletions are not handled");
    let a_loop = the_loop();
    let mut cluster = cluster_of(finished(100, 10));
    assert_eq!(cluster.put::<Job>(&a_loop, finished(100, 10)), ["a/sum"], "nothing needs to have changed");
}

/// Proves TTLF-2, TTLF-18, TTLF-54.
#[test]
fn unfinished_terminating_or_ttl_less_jobs_are_not_enqueued() {
    let mut terminating = finished(0, 10);
    terminating["metadata"]["deletionTimestamp"] = json!(at(0));
    let cases = [
        terminating,
        job(Value::Null, &[condition("Complete", "True", -10)]),
        job(json!(0), &[]),
        job(json!(0), &[condition("Complete", "False", -10), condition("Failed", "Unknown", -10)]),
        job(
            json!(0),
            &[condition("SuccessCriteriaMet", "True", -10), condition("FailureTarget", "True", -10)],
        ),
        job(json!(0), &[condition("Suspended", "True", -10)]),
    ];
    for case in cases {
        assert_eq!(enqueued(Change::added(decoded(case.clone()))), [], "{case}");
        assert_eq!(reconcile_once(case.clone()), "", "no API call for {case}");
    }
}

/// Proves TTLF-4, TTLF-5.
#[test]
fn controller_has_upstreams_names_and_numbers() {
    let controller = controller(&TtlAfterFinishedOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        (NAME, &["ttl-after-finished"][..])
    );
    assert_eq!((controller.service_account, controller.event_component), (Some(NAME), None));
    let a_loop = the_loop();
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("ttl_jobs_to_delete", 5, None));
    assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    let none = super::controller(&TtlAfterFinishedOptions { workers: 0 });
    assert_eq!(none.loops[0].workers, 0, "nothing is ever deleted");
}

/// Proves TTLF-10, TTLF-11, TTLF-42, TTLF-49.
#[test]
fn missing_and_terminating_jobs_cause_no_request() {
    assert_eq!(sync(&mut RehearsalCluster::of(&the_loop())), "");
    let mut held = finished(0, 10);
    held["metadata"]["deletionTimestamp"] = json!(at(-5));
    held["metadata"]["finalizers"] = json!(["foregroundDeletion", "example.com/held"]);
    assert_eq!(reconcile_once(held), "", "no second DELETE while a finalizer holds it");
}

/// Proves TTLF-12, TTLF-43.
#[test]
fn first_true_finish_condition_in_list_order_decides_the_time() {
    let both = |first: &str, second: &str| {
        job(json!(20), &[condition(first, "True", -15), condition(second, "True", -30)])
    };
    assert_eq!(verdict(both("Complete", "Failed")), Verdict::Wait(Duration::from_secs(5)));
    assert_eq!(verdict(both("Failed", "Complete")), Verdict::Wait(Duration::from_secs(5)));
    let skipped = job(json!(20), &[condition("Complete", "False", -90), condition("Failed", "True", -15)]);
    assert_eq!(verdict(skipped), Verdict::Wait(Duration::from_secs(5)));
    let mut without_time = both("Complete", "Failed");
    without_time["status"]["conditions"][0]["lastTransitionTime"] = Value::Null;
    assert!(matches!(verdict(without_time), Verdict::Unknown(_)), "the second is not considered");
}

/// Proves TTLF-13, TTLF-14.
#[test]
fn job_waits_for_its_expiry_to_the_nanosecond_and_expires_in_that_second() {
    assert_eq!(reconcile_once(finished(100, 40)), "requeue after 60s\n");
    let mut cluster = cluster_of(finished(100, 40));
    cluster.set_wall_clock(Time::from_unix_seconds(NOW + 59), 250_000_000);
    assert_eq!(sync(&mut cluster), "requeue after 750ms\n");
    cluster.set_wall_clock(Time::from_unix_seconds(NOW + 59), 999_999_999);
    assert_eq!(sync(&mut cluster), "requeue after 1ns\n");
    cluster.set_wall_clock(Time::from_unix_seconds(NOW + 60), 0);
    assert_eq!(sync(&mut cluster), deletes("0"));
    assert_eq!(reconcile_once(finished(0, 0)), deletes("0"), "a TTL of 0 expires at once");
}

/// Proves TTLF-15, TTLF-27.
#[test]
fn expired_job_is_read_live_once() {
    let cached = RehearsalCluster::of(&the_loop()).with_cached::<Job>(finished(1, 10));
    let mut gone = cached;
    assert_eq!(sync(&mut gone), GET, "404 is done");
    let error = ApiError::transport(ErrorReason::Unavailable, "no");
    let mut down = cluster_of(finished(1, 10)).failing::<Job>("get", &Key::namespaced("a", "sum"), error);
    assert_eq!(sync(&mut down), format!("{GET}retry: reading a/sum: no\n"));
}

/// Proves TTLF-16, TTLF-37, TTLF-38, TTLF-46.
#[test]
fn live_job_decides() {
    let stale = |live: Value| {
        let cluster = RehearsalCluster::of(&the_loop()).with_cached::<Job>(finished(1, 10));
        sync(&mut cluster.with_live::<Job>(live))
    };
    assert_eq!(stale(finished(70, 10)), format!("{GET}requeue after 60s\n"), "the TTL was raised");
    assert_eq!(stale(job(Value::Null, &[condition("Complete", "True", -10)])), GET, "the TTL was removed");
    let mut terminating = finished(1, 10);
    terminating["metadata"]["deletionTimestamp"] = json!(at(0));
    assert_eq!(stale(terminating), GET);
    assert_eq!(stale(job(json!(1), &[])), GET, "a re-created Job that is not finished");
    let mut without_time = finished(1, 10);
    without_time["status"]["conditions"][0]["lastTransitionTime"] = Value::Null;
    assert!(stale(without_time).starts_with(&format!("{GET}retry: unable to find the time")));
}

/// Proves TTLF-17, TTLF-25, TTLF-45.
#[test]
fn delete_is_foreground_with_the_live_uid_and_no_resource_version() {
    let mut recreated = finished(1, 8);
    recreated["metadata"]["uid"] = json!("u2");
    let cluster = RehearsalCluster::of(&the_loop()).with_cached::<Job>(finished(1, 10));
    assert_eq!(sync(&mut cluster.with_live::<Job>(recreated.clone())), deletes("7"));
    let live: Job = serde_json::from_value(recreated).unwrap();
    let write = Write::delete(&live);
    assert_eq!(write.target.uid, keleustes_objects::Uid::from("u2"), "the precondition of the executor");
}

/// Proves TTLF-19, TTLF-20, TTLF-48.
#[test]
fn owner_manager_and_completion_time_play_no_role() {
    let mut other = finished(5, 10);
    other["spec"]["managedBy"] = json!("example.com/other");
    other["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c",
                                                   "uid": "c", "controller": true}]);
    other["metadata"]["labels"] = json!({"keep": "me"});
    other["status"]["startTime"] = json!(at(1000));
    other["status"]["completionTime"] = json!(at(1000));
    assert_eq!(reconcile_once(other), deletes("5"));
    let failed = job(json!(5), &[condition("Failed", "True", -10)]);
    assert_eq!(reconcile_once(failed), deletes("5"), "without a completionTime");
}

/// Proves TTLF-26, TTLF-30.
#[test]
fn failed_delete_is_retried_and_not_measured() {
    for reason in
        [ErrorReason::NotFound, ErrorReason::Conflict, ErrorReason::Forbidden, ErrorReason::Unavailable]
    {
        let error = ApiError::transport(reason, "refused");
        let mut cluster =
            cluster_of(finished(1, 10)).failing::<Job>("delete", &Key::namespaced("a", "sum"), error);
        let transcript = sync(&mut cluster);
        assert!(transcript.contains("FAILED: refused\nretry: delete jobs.batch a/sum "), "{transcript}");
        assert!(!transcript.contains("measure"), "{transcript}");
    }
    let bounds = Buckets::Exponential { first: 0.1, factor: 2.0, count: 14 };
    assert_eq!(DELETION_SECONDS.metric_type, keleustes_plan::MetricType::Histogram(bounds));
    let mut late = cluster_of(finished(1, 10));
    late.set_wall_clock(Time::from_unix_seconds(NOW), 500_000_000);
    assert_eq!(sync(&mut late), deletes("9.5"));
}

/// Proves TTLF-31.
#[test]
fn only_deletions_are_granted_and_no_event_is_recorded() {
    let controller = controller(&TtlAfterFinishedOptions::default());
    let job = decoded(finished(1, 1));
    assert!(Controller::is_granted(controller.grants, &Write::delete(&*job)));
    assert!(!Controller::is_granted(controller.grants, &Write::put(&*job, "status", json!({}))));
    assert!(!Controller::is_granted(controller.grants, &Write::edit(&*job, |_| unreachable!())));
    assert!(!reconcile_once(finished(1, 10)).contains("event"));
}

/// Proves TTLF-35.
#[test]
fn finish_condition_without_time_is_an_error_without_requests() {
    for absent in [Value::Null, json!("0001-01-01T00:00:00Z")] {
        let mut without_time = finished(0, 10);
        without_time["status"]["conditions"][0]["lastTransitionTime"] = absent;
        let wanted = "retry: unable to find the time when the Job a/sum finished\n";
        assert_eq!(reconcile_once(without_time), wanted);
    }
}

/// Proves TTLF-36.
#[test]
fn finish_time_in_the_future_only_makes_the_wait_longer() {
    assert_eq!(reconcile_once(finished(60, -100)), "requeue after 160s\n");
    assert_eq!(reconcile_once(finished(0, -100)), "requeue after 100s\n");
}

/// Proves TTLF-39, TTLF-40, TTLF-52.
#[test]
fn changed_ttl_and_other_updates_are_evaluated_at_once() {
    let a_loop = the_loop();
    let mut cluster = cluster_of(finished(100, 40));
    let mut labelled = at_version("8", finished(100, 40));
    labelled["metadata"]["labels"] = json!({"changed": "1"});
    assert_eq!(cluster.put::<Job>(&a_loop, labelled), ["a/sum"]);
    assert_eq!(sync(&mut cluster), "requeue after 60s\n", "the same expiry and no request");
    assert_eq!(cluster.put::<Job>(&a_loop, at_version("9", finished(200, 40))), ["a/sum"], "raised");
    assert_eq!(sync(&mut cluster), "requeue after 160s\n");
    assert_eq!(cluster.put::<Job>(&a_loop, at_version("10", finished(50, 40))), ["a/sum"], "lowered");
    assert_eq!(sync(&mut cluster), "requeue after 10s\n");
    cluster.advance_clock(Duration::from_secs(10));
    assert_eq!(sync(&mut cluster), deletes("0"));
    assert_eq!(sync(&mut cluster), GET, "the older delayed item finds it deleted");
    let unset = job(Value::Null, &[condition("Complete", "True", -1000)]);
    let mut old = cluster_of(unset);
    assert_eq!(
        old.put::<Job>(&a_loop, at_version("8", finished(60, 1000))),
        ["a/sum"],
        "set long after the end"
    );
    assert_eq!(sync(&mut old), deletes("940"));
}

/// Proves TTLF-47.
#[test]
fn wall_clock_decides_and_a_jump_back_makes_the_job_wait_again() {
    let mut cluster = cluster_of(finished(60, 0));
    cluster.advance_clock(Duration::from_secs(60));
    cluster.set_wall_clock(Time::from_unix_seconds(NOW - 3600), 0);
    assert_eq!(
        sync(&mut cluster),
        "requeue after 3660s\n",
        "the wait has ended, the wall clock was set back"
    );
    cluster.set_wall_clock(Time::from_unix_seconds(NOW + 3600), 0);
    assert_eq!(sync(&mut cluster), deletes("3540"), "noticed with the next event");
}

/// Proves TTLF-50.
#[test]
fn extreme_ttls_neither_overflow_nor_stay() {
    assert_eq!(reconcile_once(finished(-5, 0)), deletes("5"));
    assert_eq!(reconcile_once(finished(2_147_483_647, 0)), "requeue after 2147483647s\n");
}

/// Proves TTLF-51.
#[test]
fn jobs_of_the_same_name_in_two_namespaces_expire_independently() {
    let mut other = finished(1000, 10);
    other["metadata"]["namespace"] = json!("b");
    let a_loop = the_loop();
    let mut cluster = cluster_of(finished(1, 10)).with::<Job>(other);
    assert_eq!(sync(&mut cluster), deletes("9"));
    assert_eq!(cluster.reconcile(&a_loop, Key::namespaced("b", "sum")), "requeue after 990s\n");
    assert!(cluster.live_object::<Job>(&Key::namespaced("b", "sum")).is_some());
}

/// Proves TTLF-53.
#[test]
fn only_jobs_are_watched() {
    let watched: Vec<_> = the_loop().reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(watched, ["jobs.batch"], "a TTL in the jobTemplate of a CronJob is never seen");
}
