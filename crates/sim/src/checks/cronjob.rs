//! CronJobs: no scheduled time runs twice, and in the end the last time that is due has run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use keleustes_objects::Time;
use serde_json::Value;

use super::Checker;
use super::objects::{controller_ref, describe, is_terminating, namespace, uid};
use crate::bodies::CRON_MINUTES;
use crate::recorder::{ObservedWrite, text};
use crate::storm::START_NANOSECONDS;

const SCHEDULED_AT: &str = "/metadata/annotations/batch.kubernetes.io~1cronjob-scheduled-timestamp";

/// How long a due time may wait in a cluster without faults.
pub(super) const SLACK_SECONDS: i64 = 30;

/// A fault this long before the last time of a schedule may leave no leader until the next minute. A later one does not find
/// that time: the original's search begins less than two intervals before now.
const OUTAGE_SECONDS: i64 = 90;

/// Follows the Jobs that are created for CronJobs.
#[derive(Default)]
pub struct CronJobs {
    /// UID of the CronJob and scheduled time of every Job that was created.
    created: BTreeSet<(String, String)>,
    /// The time of the last write, since the start of the storm.
    now: Duration,
    /// How often a CronJob of each namespace and name was created: a second one finds the Jobs of the first.
    creations: BTreeMap<(String, String), u32>,
    /// CronJobs that were suspended at some time, by namespace and name.
    suspended: BTreeSet<(String, String)>,
    /// Whether anything but users acted: then a time may pass without a leader, and only the last one that was missed runs.
    is_disturbed: bool,
    /// Whether the clock of a manager has jumped. A clock that is behind makes timers late, and the original's search for
    /// missed times, which starts two intervals before now, finds none of a schedule that has ended by then.
    has_clock_jumped: bool,
    /// The times of all faults, in seconds since 1970.
    faulted_at: Vec<i64>,
    /// UIDs of CronJobs whose next Job exists and belongs to an earlier CronJob of that name: they wait for another event, as
    /// with the original (CRON-45).
    blocked: BTreeSet<String>,
}

impl Checker for CronJobs {
    fn name(&self) -> &'static str {
        "cronjob-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        self.now = self.now.max(write.at);
        let request = &write.request;
        if write.component == "cronjob-controller" && request.resource == "jobs" && write.code == 409 {
            self.on_conflict(write, server);
        }
        if request.resource == "cronjobs" && !write.by_manager() && write.succeeded() {
            self.on_user_write(write);
        }
        if request.resource != "jobs" || !write.by_manager() || !write.succeeded() {
            return Ok(());
        }
        if request.method == Method::POST && write.component == "cronjob-controller" {
            let owner = controller_ref(&write.body).map_or("", |owner| text(owner, "/uid"));
            let time = text(&write.body, SCHEDULED_AT);
            if !self.created.insert((owner.to_owned(), time.to_owned())) {
                return Err(format!("{} runs for the second time", describe(&write.body)));
            }
        }
        Ok(())
    }

    fn on_clock_jump(&mut self) {
        self.has_clock_jumped = true;
    }

    fn on_fault(&mut self, at: Duration) {
        self.is_disturbed = true;
        self.faulted_at.push(wall_seconds(at));
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let cron_jobs = server.objects("cronjobs.batch");
        cron_jobs.iter().try_for_each(|cron_job| self.check_last_time(cron_job, server))?;
        cron_jobs.iter().try_for_each(|cron_job| self.check_every_time(cron_job))
    }
}

impl CronJobs {
    fn now(&self) -> i64 {
        wall_seconds(self.now)
    }

    fn on_user_write(&mut self, write: &ObservedWrite) {
        let request = &write.request;
        let name = if request.name.is_empty() { text(&write.body, "/metadata/name") } else { &request.name };
        let key = (request.namespace.clone(), name.to_owned());
        if request.method == Method::POST {
            *self.creations.entry(key.clone()).or_default() += 1;
        }
        if write.body.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
            self.suspended.insert(key);
        }
    }

    fn on_conflict(&mut self, write: &ObservedWrite, server: &ApiServer) {
        let owner_of = |job: &Value| controller_ref(job).map(|owner| text(owner, "/uid").to_owned());
        let name = text(&write.body, "/metadata/name");
        let existing = server.object("jobs.batch", &write.request.namespace, name);
        let wanted = owner_of(&write.body);
        if existing.is_some_and(|job| owner_of(&job) != wanted) {
            self.blocked.extend(wanted);
        }
    }

    /// In a calm storm no time is skipped, unless the CronJob itself forbids it.
    fn check_every_time(&self, cron_job: &Value) -> Result<(), String> {
        let key = (namespace(cron_job).to_owned(), text(cron_job, "/metadata/name").to_owned());
        let is_exempt = self.is_disturbed
            || self.has_clock_jumped
            || is_terminating(cron_job)
            || text(cron_job, "/spec/concurrencyPolicy") == "Forbid"
            || self.suspended.contains(&key)
            || self.creations.get(&key) != Some(&1);
        if is_exempt {
            return Ok(());
        }
        let start = START_NANOSECONDS / 1_000_000_000;
        let created = time(cron_job, "/metadata/creationTimestamp").unwrap_or(start);
        let due = CRON_MINUTES.map(|minute| start + minute * 60);
        for due in due.filter(|due| *due > created && *due + SLACK_SECONDS < self.now()) {
            let scheduled = jiff::Timestamp::from_second(due).unwrap_or_default().to_string();
            if !self.created.contains(&(uid(cron_job).to_owned(), scheduled)) {
                return Err(format!("{} has skipped minute {}", describe(cron_job), (due - start) / 60));
            }
        }
        Ok(())
    }

    /// The last time that is due has run, unless the CronJob may not run it.
    fn check_last_time(&self, cron_job: &Value, server: &ApiServer) -> Result<(), String> {
        let is_suspended = cron_job.pointer("/spec/suspend") == Some(&Value::Bool(true));
        let is_blocked = self.blocked.contains(uid(cron_job));
        if is_suspended || is_blocked || is_terminating(cron_job) || self.has_clock_jumped {
            return Ok(());
        }
        let start = START_NANOSECONDS / 1_000_000_000;
        let created = time(cron_job, "/metadata/creationTimestamp").unwrap_or(start);
        let due = CRON_MINUTES.rev().map(|minute| start + minute * 60);
        let Some(due) = due.into_iter().find(|due| *due + SLACK_SECONDS < self.now() && *due > created)
        else {
            return Ok(());
        };
        let is_last = due == start + (CRON_MINUTES.end - 1) * 60;
        let outage = due - OUTAGE_SECONDS..=due;
        let may_be_missed = is_last && self.faulted_at.iter().any(|at| outage.contains(at));
        let waits = text(cron_job, "/spec/concurrencyPolicy") == "Forbid"
            && cron_job.pointer("/status/active/0").is_some();
        let name = format!("{}-{}", text(cron_job, "/metadata/name"), due / 60);
        let existing = server.object("jobs.batch", namespace(cron_job), &name);
        let is_foreign = existing
            .is_some_and(|job| controller_ref(&job).is_none_or(|owner| text(owner, "/uid") != uid(cron_job)));
        let has_run = time(cron_job, "/status/lastScheduleTime").is_some_and(|last| last >= due);
        if has_run || waits || is_foreign || may_be_missed {
            return Ok(());
        }
        Err(format!("{} has not run for minute {}", describe(cron_job), (due - start) / 60))
    }
}

/// A time of the storm, in seconds since 1970.
pub(super) fn wall_seconds(since_start: Duration) -> i64 {
    START_NANOSECONDS / 1_000_000_000 + i64::try_from(since_start.as_secs()).unwrap_or(i64::MAX)
}

/// The time at a JSON pointer, in seconds since 1970.
pub(super) fn time(object: &Value, pointer: &str) -> Option<i64> {
    let found = object.pointer(pointer)?.clone();
    serde_json::from_value::<Time>(found).ok().map(Time::unix_seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scheduled_time_that_runs_twice_is_reported() {
        let (server, mut checker) = (ApiServer::builder().build(), CronJobs::default());
        let creation = |name: &str, owner: &str, minute: u32| {
            let scheduled = format!("2026-01-01T00:0{minute}:00Z");
            let annotations = json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": scheduled});
            let owners = json!([{"kind": "CronJob", "name": "oar", "uid": owner, "controller": true}]);
            let metadata = json!({"namespace": "default", "name": name, "annotations": annotations,
                "ownerReferences": owners});
            let path = "/apis/batch/v1/namespaces/default/jobs";
            let body = json!({"kind": "Job", "metadata": metadata});
            ObservedWrite { body, ..ObservedWrite::of_manager("cronjob-controller", &Method::POST, path) }
        };
        assert_eq!(checker.on_write(&creation("oar-1", "u", 1), &server), Ok(()));
        assert_eq!(checker.on_write(&creation("oar-2", "u", 2), &server), Ok(()));
        assert_eq!(checker.on_write(&creation("oar-1", "v", 1), &server), Ok(()), "of another CronJob");
        let refused = ObservedWrite { code: 409, ..creation("oar-1", "u", 1) };
        assert_eq!(checker.on_write(&refused, &server), Ok(()));
        let error = checker.on_write(&creation("oar-3", "u", 1), &server).unwrap_err();
        assert_eq!(error, "Job default/oar-3 runs for the second time");
    }
}
