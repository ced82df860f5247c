//! Rolls the pods of a Deployment from one template to the next by resizing ReplicaSets within maxSurge and
//! maxUnavailable, and reports the progress in its status.
//!
//! One reconcile adopts and releases ReplicaSets, creates the new ReplicaSet if it is missing, resizes
//! ReplicaSets by one step and writes the status once. The original writes the status up to twice per
//! reconcile.
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
use crate::workloads::owners::by_controller;

/// Options of the controller.
#[derive(Clone, Debug)]
pub struct DeploymentOptions {
    /// How many Deployments are reconciled concurrently.
    pub workers: usize,
    /// Whether terminating pods are counted in the status (gate `DeploymentReplicaSetTerminatingReplicas`).
    pub count_terminating_replicas: bool,
}

/// The original's defaults.
impl Default for DeploymentOptions {
    fn default() -> Self {
        Self { workers: 5, count_terminating_replicas: true }
    }
}

/// How often a failing key is retried before it is dropped until the next watch event.
const RETRIES_MAX: u32 = 15;

/// The annotations of Deployments and their ReplicaSets.
mod annotations {
    /// The revision of a rollout, on ReplicaSets and on the Deployment.
    pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
    /// Earlier revisions of a ReplicaSet, oldest first.
    pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
    /// The Deployment's replicas when the ReplicaSet was last resized.
    pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
    /// The Deployment's replicas plus maxSurge at that time.
    pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
    /// The revision to roll back to, set by old clients.
    pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
    /// kubectl's last applied configuration.
    pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
}

/// The controller.
#[must_use]
pub fn controller(options: &DeploymentOptions) -> Controller {
    Controller::new("deployment-controller")
        .service_account("deployment-controller")
        .event_component("deployment-controller")
        .may_write(&[
            Grant { group: "apps", resource: "deployments", verbs: &["get", "update"] },
            Grant { group: "apps", resource: "deployments/status", verbs: &["update"] },
            Grant { group: "apps", resource: "replicasets", verbs: &["create", "delete", "get", "patch"] },
        ])
        .with_loop(
            Loop::reconciling("deployment", reconcile::DeploymentReconciler { options: options.clone() })
                .keyed_by::<Deployment>()
                .enqueue_on::<Deployment>(enqueue_self)
                .enqueue_on::<ReplicaSet>(enqueue_owners::<Deployment, ReplicaSet>)
                .enqueue_on::<Pod>(enqueue::pod_changed)
                .reads_index(by_controller::<ReplicaSet>())
                .reads_index(by_controller::<Pod>())
                // Only strategy Recreate reads pods. There are many, and listing them takes long.
                .starts_without::<Pod>()
                .workers(options.workers)
                .max_retries(RETRIES_MAX),
        )
}
