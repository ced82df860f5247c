//! Deletes the content of a terminating namespace, reports progress in conditions, and removes the finalizer
//! `kubernetes` when the content is deleted.
//!
//! A reconcile sets the phase `Terminating`, deletes the content (pods first, and nothing else while a pod
//! exists), writes the conditions, and removes the finalizer if nothing is left and nothing failed. It uses
//! live reads instead of caches, so it keeps no state, and the next reconcile completes an interrupted one.
//!
//! Parity: pkg/controller/namespace. The original deletes each collection unconditionally, one after the
//! other, and then lists it. This controller lists all resources in parallel first and deletes, in parallel,
//! only the collections that are not empty; the final list of every resource is the same, with fewer requests
//! and lower latency.

mod conditions;
mod content;
mod live_namespace;
mod pods;

use std::time::Duration;

use keleustes_objects::{ErrorReason, Key, Namespace};
use keleustes_plan::{
    Change, Context, Controller, Delay, Effects, Grant, Loop, OnFailure, Outcome, Plan, QpsMultiplier,
    RateLimiter, ReconcileError, Reconciler, Requeue, View, Write,
};
use serde_json::Value;

use self::content::DeletionResult;
use self::live_namespace::LiveNamespace;

/// Options of the namespace controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// Number of workers (`--concurrent-namespace-syncs`).
    pub workers: usize,
    /// Resync period (`--namespace-sync-period`).
    pub sync_period: Duration,
}

impl Default for NamespaceOptions {
    fn default() -> Self {
        Self { workers: 10, sync_period: Duration::from_secs(300) }
    }
}

/// Delay after each watch event: other API servers may still admit objects, and other etcd members may not
/// have the last writes yet.
const ENQUEUE_DELAY: Duration = Duration::from_secs(5);
const FINALIZER: &str = "kubernetes";
/// Rate-limited retries are at most one minute apart.
const LIMITER: RateLimiter = RateLimiter { max_delay: Duration::from_secs(60), ..RateLimiter::DEFAULT };

/// Builds the controller.
#[must_use]
pub fn controller(options: &NamespaceOptions) -> Controller {
    Controller::new("namespace-controller")
        .service_account("namespace-controller")
        .qps_multiplier(QpsMultiplier { qps: 20, burst: 100 })
        .may_write(&[
            Grant { group: "*", resource: "*", verbs: &["get", "list", "delete", "deletecollection"] },
            Grant { group: "", resource: "namespaces/status", verbs: &["update"] },
            Grant { group: "", resource: "namespaces/finalize", verbs: &["update"] },
        ])
        .with_loop(
            Loop::reconciling("namespace", NamespaceReconciler)
                .keyed_by::<Namespace>()
                .enqueue_on::<Namespace>(namespace_changed)
                .resync_every(options.sync_period)
                .rate_limited_by(LIMITER)
                .workers(options.workers),
        )
}

fn namespace_changed(change: &Change<Namespace>, _: &View<'_>, enqueue: &mut Effects) {
    if let Some(namespace) = change.new().filter(|namespace| namespace.meta.deletion_timestamp.is_some()) {
        enqueue.add_after(&namespace.meta.key, ENQUEUE_DELAY);
    }
}

struct NamespaceReconciler;

impl Reconciler for NamespaceReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        reconcile(cx, item).await
    }
}

async fn reconcile(cx: &mut Context<'_>, key: &Key) -> Result<Requeue, ReconcileError> {
    if cx.gather(|view| view.get::<Namespace>(key).is_none()) {
        return Ok(Requeue::Forget);
    }
    let Some(mut namespace) = cx.fetch::<LiveNamespace>(key).await? else { return Ok(Requeue::Forget) };
    let exists = update_with_retry(cx, &mut namespace, PHASE).await?;
    if !exists || !namespace.is_terminating() || namespace.finalizers().is_empty() {
        return Ok(Requeue::Forget);
    }
    let result = content::delete(cx, &namespace).await;
    update_conditions(cx, &mut namespace, &result).await;
    if let Some(retry) = result.failure() {
        return Err(retry);
    }
    if result.estimate_seconds > 0 {
        return Ok(Requeue::KeepBackoff(Delay::of(
            Duration::from_secs(result.estimate_seconds / 2 + 1),
            "the termination of the pods",
        )));
    }
    update_with_retry(cx, &mut namespace, FINALIZE).await?;
    Ok(Requeue::Forget)
}

/// An update that is retried on every conflict.
struct RequiredUpdate {
    subresource: &'static str,
    because: &'static str,
    /// The body to put; `None` if the namespace already has the wanted state.
    body: fn(&LiveNamespace) -> Option<Value>,
}

const PHASE: RequiredUpdate = RequiredUpdate {
    subresource: "status",
    because: "it has a deletionTimestamp",
    body: LiveNamespace::with_terminating_phase,
};
const FINALIZE: RequiredUpdate = RequiredUpdate {
    subresource: "finalize",
    because: "its content is deleted",
    body: |live| Some(live.without_finalizer()),
};

/// Updates the namespace; after each conflict, reads it live and tries again. Returns whether the namespace
/// still exists. There is no limit on the attempts: each one follows a response to the one before.
async fn update_with_retry(
    cx: &mut Context<'_>,
    namespace: &mut LiveNamespace,
    change: RequiredUpdate,
) -> Result<bool, ReconcileError> {
    while let Some(body) = (change.body)(namespace) {
        let write = Write::put(namespace, change.subresource, body.clone()).because(change.because);
        let mut applied = cx.apply(Plan::of(write)).await;
        match applied.outcomes.pop() {
            Some(Outcome::Done { resource_version: version, .. }) => {
                namespace.set_written(body, &version);
                return Ok(true);
            }
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::Conflict => {}
            _ => return applied.all_done().map(|()| false),
        }
        let Some(latest) = cx.fetch::<LiveNamespace>(&namespace.meta.key).await? else { return Ok(false) };
        if latest.meta.uid != namespace.meta.uid {
            return Err(ReconcileError::because("namespace uid has changed across retries"));
        }
        *namespace = latest;
    }
    Ok(true)
}

/// Writes the conditions if they changed. If that fails, the next reconcile writes them: whether the
/// namespace is finalized depends on its content, not on this write.
async fn update_conditions(cx: &mut Context<'_>, namespace: &mut LiveNamespace, result: &DeletionResult) {
    let now = cx.gather(|view| view.now().wall);
    let Some(body) = namespace.with_conditions(|current| conditions::update(current, result, now)) else {
        return;
    };
    let write = Write::put(namespace, "status", body.clone())
        .on_failure(OnFailure::LogOnly)
        .because("its conditions changed");
    let applied = cx.apply(Plan::of(write)).await;
    if let [Outcome::Done { resource_version: version, .. }] = &applied.outcomes[..] {
        namespace.set_written(body, version);
    }
}

#[cfg(test)]
mod tests;
