//! Which DaemonSets a change concerns.

use std::time::Duration;

use keleustes_objects::{ControllerRevision, DaemonSet, Labels, Meta, Node, Pod};
use keleustes_plan::{Change, View, Wakes};

use super::BY_NODE;
use super::facts::{Eligibility, eligibility};
use crate::workloads::owners::resolve;

pub(super) fn set_changed(change: &Change<DaemonSet>, _: &View<'_>, wakes: &mut Wakes) {
    wakes.wake(&change.either().meta.key);
}

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, wakes: &mut Wakes) {
    if change.is_resync() {
        return;
    }
    let (before, pod) = (change.before(), change.either());
    let before_meta = before.map(|before| &before.meta);
    concern(before_meta, &pod.meta, change.is_deletion() || pod.is_terminating(), view, wakes);
    let became_ready = before.is_some_and(|before| !before.is_ready()) && pod.is_ready();
    let owner = pod.meta.controller().filter(|_| became_ready && !change.is_deletion());
    let set = owner.and_then(|owner| resolve::<DaemonSet>(view, &pod.meta.key.namespace, owner));
    if let Some(set) = set.filter(|set| set.spec.min_ready_seconds > 0) {
        // A second more, so that the pod has been ready for long enough on every clock.
        let seconds = u64::try_from(set.spec.min_ready_seconds).unwrap_or(0) + 1;
        wakes.wake_after(&set.meta.key, Duration::from_secs(seconds));
    }
}

/// A revision that just appeared with an owner is the owner's own doing.
pub(super) fn revision_changed(change: &Change<ControllerRevision>, view: &View<'_>, wakes: &mut Wakes) {
    let meta = &change.either().meta;
    let is_owned_news = change.before().is_none() && meta.controller().is_some();
    if !change.is_resync() && !is_owned_news {
        let before = change.before().map(|before| &before.meta);
        concern(before, meta, change.is_deletion() || meta.deleted_at.is_some(), view, wakes);
    }
}

/// Wakes the owner before and after; of what has none, all who might adopt it.
fn concern(before: Option<&Meta>, meta: &Meta, leaving: bool, view: &View<'_>, wakes: &mut Wakes) {
    let mut wake_owner = |meta: &Meta| {
        let owner = meta.controller();
        if let Some(set) = owner.and_then(|owner| resolve::<DaemonSet>(view, &meta.key.namespace, owner)) {
            wakes.wake(&set.meta.key);
        }
    };
    if let Some(before) = before.filter(|before| before.controller() != meta.controller()) {
        wake_owner(before);
    }
    if meta.controller().is_some() {
        wake_owner(meta);
        return;
    }
    let is_news = before.is_none_or(|before| before.labels != meta.labels || before.controller().is_some());
    if !leaving && is_news {
        let sets = view.in_namespace::<DaemonSet>(&meta.key.namespace);
        sets.filter(|set| wants(set, &meta.labels)).for_each(|set| wakes.wake(&set.meta.key));
    }
}

fn wants(set: &DaemonSet, labels: &Labels) -> bool {
    let selector = set.spec.selector.as_ref().filter(|selector| !selector.is_empty());
    let matcher = selector.and_then(|selector| selector.matcher().ok());
    !labels.is_empty() && matcher.is_some_and(|matcher| matcher.matches(labels))
}

/// Wakes DaemonSets by changes of nodes.
pub(super) struct NodeWakes {
    pub(super) compares_taints: bool,
}

impl NodeWakes {
    /// Wakes the DaemonSets for which a node has too many or too few pods now.
    pub(super) fn node_changed(&self, change: &Change<Node>, view: &View<'_>, wakes: &mut Wakes) {
        let (Some(node), false) = (change.after(), change.is_resync()) else { return };
        let same = |before: &Node| before.meta.labels == node.meta.labels && before.taints == node.taints;
        if change.before().is_some_and(|before| same(before)) {
            return;
        }
        for set in view.all::<DaemonSet>() {
            let pods = view.table::<Pod>().by(&BY_NODE, &node.meta.key.name);
            let bound = pods.filter(|pod| is_of(pod, set)).count() > 0;
            let Eligibility { should_run, should_continue } = eligibility(set, node, self.compares_taints);
            let misplaced = bound && (!should_continue || set.status.number_misscheduled > 0);
            if (should_run && !bound) || misplaced {
                wakes.wake(&set.meta.key);
            }
        }
    }
}

fn is_of(pod: &Pod, set: &DaemonSet) -> bool {
    pod.meta.key.namespace == set.meta.key.namespace
        && (pod.meta.controller())
            .is_some_and(|owner| owner.kind == "DaemonSet" && owner.name == set.meta.key.name)
}
