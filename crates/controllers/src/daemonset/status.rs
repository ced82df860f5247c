//! Computes and writes the status of a DaemonSet.

use keleustes_objects::{DaemonSet, DaemonSetStatus};
use keleustes_plan::{Context, OnFailure, Outcome, Plan, ReconcileError, StatusUrgency, Write};

use super::inputs::{Inputs, NodeState};
use super::pods::is_updated;
use crate::workloads::status_urgency::{StatusChange, any_decreased};

/// The status according to the inputs.
pub(super) fn of(inputs: &Inputs, hash: &str) -> DaemonSetStatus {
    let count = |wanted: &dyn Fn(&NodeState) -> bool| {
        i32::try_from(inputs.nodes.values().filter(|state| wanted(state)).count()).unwrap_or(i32::MAX)
    };
    // Checks the first pod of a node that should have one.
    let first = |state: &NodeState, holds: &dyn Fn(&keleustes_objects::Pod) -> bool| {
        state.should_run && state.pods.first().is_some_and(|pod| holds(pod))
    };
    let mut status = inputs.set.status.clone();
    status.desired_number_scheduled = inputs.desired();
    status.current_number_scheduled = count(&|state| first(state, &|_| true));
    status.number_misscheduled = count(&|state| !state.should_run && !state.pods.is_empty());
    status.number_ready = count(&|state| first(state, &|pod| pod.is_ready()));
    status.number_available = count(&|state| first(state, &|pod| pod.is_ready() && inputs.is_available(pod)));
    status.updated_number_scheduled = count(&|state| first(state, &|pod| is_updated(&inputs.set, pod, hash)));
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status.observed_generation = inputs.set.meta.generation;
    status
}

/// How urgent the status write is: immediate if it shows a new observed generation or a completed rollout.
pub(super) fn status_urgency(
    inputs: &Inputs,
    status: &DaemonSetStatus,
    changed_anything: bool,
) -> StatusUrgency {
    let current = &inputs.set.status;
    let has_all = |status: &DaemonSetStatus| {
        let wanted = status.desired_number_scheduled;
        status.number_available == wanted && status.updated_number_scheduled == wanted
    };
    let is_milestone =
        has_all(status) && !has_all(current) || status.observed_generation != current.observed_generation;
    let counts = |status: &DaemonSetStatus| {
        [status.current_number_scheduled, status.number_ready, status.number_available]
    };
    let is_loss = any_decreased(counts(current), counts(status));
    StatusChange { is_milestone, is_loss, is_superseded: changed_anything }.status_urgency()
}

/// Writes the status if it changed. After an error the DaemonSet is read live and the same counts are written
/// once more: conditions and collisionCount stay as they are by then.
///
/// # Errors
/// If the read or the second write fails.
pub(super) async fn write(
    cx: &mut Context<'_>,
    set: &DaemonSet,
    status: &DaemonSetStatus,
    status_urgency: StatusUrgency,
) -> Result<(), ReconcileError> {
    if set.status == *status {
        return Ok(());
    }
    const BECAUSE: &str = "the status changed";
    let put = Write::put_status(set, status).status_urgency(status_urgency).because(BECAUSE);
    let applied = cx.apply(Plan::of(put.on_failure(OnFailure::ReturnOutcome))).await;
    let Some(Outcome::Failed(failure)) = applied.outcomes.first() else { return applied.all_done() };
    let live = cx.fetch::<DaemonSet>(&set.meta.key).await?;
    let Some(live) = live.filter(|live| live.meta.uid == set.meta.uid) else {
        return Err(ReconcileError::from_api_error(failure, format!("writing the status: {failure}")));
    };
    let counts = with_counts_of(&live.status, status);
    if live.status == counts {
        return Ok(());
    }
    let again = Write::put_status(&live, &counts).because(BECAUSE);
    cx.apply(Plan::of(again)).await.all_done()
}

/// A status with the counts and the observed generation of another one.
fn with_counts_of(live: &DaemonSetStatus, counted: &DaemonSetStatus) -> DaemonSetStatus {
    DaemonSetStatus {
        collision_count: live.collision_count,
        conditions: live.conditions.clone(),
        unknown: live.unknown.clone(),
        ..counted.clone()
    }
}
