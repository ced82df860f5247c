//! Makes the pods that are missing, in order or all at once, and lets go of those out of range.

use std::sync::Arc;

use keleustes_objects::{ErrorReason, Pod, PodPhase};
use keleustes_plan::{Applied, Context, InvolvedObject, Outcome, Plan, ReconcileError, Write};

use super::claims;
use super::facts::{Facts, runs_and_is_ready};
use super::history::{History, Revision};
use super::pods::{self, creation, deletion, is_itself, repair};
use super::retention;

/// How many numbers are worked on at once, at most.
const BATCH_MAX: usize = 500;

/// What is to be done about one number: claims first, then the pod, then who owns the claims.
#[derive(Default)]
struct Need<'a> {
    number: i32,
    /// The pod that is there.
    there: Option<&'a Arc<Pod>>,
    claims: Vec<Write>,
    /// Why its claims cannot all be had.
    obstacles: Vec<String>,
    /// What it would be called if its claims could not be had; nothing if nobody needs to know.
    verb: Option<&'static str>,
    pod: Option<Write>,
    /// Whether to look at who owns the claims.
    looks_at_owners: bool,
    /// Whether the next number has to wait, if they go one after another.
    blocks: bool,
}

/// Looks after the pods in range, upwards. Tells whether nothing else may happen before they are well.
///
/// # Errors
/// If something could not be made or put right.
pub(super) async fn bring_up(
    cx: &mut Context<'_>,
    facts: &Facts,
    history: &History,
) -> Result<bool, ReconcileError> {
    let ordered = facts.is_ordered();
    let numbers: Vec<_> = facts.replicas.iter().map(|(number, pod)| (*number, pod.as_ref())).collect();
    let singly = || numbers.chunks(1).collect();
    let all_at_once = || batches(&numbers);
    for batch in if ordered { singly() } else { all_at_once() } {
        let needs = batch.iter().map(|&(number, pod)| need(facts, history, number, pod));
        let needs = needs.collect::<Result<Vec<_>, _>>().map_err(ReconcileError::because)?;
        let blocked = ordered && needs.iter().any(|need| need.blocks);
        meet(cx, facts, needs).await?;
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
fn revision_for<'a>(facts: &Facts, history: &'a History, number: i32) -> &'a Revision {
    let (set, index) = (&facts.set, number - facts.start());
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
fn need<'a>(
    facts: &Facts,
    history: &History,
    number: i32,
    pod: Option<&'a Arc<Pod>>,
) -> Result<Need<'a>, &'static str> {
    let mut need = Need { number, there: pod, ..Need::default() };
    match pod {
        None if claims::are_stale(facts, number) => need.blocks = true,
        None => {
            let Revision { name, template } = revision_for(facts, history, number);
            need.pod = Some(creation(&facts.set, number, template, name)?);
            need.need_claims(facts, Some("Create"));
            (need.looks_at_owners, need.blocks) = (true, true);
        }
        Some(pod) if pod.is_terminal() => {
            let ended = || deletion(&facts.set, pod, "it has ended; another one takes its place");
            need.pod = (!pod.is_terminating()).then(ended);
            need.blocks = true;
        }
        Some(pod) => need.tend(facts, pod),
    }
    Ok(need)
}

impl Need<'_> {
    fn need_claims(&mut self, facts: &Facts, verb: Option<&'static str>) {
        (self.claims, self.obstacles) = claims::missing(facts, self.number);
        self.verb = verb;
    }

    /// What a pod needs that is there and has not ended.
    fn tend(&mut self, facts: &Facts, pod: &Arc<Pod>) {
        if pod.phase == PodPhase::Pending {
            self.need_claims(facts, None);
            self.looks_at_owners = true;
        }
        let well = runs_and_is_ready(pod) && facts.is_available(pod);
        if facts.is_ordered() && !well {
            self.blocks = true;
            return;
        }
        if !is_itself(facts, self.number, pod) {
            self.need_claims(facts, Some("Update"));
            self.pod = Some(repair(facts, self.number, pod));
        }
        self.looks_at_owners |= !retention::is_heeded(facts, self.number, pod, false);
    }
}

/// Meets the needs of a batch. What one lacks keeps none of the others.
async fn meet(cx: &mut Context<'_>, facts: &Facts, mut needs: Vec<Need<'_>>) -> Result<(), ReconcileError> {
    let mut retry = fetch_claims(cx, facts, &mut needs).await;
    let mut writes = Vec::new();
    for need in &mut needs {
        writes.extend(need.pod.take().map(|write| (need.number, write)));
    }
    let (numbers, writes): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
    let written = apply_together(cx, writes).await;
    retry = retry.or(written.error);
    let cache_is_behind = |outcome: &Outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason == ErrorReason::AlreadyExists);
    let behind: Vec<_> =
        numbers.iter().zip(&written.outcomes).filter(|(_, it)| cache_is_behind(it)).collect();
    let mut plan = Plan::none();
    for need in needs.iter().filter(|need| need.looks_at_owners) {
        if !behind.iter().any(|(number, _)| **number == need.number) {
            retention::push(&mut plan, facts, need.number, need.there.map(|pod| &**pod), false);
        }
    }
    if !plan.is_none() {
        retry = retry.or(cx.apply(plan).await.error);
    }
    retry.map_or(Ok(()), Err)
}

/// Makes the claims that are missing. Whoever cannot have them does without anything else this time.
async fn fetch_claims(
    cx: &mut Context<'_>,
    facts: &Facts,
    needs: &mut Vec<Need<'_>>,
) -> Option<ReconcileError> {
    let (mut numbers, mut writes) = (Vec::new(), Vec::new());
    for need in needs.iter_mut() {
        numbers.extend(need.claims.iter().map(|_| need.number));
        writes.append(&mut need.claims);
    }
    let names: Vec<_> = writes.iter().map(|write| write.target.key.name.clone()).collect();
    let applied = apply_together(cx, writes).await;
    for ((number, name), outcome) in numbers.into_iter().zip(names).zip(&applied.outcomes) {
        let need = needs.iter_mut().find(|need| need.number == number);
        if let (Some(need), Outcome::Failed(failure)) = (need, outcome) {
            need.obstacles.push(format!("failed to create PVC {name}: {}", failure.message));
        }
    }
    let (set, mut plan, mut retry) = (&*facts.set, Plan::none(), applied.error);
    for need in needs.iter().filter(|need| !need.obstacles.is_empty()) {
        let why = need.obstacles.join(", ");
        if let Some(verb) = need.verb {
            let pod = pods::name(set, need.number);
            plan.record(pods::event(InvolvedObject::of(set), &set.meta.key.name, &pod, verb, Some(&why)));
        }
        retry.get_or_insert_with(|| ReconcileError::because(why));
    }
    if !plan.is_none() {
        cx.apply(plan).await;
    }
    needs.retain(|need| need.obstacles.is_empty());
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
pub(super) async fn bring_down(cx: &mut Context<'_>, facts: &Facts) -> Result<bool, ReconcileError> {
    let mut plan = Plan::none();
    for (number, pod) in &facts.condemned {
        if !retention::is_heeded(facts, *number, pod, true) {
            retention::push(&mut plan, facts, *number, Some(pod), true);
        }
    }
    let (going, stops) = leaving(facts);
    let delete = |pod: &Arc<Pod>| deletion(&facts.set, pod, "its number is out of range");
    push_in_batches(&mut plan, &going.into_iter().map(delete).collect::<Vec<_>>());
    cx.apply(plan).await.all_done().map(|()| stops)
}

/// The pods out of range that may go now, and whether the rest has to wait for them.
fn leaving(facts: &Facts) -> (Vec<&Arc<Pod>>, bool) {
    let from_the_top = || facts.condemned.iter().rev().map(|(_, pod)| pod);
    if !facts.is_ordered() {
        return (from_the_top().filter(|pod| !pod.is_terminating()).collect(), false);
    }
    let Some(pod) = from_the_top().next() else { return (Vec::new(), false) };
    let well = runs_and_is_ready(pod) && facts.is_available(pod);
    // Of the pods that are not well only the lowest may go: the others would lose the order.
    let first_sick = facts.numbered().find(|pod| !facts.is_available(pod));
    let may_go = well || first_sick.is_some_and(|sick| sick.meta.uid == pod.meta.uid);
    (if may_go && !pod.is_terminating() { vec![pod] } else { Vec::new() }, true)
}
