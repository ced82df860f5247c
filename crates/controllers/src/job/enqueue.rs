//! Which Jobs a change enqueues. Most keys are enqueued with a delay of one second, so that a batch of
//! finishing pods causes few reconciles.

use std::time::Duration;

use keleustes_objects::{Job, Object as _, Pod};
use keleustes_plan::{Change, Effects, Memory, View};

use super::memory::JobMemory;
use super::{JobOptions, has_tracking_finalizer, metrics};
use crate::workloads::owners::resolve;

/// How long changes of pods and status are batched before a reconcile (upstream: syncJobBatchPeriod).
const SYNC_BATCH_PERIOD: Duration = Duration::from_secs(1);

/// The original adds Jobs with `AddAfter` even when they are not delayed, so that `workqueue_retries_total` counts them.
const IMMEDIATELY: Duration = Duration::ZERO;

pub(super) fn job_changed(
    memory: &Memory<JobMemory>,
    options: &JobOptions,
) -> impl Fn(&Change<Job>, &View<'_>, &mut Effects) + Send + Sync + 'static {
    let (memory, options) = (memory.clone(), options.clone());
    move |change, view, queue| {
        let (old, new) = (change.old(), change.new());
        match (old, new) {
            (Some(old), Some(new)) if old.meta.uid == new.meta.uid => {
                job_updated(old, new, view, queue);
                return;
            }
            (Some(_), _) => memory.with(|memory| memory.forget(change.latest().key())),
            (None, _) => {}
        }
        let external = new.filter(|job| options.is_managed_externally(job));
        if let Some(name) = external.and_then(|job| job.spec.managed_by.as_ref()) {
            queue.measure(metrics::external_controller_job(name));
        }
        queue.add_after(change.latest().key(), IMMEDIATELY);
    }
}

fn job_updated(old: &Job, new: &Job, view: &View<'_>, queue: &mut Effects) {
    if new.is_finished() {
        return;
    }
    if old.meta.generation == new.meta.generation {
        queue.add_after(new.key(), SYNC_BATCH_PERIOD);
    } else {
        queue.add_after(new.key(), IMMEDIATELY);
    }
    let deadline = new.spec.active_deadline_seconds;
    if let (Some(start), Some(seconds)) = (new.status.start_time, deadline)
        && old.spec.active_deadline_seconds != deadline
    {
        let left = start.plus_seconds(seconds).seconds_since(view.now().wall);
        queue.add_after(new.key(), Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
}

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, queue: &mut Effects) {
    let terminated_with_finalizer = |pod: &&Pod| pod.is_terminal() && has_tracking_finalizer(pod);
    let was_counted = change.old().map(|pod| &**pod).filter(terminated_with_finalizer).is_some();
    let is_counted = change.new().map(|pod| &**pod).filter(terminated_with_finalizer).is_some();
    if was_counted != is_counted {
        queue.measure(metrics::terminated_with_finalizer(is_counted));
    }
    if !change.is_unchanged() {
        enqueue_for_pod(change, view, queue);
    }
}

fn enqueue_for_pod(change: &Change<Pod>, view: &View<'_>, queue: &mut Effects) {
    let pod = &**change.latest();
    let (terminating, old) = (change.is_deletion() || pod.is_terminating(), change.old());
    let owner_changed = old.is_some_and(|old| old.meta.controller_ref() != pod.meta.controller_ref());
    // The original does not enqueue the previous owner of a terminating pod. A Job whose other pods have
    // finished waits for that pod, and no other event would enqueue the Job.
    if let Some(old) = old.filter(|_| owner_changed) {
        enqueue_owner(old, view, queue);
    }
    if pod.meta.controller_ref().is_some() {
        enqueue_owner(pod, view, queue);
    } else if !terminating && old.is_none_or(|old| owner_changed || old.meta.labels != pod.meta.labels) {
        let jobs = view.in_namespace::<Job>(&pod.meta.key.namespace);
        jobs.filter(|job| selects(job, pod)).for_each(|job| queue.add_after(job.key(), SYNC_BATCH_PERIOD));
    }
}

/// Enqueues the Job that controls a pod. A finished Job does not count pods any more.
fn enqueue_owner(pod: &Pod, view: &View<'_>, queue: &mut Effects) {
    let owner =
        pod.meta.controller_ref().and_then(|owner| resolve::<Job>(view, &pod.meta.key.namespace, owner));
    if let Some(job) = owner.filter(|job| !job.is_finished()) {
        queue.add_after(job.key(), SYNC_BATCH_PERIOD);
    }
}

/// Whether a Job's selector matches a pod. No Job selects a pod without labels.
fn selects(job: &Job, pod: &Pod) -> bool {
    let selector = job.spec.selector.as_ref().and_then(|selector| selector.matcher().ok());
    !pod.meta.labels.is_empty() && selector.is_some_and(|selector| selector.matches(&pod.meta.labels))
}
