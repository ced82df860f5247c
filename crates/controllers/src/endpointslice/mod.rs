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

mod drafts;
mod endpoints;
mod gather;
mod hints;
mod labels;
mod memory;
mod metrics;
mod packing;
mod sync;
#[cfg(test)]
mod tests;
mod topology;
mod wake;
mod zones;

use std::time::Duration;

use keleustes_objects::{EndpointSlice, Key, Node, Pod, Service, Word};
use keleustes_plan::{Controller, Grant, Index, Limiter, Loop, Memory};

use memory::Recall;
use sync::Turns;
use wake::Ears;

/// What the controller needs to be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many Services are worked on at once.
    pub workers: usize,
    /// How many endpoints a slice may get.
    pub endpoints_max: usize,
    /// How long a Service waits after a change of one of its pods, so that more changes may come together.
    pub batch_period: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { workers: 5, endpoints_max: 100, batch_period: Duration::ZERO }
    }
}

/// Tells the slices of this controller from those of others.
const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
const NAME: &str = "endpointslice-controller";
const RETRIES_MAX: u32 = 15;

/// A Service that fails is expensive to try again, hence the long first delay.
const LIMITER: Limiter = Limiter { item_delay_first: Duration::from_secs(1), ..Limiter::DEFAULT };

/// The controller.
#[must_use]
pub fn controller(settings: &Settings) -> Controller {
    Controller::new(NAME)
        .also_known_as(&["endpointslice"])
        .works_as(NAME)
        .records_events_as("endpoint-slice-controller")
        .may_write(&[Grant {
            group: "discovery.k8s.io",
            resource: "endpointslices",
            verbs: &["get", "list", "watch", "create", "update", "delete"],
        }])
        .measures(metrics::ALL)
        .runs(the_loop(settings))
}

fn the_loop(settings: &Settings) -> Loop {
    let memory = Memory::<Recall>::default();
    let ears = Ears::new(settings, &memory);
    let (services, pods, slices, nodes) = (ears.clone(), ears.clone(), ears.clone(), ears);
    Loop::scripted("endpoint_slice", Turns::new(settings, memory))
        .workers(settings.workers)
        .retries_at_most(RETRIES_MAX)
        .limited_by(LIMITER)
        // First, because items are named after Services.
        .woken_by::<Service>(move |change, _, wakes| services.service_changed(change, wakes))
        .woken_by::<Pod>(move |change, view, wakes| pods.pod_changed(change, view, wakes))
        .woken_by::<EndpointSlice>(move |change, _, wakes| slices.slice_changed(change, wakes))
        .woken_by::<Node>(move |change, _, wakes| nodes.node_changed(change, wakes))
        .reads_by(BY_SERVICE)
}

/// Finds the slices that this controller manages for a Service, by `namespace/name` of the Service.
const BY_SERVICE: Index<EndpointSlice> = Index {
    name: "managed-for-service",
    values: |slice, emit| {
        if let Some(service) = labels::service_of(slice).filter(|_| labels::is_managed(slice)) {
            emit(Word::from(&*service.to_string()));
        }
    },
};

/// Stands for the zones of the cluster in the queue of Services, none of which is without a namespace.
fn zones_key() -> Key {
    Key::cluster("zones")
}
