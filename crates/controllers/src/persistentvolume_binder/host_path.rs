//! Volumes that are directories of the controller's own host, for single-node test clusters
//! (`--enable-hostpath-provisioner`).

use std::sync::Arc;

use keleustes_objects::{
    ApiError, ArcStr, ErrorReason, Key, Node, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSource, StorageClass,
};
use keleustes_plan::{
    Context, InvolvedObject, OnFailure, Outcome, Plan, PlannedEvent, ReconcileError, Requeue, Write,
};
use serde_json::{Value, json};

use super::Binder;
use super::claims::record;
use super::live::{Subject, remove_field};
use super::metrics::STORAGE_OPERATION_SECONDS;
use super::names::{BOUND_BY_CONTROLLER, HOST_PATH, IN_TREE_FINALIZER, PROVISIONED_BY, SELECTED_NODE, YES};
use super::provision::{set_provisioner, warn};
use super::reclaim::{set_failed, still_released};

/// The file system of the controller's host.
pub trait HostFiles: Send + Sync {
    /// Creates a directory and its parents with mode 0750.
    ///
    /// # Errors
    /// If it cannot be created.
    fn create_directory(&self, path: &str) -> Result<(), String>;
    /// Removes a path with everything below it. A path that does not exist is no error.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove_all(&self, path: &str) -> Result<(), String>;
    /// A new random UUID.
    fn new_uuid(&self) -> String;
}

/// An operation failed; what a user sees of it has been recorded.
fn failed(message: impl Into<String>) -> ApiError {
    ApiError::transport(ErrorReason::Other, message)
}

/// Provisions a directory for a claim.
///
/// Parity: provisionClaimOperation of pv_controller.go. The volume is created once; the original tries five times in a
/// row. A create that fails removes the directory, and the operation is tried again after its backoff.
pub(super) async fn provision(
    cx: &mut Context<'_>,
    binder: &Binder,
    claim: &mut Subject<PersistentVolumeClaim>,
    class: &StorageClass,
) -> Result<Requeue, ApiError> {
    if claim.object.spec.has_data_source {
        let message = format!(
            "plugin {HOST_PATH:?} is not a CSI plugin. Only CSI plugin can provision a claim with a datasource"
        );
        warn(cx, &claim.object.clone(), message.clone()).await;
        return Err(failed(message));
    }
    set_provisioner(cx, claim, HOST_PATH).await?;
    let object = claim.object.clone();
    let name = format!("pvc-{}", object.meta.uid);
    let existing = cx.fetch::<PersistentVolume>(&Key::cluster(name.as_str())).await;
    if existing.map_err(|error| failed(error.because))?.is_some() {
        return Ok(Requeue::Forget);
    }
    if let Some(message) = refusal(cx, binder, &object, class) {
        warn(cx, &object, message.clone()).await;
        return Err(failed(message));
    }
    let path = match create_directory(cx, binder, &object) {
        Ok(path) => path,
        Err(why) => {
            reschedule(cx, claim).await;
            let class = class.meta.key.name.as_str();
            let message = format!("Failed to provision volume with StorageClass {class:?}: {why}");
            warn(cx, &object, message.clone()).await;
            return Err(failed(message));
        }
    };
    create_volume(cx, binder, &object, class, &name, &path).await
}

/// Why a claim cannot be provisioned for, before anything is created.
fn refusal(
    cx: &mut Context<'_>,
    binder: &Binder,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
) -> Option<String> {
    if !class.mount_options.is_empty() {
        let options: Vec<&str> = class.mount_options.iter().map(ArcStr::as_str).collect();
        return Some(format!(
            "Mount options are not supported by the provisioner but StorageClass {:?} has mount options [{}]",
            class.meta.key.name.as_str(),
            options.join(" ")
        ));
    }
    if !binder.options.enable_hostpath_provisioner {
        return Some(format!(
            "Failed to create provisioner: provisioning in volume plugin {HOST_PATH:?} is disabled"
        ));
    }
    let node = claim.annotations.value(SELECTED_NODE)?;
    let exists = cx.gather(|view| view.get::<Node>(&Key::cluster(node.clone())).is_some());
    (!exists).then(|| format!("Failed to get target node: node {:?} not found", node.as_str()))
}

fn create_directory(
    cx: &mut Context<'_>,
    binder: &Binder,
    claim: &PersistentVolumeClaim,
) -> Result<String, String> {
    let created = if claim.spec.volume_mode.as_ref().is_some_and(|mode| *mode == "Block") {
        Err(format!("{HOST_PATH} does not support block volume provisioning"))
    } else {
        let files = binder.options.host_files.as_ref().ok_or("the host's file system is not accessible")?;
        let path = format!("/tmp/hostpath_pv/{}", files.new_uuid());
        if !cx.may_change_host() {
            return Ok(path);
        }
        files.create_directory(&path).map(|()| path)
    };
    measure(cx, "volume_provision", created.is_ok());
    created
}

fn measure(cx: &mut Context<'_>, operation: &str, succeeded: bool) {
    // The directory operations take no measurable time of the controller's clock.
    let status = if succeeded { "success" } else { "fail-unknown" };
    cx.measure(STORAGE_OPERATION_SECONDS.measurement(&[HOST_PATH, operation, status, "false"], 0.0));
}

/// Removes `selected-node`, so that the scheduler chooses again.
async fn reschedule(cx: &mut Context<'_>, claim: &mut Subject<PersistentVolumeClaim>) {
    if claim.object.annotations.value(SELECTED_NODE).is_some() {
        let change = |json: &mut Value| remove_field(&mut json["metadata"]["annotations"], SELECTED_NODE);
        // The next sync fails again and removes it then.
        let _ = claim.update(cx, "", "provisioning on the selected node failed", change).await;
    }
}

async fn create_volume(
    cx: &mut Context<'_>,
    binder: &Binder,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    name: &str,
    path: &str,
) -> Result<Requeue, ApiError> {
    let write = Write::create::<PersistentVolume>(Key::cluster(name), body(claim, class, name, path))
        .on_failure(OnFailure::ReturnOutcome)
        .because("a directory was provisioned for the claim");
    let outcome = cx.apply(Plan::of(write)).await.outcomes.pop();
    let error = match outcome {
        Some(Outcome::Failed(error)) if error.reason == ErrorReason::AlreadyExists => {
            return Ok(Requeue::Forget);
        }
        Some(Outcome::Failed(error)) => error,
        Some(Outcome::NotSent) => {
            return Err(ApiError::transport(ErrorReason::Other, "the request was not sent"));
        }
        _ => {
            let message = format!("Successfully provisioned volume {name} using {HOST_PATH}");
            let involved = InvolvedObject::of(claim);
            record(cx, PlannedEvent::normal(involved, "ProvisioningSucceeded", message)).await;
            return Ok(Requeue::Forget);
        }
    };
    let key = claim.meta.key.to_string();
    let message =
        format!("Error creating provisioned PV object for claim {key}: {error}. Deleting the volume.");
    warn(cx, claim, message).await;
    if let Some(Err(why)) = binder.options.host_files.as_ref().map(|files| files.remove_all(path)) {
        let message =
            format!("Error cleaning provisioned volume for claim {key}: {why}. Please delete manually.");
        let event = PlannedEvent::warning(InvolvedObject::of(claim), "ProvisioningCleanupFailed", message);
        record(cx, event).await;
    }
    Err(error)
}

fn body(claim: &PersistentVolumeClaim, class: &StorageClass, name: &str, path: &str) -> Value {
    let policy = class.reclaim_policy.as_ref().map_or("Delete", |policy| policy.as_str());
    let key = &claim.meta.key;
    let request = claim.spec.resources.requests.text("storage").map_or("0", ArcStr::as_str);
    let mut body = json!({
        "metadata": {
            "name": name,
            "annotations": {
                "kubernetes.io/createdby": "hostpath-dynamic-provisioner",
                BOUND_BY_CONTROLLER: YES,
                PROVISIONED_BY: HOST_PATH,
            },
        },
        "spec": {
            "persistentVolumeReclaimPolicy": policy,
            "accessModes": claim.spec.access_modes,
            "capacity": {"storage": request},
            "hostPath": {"path": path},
            "storageClassName": claim.class(),
            "claimRef": {
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": key.namespace, "name": key.name,
                "uid": claim.meta.uid, "resourceVersion": claim.meta.resource_version,
            },
        },
        "status": {"phase": "Bound"},
    });
    if policy == "Delete" {
        body["metadata"]["finalizers"] = json!([IN_TREE_FINALIZER]);
    }
    body
}

/// Deletes the directory of a released volume, then the finalizer and the object.
pub(super) async fn delete(
    cx: &mut Context<'_>,
    binder: &Binder,
    volume: &mut Subject<PersistentVolume>,
) -> Result<(), ReconcileError> {
    let Some(live) = still_released(cx, &volume.object.clone()).await else { return Ok(()) };
    let removed = match remove_directory(cx, binder, &live) {
        Ok(()) => remove_finalizer(cx, live).await.map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    let removed = match removed {
        Ok(removed) => removed,
        Err(why) => {
            set_failed(cx, volume, "VolumeFailedDelete", &why).await?;
            return Err(ReconcileError::because(why));
        }
    };
    // A user may have changed the reclaim policy in the meantime.
    let write = Write::delete(&*removed)
        .resource_version_precondition(&removed.meta.resource_version)
        .on_failure(OnFailure::LogOnly)
        .because("the directory of the released volume was removed");
    cx.apply(Plan::of(write)).await;
    Ok(())
}

/// Removes the directory, if it is one that this plugin may remove.
fn remove_directory(cx: &mut Context<'_>, binder: &Binder, volume: &PersistentVolume) -> Result<(), String> {
    let PersistentVolumeSource::HostPath { path } = &volume.spec.source else {
        let name = volume.meta.key.name.as_str();
        return Err(format!(
            "failed to create deleter for volume {name:?}: spec.PersistentVolumeSource.HostPath is nil"
        ));
    };
    let removed = match binder.options.host_files.as_ref() {
        _ if !is_removable(path) => {
            Err(format!("host_path deleter only supports /tmp/.+ but received provided {path}"))
        }
        None => Err("the host's file system is not accessible".to_owned()),
        Some(_) if !cx.may_change_host() => return Ok(()),
        Some(files) => files.remove_all(path),
    };
    measure(cx, "volume_delete", removed.is_ok());
    removed
}

/// Whether a path contains a match of `/tmp/.+`, anywhere. Parity: hostPathDeleter.
fn is_removable(path: &str) -> bool {
    // In Go's syntax `.` does not match a newline.
    path.match_indices("/tmp/")
        .any(|(at, matched)| path[at + matched.len()..].chars().next().is_some_and(|next| next != '\n'))
}

/// Returns the volume as it is stored without the finalizer.
async fn remove_finalizer(
    cx: &mut Context<'_>,
    volume: PersistentVolume,
) -> Result<Arc<PersistentVolume>, ApiError> {
    let mut subject = Subject::cached(Arc::new(volume));
    let finalizers = subject.object.meta.finalizers.clone();
    if finalizers.iter().any(|one| *one == IN_TREE_FINALIZER) {
        let kept: Vec<_> = finalizers.iter().filter(|one| **one != IN_TREE_FINALIZER).collect();
        let change = |json: &mut Value| json["metadata"]["finalizers"] = json!(kept);
        subject.update(cx, "", "the directory of the volume was removed", change).await?;
    }
    Ok(subject.object)
}
