//! Decides whether a CronJob runs now: an ordered ladder, each rung of which may end the reconcile.

use std::time::Duration;

use jiff::tz::TimeZone;
use keleustes_objects::{CronJob, Time};
use keleustes_plan::{InvolvedObject, Now, PlannedEvent};

use super::due::{self, InvalidSchedule};
use super::schedule::{self, Schedule};
use super::time_zones::TimeZones;
use super::{active, events, job};

/// What to do about a CronJob now.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing, until a change enqueues it.
    Idle,
    /// Nothing until the next time, if there is one.
    Wait(Option<Duration>),
    /// Create the Job of this time.
    Run(Time, Schedule),
}

/// The verdict, with the events that lead to it.
pub(super) fn decide(
    cron_job: &CronJob,
    now: Now,
    zones: &TimeZones,
    recorded: &mut Vec<PlannedEvent>,
) -> Verdict {
    let spec = &cron_job.spec;
    let mut warn = |reason: &str, message: String| {
        recorded.push(PlannedEvent::warning(InvolvedObject::of(cron_job), reason, message));
    };
    if cron_job.meta.deletion_timestamp.is_some() {
        return Verdict::Idle;
    }
    let zone = match spec.time_zone.as_deref().map(|name| (name, zones.load(name))) {
        Some((name, Err(error))) => {
            warn("UnknownTimeZone", format!("invalid timeZone: {}: {error}", schedule::quote(name)));
            return Verdict::Idle;
        }
        Some((_, Ok(zone))) => Some(zone),
        None => None,
    };
    if spec.suspend {
        return Verdict::Idle;
    }
    if has_own_zone(cron_job) {
        warn("UnsupportedSchedule", events::unsupported_schedule(&spec.schedule));
    }
    let schedule = match parse_schedule(cron_job, zone, zones) {
        Ok(schedule) => schedule,
        Err(error) => {
            let quoted = schedule::quote(&spec.schedule);
            warn("UnparseableSchedule", format!("unparseable schedule: {quoted} : {error}"));
            return Verdict::Idle;
        }
    };
    let due = match due::due(cron_job, now, &schedule) {
        Ok(due) => due,
        Err(InvalidSchedule) => {
            let message = format!("invalid schedule: {} : {}", spec.schedule, InvalidSchedule::MESSAGE);
            warn("InvalidSchedule", message);
            return Verdict::Idle;
        }
    };
    let wait = || Verdict::Wait(due::delay(cron_job, now, &schedule));
    let Some(time) = due.most_recent.map(Time::from_unix_seconds) else { return wait() };
    if due.has_many_missed() {
        warn("TooManyMissedTimes", events::TOO_MANY_MISSED.to_owned());
    }
    if is_past_deadline(cron_job, time, now) {
        let scheduled = schedule::rfc1123z(time.unix_seconds());
        warn("MissSchedule", format!("Missed scheduled time to start a job: {scheduled}"));
        return wait();
    }
    let is_listed =
        active::lists_name(&cron_job.status, &cron_job.meta.key.namespace, &job::name(cron_job, time));
    if is_listed || cron_job.status.last_schedule_time == Some(time) {
        return wait();
    }
    if spec.concurrency_policy == "Forbid" && !cron_job.status.active.is_empty() {
        recorded.push(events::already_active(cron_job));
        return wait();
    }
    Verdict::Run(time, schedule)
}

/// The search for due times leaves out those past the deadline, so this holds for none of them. The original checks
/// it all the same.
fn is_past_deadline(cron_job: &CronJob, time: Time, now: Now) -> bool {
    cron_job.spec.starting_deadline_seconds.is_some_and(|deadline| {
        let late = now.wall.seconds_since(time.plus_seconds(deadline));
        late > 0 || (late == 0 && now.wall_subsecond_nanoseconds > 0)
    })
}

/// Whether the schedule names a zone itself; the CronJob's timeZone is ignored then.
fn has_own_zone(cron_job: &CronJob) -> bool {
    cron_job.spec.schedule.contains("TZ")
}

/// The schedule in the time zone of the CronJob, which is `None` if it is not set or unknown, unless the schedule names one
/// itself.
pub(super) fn parse_schedule(
    cron_job: &CronJob,
    zone: Option<TimeZone>,
    zones: &TimeZones,
) -> Result<Schedule, String> {
    let schedule = &*cron_job.spec.schedule;
    let name = cron_job.spec.time_zone.as_deref().unwrap_or_default();
    match zone.filter(|_| !has_own_zone(cron_job)) {
        // The original writes the name before the schedule, where it ends at the first space.
        Some(_) if name.contains(' ') => schedule::parse(&format!("TZ={name} {schedule}"), zones),
        Some(zone) => schedule::parse_in(schedule, zone),
        None => schedule::parse(schedule, zones),
    }
}
