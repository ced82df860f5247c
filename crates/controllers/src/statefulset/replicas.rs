//! Creates missing pods, in order or in parallel, and deletes pods out of range.

use std::sync::Arc;

use keleustes_objects::{ErrorReason, Pod, PodPhase};
use keleustes_plan::{Applied, Context, InvolvedObject, Outcome, Plan, ReconcileError, Write};

use super::claims;
use super::history::{History, Revision};
use super::inputs::{Inputs, is_running_and_ready};
use super::pods::{self, creation, deletion, identity_matches, repair, storage_matches};
use super::retention;

/// The largest batch of ordinals.
const BATCH_MAX: usize = 500;

/// The work for one ordinal: claims first, then the pod, then the claims' owners.
#[derive(Default)]
struct OrdinalPlan<'a> {
    ordinal: i32,
    /// The existing pod.
    existing: Option<&'a Arc<Pod>>,
    claims: Vec<Write>,
    /// Why not all of its claims can exist.
    claim_errors: Vec<String>,
    /// The verb of the event if its claims cannot exist; no event if `None`.
    verb: Option<&'static str>,
    pod: Option<Write>,
    /// Whether the owner references of the claims are updated.
    updates_owners: bool,
    /// Whether the next ordinal has to wait, if pods are created one after another.
    blocks: bool,
}

/// Creates and repairs the pods in range, from the lowest ordinal up. Returns whether the reconcile must wait
/// for one of them.
///
/// # Errors
/// If a write failed.
pub(super) async fn ensure_replicas(
    cx: &mut Context<'_>,
    inputs: &Inputs,
    history: &History,
) -> Result<bool, ReconcileError> {
    let ordered = inputs.is_ordered();
    let ordinals: Vec<_> = inputs.replicas.iter().map(|(ordinal, pod)| (*ordinal, pod.as_ref())).collect();
    let singly = || ordinals.chunks(1).collect();
    let all_at_once = || batches(&ordinals);
    for batch in if ordered { singly() } else { all_at_once() } {
        let plans = batch.iter().map(|&(ordinal, pod)| plan_ordinal(inputs, history, ordinal, pod));
        let plans = plans.collect::<Result<Vec<_>, _>>().map_err(ReconcileError::because)?;
        let blocked = ordered && plans.iter().any(|ordinal_plan| ordinal_plan.blocks);
        apply_plans(cx, inputs, plans).await?;
        if blocked {
            return Ok(true);
        }
    }
    // Pods out of range and outdated ones wait until no pod is missing.
    Ok(inputs.deferred > 0)
}

/// Slices of one, two, four and so on: an error that all have in common occurs once, not a thousand times.
pub(super) fn batches<T>(mut rest: &[T]) -> Vec<&[T]> {
    let (mut batches, mut size) = (Vec::new(), 1);
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(size.min(rest.len()));
        batches.push(batch);
        (rest, size) = (after, (size * 2).min(BATCH_MAX));
    }
    batches
}

/// Adds independent writes in batches. No batch follows one with a failure.
pub(super) fn push_in_batches(plan: &mut Plan, writes: &[Write]) {
    batches(writes).into_iter().for_each(|batch| plan.push_parallel(batch.to_vec()));
}

/// The revision from which the pod of an ordinal is created.
fn revision_for<'a>(inputs: &Inputs, history: &'a History, ordinal: i32) -> &'a Revision {
    let (set, index) = (&inputs.set, ordinal - inputs.start());
    let strategy = &set.spec.update_strategy;
    let keeps_current = match &strategy.rolling_update {
        Some(rolling) => index < rolling.partition.unwrap_or(0),
        None => strategy.r#type == "RollingUpdate" && index < set.status.current_replicas,
    };
    if keeps_current { &history.current } else { &history.update }
}

/// The work for an ordinal.
///
/// # Errors
/// If its template has no labels.
fn plan_ordinal<'a>(
    inputs: &Inputs,
    history: &History,
    ordinal: i32,
    pod: Option<&'a Arc<Pod>>,
) -> Result<OrdinalPlan<'a>, &'static str> {
    let mut ordinal_plan = OrdinalPlan { ordinal, existing: pod, ..OrdinalPlan::default() };
    match pod {
        None if claims::are_stale(inputs, ordinal) => ordinal_plan.blocks = true,
        None => {
            let Revision { name, template } = revision_for(inputs, history, ordinal);
            ordinal_plan.pod = Some(creation(&inputs.set, ordinal, template, name)?);
            ordinal_plan.require_claims(inputs, Some("Create"));
            (ordinal_plan.updates_owners, ordinal_plan.blocks) = (true, true);
        }
        Some(pod) if pod.is_terminal() => {
            let ended = || deletion(&inputs.set, pod, "it is terminal and will be recreated");
            ordinal_plan.pod = (!pod.is_terminating()).then(ended);
            ordinal_plan.blocks = true;
        }
        Some(pod) => ordinal_plan.plan_existing_pod(inputs, pod),
    }
    Ok(ordinal_plan)
}

impl OrdinalPlan<'_> {
    fn require_claims(&mut self, inputs: &Inputs, verb: Option<&'static str>) {
        (self.claims, self.claim_errors) = claims::missing(inputs, self.ordinal);
        self.verb = verb;
    }

    /// The work for an existing pod that is not terminal.
    fn plan_existing_pod(&mut self, inputs: &Inputs, pod: &Arc<Pod>) {
        if pod.phase == PodPhase::Pending {
            self.require_claims(inputs, None);
            self.updates_owners = true;
        }
        let healthy = is_running_and_ready(pod) && inputs.is_available(pod);
        if inputs.is_ordered() && !healthy {
            self.blocks = true;
            return;
        }
        let storage_matches = storage_matches(&inputs.set, self.ordinal, pod);
        if !storage_matches {
            self.require_claims(inputs, Some("Update"));
        }
        if !storage_matches || !identity_matches(pod) {
            self.pod = Some(repair(inputs, self.ordinal, pod));
        }
        self.updates_owners |= !retention::matches_policy(inputs, self.ordinal, pod, false);
    }
}

/// Applies the work of a batch. An error of one ordinal does not stop the others.
async fn apply_plans(
    cx: &mut Context<'_>,
    inputs: &Inputs,
    mut plans: Vec<OrdinalPlan<'_>>,
) -> Result<(), ReconcileError> {
    let mut retry = create_claims(cx, inputs, &mut plans).await;
    let mut writes = Vec::new();
    for ordinal_plan in &mut plans {
        writes.extend(ordinal_plan.pod.take().map(|write| (ordinal_plan.ordinal, write)));
    }
    let (ordinals, writes): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
    let written = apply_together(cx, writes).await;
    retry = retry.or(written.error);
    let cache_is_behind = |outcome: &Outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason == ErrorReason::AlreadyExists);
    let behind: Vec<_> =
        ordinals.iter().zip(&written.outcomes).filter(|(_, it)| cache_is_behind(it)).collect();
    let mut plan = Plan::none();
    for ordinal_plan in plans.iter().filter(|ordinal_plan| ordinal_plan.updates_owners) {
        if !behind.iter().any(|(ordinal, _)| **ordinal == ordinal_plan.ordinal) {
            retention::push(
                &mut plan,
                inputs,
                ordinal_plan.ordinal,
                ordinal_plan.existing.map(|pod| &**pod),
                false,
            );
        }
    }
    if !plan.is_none() {
        retry = retry.or(cx.apply(plan).await.error);
    }
    retry.map_or(Ok(()), Err)
}

/// Creates missing claims. Ordinals whose claims cannot exist are removed from the batch.
async fn create_claims(
    cx: &mut Context<'_>,
    inputs: &Inputs,
    plans: &mut Vec<OrdinalPlan<'_>>,
) -> Option<ReconcileError> {
    let (mut ordinals, mut writes) = (Vec::new(), Vec::new());
    for ordinal_plan in plans.iter_mut() {
        ordinals.extend(ordinal_plan.claims.iter().map(|_| ordinal_plan.ordinal));
        writes.append(&mut ordinal_plan.claims);
    }
    let names: Vec<_> = writes.iter().map(|write| write.target.key.name.clone()).collect();
    let applied = apply_together(cx, writes).await;
    for ((ordinal, name), outcome) in ordinals.into_iter().zip(names).zip(&applied.outcomes) {
        let ordinal_plan = plans.iter_mut().find(|ordinal_plan| ordinal_plan.ordinal == ordinal);
        if let (Some(ordinal_plan), Outcome::Failed(failure)) = (ordinal_plan, outcome) {
            ordinal_plan.claim_errors.push(format!("failed to create PVC {name}: {}", failure.message));
        }
    }
    let (set, mut plan, mut retry) = (&*inputs.set, Plan::none(), applied.error);
    for ordinal_plan in plans.iter().filter(|ordinal_plan| !ordinal_plan.claim_errors.is_empty()) {
        let why = aggregate(&ordinal_plan.claim_errors);
        if let Some(verb) = ordinal_plan.verb {
            let pod = pods::name(set, ordinal_plan.ordinal);
            plan.record(pods::event(InvolvedObject::of(set), &set.meta.key.name, &pod, verb, Some(&why)));
        }
        retry.get_or_insert_with(|| ReconcileError::because(why));
    }
    if !plan.is_none() {
        cx.apply(plan).await;
    }
    plans.retain(|ordinal_plan| ordinal_plan.claim_errors.is_empty());
    retry
}

/// Several errors as one text: without repetitions, in brackets if there is more than one.
///
/// Parity: apimachinery, `errors.NewAggregate`.
fn aggregate(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    match distinct[..] {
        [only] => only.to_owned(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

async fn apply_together(cx: &mut Context<'_>, writes: Vec<Write>) -> Applied {
    if writes.is_empty() {
        return Applied::default();
    }
    let mut plan = Plan::none();
    plan.push_parallel(writes);
    cx.apply(plan).await
}

/// Deletes pods out of range, from the highest ordinal down. Returns whether the reconcile must wait for
/// them.
///
/// # Errors
/// If a claim's owner references cannot be updated, or a pod cannot be deleted.
pub(super) async fn scale_down(cx: &mut Context<'_>, inputs: &Inputs) -> Result<bool, ReconcileError> {
    let mut plan = Plan::none();
    for (ordinal, pod) in &inputs.condemned {
        if !retention::matches_policy(inputs, *ordinal, pod, true) {
            retention::push(&mut plan, inputs, *ordinal, Some(pod), true);
        }
    }
    let (deleted, stops) = pods_to_delete(inputs);
    let delete = |pod: &Arc<Pod>| deletion(&inputs.set, pod, "its ordinal is out of range");
    push_in_batches(&mut plan, &deleted.into_iter().map(delete).collect::<Vec<_>>());
    cx.apply(plan).await.all_done().map(|()| stops)
}

/// The pods out of range to delete now, and whether the rest has to wait for them.
fn pods_to_delete(inputs: &Inputs) -> (Vec<&Arc<Pod>>, bool) {
    let from_the_top = || inputs.condemned.iter().rev().map(|(_, pod)| pod);
    if !inputs.is_ordered() {
        return (from_the_top().filter(|pod| !pod.is_terminating()).collect(), false);
    }
    let Some(pod) = from_the_top().next() else { return (Vec::new(), false) };
    let healthy = is_running_and_ready(pod) && inputs.is_available(pod);
    // Of the unhealthy pods only the lowest may be deleted: the others keep their place in the order.
    let first_unhealthy = inputs.with_ordinal().find(|pod| !inputs.is_available(pod));
    let may_go = healthy || first_unhealthy.is_some_and(|unhealthy| unhealthy.meta.uid == pod.meta.uid);
    (if may_go && !pod.is_terminating() { vec![pod] } else { Vec::new() }, true)
}
