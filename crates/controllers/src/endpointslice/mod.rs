//! Keeps the EndpointSlices of every Service with a selector up to date with the selected pods.
//!
//! A reconcile of a Service passes through these modules, each of them pure:
//!
//! - `gather` reads the inputs of the Service from the caches: its pods, their zones, its slices;
//! - `endpoints` computes the desired endpoints, one set for each address type and set of ports;
//! - `packing` assigns them to the existing slices, changing as few of them as possible;
//! - `hints` sets the topology hints, with `topology` and `zones`;
//! - `writes` turns the result into writes.
//!
//! `enqueue` maps changes to Services, `memory` holds the state between reconciles, and `reconcile`
//! alternates deciding and applying.
//!
//! Parity: pkg/controller/endpointslice/, staging/src/k8s.io/endpointslice/.

mod endpoints;
mod enqueue;
mod gather;
mod hints;
mod labels;
mod memory;
mod metrics;
mod packing;
mod reconcile;
#[cfg(test)]
mod tests;
mod topology;
mod writes;
mod zones;

use std::time::Duration;

use keleustes_objects::{EndpointSlice, InternedStr, Node, Pod, PodParts, Service};
use keleustes_plan::{Controller, Grant, Index, Loop, Memory, QueueItem, RateLimiter};

use enqueue::ServiceEnqueuer;
use memory::EndpointSliceMemory;
use reconcile::EndpointSliceReconciler;

use crate::service_endpoints::slices;

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct EndpointSliceOptions {
    /// The number of workers.
    pub workers: usize,
    /// The maximum number of endpoints that are added to a slice.
    pub max_endpoints_per_slice: usize,
    /// The delay before a Service is enqueued after a change of one of its pods, so that changes are
    /// batched.
    pub updates_batch_period: Duration,
}

impl Default for EndpointSliceOptions {
    fn default() -> Self {
        Self { workers: 5, max_endpoints_per_slice: 100, updates_batch_period: Duration::ZERO }
    }
}

/// The value of the managed-by label of this controller's slices.
const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
const NAME: &str = "endpointslice-controller";
const RETRIES_MAX: u32 = 15;

/// Retries of a Service are expensive, hence the long first delay.
const LIMITER: RateLimiter = RateLimiter { base_delay: Duration::from_secs(1), ..RateLimiter::DEFAULT };

/// Builds the controller.
#[must_use]
pub fn controller(options: &EndpointSliceOptions) -> Controller {
    Controller::new(NAME)
        .service_account(NAME)
        .event_component("endpoint-slice-controller")
        .may_write(&[Grant {
            group: "discovery.k8s.io",
            resource: "endpointslices",
            verbs: &["get", "list", "watch", "create", "update", "delete"],
        }])
        .metrics(metrics::ALL)
        .with_loop(the_loop(options))
}

fn the_loop(options: &EndpointSliceOptions) -> Loop {
    let memory = Memory::<EndpointSliceMemory>::default();
    let enqueuer = ServiceEnqueuer::new(options, &memory);
    let (services, pods, slices, nodes) = (enqueuer.clone(), enqueuer.clone(), enqueuer.clone(), enqueuer);
    Loop::reconciling("endpoint_slice", EndpointSliceReconciler::new(options, memory))
        .workers(options.workers)
        .max_retries(RETRIES_MAX)
        .rate_limited_by(LIMITER)
        // First, because the items of the queue are Service keys.
        .keyed_by::<Service>()
        .enqueue_on::<Service>(move |change, view, queue| services.service_changed(change, view, queue))
        .enqueue_on::<Pod>(move |change, view, queue| pods.pod_changed(change, view, queue))
        .enqueue_on::<EndpointSlice>(move |change, _, queue| slices.slice_changed(change, queue))
        .enqueue_on::<Node>(move |change, _, queue| nodes.node_changed(change, queue))
        .reads_pod_parts(PodParts::ENDPOINTS)
        .reads_index(BY_SERVICE)
}

/// Indexes the slices of this controller by the `namespace/name` of their Service.
const BY_SERVICE: Index<EndpointSlice> = Index {
    name: "managed-for-service",
    values: |slice, emit| {
        if let Some(service) = slices::service_of(slice).filter(|_| slices::is_managed_by(slice, MANAGED_BY))
        {
            emit(InternedStr::from(&*service.to_string()));
        }
    },
};

/// The queue item for the zones of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Zones;

impl QueueItem for Zones {
    fn text(&self) -> String {
        "zones".to_owned()
    }
}
