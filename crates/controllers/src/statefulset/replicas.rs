//! Makes the pods that are missing, in order or all at once, and lets go of those out of range.

use std::sync::Arc;

use keleustes_objects::{Pod, PodPhase};
use keleustes_plan::{Plan, Write};

use super::claims;
use super::facts::{Facts, runs_and_is_ready};
use super::history::{History, Revision};
use super::pods::{creation, deletion, is_itself, repair};

/// What a pass over the pods came to.
pub(super) struct Pass {
    pub(super) plan: Plan,
    /// Whether something must happen before anything else may.
    pub(super) stopped: bool,
    /// Why it could not go on, if that is an error.
    pub(super) failure: Option<String>,
}

/// The pods that a pass makes and deletes.
#[derive(Default)]
struct Steps {
    /// What is written one after another.
    plan: Plan,
    creations: Vec<Write>,
    deletions: Vec<Write>,
}

/// The pass: pods in range upwards, then pods out of range downwards.
pub(super) fn pass(facts: &Facts, history: &History) -> Pass {
    let mut steps = Steps::default();
    let (stopped, failure) = match bring_up(facts, history, &mut steps) {
        Ok(true) => (true, None),
        Ok(false) => (bring_down(facts, &mut steps), None),
        Err(why) => (true, Some(why)),
    };
    let Steps { mut plan, creations, deletions } = steps;
    plan.push_slow_start(creations);
    plan.push_slow_start(deletions);
    Pass { plan, stopped, failure }
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

/// Tells whether the pass stops here.
fn bring_up(facts: &Facts, history: &History, steps: &mut Steps) -> Result<bool, String> {
    let ordered = facts.is_ordered();
    for (&number, pod) in &facts.replicas {
        let stops = match pod {
            None => make(facts, history, number, steps).map(|()| true)?,
            Some(pod) => tend(facts, number, pod, steps)?,
        };
        if stops && ordered {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make(facts: &Facts, history: &History, number: i32, steps: &mut Steps) -> Result<(), String> {
    if claims::are_stale(facts, number) {
        return Ok(());
    }
    claims::push_missing(&mut steps.plan, facts, number)?;
    let Revision { name, template } = revision_for(facts, history, number);
    steps.creations.push(creation(&facts.set, number, template, name)?);
    claims::push_owners(&mut steps.plan, facts, number, None, false);
    Ok(())
}

/// Looks after a pod that is there. Tells whether the next one has to wait for it.
fn tend(facts: &Facts, number: i32, pod: &Arc<Pod>, steps: &mut Steps) -> Result<bool, String> {
    if pod.is_terminal() {
        if !pod.is_terminating() {
            steps.deletions.push(deletion(&facts.set, pod, "it has ended; another one takes its place"));
        }
        return Ok(true);
    }
    if pod.phase == PodPhase::Pending {
        claims::push_missing(&mut steps.plan, facts, number)?;
    }
    let settled = !pod.is_terminating() && runs_and_is_ready(pod) && facts.is_available(pod);
    if facts.is_ordered() && !settled {
        return Ok(true);
    }
    if !is_itself(facts, number, pod) {
        claims::push_missing(&mut steps.plan, facts, number)?;
        steps.plan.push(repair(facts, number, pod));
    }
    if !claims::are_owned_rightly(facts, number, pod, false) {
        claims::push_owners(&mut steps.plan, facts, number, Some(pod), false);
    }
    Ok(false)
}

/// Lets go of pods out of range, from the top. Tells whether nothing else may happen before they are gone.
fn bring_down(facts: &Facts, steps: &mut Steps) -> bool {
    for (&number, pod) in &facts.condemned {
        claims::push_owners(&mut steps.plan, facts, number, Some(pod), true);
    }
    let ordered = facts.is_ordered();
    let in_range = facts.replicas.values().flatten();
    let sick = in_range.chain(facts.condemned.values()).find(|pod| !facts.is_available(pod));
    for pod in facts.condemned.values().rev() {
        if pod.is_terminating() {
            if ordered {
                return true;
            }
            continue;
        }
        let well = runs_and_is_ready(pod) && facts.is_available(pod);
        let is_the_sick_one = sick.is_some_and(|sick| sick.meta.uid == pod.meta.uid);
        if ordered && !well && !is_the_sick_one {
            return true;
        }
        steps.deletions.push(deletion(&facts.set, pod, "its number is out of range"));
        if ordered {
            return true;
        }
    }
    false
}
