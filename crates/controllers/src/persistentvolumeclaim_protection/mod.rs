//! Keeps the protection finalizer on `PersistentVolumeClaim`s until no pod uses them, and reports since when a bound one
//! has been unused.
//!
//! Only a live list of the pods of the namespace can show that a claim is unused: a pod may exist that the cache does
//! not have yet. A list that fails changes nothing.
//!
//! Parity: pkg/controller/volume/pvcprotection.

mod condition;
#[cfg(test)]
mod tests;
mod unused_claims;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Key, Object as _, PersistentVolumeClaim, Pod, PodParts, TRUE, Time};
use keleustes_plan::{
    Change, Context, Controller, Effects, Grant, Loop, Memory, Plan, ReconcileError, Reconciler, Requeue,
    View,
};

use self::unused_claims::UnusedClaims;
use self::usage::{LivePods, Purpose, uses};
use crate::pods_by_claim::{BY_CLAIM, pods_of_claim};
use crate::protection::{add_finalizer, is_deletion_candidate, needs_finalizer, remove_finalizer};

/// The finalizer. The admission plugin `StorageObjectInUseProtection` sets it on new claims.
pub const FINALIZER: &str = "kubernetes.io/pvc-protection";

/// Options of the claim protection controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimProtectionOptions {
    /// Maintains the condition `Unused` (feature gate `PersistentVolumeClaimUnusedSinceTime`).
    pub report_unused: bool,
}

impl Default for ClaimProtectionOptions {
    fn default() -> Self {
        Self { report_unused: true }
    }
}

/// Builds the controller.
#[must_use]
pub fn controller(options: ClaimProtectionOptions) -> Controller {
    let report_unused = options.report_unused;
    Controller::new("persistentvolumeclaim-protection-controller")
        .service_account("pvc-protection-controller")
        .may_write(&[
            Grant {
                group: "",
                resource: "persistentvolumeclaims",
                verbs: &["get", "list", "update", "watch"],
            },
            Grant { group: "", resource: "persistentvolumeclaims/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::reconciling("pvcprotection", ClaimProtection { options, unused: Memory::default() })
                .keyed_by::<PersistentVolumeClaim>()
                .enqueue_on::<PersistentVolumeClaim>(move |change, _, enqueue| {
                    claim_changed(change, report_unused, enqueue);
                })
                .enqueue_on::<Pod>(move |change, _, enqueue| pod_changed(change, report_unused, enqueue))
                .reads_index(BY_CLAIM)
                .reads_pod_parts(PodParts::VOLUME_CLAIMS),
        )
}

fn claim_changed(change: &Change<PersistentVolumeClaim>, report_unused: bool, enqueue: &mut Effects) {
    let Some(claim) = change.new() else { return };
    if is_deletion_candidate(&claim.meta, FINALIZER)
        || needs_finalizer(&claim.meta, FINALIZER)
        || report_unused && condition::status(claim).is_none()
    {
        enqueue.add(&claim.meta.key);
    }
}

fn pod_changed(change: &Change<Pod>, report_unused: bool, enqueue: &mut Effects) {
    let pod = change.latest();
    // Without the condition only a pod that stops to use its claims is of interest.
    let may_release = change.is_deletion() || pod.is_terminated() || pod.node_name.is_empty();
    if report_unused || may_release {
        enqueue_claims(pod, enqueue);
    }
    // The deletion of a pod and the creation of another with its name may arrive as one update.
    if let Some(old) = change.old().filter(|old| old.meta.uid != pod.meta.uid) {
        enqueue_claims(old, enqueue);
    }
}

fn enqueue_claims(pod: &Pod, enqueue: &mut Effects) {
    let namespace = &pod.meta.key.namespace;
    pod.used_claims().for_each(|name| enqueue.add(Key { namespace: namespace.clone(), name }));
}

struct ClaimProtection {
    options: ClaimProtectionOptions,
    unused: Memory<UnusedClaims>,
}

/// A claim and what the caches say about it.
struct Inputs {
    claim: Arc<PersistentVolumeClaim>,
    /// A cached pod uses it; for what the state of the claim asks.
    is_used: bool,
    now: Time,
    monotonic: Duration,
}

impl Reconciler for ClaimProtection {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some(inputs) = cx.gather(|view| gather(view, item)) else {
            return Ok(Requeue::Forget);
        };
        let claim = &inputs.claim;
        if self.reports(claim) {
            self.update_condition(cx, &inputs).await?;
        }
        if is_deletion_candidate(&claim.meta, FINALIZER) {
            if inputs.is_used || self.is_used_live(cx, &inputs).await? {
                return Ok(Requeue::Forget);
            }
            let removal = remove_finalizer(&**claim, FINALIZER, |_| false);
            cx.apply(Plan::of(removal.because("the claim is deleted and no pod uses it")))
                .await
                .all_done()?;
        } else if needs_finalizer(&claim.meta, FINALIZER) {
            cx.apply(Plan::of(add_finalizer(&**claim, FINALIZER))).await.all_done()?;
        }
        Ok(Requeue::Forget)
    }
}

impl ClaimProtection {
    /// Whether the claim has the condition `Unused`, now or soon. A claim that is not bound is left to the binder.
    fn reports(&self, claim: &PersistentVolumeClaim) -> bool {
        self.options.report_unused && claim.meta.deletion_timestamp.is_none() && claim.phase == "Bound"
    }

    async fn update_condition(&self, cx: &mut Context<'_>, inputs: &Inputs) -> Result<(), ReconcileError> {
        let status = condition::status(&inputs.claim);
        // `True` stays while no cached pod uses the claim: the event of a pod that comes later enqueues it.
        let is_used = if inputs.is_used || status == Some(TRUE) {
            inputs.is_used
        } else {
            self.is_used_live(cx, inputs).await?
        };
        if condition::is_outdated(status, is_used) {
            let write = condition::write(&inputs.claim, is_used, inputs.now);
            cx.apply(Plan::of(write)).await.all_done()?;
        }
        Ok(())
    }

    /// Whether a live pod uses the claim, by a list that is not older than the claim's state.
    async fn is_used_live(&self, cx: &mut Context<'_>, inputs: &Inputs) -> Result<bool, ReconcileError> {
        let claim = &inputs.claim;
        if self.unused.with(|unused| unused.take(claim, inputs.monotonic)) {
            return Ok(false);
        }
        // The states of the other claims are read before the list: see `UnusedClaims`.
        let namespace = &claim.meta.key.namespace;
        let others = cx.gather(|view| self.without_cached_user(view, namespace));
        let pods = cx.list::<Pod>(namespace).await.map_err(|error| {
            ReconcileError::from_api_error(&error, format!("live list of pods failed: {error}"))
        })?;
        let pods = LivePods::of(pods);
        let unused = others
            .iter()
            .map(|other| &**other)
            .filter(|other| other.meta.key != claim.meta.key && !pods.use_claim(other, purpose_for(other)));
        self.unused.with(|known| known.remember(unused, inputs.monotonic));
        Ok(pods.use_claim(claim, purpose_for(claim)))
    }

    /// The claims of a namespace that need a live list, too.
    fn without_cached_user(
        &self,
        view: &View<'_>,
        namespace: &InternedStr,
    ) -> Vec<Arc<PersistentVolumeClaim>> {
        let needs_list = |claim: &&Arc<PersistentVolumeClaim>| {
            is_deletion_candidate(&claim.meta, FINALIZER)
                || self.reports(claim) && condition::status(claim) != Some(TRUE)
        };
        let claims = view.in_namespace::<PersistentVolumeClaim>(namespace).filter(needs_list);
        claims.filter(|claim| !has_cached_user(view, claim)).cloned().collect()
    }
}

fn gather(view: &View<'_>, item: &Key) -> Option<Inputs> {
    let claim = view.get::<PersistentVolumeClaim>(item)?.clone();
    let is_used = has_cached_user(view, &claim);
    let now = view.now();
    Some(Inputs { claim, is_used, now: now.wall, monotonic: now.monotonic })
}

fn has_cached_user(view: &View<'_>, claim: &PersistentVolumeClaim) -> bool {
    let purpose = purpose_for(claim);
    pods_of_claim(view, claim.key()).any(|pod| uses(pod, claim, purpose))
}

/// A terminating claim is judged for its deletion, any other for the condition.
fn purpose_for(claim: &PersistentVolumeClaim) -> Purpose {
    if claim.meta.deletion_timestamp.is_some() { Purpose::Deletion } else { Purpose::Condition }
}
