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
mod scheduling;
mod status;
mod success_policy;
#[cfg(test)]
mod tests;
mod tracking;
mod verdict;
mod view;

use std::time::Duration;

use keleustes_objects::{Job, Pod, PodGroup, Workload};
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
    /// Whether a Job whose `spec.managedBy` names another controller is left to it (gate `JobManagedBy`).
    pub honor_managed_by: bool,
    /// Whether Jobs get Workloads and PodGroups (gate `WorkloadWithJob`).
    pub enable_workloads: bool,
}

/// Upstream's defaults.
impl Default for JobOptions {
    fn default() -> Self {
        Self {
            workers: 5,
            clear_start_time_on_suspend: true,
            honor_managed_by: true,
            enable_workloads: false,
        }
    }
}

/// The finalizer of a pod that its Job has not counted yet.
const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The annotation and the label with the completion index of a pod.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The value of `spec.managedBy` for Jobs that this controller manages.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

const SCHEDULING_VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch"];

const WITH_WORKLOADS: &[Grant] = &[
    Grant { group: "batch", resource: "jobs", verbs: &["get"] },
    Grant { group: "batch", resource: "jobs/status", verbs: &["update"] },
    Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
    // The role has the rest only with the gate.
    Grant { group: "scheduling.k8s.io", resource: "workloads", verbs: SCHEDULING_VERBS },
    Grant { group: "scheduling.k8s.io", resource: "podgroups", verbs: SCHEDULING_VERBS },
];

/// Builds the controller.
#[must_use]
pub fn controller(options: &JobOptions) -> Controller {
    let memory = Memory::<JobMemory>::default();
    let limiter = RateLimiter {
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(60),
        // Retries are only limited per item; the overall limit is out of reach.
        retries_per_second: 1e6,
        retries_burst: 1_000_000,
    };
    let reconciler = reconcile::JobReconciler { options: options.clone(), memory: memory.clone() };
    let mut jobs = Loop::reconciling("job", reconciler)
        .keyed_by::<Job>()
        .enqueue_on::<Job>(enqueue::job_changed(&memory, options))
        .enqueue_on::<Pod>(enqueue::pod_changed)
        .reads_index(by_controller::<Pod>())
        .rate_limited_by(limiter)
        .workers(options.workers);
    if options.enable_workloads {
        let because = "a Job creates both itself, once, before its first pod, as in the original";
        jobs = jobs
            .reads_index(scheduling::WORKLOADS_BY_JOB)
            .reads_index(scheduling::POD_GROUPS_BY_WORKLOAD)
            .reads_unwatched::<Workload>(because)
            .reads_unwatched::<PodGroup>(because);
    }
    let own_options = options.clone();
    Controller::new("job-controller")
        .service_account("job-controller")
        .event_component("job-controller")
        .metrics(metrics::ALL)
        .may_write(if options.enable_workloads { WITH_WORKLOADS } else { &WITH_WORKLOADS[..3] })
        .with_loop(jobs)
        .with_loop(
            Loop::deciding("job_orphan_pod", move |view, item: &_| orphans::decide(view, item, &own_options))
                .keyed_by::<Job>()
                .enqueue_on::<Job>(orphans::job_changed)
                .enqueue_on::<Pod>(orphans::pod_changed)
                .rate_limited_by(limiter)
                .workers(options.workers),
        )
}

impl JobOptions {
    /// Whether `spec.managedBy` names another controller, to which the Job is left.
    fn is_managed_externally(&self, job: &Job) -> bool {
        self.honor_managed_by && job.spec.managed_by.as_ref().is_some_and(|name| *name != *JOB_CONTROLLER)
    }
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
