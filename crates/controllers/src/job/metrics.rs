//! The figures that the controller tells, under the names that dashboards know.

use keleustes_objects::{Job, JobStatus};
use keleustes_plan::{Buckets, Context, Measurement, Metric};

use super::indexes::Indexes;

/// All of them.
pub(super) static ALL: [&Metric; 9] = [
    &SYNC_SECONDS,
    &SYNCS,
    &JOBS_FINISHED,
    &FOREIGN_JOBS,
    &PODS_FINISHED,
    &FAILURES_HANDLED,
    &TRACKED_ENDINGS,
    &INDEXES_FINISHED,
    &PODS_CREATED,
];

static SYNC_SECONDS: Metric = Metric::histogram(
    "job_controller_job_sync_duration_seconds",
    "How long a turn of a Job took.",
    &["completion_mode", "result", "action"],
    Buckets::Exponential { first: 0.004, factor: 2.0, count: 15 },
)
.with_stability("STABLE");

static SYNCS: Metric = Metric::counter(
    "job_controller_job_syncs_total",
    "Turns of Jobs.",
    &["completion_mode", "result", "action"],
)
.with_stability("STABLE");

static JOBS_FINISHED: Metric = Metric::counter(
    "job_controller_jobs_finished_total",
    "Jobs that have come to their end.",
    &["completion_mode", "result", "reason"],
)
.with_stability("STABLE");

static FOREIGN_JOBS: Metric = Metric::counter(
    "job_controller_jobs_by_external_controller_total",
    "Jobs that somebody else cares for.",
    &["controller_name"],
);

static PODS_FINISHED: Metric = Metric::counter(
    "job_controller_job_pods_finished_total",
    "Ended pods that their Jobs have counted.",
    &["completion_mode", "result"],
)
.with_stability("STABLE");

static FAILURES_HANDLED: Metric = Metric::counter(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "Failed pods that a rule of a pod failure policy fits, by the action of the rule.",
    &["action"],
)
.with_stability("BETA");

static TRACKED_ENDINGS: Metric = Metric::counter(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "Pods that came to hold the tracking finalizer after their end (add), or ceased to (delete).",
    &["event"],
)
.with_stability("BETA");

static INDEXES_FINISHED: Metric = Metric::counter(
    "job_controller_job_finished_indexes_total",
    "Indexes that have come to their end.",
    &["status", "backoffLimit"],
);

static PODS_CREATED: Metric = Metric::counter(
    "job_controller_job_pods_creation_total",
    "Pods created for Jobs, by what they are for.",
    &["reason", "status"],
);

/// What a turn was about, for its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncAction {
    /// Pods were not managed.
    Reconciling,
    /// Pods were counted.
    Tracking,
    /// Pods were created, or would have been but for the back-off.
    PodsCreated,
    /// Pods were removed.
    PodsDeleted,
}

impl SyncAction {
    fn as_str(self) -> &'static str {
        match self {
            Self::Reconciling => "reconciling",
            Self::Tracking => "tracking",
            Self::PodsCreated => "pods_created",
            Self::PodsDeleted => "pods_deleted",
        }
    }
}

fn mode(job: &Job) -> &'static str {
    if job.is_indexed() { "Indexed" } else { "NonIndexed" }
}

/// Tells of a turn.
pub(super) fn turn(cx: &mut Context<'_>, job: &Job, action: SyncAction, is_success: bool, seconds: f64) {
    let labels = [mode(job), if is_success { "success" } else { "error" }, action.as_str()];
    cx.measure(SYNC_SECONDS.measurement(&labels, seconds));
    cx.measure(SYNCS.increment(&labels));
}

/// Tells of a Job's end.
pub(super) fn finished(cx: &mut Context<'_>, job: &Job, is_success: bool, reason: &str) {
    let result = if is_success { "succeeded" } else { "failed" };
    cx.measure(JOBS_FINISHED.increment(&[mode(job), result, reason]));
}

/// Tells of the pods and indexes that one status counts and the other did not.
pub(super) fn counted(cx: &mut Context<'_>, job: &Job, before: &JobStatus, after: &JobStatus) {
    let completions = job.spec.completions.unwrap_or(0);
    let gained = |before: Option<&str>, after: Option<&str>| {
        let count = |text| Indexes::parse(text, completions).count();
        after.map_or(0, count) - before.map_or(0, count)
    };
    let mut succeeded = after.succeeded - before.succeeded;
    if job.is_indexed() {
        succeeded = gained(Some(&before.completed_indexes), Some(&after.completed_indexes));
        let per_index = job.spec.backoff_limit_per_index.is_some();
        let scope = if per_index { "perIndex" } else { "global" };
        let failed = gained(before.failed_indexes.as_deref(), after.failed_indexes.as_deref());
        tell(cx, &INDEXES_FINISHED, &["succeeded", scope], succeeded);
        tell(cx, &INDEXES_FINISHED, &["failed", scope], if per_index { failed } else { 0 });
    }
    tell(cx, &PODS_FINISHED, &[mode(job), "succeeded"], succeeded);
    tell(cx, &PODS_FINISHED, &[mode(job), "failed"], after.failed - before.failed);
}

/// Tells how often rules with an action fitted.
pub(super) fn handled_by_policy(cx: &mut Context<'_>, action: &str, count: i32) {
    tell(cx, &FAILURES_HANDLED, &[action], count);
}

/// Tells of created pods. A failure is in both counts, as the original has it.
pub(super) fn created(cx: &mut Context<'_>, reason: &str, tried: i32, failed: i32) {
    tell(cx, &PODS_CREATED, &[reason, "succeeded"], tried);
    tell(cx, &PODS_CREATED, &[reason, "failed"], failed);
}

fn tell(cx: &mut Context<'_>, metric: &'static Metric, labels: &[&str], count: i32) {
    if count > 0 {
        cx.measure(metric.measurement(labels, f64::from(count)));
    }
}

/// A Job that somebody else cares for has appeared.
pub(super) fn foreign(manager: &str) -> Measurement {
    FOREIGN_JOBS.increment(&[manager])
}

/// A pod has come into, or out of, the state of having ended and not been let go.
pub(super) fn terminated_with_finalizer(begins: bool) -> Measurement {
    TRACKED_ENDINGS.increment(&[if begins { "add" } else { "delete" }])
}
