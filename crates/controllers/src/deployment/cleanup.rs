//! Deletes old ReplicaSets beyond `revisionHistoryLimit`.

use std::sync::Arc;

use keleustes_objects::{ErrorReason, ReplicaSet};
use keleustes_plan::{Plan, Write};

use super::inputs::{Inputs, by_creation};
use super::revisions::revision;

/// Deletes the oldest ReplicaSets beyond the limit that have no pods. One that still has pods is skipped, and
/// no younger one is deleted in its place.
pub(super) fn push_to(plan: &mut Plan, inputs: &Inputs) {
    let Some(limit) = inputs.deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else {
        return;
    };
    let mut old: Vec<_> = inputs.old.iter().filter(|set| set.meta.deletion_timestamp.is_none()).collect();
    let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    old.sort_by(|one, other| (revision(one), by_creation(one)).cmp(&(revision(other), by_creation(other))));
    for set in old.into_iter().take(excess).filter(|set| is_deletable(set)) {
        let delete = Write::delete(&**set).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
        plan.push(delete.because("it exceeds revisionHistoryLimit"));
    }
}

fn is_deletable(set: &Arc<ReplicaSet>) -> bool {
    set.spec.replicas == 0
        && set.status.replicas == 0
        && set.meta.generation <= set.status.observed_generation
}
