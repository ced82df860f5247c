//! Keeps the EndpointSlices of every Service with a selector equal to the pods that it selects.
//!
//! One turn of a Service goes through these rooms, each of them pure:
//!
//! - `gather` takes from the caches what concerns the Service: its pods, their zones, its slices;
//! - `endpoints` says which endpoints are wanted, one set for each address family and set of ports;
//! - `packing` fits them into the slices that are there, changing as few of them as it can;
//! - `hints` says who should prefer which endpoint, with `topology` and `zones` behind it;
//! - `drafts` turns the outcome into writes.
//!
//! `wake` says which changes concern which Service, `memory` what is remembered between turns, and `sync`
//! lets all of this alternate with applying.
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

use keleustes_objects::{EndpointSlice, InternedStr, Key, Node, Pod, Service};
use keleustes_plan::{Controller, Grant, Index, Loop, Memory, RateLimiter};

use enqueue::ServiceEnqueuer;
use memory::EndpointSliceMemory;
use reconcile::EndpointSliceReconciler;

/// What the controller needs to be told.
#[derive(Clone, Debug)]
pub struct EndpointSliceOptions {
    /// How many Services are worked on at once.
    pub workers: usize,
    /// How many endpoints a slice may get.
    pub max_endpoints_per_slice: usize,
    /// How long a Service waits after a change of one of its pods, so that more changes may come together.
    pub updates_batch_period: Duration,
}

impl Default for EndpointSliceOptions {
    fn default() -> Self {
        Self { workers: 5, max_endpoints_per_slice: 100, updates_batch_period: Duration::ZERO }
    }
}

/// Tells the slices of this controller from those of others.
const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
const NAME: &str = "endpointslice-controller";
const RETRIES_MAX: u32 = 15;

/// A Service that fails is expensive to try again, hence the long first delay.
const LIMITER: RateLimiter = RateLimiter { base_delay: Duration::from_secs(1), ..RateLimiter::DEFAULT };

/// The controller.
#[must_use]
pub fn controller(settings: &EndpointSliceOptions) -> Controller {
    Controller::new(NAME)
        .also_known_as(&["endpointslice"])
        .service_account(NAME)
        .event_component("endpoint-slice-controller")
        .may_write(&[Grant {
            group: "discovery.k8s.io",
            resource: "endpointslices",
            verbs: &["get", "list", "watch", "create", "update", "delete"],
        }])
        .metrics(metrics::ALL)
        .with_loop(the_loop(settings))
}

fn the_loop(settings: &EndpointSliceOptions) -> Loop {
    let memory = Memory::<EndpointSliceMemory>::default();
    let ears = ServiceEnqueuer::new(settings, &memory);
    let (services, pods, slices, nodes) = (ears.clone(), ears.clone(), ears.clone(), ears);
    Loop::reconciling("endpoint_slice", EndpointSliceReconciler::new(settings, memory))
        .workers(settings.workers)
        .max_retries(RETRIES_MAX)
        .rate_limited_by(LIMITER)
        // First, because items are named after Services.
        .enqueue_on::<Service>(move |change, _, wakes| services.service_changed(change, wakes))
        .enqueue_on::<Pod>(move |change, view, wakes| pods.pod_changed(change, view, wakes))
        .enqueue_on::<EndpointSlice>(move |change, _, wakes| slices.slice_changed(change, wakes))
        .enqueue_on::<Node>(move |change, _, wakes| nodes.node_changed(change, wakes))
        .reads_index(BY_SERVICE)
}

/// Finds the slices that this controller manages for a Service, by `namespace/name` of the Service.
const BY_SERVICE: Index<EndpointSlice> = Index {
    name: "managed-for-service",
    values: |slice, emit| {
        if let Some(service) = labels::service_of(slice).filter(|_| labels::is_managed(slice)) {
            emit(InternedStr::from(&*service.to_string()));
        }
    },
};

/// Stands for the zones of the cluster in the queue of Services, none of which is without a namespace.
fn zones_key() -> Key {
    Key::cluster("zones")
}
