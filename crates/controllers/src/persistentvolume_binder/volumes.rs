//! The queue of volumes: phases, volumes whose claim is gone or bound elsewhere, and their reclaim.

use std::sync::Arc;

use keleustes_objects::{ClaimReference, Key, PersistentVolume, PersistentVolumeClaim, invalid_path_segment};
use keleustes_plan::{Context, Effects, InvolvedObject, PlannedEvent, ReconcileError, Reconciler, Requeue};
use serde_json::{Value, json};

use super::bind::set_volume_phase;
use super::claims::record;
use super::live::{Subject, remove_field, retry};
use super::matching::volume_modes_match;
use super::names::{BOUND_BY_CONTROLLER, PROVISIONED_BY};
use super::{Binder, CLAIMS_QUEUE, gauges, migration, reclaim, recycle};

/// Reconciles volumes.
pub(super) struct VolumeReconciler(pub(super) Binder);

type Volume = Subject<PersistentVolume>;

impl Reconciler for VolumeReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        gauges::refresh(cx, &self.0.gauges);
        let volume = cx.gather(|view| view.get::<PersistentVolume>(item).cloned());
        recycle::abandon_outdated(cx, &self.0, &item.name, volume.as_deref()).await?;
        let Some(volume) = volume else {
            let now = cx.gather(|view| view.now().monotonic);
            self.0.operations.finish(cx, &volume_operation(item), now);
            return Ok(Requeue::Forget);
        };
        let mut volume = Subject::cached(volume);
        update_annotations_and_finalizers(cx, &mut volume).await?;
        let object = volume.object.clone();
        let Some(claim_ref) = object.spec.claim_ref.as_ref().filter(|claim_ref| !claim_ref.uid.is_empty())
        else {
            // Unused, or reserved for a claim that is not bound yet.
            set_volume_phase(cx, &mut volume, "Available", "").await?;
            return Ok(Requeue::Forget);
        };
        match find_claim(cx, &object, claim_ref).await? {
            None => self.release(cx, &mut volume).await,
            Some(claim) => self.sync_claimed(cx, &mut volume, &claim).await,
        }
    }
}

impl VolumeReconciler {
    /// A volume whose claim exists.
    async fn sync_claimed(
        &self,
        cx: &mut Context<'_>,
        volume: &mut Volume,
        claim: &PersistentVolumeClaim,
    ) -> Result<Requeue, ReconcileError> {
        let object = volume.object.clone();
        if claim.spec.volume_name.is_empty() {
            if volume_modes_match(&object, claim) {
                // The sync of the claim binds it.
                let mut effects = Effects::default();
                effects.enqueue(CLAIMS_QUEUE, &claim.meta.key);
                cx.effects(effects);
            } else {
                report_volume_mode(cx, &object, claim).await;
            }
            return Ok(Requeue::Forget);
        }
        if claim.spec.volume_name == object.meta.key.name {
            set_volume_phase(cx, volume, "Bound", "").await?;
            return Ok(Requeue::Forget);
        }
        let is_dynamic = object.annotations.value(PROVISIONED_BY).is_some();
        if is_dynamic && object.spec.persistent_volume_reclaim_policy == "Delete" {
            // It was provisioned for this claim, which got another volume.
            return self.release(cx, volume).await;
        }
        unbind(cx, volume).await?;
        Ok(Requeue::Forget)
    }

    /// Marks a volume as Released, unless its reclaim has begun, and reclaims it.
    async fn release(&self, cx: &mut Context<'_>, volume: &mut Volume) -> Result<Requeue, ReconcileError> {
        if !is_released_or_failed(&volume.object) {
            set_volume_phase(cx, volume, "Released", "").await?;
        }
        reclaim::reclaim(cx, &self.0, volume).await
    }
}

/// The key under which the deletion of a volume is measured.
pub(super) fn volume_operation(volume: &Key) -> String {
    volume.name.to_string()
}

pub(super) fn is_released_or_failed(volume: &PersistentVolume) -> bool {
    volume.phase == "Released" || volume.phase == "Failed"
}

async fn update_annotations_and_finalizers(
    cx: &mut Context<'_>,
    volume: &mut Volume,
) -> Result<(), ReconcileError> {
    let (migrated_to, finalizers) =
        (migration::of_volume(&volume.object), migration::finalizers(&volume.object));
    if migrated_to.is_none() && finalizers.is_none() {
        return Ok(());
    }
    let change = |json: &mut Value| {
        if let Some(migrated_to) = migrated_to {
            migrated_to.apply(json);
        }
        match finalizers {
            Some(finalizers) if finalizers.is_empty() => remove_field(&mut json["metadata"], "finalizers"),
            Some(finalizers) => json["metadata"]["finalizers"] = json!(finalizers),
            None => {}
        }
    };
    let because = "the plugin or the reclaim policy of the volume decides its annotation and finalizers";
    volume.update(cx, "", because, change).await.map_err(|error| {
        let text =
            format!("persistent Volume Controller can't anneal migration annotations or finalizer: {error}");
        ReconcileError::from_api_error(&error, text)
    })
}

/// The claim that a volume refers to by name and UID; `None` if there is none.
///
/// A volume is released for what the API server says: unless the volume is Released or Failed already, a claim that is
/// not cached is read live, and so is one with another UID in any phase.
async fn find_claim(
    cx: &mut Context<'_>,
    volume: &PersistentVolume,
    claim_ref: &ClaimReference,
) -> Result<Option<Arc<PersistentVolumeClaim>>, ReconcileError> {
    let key = Key::namespaced(claim_ref.namespace.clone(), claim_ref.name.clone());
    let mut claim = cx.gather(|view| view.get::<PersistentVolumeClaim>(&key).cloned());
    if claim.is_none() && !is_released_or_failed(volume) {
        claim = fetch_claim(cx, &key).await?;
    }
    if claim.as_ref().is_some_and(|claim| claim.meta.uid != claim_ref.uid) {
        claim = fetch_claim(cx, &key).await?.filter(|claim| claim.meta.uid == claim_ref.uid);
    }
    Ok(claim)
}

/// Reads a claim from the API server. A reference that no claim can have is an error, not a missing claim.
pub(super) async fn fetch_claim(
    cx: &mut Context<'_>,
    key: &Key,
) -> Result<Option<Arc<PersistentVolumeClaim>>, ReconcileError> {
    if key.name.is_empty() || key.namespace.is_empty() {
        return Err(ReconcileError::because(format!("claimRef {key}: resource name may not be empty")));
    }
    for segment in [key.namespace.as_str(), key.name.as_str()] {
        if let Some(why) = invalid_path_segment(segment) {
            return Err(ReconcileError::because(format!("invalid resource name {segment:?}: {why}")));
        }
    }
    Ok(cx.fetch::<PersistentVolumeClaim>(key).await?.map(Arc::new))
}

async fn report_volume_mode(cx: &mut Context<'_>, volume: &PersistentVolume, claim: &PersistentVolumeClaim) {
    let (volume_name, claim_name) = (volume.meta.key.name.as_str(), claim.meta.key.name.as_str());
    let message = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim_name:?} due to incompatible volumeMode."
    );
    record(cx, PlannedEvent::warning(InvolvedObject::of(volume), "VolumeMismatch", message)).await;
    let message = format!(
        "Cannot bind PersistentVolume {volume_name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
    );
    record(cx, PlannedEvent::warning(InvolvedObject::of(claim), "VolumeMismatch", message)).await;
}

/// Makes a volume available again: without claimRef if the binder set it, otherwise reserved for the same name.
pub(super) async fn unbind(cx: &mut Context<'_>, volume: &mut Volume) -> Result<(), ReconcileError> {
    let by_controller = volume.object.annotations.value(BOUND_BY_CONTROLLER).is_some();
    let change = |json: &mut Value| {
        if !by_controller {
            remove_field(&mut json["spec"]["claimRef"], "uid");
            return;
        }
        remove_field(&mut json["spec"], "claimRef");
        let annotations = &mut json["metadata"]["annotations"];
        remove_field(annotations, BOUND_BY_CONTROLLER);
        if annotations.as_object().is_some_and(serde_json::Map::is_empty) {
            remove_field(&mut json["metadata"], "annotations");
        }
    };
    let because = "the claim of the volume is bound to another volume or the volume was recycled";
    volume.update(cx, "", because, change).await.map_err(|error| retry(&error))?;
    set_volume_phase(cx, volume, "Available", "").await
}
