//! Lets go of the oldest ReplicaSets that nobody will go back to.

use std::sync::Arc;

use keleustes_objects::{ErrorReason, ReplicaSet};
use keleustes_plan::{Plan, Write};

use super::facts::{Facts, by_age};
use super::revisions::revision;

/// Deletes what is beyond the limit of history and has no pods. What still has some is not made up for by
/// deleting a younger one.
pub(super) fn push_to(plan: &mut Plan, facts: &Facts) {
    let Some(limit) = facts.deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else {
        return;
    };
    let mut old: Vec<_> = facts.old.iter().filter(|set| set.meta.deletion_timestamp.is_none()).collect();
    let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    old.sort_by(|one, other| (revision(one), by_age(one)).cmp(&(revision(other), by_age(other))));
    for set in old.into_iter().take(excess).filter(|set| is_spent(set)) {
        let delete = Write::delete(&**set).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
        plan.push(delete.because("it is older than the history that is kept"));
    }
}

fn is_spent(set: &Arc<ReplicaSet>) -> bool {
    set.spec.replicas == 0
        && set.status.replicas == 0
        && set.meta.generation <= set.status.observed_generation
}
