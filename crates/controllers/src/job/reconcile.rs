//! Reconciles one Job: claims pods, evaluates the verdict, creates or deletes pods, counts finished pods,
//! removes finalizers and writes the status.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Job, JobStatus, Key, Pod};
use keleustes_plan::{
    Applied, Context, Delay, Effects, InvolvedObject, Memory, Outcome, Plan, PlannedEvent, ReconcileError,
    Reconciler, Requeue,
};

use super::memory::JobMemory;
use super::metrics::SyncAction;
use super::pods::PodChanges;
use super::tracking::Counted;
use super::verdict::JobVerdict;
use super::view::{Gathered, GatheredJob, JobView};
use super::{JobOptions, metrics, pods, scheduling, status, tracking, verdict};

pub(super) struct JobReconciler {
    pub(super) options: JobOptions,
    pub(super) memory: Memory<JobMemory>,
}

/// The pod counts after creating or deleting pods.
struct ManageResult {
    action: SyncAction,
    active: i32,
    ready: i32,
    terminating: i32,
    /// An error to return after all pods are counted.
    retry: Option<ReconcileError>,
    /// The remaining backoff.
    requeue_after: Option<Delay>,
}

impl Reconciler for JobReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let gathered = match cx.gather(|view| Gathered::gather(view, item, &self.options)) {
            Gathered::Reconcile(gathered) => gathered,
            Gathered::InvalidSelector(job) => {
                metrics::observe_sync(cx, &job, SyncAction::Reconciling, false, 0.0);
                return Err(ReconcileError::because("the Job's selector is missing or invalid"));
            }
            Gathered::ManagedExternally => return Ok(Requeue::Forget),
            Gathered::NotFoundOrFinished => {
                self.memory.with(|memory| memory.forget(item));
                return Ok(Requeue::Forget);
            }
            Gathered::UnknownCompletionMode(job) => {
                let message = "Skipped Job sync because completion mode is unknown";
                let event =
                    PlannedEvent::warning(InvolvedObject::of(&*job), "UnknownCompletionMode", message);
                return record(cx, [event]).await.all_done().map(|()| Requeue::Forget);
            }
        };
        let clock = |cx: &Context<'_>| cx.gather(|view| view.now().monotonic);
        let (begun, mut action, job) = (clock(cx), SyncAction::Reconciling, gathered.job.clone());
        let result = self.manage_and_track(cx, gathered, &mut action).await;
        let seconds = clock(cx).saturating_sub(begun).as_secs_f64();
        metrics::observe_sync(cx, &job, action, result.is_ok(), seconds);
        result
    }
}

/// The time until a deadline that is not exceeded yet.
fn until_deadline(inputs: &JobView) -> Option<Duration> {
    verdict::until_active_deadline(inputs).filter(|left| !left.is_zero())
}

impl JobReconciler {
    async fn manage_and_track(
        &self,
        cx: &mut Context<'_>,
        gathered: GatheredJob,
        action: &mut SyncAction,
    ) -> Result<Requeue, ReconcileError> {
        let mut inputs = gathered.claim_pods(cx, &self.memory).await?;
        let result = self.manage_claimed(cx, &mut inputs, action).await;
        // A retry may come long after the deadline.
        if let Some(left) = until_deadline(&inputs).filter(|_| result.is_err()) {
            let mut effects = Effects::default();
            effects.add_after(inputs.job.meta.key.clone(), left);
            cx.effects(effects);
        }
        result
    }

    async fn manage_claimed(
        &self,
        cx: &mut Context<'_>,
        inputs: &mut JobView,
        action: &mut SyncAction,
    ) -> Result<Requeue, ReconcileError> {
        if self.options.enable_workloads {
            inputs.pod_group = scheduling::pod_group(cx, inputs).await?;
        }
        let (mut verdict, mut suspension) = (verdict::of(inputs), None);
        let mut status = inputs.job.status.clone();
        status.start_time = inputs.start_time;
        let managed = if verdict.is_some() {
            let managed = self.stop(cx, inputs).await;
            // A pod that could not be deleted may still succeed or fail, so the Job is not finished yet.
            verdict = verdict.filter(|_| managed.active == 0);
            managed
        } else {
            let is_terminating = inputs.job.meta.deletion_timestamp.is_some();
            let managed =
                if is_terminating { ManageResult::unchanged(inputs) } else { self.manage(cx, inputs).await };
            verdict = verdict::completed(inputs, managed.active);
            if verdict.is_none() && !is_terminating {
                suspension = status::update_suspended_condition(inputs, &mut status, &self.options);
            }
            managed
        };
        *action = managed.action;
        record(cx, suspension).await.all_done()?;
        status.active = managed.active;
        status.ready = Some(managed.ready);
        status.terminating = Some(managed.terminating);
        let counted = tracking::count(inputs, status, verdict.as_ref());
        self.track(cx, inputs, counted, verdict).await?;
        let until_deadline = until_deadline(inputs).map(|left| Delay::of(left, "activeDeadlineSeconds"));
        managed
            .retry
            .map_or(Ok(Requeue::after_any(until_deadline.into_iter().chain(managed.requeue_after))), Err)
    }

    /// Deletes all active pods. They keep their finalizers until they are counted.
    async fn stop(&self, cx: &mut Context<'_>, inputs: &JobView) -> ManageResult {
        let mut managed = ManageResult::unchanged(inputs);
        let active: Vec<_> = inputs.active().map(|member| member.pod.clone()).collect();
        let plan = pods::delete(&inputs.job, active.iter(), "the Job is finishing");
        let applied = cx.apply(plan).await;
        managed.apply_deletions(&active, applied);
        managed
    }

    /// Creates or deletes pods to reach the desired number.
    async fn manage(&self, cx: &mut Context<'_>, inputs: &mut JobView) -> ManageResult {
        let mut managed = ManageResult { action: SyncAction::Tracking, ..ManageResult::unchanged(inputs) };
        match pods::decide(inputs) {
            PodChanges::None => {}
            PodChanges::Wait(left) => {
                managed.action = SyncAction::PodsCreated;
                managed.requeue_after = Some(Delay::of(left, "the backoff of its failed pods"));
            }
            PodChanges::Delete(surplus) => {
                managed.action = SyncAction::PodsDeleted;
                let untracked = self.remove_finalizers(cx, inputs, &surplus).await;
                inputs.mark_finalizer_removed(&untracked.pods);
                let plan = pods::delete(
                    &inputs.job,
                    untracked.pods.iter(),
                    "the Job is suspended or needs fewer pods",
                );
                let applied = cx.apply(plan).await;
                managed.apply_deletions(&untracked.pods, applied);
                managed.retry = untracked.retry.or(managed.retry);
            }
            PodChanges::Create(indexes) => {
                managed.action = SyncAction::PodsCreated;
                let applied = cx.apply(pods::create(inputs, &indexes)).await;
                let creations = CreationCounts::of(&applied.outcomes);
                metrics::observe_pod_creation(
                    cx,
                    creation_reason(inputs),
                    creations.created,
                    creations.failed,
                );
                managed.active += creations.created + creations.refused;
                managed.retry = applied.error;
            }
        }
        managed
    }

    /// Removes the finalizers of pods and remembers the pods that no longer have it.
    async fn remove_finalizers(
        &self,
        cx: &mut Context<'_>,
        inputs: &JobView,
        pods: &[Arc<Pod>],
    ) -> UntrackedPods {
        let applied = cx.apply(pods::remove_finalizers(pods)).await;
        let mut outcomes = applied.outcomes.into_iter();
        let is_untracked = |pod: &&Arc<Pod>| {
            !super::is_tracked_or_adopted(pod)
                || !matches!(outcomes.next(), Some(Outcome::Failed(_) | Outcome::NotSent))
        };
        let pods: Vec<_> = pods.iter().filter(is_untracked).cloned().collect();
        self.remember_untracked(inputs, &pods);
        UntrackedPods { pods, retry: applied.error }
    }

    fn remember_untracked(&self, inputs: &JobView, pods: &[Arc<Pod>]) {
        let job = &inputs.job.meta.key;
        self.memory
            .with(|memory| pods.iter().for_each(|pod| memory.note_finalizer_removed(job, &pod.meta.uid)));
    }

    /// Lists pods as uncounted, removes their finalizers, counts them, and finishes the Job if all pods are
    /// counted.
    async fn track(
        &self,
        cx: &mut Context<'_>,
        inputs: &JobView,
        mut counted: Counted,
        verdict: Option<JobVerdict>,
    ) -> Result<(), ReconcileError> {
        let mut job = Job::clone(&inputs.job);
        let because = "pods are listed as uncounted, or the pod counts changed";
        let is_changed = job.status != counted.status;
        if !self.write(cx, &mut job, &counted.status, because).await? {
            return Ok(());
        }
        if is_changed {
            let meta = &inputs.job.meta;
            self.memory.with(|memory| memory.remember_backoff(&meta.key, &meta.uid, inputs.backoff));
        }
        for (action, count) in &counted.failures_by_policy_action {
            metrics::observe_policy_action(cx, action.as_str(), *count);
        }
        let removed = cx.apply(counted.remove_finalizers()).await;
        let outcomes = counted.pods_to_untrack.iter().zip(&removed.outcomes);
        let untracked =
            outcomes.filter(|(_, outcome)| matches!(outcome, Outcome::Done { .. } | Outcome::Unneeded));
        let untracked: Vec<_> = untracked.map(|(pod, _)| pod.clone()).collect();
        self.remember_untracked(inputs, &untracked);
        for pod in &untracked {
            counted.uids_with_finalizer.remove(&pod.meta.uid);
        }
        let mut status = counted.status;
        tracking::count_pods_without_finalizer(&mut status, &counted.uids_with_finalizer);
        let all_counted =
            removed.error.is_none() && !counted.is_partial && tracking::has_no_uncounted_pods(&status);
        let verdict = verdict.filter(|_| all_counted && status.terminating == Some(0));
        if let Some(verdict) = &verdict {
            let terminal = verdict.terminal(inputs.now);
            status.completion_time =
                if verdict.is_success { Some(inputs.now) } else { status.completion_time };
            status::set(&mut status.conditions, terminal);
        }
        let job_exists = self.write(cx, &mut job, &status, "the listed pods are counted").await?;
        if let Some(verdict) = verdict.filter(|_| job_exists) {
            metrics::observe_job_finished(cx, &job, verdict.is_success, &verdict.reason);
            record(cx, finish_events(&job, &verdict)).await.all_done()?;
        }
        removed.all_done()
    }

    /// Writes the status if it changed. Returns whether the Job still exists.
    async fn write(
        &self,
        cx: &mut Context<'_>,
        job: &mut Job,
        status: &JobStatus,
        because: &'static str,
    ) -> Result<bool, ReconcileError> {
        if job.status == *status {
            return Ok(true);
        }
        let mut applied = cx.apply(status::write(job, status, because)).await;
        let outcome = applied.outcomes.pop();
        applied.all_done()?;
        let Some(Outcome::Done { resource_version: version, .. }) = outcome else { return Ok(false) };
        metrics::observe_counted_pods(cx, job, &job.status, status);
        // The next status write is based on this one.
        job.meta.resource_version = version;
        job.status = status.clone();
        Ok(true)
    }
}

/// Pods whose finalizer has been removed.
struct UntrackedPods {
    pods: Vec<Arc<Pod>>,
    retry: Option<ReconcileError>,
}

impl ManageResult {
    fn unchanged(inputs: &JobView) -> Self {
        Self {
            action: SyncAction::Reconciling,
            active: count(inputs.active()),
            ready: count(inputs.active().filter(|member| member.pod.is_ready())),
            terminating: count(inputs.terminating()),
            retry: None,
            requeue_after: None,
        }
    }

    fn apply_deletions(&mut self, pods: &[Arc<Pod>], applied: Applied) {
        let done = |outcome: &&Outcome| matches!(outcome, Outcome::Done { .. } | Outcome::Unneeded);
        let deleted = count(applied.outcomes.iter().filter(done));
        self.active -= deleted;
        self.terminating += deleted;
        self.ready -= count(pods.iter().filter(|pod| pod.is_ready()));
        self.retry = applied.error;
    }
}

/// The outcomes of pod creations. Those that were not sent are in no count.
struct CreationCounts {
    created: i32,
    failed: i32,
    /// Refused because the namespace is terminating. As in the original these pods count as active and in no
    /// metric.
    refused: i32,
}

impl CreationCounts {
    fn of(outcomes: &[Outcome]) -> Self {
        let count = |wanted: fn(&Outcome) -> bool| count(outcomes.iter().filter(|outcome| wanted(outcome)));
        // The response to a creation that was ignored has no name.
        let refused = count(|outcome| matches!(outcome, Outcome::Done { name, .. } if name.is_empty()));
        let created = count(|outcome| matches!(outcome, Outcome::Done { .. })) - refused;
        Self { created, failed: count(|outcome| matches!(outcome, Outcome::Failed(_))), refused }
    }
}

/// The `reason` label for created pods.
fn creation_reason(inputs: &JobView) -> &'static str {
    if inputs.only_replace_failed_pods() && inputs.failed > 0 {
        "recreate_failed"
    } else if inputs.failed > 0 || inputs.terminating().next().is_some() {
        "recreate_terminating_or_failed"
    } else {
        "new"
    }
}

/// The events for a finished Job.
fn finish_events(job: &Job, verdict: &JobVerdict) -> Vec<PlannedEvent> {
    let involved = InvolvedObject::of(job);
    if !verdict.is_success {
        return vec![PlannedEvent::warning(involved, &verdict.reason, verdict.message.as_str())];
    }
    let mut events = vec![PlannedEvent::normal(involved.clone(), "Completed", "Job completed")];
    if job.spec.completions.is_some_and(|wanted| job.status.succeeded > wanted) {
        let message = "Too many succeeded pods running after completion count reached";
        events.insert(0, PlannedEvent::warning(involved, "TooManySucceededPods", message));
    }
    events
}

async fn record(cx: &mut Context<'_>, events: impl IntoIterator<Item = PlannedEvent>) -> Applied {
    let mut plan = Plan::none();
    events.into_iter().for_each(|event| plan.record(event));
    if plan.is_none() { Applied::default() } else { cx.apply(plan).await }
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}
