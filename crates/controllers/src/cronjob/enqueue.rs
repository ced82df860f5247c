//! Which CronJobs a change enqueues, and when.

use std::time::Duration;

use keleustes_objects::{ArcStr, CronJob, InternedStr, Job, Key, OwnerReference};
use keleustes_plan::{Change, Effects, QueueItem, View};

use super::time_zones::TimeZones;
use super::{decide, due};
use crate::workloads::owners::resolve;

/// The queue item of a CronJob whose new schedule is invalid, which only records the event `UnParseableCronJobSchedule`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unparseable {
    pub(super) key: Key,
    pub(super) schedule: ArcStr,
}

impl QueueItem for Unparseable {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn text(&self) -> String {
        format!("{} unparseable-schedule={}", self.key, self.schedule)
    }
}

pub(super) fn cron_job_changed(
    zones: &TimeZones,
) -> impl Fn(&Change<CronJob>, &View<'_>, &mut Effects) + Send + Sync + 'static {
    let zones = zones.clone();
    move |change, view, queue| match (change.old(), change.new()) {
        (Some(old), Some(new)) if is_rescheduled(old, new) => reschedule(new, &zones, view, queue),
        _ => queue.add(&change.latest().meta.key),
    }
}

fn is_rescheduled(old: &CronJob, new: &CronJob) -> bool {
    old.spec.schedule != new.spec.schedule || old.spec.time_zone != new.spec.time_zone
}

/// Enqueues a CronJob for the next time of its new schedule, and not before: a changed schedule alone starts no Job.
/// An earlier delay of the same key stays, and its reconcile evaluates the new schedule.
fn reschedule(cron_job: &CronJob, zones: &TimeZones, view: &View<'_>, queue: &mut Effects) {
    let key = &cron_job.meta.key;
    let zone = cron_job.spec.time_zone.as_deref().and_then(|name| zones.load(name).ok());
    match decide::parse_schedule(cron_job, zone, zones) {
        Ok(schedule) => {
            let delay = due::delay(cron_job, view.now(), &schedule);
            queue.add_after(key, delay.unwrap_or(Duration::ZERO));
        }
        Err(_) => queue.add(Unparseable { key: key.clone(), schedule: cron_job.spec.schedule.clone() }),
    }
}

/// Enqueues the CronJob that controls a Job, and the one that did before.
pub(super) fn job_changed(change: &Change<Job>, view: &View<'_>, queue: &mut Effects) {
    let (job, old) = (change.latest(), change.old());
    if change.is_unchanged() {
        return;
    }
    if let Some(old) = old.filter(|_| !change.is_deletion()) {
        if old.meta.resource_version == job.meta.resource_version {
            return;
        }
        if old.meta.controller_ref() != job.meta.controller_ref() {
            enqueue_owner(&old.meta.key.namespace, old.meta.controller_ref(), view, queue);
        }
    }
    enqueue_owner(&job.meta.key.namespace, job.meta.controller_ref(), view, queue);
}

fn enqueue_owner(
    namespace: &InternedStr,
    owner: Option<&OwnerReference>,
    view: &View<'_>,
    queue: &mut Effects,
) {
    if let Some(cron_job) = owner.and_then(|owner| resolve::<CronJob>(view, namespace, owner)) {
        queue.add(&cron_job.meta.key);
    }
}
