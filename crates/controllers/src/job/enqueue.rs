//! Which Jobs a change concerns. Most wakes come a second late, so that the many changes that end a
//! batch of pods make few turns.

use std::time::Duration;

use keleustes_objects::{Job, Object as _, Pod};
use keleustes_plan::{Change, Enqueue, Memory, View};

use super::memory::JobMemory;
use super::{has_tracking_finalizer, is_managed_externally, metrics};
use crate::workloads::owners::resolve;

/// How long changes are gathered before a turn.
const BATCH: Duration = Duration::from_secs(1);

pub(super) fn job_changed(
    memory: &Memory<JobMemory>,
) -> impl Fn(&Change<Job>, &View<'_>, &mut Enqueue) + Send + Sync + 'static {
    let memory = memory.clone();
    move |change, view, wakes| {
        let (before, after) = (change.old(), change.new());
        match (before, after) {
            (Some(before), Some(after)) if before.meta.uid == after.meta.uid => {
                job_updated(before, after, view, wakes);
                return;
            }
            (Some(_), _) => memory.with(|memory| memory.forget(change.latest().key())),
            (None, _) => {}
        }
        if let Some(manager) =
            after.filter(|job| is_managed_externally(job)).and_then(|job| job.spec.managed_by.as_ref())
        {
            memory.with(|memory| memory.note(metrics::foreign(manager)));
        }
        wakes.add(change.latest().key());
    }
}

fn job_updated(before: &Job, after: &Job, view: &View<'_>, wakes: &mut Enqueue) {
    if after.is_finished() {
        return;
    }
    if before.meta.generation == after.meta.generation {
        wakes.add_after(after.key(), BATCH);
    } else {
        wakes.add(after.key());
    }
    let deadline = after.spec.active_deadline_seconds;
    if let (Some(start), Some(seconds)) = (after.status.start_time, deadline)
        && before.spec.active_deadline_seconds != deadline
    {
        let left = start.plus_seconds(seconds).seconds_since(view.now().wall);
        wakes.add_after(after.key(), Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
}

pub(super) fn pod_changed(
    memory: &Memory<JobMemory>,
) -> impl Fn(&Change<Pod>, &View<'_>, &mut Enqueue) + Send + Sync + 'static {
    let memory = memory.clone();
    move |change, view, wakes| {
        let is_tracked_ending = |pod: &&Pod| pod.is_terminal() && has_tracking_finalizer(pod);
        let was = change.old().map(|pod| &**pod).filter(is_tracked_ending).is_some();
        let is = change.new().map(|pod| &**pod).filter(is_tracked_ending).is_some();
        if was != is {
            memory.with(|memory| memory.note(metrics::terminated_with_finalizer(is)));
        }
        if !change.is_resync() {
            wake_for_pod(change, view, wakes);
        }
    }
}

fn wake_for_pod(change: &Change<Pod>, view: &View<'_>, wakes: &mut Enqueue) {
    let pod = &**change.latest();
    let (going, before) = (change.is_deletion() || pod.is_terminating(), change.old());
    let owner_changed =
        before.is_some_and(|before| before.meta.controller_ref() != pod.meta.controller_ref());
    // The original overlooks this for a pod on its way out. A Job whose other pods have ended waits for that one, and
    // nothing else would tell it that it need not any more.
    if let Some(before) = before.filter(|_| owner_changed) {
        wake_owner(before, view, wakes);
    }
    if pod.meta.controller_ref().is_some() {
        wake_owner(pod, view, wakes);
    } else if !going && before.is_none_or(|before| owner_changed || before.meta.labels != pod.meta.labels) {
        let jobs = view.in_namespace::<Job>(&pod.meta.key.namespace);
        jobs.filter(|job| wants(job, pod)).for_each(|job| wakes.add_after(job.key(), BATCH));
    }
}

/// Enqueue the Job of a pod. One that is finished counts nobody any more.
fn wake_owner(pod: &Pod, view: &View<'_>, wakes: &mut Enqueue) {
    let owner =
        pod.meta.controller_ref().and_then(|owner| resolve::<Job>(view, &pod.meta.key.namespace, owner));
    if let Some(job) = owner.filter(|job| !job.is_finished()) {
        wakes.add_after(job.key(), BATCH);
    }
}

/// Whether a Job's selector wants a pod. A pod without labels is wanted by nobody.
fn wants(job: &Job, pod: &Pod) -> bool {
    let selector = job.spec.selector.as_ref().and_then(|selector| selector.matcher().ok());
    !pod.meta.labels.is_empty() && selector.is_some_and(|selector| selector.matches(&pod.meta.labels))
}
