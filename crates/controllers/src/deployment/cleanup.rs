//! Deletes old ReplicaSets beyond `revisionHistoryLimit`.

use std::sync::Arc;

use keleustes_objects::{ErrorReason, ReplicaSet};
use keleustes_plan::{Plan, Write};

use super::inputs::{Inputs, by_creation};
use super::revisions::valid_revision;

/// Deletes the oldest ReplicaSets beyond the limit that have no pods. One that still has pods is skipped, and
/// no younger one is deleted in its place.
pub(super) fn push_to(plan: &mut Plan, inputs: &Inputs) {
    let Some(limit) = inputs.deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else {
        return;
    };
    let mut old: Vec<_> = inputs.old.iter().filter(|set| set.meta.deletion_timestamp.is_none()).collect();
    let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    sort_by_revision(&mut old);
    for set in old.into_iter().take(excess).filter(|set| is_deletable(set)) {
        let delete = Write::delete(&**set).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
        plan.push(delete.because("it exceeds revisionHistoryLimit"));
    }
}

/// Sorts by revision; of equal revisions, and next to one that is not a number, the older comes first. This
/// is no total order, so it is sorted by insertion, as the original does for up to 12 ReplicaSets.
fn sort_by_revision(sets: &mut [&Arc<ReplicaSet>]) {
    let is_less = |one: &ReplicaSet, other: &ReplicaSet| match (valid_revision(one), valid_revision(other)) {
        (Some(one), Some(other)) if one != other => one < other,
        _ => by_creation(one) < by_creation(other),
    };
    for end in 1..sets.len() {
        let mut at = end;
        while at > 0 && is_less(sets[at], sets[at - 1]) {
            sets.swap(at, at - 1);
            at -= 1;
        }
    }
}

fn is_deletable(set: &Arc<ReplicaSet>) -> bool {
    set.spec.replicas == 0
        && set.status.replicas == 0
        && set.meta.generation <= set.status.observed_generation
}
