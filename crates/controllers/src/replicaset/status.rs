//! Computes the status of a ReplicaSet and decides whether to write it.

use keleustes_objects::{Condition, ReplicaSetStatus, TRUE};
use keleustes_plan::{Plan, StatusUrgency, Write};

use super::reconcile::Inputs;
use super::{ReplicaSetOptions, Replicated};
use crate::workloads::status_urgency::{StatusChange, any_decreased};

/// The condition for pods that could not be created or deleted.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The status that results from the inputs and from the outcome of the pod writes.
pub(super) fn of<R: Replicated>(
    inputs: &Inputs<R>,
    failure: Option<&str>,
    options: &ReplicaSetOptions,
) -> ReplicaSetStatus {
    let (set, pods) = (&*inputs.set, &inputs.pods);
    let count = |wanted: &dyn Fn(&keleustes_objects::Pod) -> bool| {
        i32::try_from(pods.iter().filter(|pod| wanted(pod)).count()).unwrap_or(i32::MAX)
    };
    let template_labels = set.template().labels();
    let mut status = set.status().into_owned();
    status.replicas = count(&|_| true);
    status.fully_labeled_replicas = count(&|pod| template_labels.is_subset_of(&pod.meta.labels));
    status.ready_replicas = count(&|pod| pod.is_ready());
    status.available_replicas = count(&|pod| pod.is_available(set.min_ready_seconds(), inputs.now));
    let reports_terminating = R::HAS_TERMINATING_REPLICAS && options.count_terminating_replicas;
    status.terminating_replicas = reports_terminating.then_some(inputs.terminating);
    status.observed_generation = set.meta().generation;
    match failure {
        None => status.conditions.retain(|condition| condition.r#type != REPLICA_FAILURE),
        // An existing condition is kept: its transition time says since when pods fail.
        Some(_) if status.conditions.iter().any(|existing| existing.r#type == REPLICA_FAILURE) => {}
        Some(message) => {
            let reason = if inputs.surplus() < 0 { "FailedCreate" } else { "FailedDelete" };
            status.conditions.push(Condition::new(REPLICA_FAILURE, TRUE, reason, message, inputs.now));
        }
    }
    status
}

/// Immediate if the ReplicaSet has just reached its desired replicas, which rollouts wait for, if a count
/// decreases, or if its observed generation or conditions changed.
pub(super) fn status_urgency<R: Replicated>(
    set: &R,
    status: &ReplicaSetStatus,
    changed_anything: bool,
) -> StatusUrgency {
    let (wanted, existing) = (set.replicas(), set.status());
    let has_all =
        |status: &ReplicaSetStatus| status.replicas == wanted && status.available_replicas == wanted;
    let is_complete = has_all(status) && !has_all(&existing);
    let is_milestone = is_complete
        || status.observed_generation != existing.observed_generation
        || status.conditions != existing.conditions;
    let counts =
        |status: &ReplicaSetStatus| [status.replicas, status.ready_replicas, status.available_replicas];
    let is_loss = any_decreased(counts(&existing), counts(status));
    // An increase of available pods is not superseded by pod writes: a rollout needs it for its next step.
    let is_superseded = changed_anything && status.available_replicas <= existing.available_replicas;
    StatusChange { is_milestone, is_loss, is_superseded }.status_urgency()
}

/// Writes the status if it changed.
pub(super) fn plan<R: Replicated>(set: &R, status: &ReplicaSetStatus, status_urgency: StatusUrgency) -> Plan {
    if *set.status() == *status {
        return Plan::none();
    }
    Plan::of(
        Write::put_status(set, status)
            .conflict_tries(2)
            .status_urgency(status_urgency)
            .because("replica counts or conditions changed"),
    )
}
