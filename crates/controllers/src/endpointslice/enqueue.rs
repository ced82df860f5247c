//! Which Services a change enqueues.

use std::time::Duration;

use keleustes_objects::{EndpointSlice, Key, Node, Pod, Service};
use keleustes_plan::{Change, Effects, Memory, View};

use super::gather::zone_of;
use super::memory::EndpointSliceMemory;
use super::{EndpointSliceOptions, MANAGED_BY, Zones};
use crate::service_endpoints::{PodChange, selects, slices};

/// The delay before a Service is enqueued after another client changed one of its slices.
const SLICE_CHANGE_DELAY: Duration = Duration::from_secs(1);

/// Enqueues Services on changes of Services, pods, slices and nodes.
#[derive(Clone)]
pub(super) struct ServiceEnqueuer {
    memory: Memory<EndpointSliceMemory>,
    updates_batch_period: Duration,
}

impl ServiceEnqueuer {
    pub(super) fn new(options: &EndpointSliceOptions, memory: &Memory<EndpointSliceMemory>) -> Self {
        Self { memory: memory.clone(), updates_batch_period: options.updates_batch_period }
    }

    /// Any change of a Service enqueues it at once and cancels the debounce of its pod changes. For the trigger
    /// time, the pods that a new selector adds count as changed.
    pub(super) fn service_changed(&self, change: &Change<Service>, view: &View<'_>, queue: &mut Effects) {
        let service = &change.latest().meta.key;
        self.memory.with(|memory| memory.cancel_debounce(service));
        if let (Some(old), Some(new)) = (change.old(), change.new())
            && old.selector != new.selector
        {
            let is_added = |pod: &&Pod| selects(new, Some(pod)) && !selects(old, Some(pod));
            let pods = view.in_namespace::<Pod>(&service.namespace).map(|pod| &**pod).filter(is_added);
            let earliest = pods.filter_map(Pod::ready_changed_at).min();
            self.memory.with(|memory| memory.pod_changed(service, earliest));
        }
        queue.add(service);
    }

    /// Enqueues the Services that select the pod, or selected it before, if its endpoint changed. A Service
    /// whose slices were just written is enqueued after its debounce interval.
    pub(super) fn pod_changed(&self, change: &Change<Pod>, view: &View<'_>, queue: &mut Effects) {
        let Some(pod_change) = PodChange::of(change) else { return };
        let now = view.now().monotonic;
        let services = view.in_namespace::<Service>(&change.latest().meta.key.namespace);
        for service in services.filter(|service| pod_change.affects(service)) {
            let key = &service.meta.key;
            let delay = self.memory.with(|memory| {
                memory.pod_changed(key, pod_change.trigger_time(service));
                memory.debounce_remaining(key, now)
            });
            queue.add_after(key, delay.max(self.updates_batch_period));
        }
    }

    /// Enqueues the zones when a node is added or deleted, or its readiness or zone changes. A change of its
    /// CPUs alone enqueues nothing, as in the original. A new node also enqueues the Services that skipped
    /// pods on it: their retries may be exhausted.
    pub(super) fn node_changed(&self, change: &Change<Node>, queue: &mut Effects) {
        let affects_zones = match (change.old(), change.new()) {
            (Some(old), Some(new)) => old.is_ready() != new.is_ready() || zone_of(old) != zone_of(new),
            (None, Some(new)) => {
                let name = &new.meta.key.name;
                self.memory
                    .with(|memory| memory.services_missing_node(name).for_each(|service| queue.add(service)));
                true
            }
            _ => true,
        };
        if affects_zones {
            queue.add(Zones);
        }
    }

    /// Enqueues the Service of a slice that another client changed or deleted.
    pub(super) fn slice_changed(&self, change: &Change<EndpointSlice>, queue: &mut Effects) {
        let delay = self.updates_batch_period.max(SLICE_CHANGE_DELAY);
        let is_own_write = |service: &Key| {
            self.memory.with(|memory| memory.is_own_write(service, change.latest(), change.is_deletion()))
        };
        for service in slices::services_of_change(change, MANAGED_BY, is_own_write) {
            queue.add_after(service, delay);
        }
    }
}
