//! What the status of a DaemonSet says, and whether that is news.

use keleustes_objects::DaemonSetStatus;
use keleustes_plan::{Plan, Write};

use super::facts::{Facts, Place};
use super::pods::is_new;

/// The status that the facts come to.
pub(super) fn of(facts: &Facts, hash: &str) -> DaemonSetStatus {
    let count = |wanted: &dyn Fn(&Place) -> bool| {
        i32::try_from(facts.nodes.values().filter(|place| wanted(place)).count()).unwrap_or(i32::MAX)
    };
    // Of each node that is to have a pod, the one that counts.
    let first = |place: &Place, holds: &dyn Fn(&keleustes_objects::Pod) -> bool| {
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

/// Writes the status if it says anything new.
pub(super) fn plan(facts: &Facts, status: &DaemonSetStatus) -> Plan {
    if facts.set.status == *status {
        return Plan::none();
    }
    Plan::of(Write::put_status(&*facts.set, status).conflict_tries(2).because("its pods tell something new"))
}
