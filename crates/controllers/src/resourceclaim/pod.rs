//! The reconcile of a pod: its claims are created and recorded, and reserved if it is bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{ArcStr, ClaimEntry, ClaimSource, Key, Pod, PodGroup, ResourceClaim};
use keleustes_plan::{
    Context, InvolvedObject, OnFailure, Outcome, PatchKind, Plan, ReconcileError, View, Write,
};
use serde_json::json;

use super::bind_target::{BindTarget, NoPodGroup, bind_target, pod_group};
use super::creation::{
    ClaimOwner, EntryError, Recorded, adopt_or_create, generated_claim, recorded_claim, statuses_body,
};
use super::names::claim_name;
use super::owner::is_for_pod;
use super::work::{cached_claim, needs_reservation};
use super::{FIELD_MANAGER, ResourceClaimOptions};

pub(super) async fn reconcile(
    options: &ResourceClaimOptions,
    cx: &mut Context<'_>,
    key: &Key,
) -> Result<(), ReconcileError> {
    let Some((pod, group)) = cx.gather(|view| gather(view, key, options)) else { return Ok(()) };
    let group = match group {
        Ok(group) => group,
        // The gate does not change while the process runs.
        Err(NoPodGroup::Disabled(_)) => return Ok(()),
        Err(NoPodGroup::NotFound(why)) => {
            return Err(ReconcileError::because(format!("get PodGroup for Pod {key}: {why}")));
        }
    };
    let mut found = BTreeMap::new();
    for entry in pod.spec.resource_claims() {
        match ensure_claim(options, cx, &pod, group.as_ref(), entry).await {
            Ok(None) => {}
            Ok(Some(name)) => drop(found.insert(ArcStr::from(&*entry.name), name)),
            Err(error) => return Err(error.report(cx, InvolvedObject::of(&*pod), &entry.name).await),
        }
    }
    if !found.is_empty() {
        record(cx, &pod, found).await?;
    }
    if pod.node_name.is_empty() {
        // The scheduler reserves claims when it binds the pod.
        return Ok(());
    }
    for entry in pod.spec.resource_claims() {
        if reserve(options, cx, &pod, group.as_ref(), entry).await? == Reserved::Stop {
            break;
        }
    }
    Ok(())
}

type Gathered = (Arc<Pod>, Result<Option<Arc<PodGroup>>, NoPodGroup>);

/// The pod and its PodGroup, if the pod may still need claims. A terminal pod does not: the original creates a claim for it
/// and deletes it at once, after each restart, and restores the reservation that its claim's reconcile has removed.
fn gather(view: &View<'_>, key: &Key, options: &ResourceClaimOptions) -> Option<Gathered> {
    let pod = view.get::<Pod>(key).filter(|pod| pod.is_active())?;
    Some((pod.clone(), pod_group(view, pod, options)))
}

/// Ensures the claim of an entry and returns its name if the status does not name it yet.
async fn ensure_claim(
    options: &ResourceClaimOptions,
    cx: &mut Context<'_>,
    pod: &Arc<Pod>,
    group: Option<&Arc<PodGroup>>,
    entry: &ClaimEntry,
) -> Result<Option<ArcStr>, EntryError> {
    let owns = |claim: &ResourceClaim| is_for_pod(pod, claim, options.enable_workload_claims).is_ok();
    let owner = ClaimOwner {
        meta: &pod.meta,
        api_version: "v1",
        kind: "Pod",
        api_group: "",
        statuses: pod.resource_claim_statuses(),
        name_in_errors: format!("pod \"{}\"", pod.meta.key),
        owns: &owns,
    };
    if let Recorded::Settled = recorded_claim(cx, &owner, entry).await? {
        return Ok(None);
    }
    if !matches!(entry.source, ClaimSource::Template(_)) {
        return Ok(None);
    }
    match bind_target(group, entry).map_err(EntryError::because)? {
        BindTarget::Pod => adopt_or_create(options, cx, &owner, entry).await,
        BindTarget::PodGroup(_) if !options.enable_workload_claims => Err(EntryError::because(format!(
            "claim {} is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled",
            entry.name
        ))),
        // The reconcile of the PodGroup creates it.
        BindTarget::PodGroup(group) => Ok(cx.gather(|view| generated_claim(view, &group.meta, entry))),
    }
}

/// Records the names of claims, together with those that were recorded before: an apply removes what it leaves out.
async fn record(
    cx: &mut Context<'_>,
    pod: &Arc<Pod>,
    found: BTreeMap<ArcStr, ArcStr>,
) -> Result<(), ReconcileError> {
    let recorded = pod.resource_claim_statuses().iter();
    let recorded = recorded
        .filter_map(|status| Some((ArcStr::from(&*status.name), status.resource_claim_name.clone()?)));
    let mut names: BTreeMap<ArcStr, ArcStr> = recorded.collect();
    names.extend(found);
    let write = Write::apply(&**pod, FIELD_MANAGER, statuses_body(&pod.meta, names))
        .on_subresource("status")
        .because("its claims were created");
    send(cx, write, || format!("update pod {} ResourceClaimStatuses", pod.meta.key)).await
}

/// Whether the next claim may be reserved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reserved {
    Next,
    Stop,
}

/// Reserves the allocated claim of an entry for a bound pod.
async fn reserve(
    options: &ResourceClaimOptions,
    cx: &mut Context<'_>,
    pod: &Arc<Pod>,
    group: Option<&Arc<PodGroup>>,
    entry: &ClaimEntry,
) -> Result<Reserved, ReconcileError> {
    let named = match claim_name(entry, pod.resource_claim_statuses()) {
        Ok(Some(named)) => named,
        Ok(None) => return Ok(Reserved::Next),
        // The name was recorded just now; the retry reads it.
        Err(unresolved) => {
            let message = format!("pod \"{}\": {}", pod.meta.key, unresolved.as_str());
            return Err(ReconcileError::because(message).quietly());
        }
    };
    let cached = cx.gather(|view| cached_claim(view, &pod.meta.key.namespace, named.name).cloned());
    let Some(claim) = cached else { return Ok(Reserved::Stop) };
    if named.must_be_owned {
        is_for_pod(pod, &claim, options.enable_workload_claims).map_err(ReconcileError::because)?;
    }
    if !needs_reservation(pod, &claim, options) {
        return Ok(Reserved::Next);
    }
    let target = bind_target(group, entry).map_err(ReconcileError::because)?;
    if matches!(target, BindTarget::PodGroup(_)) && !options.enable_workload_claims {
        return Ok(Reserved::Next);
    }
    // The resourceVersion makes it fail if anything changed, as the original's update does.
    let body = json!({
        "metadata": {"resourceVersion": claim.meta.resource_version},
        "status": {"reservedFor": [target.reservation(pod)]},
    });
    let write = Write::patch(&*claim, PatchKind::Strategic, body)
        .on_subresource("status")
        .because(format!("pod {} is bound and uses it", pod.meta.key.name));
    send(cx, write, || format!("reserve claim {}", claim.meta.key)).await?;
    Ok(Reserved::Next)
}

/// Sends one write; an error starts with what was done.
pub(super) async fn send(
    cx: &mut Context<'_>,
    write: Write,
    action: impl FnOnce() -> String,
) -> Result<(), ReconcileError> {
    let applied = cx.apply(Plan::of(write.on_failure(OnFailure::ReturnOutcome))).await;
    if let Some(Outcome::Failed(failure)) = applied.outcomes.first() {
        return Err(ReconcileError::from_api_error(failure, format!("{}: {failure}", action())));
    }
    applied.all_done()
}
