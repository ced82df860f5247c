//! Which StatefulSets are enqueued for a change of a pod.

use std::time::Duration;

use keleustes_objects::{Pod, StatefulSet};
use keleustes_plan::{Change, Effects, View};

use crate::workloads::enqueue::{enqueue_owners, enqueue_when_available};

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, enqueue: &mut Effects) {
    enqueue_owners::<StatefulSet, Pod>(change, view, enqueue);
    enqueue_when_available::<StatefulSet>(change, Duration::ZERO, view, enqueue);
}
