//! Makes the pods that are missing, in order or all at once, and lets go of those out of range.

use std::sync::Arc;

use keleustes_objects::{ErrorReason, Pod, PodPhase};
use keleustes_plan::{Applied, Context, InvolvedObject, Outcome, Plan, ReconcileError, Write};

use super::claims;
use super::history::{History, Revision};
use super::inputs::{Inputs, is_running_and_ready};
use super::pods::{self, creation, deletion, has_identity_and_claims, repair};
use super::retention;

/// How many numbers are worked on at once, at most.
const BATCH_MAX: usize = 500;

/// What is to be done about one number: claims first, then the pod, then who owns the claims.
#[derive(Default)]
struct OrdinalPlan<'a> {
    ordinal: i32,
    /// The pod that is there.
    existing: Option<&'a Arc<Pod>>,
    claims: Vec<Write>,
    /// Why its claims cannot all be had.
    claim_errors: Vec<String>,
    /// What it would be called if its claims could not be had; nothing if nobody needs to know.
    verb: Option<&'static str>,
    pod: Option<Write>,
    /// Whether to look at who owns the claims.
    updates_owners: bool,
    /// Whether the next number has to wait, if they go one after another.
    blocks: bool,
}

/// Looks after the pods in range, upwards. Tells whether nothing else may happen before they are well.
///
/// # Errors
/// If something could not be made or put right.
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
        let blocked = ordered && plans.iter().any(|plan_ordinal| plan_ordinal.blocks);
        apply_plans(cx, inputs, plans).await?;
        if blocked {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Slices of one, two, four and so on: a mistake that all share is made once, not a thousand times.
pub(super) fn batches<T>(mut rest: &[T]) -> Vec<&[T]> {
    let (mut batches, mut size) = (Vec::new(), 1);
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(size.min(rest.len()));
        batches.push(batch);
        (rest, size) = (after, (size * 2).min(BATCH_MAX));
    }
    batches
}

/// Adds writes that do not depend on each other. The first batch with a failure is the last.
pub(super) fn push_in_batches(plan: &mut Plan, writes: &[Write]) {
    batches(writes).into_iter().for_each(|batch| plan.push_parallel(batch.to_vec()));
}

/// Which revision a new pod of a number is made from.
fn revision_for<'a>(inputs: &Inputs, history: &'a History, ordinal: i32) -> &'a Revision {
    let (set, index) = (&inputs.set, ordinal - inputs.start());
    let strategy = &set.spec.update_strategy;
    let keeps_current = match &strategy.rolling_update {
        Some(rolling) => index < rolling.partition.unwrap_or(0),
        None => strategy.r#type == "RollingUpdate" && index < set.status.current_replicas,
    };
    if keeps_current { &history.current } else { &history.update }
}

/// What a number needs.
///
/// # Errors
/// If no pod can be made from its template.
fn plan_ordinal<'a>(
    inputs: &Inputs,
    history: &History,
    ordinal: i32,
    pod: Option<&'a Arc<Pod>>,
) -> Result<OrdinalPlan<'a>, &'static str> {
    let mut plan_ordinal = OrdinalPlan { ordinal, existing: pod, ..OrdinalPlan::default() };
    match pod {
        None if claims::are_stale(inputs, ordinal) => plan_ordinal.blocks = true,
        None => {
            let Revision { name, template } = revision_for(inputs, history, ordinal);
            plan_ordinal.pod = Some(creation(&inputs.set, ordinal, template, name)?);
            plan_ordinal.require_claims(inputs, Some("Create"));
            (plan_ordinal.updates_owners, plan_ordinal.blocks) = (true, true);
        }
        Some(pod) if pod.is_terminal() => {
            let ended = || deletion(&inputs.set, pod, "it has ended; another one takes its place");
            plan_ordinal.pod = (!pod.is_terminating()).then(ended);
            plan_ordinal.blocks = true;
        }
        Some(pod) => plan_ordinal.plan_existing_pod(inputs, pod),
    }
    Ok(plan_ordinal)
}

impl OrdinalPlan<'_> {
    fn require_claims(&mut self, inputs: &Inputs, verb: Option<&'static str>) {
        (self.claims, self.claim_errors) = claims::missing(inputs, self.ordinal);
        self.verb = verb;
    }

    /// What a pod needs that is there and has not ended.
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
        if !has_identity_and_claims(inputs, self.ordinal, pod) {
            self.require_claims(inputs, Some("Update"));
            self.pod = Some(repair(inputs, self.ordinal, pod));
        }
        self.updates_owners |= !retention::matches_policy(inputs, self.ordinal, pod, false);
    }
}

/// Meets the needs of a batch. What one lacks keeps none of the others.
async fn apply_plans(
    cx: &mut Context<'_>,
    inputs: &Inputs,
    mut plans: Vec<OrdinalPlan<'_>>,
) -> Result<(), ReconcileError> {
    let mut retry = create_claims(cx, inputs, &mut plans).await;
    let mut writes = Vec::new();
    for plan_ordinal in &mut plans {
        writes.extend(plan_ordinal.pod.take().map(|write| (plan_ordinal.ordinal, write)));
    }
    let (ordinals, writes): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
    let written = apply_together(cx, writes).await;
    retry = retry.or(written.error);
    let cache_is_behind = |outcome: &Outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason == ErrorReason::AlreadyExists);
    let behind: Vec<_> =
        ordinals.iter().zip(&written.outcomes).filter(|(_, it)| cache_is_behind(it)).collect();
    let mut plan = Plan::none();
    for plan_ordinal in plans.iter().filter(|plan_ordinal| plan_ordinal.updates_owners) {
        if !behind.iter().any(|(ordinal, _)| **ordinal == plan_ordinal.ordinal) {
            retention::push(
                &mut plan,
                inputs,
                plan_ordinal.ordinal,
                plan_ordinal.existing.map(|pod| &**pod),
                false,
            );
        }
    }
    if !plan.is_none() {
        retry = retry.or(cx.apply(plan).await.error);
    }
    retry.map_or(Ok(()), Err)
}

/// Makes the claims that are missing. Whoever cannot have them does without anything else this time.
async fn create_claims(
    cx: &mut Context<'_>,
    inputs: &Inputs,
    plans: &mut Vec<OrdinalPlan<'_>>,
) -> Option<ReconcileError> {
    let (mut ordinals, mut writes) = (Vec::new(), Vec::new());
    for plan_ordinal in plans.iter_mut() {
        ordinals.extend(plan_ordinal.claims.iter().map(|_| plan_ordinal.ordinal));
        writes.append(&mut plan_ordinal.claims);
    }
    let names: Vec<_> = writes.iter().map(|write| write.target.key.name.clone()).collect();
    let applied = apply_together(cx, writes).await;
    for ((ordinal, name), outcome) in ordinals.into_iter().zip(names).zip(&applied.outcomes) {
        let plan_ordinal = plans.iter_mut().find(|plan_ordinal| plan_ordinal.ordinal == ordinal);
        if let (Some(plan_ordinal), Outcome::Failed(failure)) = (plan_ordinal, outcome) {
            plan_ordinal.claim_errors.push(format!("failed to create PVC {name}: {}", failure.message));
        }
    }
    let (set, mut plan, mut retry) = (&*inputs.set, Plan::none(), applied.error);
    for plan_ordinal in plans.iter().filter(|plan_ordinal| !plan_ordinal.claim_errors.is_empty()) {
        let why = plan_ordinal.claim_errors.join(", ");
        if let Some(verb) = plan_ordinal.verb {
            let pod = pods::name(set, plan_ordinal.ordinal);
            plan.record(pods::event(InvolvedObject::of(set), &set.meta.key.name, &pod, verb, Some(&why)));
        }
        retry.get_or_insert_with(|| ReconcileError::because(why));
    }
    if !plan.is_none() {
        cx.apply(plan).await;
    }
    plans.retain(|plan_ordinal| plan_ordinal.claim_errors.is_empty());
    retry
}

async fn apply_together(cx: &mut Context<'_>, writes: Vec<Write>) -> Applied {
    if writes.is_empty() {
        return Applied::default();
    }
    let mut plan = Plan::none();
    plan.push_parallel(writes);
    cx.apply(plan).await
}

/// Lets go of pods out of range, from the top. Tells whether nothing else may happen before they are gone.
///
/// # Errors
/// If the owners of a claim cannot be put right, or a pod cannot be deleted.
pub(super) async fn scale_down(cx: &mut Context<'_>, inputs: &Inputs) -> Result<bool, ReconcileError> {
    let mut plan = Plan::none();
    for (ordinal, pod) in &inputs.condemned {
        if !retention::matches_policy(inputs, *ordinal, pod, true) {
            retention::push(&mut plan, inputs, *ordinal, Some(pod), true);
        }
    }
    let (deleted, stops) = pods_to_delete(inputs);
    let delete = |pod: &Arc<Pod>| deletion(&inputs.set, pod, "its number is out of range");
    push_in_batches(&mut plan, &deleted.into_iter().map(delete).collect::<Vec<_>>());
    cx.apply(plan).await.all_done().map(|()| stops)
}

/// The pods out of range that may go now, and whether the rest has to wait for them.
fn pods_to_delete(inputs: &Inputs) -> (Vec<&Arc<Pod>>, bool) {
    let from_the_top = || inputs.condemned.iter().rev().map(|(_, pod)| pod);
    if !inputs.is_ordered() {
        return (from_the_top().filter(|pod| !pod.is_terminating()).collect(), false);
    }
    let Some(pod) = from_the_top().next() else { return (Vec::new(), false) };
    let healthy = is_running_and_ready(pod) && inputs.is_available(pod);
    // Of the pods that are not well only the lowest may go: the others would lose the order.
    let first_unhealthy = inputs.with_ordinal().find(|pod| !inputs.is_available(pod));
    let may_go = healthy || first_unhealthy.is_some_and(|unhealthy| unhealthy.meta.uid == pod.meta.uid);
    (if may_go && !pod.is_terminating() { vec![pod] } else { Vec::new() }, true)
}
