//! What the status of a DaemonSet says, and whether that is news.

use keleustes_objects::DaemonSetStatus;
use keleustes_plan::{Plan, StatusUrgency, Write};

use super::inputs::{Inputs, NodeState};
use super::pods::is_new;
use crate::workloads::status_urgency::StatusChange;

/// The status that the facts come to.
pub(super) fn of(facts: &Inputs, hash: &str) -> DaemonSetStatus {
    let count = |wanted: &dyn Fn(&NodeState) -> bool| {
        i32::try_from(facts.nodes.values().filter(|place| wanted(place)).count()).unwrap_or(i32::MAX)
    };
    // Of each node that is to have a pod, the one that counts.
    let first = |place: &NodeState, holds: &dyn Fn(&keleustes_objects::Pod) -> bool| {
        place.should_run && place.pods.first().is_some_and(|pod| holds(pod))
    };
    let mut status = facts.set.status.clone();
    status.desired_number_scheduled = facts.desired();
    status.current_number_scheduled = count(&|place| first(place, &|_| true));
    status.number_misscheduled = count(&|place| !place.should_run && !place.pods.is_empty());
    status.number_ready = count(&|place| first(place, &|pod| pod.is_ready()));
    status.number_available = count(&|place| first(place, &|pod| pod.is_ready() && facts.is_available(pod)));
    status.updated_number_scheduled = count(&|place| first(place, &|pod| is_new(&facts.set, pod, hash)));
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status.observed_generation = facts.set.meta.generation;
    status
}

/// How soon the status must be known: at once if a wish of the user is seen or fulfilled.
pub(super) fn telling(facts: &Inputs, status: &DaemonSetStatus, changed_anything: bool) -> StatusUrgency {
    let there = &facts.set.status;
    let has_all = |status: &DaemonSetStatus| {
        let wanted = status.desired_number_scheduled;
        status.number_available == wanted && status.updated_number_scheduled == wanted
    };
    let is_milestone =
        has_all(status) && !has_all(there) || status.observed_generation != there.observed_generation;
    StatusChange { is_milestone, is_superseded: changed_anything }.status_urgency()
}

/// Writes the status if it says anything new.
pub(super) fn plan(facts: &Inputs, status: &DaemonSetStatus, telling: StatusUrgency) -> Plan {
    if facts.set.status == *status {
        return Plan::none();
    }
    let put = Write::put_status(&*facts.set, status).conflict_tries(2);
    Plan::of(put.status_urgency(telling).because("its pods tell something new"))
}
