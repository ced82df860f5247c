//! The controller's metrics, under upstream's names.

use keleustes_objects::{Job, JobStatus};
use keleustes_plan::{Buckets, Context, Measurement, Metric};

use super::indexes::Indexes;

pub(super) static ALL: [&Metric; 9] = [
    &SYNC_SECONDS,
    &SYNCS,
    &JOBS_FINISHED,
    &EXTERNAL_JOBS,
    &PODS_FINISHED,
    &FAILURES_HANDLED,
    &TERMINATED_WITH_FINALIZER,
    &INDEXES_FINISHED,
    &PODS_CREATED,
];

static SYNC_SECONDS: Metric = Metric::histogram(
    "job_controller_job_sync_duration_seconds",
    "The time it took to sync a Job.",
    &["completion_mode", "result", "action"],
    Buckets::Exponential { first: 0.004, factor: 2.0, count: 15 },
)
.with_stability("STABLE");

static SYNCS: Metric = Metric::counter(
    "job_controller_job_syncs_total",
    "The number of Job syncs.",
    &["completion_mode", "result", "action"],
)
.with_stability("STABLE");

static JOBS_FINISHED: Metric = Metric::counter(
    "job_controller_jobs_finished_total",
    "The number of finished Jobs.",
    &["completion_mode", "result", "reason"],
)
.with_stability("STABLE");

static EXTERNAL_JOBS: Metric = Metric::counter(
    "job_controller_jobs_by_external_controller_total",
    "The number of Jobs managed by an external controller.",
    &["controller_name"],
);

static PODS_FINISHED: Metric = Metric::counter(
    "job_controller_job_pods_finished_total",
    "The number of finished pods that their Jobs have counted.",
    &["completion_mode", "result"],
)
.with_stability("STABLE");

static FAILURES_HANDLED: Metric = Metric::counter(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "The number of failed pods that a rule of a pod failure policy matched, by the action of the rule.",
    &["action"],
)
.with_stability("BETA");

static TERMINATED_WITH_FINALIZER: Metric = Metric::counter(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "The number of terminated pods that gained (add) or lost (delete) the tracking finalizer.",
    &["event"],
)
.with_stability("BETA");

static INDEXES_FINISHED: Metric = Metric::counter(
    "job_controller_job_finished_indexes_total",
    "The number of finished indexes.",
    &["status", "backoffLimit"],
);

static PODS_CREATED: Metric = Metric::counter(
    "job_controller_job_pods_creation_total",
    "The number of pods created for Jobs, by reason.",
    &["reason", "status"],
);

/// The value of the `action` label of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncAction {
    /// Pods were neither created nor deleted to reach the parallelism.
    Reconciling,
    /// Finished pods were counted.
    Tracking,
    /// Pods were created, or would have been created without the backoff.
    PodsCreated,
    /// Pods were deleted.
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

/// Observes a sync.
pub(super) fn observe_sync(
    cx: &mut Context<'_>,
    job: &Job,
    action: SyncAction,
    is_success: bool,
    seconds: f64,
) {
    let labels = [mode(job), if is_success { "success" } else { "error" }, action.as_str()];
    cx.measure(SYNC_SECONDS.measurement(&labels, seconds));
    cx.measure(SYNCS.increment(&labels));
}

/// Observes a finished Job.
pub(super) fn observe_job_finished(cx: &mut Context<'_>, job: &Job, is_success: bool, reason: &str) {
    let result = if is_success { "succeeded" } else { "failed" };
    cx.measure(JOBS_FINISHED.increment(&[mode(job), result, reason]));
}

/// Observes the pods and indexes that the new status counts and the old one did not. Their series exist after
/// the first status write, as in the original, except that of failed indexes.
pub(super) fn observe_counted_pods(cx: &mut Context<'_>, job: &Job, old: &JobStatus, new: &JobStatus) {
    let completions = job.spec.completions.unwrap_or(0);
    let gained = |old: Option<&str>, new: Option<&str>| {
        let count = |text| Indexes::parse(text, completions).count();
        new.map_or(0, count) - old.map_or(0, count)
    };
    let mut succeeded = new.succeeded - old.succeeded;
    if job.is_indexed() {
        succeeded = gained(Some(&old.completed_indexes), Some(&new.completed_indexes));
        let per_index = job.spec.backoff_limit_per_index.is_some();
        let scope = if per_index { "perIndex" } else { "global" };
        let failed = gained(old.failed_indexes.as_deref(), new.failed_indexes.as_deref());
        observe(cx, &INDEXES_FINISHED, &["succeeded", scope], succeeded);
        observe_if_any(cx, &INDEXES_FINISHED, &["failed", scope], if per_index { failed } else { 0 });
    }
    observe(cx, &PODS_FINISHED, &[mode(job), "succeeded"], succeeded);
    observe(cx, &PODS_FINISHED, &[mode(job), "failed"], new.failed - old.failed);
}

/// Observes how many pod failures a rule with this action handled.
pub(super) fn observe_policy_action(cx: &mut Context<'_>, action: &str, count: i32) {
    observe(cx, &FAILURES_HANDLED, &[action], count);
}

/// Observes pod creations. A failed creation also counts as succeeded, as in the original.
pub(super) fn observe_pod_creation(cx: &mut Context<'_>, reason: &str, created: i32, failed: i32) {
    observe_if_any(cx, &PODS_CREATED, &[reason, "succeeded"], created.saturating_add(failed));
    observe_if_any(cx, &PODS_CREATED, &[reason, "failed"], failed);
}

/// Adds to a counter. Adding zero makes the series exist.
fn observe(cx: &mut Context<'_>, metric: &'static Metric, labels: &[&str], count: i32) {
    cx.measure(metric.measurement(labels, f64::from(count.max(0))));
}

fn observe_if_any(cx: &mut Context<'_>, metric: &'static Metric, labels: &[&str], count: i32) {
    if count > 0 {
        observe(cx, metric, labels, count);
    }
}

/// Counts a new Job that an external controller manages.
pub(super) fn external_controller_job(controller_name: &str) -> Measurement {
    EXTERNAL_JOBS.increment(&[controller_name])
}

/// Counts a terminated pod that gained (`add`) or lost (`delete`) the tracking finalizer.
pub(super) fn terminated_with_finalizer(begins: bool) -> Measurement {
    TERMINATED_WITH_FINALIZER.increment(&[if begins { "add" } else { "delete" }])
}
