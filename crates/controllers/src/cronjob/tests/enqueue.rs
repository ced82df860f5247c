//! What changes enqueue.

use std::sync::Arc;
use std::time::Duration;

use keleustes_plan::Change;

use super::*;
use crate::cronjob::enqueue::Unparseable;

const AT_ONCE: Duration = Duration::ZERO;

fn decoded<T: keleustes_objects::Kind>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).unwrap())
}

/// What an update of the CronJob enqueues.
fn updated(old: Value, mut new: Value) -> Vec<(String, Duration)> {
    let a_loop = the_loop();
    new["metadata"]["resourceVersion"] = json!("6");
    cluster(new.clone(), &[]).enqueued_with_delays(&a_loop, change_between::<CronJob>(old, new))
}

fn change_between<T: keleustes_objects::Kind>(old: Value, new: Value) -> Change<T> {
    let mut store = keleustes_plan::Store::<T>::default();
    store.apply(decoded(old));
    store.apply(decoded(new))
}

fn rescheduled(schedule: &str, change: impl FnOnce(&mut Value)) -> Vec<(String, Duration)> {
    let mut new = cron_job(schedule);
    change(&mut new);
    updated(cron_job("0 0 1 1 *"), new)
}

fn sum(delay: Duration) -> Vec<(String, Duration)> {
    vec![("a/sum".to_owned(), delay)]
}

/// Proves CRON-4, CRON-7, CRON-114.
#[test]
fn added_deleted_and_otherwise_updated_cron_jobs_are_enqueued_at_once() {
    let a_loop = the_loop();
    let cluster = cluster(cron_job("@daily"), &[]);
    let object = || decoded::<CronJob>(cron_job("@daily"));
    for change in [Change::added(object()), Change::deleted(object()), Change::resync(object())] {
        assert_eq!(cluster.enqueued_with_delays(&a_loop, change), sum(AT_ONCE));
    }
    let mut new = cron_job("@daily");
    new["spec"]["suspend"] = json!(false);
    new["status"]["lastScheduleTime"] = json!(at(0));
    assert_eq!(updated(cron_job("@daily"), new), sum(AT_ONCE));
    let mut other = cron_job("@daily");
    other["metadata"]["namespace"] = json!("b");
    let change = Change::added(decoded::<CronJob>(other));
    assert_eq!(cluster.enqueued_with_delays(&a_loop, change), [("b/sum".to_owned(), AT_ONCE)]);
}

/// Proves CRON-5, CRON-40, CRON-87, CRON-113.
#[test]
fn changed_schedule_or_zone_enqueues_for_the_next_time_only() {
    let minutes = |minutes: u64| sum(Duration::from_millis(minutes * 60_000 + 100));
    assert_eq!(rescheduled("10 8 * * *", |_| {}), minutes(10));
    assert_eq!(rescheduled("10 8 * * *", |new| new["spec"]["suspend"] = json!(false)), minutes(10));
    let tokyo = |new: &mut Value| new["spec"]["timeZone"] = json!("Asia/Tokyo");
    assert_eq!(rescheduled("30 17 * * *", tokyo), minutes(30), "08:30 in UTC");
    let mut zoned = cron_job("0 9 * * *");
    zoned["spec"]["timeZone"] = json!("Etc/UTC");
    assert_eq!(updated(cron_job("0 9 * * *"), zoned.clone()), minutes(60), "no zone differs from UTC");
    assert_eq!(updated(zoned, cron_job("0 9 * * *")), minutes(60), "so does its removal");
    assert_eq!(rescheduled("59 23 31 2 *", |_| {}), sum(AT_ONCE), "it never fires");
}

/// Proves CRON-6, CRON-71.
#[test]
fn unparseable_new_schedule_is_only_reported() {
    let items = rescheduled("61 * * * *", |_| {});
    assert_eq!(items, [("a/sum unparseable-schedule=61 * * * *".to_owned(), AT_ONCE)]);
    let item = Unparseable { key: key("sum"), schedule: "61 * * * *".into() };
    let transcript = cluster(cron_job("61 * * * *"), &[job("1", &["Complete"])]).reconcile(&the_loop(), item);
    let wanted = "event Warning UnParseableCronJobSchedule on CronJob a/sum uid=c1: unparseable schedule for cronjob: 61 * * * *\n";
    assert_eq!(transcript, wanted, "nothing is reconciled, and UnsupportedSchedule is not recorded");
    let unsupported = rescheduled("TZ=UTC 10 8 * * *", |_| {});
    assert_eq!(unsupported, sum(Duration::from_millis(600_100)));
}

/// Proves CRON-92.
#[test]
fn unknown_zone_of_a_new_schedule_is_ignored_by_the_handler() {
    let unknown = |new: &mut Value| new["spec"]["timeZone"] = json!("Mars/Olympus");
    assert_eq!(rescheduled("10 8 * * *", unknown), sum(Duration::from_millis(600_100)));
}

/// Proves CRON-93.
#[test]
fn earlier_delay_fires_and_evaluates_the_new_schedule() {
    // The queue keeps the earlier of two delays (`a_delayed_item_keeps_the_earlier_time` and its like in the runtime).
    let mut cluster = cluster(cron_job("0 9 * * *"), &[]);
    cluster.advance_clock(Duration::from_secs(60));
    assert_eq!(outline(&mut cluster), "requeue after 3540.1s\n");
}

fn jobs_changed(change: Change<Job>) -> Vec<(String, Duration)> {
    let a_loop = the_loop();
    cluster(cron_job("@daily"), &[]).enqueued_with_delays(&a_loop, change)
}

/// Proves CRON-8, CRON-10.
#[test]
fn job_enqueues_the_cron_job_that_controls_it() {
    for change in [Change::added, Change::deleted] {
        assert_eq!(jobs_changed(change(decoded(job("1", &[])))), sum(AT_ONCE));
        let mut terminating = job("1", &[]);
        terminating["metadata"]["deletionTimestamp"] = json!(at(0));
        assert_eq!(jobs_changed(change(decoded(terminating))), sum(AT_ONCE));
        let mut old_version = job("1", &[]);
        old_version["metadata"]["ownerReferences"][0]["apiVersion"] = json!("batch/v1beta1");
        assert_eq!(
            jobs_changed(change(decoded(old_version))),
            sum(AT_ONCE),
            "the apiVersion is not compared"
        );
        for (field, value) in [("kind", "Job"), ("name", "other"), ("uid", "c2")] {
            let mut foreign = job("1", &[]);
            foreign["metadata"]["ownerReferences"][0][field] = json!(value);
            assert_eq!(jobs_changed(change(decoded(foreign))), [], "{field}");
        }
        let mut elsewhere = job("1", &[]);
        elsewhere["metadata"]["namespace"] = json!("b");
        assert_eq!(jobs_changed(change(decoded(elsewhere))), [], "another namespace");
        let mut orphan = job("1", &[]);
        orphan["metadata"]["ownerReferences"] = json!([]);
        orphan["metadata"]["labels"] = json!({"app": "sum"});
        assert_eq!(jobs_changed(change(decoded(orphan))), [], "no adoption by label");
    }
}

/// Proves CRON-9.
#[test]
fn updated_job_enqueues_its_old_and_its_new_cron_job() {
    let update = |change: &dyn Fn(&mut Value)| {
        let mut new = job("1", &[]);
        new["metadata"]["resourceVersion"] = json!("4");
        change(&mut new);
        jobs_changed(change_between(job("1", &[]), new))
    };
    assert_eq!(update(&|_| {}), sum(AT_ONCE));
    assert_eq!(update(&|new| new["metadata"]["resourceVersion"] = json!("3")), []);
    assert_eq!(jobs_changed(Change::resync(decoded(job("1", &[])))), []);
    assert_eq!(update(&|new| new["metadata"]["ownerReferences"] = json!([])), sum(AT_ONCE), "the old one");
    let twice = update(&|new| new["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true));
    assert_eq!(twice.len(), 2, "any field of the reference counts");
}
