//! Creates a Job at every scheduled time of a CronJob, lists its running Jobs in the status, and deletes old finished
//! ones.
//!
//! A Job's name contains the minute it is scheduled for, so that no time runs twice: if the process crashes between
//! the creation and the status update, the next reconcile finds the Job by its name and lists it.
//!
//! Parity: pkg/controller/cronjob.

mod active;
mod decide;
mod due;
mod enqueue;
mod events;
mod history;
mod job;
mod reconcile;
pub mod schedule;
#[cfg(test)]
mod tests;
pub mod time_zones;

use keleustes_objects::{CronJob, Job};
use keleustes_plan::{Buckets, Controller, Grant, Loop, Metric};

pub use self::time_zones::TimeZones;
use crate::workloads::owners::by_controller;

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct CronJobOptions {
    /// Number of workers (`--concurrent-cron-job-syncs`).
    pub workers: usize,
    /// The time zones that schedules refer to.
    pub time_zones: TimeZones,
}

/// Upstream's defaults, with the embedded time zones.
impl Default for CronJobOptions {
    fn default() -> Self {
        Self { workers: 5, time_zones: TimeZones::embedded() }
    }
}

const NAME: &str = "cronjob-controller";

static CREATION_SKEW: Metric = Metric::histogram(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "The time between the scheduled time of a CronJob and the creation of its Job.",
    &[],
    Buckets::Exponential { first: 1.0, factor: 2.0, count: 10 },
)
.with_stability("STABLE");

/// Builds the controller.
#[must_use]
pub fn controller(options: &CronJobOptions) -> Controller {
    let zones = &options.time_zones;
    Controller::new(NAME)
        .service_account(NAME)
        .event_component(NAME)
        .metrics([&CREATION_SKEW])
        .may_write(&[
            Grant { group: "batch", resource: "cronjobs", verbs: &["get", "list", "watch", "update"] },
            Grant { group: "batch", resource: "cronjobs/status", verbs: &["update"] },
            Grant { group: "batch", resource: "cronjobs/finalizers", verbs: &["update"] },
            Grant {
                group: "batch",
                resource: "jobs",
                verbs: &["get", "list", "watch", "create", "update", "delete", "patch"],
            },
            Grant { group: "", resource: "pods", verbs: &["list", "watch", "delete"] },
        ])
        .with_loop(
            Loop::reconciling("cronjob", reconcile::CronJobReconciler { zones: zones.clone() })
                .keyed_by::<CronJob>()
                .enqueue_on::<CronJob>(enqueue::cron_job_changed(zones))
                .enqueue_on::<Job>(enqueue::job_changed)
                .reads_index(by_controller::<Job>())
                .workers(options.workers),
        )
}
