//! Keeps as many active pods as a ReplicaSet asks for, and tells in its status how many there are.
//!
//! The same algorithm serves ReplicationControllers; what differs is in `Replicated`.
//!
//! Parity: pkg/controller/replicaset.

mod scale;
mod status;
mod turn;
mod wakes;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use keleustes_objects::{Pod, ReplicaSet, ReplicaSetStatus, Template, Whole};
use keleustes_plan::{Buckets, Controller, Grant, Loop, Metric};

use crate::workloads::owners::by_manager;
use crate::workloads::wakes::{HasSelector, itself};

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many are worked on at once.
    pub workers: usize,
    /// Whether pods may say what their deletion costs (gate `PodDeletionCost`).
    pub honor_deletion_cost: bool,
    /// Whether pods on their way out are counted (gate `DeploymentReplicaSetTerminatingReplicas`).
    pub count_terminating_replicas: bool,
}

/// The original's defaults.
impl Default for Settings {
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
    Buckets::Listed(&[0.25, 0.5, 1.0, 2.0, 4.0, 8.0]),
);

/// The controller.
#[must_use]
pub fn controller(settings: &Settings) -> Controller {
    Controller::new("replicaset-controller")
        .also_known_as(&["replicaset"])
        .service_account("replicaset-controller")
        .event_component("replicaset-controller")
        .measures([&AGE_RATIO])
        .may_write(&[
            Grant { group: "apps", resource: "replicasets", verbs: &["get"] },
            Grant { group: "apps", resource: "replicasets/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        ])
        .runs(the_loop::<ReplicaSet>("replicaset", settings).reads_index(by_manager::<ReplicaSet>()))
}

/// The loop of a kind of which there are to be replicas.
pub(crate) fn the_loop<R: Replicated>(queue: &'static str, settings: &Settings) -> Loop {
    Loop::reconciling(queue, turn::Turns::<R>::new(settings.clone()))
        .enqueue_on::<R>(itself)
        .enqueue_on::<Pod>(wakes::pod_changed::<R>)
        .reads_index(by_manager::<Pod>())
        .workers(settings.workers)
}

/// A kind that asks for a number of pods of a template.
pub(crate) trait Replicated: Whole + HasSelector {
    /// How many pods are wanted.
    fn replicas(&self) -> i32;
    /// What pods are made from.
    fn template(&self) -> &Template;
    /// What its status says.
    fn status(&self) -> Cow<'_, ReplicaSetStatus>;
    /// Whether its status can tell how many pods are on their way out.
    const HAS_TERMINATING_REPLICAS: bool;
    /// The replica sets of its family: those of one manager, itself among them.
    fn family<'a>(&self, view: &keleustes_plan::View<'a>) -> Vec<&'a Self>;
}

impl Replicated for ReplicaSet {
    fn replicas(&self) -> i32 {
        self.spec.replicas
    }

    fn template(&self) -> &Template {
        &self.spec.template
    }

    fn status(&self) -> Cow<'_, ReplicaSetStatus> {
        Cow::Borrowed(&self.status)
    }

    const HAS_TERMINATING_REPLICAS: bool = true;

    fn family<'a>(&self, view: &keleustes_plan::View<'a>) -> Vec<&'a Self> {
        let Some(manager) = self.meta.controller() else { return Vec::new() };
        let table = view.table::<Self>();
        crate::workloads::owners::managed_by(table, &manager.uid).map(|set| &**set).collect()
    }
}
