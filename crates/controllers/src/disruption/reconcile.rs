//! The reconcile of a budget: count, calculate, write; on an error allow nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{ErrorReason, Key, Object as _, OwnerReference, Pod, PodDisruptionBudget, Uid};
use keleustes_plan::{
    Context, Effects, OnFailure, Outcome, Plan, ReconcileError, Reconciler, Requeue, View, Write,
};

use super::counts::{self, PodCounts};
use super::finders::{self, ControllerScale};
use super::status::{self, GrantedEvictions};
use super::{QUEUE, RECHECK_QUEUE, events, scale};

/// Reconciles budgets.
pub(super) struct BudgetReconciler;

/// Returns budgets that waited for the deadline of an eviction to the queue of budgets.
pub(super) struct Recheck;

impl Reconciler for Recheck {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let mut effects = Effects::default();
        effects.enqueue_rate_limited(QUEUE, item.clone());
        cx.effects(effects);
        Ok(Requeue::Forget)
    }
}

/// A budget and what the caches hold about its pods.
struct Inputs {
    budget: Arc<PodDisruptionBudget>,
    /// The selected pods, sorted by name, or why there are none.
    pods: Result<Vec<Arc<Pod>>, String>,
    /// What the caches hold about the controller of each pod; empty if the budget does not ask for it.
    controllers: Vec<CachedController>,
}

/// What the caches hold about the controller of a pod.
enum CachedController {
    /// The pod has no controllerRef.
    Unmanaged,
    /// The controller, or why it cannot be looked up.
    Found(Result<ControllerScale, String>),
    /// The caches do not hold it; its scale subresource may.
    NotCached { controller_ref: OwnerReference, pod: Arc<Pod> },
}

impl Inputs {
    fn gather(view: &View<'_>, item: &Key) -> Option<Self> {
        let budget = view.get::<PodDisruptionBudget>(item)?.clone();
        let pods = selected_pods(view, &budget);
        let needs_scale = counts::needs_scale(&budget.spec);
        let counted = pods.iter().flatten().filter(|_| needs_scale);
        let controllers = counted.map(|pod| CachedController::of(view, pod)).collect();
        Some(Self { budget, pods, controllers })
    }
}

/// All pods that a budget selects, in any phase.
fn selected_pods(view: &View<'_>, budget: &PodDisruptionBudget) -> Result<Vec<Arc<Pod>>, String> {
    let mut selected = Vec::new();
    let selector = &budget.spec.selector;
    // An invalid selector is an error even in a namespace without pods.
    selector.selects(&budget.meta.labels).map_err(ToString::to_string)?;
    for pod in view.in_namespace::<Pod>(&budget.meta.key.namespace) {
        if selector.selects(&pod.meta.labels).map_err(ToString::to_string)? {
            selected.push(pod.clone());
        }
    }
    Ok(selected)
}

impl CachedController {
    fn of(view: &View<'_>, pod: &Arc<Pod>) -> Self {
        let Some(controller_ref) = pod.meta.controller_ref() else { return Self::Unmanaged };
        match finders::find_in_caches(view, controller_ref, &pod.meta.key.namespace).transpose() {
            Some(found) => Self::Found(found),
            None => Self::NotCached { controller_ref: controller_ref.clone(), pod: pod.clone() },
        }
    }
}

impl Reconciler for BudgetReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some(inputs) = cx.gather(|view| Inputs::gather(view, item)) else { return Ok(Requeue::Forget) };
        let Inputs { budget, pods, .. } = &inputs;
        let mut plan = Plan::none();
        let pods = match pods {
            Ok(pods) => pods,
            Err(error) => {
                plan.record(events::invalid_selector(budget, error));
                return fail_safe(cx, plan, budget, error).await;
            }
        };
        if pods.is_empty() {
            plan.record(events::no_pods(budget));
        }
        let counts = match expected_pods(cx, &inputs, pods.len()).await {
            Ok(counts) => counts,
            Err(error) => {
                plan.record(events::calculation_failed(budget, &error));
                return fail_safe(cx, plan, budget, &error).await;
            }
        };
        if inputs.controllers.iter().any(|controller| matches!(controller, CachedController::Unmanaged)) {
            plan.record(events::unmanaged_pods(budget));
        }
        write_status(cx, plan, budget, pods, counts).await
    }
}

/// The expected and the desired number of pods of a budget.
///
/// # Errors
/// The first pod, by name, whose controller has no known scale. A fixed order matters: with several of them, changing
/// messages would cause endless status updates.
async fn expected_pods(cx: &mut Context<'_>, inputs: &Inputs, pods: usize) -> Result<PodCounts, String> {
    let spec = &inputs.budget.spec;
    if !counts::needs_scale(spec) {
        return counts::counts(spec, i32::try_from(pods).unwrap_or(i32::MAX));
    }
    let mut replicas: BTreeMap<Uid, i32> = BTreeMap::new();
    for controller in &inputs.controllers {
        let found = match controller {
            CachedController::Unmanaged => continue,
            CachedController::Found(found) => found.clone()?,
            CachedController::NotCached { controller_ref, .. }
                if replicas.contains_key(&controller_ref.uid) =>
            {
                continue;
            }
            CachedController::NotCached { controller_ref, pod } => {
                let found = scale::fetch(cx, controller_ref, &pod.meta.key.namespace).await?;
                found.ok_or_else(|| format!("found no controllers for pod \"{}\"", pod.meta.key.name))?
            }
        };
        replicas.insert(found.uid, found.replicas);
    }
    counts::counts(spec, replicas.into_values().fold(0, i32::saturating_add))
}

/// Writes the calculated status if it differs, and returns for the deadline of the next granted eviction.
async fn write_status(
    cx: &mut Context<'_>,
    mut plan: Plan,
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    counts: PodCounts,
) -> Result<Requeue, ReconcileError> {
    let now = cx.gather(|view| view.now());
    let granted = GrantedEvictions::of(budget, pods, now);
    granted.overdue.iter().for_each(|pod| plan.record(events::not_deleted(pod, budget)));
    let healthy = status::healthy(pods, &granted, now);
    if let Some(needed) = status::needed(budget, counts, healthy, granted.pending, now) {
        let because = format!(
            "{healthy} of {} expected pods are healthy and {} must be",
            counts.expected, counts.desired_healthy
        );
        plan.push(Write::put_status(budget, &needed).because(because).on_failure(OnFailure::ReturnOutcome));
    }
    let applied = cx.apply(plan).await;
    if let Some(Outcome::Failed(error)) = applied.outcomes.first() {
        // The budget changed, for example because an eviction was charged to it: calculate again.
        if error.reason == ErrorReason::Conflict {
            let message = format!("updating the status of {}: {error}", budget.key());
            return Err(ReconcileError::from_api_error(error, message));
        }
        return fail_safe(cx, Plan::none(), budget, &error.to_string()).await;
    }
    // A write that was not sent, because this process did not lead, is no failure of the budget.
    applied.all_done()?;
    if let Some(at) = granted.recheck_at {
        let mut effects = Effects::default();
        effects.enqueue_after(RECHECK_QUEUE, budget.key().clone(), now.until(at));
        cx.effects(effects);
    }
    Ok(Requeue::Forget)
}

/// Allows no disruption until the next reconcile succeeds. The update is sent even if it changes nothing; the server
/// stores no new version then.
async fn fail_safe(
    cx: &mut Context<'_>,
    mut plan: Plan,
    budget: &PodDisruptionBudget,
    error: &str,
) -> Result<Requeue, ReconcileError> {
    let now = cx.gather(|view| view.now());
    let status = status::fail_safe(budget, error, now);
    plan.push(Write::put_status(budget, &status).because(format!("the budget failed to sync: {error}")));
    cx.apply(plan).await.all_done().map(|()| Requeue::Forget)
}
