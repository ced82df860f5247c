//! Runs one pod of a DaemonSet on every eligible node, and rolls pods to a new template.
//!
//! The original has a second queue for nodes whose labels or taints changed; here a change of a node
//! enqueues the affected DaemonSets directly.
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
use crate::workloads::owners::by_controller;

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct DaemonSetOptions {
    /// The number of workers.
    pub workers: usize,
    /// Whether tolerations may use the operators Lt and Gt (gate `TaintTolerationComparisonOperators`).
    pub comparison_operators: bool,
}

/// Upstream's defaults.
impl Default for DaemonSetOptions {
    fn default() -> Self {
        Self { workers: 2, comparison_operators: false }
    }
}

/// Builds the controller.
#[must_use]
pub fn controller(options: &DaemonSetOptions) -> Controller {
    let nodes = enqueue::NodeEnqueue { comparison_operators: options.comparison_operators };
    Controller::new("daemonset-controller")
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
            Loop::reconciling("daemonset", reconcile::DaemonSetReconciler::new(options.clone()))
                .keyed_by::<DaemonSet>()
                .enqueue_on::<DaemonSet>(enqueue_self)
                .enqueue_on::<Pod>(enqueue::pod_changed)
                .enqueue_on::<ControllerRevision>(enqueue::revision_changed)
                .enqueue_on::<Node>(move |change, view, queue| nodes.node_changed(change, view, queue))
                .reads_index(by_controller::<Pod>())
                .reads_index(by_controller::<ControllerRevision>())
                .reads_index(BY_NODE)
                .workers(options.workers),
        )
}
