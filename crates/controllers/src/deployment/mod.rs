//! Moves the pods of a Deployment from one template to the next, ReplicaSet by ReplicaSet, within the
//! bounds it sets, and tells how far it has come.
//!
//! One turn settles whose ReplicaSets are whose, makes the newest one if it is missing, moves sizes a
//! step, and writes the status once. What the original does in two status writes of one turn is one here.
//!
//! Parity: pkg/controller/deployment.

mod bounds;
mod cleanup;
mod creation;
mod enqueue;
mod inputs;
mod proportions;
mod reconcile;
mod revisions;
mod rollback;
mod rolling;
mod sizes;
mod status;

#[cfg(test)]
mod tests;

use keleustes_objects::{Deployment, Pod, ReplicaSet};
use keleustes_plan::{Controller, Grant, Loop};

use crate::workloads::enqueue::{enqueue_owners, enqueue_self};
use crate::workloads::owners::by_controller_uid;

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct DeploymentOptions {
    /// How many Deployments are worked on at once.
    pub workers: usize,
    /// Whether pods on their way out are counted (gate `DeploymentReplicaSetTerminatingReplicas`).
    pub count_terminating_replicas: bool,
}

/// The original's defaults.
impl Default for DeploymentOptions {
    fn default() -> Self {
        Self { workers: 5, count_terminating_replicas: true }
    }
}

/// How often a failing Deployment is tried again before something must change first.
const RETRIES_MAX: u32 = 15;

/// Annotations by which ReplicaSets and Deployments remember the course of rollouts.
mod annotations {
    /// The number of a rollout, on ReplicaSets and on the Deployment.
    pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
    /// Numbers that a ReplicaSet had before, oldest first.
    pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
    /// How many pods the Deployment wanted when the ReplicaSet was last sized.
    pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
    /// How many it allowed, the surplus of a rollout included.
    pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
    /// The revision that an old client wants to go back to.
    pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
    /// What kubectl last applied.
    pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
}

/// The controller.
#[must_use]
pub fn controller(options: &DeploymentOptions) -> Controller {
    Controller::new("deployment-controller")
        .also_known_as(&["deployment"])
        .service_account("deployment-controller")
        .event_component("deployment-controller")
        .may_write(&[
            Grant { group: "apps", resource: "deployments", verbs: &["get", "update"] },
            Grant { group: "apps", resource: "deployments/status", verbs: &["update"] },
            Grant { group: "apps", resource: "replicasets", verbs: &["create", "delete", "get", "patch"] },
        ])
        .with_loop(
            Loop::reconciling("deployment", reconcile::DeploymentReconciler { options: options.clone() })
                .enqueue_on::<Deployment>(enqueue_self)
                .enqueue_on::<ReplicaSet>(enqueue_owners::<Deployment, ReplicaSet>)
                .enqueue_on::<Pod>(enqueue::pod_changed)
                .reads_index(by_controller_uid::<ReplicaSet>())
                .reads_index(by_controller_uid::<Pod>())
                // Pods matter to those only that recreate them. There are many, and reading them takes a while.
                .starts_without::<Pod>()
                .workers(options.workers)
                .max_retries(RETRIES_MAX),
        )
}
