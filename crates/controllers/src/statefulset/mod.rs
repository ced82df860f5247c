//! Keeps the pods of a StatefulSet, each with an ordinal, a stable name and its own claims, and updates them
//! to a new template from the highest ordinal down.
//!
//! Parity: pkg/controller/statefulset.

mod claims;
mod enqueue;
mod history;
mod inputs;
mod pods;
mod reconcile;
mod recreate;
mod replicas;
mod retention;
mod rolling;
mod status;

#[cfg(test)]
mod tests;

use keleustes_objects::{ControllerRevision, PersistentVolumeClaim, Pod, PodParts, StatefulSet};
use keleustes_plan::{Controller, Grant, Loop, Metric};

use crate::workloads::enqueue::enqueue_self;
use crate::workloads::owners::by_controller;

/// Options of the controller.
#[derive(Clone, Debug)]
pub struct StatefulSetOptions {
    /// How many StatefulSets are reconciled concurrently.
    pub workers: usize,
    /// Whether maxUnavailable counts (gate `MaxUnavailableStatefulSet`).
    pub honor_max_unavailable: bool,
    /// Whether strategy Recreate is allowed (gate `StatefulSetRecreateStrategy`).
    pub allow_recreate_strategy: bool,
    /// Whether a revision that is semantically equal to the template is its revision (gate
    /// `StatefulSetSemanticRevisionComparison`).
    pub semantic_revision_comparison: bool,
}

/// The original's defaults.
impl Default for StatefulSetOptions {
    fn default() -> Self {
        Self {
            workers: 5,
            honor_max_unavailable: true,
            allow_recreate_strategy: false,
            semantic_revision_comparison: true,
        }
    }
}

/// The strategy that deletes all old pods first.
const RECREATE: &str = "Recreate";

const LABELS: &[&str] = &["statefulset_namespace", "statefulset_name", "pod_management_policy"];

pub(crate) static MAX_UNAVAILABLE: Metric = Metric::gauge(
    "statefulset_controller_statefulset_max_unavailable",
    "Maximum number of unavailable pods of a StatefulSet during a rolling update.",
    LABELS,
);

pub(crate) static UNAVAILABLE: Metric = Metric::gauge(
    "statefulset_controller_statefulset_unavailable_replicas",
    "Number of unavailable pods of a StatefulSet.",
    LABELS,
);

/// The controller.
#[must_use]
pub fn controller(options: &StatefulSetOptions) -> Controller {
    Controller::new("statefulset-controller")
        .service_account("statefulset-controller")
        .event_component("statefulset-controller")
        .metrics([&MAX_UNAVAILABLE, &UNAVAILABLE])
        .may_write(&[
            Grant { group: "apps", resource: "statefulsets", verbs: &["get"] },
            Grant { group: "apps", resource: "statefulsets/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "get", "patch", "update"] },
            Grant { group: "", resource: "persistentvolumeclaims", verbs: &["create", "get", "update"] },
            Grant {
                group: "apps",
                resource: "controllerrevisions",
                verbs: &["create", "delete", "get", "patch", "update"],
            },
        ])
        .with_loop(
            Loop::reconciling("statefulset", reconcile::StatefulSetReconciler { options: options.clone() })
                .keyed_by::<StatefulSet>()
                .enqueue_on::<StatefulSet>(enqueue_self)
                .enqueue_on::<Pod>(enqueue::pod_changed)
                .reads_unwatched::<PersistentVolumeClaim>(
                    "the resync repairs claims, as in the original; a pod that waits for a deletion polls",
                )
                .reads_pod_parts(PodParts::VOLUME_CLAIMS)
                .reads_index(by_controller::<Pod>())
                .reads_index(by_controller::<ControllerRevision>())
                .reads_unwatched::<ControllerRevision>("only this controller writes revisions")
                .workers(options.workers),
        )
}
