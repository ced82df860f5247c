//! Hands the growth of a `PersistentVolumeClaim` over to the external resizer.
//!
//! A claim that asks for more than it has gets an event. Claims of volumes that moved from an in-tree plugin to a CSI
//! driver also get an annotation with the name of that driver. Only FlexVolumes, which grow on their node, have their
//! sizes written here.
//!
//! Parity: pkg/controller/volume/expand.

mod flex;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use keleustes_objects::{
    ApiError, ErrorReason, Key, Object as _, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource,
};
use keleustes_plan::{
    Change, Context, Controller, Effects, Grant, InvolvedObject, Loop, OnFailure, Outcome, PatchKind, Plan,
    PlannedEvent, ReconcileError, Reconciler, Requeue, View, Write,
};
use serde_json::{Value, json};

use crate::csi_translation;

/// On a claim: the resizer that expands its volume.
const STORAGE_RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// On a volume: the capacity of its claim before an expansion that a node has to finish.
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

const EXTERNAL_EXPANDING: &str = "ExternalExpanding";

/// The number of workers, which no flag changes.
const WORKERS: usize = 10;

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("persistentvolume-expander-controller")
        .service_account("expand-controller")
        .event_component("volume_expand")
        .may_write(&[
            Grant {
                group: "",
                resource: "persistentvolumes",
                verbs: &["get", "list", "patch", "update", "watch"],
            },
            Grant { group: "", resource: "persistentvolumeclaims/status", verbs: &["patch", "update"] },
            Grant { group: "", resource: "persistentvolumeclaims", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::reconciling("volume_expand", Expander)
                .keyed_by::<PersistentVolumeClaim>()
                .enqueue_on::<PersistentVolumeClaim>(claim_changed)
                .workers(WORKERS),
        )
}

/// Enqueues bound claims that are new, are deleted, ask for more or have become larger.
fn claim_changed(change: &Change<PersistentVolumeClaim>, _: &View<'_>, enqueue: &mut Effects) {
    let claim = change.latest();
    let grows = match (change.old(), change.new()) {
        (Some(old), Some(new)) => {
            let request = |claim: &PersistentVolumeClaim| claim.spec.resources.requests.storage();
            let capacity = |claim: &PersistentVolumeClaim| claim.status.capacity.storage();
            request(new) > request(old) || capacity(new) > capacity(old)
        }
        _ => true,
    };
    if claim.phase == "Bound" && grows {
        enqueue.add(&claim.meta.key);
    }
}

struct Expander;

impl Reconciler for Expander {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some(claim) = cx.gather(|view| view.get::<PersistentVolumeClaim>(item).cloned()) else {
            return Ok(Requeue::Forget);
        };
        let volume = live_volume(cx, &claim).await?;
        let is_bound = volume.spec.claim_ref.as_ref().is_some_and(|reference| {
            reference.namespace == claim.meta.key.namespace && reference.uid == claim.meta.uid
        });
        if !is_bound {
            let message = format!("persistent Volume is not bound to PVC being updated : {item}");
            return Err(ReconcileError::because(message));
        }
        let (wanted, has) = (claim.spec.resources.requests.storage(), claim.status.capacity.storage());
        if wanted <= has && volume.annotations.value(PRE_RESIZE_CAPACITY).is_none() {
            return Ok(Requeue::Forget);
        }
        if let Some((plugin, driver)) = csi_translation::plugin_and_driver(&volume.spec.source) {
            annotate(cx, &claim, plugin, driver).await?;
        } else if let PersistentVolumeSource::FlexVolume { driver } = &volume.spec.source {
            flex::expand(cx, &claim, &volume, driver).await?;
        } else {
            let message = "waiting for an external controller to expand this PVC";
            record(cx, external_expanding(&claim, message)).await;
        }
        Ok(Requeue::Forget)
    }
}

/// The live volume of a claim.
async fn live_volume(
    cx: &mut Context<'_>,
    claim: &PersistentVolumeClaim,
) -> Result<PersistentVolume, ReconcileError> {
    let name = &claim.spec.volume_name;
    if name.is_empty() {
        return Err(ReconcileError::because("failed to get PV \"\": resource name may not be empty"));
    }
    let key = Key::cluster(name.clone());
    match cx.fetch::<PersistentVolume>(&key).await {
        Ok(Some(volume)) => Ok(volume),
        Ok(None) => {
            let message = format!("failed to get PV {name:?}: persistentvolumes {name:?} not found");
            Err(ReconcileError::because(message))
        }
        Err(mut error) => {
            let cause = error.because.strip_prefix(&*format!("reading {key}: ")).unwrap_or(&error.because);
            error.because = format!("failed to get PV {name:?}: {cause}");
            Err(error)
        }
    }
}

/// Names the external resizer of a migrated volume in the claim.
async fn annotate(
    cx: &mut Context<'_>,
    claim: &Arc<PersistentVolumeClaim>,
    plugin: &str,
    driver: &str,
) -> Result<(), ReconcileError> {
    let message =
        format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc");
    record(cx, external_expanding(claim, &message)).await;
    let version = claim.meta.resource_version.to_string();
    let body = json!({"metadata": {"annotations": {STORAGE_RESIZER: driver}}});
    let patched = patch_claim(cx, claim, &version, body, "the external resizer expands the volume").await;
    let Err(error) = patched else { return Ok(()) };
    let key = claim.key();
    let message = format!(
        "error setting resizer annotation to pvc {key}, with error patchPVCStatus failed to patch PVC {:?}: {error}",
        key.name.as_str()
    );
    let event = PlannedEvent::warning(InvolvedObject::of(&**claim), EXTERNAL_EXPANDING, message.clone());
    record(cx, event).await;
    Err(ReconcileError::from_api_error(&error, message))
}

fn external_expanding(claim: &PersistentVolumeClaim, message: &str) -> PlannedEvent {
    PlannedEvent::normal(InvolvedObject::of(claim), EXTERNAL_EXPANDING, message)
}

async fn record(cx: &mut Context<'_>, event: PlannedEvent) {
    let mut plan = Plan::none();
    plan.record(event);
    // A plan without writes cannot fail.
    let _ = cx.apply(plan).await;
}

/// Patches the status of a claim, which accepts annotations, too, and returns the new resourceVersion. A claim with
/// another resourceVersion than this one is not changed.
async fn patch_claim(
    cx: &mut Context<'_>,
    claim: &PersistentVolumeClaim,
    resource_version: &str,
    mut body: Value,
    because: &'static str,
) -> Result<String, ApiError> {
    body["metadata"]["resourceVersion"] = json!(resource_version);
    let write = Write::patch(claim, PatchKind::Strategic, body).on_subresource("status").because(because);
    send(cx, write).await
}

/// Sends one write and returns the new resourceVersion.
async fn send(cx: &mut Context<'_>, write: Write) -> Result<String, ApiError> {
    let applied = cx.apply(Plan::of(write.on_failure(OnFailure::ReturnOutcome))).await;
    match applied.outcomes.into_iter().next() {
        Some(Outcome::Failed(error)) => Err(error),
        Some(Outcome::Done { resource_version, .. }) => Ok(resource_version.to_string()),
        Some(Outcome::NotSent) => Err(ApiError::transport(ErrorReason::Other, "the request was not sent")),
        _ => Ok(String::new()),
    }
}
