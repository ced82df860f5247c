//! Keeps the Endpoints of every Service with a selector up to date with the selected pods.
//!
//! Endpoints are the older form of EndpointSlices: one object per Service, of the Service's first address family, with at
//! most 1,000 addresses. `service_endpoints` computes for both controllers which pods back a Service; `desired` makes
//! subsets of them, and `reconcile` compares and writes.
//!
//! Parity: pkg/controller/endpoint/.

mod desired;
mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{Endpoints, Key, Pod, PodParts, Service};
use keleustes_plan::{Controller, Grant, Loop, Memory, QueueItem};

use crate::service_endpoints::{PodChange, TriggerTime};
use reconcile::EndpointsReconciler;

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct EndpointsOptions {
    /// The number of workers.
    pub workers: usize,
    /// The delay before a Service is enqueued after a change of one of its pods, so that changes are batched.
    pub updates_batch_period: Duration,
}

impl Default for EndpointsOptions {
    fn default() -> Self {
        Self { workers: 5, updates_batch_period: Duration::ZERO }
    }
}

/// The service account, the event component, and the value of the managed-by label.
const COMPONENT: &str = "endpoint-controller";
const RETRIES_MAX: u32 = 15;

/// Builds the controller.
#[must_use]
pub fn controller(options: &EndpointsOptions) -> Controller {
    Controller::new("endpoints-controller")
        .service_account(COMPONENT)
        .event_component(COMPONENT)
        .may_write(&[
            Grant {
                group: "",
                resource: "endpoints",
                verbs: &["create", "delete", "get", "list", "update", "watch"],
            },
            Grant { group: "", resource: "endpoints/restricted", verbs: &["create"] },
            Grant { group: "", resource: "services", verbs: &["get"] },
        ])
        .with_loop(the_loop(options))
}

fn the_loop(options: &EndpointsOptions) -> Loop {
    let memory = Memory::<EndpointsMemory>::default();
    let (trigger_times, batch_period) = (memory.clone(), options.updates_batch_period);
    // Not keyed by the Service: the Endpoints of a recreated Service have the same name, so the cache must have observed
    // what was written for the earlier one.
    Loop::reconciling("endpoint", EndpointsReconciler::new(memory))
        .workers(options.workers)
        .max_retries(RETRIES_MAX)
        .enqueue_on::<Service>(|change, _, queue| queue.add(&change.latest().meta.key))
        .reads_pod_parts(PodParts::ENDPOINTS)
        .enqueue_on::<Pod>(move |change, view, queue| {
            let Some(pod_change) = PodChange::of(change) else { return };
            let services = view.in_namespace::<Service>(&change.latest().meta.key.namespace);
            for service in services.filter(|service| pod_change.affects(service)) {
                let at = pod_change.trigger_time(service);
                trigger_times.with(|memory| memory.of(&service.meta.key).pod_changed(at));
                queue.add_after(&service.meta.key, batch_period);
            }
        })
        .enqueue_on::<Endpoints>(|change, _, queue| {
            if change.is_deletion() {
                queue.add(&change.latest().meta.key);
            }
        })
        .initial_item(Leftovers)
}

/// The queue item for the Endpoints that a previous process left behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leftovers;

impl QueueItem for Leftovers {
    fn text(&self) -> String {
        "leftovers".to_owned()
    }
}

/// The state that the controller keeps in the process. A new process starts without it: the first write for a Service
/// has the Service's creation as trigger time, as in the original.
#[derive(Clone, Default)]
struct EndpointsMemory {
    services: BTreeMap<Key, TriggerTime>,
}

impl EndpointsMemory {
    fn of(&mut self, service: &Key) -> &mut TriggerTime {
        self.services.entry(service.clone()).or_default()
    }

    fn forget(&mut self, service: &Key) {
        self.services.remove(service);
    }
}
