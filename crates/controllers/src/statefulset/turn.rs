//! One turn of one StatefulSet.

use keleustes_objects::StatefulSetStatus;
use keleustes_plan::{
    BoxFuture, Context, InvolvedObject, Item, Outcome, Plan, PlannedEvent, ReconcileError, Reconciler,
    Requeue, StatusUrgency,
};

use super::facts::{Facts, Gathered};
use super::history::History;
use super::pods::deletion;
use super::{
    MAX_UNAVAILABLE, RECREATE, StatefulSetOptions, UNAVAILABLE, recreate, replicas, rolling, status,
};
use crate::workloads::availability;

/// Works on StatefulSets.
pub(super) struct Turns {
    pub(super) settings: StatefulSetOptions,
}

impl Turns {
    async fn turn(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let Some(gathered) = cx.gather(|view| Gathered::gather(view, item)) else {
            return Ok(Requeue::Forget);
        };
        let facts = gathered.settle(cx).await?;
        let history = match History::settle(cx, &facts, self.settings.semantic_revision_comparison).await {
            Ok(history) => history,
            Err(retry) => {
                cx.apply(History::clean_up(&facts, None)).await;
                return Err(retry);
            }
        };
        if facts.set.spec.update_strategy.r#type == RECREATE && !self.settings.allow_recreate_strategy {
            let refusal = refuse_recreate(cx, &facts).await;
            cx.apply(History::clean_up(&facts, Some(&history))).await;
            return Err(refusal);
        }
        let mut said = status::of(&facts, &history);
        let done = self.work(cx, &facts, &history, &mut said).await;
        status::complete(&facts, &mut said);
        if self.settings.honor_max_unavailable {
            let most = rolling::unavailable_max(&facts.set);
            cx.measure(
                MAX_UNAVAILABLE.measurement(&labels(&facts).each_ref().map(String::as_str), most.into()),
            );
        }
        // A turn that failed comes again ever later; what it found out must not wait for that.
        let telling = if done.is_ok() { status::telling(&facts, &said) } else { StatusUrgency::Immediate };
        let told = cx.apply(status::plan(&facts, &said, telling)).await;
        let cleaned = cx.apply(History::clean_up(&facts, Some(&history))).await;
        // What was not done matters more than what was not said.
        done?;
        told.all_done()?;
        cleaned.all_done()?;
        let unavailable = said.ready_replicas != said.available_replicas;
        let wanted = facts.set.spec.min_ready_seconds;
        Ok(if unavailable { availability::next(&facts.pods, wanted, facts.now) } else { Requeue::Forget })
    }

    /// Makes, deletes and replaces pods. A set on its way out is left alone.
    async fn work(
        &self,
        cx: &mut Context<'_>,
        facts: &Facts,
        history: &History,
        said: &mut StatefulSetStatus,
    ) -> Result<(), ReconcileError> {
        if facts.set.meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        let strategy = &facts.set.spec.update_strategy.r#type;
        if *strategy == RECREATE && !recreate::clear_the_way(cx, facts, history, said).await? {
            return Ok(());
        }
        let waits = replicas::bring_up(cx, facts, history).await? || replicas::bring_down(cx, facts).await?;
        if waits || *strategy != "RollingUpdate" {
            return Ok(());
        }
        if self.settings.honor_max_unavailable {
            let missing = u32::try_from(facts.unavailable()).unwrap_or(u32::MAX);
            cx.measure(
                UNAVAILABLE.measurement(&labels(facts).each_ref().map(String::as_str), missing.into()),
            );
        }
        let mut plan = Plan::none();
        for pod in rolling::replaced(facts, history, self.settings.honor_max_unavailable) {
            plan.push(deletion(&facts.set, &pod, "it is of an older revision"));
        }
        let applied = cx.apply(plan).await;
        let gone = applied.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done { .. })).count();
        // They may have been of neither revision; there is no such thing as fewer than none.
        said.current_replicas = (said.current_replicas - i32::try_from(gone).unwrap_or(i32::MAX)).max(0);
        applied.all_done()
    }
}

fn labels(facts: &Facts) -> [String; 3] {
    let key = &facts.set.meta.key;
    [key.namespace.to_string(), key.name.to_string(), facts.set.spec.pod_management_policy.to_string()]
}

/// The strategy is behind a gate.
async fn refuse_recreate(cx: &mut Context<'_>, facts: &Facts) -> ReconcileError {
    let message = format!(
        "statefulset {} uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled",
        facts.set.meta.key
    );
    let mut plan = Plan::none();
    plan.record(PlannedEvent::warning(InvolvedObject::of(&*facts.set), "UnknownStrategy", message.clone()));
    cx.apply(plan).await;
    ReconcileError::because(message)
}

impl Reconciler for Turns {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.turn(cx, item))
    }
}
