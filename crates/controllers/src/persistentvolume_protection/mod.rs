//! Keeps the protection finalizer on `PersistentVolume`s until they are not bound to a claim.
//!
//! Only `status.phase` decides, which the binder maintains. The removal of the finalizer names the resourceVersion whose
//! phase was judged, so a volume that is bound meanwhile keeps it.
//!
//! Parity: pkg/controller/volume/pvprotection.

#[cfg(test)]
mod tests;

use keleustes_objects::{Key, PersistentVolume};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Plan, View};
use serde_json::Value;

use crate::protection::{add_finalizer, is_deletion_candidate, needs_finalizer, remove_finalizer};

/// The finalizer. The admission plugin `StorageObjectInUseProtection` sets it on new volumes.
pub const FINALIZER: &str = "kubernetes.io/pv-protection";

/// The phase of a volume that a claim uses.
const BOUND: &str = "Bound";

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("persistentvolume-protection-controller")
        .service_account("pv-protection-controller")
        .may_write(&[
            Grant { group: "", resource: "persistentvolumes", verbs: &["get", "list", "update", "watch"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::deciding("pvprotection", decide)
                .keyed_by::<PersistentVolume>()
                .enqueue_on::<PersistentVolume>(volume_changed),
        )
}

fn volume_changed(change: &Change<PersistentVolume>, _: &View<'_>, enqueue: &mut Effects) {
    let Some(volume) = change.new() else { return };
    if is_deletion_candidate(&volume.meta, FINALIZER) || needs_finalizer(&volume.meta, FINALIZER) {
        enqueue.add(&volume.meta.key);
    }
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
    let Some(volume) = view.get::<PersistentVolume>(item) else {
        return Plan::none();
    };
    if is_deletion_candidate(&volume.meta, FINALIZER) && volume.phase != BOUND {
        let is_bound = |live: &Value| live["status"]["phase"] == BOUND;
        let removal = remove_finalizer(&**volume, FINALIZER, is_bound);
        return Plan::of(removal.because("the volume is deleted and not bound"));
    }
    if needs_finalizer(&volume.meta, FINALIZER) {
        return Plan::of(add_finalizer(&**volume, FINALIZER));
    }
    Plan::none()
}
