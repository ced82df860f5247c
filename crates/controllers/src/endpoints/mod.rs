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

use crate::service_endpoints::{Debounce, PodChange, TriggerTime};
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
    let batch_period = options.updates_batch_period;
    let (of_services, of_pods, of_endpoints) = (memory.clone(), memory.clone(), memory.clone());
    // Not keyed by the Service: the Endpoints of a recreated Service have the same name, so the cache must have observed
    // what was written for the earlier one.
    Loop::reconciling("endpoint", EndpointsReconciler::new(memory))
        .workers(options.workers)
        .max_retries(RETRIES_MAX)
        .enqueue_on::<Service>(move |change, _, queue| {
            let key = &change.latest().meta.key;
            of_services.with(|memory| memory.cancel_debounce(key));
            queue.add(key);
        })
        .reads_pod_parts(PodParts::ENDPOINTS)
        .enqueue_on::<Pod>(move |change, view, queue| {
            let Some(pod_change) = PodChange::of(change) else { return };
            let now = view.now().monotonic;
            let services = view.in_namespace::<Service>(&change.latest().meta.key.namespace);
            for service in services.filter(|service| pod_change.affects(service)) {
                let at = pod_change.trigger_time(service);
                let held_back = of_pods.with(|memory| {
                    let state = memory.of(&service.meta.key);
                    state.trigger_time.pod_changed(at);
                    state.debounce.remaining(now)
                });
                queue.add_after(&service.meta.key, held_back.max(batch_period));
            }
        })
        .enqueue_on::<Endpoints>(move |change, _, queue| {
            let key = &change.latest().meta.key;
            if change.is_deletion() {
                of_endpoints.with(|memory| memory.cancel_debounce(key));
                queue.add(key);
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
    services: BTreeMap<Key, ServiceState>,
}

/// The state of one Service.
#[derive(Clone, Default)]
struct ServiceState {
    trigger_time: TriggerTime,
    /// In this interval after a write of its Endpoints, changes of its pods are held back.
    debounce: Debounce,
}

impl EndpointsMemory {
    fn of(&mut self, service: &Key) -> &mut ServiceState {
        self.services.entry(service.clone()).or_default()
    }

    fn debounce_remaining(&self, service: &Key, now: Duration) -> Duration {
        self.services.get(service).map_or(Duration::ZERO, |state| state.debounce.remaining(now))
    }

    fn cancel_debounce(&mut self, service: &Key) {
        if let Some(state) = self.services.get_mut(service) {
            state.debounce.cancel();
        }
    }

    fn forget(&mut self, service: &Key) {
        self.services.remove(service);
    }
}
