//! The reclaim of released volumes: kept, deleted or recycled. Volumes of external drivers are left to them.

use keleustes_objects::{
    ArcStr, Key, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource, StorageClass,
};
use keleustes_plan::{Context, InvolvedObject, PlannedEvent, ReconcileError, Requeue};

use super::bind::set_volume_phase;
use super::claims::record;
use super::live::Subject;
use super::names::{HOST_PATH, IN_TREE_PREFIX, MIGRATED_TO, NFS, PROVISIONED_BY};
use super::volumes::{fetch_claim, volume_operation};
use super::{Binder, host_path, recycle};
use crate::csi_translation::driver_of_plugin;

/// Reclaims a Released or Failed volume as its policy says. The policy is read at every sync.
pub(super) async fn reclaim(
    cx: &mut Context<'_>,
    binder: &Binder,
    volume: &mut Subject<PersistentVolume>,
) -> Result<Requeue, ReconcileError> {
    if volume.object.annotations.value(MIGRATED_TO).is_some_and(|driver| !driver.is_empty()) {
        return Ok(Requeue::Forget);
    }
    // A recycler pod that runs is waited for, also if the policy is another one by now.
    if recycle::running_pod(binder, &volume.object).is_some() {
        recycle::recycle(cx, binder, volume).await;
        return Ok(Requeue::Forget);
    }
    match volume.object.spec.persistent_volume_reclaim_policy.as_str() {
        "Retain" => Ok(Requeue::Forget),
        "Delete" => {
            delete(cx, binder, volume).await;
            Ok(Requeue::Forget)
        }
        "Recycle" => {
            recycle::recycle(cx, binder, volume).await;
            Ok(Requeue::Forget)
        }
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            set_failed(cx, volume, "VolumeUnknownReclaimPolicy", message).await?;
            Ok(Requeue::Forget)
        }
    }
}

/// Who deletes a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deleter {
    /// Its driver, with the object.
    External,
    /// This process.
    HostPath,
}

/// The deleter of a volume.
///
/// # Errors
/// The message of the volume's status, if there is none.
pub(super) fn deleter(volume: &PersistentVolume) -> Result<Deleter, String> {
    let plugin = volume.annotations.value(PROVISIONED_BY).map_or("", ArcStr::as_str);
    match plugin {
        "" => {}
        HOST_PATH => return Ok(Deleter::HostPath),
        NFS => return Err("no deletable volume plugin matched".to_owned()),
        _ if plugin.starts_with(IN_TREE_PREFIX) => {
            return Err(format!("no volume plugin matched name: {plugin}"));
        }
        _ => return Ok(Deleter::External),
    }
    let why = match &volume.spec.source {
        _ if volume.annotations.value(MIGRATED_TO).is_some() => return Ok(Deleter::External),
        PersistentVolumeSource::Csi { .. } => return Ok(Deleter::External),
        PersistentVolumeSource::HostPath { .. } => return Ok(Deleter::HostPath),
        PersistentVolumeSource::Nfs { .. } => "no deletable volume plugin matched",
        _ => "no volume plugin matched",
    };
    let name = volume.meta.key.name.as_str();
    Err(format!("error getting deleter volume plugin for volume {name:?}: {why}"))
}

/// One attempt to delete a volume. Errors are not those of the sync: the operation has a backoff of its own.
async fn delete(cx: &mut Context<'_>, binder: &Binder, volume: &mut Subject<PersistentVolume>) {
    let object = volume.object.clone();
    let now = cx.gather(|view| view.now().monotonic);
    let key = volume_operation(&object.meta.key);
    binder.operations.start(&key, &plugin_label(cx, &object), "delete", now);
    let name = format!("delete-{}[{}]", object.meta.key.name, object.meta.uid);
    if !binder.operations.may_run(&name, now) {
        return;
    }
    let succeeded = match deleter(&object) {
        Ok(Deleter::External) => true,
        Ok(Deleter::HostPath) => host_path::delete(cx, binder, volume).await.is_ok(),
        Err(message) => set_failed(cx, volume, "VolumeFailedDelete", &message).await.is_ok(),
    };
    if !succeeded {
        binder.operations.count_error(cx, &key);
    }
    binder.operations.record(&name, succeeded, now);
}

/// The label of the operation's metrics: the plugin of this process, or the provisioner of the class.
fn plugin_label(cx: &mut Context<'_>, volume: &PersistentVolume) -> String {
    match deleter(volume) {
        Err(_) => "N/A".to_owned(),
        Ok(Deleter::HostPath) => HOST_PATH.to_owned(),
        Ok(Deleter::External) => cx.gather(|view| {
            let class = view.get::<StorageClass>(&Key::cluster(volume.class()));
            let name = class.map_or("N/A", |class| class.provisioner.as_str());
            driver_of_plugin(name).unwrap_or(name).to_owned()
        }),
    }
}

/// Sets phase Failed with a message and an event, only on the change to Failed.
pub(super) async fn set_failed(
    cx: &mut Context<'_>,
    volume: &mut Subject<PersistentVolume>,
    reason: &str,
    message: &str,
) -> Result<(), ReconcileError> {
    if volume.object.phase == "Failed" {
        return Ok(());
    }
    set_volume_phase(cx, volume, "Failed", message).await?;
    record(cx, PlannedEvent::warning(InvolvedObject::of(&*volume.object), reason, message)).await;
    Ok(())
}

/// Reads a volume live and returns it if it is still released, the moment before its data is destroyed.
///
/// Beyond the original, the claim and the reclaim policy are read live too: data is not destroyed for what a cache says.
pub(super) async fn still_released(
    cx: &mut Context<'_>,
    volume: &PersistentVolume,
) -> Option<PersistentVolume> {
    let live = cx.fetch::<PersistentVolume>(&volume.meta.key).await.ok()??;
    let policy = |volume: &PersistentVolume| volume.spec.persistent_volume_reclaim_policy.clone();
    if live.meta.uid != volume.meta.uid || policy(&live) != policy(volume) {
        return None;
    }
    let claim_ref = live.spec.claim_ref.clone().filter(|claim_ref| !claim_ref.uid.is_empty())?;
    let key = Key::namespaced(claim_ref.namespace.clone(), claim_ref.name.clone());
    let is_released = |claim: &PersistentVolumeClaim| {
        let names_another =
            !claim.spec.volume_name.is_empty() && claim.spec.volume_name != live.meta.key.name;
        claim.meta.uid != claim_ref.uid || names_another
    };
    let cached = cx.gather(|view| view.get::<PersistentVolumeClaim>(&key).cloned());
    let claim = fetch_claim(cx, &key).await.ok()?;
    (cached.is_none_or(|claim| is_released(&claim)) && claim.is_none_or(|claim| is_released(&claim)))
        .then_some(live)
}
