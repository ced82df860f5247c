//! What the status of a StatefulSet says, and whether that is news.

use keleustes_objects::{Pod, PodPhase, StatefulSetStatus};
use keleustes_plan::{Plan, StatusUrgency, Write};

use super::facts::{Facts, runs_and_is_ready};
use super::history::History;
use super::pods::revision_of;
use super::{RECREATE, recreate};
use crate::workloads::status_urgency::StatusChange;

/// The status that the facts come to, before any pod is replaced.
pub(super) fn of(facts: &Facts, history: &History) -> StatefulSetStatus {
    let count = |wanted: &dyn Fn(&Pod) -> bool| {
        i32::try_from(facts.numbered().filter(|pod| wanted(pod)).count()).unwrap_or(i32::MAX)
    };
    let made = |pod: &Pod| pod.phase != PodPhase::Unset;
    let of_revision =
        |name: &str| count(&|pod| made(pod) && !pod.is_terminating() && revision_of(pod) == name);
    let mut status = facts.set.status.clone();
    status.observed_generation = facts.set.meta.generation;
    status.replicas = count(&made);
    status.ready_replicas = count(&runs_and_is_ready);
    status.available_replicas =
        count(&|pod| runs_and_is_ready(pod) && pod.is_available(facts.set.spec.min_ready_seconds, facts.now));
    status.current_replicas = of_revision(&history.current.name);
    status.updated_replicas = of_revision(&history.update.name);
    status.current_revision = (&*history.current.name).into();
    status.update_revision = (&*history.update.name).into();
    status.collision_count = Some(history.collisions);
    status
}

/// Once all pods are of the wanted revision, that is the current one.
pub(super) fn complete(facts: &Facts, status: &mut StatefulSetStatus) {
    let wanted = facts.set.spec.replicas;
    if status.updated_replicas == wanted && status.replicas == wanted && status.ready_replicas == wanted {
        status.current_revision = status.update_revision.clone();
        status.current_replicas = status.updated_replicas;
        if facts.set.spec.update_strategy.r#type == RECREATE {
            recreate::tell_completion(status, facts.now);
        }
    }
}

/// How soon the status must be known: at once if a wish of the user is seen or fulfilled.
pub(super) fn telling(facts: &Facts, status: &StatefulSetStatus) -> StatusUrgency {
    let (wanted, there) = (facts.set.spec.replicas, &facts.set.status);
    let has_all = |status: &StatefulSetStatus| {
        status.replicas == wanted && status.available_replicas == wanted && status.updated_replicas == wanted
    };
    let is_milestone = has_all(status) && !has_all(there)
        || status.observed_generation != there.observed_generation
        || status.current_revision != there.current_revision
        || status.conditions != there.conditions;
    StatusChange { is_milestone, is_superseded: false }.status_urgency()
}

/// Writes the status if it says anything new. That the name of a revision was taken is no news by itself.
pub(super) fn plan(facts: &Facts, status: &StatefulSetStatus, telling: StatusUrgency) -> Plan {
    let there = &facts.set.status;
    let said = StatefulSetStatus { collision_count: status.collision_count, ..there.clone() };
    if said == *status {
        return Plan::none();
    }
    let put = Write::put_status(&*facts.set, status).conflict_tries(5);
    Plan::of(put.status_urgency(telling).because("its pods tell something new"))
}
