//! Makes the pods that are missing and deletes those that are too many, a bounded number at a time.

use keleustes_objects::{Key, Pod, Reason, Text};
use keleustes_plan::{EventNote, Involved, OnFailure, Outcome, Plan, Write};

use super::turn::Facts;
use super::{AGE_RATIO, Replicated, Settings};
use crate::workloads::pod_creation::pod_from;
use crate::workloads::pod_ranking::{Ranking, sort_for_deletion};

/// The most pods that one turn makes or deletes.
const BURST: usize = 500;

pub(super) fn plan<R: Replicated>(facts: &Facts<R>, settings: &Settings) -> Plan {
    let surplus = facts.surplus();
    let count = usize::try_from(surplus.unsigned_abs()).unwrap_or(usize::MAX).min(BURST);
    if facts.set.meta().deleted_at.is_some() {
        Plan::none()
    } else if surplus < 0 {
        creations(facts, count)
    } else {
        deletions(facts, count, settings)
    }
}

fn creations<R: Replicated>(facts: &Facts<R>, count: usize) -> Plan {
    let set = &*facts.set;
    let body = match pod_from::<R>(&set.template().json(), set.meta()) {
        Ok(body) => body,
        Err(why) => return Plan::stuck(why),
    };
    let key = Key { namespace: set.key().namespace.clone(), name: Text::default() };
    let mut plan = Plan::none();
    let create = || {
        let involved = Involved::of(set);
        Write::create::<Pod>(key.clone(), body.clone())
            // A namespace on its way out takes nothing in, and needs nothing.
            .tolerating(&[Reason::NamespaceTerminating])
            .because("there are fewer pods than wanted")
            .reporting(move |outcome| match outcome {
                Outcome::Done { name, .. } if !name.is_empty() => {
                    let message = format!("Created pod: {name}");
                    Some(EventNote::normal(involved.clone(), "SuccessfulCreate", message))
                }
                Outcome::Failed(failure) => {
                    let message = format!("Error creating: {}", failure.message);
                    Some(EventNote::warning(involved.clone(), "FailedCreate", message))
                }
                _ => None,
            })
    };
    plan.push_slow_start((0..count).map(|_| create()).collect());
    plan
}

fn deletions<R: Replicated>(facts: &Facts<R>, count: usize, settings: &Settings) -> Plan {
    let mut plan = Plan::none();
    let mut pods = facts.pods.clone();
    if count < pods.len() {
        let heeds_cost = settings.heeds_deletion_cost;
        sort_for_deletion(&mut pods, &Ranking { now: facts.now, crowds: &facts.crowds, heeds_cost });
        compare_ages(&mut plan, facts, &pods[..count]);
    }
    plan.push_together(pods[..count].iter().map(|pod| deletion(&*facts.set, pod)).collect());
    plan
}

fn deletion<R: Replicated>(set: &R, pod: &Pod) -> Write {
    let (involved, name) = (Involved::of(set), pod.meta.key.name.clone());
    Write::delete(pod)
        // Gone, or another pod by now.
        .tolerating(&[Reason::NotFound, Reason::Conflict])
        .on_failure(OnFailure::ContinueAndRetry)
        .because("there are more pods than wanted")
        .reporting(move |outcome| match outcome {
            Outcome::Done { name: deleted, .. } if !deleted.is_empty() => {
                let message = format!("Deleted pod: {name}");
                Some(EventNote::normal(involved.clone(), "SuccessfulDelete", message))
            }
            Outcome::Failed(failure) => {
                let message = format!("Error deleting: {}", failure.message);
                Some(EventNote::warning(involved.clone(), "FailedDelete", message))
            }
            _ => None,
        })
}

/// Tells how much older the chosen pods are than the youngest, in whole multiples.
fn compare_ages<R: Replicated>(plan: &mut Plan, facts: &Facts<R>, chosen: &[std::sync::Arc<Pod>]) {
    let age = |pod: &Pod| Some(facts.now.seconds_since(pod.ready_since()?));
    let youngest = facts.pods.iter().filter_map(|pod| age(pod)).min();
    let Some(youngest) = youngest.filter(|age| *age > 0) else { return };
    for age in chosen.iter().filter_map(|pod| age(pod)) {
        // Ages in whole seconds are small numbers.
        #[expect(clippy::cast_precision_loss, reason = "an age in seconds is far below 2^52")]
        plan.measure(AGE_RATIO.measured(&[], (age / youngest) as f64));
    }
}
