//! Computes and writes the status of a DaemonSet.

use keleustes_objects::DaemonSetStatus;
use keleustes_plan::{Plan, StatusUrgency, Write};

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

/// Writes the status if it changed.
pub(super) fn plan(inputs: &Inputs, status: &DaemonSetStatus, status_urgency: StatusUrgency) -> Plan {
    if inputs.set.status == *status {
        return Plan::none();
    }
    let put = Write::put_status(&*inputs.set, status).conflict_tries(2);
    Plan::of(put.status_urgency(status_urgency).because("the status changed"))
}
