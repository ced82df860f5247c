//! Creates the `PersistentVolumeClaim` of each generic ephemeral volume of a pod.
//!
//! The claim is named after the pod and the volume, and the pod owns it. A claim of that name without the pod as
//! controller is never used, changed or deleted. The cache holds only which volumes are ephemeral: the templates of
//! missing claims come from a live read of the pod, so that fields unknown to this program are copied, and nothing is
//! created for a pod that is gone.
//!
//! Parity: pkg/controller/volume/ephemeral.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use keleustes_objects::{
    EphemeralVolumesPod, InternedStr, Key, PersistentVolumeClaim, Pod, PodParts, Resource,
};
use keleustes_plan::{
    Change, Context, Controller, Effects, Grant, InvolvedObject, Loop, Metric, OnFailure, Outcome, Plan,
    PlannedEvent, ReconcileError, Reconciler, Requeue, View, Write,
};
use serde_json::{Value, json};

use crate::pods_by_claim::{BY_CLAIM, ephemeral_claim_name, is_controlled_by, pods_of_claim};

/// Options of the ephemeral volume controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EphemeralVolumeOptions {
    /// The number of workers (`--concurrent-ephemeralvolume-syncs`).
    pub workers: usize,
}

impl Default for EphemeralVolumeOptions {
    fn default() -> Self {
        Self { workers: 5 }
    }
}

static CREATE_TOTAL: Metric = Metric::counter(
    "ephemeral_volume_controller_create_total",
    "Number of PersistentVolumeClaim creation requests",
    &[],
);
static CREATE_FAILURES_TOTAL: Metric = Metric::counter(
    "ephemeral_volume_controller_create_failures_total",
    "Number of PersistentVolumeClaim creation requests that failed",
    &[],
);

/// Builds the controller.
#[must_use]
pub fn controller(options: EphemeralVolumeOptions) -> Controller {
    Controller::new("ephemeral-volume-controller")
        .service_account("ephemeral-volume-controller")
        .event_component("ephemeral_volume")
        .metrics([&CREATE_TOTAL, &CREATE_FAILURES_TOTAL])
        .may_write(&[
            Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
            // The API server asks for it before it accepts `blockOwnerDeletion`.
            Grant { group: "", resource: "pods/finalizers", verbs: &["update"] },
            Grant {
                group: "",
                resource: "persistentvolumeclaims",
                verbs: &["create", "get", "list", "watch"],
            },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::reconciling("ephemeral_volume", EphemeralVolumes)
                .keyed_by::<Pod>()
                .enqueue_on::<Pod>(pod_changed)
                .enqueue_on::<PersistentVolumeClaim>(claim_changed)
                .reads_pod_parts(PodParts::VOLUME_CLAIMS)
                .reads_index(BY_CLAIM)
                .workers(options.workers),
        )
}

/// Enqueues new pods. The volumes of a pod cannot change, and the garbage collector deletes claims with their pod. Two
/// pods of one name may arrive as one update.
fn pod_changed(change: &Change<Pod>, _: &View<'_>, enqueue: &mut Effects) {
    let Some(pod) = change.new() else { return };
    if change.old().is_none_or(|old| old.meta.uid != pod.meta.uid) {
        enqueue_pod(pod, enqueue);
    }
}

/// Enqueues the pods that lost a claim, or that waited for its name.
fn claim_changed(change: &Change<PersistentVolumeClaim>, view: &View<'_>, enqueue: &mut Effects) {
    if change.is_deletion() {
        pods_of_claim(view, &change.latest().meta.key).for_each(|pod| enqueue_pod(pod, enqueue));
    }
}

fn enqueue_pod(pod: &Pod, enqueue: &mut Effects) {
    if !pod.is_terminating() && !pod.spec.ephemeral_volumes().is_empty() {
        enqueue.add(&pod.meta.key);
    }
}

struct EphemeralVolumes;

/// What an ephemeral volume needs, by the cached claims.
enum Step {
    /// Its claim is to be created.
    Create(InternedStr),
    /// Another object has the name of its claim, so it and the later volumes get none.
    NameTaken(InternedStr),
}

impl Reconciler for EphemeralVolumes {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some((pod, steps)) = cx.gather(|view| gather(view, item)) else {
            return Ok(Requeue::Forget);
        };
        let mut templates = None;
        for step in steps {
            match step {
                Step::Create(volume) => {
                    if templates.is_none() {
                        templates = live_templates(cx, &pod).await?;
                    }
                    // The pod is terminating or gone, whatever the cache says.
                    let Some(live) = &templates else { return Ok(Requeue::Forget) };
                    create_claim(cx, &pod, &volume, live.template(&volume)).await?;
                }
                Step::NameTaken(volume) => {
                    let (key, claim) = (&pod.meta.key, ephemeral_claim_name(&pod, &volume));
                    let message = format!(
                        "PVC {}/{claim} was not created for pod {key} (pod is not owner)",
                        key.namespace
                    );
                    record_failure(cx, &pod, &volume, &message).await;
                    let message = format!("pod {key}, ephemeral volume {volume}: {message}");
                    return Err(ReconcileError::because(message));
                }
            }
        }
        Ok(Requeue::Forget)
    }
}

/// A pod that is not terminating, and its ephemeral volumes without a claim of their own, in the order of the spec up to
/// the first whose name is taken.
fn gather(view: &View<'_>, item: &Key) -> Option<(Arc<Pod>, Vec<Step>)> {
    let pod = view.get::<Pod>(item).filter(|pod| !pod.is_terminating())?;
    let mut steps = Vec::new();
    for volume in pod.spec.ephemeral_volumes() {
        let name = ephemeral_claim_name(pod, volume);
        let key = Key { namespace: pod.meta.key.namespace.clone(), name };
        match view.get::<PersistentVolumeClaim>(&key) {
            None => steps.push(Step::Create(volume.clone())),
            Some(claim) if is_controlled_by(claim, pod) => {}
            Some(_) => {
                steps.push(Step::NameTaken(volume.clone()));
                break;
            }
        }
    }
    Some((pod.clone(), steps))
}

/// The live pod with the templates of its claims; `None` if it is gone, replaced or terminating.
async fn live_templates(
    cx: &mut Context<'_>,
    pod: &Pod,
) -> Result<Option<EphemeralVolumesPod>, ReconcileError> {
    let live = cx.fetch::<EphemeralVolumesPod>(&pod.meta.key).await?;
    Ok(live.filter(|live| live.meta.uid == pod.meta.uid && live.meta.deletion_timestamp.is_none()))
}

async fn create_claim(
    cx: &mut Context<'_>,
    pod: &Pod,
    volume: &InternedStr,
    template: &Value,
) -> Result<(), ReconcileError> {
    let name = ephemeral_claim_name(pod, volume);
    let key = Key { namespace: pod.meta.key.namespace.clone(), name: name.clone() };
    let write = Write::create::<PersistentVolumeClaim>(key, claim_of(pod, &name, template))
        .on_failure(OnFailure::ReturnOutcome)
        .because("an ephemeral volume has no claim");
    let mut plan = Plan::of(write);
    plan.measure(CREATE_TOTAL.increment(&[]));
    let applied = cx.apply(plan).await;
    if let [Outcome::Failed(error)] = applied.outcomes.as_slice() {
        cx.measure(CREATE_FAILURES_TOTAL.increment(&[]));
        let message = format!("create PVC {name}: {error}");
        record_failure(cx, pod, volume, &message).await;
        let message = format!("pod {}, ephemeral volume {volume}: {message}", pod.meta.key);
        return Err(ReconcileError::from_api_error(error, message));
    }
    applied.all_done()
}

fn claim_of(pod: &Pod, name: &str, template: &Value) -> Value {
    let Resource { version, kind, .. } = <Pod as keleustes_objects::Kind>::RESOURCE;
    let mut claim = json!({
        "metadata": {
            "name": name,
            "namespace": pod.meta.key.namespace,
            "ownerReferences": [{
                "apiVersion": version, "kind": kind, "name": pod.meta.key.name, "uid": pod.meta.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
    });
    for field in ["annotations", "labels"] {
        if !template["metadata"][field].is_null() {
            claim["metadata"][field] = template["metadata"][field].clone();
        }
    }
    claim
}

async fn record_failure(cx: &mut Context<'_>, pod: &Pod, volume: &str, message: &str) {
    let mut plan = Plan::none();
    let message = format!("ephemeral volume {volume}: {message}");
    plan.record(PlannedEvent::warning(InvolvedObject::of(pod), "FailedBinding", message));
    // A plan without writes cannot fail.
    let _ = cx.apply(plan).await;
}
