//! Deletes pods of older revisions, from the highest ordinal down, within maxUnavailable.

use std::sync::Arc;

use keleustes_objects::{Pod, Rounding, StatefulSet};

use super::history::History;
use super::inputs::Inputs;
use super::pods::revision_of;

/// maxUnavailable as a number; at least 1.
pub(super) fn max_unavailable(set: &StatefulSet) -> i32 {
    let rolling = set.spec.update_strategy.rolling_update.as_ref();
    let wanted = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    wanted.and_then(|wanted| wanted.scaled(set.spec.replicas, Rounding::Down)).unwrap_or(1).max(1)
}

/// The pods to delete so that they are recreated with the update revision.
pub(super) fn pods_to_replace(
    inputs: &Inputs,
    history: &History,
    honor_max_unavailable: bool,
) -> Vec<Arc<Pod>> {
    let strategy = &inputs.set.spec.update_strategy;
    let partition = strategy.rolling_update.as_ref().and_then(|rolling| rolling.partition).unwrap_or(0);
    let first = inputs.start().saturating_add(partition);
    let is_old = |pod: &Pod| revision_of(pod) != &*history.update.name;
    if !honor_max_unavailable {
        return one_by_one(inputs, first, is_old);
    }
    let (most, missing) = (max_unavailable(&inputs.set), inputs.unavailable());
    let room = usize::try_from(most).unwrap_or(1).saturating_sub(missing);
    let targets = inputs.replicas.range(first..).rev().filter_map(|(_, pod)| pod.clone());
    let candidates = targets.filter(|pod| is_old(pod) && !pod.is_terminating());
    if inputs.is_ordered() {
        return candidates.take(room).collect();
    }
    let (healthy, unhealthy): (Vec<_>, Vec<_>) = candidates.partition(|pod| inputs.is_available(pod));
    let any_unhealthy = inputs
        .replicas
        .values()
        .flatten()
        .any(|pod| is_old(pod) && !pod.is_terminating() && !inputs.is_available(pod));
    if room == 0 && !any_unhealthy {
        return Vec::new();
    }
    unhealthy.into_iter().chain(healthy.into_iter().take(room)).collect()
}

/// The first old pod from the highest ordinal down, if all above it are available. A missing pod was created
/// in this reconcile and is not available yet.
fn one_by_one(inputs: &Inputs, first: i32, is_old: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
    for pod in inputs.replicas.range(first..).rev().map(|(_, pod)| pod) {
        let Some(pod) = pod else { return Vec::new() };
        if is_old(pod) && !pod.is_terminating() {
            return vec![pod.clone()];
        }
        if !inputs.is_available(pod) {
            return Vec::new();
        }
    }
    Vec::new()
}
