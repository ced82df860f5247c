//! Strategy Recreate: deletes all pods of older revisions before it creates new ones, and reports this in the
//! Progressing condition.

use keleustes_objects::{Condition, Conditions as _, FALSE, StatefulSetStatus, TRUE, Time};
use keleustes_plan::{Context, Plan, ReconcileError};

use super::history::History;
use super::inputs::Inputs;
use super::pods::{deletion, revision_of};
use super::replicas::push_in_batches;

const PROGRESSING: &str = "Progressing";
const IN_PROGRESS: &str = "RecreateInProgress";

/// Deletes old pods, whatever their ordinal and state. Returns whether none is left.
///
/// # Errors
/// If a deletion fails.
pub(super) async fn delete_old_pods(
    cx: &mut Context<'_>,
    inputs: &Inputs,
    history: &History,
    new_status: &mut StatefulSetStatus,
) -> Result<bool, ReconcileError> {
    let is_old = |pod: &keleustes_objects::Pod| revision_of(pod) != &*history.update.name;
    if !inputs.with_ordinal().any(|pod| is_old(pod)) {
        if history.current.name != history.update.name {
            set_progressing(
                new_status,
                TRUE,
                IN_PROGRESS,
                "Waiting for new-revision pods to be created",
                inputs.now,
            );
        }
        return Ok(true);
    }
    let deleted = inputs.with_ordinal().filter(|pod| is_old(pod) && !pod.is_terminating());
    let deletions: Vec<_> =
        deleted.map(|pod| deletion(&inputs.set, pod, "it has an older revision")).collect();
    let mut plan = Plan::none();
    push_in_batches(&mut plan, &deletions);
    cx.apply(plan).await.all_done()?;
    set_progressing(new_status, TRUE, IN_PROGRESS, "Deleting old revision pods", inputs.now);
    Ok(false)
}

/// Reports completion, if the Progressing condition exists.
pub(super) fn set_completed(new_status: &mut StatefulSetStatus, now: Time) {
    if new_status.conditions.of_type(PROGRESSING).is_some() {
        set_progressing(new_status, FALSE, "RecreateCompleted", "All pods recreated successfully", now);
    }
}

fn set_progressing(new_status: &mut StatefulSetStatus, status: &str, reason: &str, message: &str, now: Time) {
    let mut condition = Condition::new(PROGRESSING, status, reason, message, now);
    let Some(existing) = new_status.conditions.iter_mut().find(|existing| existing.r#type == PROGRESSING)
    else {
        return new_status.conditions.push(condition);
    };
    if existing.status == condition.status {
        condition.last_transition_time = existing.last_transition_time;
    }
    *existing = condition;
}
