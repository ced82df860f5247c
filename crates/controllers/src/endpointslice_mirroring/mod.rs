//! Copies the Endpoints of Services without a selector into EndpointSlices, so that clients of slices see them.
//!
//! A reconcile of Endpoints passes through these modules, each of them pure:
//!
//! - `desired` makes endpoints of the addresses, one set for each address type and set of ports;
//! - `changes` compares them with the mirrored slices, of which each set has one;
//! - `writes` turns the result into writes.
//!
//! `memory` holds the state between reconciles, and `reconcile` alternates deciding and applying.
//!
//! Parity: pkg/controller/endpointslicemirroring/.

mod changes;
mod desired;
mod memory;
mod metrics;
mod reconcile;
#[cfg(test)]
mod tests;
mod writes;

use std::time::Duration;

use keleustes_objects::{EndpointSlice, Endpoints, FullMeta as _, InternedStr, Key, Service};
use keleustes_plan::{Change, Controller, Effects, Grant, Index, Loop, Memory, RateLimiter};

use crate::service_endpoints::{LEADER, slices};
use memory::MirroringMemory;
use reconcile::MirroringReconciler;

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct EndpointSliceMirroringOptions {
    /// The number of workers.
    pub workers: usize,
    /// The maximum number of addresses of a subset that are mirrored.
    pub max_endpoints_per_subset: usize,
    /// The delay before Endpoints are enqueued after a change of one of their slices by another client.
    pub updates_batch_period: Duration,
}

impl Default for EndpointSliceMirroringOptions {
    fn default() -> Self {
        Self { workers: 5, max_endpoints_per_subset: 1000, updates_batch_period: Duration::ZERO }
    }
}

/// The value of the managed-by label of mirrored slices.
const MANAGED_BY: &str = "endpointslicemirroring-controller.k8s.io";
/// The label of Endpoints that are not mirrored, if its value is `true`.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const RETRIES_MAX: u32 = 15;

const LIMITER: RateLimiter = RateLimiter {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(100),
    ..RateLimiter::DEFAULT
};

/// Builds the controller.
#[must_use]
pub fn controller(options: &EndpointSliceMirroringOptions) -> Controller {
    Controller::new("endpointslice-mirroring-controller")
        .service_account("endpointslicemirroring-controller")
        .event_component("endpoint-slice-mirroring-controller")
        .may_write(&[
            Grant { group: "", resource: "services/finalizers", verbs: &["update"] },
            Grant { group: "", resource: "endpoints/finalizers", verbs: &["update"] },
            Grant {
                group: "discovery.k8s.io",
                resource: "endpointslices",
                verbs: &["create", "delete", "get", "list", "update", "watch"],
            },
        ])
        .metrics(metrics::ALL)
        .with_loop(the_loop(options))
}

fn the_loop(options: &EndpointSliceMirroringOptions) -> Loop {
    let memory = Memory::<MirroringMemory>::default();
    let (own_writes, batch_period) = (memory.clone(), options.updates_batch_period);
    Loop::reconciling("endpoint_slice_mirroring", MirroringReconciler::new(options, memory))
        .workers(options.workers)
        .max_retries(RETRIES_MAX)
        .rate_limited_by(LIMITER)
        // First, because the items of the queue are keys of Endpoints.
        .keyed_by::<Endpoints>()
        .enqueue_on::<Endpoints>(|change, _, queue| endpoints_changed(change, queue))
        .enqueue_on::<Service>(|change, _, queue| service_changed(change, queue))
        .enqueue_on::<EndpointSlice>(move |change, _, queue| {
            let (slice, is_deleted) = (change.latest(), change.is_deletion());
            let is_own_write =
                |key: &Key| own_writes.with(|memory| memory.is_own_write(key, &slice.meta, is_deleted));
            for key in slices::services_of_change(change, MANAGED_BY, is_own_write) {
                queue.add_after(key, batch_period);
            }
        })
        .reads_index(BY_ENDPOINTS)
}

/// Indexes mirrored slices by the `namespace/name` of their Endpoints, which is also that of the Service.
const BY_ENDPOINTS: Index<EndpointSlice> = Index {
    name: "mirrored-for-endpoints",
    values: |slice, emit| {
        if let Some(key) = slices::service_of(slice).filter(|_| slices::is_managed_by(slice, MANAGED_BY)) {
            emit(InternedStr::from(&*key.to_string()));
        }
    },
};

/// Whether Endpoints may be mirrored. Locks of leader elections are not.
fn is_mirrorable(endpoints: &Endpoints) -> bool {
    let is_skipped = endpoints.meta.labels.value(SKIP_MIRROR).is_some_and(|value| *value == "true");
    !is_skipped && endpoints.annotations().value(LEADER).is_none()
}

fn endpoints_changed(change: &Change<Endpoints>, queue: &mut Effects) {
    if change.old_and_new().any(|endpoints| is_mirrorable(endpoints)) {
        queue.add(&change.latest().meta.key);
    }
}

/// Enqueues a Service that has no selector when it appears or disappears, and one that gains or loses its selector.
fn service_changed(change: &Change<Service>, queue: &mut Effects) {
    let has_selector = |service: &Service| service.selector.is_some();
    let concerns = match (change.old(), change.new()) {
        (Some(old), Some(new)) => has_selector(old) != has_selector(new),
        _ => !has_selector(change.latest()),
    };
    if concerns {
        queue.add(&change.latest().meta.key);
    }
}
