//! Keeps one pod of a DaemonSet on every node that may have one, and moves them to a new template node by
//! node.
//!
//! The original has a second queue for nodes whose labels or taints changed; here the change of a node wakes
//! the DaemonSets it matters to directly.
//!
//! Parity: pkg/controller/daemon.

mod backoff;
mod enqueue;
mod history;
mod inputs;
mod manage;
mod pods;
mod reconcile;
mod rolling_update;
mod status;

#[cfg(test)]
mod tests;

use keleustes_objects::{ControllerRevision, DaemonSet, Node, Pod};
use keleustes_plan::{Controller, Grant, Loop};

use crate::pods_by_node::BY_NODE;
use crate::workloads::enqueue::enqueue_self;
use crate::workloads::owners::by_controller_uid;

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct DaemonSetOptions {
    /// How many DaemonSets are worked on at once.
    pub workers: usize,
    /// Whether tolerations may compare numbers (gate `TaintTolerationComparisonOperators`).
    pub comparison_operators: bool,
}

/// The original's defaults.
impl Default for DaemonSetOptions {
    fn default() -> Self {
        Self { workers: 2, comparison_operators: false }
    }
}

/// The controller.
#[must_use]
pub fn controller(settings: &DaemonSetOptions) -> Controller {
    let wakes = enqueue::NodeEnqueue { comparison_operators: settings.comparison_operators };
    Controller::new("daemonset-controller")
        .also_known_as(&["daemonset"])
        .service_account("daemon-set-controller")
        .event_component("daemonset-controller")
        .may_write(&[
            Grant { group: "apps", resource: "daemonsets", verbs: &["get"] },
            Grant { group: "apps", resource: "daemonsets/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
            Grant {
                group: "apps",
                resource: "controllerrevisions",
                verbs: &["create", "delete", "get", "patch", "update"],
            },
        ])
        .with_loop(
            Loop::reconciling("daemonset", reconcile::DaemonSetReconciler::new(settings.clone()))
                .enqueue_on::<DaemonSet>(enqueue_self)
                .enqueue_on::<Pod>(enqueue::pod_changed)
                .enqueue_on::<ControllerRevision>(enqueue::revision_changed)
                .enqueue_on::<Node>(move |change, view, woken| wakes.node_changed(change, view, woken))
                .reads_index(by_controller_uid::<Pod>())
                .reads_index(by_controller_uid::<ControllerRevision>())
                .reads_index(BY_NODE)
                .workers(settings.workers),
        )
}
