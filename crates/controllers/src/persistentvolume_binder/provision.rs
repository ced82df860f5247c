//! Asking for a volume: the annotation that external provisioners wait for, and directories of the controller's host.
//!
//! Parity: provisionClaim of pv_controller.go. The original runs the operation in the background; here it is part of the
//! sync, with the same backoff.

use keleustes_objects::{ApiError, PersistentVolumeClaim, StorageClass};
use keleustes_plan::{Context, InvolvedObject, PlannedEvent, ReconcileError, Requeue};
use serde_json::{Value, json};

use super::claims::{class_of, record};
use super::live::Subject;
use super::names::{BETA_STORAGE_PROVISIONER, HOST_PATH, IN_TREE_PREFIX, NFS, STORAGE_PROVISIONER};
use super::{Binder, host_path};
use crate::csi_translation::driver_of_plugin;

/// Who provisions the volumes of a class.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Provisioner {
    /// An external provisioner of this name.
    External(String),
    /// This process, as directories of its host.
    HostPath,
}

/// The provisioner of a class.
///
/// # Errors
/// The message of an event, if there is none.
pub(super) fn provisioner(name: &str, class: Option<&StorageClass>) -> Result<Provisioner, String> {
    let Some(class) = class else { return Err(format!("storageclass.storage.k8s.io {name:?} not found")) };
    let provisioner = class.provisioner.as_str();
    if let Some(driver) = driver_of_plugin(provisioner) {
        return Ok(Provisioner::External(driver.to_owned()));
    }
    match provisioner {
        HOST_PATH => Ok(Provisioner::HostPath),
        NFS => Err("no provisionable volume plugin matched".to_owned()),
        _ if provisioner.starts_with(IN_TREE_PREFIX) => {
            Err(format!("no volume plugin matched name: {provisioner}"))
        }
        _ => Ok(Provisioner::External(provisioner.to_owned())),
    }
}

/// Asks for a volume for a claim. The sync ends without touching the status of the claim.
pub(super) async fn provision(
    cx: &mut Context<'_>,
    binder: &Binder,
    claim: &mut Subject<PersistentVolumeClaim>,
) -> Result<Requeue, ReconcileError> {
    if !binder.options.enable_dynamic_provisioning {
        return Ok(Requeue::Forget);
    }
    let object = claim.object.clone();
    let class = cx.gather(|view| class_of(view, &object));
    let chosen = match provisioner(object.class(), class.as_deref()) {
        Ok(chosen) => chosen,
        Err(message) => {
            warn(cx, &object, message).await;
            return Ok(Requeue::Forget);
        }
    };
    let key = object.meta.key.to_string();
    let (name, now) =
        (format!("provision-{key}[{}]", object.meta.uid), cx.gather(|view| view.now().monotonic));
    if !binder.operations.may_run(&name, now) {
        return Ok(Requeue::Forget);
    }
    let plugin = match &chosen {
        Provisioner::External(driver) => driver,
        Provisioner::HostPath => HOST_PATH,
    };
    binder.operations.start(&key, plugin, "provision", now);
    let result = match (&chosen, class) {
        (Provisioner::External(driver), _) => ask_external(cx, claim, driver).await.map(|()| Requeue::Forget),
        (Provisioner::HostPath, Some(class)) => host_path::provision(cx, binder, claim, &class).await,
        (Provisioner::HostPath, None) => Ok(Requeue::Forget),
    };
    binder.operations.record(&name, result.is_ok(), now);
    Ok(result.unwrap_or_else(|_| {
        binder.operations.count_error(cx, &key);
        Requeue::Forget
    }))
}

/// Writes the provisioner's name to a claim and reports what the claim waits for.
async fn ask_external(
    cx: &mut Context<'_>,
    claim: &mut Subject<PersistentVolumeClaim>,
    driver: &str,
) -> Result<(), ApiError> {
    if let Err(error) = set_provisioner(cx, claim, driver).await {
        warn(cx, &claim.object.clone(), format!("Error saving claim: {error}")).await;
        return Err(error);
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{driver}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    let involved = InvolvedObject::of(&*claim.object);
    record(cx, PlannedEvent::normal(involved, "ExternalProvisioning", message)).await;
    Ok(())
}

/// Writes the provisioner's name to a claim, unless it has it.
pub(super) async fn set_provisioner(
    cx: &mut Context<'_>,
    claim: &mut Subject<PersistentVolumeClaim>,
    provisioner: &str,
) -> Result<(), ApiError> {
    if claim.object.annotations.value(STORAGE_PROVISIONER).is_some_and(|value| *value == *provisioner) {
        return Ok(());
    }
    let change = |json: &mut Value| {
        let annotations = &mut json["metadata"]["annotations"];
        annotations[BETA_STORAGE_PROVISIONER] = json!(provisioner);
        annotations[STORAGE_PROVISIONER] = json!(provisioner);
    };
    claim.update(cx, "", "the provisioner is asked for a volume", change).await
}

/// Reports that a claim cannot be provisioned for.
pub(super) async fn warn(cx: &mut Context<'_>, claim: &PersistentVolumeClaim, message: String) {
    record(cx, PlannedEvent::warning(InvolvedObject::of(claim), "ProvisioningFailed", message)).await;
}
