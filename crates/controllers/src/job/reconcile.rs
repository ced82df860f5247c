//! One turn of one Job: settle whose pods are whose, judge, make or remove pods, count, let go, tell.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Job, JobStatus, Pod};
use keleustes_plan::{
    Applied, BoxFuture, Context, InvolvedObject, Item, Memory, Outcome, Plan, PlannedEvent, ReconcileError,
    Reconciler, Requeue,
};

use super::memory::JobMemory;
use super::metrics::SyncAction;
use super::pods::PodChanges;
use super::tracking::Counted;
use super::verdict::JobVerdict;
use super::view::{Gathered, GatheredJob, JobView};
use super::{JobOptions, metrics, pods, status, tracking, verdict};

/// Works on Jobs.
pub(super) struct JobReconciler {
    pub(super) settings: JobOptions,
    pub(super) memory: Memory<JobMemory>,
}

/// What seeing to the pods came to.
struct Moved {
    action: SyncAction,
    /// How many pods are active, ready and terminating now.
    active: i32,
    ready: i32,
    terminating: i32,
    /// Why it is to be tried again, once all is counted.
    retry: Option<ReconcileError>,
    /// When the back-off is over.
    wait: Option<Duration>,
}

impl Reconciler for JobReconciler {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.turn(cx, item))
    }
}

impl JobReconciler {
    async fn turn(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        for figure in self.memory.with(JobMemory::take_measurements) {
            cx.measure(figure);
        }
        let claims = match cx.gather(|view| Gathered::gather(view, item)) {
            Gathered::Turn(claims) => claims,
            Gathered::Stuck(why) => return Err(ReconcileError::because(why)),
            Gathered::Foreign => return Ok(Requeue::Forget),
            Gathered::Over => {
                self.memory.with(|memory| memory.forget(&item.key));
                return Ok(Requeue::Forget);
            }
            Gathered::Strange(job) => {
                let message = "Skipped Job sync because completion mode is unknown";
                let event =
                    PlannedEvent::warning(InvolvedObject::of(&*job), "UnknownCompletionMode", message);
                return tell(cx, [event]).await.all_done().map(|()| Requeue::Forget);
            }
        };
        let clock = |cx: &Context<'_>| cx.gather(|view| view.now().monotonic);
        let (begun, mut action, job) = (clock(cx), SyncAction::Reconciling, claims.job.clone());
        let result = self.reconcile(cx, claims, &mut action).await;
        let seconds = clock(cx).saturating_sub(begun).as_secs_f64();
        metrics::turn(cx, &job, action, result.is_ok(), seconds);
        result
    }

    async fn reconcile(
        &self,
        cx: &mut Context<'_>,
        claims: GatheredJob,
        action: &mut SyncAction,
    ) -> Result<Requeue, ReconcileError> {
        let facts = &mut claims.settle(cx, &self.memory).await?;
        let (mut end, mut suspension) = (verdict::of(facts), None);
        let mut status = facts.job.status.clone();
        status.start_time = facts.start_time;
        let moved = if end.is_some() {
            let moved = self.stop(cx, facts).await;
            // Whoever could not be deleted may still do anything, so it is not the end yet.
            end = end.filter(|_| moved.active == 0);
            moved
        } else {
            let is_leaving = facts.job.meta.deletion_timestamp.is_some();
            let moved = if is_leaving { Moved::nothing(facts) } else { self.manage(cx, facts).await };
            end = verdict::completed(facts, moved.active);
            if end.is_none() && !is_leaving {
                suspension = status::update_suspended_condition(facts, &mut status, &self.settings);
            }
            moved
        };
        *action = moved.action;
        tell(cx, suspension).await.all_done()?;
        status.active = moved.active;
        status.ready = Some(moved.ready);
        status.terminating = Some(moved.terminating);
        let counted = tracking::count(facts, status, end.as_ref());
        self.track(cx, facts, counted, end).await?;
        let left = verdict::time_left(facts).filter(|left| !left.is_zero());
        let revisit = left.into_iter().chain(moved.wait).min();
        moved.retry.map_or(Ok(revisit.map_or(Requeue::Forget, Requeue::After)), Err)
    }

    /// Deletes all active pods. They keep their finalizers, to be counted.
    async fn stop(&self, cx: &mut Context<'_>, facts: &JobView) -> Moved {
        let mut moved = Moved::nothing(facts);
        let active: Vec<_> = facts.active().map(|member| member.pod.clone()).collect();
        let plan = pods::delete(&facts.job, active.iter(), "its Job has come to its end");
        let applied = cx.apply(plan).await;
        moved.note_deletions(&active, applied);
        moved
    }

    /// Makes or removes pods, so that there are as many as wanted.
    async fn manage(&self, cx: &mut Context<'_>, facts: &mut JobView) -> Moved {
        let mut moved = Moved { action: SyncAction::Tracking, ..Moved::nothing(facts) };
        match pods::decide(facts) {
            PodChanges::None => {}
            PodChanges::Wait(left) => {
                moved.action = SyncAction::PodsCreated;
                moved.wait = Some(left);
            }
            PodChanges::Remove(surplus) => {
                moved.action = SyncAction::PodsDeleted;
                let released = self.release(cx, facts, &surplus).await;
                facts.let_go(&released.pods);
                let plan = pods::delete(&facts.job, released.pods.iter(), "the Job wants fewer pods");
                let applied = cx.apply(plan).await;
                moved.note_deletions(&released.pods, applied);
                moved.retry = released.retry.or(moved.retry);
            }
            PodChanges::Create(places) => {
                moved.action = SyncAction::PodsCreated;
                let applied = cx.apply(pods::create(facts, &places)).await;
                let count =
                    |wanted: fn(&Outcome) -> bool| count(applied.outcomes.iter().filter(|it| wanted(it)));
                let tried = count(|outcome| !matches!(outcome, Outcome::NotSent));
                let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
                metrics::created(cx, creation_reason(facts), tried, failed);
                moved.active += tried - failed;
                moved.retry = applied.error;
            }
        }
        moved
    }

    /// Takes the finalizers off pods, and remembers who has lost it.
    async fn release(&self, cx: &mut Context<'_>, facts: &JobView, pods: &[Arc<Pod>]) -> Released {
        let applied = cx.apply(pods::release(pods)).await;
        let mut outcomes = applied.outcomes.into_iter();
        let is_free = |pod: &&Arc<Pod>| {
            !super::is_tracked_or_adopted(pod)
                || !matches!(outcomes.next(), Some(Outcome::Failed(_) | Outcome::NotSent))
        };
        let pods: Vec<_> = pods.iter().filter(is_free).cloned().collect();
        self.remember_released(facts, &pods);
        Released { pods, retry: applied.error }
    }

    fn remember_released(&self, facts: &JobView, pods: &[Arc<Pod>]) {
        let job = &facts.job.meta.key;
        self.memory.with(|memory| pods.iter().for_each(|pod| memory.release(job, &pod.meta.uid)));
    }

    /// Writes down who is about to be counted, lets them go, counts them, and ends the Job if that was all.
    async fn track(
        &self,
        cx: &mut Context<'_>,
        facts: &JobView,
        mut counted: Counted,
        end: Option<JobVerdict>,
    ) -> Result<(), ReconcileError> {
        let mut job = Job::clone(&facts.job);
        let because = "pods are about to be counted, or there are more or fewer of them";
        let is_news = job.status != counted.status;
        if !self.write(cx, &mut job, &counted.status, because).await? {
            return Ok(());
        }
        if is_news {
            let meta = &facts.job.meta;
            self.memory.with(|memory| memory.remember_backoff(&meta.key, &meta.uid, facts.backoff));
        }
        for (action, count) in &counted.by_policy {
            metrics::handled_by_policy(cx, action.as_str(), *count);
        }
        let freed = cx.apply(counted.remove_finalizers()).await;
        let outcomes = counted.pods_to_untrack.iter().zip(&freed.outcomes);
        let gone =
            outcomes.filter(|(_, outcome)| matches!(outcome, Outcome::Done { .. } | Outcome::Unneeded));
        let gone: Vec<_> = gone.map(|(pod, _)| pod.clone()).collect();
        self.remember_released(facts, &gone);
        counted.holding.retain(|uid| gone.iter().all(|pod| pod.meta.uid != *uid));
        let mut status = counted.status;
        tracking::settle(&mut status, &counted.holding);
        let is_whole = freed.error.is_none() && !counted.is_partial && tracking::is_settled(&status);
        let end = end.filter(|_| is_whole && status.terminating == Some(0));
        if let Some(end) = &end {
            let terminal = end.terminal(facts.now);
            status.completion_time = if end.is_success { Some(facts.now) } else { status.completion_time };
            status::set(&mut status.conditions, terminal);
        }
        let is_there = self.write(cx, &mut job, &status, "pods have been counted").await?;
        if let Some(end) = end.filter(|_| is_there) {
            metrics::finished(cx, &job, end.is_success, &end.reason);
            tell(cx, ending(&job, &end)).await.all_done()?;
        }
        freed.all_done()
    }

    /// Writes a status if it says anything new, and tells whether the Job is still there.
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
        metrics::counted(cx, job, &job.status, status);
        // The next status goes on top of this one.
        job.meta.resource_version = version;
        job.status = status.clone();
        Ok(true)
    }
}

/// Pods that have lost their finalizers.
struct Released {
    pods: Vec<Arc<Pod>>,
    retry: Option<ReconcileError>,
}

impl Moved {
    fn nothing(facts: &JobView) -> Self {
        Self {
            action: SyncAction::Reconciling,
            active: count(facts.active()),
            ready: count(facts.active().filter(|member| member.pod.is_ready())),
            terminating: count(facts.terminating()),
            retry: None,
            wait: None,
        }
    }

    fn note_deletions(&mut self, pods: &[Arc<Pod>], applied: Applied) {
        let done = |outcome: &&Outcome| matches!(outcome, Outcome::Done { .. } | Outcome::Unneeded);
        let deleted = count(applied.outcomes.iter().filter(done));
        self.active -= deleted;
        self.terminating += deleted;
        self.ready -= count(pods.iter().filter(|pod| pod.is_ready()));
        self.retry = applied.error;
    }
}

/// What pods are made for.
fn creation_reason(facts: &JobView) -> &'static str {
    if facts.only_replace_failed_pods() && facts.failed > 0 {
        "recreate_failed"
    } else if facts.failed > 0 || facts.terminating().next().is_some() {
        "recreate_terminating_or_failed"
    } else {
        "new"
    }
}

/// What people are told of a Job's end.
fn ending(job: &Job, end: &JobVerdict) -> Vec<PlannedEvent> {
    let involved = InvolvedObject::of(job);
    if !end.is_success {
        return vec![PlannedEvent::warning(involved, &end.reason, end.message.as_str())];
    }
    let mut events = vec![PlannedEvent::normal(involved.clone(), "Completed", "Job completed")];
    if job.spec.completions.is_some_and(|wanted| job.status.succeeded > wanted) {
        let message = "Too many succeeded pods running after completion count reached";
        events.insert(0, PlannedEvent::warning(involved, "TooManySucceededPods", message));
    }
    events
}

async fn tell(cx: &mut Context<'_>, events: impl IntoIterator<Item = PlannedEvent>) -> Applied {
    let mut plan = Plan::none();
    events.into_iter().for_each(|event| plan.record(event));
    if plan.is_none() { Applied::default() } else { cx.apply(plan).await }
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}
