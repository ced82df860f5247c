//! Recycling: a pod scrubs a released host-path or NFS volume, then the volume is available again.
//!
//! The original waits for the pod in a background task. Here the events of the pod enqueue its volume, and each sync
//! does the next step; the pod that this process created is remembered by UID.

use std::sync::Arc;

use keleustes_objects::{
    ErrorReason, Key, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource, Pod, PodPhase,
    Quantity,
};
use keleustes_plan::{Context, InvolvedObject, OnFailure, Outcome, Plan, PlannedEvent, Write};
use serde_json::{Value, json};

use super::claims::record;
use super::live::Subject;
use super::operations::RecyclerPod;
use super::reclaim::{set_failed, still_released};
use super::volumes::unbind;
use super::{Binder, RecyclerOptions};
use crate::pods_by_claim::pods_of_claim;

/// Prefix of the names of recycler pods; the name of the volume follows.
pub(super) const POD_NAME_PREFIX: &str = "recycler-for-";

/// The recycler pod of this process that scrubs a volume.
pub(super) fn running_pod(binder: &Binder, volume: &PersistentVolume) -> Option<RecyclerPod> {
    binder.operations.recycler_pod(&volume.meta.key.name).filter(|pod| pod.volume == volume.meta.uid)
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
            let pod = RecyclerPod { volume: object.meta.uid.clone(), pod: uid };
            binder.operations.set_recycler_pod(&object.meta.key.name, Some(pod));
        }
        Some(Outcome::Failed(error)) if error.reason == ErrorReason::AlreadyExists => {
            delete_old_pod(cx, &key).await;
            fail(cx, volume, "old recycler pod found, will retry later").await;
        }
        Some(Outcome::Failed(error)) => {
            fail(cx, volume, &format!("unexpected error creating recycler pod:  {error}")).await;
        }
        _ => {}
    }
}

/// Deletes a recycler pod that an earlier process or attempt left.
async fn delete_old_pod(cx: &mut Context<'_>, key: &Key) {
    if let Ok(Some(pod)) = cx.fetch::<Pod>(key).await {
        let write = Write::delete(&pod)
            .on_failure(OnFailure::LogOnly)
            .because("a recycler pod of an earlier attempt exists");
        cx.apply(Plan::of(write)).await;
    }
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
    let body = pod_body(&object, &binder.options.recycler);
    let namespace =
        body.as_ref().map_or("default", |body| body["metadata"]["namespace"].as_str().unwrap_or("default"));
    let key = Key::namespaced(namespace, format!("{POD_NAME_PREFIX}{name}").as_str());
    // The item of the volume waits until the cache has observed the created pod, so a missing pod was deleted.
    let pod = cx.gather(|view| view.get::<Pod>(&key).cloned()).filter(|pod| pod.meta.uid == running.pod);
    let Some(pod) = pod else {
        binder.operations.set_recycler_pod(&name, None);
        return fail(cx, volume, "recycler pod was deleted").await;
    };
    let result = match pod.phase {
        PodPhase::Succeeded => Ok(()),
        PodPhase::Failed => Err(failure_message(cx, &key).await),
        _ => return,
    };
    binder.operations.set_recycler_pod(&name, None);
    let deleted = delete_pod(cx, &pod).await;
    match result.and(deleted) {
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

async fn delete_pod(cx: &mut Context<'_>, pod: &Arc<Pod>) -> Result<(), String> {
    let write = Write::delete(&**pod)
        .ignoring_errors(&[ErrorReason::NotFound])
        .on_failure(OnFailure::ReturnOutcome)
        .because("the recycler pod has ended");
    match cx.apply(Plan::of(write)).await.outcomes.pop() {
        Some(Outcome::Failed(error)) => Err(format!("failed to delete recycler pod: {error}")),
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
