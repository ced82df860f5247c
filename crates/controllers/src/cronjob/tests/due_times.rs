//! Which time is due, and the delay to the next one.

use std::time::Duration;

use keleustes_plan::Now;

use super::*;
use crate::cronjob::due::{self, InvalidSchedule};
use crate::cronjob::schedule;

/// A CronJob with a schedule, its last run and its deadline.
fn with(schedule: &str, last: &str, deadline: Option<i64>) -> CronJob {
    let mut json = cron_job(schedule);
    json["status"]["lastScheduleTime"] = json!(last);
    json["spec"]["startingDeadlineSeconds"] = json!(deadline);
    serde_json::from_value(json).unwrap()
}

fn now(text: &str) -> Now {
    Now {
        wall: Time::from_unix_seconds(unix(text)),
        wall_subsecond_nanoseconds: 0,
        monotonic: Duration::ZERO,
    }
}

/// The due time, whether many were missed, and the seconds until the next time.
fn due_at(cron_job: &CronJob, at: &str) -> Result<(String, bool, f64), InvalidSchedule> {
    let schedule = schedule::parse(&cron_job.spec.schedule, &TimeZones::embedded()).unwrap();
    let due = due::due(cron_job, now(at), &schedule)?;
    let time = due.most_recent.map_or("none".to_owned(), |time| Time::from_unix_seconds(time).to_string());
    let delay = due::delay(cron_job, now(at), &schedule).map_or(-1.0, |delay| delay.as_secs_f64());
    Ok((time, due.has_many_missed(), delay))
}

fn found(schedule: &str, last: &str, at: &str) -> (String, bool, f64) {
    due_at(&with(schedule, last, None), at).unwrap()
}

fn some(time: &str, many: bool, delay: f64) -> (String, bool, f64) {
    (time.to_owned(), many, delay)
}

/// Proves CRON-28, CRON-29.
#[test]
fn first_time_after_the_last_run_is_due() {
    let (last, hourly) = ("2027-01-15T07:00:00Z", "0 * * * *");
    assert_eq!(found(hourly, last, "2027-01-15T07:59:59Z"), some("none", false, 1.1));
    assert_eq!(found(hourly, last, "2027-01-15T08:00:00Z"), some("2027-01-15T08:00:00Z", false, 3600.1));
    assert_eq!(found(hourly, last, "2027-01-15T08:59:59Z"), some("2027-01-15T08:00:00Z", false, 1.1));
    let mut new = cron_job(hourly);
    new["status"] = json!({});
    new["metadata"]["creationTimestamp"] = json!("2027-01-15T07:30:00Z");
    let new: CronJob = serde_json::from_value(new).unwrap();
    assert_eq!(due_at(&new, "2027-01-15T07:59:59Z").unwrap(), some("none", false, 1.1), "since its creation");
    assert_eq!(due_at(&new, "2027-01-15T08:00:01Z").unwrap().0, "2027-01-15T08:00:00Z");
}

/// Proves CRON-30, CRON-79.
#[test]
fn schedule_that_never_fires_is_invalid() {
    let never = with("59 23 31 2 *", "2027-01-15T07:00:00Z", None);
    assert_eq!(due_at(&never, "2027-01-15T08:00:00Z"), Err(InvalidSchedule));
    let mondays = with("59 23 31 2 1", "2027-01-15T07:00:00Z", None);
    assert_eq!(due_at(&mondays, "2027-02-01T23:59:00Z").unwrap().0, "2027-02-01T23:59:00Z");
}

/// Proves CRON-31, CRON-32, CRON-88.
#[test]
fn most_recent_missed_time_is_due_and_many_are_reported() {
    let last = "2027-01-15T00:00:00Z";
    assert_eq!(found("0 * * * *", last, "2027-01-15T05:10:00Z"), some("2027-01-15T05:00:00Z", false, 3000.1));
    let minutely = |at: &str| found("* * * * *", last, at);
    assert_eq!(minutely("2027-01-15T01:40:30Z"), some("2027-01-15T01:40:00Z", false, 30.1), "100 missed");
    assert_eq!(minutely("2027-01-15T01:41:30Z"), some("2027-01-15T01:41:00Z", true, 30.1), "101 missed");
    assert_eq!(minutely("2028-01-15T01:41:30Z").0, "2028-01-15T01:41:00Z", "a year later");
    assert_eq!(found("@every 7m", last, "2027-01-15T00:50:00Z").0, "2027-01-15T00:49:00Z");
}

/// Proves CRON-33, CRON-77, CRON-78.
#[test]
fn irregular_schedules_may_find_nothing() {
    let thursday = "2027-01-14T10:30:00Z";
    let (time, many, delay) = found("30 10,11,12 * * 1-5", thursday, "2027-01-15T16:30:00Z");
    assert_eq!((&*time, many), ("none", false));
    let until_monday = unix("2027-01-18T10:30:00Z") - unix("2027-01-15T16:30:00Z");
    assert_eq!(Duration::from_secs_f64(delay).as_millis(), until_monday.unsigned_abs() as u128 * 1000 + 100);
    assert_eq!(found("30 6-16/4 * * 1-5", thursday, "2027-01-15T10:31:00Z").0, "2027-01-15T10:30:00Z");
    let thursday_at_noon = "2027-01-14T12:30:00Z";
    let (time, many, _) = found("*/1 0 1 1 *", "2027-01-01T00:00:00Z", thursday_at_noon);
    assert_eq!((&*time, many), ("none", true), "however many times were missed");
}

/// Proves CRON-28, CRON-34, CRON-82, CRON-108.
#[test]
fn times_past_the_deadline_are_not_due_and_the_delay_ignores_the_deadline() {
    let hourly = |deadline| with("0 * * * *", "2027-01-15T05:00:00Z", Some(deadline));
    let now = "2027-01-15T08:10:00Z";
    assert_eq!(due_at(&hourly(600), now).unwrap(), some("none", false, 3000.1));
    assert_eq!(due_at(&hourly(601), now).unwrap().0, "2027-01-15T08:00:00Z");
    assert_eq!(due_at(&hourly(0), "2027-01-15T08:00:00Z").unwrap().0, "none");
    assert_eq!(due_at(&hourly(i64::MAX), now).unwrap().0, "2027-01-15T08:00:00Z", "no overflow");
    let every = |deadline| with("@every 10m", "2027-01-15T08:00:00Z", Some(deadline));
    for now in ["2027-01-15T08:10:00Z", "2027-01-15T08:10:30Z", "2027-01-15T09:00:00Z"] {
        assert_eq!(due_at(&every(60), now).unwrap().0, "none", "the period is longer: nothing ever runs");
    }
    assert_eq!(due_at(&every(900), "2027-01-15T08:15:30Z").unwrap().0, "2027-01-15T08:10:30Z", "shifted");
}

/// Proves CRON-40.
#[test]
fn delay_counts_from_the_fraction_of_a_second() {
    let cron_job = with("0 * * * *", "2027-01-15T08:00:00Z", None);
    let schedule = schedule::parse("0 * * * *", &TimeZones::embedded()).unwrap();
    let now = Now { wall_subsecond_nanoseconds: 250_000_000, ..now("2027-01-15T08:59:59Z") };
    assert_eq!(due::delay(&cron_job, now, &schedule), Some(Duration::from_millis(850)));
}

/// Proves CRON-81.
#[test]
fn last_run_in_the_future_means_nothing_is_due() {
    let (time, many, delay) = found("0 * * * *", "2027-01-15T10:00:00Z", "2027-01-15T08:00:00Z");
    assert_eq!((&*time, many, delay), ("none", false, 10_800.1));
}
