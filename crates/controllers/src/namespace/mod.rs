//! Empties a namespace that is being deleted, tells how far it has come as conditions, and lets it go when
//! nothing is left in it.
//!
//! A pass marks the namespace, deletes what is in it (pods first, and nothing else while a pod is there),
//! writes the conditions, and removes the finalizer `kubernetes` if nothing was left and nothing went
//! wrong. It looks at the server and not at caches, so it remembers nothing and a pass cut short anywhere
//! is made good by the next one.
//!
//! Parity: pkg/controller/namespace. Where the original deletes each collection blindly, one after the
//! other, and then lists it, this lists all of them at once and deletes, at once, those that hold
//! something: the last look at every resource is the same, with fewer requests and sooner.

mod conditions;
mod content;
mod live;
mod pods;

use std::time::Duration;

use keleustes_objects::{ErrorReason, Key, Namespace};
use keleustes_plan::{
    BoxFuture, Change, Context, Controller, Enqueue, Grant, Item, Loop, OnFailure, Outcome, Plan,
    QpsMultiplier, RateLimiter, ReconcileError, Reconciler, Requeue, View, Write,
};
use serde_json::Value;

use self::content::Pass;
use self::live::Live;

/// What the controller is told by flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// How many namespaces are worked on at once.
    pub workers: usize,
    /// How often all namespaces are looked at again.
    pub sync_period: Duration,
}

impl Default for NamespaceOptions {
    fn default() -> Self {
        Self { workers: 10, sync_period: Duration::from_secs(300) }
    }
}

/// How long a namespace is left alone after each change: other API servers may still let objects in, and
/// other members of etcd may not show the last ones yet.
const GRACE: Duration = Duration::from_secs(5);
const FINALIZER: &str = "kubernetes";
/// Rate-limited retries are at most a minute apart.
const LIMITER: RateLimiter = RateLimiter { max_delay: Duration::from_secs(60), ..RateLimiter::DEFAULT };

/// The controller.
#[must_use]
pub fn controller(settings: &NamespaceOptions) -> Controller {
    Controller::new("namespace-controller")
        .also_known_as(&["namespace"])
        .service_account("namespace-controller")
        .qps_multiplier(QpsMultiplier { qps: 20, burst: 100 })
        .may_write(&[
            Grant { group: "*", resource: "*", verbs: &["get", "list", "delete", "deletecollection"] },
            Grant { group: "", resource: "namespaces/status", verbs: &["update"] },
            Grant { group: "", resource: "namespaces/finalize", verbs: &["update"] },
        ])
        .with_loop(
            Loop::reconciling("namespace", Emptying)
                .enqueue_on::<Namespace>(namespace_changed)
                .resync_every(settings.sync_period)
                .rate_limited_by(LIMITER)
                .workers(settings.workers),
        )
}

fn namespace_changed(change: &Change<Namespace>, _: &View<'_>, wakes: &mut Enqueue) {
    if let Some(namespace) = change.new().filter(|namespace| namespace.meta.deletion_timestamp.is_some()) {
        wakes.add_after(&namespace.meta.key, GRACE);
    }
}

struct Emptying;

impl Reconciler for Emptying {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(sync(cx, item))
    }
}

async fn sync(cx: &mut Context<'_>, key: &Key) -> Result<Requeue, ReconcileError> {
    if cx.gather(|view| view.get::<Namespace>(key).is_none()) {
        return Ok(Requeue::Forget);
    }
    let Some(mut namespace) = cx.fetch::<Live>(key).await? else { return Ok(Requeue::Forget) };
    let is_there = put_until_settled(cx, &mut namespace, PHASE).await?;
    if !is_there || !namespace.is_going() || namespace.finalizers().is_empty() {
        return Ok(Requeue::Forget);
    }
    let pass = content::delete(cx, &namespace).await;
    report(cx, &mut namespace, &pass).await;
    if let Some(retry) = pass.failure() {
        return Err(retry);
    }
    if pass.estimate_seconds > 0 {
        return Ok(Requeue::KeepBackoff(Duration::from_secs(pass.estimate_seconds / 2 + 1)));
    }
    put_until_settled(cx, &mut namespace, FINALIZE).await?;
    Ok(Requeue::Forget)
}

/// A change that must go through, whoever else changes the namespace meanwhile.
struct Must {
    subresource: &'static str,
    because: &'static str,
    /// What to put; nothing if the namespace is as it should be.
    body: fn(&Live) -> Option<Value>,
}

const PHASE: Must =
    Must { subresource: "status", because: "its deletion was asked for", body: Live::terminating };
const FINALIZE: Must =
    Must { subresource: "finalize", because: "nothing is left in it", body: |live| Some(live.finalized()) };

/// Puts, and after each conflict reads the namespace and puts again. Tells whether the namespace is still
/// there. Nothing is tried here without the server's answer to the try before, so there is no need for a
/// limit.
async fn put_until_settled(
    cx: &mut Context<'_>,
    namespace: &mut Live,
    change: Must,
) -> Result<bool, ReconcileError> {
    while let Some(body) = (change.body)(namespace) {
        let write = Write::put(namespace, change.subresource, body.clone()).because(change.because);
        let mut applied = cx.apply(Plan::of(write)).await;
        match applied.outcomes.pop() {
            Some(Outcome::Done { resource_version: version, .. }) => {
                namespace.became(body, &version);
                return Ok(true);
            }
            Some(Outcome::Failed(failure)) if failure.reason == ErrorReason::Conflict => {}
            _ => return applied.all_done().map(|()| false),
        }
        let Some(latest) = cx.fetch::<Live>(&namespace.meta.key).await? else { return Ok(false) };
        if latest.meta.uid != namespace.meta.uid {
            return Err(ReconcileError::because("namespace uid has changed across retries"));
        }
        *namespace = latest;
    }
    Ok(true)
}

/// Writes the conditions, if some changed. Should that fail, the next pass writes them: what became of the
/// content decides what happens to the namespace, not whether somebody could be told.
async fn report(cx: &mut Context<'_>, namespace: &mut Live, pass: &Pass) {
    let now = cx.gather(|view| view.now().wall);
    let Some(body) = namespace.with_conditions(|there| conditions::refresh(there, pass, now)) else {
        return;
    };
    let write = Write::put(namespace, "status", body.clone())
        .on_failure(OnFailure::LogOnly)
        .because("its conditions changed");
    let applied = cx.apply(Plan::of(write)).await;
    if let [Outcome::Done { resource_version: version, .. }] = &applied.outcomes[..] {
        namespace.became(body, version);
    }
}

#[cfg(test)]
mod tests;
