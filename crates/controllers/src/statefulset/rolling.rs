//! Replaces pods of older revisions, from the highest number down, as many at once as may be missing.

use std::sync::Arc;

use keleustes_objects::{Pod, Rounding, StatefulSet};

use super::facts::Facts;
use super::history::History;
use super::pods::revision_of;

/// How many pods may be missing; always at least one.
pub(super) fn unavailable_max(set: &StatefulSet) -> i32 {
    let rolling = set.spec.update_strategy.rolling_update.as_ref();
    let wanted = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    wanted.and_then(|wanted| wanted.scaled(set.spec.replicas, Rounding::Down)).unwrap_or(1).max(1)
}

/// The pods to delete so that newer ones take their place.
pub(super) fn replaced(facts: &Facts, history: &History, honor_max_unavailable: bool) -> Vec<Arc<Pod>> {
    let strategy = &facts.set.spec.update_strategy;
    let partition = strategy.rolling_update.as_ref().and_then(|rolling| rolling.partition).unwrap_or(0);
    let first = facts.start().saturating_add(partition);
    let targets: Vec<_> = facts.replicas.range(first..).rev().filter_map(|(_, pod)| pod.clone()).collect();
    let is_old = |pod: &Pod| revision_of(pod) != &*history.update.name;
    if !honor_max_unavailable {
        return one_by_one(facts, &targets, is_old);
    }
    let (most, missing) = (unavailable_max(&facts.set), facts.unavailable());
    let room = usize::try_from(most).unwrap_or(1).saturating_sub(missing);
    let candidates = targets.into_iter().filter(|pod| is_old(pod) && !pod.is_terminating());
    if facts.is_ordered() {
        return candidates.take(room).collect();
    }
    let (well, sick): (Vec<_>, Vec<_>) = candidates.partition(|pod| facts.is_available(pod));
    let any_sick = facts
        .replicas
        .values()
        .flatten()
        .any(|pod| is_old(pod) && !pod.is_terminating() && !facts.is_available(pod));
    if room == 0 && !any_sick {
        return Vec::new();
    }
    sick.into_iter().chain(well.into_iter().take(room)).collect()
}

/// The first old pod from the top, if all above it are well.
fn one_by_one(facts: &Facts, targets: &[Arc<Pod>], is_old: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
    for pod in targets {
        if is_old(pod) && !pod.is_terminating() {
            return vec![pod.clone()];
        }
        if !facts.is_available(pod) {
            return Vec::new();
        }
    }
    Vec::new()
}
