//! The queue of claims: matching, binding, asking for provisioning, and claims that lost their volume.

use std::sync::Arc;

use keleustes_objects::{
    ArcStr, InternedStr, Key, PersistentVolume, PersistentVolumeClaim, StorageClass, Time,
};
use keleustes_plan::{
    Context, InvolvedObject, Plan, PlannedEvent, ReconcileError, Reconciler, Requeue, View,
};
use serde_json::{Value, json};

use super::bind::{bind, set_claim_status, unbound_status};
use super::live::{Subject, confirm, retry};
use super::matching::{find_best_match, is_volume_bound_to, why_unsatisfied};
use super::metrics::{RETROACTIVE_CLASS_ERRORS, RETROACTIVE_CLASSES};
use super::names::{BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE};
use super::{Binder, gauges, migration, provision};
use crate::pods_by_claim::pods_of_claim;

/// Reconciles claims.
pub(super) struct ClaimReconciler(pub(super) Binder);

type Claim = Subject<PersistentVolumeClaim>;

impl Reconciler for ClaimReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        gauges::refresh(cx, &self.0.gauges);
        let Some(claim) = cx.gather(|view| view.get::<PersistentVolumeClaim>(item).cloned()) else {
            self.0.operations.forget(&item.to_string());
            return Ok(Requeue::Forget);
        };
        let mut claim = Subject::cached(claim);
        if let Some(change) = migration::of_claim(&claim.object) {
            let because = "the plugin of the claim is migrated to a CSI driver or not";
            let updated = claim.update(cx, "", because, |json| change.apply(json)).await;
            updated.map_err(|error| {
                let text =
                    format!("persistent Volume Controller can't anneal migration annotations: {error}");
                ReconcileError::from_api_error(&error, text)
            })?;
        }
        if claim.object.annotations.value(BIND_COMPLETED).is_some() {
            sync_bound(cx, &mut claim).await?;
        } else if claim.object.spec.volume_name.is_empty() {
            return self.sync_unbound(cx, &mut claim).await;
        } else {
            sync_named(cx, &mut claim).await?;
        }
        Ok(Requeue::Forget)
    }
}

impl ClaimReconciler {
    /// A claim that takes any volume.
    async fn sync_unbound(&self, cx: &mut Context<'_>, claim: &mut Claim) -> Result<Requeue, ReconcileError> {
        let object = claim.object.clone();
        let key = object.meta.key.to_string();
        let is_delayed = cx.gather(|view| is_delayed(view, &object)).map_err(ReconcileError::because)?;
        let found = cx.gather(|view| {
            find_best_match(&object, view.all::<PersistentVolume>(), is_delayed).map(|found| found.cloned())
        });
        let found = found.map_err(|error| {
            ReconcileError::because(format!(
                "error finding PV for claim {key:?}: error creating internal label selector for claim: {key}: {error}"
            ))
        })?;
        if let Some(volume) = found {
            let bound = bind(cx, volume, claim).await;
            let now = cx.gather(|view| view.now().monotonic);
            match &bound {
                Ok(()) => self.0.operations.finish(cx, &key, now),
                Err(_) => self.0.operations.count_error(cx, &key),
            }
            return bound.map(|()| Requeue::Forget);
        }
        if assign_default_class(cx, claim).await? {
            return Ok(Requeue::Forget);
        }
        if is_delayed && object.annotations.value(SELECTED_NODE).is_none() {
            record(cx, cx.gather(|view| waiting_event(view, &object))).await;
        } else if !object.class().is_empty() {
            return provision::provision(cx, &self.0, claim).await;
        } else {
            let message = "no persistent volumes available for this claim and no storage class is set";
            record(cx, PlannedEvent::normal(InvolvedObject::of(&*object), "FailedBinding", message)).await;
        }
        set_claim_status(cx, claim, unbound_status(&object, "Pending")).await?;
        Ok(Requeue::Forget)
    }
}

/// A claim that names its volume and is not marked as bound.
async fn sync_named(cx: &mut Context<'_>, claim: &mut Claim) -> Result<(), ReconcileError> {
    let object = claim.object.clone();
    let Some(volume) = cx.gather(|view| volume_of(view, &object)) else {
        return set_claim_status(cx, claim, unbound_status(&object, "Pending")).await;
    };
    let name = volume.meta.key.name.as_str();
    let Some(claim_ref) = &volume.spec.claim_ref else {
        let Some(why) = why_unsatisfied(&volume, &object) else { return bind(cx, volume, claim).await };
        let message = format!("Cannot bind to requested volume {name:?}: {why}");
        record(cx, PlannedEvent::warning(InvolvedObject::of(&*object), "VolumeMismatch", message)).await;
        return set_claim_status(cx, claim, unbound_status(&object, "Pending")).await;
    };
    if is_volume_bound_to(&volume, &object) {
        return bind(cx, volume, claim).await;
    }
    let message = format!("volume {name:?} already bound to a different claim.");
    record(cx, PlannedEvent::warning(InvolvedObject::of(&*object), "FailedBinding", message)).await;
    if object.annotations.value(BOUND_BY_CONTROLLER).is_none() {
        return set_claim_status(cx, claim, unbound_status(&object, "Pending")).await;
    }
    // The binder chose this volume, so `bind-completed` was removed by hand. Nothing is changed.
    Err(ReconcileError::because(format!(
        "invalid binding of claim \"{}\" to volume {name:?}: volume already claimed by \"{}/{}\"",
        object.meta.key, claim_ref.namespace, claim_ref.name
    )))
}

/// A claim that was bound before.
async fn sync_bound(cx: &mut Context<'_>, claim: &mut Claim) -> Result<(), ReconcileError> {
    let object = claim.object.clone();
    if object.spec.volume_name.is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return set_lost(cx, claim, None, "ClaimLost", message).await;
    }
    let volume = cx.gather(|view| volume_of(view, &object));
    let Some(volume) = volume else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return set_lost(cx, claim, None, "ClaimLost", message).await;
    };
    match &volume.spec.claim_ref {
        Some(claim_ref) if claim_ref.uid != object.meta.uid => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            set_lost(cx, claim, Some(&*volume), "ClaimMisbound", message).await
        }
        _ => bind(cx, volume, claim).await,
    }
}

/// Sets phase Lost with an event, unless the claim is Lost already.
///
/// The volume that the decision has seen is compared with that of the API server first. The original trusts its own cache; a
/// claim is never declared Lost here because the cache of volumes is behind that of claims.
async fn set_lost(
    cx: &mut Context<'_>,
    claim: &mut Claim,
    volume: Option<&PersistentVolume>,
    reason: &str,
    message: &str,
) -> Result<(), ReconcileError> {
    let object = claim.object.clone();
    if object.phase == "Lost" {
        return Ok(());
    }
    if !object.spec.volume_name.is_empty() {
        let key = Key::cluster(object.spec.volume_name.clone());
        confirm(cx, &key, volume).await.map_err(|error| retry(&error))?;
    }
    set_claim_status(cx, claim, unbound_status(&object, "Lost")).await?;
    record(cx, PlannedEvent::warning(InvolvedObject::of(&*claim.object), reason, message)).await;
    Ok(())
}

/// Gives the default class to a claim without a class, and returns whether it did.
async fn assign_default_class(cx: &mut Context<'_>, claim: &mut Claim) -> Result<bool, ReconcileError> {
    let object = claim.object.clone();
    let has_class = object.spec.storage_class_name.is_some()
        || object.annotations.value(keleustes_objects::annotations::BETA_STORAGE_CLASS).is_some();
    if has_class {
        return Ok(false);
    }
    let Some(class) = cx.gather(default_class) else { return Ok(false) };
    let change = |json: &mut Value| json["spec"]["storageClassName"] = json!(class);
    let because = "no volume without a class fits, and there is a default class";
    let updated = claim.update(cx, "", because, change).await;
    cx.measure(RETROACTIVE_CLASSES.increment(&[]));
    updated.map(|()| true).map_err(|error| {
        cx.measure(RETROACTIVE_CLASS_ERRORS.increment(&[]));
        let key = object.meta.key.to_string();
        let text = format!("can't update PersistentVolumeClaim[{key:?}]: {error}");
        ReconcileError { because: text, ..retry(&error) }
    })
}

/// The default class: the newest one, then the first by name.
fn default_class(view: &View<'_>) -> Option<ArcStr> {
    let defaults = view.all::<StorageClass>().filter(|class| class.is_default);
    let newest_first = |class: &&Arc<StorageClass>| {
        let created = class.meta.creation_timestamp.map_or(i64::MIN, Time::unix_seconds);
        (std::cmp::Reverse(created), class.meta.key.name.clone())
    };
    defaults.min_by_key(newest_first).map(|class| class.meta.key.name.clone())
}

/// Whether the scheduler chooses the volume of a claim.
///
/// # Errors
/// If the class has no binding mode, which the API server defaults.
fn is_delayed(view: &View<'_>, claim: &PersistentVolumeClaim) -> Result<bool, String> {
    let Some(class) = class_of(view, claim) else { return Ok(false) };
    let name = class.meta.key.name.as_str();
    let mode: &InternedStr = class
        .volume_binding_mode
        .as_ref()
        .ok_or_else(|| format!("VolumeBindingMode not set for StorageClass {name:?}"))?;
    Ok(*mode == "WaitForFirstConsumer")
}

/// The StorageClass of a claim, if it names one that exists.
pub(super) fn class_of(view: &View<'_>, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    let name = Some(claim.class()).filter(|name| !name.is_empty())?;
    view.get::<StorageClass>(&Key::cluster(name)).cloned()
}

fn volume_of(view: &View<'_>, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
    view.get::<PersistentVolume>(&Key::cluster(claim.spec.volume_name.clone())).cloned()
}

/// What a claim with delayed binding waits for.
fn waiting_event(view: &View<'_>, claim: &PersistentVolumeClaim) -> PlannedEvent {
    let pods = pods_of_claim(view, &claim.meta.key);
    let waiting = pods.filter(|pod| !pod.is_terminated() && pod.node_name.is_empty());
    let names: Vec<&str> = waiting.map(|pod| pod.meta.key.name.as_str()).collect();
    let (reason, message) = match &names[..] {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [name] => ("WaitForPodScheduled", format!("waiting for pod {name} to be scheduled")),
        names => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", names.join(","))),
    };
    PlannedEvent::normal(InvolvedObject::of(claim), reason, message)
}

/// Records an event.
pub(super) async fn record(cx: &mut Context<'_>, event: PlannedEvent) {
    let mut plan = Plan::none();
    plan.record(event);
    // A plan without writes cannot fail.
    cx.apply(plan).await;
}
