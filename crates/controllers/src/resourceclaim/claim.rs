//! The reconcile of a claim: reservations of consumers that are gone or done are removed, a claim without consumers is
//! deallocated, and a generated claim whose pod will not run is deleted.

use std::sync::Arc;

use keleustes_objects::{
    ConsumerReference, ErrorReason, Key, Kind as _, Pod, PodGroup, Resource, ResourceClaim, ResourceVersion,
    Uid,
};
use keleustes_plan::{Context, Memory, OnFailure, Outcome, PatchKind, Plan, ReconcileError, View, Write};
use serde_json::{Value, json};

use super::deleted_objects::DeletedObjects;
use super::owner::owning_pod;
use super::pod::send;
use super::work::is_done;
use super::{DELETE_PROTECTION, ResourceClaimOptions, SCHEDULING_GROUP};

pub(super) async fn reconcile(
    options: &ResourceClaimOptions,
    deleted: &Memory<DeletedObjects>,
    cx: &mut Context<'_>,
    key: &Key,
) -> Result<(), ReconcileError> {
    let gathered = cx.gather(|view| {
        let claim = view.get::<ResourceClaim>(key)?;
        let judge = |consumer| judge(view, options, deleted, &key.namespace, consumer);
        Some((claim.clone(), claim.reserved_for.iter().map(judge).collect::<Vec<_>>()))
    });
    let Some((claim, verdicts)) = gathered else { return Ok(()) };
    let gone = gone_consumers(cx, &claim, verdicts).await?;
    let is_unused = gone.len() == claim.reserved_for.len();
    release(cx, &claim, &gone, is_unused).await?;
    if is_unused && cx.gather(|view| owner_is_done(view, &claim)) {
        let write = Write::delete(&*claim)
            .ignoring_errors(&[ErrorReason::NotFound])
            .because("the pod that it was generated for will not run");
        send(cx, write, || format!("delete unused generated claim {key}")).await?;
    }
    Ok(())
}

/// What the caches say about a consumer.
enum Verdict {
    /// It exists, or its kind is not known: the reservation stays.
    Keep,
    /// It is gone or done.
    Drop,
    /// The cache does not hold it, or another object of its name, perhaps its predecessor: the scheduler may know a pod that
    /// this cache has not seen.
    LookUp(Resource),
}

fn judge(
    view: &View<'_>,
    options: &ResourceClaimOptions,
    deleted: &Memory<DeletedObjects>,
    namespace: &str,
    consumer: &ConsumerReference,
) -> Verdict {
    let key = Key::namespaced(namespace, &*consumer.name);
    let is_deleted = || deleted.with(|deleted| deleted.contains(&consumer.uid));
    match (&*consumer.api_group, &*consumer.resource) {
        ("", "pods") => match view.get::<Pod>(&key) {
            _ if is_deleted() => Verdict::Drop,
            None => Verdict::LookUp(Pod::RESOURCE),
            Some(pod) if pod.meta.uid != consumer.uid => Verdict::LookUp(Pod::RESOURCE),
            Some(pod) if is_done(pod) => Verdict::Drop,
            Some(_) => Verdict::Keep,
        },
        (SCHEDULING_GROUP, "podgroups") if options.enable_workload_claims => match view.get::<PodGroup>(&key)
        {
            _ if is_deleted() => Verdict::Drop,
            None => Verdict::LookUp(PodGroup::RESOURCE),
            Some(group) if group.meta.uid != consumer.uid => Verdict::LookUp(PodGroup::RESOURCE),
            Some(_) => Verdict::Keep,
        },
        // A consumer of an unknown kind may still use the claim.
        _ => Verdict::Keep,
    }
}

/// The UIDs of the consumers that are gone or done. Only the API server's word that a consumer does not exist, or has
/// another UID, counts for one that the cache does not hold.
async fn gone_consumers(
    cx: &mut Context<'_>,
    claim: &ResourceClaim,
    verdicts: Vec<Verdict>,
) -> Result<Vec<Uid>, ReconcileError> {
    let mut gone = Vec::new();
    for (consumer, verdict) in claim.reserved_for.iter().zip(verdicts) {
        let is_gone = match verdict {
            Verdict::Keep => false,
            Verdict::Drop => true,
            Verdict::LookUp(resource) => {
                let key = Key { namespace: claim.meta.key.namespace.clone(), name: consumer.name.clone() };
                let live = cx.fetch_metadata(&resource, &key).await;
                let live = live.map_err(|error| {
                    ReconcileError::from_api_error(&error, format!("reading {resource} {key}: {error}"))
                })?;
                live.is_none_or(|live| live.meta.uid != consumer.uid)
            }
        };
        if is_gone {
            gone.push(consumer.uid.clone());
        }
    }
    Ok(gone)
}

/// Removes reservations, deallocates a claim that lost its last one, and removes the finalizer that is not needed then.
async fn release(
    cx: &mut Context<'_>,
    claim: &Arc<ResourceClaim>,
    gone: &[Uid],
    is_unused: bool,
) -> Result<(), ReconcileError> {
    let is_protected = claim.meta.finalizers.iter().any(|finalizer| *finalizer == DELETE_PROTECTION);
    let is_allocated = claim.allocated_devices.is_some();
    let is_terminating = claim.meta.deletion_timestamp.is_some();
    let mut status = json!({});
    if !gone.is_empty() {
        status["reservedFor"] = removals(gone, is_unused);
    } else if !(is_unused && is_protected && is_terminating) {
        // An allocated claim without a consumer stays allocated until it has been used or is deleted.
        return Ok(());
    }
    let deallocates = is_unused && is_protected && is_allocated;
    if deallocates {
        status["allocation"] = Value::Null;
    }
    let mut version = claim.meta.resource_version.clone();
    if status != json!({}) {
        version = patch_status(cx, claim, status).await?;
    }
    if is_protected && (!is_allocated || deallocates) {
        remove_finalizer(cx, claim, &version).await?;
    }
    Ok(())
}

/// The strategic merge patch of `reservedFor`. It leaves the other entries, and fields that this program does not know.
fn removals(gone: &[Uid], is_unused: bool) -> Value {
    if is_unused {
        return Value::Null;
    }
    gone.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect()
}

async fn patch_status(
    cx: &mut Context<'_>,
    claim: &Arc<ResourceClaim>,
    status: Value,
) -> Result<ResourceVersion, ReconcileError> {
    let body = json!({"metadata": {"resourceVersion": claim.meta.resource_version}, "status": status});
    let write = Write::patch(&**claim, PatchKind::Strategic, body)
        .on_subresource("status")
        .because("its consumers are gone or done")
        .on_failure(OnFailure::StopAndRetry);
    let applied = cx.apply(Plan::of(write)).await;
    if let Some(Outcome::Done { resource_version, .. }) = applied.outcomes.first() {
        return Ok(resource_version.clone());
    }
    applied.all_done().map(|()| ResourceVersion::default())
}

async fn remove_finalizer(
    cx: &mut Context<'_>,
    claim: &Arc<ResourceClaim>,
    version: &ResourceVersion,
) -> Result<(), ReconcileError> {
    let finalizers: Vec<_> =
        claim.meta.finalizers.iter().filter(|finalizer| **finalizer != DELETE_PROTECTION).collect();
    let mut body = json!({"metadata": {"finalizers": finalizers}});
    if !version.is_empty() {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    let write = Write::patch(&**claim, PatchKind::Merge, body).because("it is not allocated any more");
    cx.apply(Plan::of(write)).await.all_done()
}

/// Whether a claim was generated for a pod that is replaced or will not run. A pod that the cache does not hold is left to the
/// garbage collector.
fn owner_is_done(view: &View<'_>, claim: &ResourceClaim) -> bool {
    owning_pod(claim).is_some_and(|owner| {
        let key = Key { namespace: claim.meta.key.namespace.clone(), name: owner.name.clone() };
        view.get::<Pod>(&key).is_some_and(|pod| pod.meta.uid != owner.uid || is_done(pod))
    })
}
