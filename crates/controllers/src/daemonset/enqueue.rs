//! Which DaemonSets a change enqueues.

use std::time::Duration;

use keleustes_objects::{ControllerRevision, DaemonSet, Node, Pod};
use keleustes_plan::{Change, Effects, View};

use super::inputs::{Eligibility, NodeRequirements};
use crate::pods_by_node::BY_NODE;
use crate::workloads::enqueue::{enqueue_owners, enqueue_when_available};
use crate::workloads::owners::is_controlled_by;

/// Added to minReadySeconds before a ready pod is checked for availability, as a margin for clock skew.
const MARGIN: Duration = Duration::from_secs(1);

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, queue: &mut Effects) {
    enqueue_owners::<DaemonSet, Pod>(change, view, queue);
    enqueue_when_available::<DaemonSet>(change, MARGIN, view, queue);
}

/// A new revision with a controllerRef was created by its DaemonSet, which need not be enqueued, unless the
/// revision is terminating.
pub(super) fn revision_changed(change: &Change<ControllerRevision>, view: &View<'_>, queue: &mut Effects) {
    let meta = &change.latest().meta;
    if change.old().is_some() || meta.controller_ref().is_none() || meta.deletion_timestamp.is_some() {
        enqueue_owners::<DaemonSet, ControllerRevision>(change, view, queue);
    }
}

/// Enqueues DaemonSets on changes of nodes.
pub(super) struct NodeEnqueue {
    pub(super) comparison_operators: bool,
}

impl NodeEnqueue {
    /// Enqueues the DaemonSets for which the node now has too many or too few pods. A new node that already
    /// has a pod enqueues its DaemonSet as well: without the node that pod was neither counted nor updated.
    pub(super) fn node_changed(&self, change: &Change<Node>, view: &View<'_>, queue: &mut Effects) {
        let (Some(node), false) = (change.new(), change.is_unchanged()) else { return };
        let same = |old: &Node| old.meta.labels == node.meta.labels && old.taints == node.taints;
        if change.old().is_some_and(|old| same(old)) {
            return;
        }
        for set in view.all::<DaemonSet>() {
            let pods = view.store::<Pod>().by_index(&BY_NODE, &node.meta.key.name);
            // By UID, too: the pod of a deleted DaemonSet with the same name will be deleted, and its deletion
            // enqueues nothing.
            let bound = pods.filter(|pod| is_controlled_by(&pod.meta, &**set)).count() > 0;
            let Eligibility { should_run, should_continue_running } =
                NodeRequirements::of(set, self.comparison_operators).eligibility(node);
            let misplaced = bound && (!should_continue_running || set.status.number_misscheduled > 0);
            let node_is_new = bound && change.old().is_none();
            if (should_run && !bound) || node_is_new || misplaced {
                queue.add(&set.meta.key);
            }
        }
    }
}
