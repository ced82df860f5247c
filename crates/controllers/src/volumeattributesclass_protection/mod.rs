//! Keeps the protection finalizer on `VolumeAttributesClass`es until no volume and no claim refers to them.
//!
//! A claim refers to the class that it asks for, to the one that its volume has and to the one that its volume is being
//! changed to. All three caches are synced before any class is judged.
//!
//! Parity: pkg/controller/volume/vacprotection.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use keleustes_objects::{
    InternedStr, Key, Kind, PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass,
};
use keleustes_plan::{Change, Controller, Effects, Grant, Index, Loop, Plan, View};

use crate::protection::{add_finalizer, is_deletion_candidate, needs_finalizer, remove_finalizer};

/// The finalizer.
pub const FINALIZER: &str = "kubernetes.io/vac-protection";

const VOLUMES_BY_CLASS: Index<PersistentVolume> = Index {
    name: "volumeAttributesClassName",
    values: |volume, emit| classes_of_volume(volume).into_iter().for_each(emit),
};

const CLAIMS_BY_CLASS: Index<PersistentVolumeClaim> = Index {
    name: "volumeAttributesClassName",
    values: |claim, emit| classes_of_claim(claim).into_iter().for_each(emit),
};

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("volumeattributesclass-protection-controller")
        .service_account("volumeattributesclass-protection-controller")
        .may_write(&[
            Grant { group: "", resource: "persistentvolumeclaims", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "persistentvolumes", verbs: &["get", "list", "watch"] },
            Grant {
                group: "storage.k8s.io",
                resource: "volumeattributesclasses",
                verbs: &["get", "list", "update", "watch"],
            },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::deciding("vacprotection", decide)
                .keyed_by::<VolumeAttributesClass>()
                .enqueue_on::<VolumeAttributesClass>(class_changed)
                .enqueue_on::<PersistentVolumeClaim>(|change, _, enqueue| {
                    enqueue_dropped(change, classes_of_claim, enqueue);
                })
                .enqueue_on::<PersistentVolume>(|change, _, enqueue| {
                    enqueue_dropped(change, classes_of_volume, enqueue);
                })
                .reads_index(CLAIMS_BY_CLASS)
                .reads_index(VOLUMES_BY_CLASS),
        )
}

fn class_changed(change: &Change<VolumeAttributesClass>, _: &View<'_>, enqueue: &mut Effects) {
    let Some(class) = change.new() else { return };
    if is_deletion_candidate(&class.meta, FINALIZER) || needs_finalizer(&class.meta, FINALIZER) {
        enqueue.add(&class.meta.key);
    }
}

/// Enqueues the classes to which the object no longer refers; of a deleted object all of them.
fn enqueue_dropped<T: Kind>(
    change: &Change<T>,
    classes: fn(&T) -> BTreeSet<InternedStr>,
    enqueue: &mut Effects,
) {
    let kept = change.new().map(|new| classes(new)).unwrap_or_default();
    let before = change.old().map(|old| classes(old)).unwrap_or_default();
    before.difference(&kept).for_each(|name| enqueue.add(Key::cluster(name.as_str())));
}

fn classes_of_claim(claim: &PersistentVolumeClaim) -> BTreeSet<InternedStr> {
    claim.volume_attributes_classes().cloned().collect()
}

fn classes_of_volume(volume: &PersistentVolume) -> BTreeSet<InternedStr> {
    let name = volume.spec.volume_attributes_class_name.iter();
    name.filter(|name| !name.is_empty()).cloned().collect()
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
    let Some(class) = view.get::<VolumeAttributesClass>(item) else {
        return Plan::none();
    };
    if is_deletion_candidate(&class.meta, FINALIZER) && !is_in_use(view, &class.meta.key.name) {
        let removal = remove_finalizer(&**class, FINALIZER, |_| false);
        return Plan::of(removal.because("the class is deleted and nothing refers to it"));
    }
    if needs_finalizer(&class.meta, FINALIZER) {
        return Plan::of(add_finalizer(&**class, FINALIZER));
    }
    Plan::none()
}

fn is_in_use(view: &View<'_>, class: &str) -> bool {
    view.store::<PersistentVolume>().by_index(&VOLUMES_BY_CLASS, class).next().is_some()
        || view.store::<PersistentVolumeClaim>().by_index(&CLAIMS_BY_CLASS, class).next().is_some()
}
