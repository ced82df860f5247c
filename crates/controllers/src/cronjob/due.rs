//! Which scheduled time is due, and how long it is until the next one.

use std::time::Duration;

use keleustes_objects::{CronJob, Time};
use keleustes_plan::Now;

use super::schedule::Schedule;

/// A reconcile starts this long after a scheduled time, in case the clocks of API server and manager differ a little.
const DELTA: Duration = Duration::from_millis(100);

/// More missed times than this are reported.
const MISSED_MAX: i64 = 100;

/// Go's zero time, the creation time of an object without a creationTimestamp.
const ZERO_TIME: i64 = -62_135_596_800;

/// A schedule that has no two times a second or more apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidSchedule;

impl InvalidSchedule {
    pub(super) const MESSAGE: &'static str = "time difference between two schedules is less than 1 second";
}

/// The scheduled times up to now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The time from which on times were searched.
    earliest: i64,
    /// The most recent time that is due.
    pub(super) most_recent: Option<i64>,
    /// How many times were missed, estimated from the distance of the first two.
    missed: i64,
}

impl Due {
    pub(super) fn has_many_missed(&self) -> bool {
        self.missed > MISSED_MAX
    }
}

/// The most recent time that is due, without those that are past the starting deadline.
pub(super) fn due(cron_job: &CronJob, now: Now, schedule: &Schedule) -> Result<Due, InvalidSchedule> {
    let now = now.wall.unix_seconds();
    let mut earliest = earliest(cron_job);
    if let Some(deadline) = cron_job.spec.starting_deadline_seconds {
        earliest = earliest.max(now.saturating_sub(deadline));
    }
    most_recent(earliest, now, schedule)
}

/// How long it is until the next time, whatever the starting deadline; `None` if the schedule has no next time.
pub(super) fn delay(cron_job: &CronJob, now: Now, schedule: &Schedule) -> Option<Duration> {
    let (earliest, now_seconds) = (earliest(cron_job), now.wall.unix_seconds());
    let base = match most_recent(earliest, now_seconds, schedule) {
        Ok(Due { most_recent: Some(time), .. }) => time,
        Ok(Due { missed: 0, earliest, .. }) => earliest,
        // Times were missed that an irregular schedule does not find again.
        Ok(_) | Err(InvalidSchedule) => now_seconds,
    };
    let next = schedule.next(base)?;
    Some(now.until(Time::from_unix_seconds(next)) + DELTA)
}

fn earliest(cron_job: &CronJob) -> i64 {
    let time = cron_job.status.last_schedule_time.or(cron_job.meta.creation_timestamp);
    time.map_or(ZERO_TIME, Time::unix_seconds)
}

/// Parity: `mostRecentScheduleTime`. The number of missed times is estimated from the distance of the first two, and
/// the search starts two such distances before now: an outage of a year takes no more steps than one of a day. An
/// irregular schedule may therefore find nothing although a time was missed.
fn most_recent(earliest: i64, now: i64, schedule: &Schedule) -> Result<Due, InvalidSchedule> {
    let first = schedule.next(earliest).ok_or(InvalidSchedule)?;
    if now < first {
        return Ok(Due { earliest, most_recent: None, missed: 0 });
    }
    let second = schedule.next(first).ok_or(InvalidSchedule)?;
    if now < second {
        return Ok(Due { earliest, most_recent: Some(first), missed: 0 });
    }
    let step = second - first;
    if step < 1 {
        return Err(InvalidSchedule);
    }
    let missed = (now - first) / step + 1;
    let mut most_recent = None;
    let mut next = schedule.next(first + (missed - 2) * step);
    while let Some(time) = next.filter(|time| *time <= now) {
        most_recent = Some(time);
        next = schedule.next(time);
    }
    Ok(Due { earliest, most_recent, missed })
}
