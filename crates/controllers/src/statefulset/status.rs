//! Computes the status of a StatefulSet and decides whether to write it.

use keleustes_objects::{Pod, PodPhase, StatefulSetStatus};
use keleustes_plan::{Plan, StatusUrgency, Write};

use super::history::History;
use super::inputs::{Inputs, is_running_and_ready};
use super::pods::revision_of;
use super::{RECREATE, recreate};
use crate::workloads::status_urgency::{StatusChange, any_decreased};

/// The status that results from the inputs, before any pod is replaced.
pub(super) fn of(inputs: &Inputs, history: &History) -> StatefulSetStatus {
    let count = |wanted: &dyn Fn(&Pod) -> bool| {
        i32::try_from(inputs.with_ordinal().filter(|pod| wanted(pod)).count()).unwrap_or(i32::MAX)
    };
    let has_phase = |pod: &Pod| pod.phase != PodPhase::Unset;
    let of_revision =
        |name: &str| count(&|pod| has_phase(pod) && !pod.is_terminating() && revision_of(pod) == name);
    let mut status = inputs.set.status.clone();
    status.observed_generation = inputs.set.meta.generation;
    status.replicas = count(&has_phase);
    status.ready_replicas = count(&is_running_and_ready);
    status.available_replicas = count(&|pod| {
        is_running_and_ready(pod) && pod.is_available(inputs.set.spec.min_ready_seconds, inputs.now)
    });
    status.current_replicas = of_revision(&history.current.name);
    status.updated_replicas = of_revision(&history.update.name);
    status.current_revision = (&*history.current.name).into();
    status.update_revision = (&*history.update.name).into();
    status.collision_count = Some(history.collisions);
    status
}

/// Once all pods have the update revision, it becomes the current revision.
pub(super) fn complete(inputs: &Inputs, status: &mut StatefulSetStatus) {
    let wanted = inputs.set.spec.replicas;
    if status.updated_replicas == wanted && status.replicas == wanted && status.ready_replicas == wanted {
        status.current_revision = status.update_revision.clone();
        status.current_replicas = status.updated_replicas;
        if inputs.set.spec.update_strategy.r#type == RECREATE {
            recreate::set_completed(status, inputs.now);
        }
    }
}

/// Immediate if a generation is observed for the first time, if the update completes, or if a revision or
/// condition changes.
pub(super) fn status_urgency(inputs: &Inputs, status: &StatefulSetStatus) -> StatusUrgency {
    let (wanted, existing) = (inputs.set.spec.replicas, &inputs.set.status);
    let has_all = |status: &StatefulSetStatus| {
        status.replicas == wanted && status.available_replicas == wanted && status.updated_replicas == wanted
    };
    let is_milestone = has_all(status) && !has_all(existing)
        || status.observed_generation != existing.observed_generation
        || status.current_revision != existing.current_revision
        || status.conditions != existing.conditions;
    let counts = |status: &StatefulSetStatus| {
        [status.replicas, status.ready_replicas, status.available_replicas, status.current_replicas]
    };
    let is_loss = any_decreased(counts(existing), counts(status));
    StatusChange { is_milestone, is_loss, is_superseded: false }.status_urgency()
}

/// Writes the status if it changed. A changed collision count alone is not written.
pub(super) fn plan(inputs: &Inputs, status: &StatefulSetStatus, status_urgency: StatusUrgency) -> Plan {
    let existing = &inputs.set.status;
    let new_status = StatefulSetStatus { collision_count: status.collision_count, ..existing.clone() };
    if new_status == *status {
        return Plan::none();
    }
    let put = Write::put_status(&*inputs.set, status).conflict_tries(5);
    Plan::of(put.status_urgency(status_urgency).because("its pods or revisions changed"))
}
