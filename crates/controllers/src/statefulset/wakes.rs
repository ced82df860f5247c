//! Which StatefulSets a change of a pod concerns.

use std::time::Duration;

use keleustes_objects::{Pod, StatefulSet};
use keleustes_plan::{Change, View, Wakes};

use crate::workloads::wakes::{owners_of, when_available};

pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, wakes: &mut Wakes) {
    owners_of::<StatefulSet, Pod>(change, view, wakes);
    when_available::<StatefulSet>(change, Duration::ZERO, view, wakes);
}
