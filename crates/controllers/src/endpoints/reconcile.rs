//! Reconciles Services: one write, or the deletion of Endpoints whose Service is deleted.

use std::sync::Arc;

use keleustes_objects::{Endpoints, ErrorReason, FullMeta as _, Key, Pod, Service};
use keleustes_plan::{
    Context, Delay, Memory, ObjectOr, Plan, ReconcileError, Reconciler, Requeue, View, Write,
};

use super::desired::Desired;
use super::{EndpointsMemory, Leftovers};
use crate::service_endpoints::{LEADER, pod_selector, selected_pods};

/// Reconciles Services, and the Endpoints that a previous process left behind.
pub(super) struct EndpointsReconciler {
    memory: Memory<EndpointsMemory>,
}

/// What the caches show for a key.
enum Gathered {
    /// The Service is deleted; its Endpoints may still be cached.
    Deleted(Option<Arc<Endpoints>>),
    Decided(Plan),
}

impl Reconciler<ObjectOr<Leftovers>> for EndpointsReconciler {
    async fn reconcile(
        &self,
        cx: &mut Context<'_>,
        item: &ObjectOr<Leftovers>,
    ) -> Result<Requeue, ReconcileError> {
        let ObjectOr::Object(key) = item else {
            cx.gather(leftovers).into_iter().for_each(|key| cx.enqueue(key));
            return Ok(Requeue::Forget);
        };
        // A pod that changed during the previous reconcile was enqueued before its debounce interval started.
        let now = cx.gather(|view| view.now().monotonic);
        let held_back = self.memory.with(|memory| memory.debounce_remaining(key, now));
        if !held_back.is_zero() {
            return Ok(Requeue::KeepBackoff(Delay::of(held_back, "more changes of its pods")));
        }
        self.sync(cx, key).await.map(|()| Requeue::Forget)
    }
}

impl EndpointsReconciler {
    pub(super) fn new(memory: Memory<EndpointsMemory>) -> Self {
        Self { memory }
    }

    async fn sync(&self, cx: &mut Context<'_>, key: &Key) -> Result<(), ReconcileError> {
        let plan = match cx.gather(|view| self.decide(view, key)) {
            Gathered::Decided(plan) => plan,
            Gathered::Deleted(cached) => deletion(cx, key, cached).await?,
        };
        cx.apply(plan).await.all_done()
    }

    fn decide(&self, view: &View<'_>, key: &Key) -> Gathered {
        let current = view.get::<Endpoints>(key);
        let Some(service) = view.get::<Service>(key) else {
            self.memory.with(|memory| memory.forget(key));
            return Gathered::Deleted(current.cloned());
        };
        let Some(selector) = pod_selector(service) else { return Gathered::Decided(Plan::none()) };
        let pods: Vec<_> = selected_pods(view, &key.namespace, selector).cloned().collect();
        let selected = pods.iter().map(|pod| -> &Pod { pod });
        let trigger_time =
            self.memory.with(|memory| memory.of(key).trigger_time.begin_sync(service, selected));
        let desired = Desired::of(service, &pods);
        if current.is_some_and(|current| desired.is_satisfied_by(current, service)) {
            return Gathered::Decided(Plan::none());
        }
        self.memory.with(|memory| memory.of(key).debounce.start(view.now().monotonic, 1));
        Gathered::Decided(Plan::of(desired.write(service, current.map(|current| &**current), trigger_time)))
    }
}

/// All Endpoints, except locks of leader elections: those whose Service was deleted while no manager ran are deleted.
fn leftovers(view: &View<'_>) -> Vec<Key> {
    let all = view.all::<Endpoints>().filter(|endpoints| endpoints.annotations().value(LEADER).is_none());
    all.map(|endpoints| endpoints.meta.key.clone()).collect()
}

/// Deletes the Endpoints of a Service that is deleted. The caches of Services and of Endpoints are not equally recent, so
/// the Service may be a new one that only its cache does not show yet. What a user wrote into its Endpoints could not be
/// restored, so the Service is read live first; if it exists, its event enqueues the key again.
async fn deletion(
    cx: &mut Context<'_>,
    key: &Key,
    cached: Option<Arc<Endpoints>>,
) -> Result<Plan, ReconcileError> {
    // A create may have taken effect without a response, or another client may have created the object.
    let endpoints = match cached {
        Some(cached) => Some(cached),
        None => cx.fetch::<Endpoints>(key).await?.map(Arc::new),
    };
    let Some(endpoints) = endpoints else { return Ok(Plan::none()) };
    if cx.fetch::<Service>(key).await?.is_some() {
        return Ok(Plan::none());
    }
    let write = Write::delete(&*endpoints).because("the Service is deleted");
    Ok(Plan::of(write.ignoring_errors(&[ErrorReason::NotFound])))
}
