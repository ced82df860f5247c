//! Which DaemonSets a change concerns.

use std::time::Duration;

use keleustes_objects::{ControllerRevision, DaemonSet, Node, Pod};
use keleustes_plan::{Change, Enqueue, View};

use super::inputs::{Eligibility, NodeRequirements};
use crate::pods_by_node::BY_NODE;
use crate::workloads::enqueue::{enqueue_owners, enqueue_when_available};

/// How much longer than asked for a pod is to be ready before it is looked at, so that it has been so on every
/// clock.
const MARGIN: Duration = Duration::from_secs(1);

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, wakes: &mut Enqueue) {
    enqueue_owners::<DaemonSet, Pod>(change, view, wakes);
    enqueue_when_available::<DaemonSet>(change, MARGIN, view, wakes);
}

/// A revision that just appeared with an owner is the owner's own doing, unless it is on its way out.
pub(super) fn revision_changed(change: &Change<ControllerRevision>, view: &View<'_>, wakes: &mut Enqueue) {
    let meta = &change.latest().meta;
    if change.old().is_some() || meta.controller_ref().is_none() || meta.deletion_timestamp.is_some() {
        enqueue_owners::<DaemonSet, ControllerRevision>(change, view, wakes);
    }
}

/// Enqueue DaemonSets by changes of nodes.
pub(super) struct NodeEnqueue {
    pub(super) comparison_operators: bool,
}

impl NodeEnqueue {
    /// Enqueue the DaemonSets for which a node has too many or too few pods now. A node that comes back to a pod
    /// of its own concerns them, too: without it they had nothing there to count or to update.
    pub(super) fn node_changed(&self, change: &Change<Node>, view: &View<'_>, wakes: &mut Enqueue) {
        let (Some(node), false) = (change.new(), change.is_resync()) else { return };
        let same = |before: &Node| before.meta.labels == node.meta.labels && before.taints == node.taints;
        if change.old().is_some_and(|before| same(before)) {
            return;
        }
        for set in view.all::<DaemonSet>() {
            let pods = view.store::<Pod>().by_index(&BY_NODE, &node.meta.key.name);
            let bound = pods.filter(|pod| is_of(pod, set)).count() > 0;
            let Eligibility { should_run, should_continue_running } =
                NodeRequirements::of(set, self.comparison_operators).judge(node);
            let misplaced = bound && (!should_continue_running || set.status.number_misscheduled > 0);
            let is_back = bound && change.old().is_none();
            if (should_run && !bound) || is_back || misplaced {
                wakes.add(&set.meta.key);
            }
        }
    }
}

fn is_of(pod: &Pod, set: &DaemonSet) -> bool {
    // By uid: the pod of a set that had the name before goes, and its end wakes nobody.
    pod.meta.controller_ref().is_some_and(|owner| owner.uid == set.meta.uid)
}
