//! Keeps the number of active pods of a ReplicaSet at `spec.replicas`, and reports the counts in its status.
//!
//! ReplicationControllers use the same algorithm; the differences are in `Replicated`.
//!
//! Parity: pkg/controller/replicaset.

mod enqueue;
mod reconcile;
mod scale;
mod status;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use keleustes_objects::{FullMeta, Pod, PodTemplate, ReplicaSet, ReplicaSetStatus};
use keleustes_plan::{Buckets, Controller, Grant, Loop, Metric};

use crate::workloads::enqueue::{HasSelector, enqueue_self};
use crate::workloads::owners::{by_controller, with_controller_ref};

/// Options of the controller.
#[derive(Clone, Debug)]
pub struct ReplicaSetOptions {
    /// How many keys are reconciled concurrently.
    pub workers: usize,
    /// Whether the pod-deletion-cost annotation counts (gate `PodDeletionCost`).
    pub honor_deletion_cost: bool,
    /// Whether terminating pods are counted in the status (gate `DeploymentReplicaSetTerminatingReplicas`).
    pub count_terminating_replicas: bool,
}

/// The original's defaults.
impl Default for ReplicaSetOptions {
    fn default() -> Self {
        Self { workers: 5, honor_deletion_cost: true, count_terminating_replicas: true }
    }
}

/// The age of each deleted pod relative to the youngest: shows whether scale-down spares old pods.
pub(crate) static AGE_RATIO: Metric = Metric::histogram(
    "replicaset_controller_sorting_deletion_age_ratio",
    "Age of a deleted ready pod as a multiple of the youngest ready pod's age.",
    &[],
    Buckets::Explicit(&[0.25, 0.5, 1.0, 2.0, 4.0, 8.0]),
);

/// The controller.
#[must_use]
pub fn controller(options: &ReplicaSetOptions) -> Controller {
    Controller::new("replicaset-controller")
        .service_account("replicaset-controller")
        .event_component("replicaset-controller")
        .metrics([&AGE_RATIO])
        .may_write(&[
            Grant { group: "apps", resource: "replicasets", verbs: &["get"] },
            Grant { group: "apps", resource: "replicasets/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        ])
        .with_loop(
            replica_loop::<ReplicaSet>("replicaset", options).reads_index(by_controller::<ReplicaSet>()),
        )
}

/// The control loop for ReplicaSets or ReplicationControllers.
pub(crate) fn replica_loop<R: Replicated>(queue: &'static str, options: &ReplicaSetOptions) -> Loop {
    Loop::reconciling(queue, reconcile::ReplicaSetReconciler::<R>::new(options.clone()))
        .keyed_by::<R>()
        .enqueue_on::<R>(enqueue_self)
        .enqueue_on::<Pod>(enqueue::pod_changed::<R>)
        .reads_index(by_controller::<Pod>())
        .workers(options.workers)
}

/// A kind that wants a number of pods from a template.
pub(crate) trait Replicated: FullMeta + HasSelector {
    /// The desired number of pods.
    fn replicas(&self) -> i32;
    /// The pod template.
    fn template(&self) -> &PodTemplate;
    /// The current status.
    fn status(&self) -> Cow<'_, ReplicaSetStatus>;
    /// Whether its status has `terminatingReplicas`.
    const HAS_TERMINATING_REPLICAS: bool;
    /// The ReplicaSets with the same controller, itself included.
    fn related_replica_sets<'a>(&self, view: &keleustes_plan::View<'a>) -> Vec<&'a Self>;
}

impl Replicated for ReplicaSet {
    fn replicas(&self) -> i32 {
        self.spec.replicas
    }

    fn template(&self) -> &PodTemplate {
        &self.spec.template
    }

    fn status(&self) -> Cow<'_, ReplicaSetStatus> {
        Cow::Borrowed(&self.status)
    }

    const HAS_TERMINATING_REPLICAS: bool = true;

    fn related_replica_sets<'a>(&self, view: &keleustes_plan::View<'a>) -> Vec<&'a Self> {
        let Some(controller) = self.meta.controller_ref() else { return Vec::new() };
        let store = view.store::<Self>();
        with_controller_ref(store, &self.meta.key.namespace, controller).map(|set| &**set).collect()
    }
}
