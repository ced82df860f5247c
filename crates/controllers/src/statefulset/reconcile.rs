//! Reconciles one StatefulSet.

use std::time::Duration;

use keleustes_objects::{Key, StatefulSetStatus};
use keleustes_plan::{
    Context, Delay, InvolvedObject, Outcome, Plan, PlannedEvent, ReconcileError, Reconciler, Requeue,
    StatusUrgency,
};

use super::claims::are_stale;
use super::history::History;
use super::inputs::{Gathered, Inputs};
use super::pods::deletion;
use super::{
    MAX_UNAVAILABLE, RECREATE, StatefulSetOptions, UNAVAILABLE, recreate, replicas, rolling, status,
};
use crate::workloads::availability::requeue_when_available;

/// When a reconcile follows one that could not consider all missing pods, even if it has created none.
const MORE_PODS_DELAY: Duration = Duration::from_secs(1);

/// How often the claims of an earlier pod are looked at while they keep a pod from being created.
const CLAIM_POLL: Duration = Duration::from_secs(5);

/// Reconciles StatefulSets.
pub(super) struct StatefulSetReconciler {
    pub(super) options: StatefulSetOptions,
}

impl StatefulSetReconciler {
    /// Creates, deletes and replaces pods. Nothing is done for a terminating StatefulSet.
    async fn work(
        &self,
        cx: &mut Context<'_>,
        inputs: &Inputs,
        history: &History,
        new_status: &mut StatefulSetStatus,
    ) -> Result<(), ReconcileError> {
        if inputs.set.meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        let strategy = &inputs.set.spec.update_strategy.r#type;
        if *strategy == RECREATE && !recreate::delete_old_pods(cx, inputs, history, new_status).await? {
            return Ok(());
        }
        let waits =
            replicas::ensure_replicas(cx, inputs, history).await? || replicas::scale_down(cx, inputs).await?;
        if waits || *strategy != "RollingUpdate" {
            return Ok(());
        }
        if self.options.honor_max_unavailable {
            let missing = u32::try_from(inputs.unavailable()).unwrap_or(u32::MAX);
            cx.measure(
                UNAVAILABLE.measurement(&labels(inputs).each_ref().map(String::as_str), missing.into()),
            );
        }
        let mut plan = Plan::none();
        for pod in rolling::pods_to_replace(inputs, history, self.options.honor_max_unavailable) {
            plan.push(deletion(&inputs.set, &pod, "it has an older revision"));
        }
        let applied = cx.apply(plan).await;
        let deleted =
            applied.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done { .. })).count();
        // The deleted pods may belong to neither revision, so the difference can be negative.
        new_status.current_replicas =
            (new_status.current_replicas - i32::try_from(deleted).unwrap_or(i32::MAX)).max(0);
        applied.all_done()
    }
}

fn labels(inputs: &Inputs) -> [String; 3] {
    let key = &inputs.set.meta.key;
    [key.namespace.to_string(), key.name.to_string(), inputs.set.spec.pod_management_policy.to_string()]
}

/// The strategy is behind a feature gate.
async fn reject_recreate(cx: &mut Context<'_>, inputs: &Inputs) -> ReconcileError {
    let message = format!(
        "statefulset {} uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled",
        inputs.set.meta.key
    );
    let mut plan = Plan::none();
    plan.record(PlannedEvent::warning(InvolvedObject::of(&*inputs.set), "UnknownStrategy", message.clone()));
    cx.apply(plan).await;
    ReconcileError::because(message)
}

impl Reconciler for StatefulSetReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some(gathered) = cx.gather(|view| Gathered::gather(view, item)) else {
            return Ok(Requeue::Forget);
        };
        let inputs = gathered.settle(cx).await?;
        let history = match History::settle(cx, &inputs, self.options.semantic_revision_comparison).await {
            Ok(history) => history,
            Err(retry) => {
                cx.apply(History::clean_up(&inputs, None)).await;
                return Err(retry);
            }
        };
        if inputs.set.spec.update_strategy.r#type == RECREATE && !self.options.allow_recreate_strategy {
            let refusal = reject_recreate(cx, &inputs).await;
            cx.apply(History::clean_up(&inputs, Some(&history))).await;
            return Err(refusal);
        }
        let mut new_status = status::of(&inputs, &history);
        let done = self.work(cx, &inputs, &history, &mut new_status).await;
        status::complete(&inputs, &mut new_status);
        if self.options.honor_max_unavailable {
            let most = rolling::max_unavailable(&inputs.set);
            cx.measure(
                MAX_UNAVAILABLE.measurement(&labels(&inputs).each_ref().map(String::as_str), most.into()),
            );
        }
        // A failed reconcile is retried with backoff; its status must not wait for that.
        let status_urgency = if done.is_ok() {
            status::status_urgency(&inputs, &new_status)
        } else {
            StatusUrgency::Immediate
        };
        let status_written = cx.apply(status::plan(&inputs, &new_status, status_urgency)).await;
        let cleaned = cx.apply(History::clean_up(&inputs, Some(&history))).await;
        // An error of the pod writes takes precedence over an error of the status write.
        done?;
        status_written.all_done()?;
        cleaned.all_done()?;
        Ok(next_reconcile(&inputs, &new_status))
    }
}

/// When the StatefulSet is reconciled without an event.
fn next_reconcile(inputs: &Inputs, new_status: &StatefulSetStatus) -> Requeue {
    let more = (inputs.deferred > 0 && !inputs.is_ordered())
        .then(|| Delay::of(MORE_PODS_DELAY, "the rest of its missing pods"));
    let claims = waits_for_claims(inputs)
        .then(|| Delay::of(CLAIM_POLL, "the deletion of the claims of an earlier pod"));
    let unavailable = new_status.ready_replicas != new_status.available_replicas;
    let wanted = inputs.set.spec.min_ready_seconds;
    let available = match unavailable.then(|| requeue_when_available(&inputs.pods, wanted, inputs.now)) {
        Some(Requeue::After(delay)) => Some(delay),
        _ => None,
    };
    Requeue::after_any([more, claims, available].into_iter().flatten())
}

/// Whether a missing pod cannot be created before claims are deleted. The event of a claim enqueues nothing.
fn waits_for_claims(inputs: &Inputs) -> bool {
    let is_stale = |(ordinal, pod): (&i32, &Option<_>)| pod.is_none() && are_stale(inputs, *ordinal);
    inputs.set.meta.deletion_timestamp.is_none() && inputs.replicas.iter().any(is_stale)
}
