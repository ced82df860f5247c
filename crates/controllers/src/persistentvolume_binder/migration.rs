//! The annotation that names the CSI driver of a migrated in-tree plugin, and the finalizers that depend on the plugin.
//!
//! Parity: updateMigrationAnnotations and modifyDeletionFinalizers of pv_controller_base.go.

use keleustes_objects::{Annotations, ArcStr, InternedStr, PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::names::{
    BETA_STORAGE_PROVISIONER, EXTERNAL_FINALIZER, IN_TREE_FINALIZER, IN_TREE_PREFIX, MIGRATED_TO,
    PROVISIONED_BY, STORAGE_PROVISIONER,
};
use crate::csi_translation::driver_of_plugin;

/// A change of `pv.kubernetes.io/migrated-to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MigratedTo {
    Set(&'static str),
    Remove,
}

impl MigratedTo {
    pub(super) fn apply(self, object: &mut Value) {
        match self {
            Self::Set(driver) => object["metadata"]["annotations"][MIGRATED_TO] = json!(driver),
            Self::Remove => {
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(MIGRATED_TO);
                }
            }
        }
    }
}

/// The change that a claim's annotation needs.
pub(super) fn of_claim(claim: &PersistentVolumeClaim) -> Option<MigratedTo> {
    let value = |key| claim.annotations.value(key);
    change(&claim.annotations, value(STORAGE_PROVISIONER).or_else(|| value(BETA_STORAGE_PROVISIONER))?)
}

/// The change that a volume's annotation needs.
pub(super) fn of_volume(volume: &PersistentVolume) -> Option<MigratedTo> {
    change(&volume.annotations, volume.annotations.value(PROVISIONED_BY)?)
}

fn change(annotations: &Annotations, provisioner: &str) -> Option<MigratedTo> {
    let migrated_to = annotations.value(MIGRATED_TO).map_or("", ArcStr::as_str);
    match driver_of_plugin(provisioner) {
        Some(driver) => (migrated_to != driver).then_some(MigratedTo::Set(driver)),
        None => (!migrated_to.is_empty()).then_some(MigratedTo::Remove),
    }
}

/// The finalizers that a volume needs; `None` if it has them.
pub(super) fn finalizers(volume: &PersistentVolume) -> Option<Vec<InternedStr>> {
    let provisioner = volume.annotations.value(PROVISIONED_BY)?;
    let has = |finalizer: &str| volume.meta.finalizers.iter().any(|one| *one == finalizer);
    let policy = volume.spec.persistent_volume_reclaim_policy.as_str();
    let (mut removed, mut added): (Vec<&str>, Option<&str>) = (Vec::new(), None);
    if driver_of_plugin(provisioner).is_some() {
        removed.push(IN_TREE_FINALIZER);
    } else if provisioner.starts_with(IN_TREE_PREFIX) {
        match policy {
            "Delete" if !has(IN_TREE_FINALIZER) => added = Some(IN_TREE_FINALIZER),
            "Retain" | "Recycle" => removed.push(IN_TREE_FINALIZER),
            _ => {}
        }
        removed.push(EXTERNAL_FINALIZER);
    }
    if added.is_none() && !removed.iter().any(|finalizer| has(finalizer)) {
        return None;
    }
    let kept = volume.meta.finalizers.iter().filter(|one| !removed.contains(&one.as_str())).cloned();
    // The external finalizer is removed after the in-tree one is added, so the order of upstream is kept + added.
    Some(kept.chain(added.map(InternedStr::from)).collect())
}
