//! Reconciles one DaemonSet.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{DaemonSet, Key};
use keleustes_plan::{
    Context, Delay, InvolvedObject, Memory, Plan, PlannedEvent, ReconcileError, Reconciler, Requeue,
    StatusUrgency, View,
};

use super::backoff::FailedPodBackoff;
use super::history::History;
use super::inputs::{Gathered, Inputs};
use super::{DaemonSetOptions, manage, rolling_update, status};
use crate::workloads::status_urgency::changed_anything;

pub(super) struct DaemonSetReconciler {
    options: DaemonSetOptions,
    failed_pod_backoff: Memory<FailedPodBackoff>,
}

/// The result of creating and deleting pods.
struct PodSyncResult {
    done: Result<(), ReconcileError>,
    /// Whether any pod was created or deleted.
    changed_anything: bool,
    /// When to requeue because the deletion of a failed pod is backed off.
    requeue_after: Option<Delay>,
}

impl DaemonSetReconciler {
    pub(super) fn new(options: DaemonSetOptions) -> Self {
        Self { options, failed_pod_backoff: Memory::default() }
    }

    /// Creates and deletes pods. The rolling update only proceeds if there is nothing else to create or
    /// delete.
    async fn sync_pods(&self, cx: &mut Context<'_>, inputs: &Inputs, history: &History) -> PodSyncResult {
        let mut changes =
            self.failed_pod_backoff.with(|backoff| manage::pod_changes(inputs, &history.hash, backoff));
        let requeue_after = changes.requeue_after;
        if changes.is_none() {
            changes = rolling_update::pod_changes(inputs, &history.hash);
        }
        let applied = cx.apply(changes.plan(inputs, &history.hash)).await;
        let changed_anything = changed_anything(&applied);
        let mut done = applied.all_done();
        if done.is_ok() {
            done = cx.apply(history.clean_up(inputs)).await.all_done();
        }
        PodSyncResult { done, changed_anything, requeue_after }
    }
}

/// The plan for a DaemonSet that is not reconciled: one that selects all pods gets an event, a terminating
/// one no write at all.
fn plan_without_reconcile(view: &View<'_>, item: &Key) -> Option<Plan> {
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
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        if let Some(plan) = cx.gather(|view| plan_without_reconcile(view, item)) {
            return cx.apply(plan).await.all_done().map(|()| Requeue::Forget);
        }
        let gathered = cx.gather(|view| Gathered::gather(view, item, self.options.comparison_operators));
        let Some(gathered) = gathered else { return Ok(Requeue::Forget) };
        let inputs = gathered.map_err(ReconcileError::because)?.claim(cx).await?;
        let history = History::construct(cx, &inputs).await?;
        let PodSyncResult { done, changed_anything, requeue_after } =
            self.sync_pods(cx, &inputs, &history).await;
        let status = status::of(&inputs, &history.hash);
        let unavailable = status.number_ready != status.number_available;
        // The next reconcile after an error comes with increasing backoff; the status must not be delayed
        // with it.
        let status_urgency = if done.is_ok() {
            status::status_urgency(&inputs, &status, changed_anything)
        } else {
            StatusUrgency::Immediate
        };
        let written = status::write(cx, &inputs.set, &status, status_urgency).await;
        // An error of a pod write takes precedence over an error of the status write.
        done?;
        written?;
        let seconds = u64::try_from(inputs.set.spec.min_ready_seconds).unwrap_or(0);
        let until_ready = (unavailable && seconds > 0)
            .then(|| Delay::of(Duration::from_secs(seconds), "minReadySeconds of its pods"));
        Ok(Requeue::after_any([requeue_after, until_ready].into_iter().flatten()))
    }
}
