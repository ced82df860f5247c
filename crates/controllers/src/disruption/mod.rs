//! Keeps the status of every PodDisruptionBudget equal to what its pods allow, so that the eviction API grants no
//! eviction too many, and resets `DisruptionTarget` conditions of pods that were not deleted after all.
//!
//! The key of the first queue is a budget. It is enqueued when the budget or one of its pods changes; a change of a pod's
//! controller enqueues nothing. A budget with granted evictions is reconciled again when the earliest of them is two
//! minutes old, through the second queue. The key of the third queue is a pod with a `DisruptionTarget` condition.
//!
//! If the number of expected pods cannot be calculated, the status allows no disruption and its condition says why. The API
//! server charges an eviction to the same status, so a status is only written over the resourceVersion that it was
//! calculated from: a conflict is retried with the newer budget.
//!
//! Parity: pkg/controller/disruption.

mod counts;
mod enqueue;
mod events;
mod finders;
mod reconcile;
mod scale;
mod stale_target;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use keleustes_objects::{
    Deployment, Pod, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet,
};
use keleustes_plan::{Controller, Grant, Loop};

/// The options of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisruptionOptions {
    /// Number of workers for budgets (`--concurrent-disruption-syncs`). Without workers no status is written.
    pub workers: usize,
}

/// Upstream's default.
impl Default for DisruptionOptions {
    fn default() -> Self {
        Self { workers: 1 }
    }
}

const NAME: &str = "disruption-controller";

/// The queue of budgets.
const QUEUE: &str = "disruption";
/// The queue of budgets that wait until a granted eviction is overdue.
const RECHECK_QUEUE: &str = "disruption_recheck";
/// The queue of pods with a `DisruptionTarget` condition.
const STALE_QUEUE: &str = "stale_pod_disruption";

/// How long after the grant of an eviction, or after the transition of `DisruptionTarget`, a pod is expected to be
/// terminating.
const DELETION_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Why the objects that own pods are not watched.
const SCALE: &str = "a change of scale changes pods, whose events enqueue their budget";

const READ: &[&str] = &["get", "list", "watch"];

/// Builds the controller.
#[must_use]
pub fn controller(options: DisruptionOptions) -> Controller {
    let mut budgets = Loop::reconciling(QUEUE, reconcile::BudgetReconciler)
        .keyed_by::<PodDisruptionBudget>()
        .enqueue_on::<PodDisruptionBudget>(|change, _, enqueue| enqueue.add(change.latest().meta.key.clone()))
        .enqueue_on::<Pod>(enqueue::pod_changed)
        .reads_unwatched::<ReplicationController>(SCALE)
        .reads_unwatched::<ReplicaSet>(SCALE)
        .reads_unwatched::<Deployment>(SCALE)
        .reads_unwatched::<StatefulSet>(SCALE);
    // Not through `Loop::workers`, which starts at least one.
    budgets.workers = options.workers;
    Controller::new(NAME)
        .service_account(NAME)
        .event_component("controllermanager")
        .may_write(&[
            Grant { group: "apps", resource: "deployments", verbs: READ },
            Grant { group: "apps", resource: "replicasets", verbs: READ },
            Grant { group: "", resource: "replicationcontrollers", verbs: READ },
            Grant { group: "policy", resource: "poddisruptionbudgets", verbs: READ },
            Grant { group: "apps", resource: "statefulsets", verbs: READ },
            Grant { group: "policy", resource: "poddisruptionbudgets/status", verbs: &["update"] },
            Grant { group: "", resource: "pods/status", verbs: &["patch", "update"] },
            Grant { group: "*", resource: "*/scale", verbs: &["get"] },
        ])
        .with_loop(budgets)
        .with_loop(Loop::reconciling(RECHECK_QUEUE, reconcile::Recheck))
        .with_loop(
            Loop::deciding(STALE_QUEUE, stale_target::decide)
                .keyed_by::<Pod>()
                .enqueue_on::<Pod>(stale_target::pod_changed),
        )
}
