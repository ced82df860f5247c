//! Recycling: a pod scrubs a released host-path or NFS volume, then the volume is available again.
//!
//! The original waits for the pod in a background task. Here the events of the pod enqueue its volume, and each sync
//! does the next step; the pod that this process created is remembered by UID.

use std::sync::Arc;

use keleustes_objects::{
    ApiError, ErrorReason, Key, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource, Pod,
    PodPhase, Quantity,
};
use keleustes_plan::{
    Context, InvolvedObject, OnFailure, Outcome, Plan, PlannedEvent, ReconcileError, Write,
};
use serde_json::{Value, json};

use super::claims::record;
use super::live::Subject;
use super::operations::RecyclerPod;
use super::reclaim::{set_failed, still_released};
use super::volumes::{is_released_or_failed, unbind};
use super::{Binder, RecyclerOptions};
use crate::pods_by_claim::pods_of_claim;

/// Prefix of the names of recycler pods; the name of the volume follows.
pub(super) const POD_NAME_PREFIX: &str = "recycler-for-";

/// The recycler pod of this process that scrubs a volume.
pub(super) fn running_pod(binder: &Binder, volume: &PersistentVolume) -> Option<RecyclerPod> {
    binder.operations.recycler_pod(&volume.meta.key.name).filter(|pod| pod.volume == volume.meta.uid)
}

/// Gives up a recycler pod whose volume is no longer released: it may be in use again, and is not made available while the
/// pod may go on. The pod of a deleted volume ends by itself and is deleted then.
pub(super) async fn abandon_outdated(
    cx: &mut Context<'_>,
    binder: &Binder,
    name: &str,
    volume: Option<&PersistentVolume>,
) -> Result<(), ReconcileError> {
    let Some(running) = binder.operations.recycler_pod(name) else { return Ok(()) };
    if volume.is_some_and(|volume| volume.meta.uid == running.volume && is_released(volume)) {
        return Ok(());
    }
    if let Some(pod) = cached_pod(cx, &running) {
        if volume.is_none() && !pod.is_terminated() {
            return Ok(());
        }
        let write = Write::delete(&*pod)
            .ignoring_errors(&[ErrorReason::NotFound])
            .because("the volume of the recycler pod is not released any more");
        cx.apply(Plan::of(write)).await.all_done()?;
    }
    binder.operations.set_recycler_pod(name, None);
    Ok(())
}

/// Whether a volume keeps the claim that it was released from.
fn is_released(volume: &PersistentVolume) -> bool {
    let names_claim = volume.spec.claim_ref.as_ref().is_some_and(|claim_ref| !claim_ref.uid.is_empty());
    names_claim && is_released_or_failed(volume)
}

/// The recycler pod of this process, if it still exists.
fn cached_pod(cx: &mut Context<'_>, running: &RecyclerPod) -> Option<Arc<Pod>> {
    cx.gather(|view| view.get::<Pod>(&running.key).cloned()).filter(|pod| pod.meta.uid == running.pod)
}

/// One step of the recycling of a released volume. Errors are not those of the sync, which is repeated at every resync.
pub(super) async fn recycle(cx: &mut Context<'_>, binder: &Binder, volume: &mut Subject<PersistentVolume>) {
    match running_pod(binder, &volume.object) {
        Some(pod) => await_pod(cx, binder, volume, &pod).await,
        None => start(cx, binder, volume).await,
    }
}

/// Creates the recycler pod.
async fn start(cx: &mut Context<'_>, binder: &Binder, volume: &mut Subject<PersistentVolume>) {
    let object = volume.object.clone();
    let Some(live) = still_released(cx, &object).await else { return };
    if live.meta.resource_version != object.meta.resource_version {
        // The event of the change enqueues the volume again.
        return;
    }
    if let Some(message) = cx.gather(|view| {
        let claim = live.spec.claim_ref.as_ref()?;
        let key = Key::namespaced(claim.namespace.clone(), claim.name.clone());
        let is_cached = view.get::<PersistentVolumeClaim>(&key).is_some();
        let users = pods_of_claim(view, &key).filter(|pod| !pod.is_terminated());
        let mut users: Vec<String> = users.map(|pod| pod.meta.key.to_string()).collect();
        users.sort();
        (!users.is_empty() && !is_cached).then(|| format!("Volume is used by pods: {}", users.join(",")))
    }) {
        record(cx, PlannedEvent::normal(InvolvedObject::of(&live), "VolumeFailedRecycle", message)).await;
        return;
    }
    let Some(body) = pod_body(&live, &binder.options.recycler) else {
        let message = "No recycler plugin found for the volume!";
        // The next sync tries again.
        let _ = set_failed(cx, volume, "VolumeFailedRecycle", message).await;
        return;
    };
    create_pod(cx, binder, volume, body).await;
}

async fn create_pod(
    cx: &mut Context<'_>,
    binder: &Binder,
    volume: &mut Subject<PersistentVolume>,
    body: Value,
) {
    let object = volume.object.clone();
    let namespace = body["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = Key::namespaced(namespace.as_str(), name.as_str());
    let write = Write::create::<Pod>(key.clone(), body)
        .on_failure(OnFailure::ReturnOutcome)
        .because("the released volume is recycled");
    match cx.apply(Plan::of(write)).await.outcomes.pop() {
        Some(Outcome::Done { uid, .. }) => {
            let volume_version = object.meta.resource_version.clone();
            let pod = RecyclerPod { volume: object.meta.uid.clone(), volume_version, key, pod: uid };
            binder.operations.set_recycler_pod(&object.meta.key.name, Some(pod));
        }
        Some(Outcome::Failed(error)) if error.reason == ErrorReason::AlreadyExists => {
            let why = match delete_old_pod(cx, &key).await {
                Ok(()) => "old recycler pod found, will retry later".to_owned(),
                Err(error) => format!("failed to delete old recycler pod {key}: {error}"),
            };
            fail(cx, volume, &why).await;
        }
        Some(Outcome::Failed(error)) => {
            fail(cx, volume, &format!("unexpected error creating recycler pod:  {error}")).await;
        }
        _ => {}
    }
}

/// Deletes a recycler pod that an earlier process or attempt left.
async fn delete_old_pod(cx: &mut Context<'_>, key: &Key) -> Result<(), String> {
    let pod = cx.fetch::<Pod>(key).await.map_err(|error| error.because)?;
    let Some(pod) = pod else { return Ok(()) };
    let deleted = delete(cx, &pod, "a recycler pod of an earlier attempt exists").await;
    deleted.map_err(|error| error.to_string())
}

/// Looks at the recycler pod and finishes the recycling when it has ended.
async fn await_pod(
    cx: &mut Context<'_>,
    binder: &Binder,
    volume: &mut Subject<PersistentVolume>,
    running: &RecyclerPod,
) {
    let object = volume.object.clone();
    let name = object.meta.key.name.clone();
    // What changed since then may have made it available, and another claim may have used it: it is scrubbed again, or
    // whatever its policy says by now.
    let is_unchanged = object.meta.resource_version == running.volume_version;
    // The item of the volume waits until the cache has observed the created pod, so a missing pod was deleted.
    let Some(pod) = cached_pod(cx, running) else {
        binder.operations.set_recycler_pod(&name, None);
        if is_unchanged {
            fail(cx, volume, "failed to recycle volume: recycler pod was deleted").await;
        }
        return;
    };
    let result = match pod.phase {
        PodPhase::Succeeded => Ok(()),
        PodPhase::Failed => Err(failure_message(cx, &running.key).await),
        _ => return,
    };
    binder.operations.set_recycler_pod(&name, None);
    let deleted = delete(cx, &pod, "the recycler pod has ended").await;
    if !is_unchanged {
        // The event of the deletion enqueues the volume.
        return;
    }
    match result.and(deleted.map_err(|error| format!("failed to delete recycler pod: {error}"))) {
        Ok(()) => {
            let event =
                PlannedEvent::normal(InvolvedObject::of(&*object), "VolumeRecycled", "Volume recycled");
            record(cx, event).await;
            // A conflict means that the volume is scrubbed again.
            let _ = unbind(cx, volume).await;
        }
        Err(why) => fail(cx, volume, &why).await,
    }
}

async fn delete(cx: &mut Context<'_>, pod: &Pod, because: &'static str) -> Result<(), ApiError> {
    let write = Write::delete(pod)
        .ignoring_errors(&[ErrorReason::NotFound])
        .on_failure(OnFailure::ReturnOutcome)
        .because(because);
    match cx.apply(Plan::of(write)).await.outcomes.pop() {
        Some(Outcome::Failed(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Why a recycler pod failed, from its live status.
async fn failure_message(cx: &mut Context<'_>, key: &Key) -> String {
    let mut results =
        cx.io().fetch(&<Pod as keleustes_objects::Kind>::RESOURCE, std::slice::from_ref(key)).await;
    let json = results.pop().and_then(Result::ok).flatten();
    let pod: Option<Value> = json.and_then(|json| serde_json::from_str(&json).ok());
    let message = pod.and_then(|pod| Some(pod["status"]["message"].as_str()?.to_owned()));
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("failed to recycle volume: {message}"),
        None => "failed to recycle volume: pod failed, pod.Status.Message unknown".to_owned(),
    }
}

async fn fail(cx: &mut Context<'_>, volume: &mut Subject<PersistentVolume>, why: &str) {
    let message = format!("Recycle failed: {why}");
    // The next sync tries again.
    let _ = set_failed(cx, volume, "VolumeFailedRecycle", &message).await;
}

/// The recycler pod of a volume, from its own copy of the template; `None` if its source has no recycler.
fn pod_body(volume: &PersistentVolume, options: &RecyclerOptions) -> Option<Value> {
    let (plugin, source) = match &volume.spec.source {
        PersistentVolumeSource::HostPath { path } => {
            (&options.host_path, json!({"hostPath": {"path": path}}))
        }
        PersistentVolumeSource::Nfs { server, path } => {
            (&options.nfs, json!({"nfs": {"server": server, "path": path}}))
        }
        _ => return None,
    };
    let mut pod = plugin.template.clone().unwrap_or_else(default_template);
    pod["metadata"]["name"] = format!("{POD_NAME_PREFIX}{}", volume.meta.key.name).into();
    super::live::remove_field(&mut pod["metadata"], "generateName");
    if pod["metadata"]["namespace"].as_str().is_none_or(str::is_empty) {
        pod["metadata"]["namespace"] = "default".into();
    }
    let gibibytes =
        volume.spec.capacity.storage().whole() / Quantity::parse("1Gi").map_or(i64::MAX, Quantity::whole);
    let deadline = gibibytes.saturating_mul(plugin.increment_seconds.into());
    pod["spec"]["activeDeadlineSeconds"] = deadline.max(plugin.minimum_seconds.into()).into();
    let name = pod["spec"]["volumes"][0]["name"].clone();
    pod["spec"]["volumes"][0] = source;
    pod["spec"]["volumes"][0]["name"] = name;
    Some(pod)
}

/// The pod that is used without a template file.
fn default_template() -> Value {
    json!({
        "metadata": {"namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "vol"}],
            "containers": [{
                "name": "pv-recycler",
                "image": "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6",
                "command": ["/bin/sh"],
                "args": ["-c", "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1"],
                "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    })
}
