//! Runs Jobs to their end: makes, counts and removes their pods, and counts every pod exactly once,
//! whatever crashes in between.
//!
//! Each pod holds a finalizer until its Job's status has counted it. A turn first writes down whom it is
//! about to count (`status.uncountedTerminatedPods`), then takes the finalizers off, then moves those
//! pods into the counters. Whoever takes over in the middle finds in the status and on the pods how far
//! that came.
//!
//! Parity: pkg/controller/job.

mod backoff;
mod enqueue;
mod failure_policy;
mod indexes;
mod memory;
mod metrics;
mod orphans;
mod pods;
mod reconcile;
mod status;
mod success_policy;
#[cfg(test)]
mod tests;
mod tracking;
mod verdict;
mod view;

use std::time::Duration;

use keleustes_objects::{Job, Pod};
use keleustes_plan::{Controller, Grant, Loop, Memory, RateLimiter};

use self::memory::JobMemory;
use crate::workloads::owners::by_controller_uid;

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// How many Jobs are worked on at once, and how many orphaned pods beside them.
    pub workers: usize,
    /// Whether a Job that is suspended forgets when it started (gate
    /// `MutableSchedulingDirectivesForSuspendedJobs`).
    pub clear_start_time_on_suspend: bool,
}

/// The original's defaults.
impl Default for JobOptions {
    fn default() -> Self {
        Self { workers: 5, clear_start_time_on_suspend: true }
    }
}

/// The finalizer that keeps a pod until its Job has counted it.
const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The annotation and the label that tell which index a pod works on.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What `spec.managedBy` says of Jobs that are ours.
const OURSELVES: &str = "kubernetes.io/job-controller";

/// The controller.
#[must_use]
pub fn controller(settings: &JobOptions) -> Controller {
    let memory = Memory::<JobMemory>::default();
    let limiter = RateLimiter {
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(60),
        // Each item has its own pace; there is no common one.
        retries_per_second: 1e6,
        retries_burst: 1e6,
    };
    let turns = reconcile::JobReconciler { settings: settings.clone(), memory: memory.clone() };
    Controller::new("job-controller")
        .also_known_as(&["job"])
        .service_account("job-controller")
        .event_component("job-controller")
        .metrics(metrics::ALL)
        .may_write(&[
            Grant { group: "batch", resource: "jobs", verbs: &["get"] },
            Grant { group: "batch", resource: "jobs/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        ])
        .with_loop(
            Loop::reconciling("job", turns)
                .enqueue_on::<Job>(enqueue::job_changed(&memory))
                .enqueue_on::<Pod>(enqueue::pod_changed(&memory))
                .reads_index(by_controller_uid::<Pod>())
                .rate_limited_by(limiter)
                .workers(settings.workers),
        )
        .with_loop(
            Loop::deciding("job_orphan_pod", orphans::decide)
                .enqueue_on::<Job>(orphans::job_changed)
                .enqueue_on::<Pod>(orphans::pod_changed)
                .rate_limited_by(limiter)
                .workers(settings.workers),
        )
}

/// Whether somebody else cares for a Job.
fn is_managed_externally(job: &Job) -> bool {
    job.spec.managed_by.as_ref().is_some_and(|manager| *manager != *OURSELVES)
}

/// Whether a pod holds the finalizer, as far as the cache knows.
fn has_tracking_finalizer(pod: &Pod) -> bool {
    pod.meta.finalizers.iter().any(|finalizer| *finalizer == *TRACKING_FINALIZER)
}

/// Whether a pod of the turn holds the finalizer, as far as the cache tells: one that was just adopted has got it with
/// its owner.
fn is_tracked_or_adopted(pod: &Pod) -> bool {
    has_tracking_finalizer(pod) || pod.meta.controller_ref().is_none()
}
