//! Keeps as many active pods as a ReplicaSet asks for, and tells in its status how many there are.
//!
//! The same algorithm serves ReplicationControllers; what differs is in `Replicated`.
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
use crate::workloads::owners::by_controller_uid;

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct ReplicaSetOptions {
    /// How many are worked on at once.
    pub workers: usize,
    /// Whether pods may say what their deletion costs (gate `PodDeletionCost`).
    pub honor_deletion_cost: bool,
    /// Whether pods on their way out are counted (gate `DeploymentReplicaSetTerminatingReplicas`).
    pub count_terminating_replicas: bool,
}

/// The original's defaults.
impl Default for ReplicaSetOptions {
    fn default() -> Self {
        Self { workers: 5, honor_deletion_cost: true, count_terminating_replicas: true }
    }
}

/// Compares the age of a deleted pod with that of the youngest, so that people can see whether old pods
/// are spared.
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
        .also_known_as(&["replicaset"])
        .service_account("replicaset-controller")
        .event_component("replicaset-controller")
        .metrics([&AGE_RATIO])
        .may_write(&[
            Grant { group: "apps", resource: "replicasets", verbs: &["get"] },
            Grant { group: "apps", resource: "replicasets/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        ])
        .with_loop(
            replica_loop::<ReplicaSet>("replicaset", options).reads_index(by_controller_uid::<ReplicaSet>()),
        )
}

/// The loop of a kind of which there are to be replicas.
pub(crate) fn replica_loop<R: Replicated>(queue: &'static str, options: &ReplicaSetOptions) -> Loop {
    Loop::reconciling(queue, reconcile::ReplicaSetReconciler::<R>::new(options.clone()))
        .enqueue_on::<R>(enqueue_self)
        .enqueue_on::<Pod>(enqueue::pod_changed::<R>)
        .reads_index(by_controller_uid::<Pod>())
        .workers(options.workers)
}

/// A kind that asks for a number of pods of a template.
pub(crate) trait Replicated: FullMeta + HasSelector {
    /// How many pods are wanted.
    fn replicas(&self) -> i32;
    /// What pods are made from.
    fn template(&self) -> &PodTemplate;
    /// What its status says.
    fn status(&self) -> Cow<'_, ReplicaSetStatus>;
    /// Whether its status can tell how many pods are on their way out.
    const HAS_TERMINATING_REPLICAS: bool;
    /// The replica sets of its family: those of one manager, itself among them.
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
        let Some(manager) = self.meta.controller_ref() else { return Vec::new() };
        let table = view.store::<Self>();
        crate::workloads::owners::controlled_by(table, &manager.uid).map(|set| &**set).collect()
    }
}
