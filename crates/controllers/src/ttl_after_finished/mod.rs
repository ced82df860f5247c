//! Deletes a finished Job `spec.ttlSecondsAfterFinished` seconds after it finished.
//!
//! The cache shows when a Job may have expired. Before the deletion the Job is read live and evaluated again, so
//! that a TTL that was raised or removed in the last moment, or a re-created Job, is respected.
//!
//! Parity: pkg/controller/ttlafterfinished.

#[cfg(test)]
mod tests;

use std::time::Duration;

use keleustes_objects::{Job, Key, Time};
use keleustes_plan::{
    Buckets, Change, Context, Controller, Effects, Grant, Loop, Metric, Now, Plan, PropagationPolicy,
    ReconcileError, Reconciler, Requeue, View, Write,
};

/// The options of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlAfterFinishedOptions {
    /// Number of workers (`--concurrent-ttl-after-finished-syncs`). Without workers no Job is deleted.
    pub workers: usize,
}

/// Upstream's defaults.
impl Default for TtlAfterFinishedOptions {
    fn default() -> Self {
        Self { workers: 5 }
    }
}

const NAME: &str = "ttl-after-finished-controller";

static DELETION_SECONDS: Metric = Metric::histogram(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "The time between the expiry of a finished Job and its deletion.",
    &[],
    Buckets::Exponential { first: 0.1, factor: 2.0, count: 14 },
);

/// Builds the controller.
#[must_use]
pub fn controller(options: &TtlAfterFinishedOptions) -> Controller {
    let mut a_loop = Loop::reconciling("ttl_jobs_to_delete", TtlReconciler)
        .keyed_by::<Job>()
        .enqueue_on::<Job>(job_changed);
    // Not through `Loop::workers`, which starts at least one.
    a_loop.workers = options.workers;
    Controller::new(NAME)
        .service_account(NAME)
        .metrics([&DELETION_SECONDS])
        .may_write(&[Grant { group: "batch", resource: "jobs", verbs: &["get", "list", "watch", "delete"] }])
        .with_loop(a_loop)
}

/// Every add, update and resync of a finished Job with a TTL counts; what changed does not matter.
fn job_changed(change: &Change<Job>, _: &View<'_>, enqueue: &mut Effects) {
    if let Some(job) = change.new().filter(|job| needs_cleanup(job)) {
        enqueue.add(&job.meta.key);
    }
}

/// Whether a Job has a TTL, is finished and is not terminating.
fn needs_cleanup(job: &Job) -> bool {
    job.meta.deletion_timestamp.is_none()
        && job.spec.ttl_seconds_after_finished.is_some()
        && job.finished_condition().is_some()
}

struct TtlReconciler;

impl Reconciler for TtlReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        reconcile(cx, item).await
    }
}

async fn reconcile(cx: &mut Context<'_>, key: &Key) -> Result<Requeue, ReconcileError> {
    let cached = cx.gather(|view| view.get::<Job>(key).map(|job| decide(job, view.now())));
    match cached.unwrap_or(Verdict::Keep) {
        Verdict::Expired(_) => {}
        not_expired => return not_expired.into_requeue(),
    }
    let Some(live) = cx.fetch::<Job>(key).await? else { return Ok(Requeue::Forget) };
    let expired_at = match decide(&live, cx.gather(|view| view.now())) {
        Verdict::Expired(expired_at) => expired_at,
        not_expired => return not_expired.into_requeue(),
    };
    let delete = Write::delete(&live)
        .propagation_policy(PropagationPolicy::Foreground)
        .because("its TTL after it finished has expired");
    cx.apply(Plan::of(delete)).await.all_done()?;
    let now = cx.gather(|view| view.now());
    cx.measure(DELETION_SECONDS.measurement(&[], seconds_since(expired_at, now)));
    Ok(Requeue::Forget)
}

/// What the TTL of a Job means now.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The Job has no TTL, is not finished or is terminating.
    Keep,
    /// The Job expires after this time.
    Wait(Duration),
    /// The Job expired at this time.
    Expired(Time),
    /// The finish condition has no time.
    Unknown(String),
}

impl Verdict {
    fn into_requeue(self) -> Result<Requeue, ReconcileError> {
        match self {
            Self::Wait(left) => Ok(Requeue::after(left, "ttlSecondsAfterFinished")),
            Self::Unknown(message) => Err(ReconcileError::because(message)),
            Self::Keep | Self::Expired(_) => Ok(Requeue::Forget),
        }
    }
}

fn decide(job: &Job, now: Now) -> Verdict {
    let (Some(ttl), Some(condition)) = (job.spec.ttl_seconds_after_finished, job.finished_condition()) else {
        return Verdict::Keep;
    };
    if !needs_cleanup(job) {
        return Verdict::Keep;
    }
    let Some(finished_at) = condition.last_transition_time.filter(|time| *time != GO_ZERO_TIME) else {
        let key = &job.meta.key;
        return Verdict::Unknown(format!("unable to find the time when the Job {key} finished"));
    };
    let expires_at = finished_at.plus_seconds(ttl.into());
    let left = now.until(expires_at);
    if left.is_zero() { Verdict::Expired(expires_at) } else { Verdict::Wait(left) }
}

/// The zero value of Go's `time.Time`, which the original takes for an absent time.
const GO_ZERO_TIME: Time = Time::from_unix_seconds(-62_135_596_800);

#[allow(clippy::cast_precision_loss)] // The seconds since an expiry are far below 2^52.
fn seconds_since(earlier: Time, now: Now) -> f64 {
    now.wall.seconds_since(earlier) as f64 + f64::from(now.wall_subsecond_nanoseconds) / 1e9
}
