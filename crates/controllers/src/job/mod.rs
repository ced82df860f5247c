//! Runs Jobs to completion: creates, counts and deletes their pods, and counts every pod exactly once, even
//! if the process crashes between two writes.
//!
//! Each pod has a finalizer until its Job's status has counted it. A reconcile first lists the pods that it
//! is about to count in `status.uncountedTerminatedPods`, then removes their finalizers, then moves them
//! from the lists to the counters. A new leader sees in the status and on the pods which of these steps are
//! done.
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
use crate::workloads::owners::by_controller;

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The number of workers of each of the two queues: Jobs, and orphaned pods.
    pub workers: usize,
    /// Whether suspending a Job clears `status.startTime` (gate
    /// `MutableSchedulingDirectivesForSuspendedJobs`).
    pub clear_start_time_on_suspend: bool,
}

/// Upstream's defaults.
impl Default for JobOptions {
    fn default() -> Self {
        Self { workers: 5, clear_start_time_on_suspend: true }
    }
}

/// The finalizer of a pod that its Job has not counted yet.
const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The annotation and the label with the completion index of a pod.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The value of `spec.managedBy` for Jobs that this controller manages.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// Builds the controller.
#[must_use]
pub fn controller(options: &JobOptions) -> Controller {
    let memory = Memory::<JobMemory>::default();
    let limiter = RateLimiter {
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(60),
        // Retries are only limited per item; the overall limit is out of reach.
        retries_per_second: 1e6,
        retries_burst: 1e6,
    };
    let reconciler = reconcile::JobReconciler { options: options.clone(), memory: memory.clone() };
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
            Loop::reconciling("job", reconciler)
                .enqueue_on::<Job>(enqueue::job_changed(&memory))
                .enqueue_on::<Pod>(enqueue::pod_changed(&memory))
                .reads_index(by_controller::<Pod>())
                .rate_limited_by(limiter)
                .workers(options.workers),
        )
        .with_loop(
            Loop::deciding("job_orphan_pod", orphans::decide)
                .enqueue_on::<Job>(orphans::job_changed)
                .enqueue_on::<Pod>(orphans::pod_changed)
                .rate_limited_by(limiter)
                .workers(options.workers),
        )
}

/// Whether `spec.managedBy` names another controller.
fn is_managed_externally(job: &Job) -> bool {
    job.spec.managed_by.as_ref().is_some_and(|name| *name != *JOB_CONTROLLER)
}

/// Whether the cache shows a pod with the tracking finalizer.
fn has_tracking_finalizer(pod: &Pod) -> bool {
    pod.meta.finalizers.iter().any(|finalizer| *finalizer == *TRACKING_FINALIZER)
}

/// Whether a claimed pod has the tracking finalizer as far as the cache shows. A pod without a controllerRef
/// in the cache was just adopted, and the adoption patch adds the finalizer.
fn is_tracked_or_adopted(pod: &Pod) -> bool {
    has_tracking_finalizer(pod) || pod.meta.controller_ref().is_none()
}
