//! Which ReplicaSets are enqueued for a change of a pod.

use std::time::Duration;

use keleustes_objects::Pod;
use keleustes_plan::{Change, Effects, View};

use super::Replicated;
use crate::workloads::enqueue::{enqueue_owners, enqueue_when_available};

pub(super) fn pod_changed<R: Replicated>(change: &Change<Pod>, view: &View<'_>, enqueue: &mut Effects) {
    let same = change.old().zip(change.new()).is_some_and(|(old, new)| has_no_relevant_change(old, new));
    if !same {
        enqueue_owners::<R, Pod>(change, view, enqueue);
        enqueue_when_available::<R>(change, Duration::ZERO, view, enqueue);
    }
}

/// Whether nothing changed that a ReplicaSet reads. Kubelets write many other fields.
fn has_no_relevant_change(before: &Pod, after: &Pod) -> bool {
    before.meta.labels == after.meta.labels
        && before.meta.owner_references == after.meta.owner_references
        && before.meta.uid == after.meta.uid
        && before.phase == after.phase
        && before.is_terminating() == after.is_terminating()
        && (before.is_ready(), before.ready_since()) == (after.is_ready(), after.ready_since())
}
