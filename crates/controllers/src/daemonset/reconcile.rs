//! One turn of one DaemonSet.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::DaemonSet;
use keleustes_plan::{
    BoxFuture, Context, InvolvedObject, Item, Memory, Plan, PlannedEvent, ReconcileError, Reconciler,
    Requeue, StatusUrgency, View,
};

use super::backoff::FailedPodBackoff;
use super::history::History;
use super::inputs::{Gathered, Inputs};
use super::{DaemonSetOptions, manage, rolling_update, status};
use crate::workloads::status_urgency::changed_anything;

/// Works on DaemonSets.
pub(super) struct DaemonSetReconciler {
    settings: DaemonSetOptions,
    kills: Memory<FailedPodBackoff>,
}

/// What making and deleting pods came to.
struct Worked {
    done: Result<(), ReconcileError>,
    /// Whether any were.
    changed_anything: bool,
    /// When to look again because a node must not get its next pod yet.
    requeue_after: Option<Duration>,
}

impl DaemonSetReconciler {
    pub(super) fn new(settings: DaemonSetOptions) -> Self {
        Self { settings, kills: Memory::default() }
    }

    async fn turn(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        if let Some(plan) = cx.gather(|view| left_alone(view, item)) {
            return cx.apply(plan).await.all_done().map(|()| Requeue::Forget);
        }
        let gathered = cx.gather(|view| Gathered::gather(view, item, self.settings.comparison_operators));
        let Some(gathered) = gathered else { return Ok(Requeue::Forget) };
        let facts = gathered.map_err(ReconcileError::because)?.settle(cx).await?;
        let history = History::settle(cx, &facts).await?;
        let Worked { done, changed_anything, requeue_after } = self.work(cx, &facts, &history).await;
        let said = status::of(&facts, &history.hash);
        let unavailable = said.number_ready != said.number_available;
        // A turn that failed comes again ever later; what it found out must not wait for that.
        let telling = if done.is_ok() {
            status::telling(&facts, &said, changed_anything)
        } else {
            StatusUrgency::Immediate
        };
        let told = cx.apply(status::plan(&facts, &said, telling)).await;
        // What was not done matters more than what was not said.
        done?;
        told.all_done()?;
        let seconds = u64::try_from(facts.set.spec.min_ready_seconds).unwrap_or(0);
        let until_ready = (unavailable && seconds > 0).then(|| Duration::from_secs(seconds));
        let again = [requeue_after, until_ready].into_iter().flatten().min();
        Ok(again.map_or(Requeue::Forget, Requeue::After))
    }

    /// Makes and deletes pods. A step of a rollout is only taken when there was nothing else to do.
    async fn work(&self, cx: &mut Context<'_>, facts: &Inputs, history: &History) -> Worked {
        let mut work = self.kills.with(|kills| manage::work(facts, &history.hash, kills));
        let requeue_after = work.requeue_after;
        if work.is_none() {
            work = rolling_update::work(facts, &history.hash);
        }
        let worked = cx.apply(work.plan(facts, &history.hash)).await;
        let changed_anything = changed_anything(&worked);
        let mut done = worked.all_done();
        if done.is_ok() {
            done = cx.apply(history.clean_up(facts)).await.all_done();
        }
        Worked { done, changed_anything, requeue_after }
    }
}

/// A DaemonSet that is left alone: one that selects everything is told so, one on its way out is not
/// touched at all.
fn left_alone(view: &View<'_>, item: &Item) -> Option<Plan> {
    let set: &Arc<DaemonSet> = view.get::<DaemonSet>(item)?;
    let mut plan = Plan::none();
    if set.spec.selector.as_ref().is_some_and(|selector| selector.is_empty()) {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        plan.record(PlannedEvent::warning(InvolvedObject::of(&**set), "SelectingAll", message));
        return Some(plan);
    }
    set.meta.deletion_timestamp.is_some().then_some(plan)
}

impl Reconciler for DaemonSetReconciler {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.turn(cx, item))
    }
}
