//! Which DaemonSets a change concerns.

use std::time::Duration;

use keleustes_objects::{ControllerRevision, DaemonSet, Node, Pod};
use keleustes_plan::{Change, View, Wakes};

use super::facts::{Demands, Eligibility};
use crate::pods_by_node::BY_NODE;
use crate::workloads::wakes::{owners_of, when_available};

/// How much longer than asked for a pod is to be ready before it is looked at, so that it has been so on every
/// clock.
const MARGIN: Duration = Duration::from_secs(1);

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, wakes: &mut Wakes) {
    owners_of::<DaemonSet, Pod>(change, view, wakes);
    when_available::<DaemonSet>(change, MARGIN, view, wakes);
}

/// A revision that just appeared with an owner is the owner's own doing, unless it is on its way out.
pub(super) fn revision_changed(change: &Change<ControllerRevision>, view: &View<'_>, wakes: &mut Wakes) {
    let meta = &change.either().meta;
    if change.before().is_some() || meta.controller().is_none() || meta.deleted_at.is_some() {
        owners_of::<DaemonSet, ControllerRevision>(change, view, wakes);
    }
}

/// Wakes DaemonSets by changes of nodes.
pub(super) struct NodeWakes {
    pub(super) compares_taints: bool,
}

impl NodeWakes {
    /// Wakes the DaemonSets for which a node has too many or too few pods now. A node that comes back to a pod
    /// of its own concerns them, too: without it they had nothing there to count or to update.
    pub(super) fn node_changed(&self, change: &Change<Node>, view: &View<'_>, wakes: &mut Wakes) {
        let (Some(node), false) = (change.after(), change.is_resync()) else { return };
        let same = |before: &Node| before.meta.labels == node.meta.labels && before.taints == node.taints;
        if change.before().is_some_and(|before| same(before)) {
            return;
        }
        for set in view.all::<DaemonSet>() {
            let pods = view.table::<Pod>().by(&BY_NODE, &node.meta.key.name);
            let bound = pods.filter(|pod| is_of(pod, set)).count() > 0;
            let Eligibility { should_run, should_continue } =
                Demands::of(set, self.compares_taints).judge(node);
            let misplaced = bound && (!should_continue || set.status.number_misscheduled > 0);
            let is_back = bound && change.before().is_none();
            if (should_run && !bound) || is_back || misplaced {
                wakes.wake(&set.meta.key);
            }
        }
    }
}

fn is_of(pod: &Pod, set: &DaemonSet) -> bool {
    // By uid: the pod of a set that had the name before goes, and its end wakes nobody.
    pod.meta.controller().is_some_and(|owner| owner.uid == set.meta.uid)
}
