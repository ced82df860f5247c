//! Which Services a change enqueues.

use std::time::Duration;

use keleustes_objects::{EndpointSlice, Key, Node, Pod, Service, Time};
use keleustes_plan::{Change, Enqueue, Memory, View};

use super::gather::zone_of;
use super::memory::EndpointSliceMemory;
use super::{EndpointSliceOptions, labels, zones_key};

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

    /// Any change of a Service enqueues it at once and cancels the debounce of its pod changes.
    pub(super) fn service_changed(&self, change: &Change<Service>, queue: &mut Enqueue) {
        let service = &change.latest().meta.key;
        self.memory.with(|memory| memory.cancel_debounce(service));
        queue.add(service);
    }

    /// Enqueues the Services that select the pod, or selected it before, if its endpoint changed. A Service
    /// whose slices were just written is enqueued after its debounce interval.
    pub(super) fn pod_changed(&self, change: &Change<Pod>, view: &View<'_>, queue: &mut Enqueue) {
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
    pub(super) fn node_changed(&self, change: &Change<Node>, queue: &mut Enqueue) {
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
            queue.add(zones_key());
        }
    }

    /// Enqueues the Service of a slice that another client changed or deleted.
    pub(super) fn slice_changed(&self, change: &Change<EndpointSlice>, queue: &mut Enqueue) {
        let delay = self.updates_batch_period.max(SLICE_CHANGE_DELAY);
        let mut enqueue = |service: Option<Key>| {
            if let Some(service) = service {
                queue.add_after(service, delay);
            }
        };
        let (slice, service) = (change.latest(), labels::service_of(change.latest()));
        if let (Some(old), Some(new)) = (change.old(), change.new()) {
            let old_service = labels::service_of(old);
            if service != old_service {
                enqueue(service);
                return enqueue(old_service);
            }
            if labels::is_managed(old) != labels::is_managed(new) {
                return enqueue(service);
            }
            // A change of annotations, for example, does not change the generation.
            if old.meta.uid == new.meta.uid && new.meta.generation <= old.meta.generation {
                return;
            }
        }
        let is_own_write = |service: &Key| {
            self.memory.with(|memory| memory.is_own_write(service, slice, change.is_deletion()))
        };
        if labels::is_managed(slice) && !service.as_ref().is_some_and(is_own_write) {
            enqueue(service);
        }
    }
}

/// How a change of a pod affects endpoints.
struct PodChange<'c> {
    old: Option<&'c Pod>,
    new: Option<&'c Pod>,
    /// Whether the endpoint of the pod changed.
    endpoint_changed: bool,
    /// Whether the set of Services that select the pod may have changed.
    labels_changed: bool,
}

impl<'c> PodChange<'c> {
    /// `None` if the change does not affect endpoints.
    fn of(change: &'c Change<Pod>) -> Option<Self> {
        let (old, new) = (change.old().map(|pod| &**pod), change.new().map(|pod| &**pod));
        let (endpoint_changed, labels_changed) = match (old, new) {
            (Some(old), Some(new)) if old.meta.resource_version == new.meta.resource_version => return None,
            (Some(old), Some(new)) => (endpoint_changed(old, new), labels_changed(old, new)),
            _ => (true, false),
        };
        (endpoint_changed || labels_changed).then_some(Self { old, new, endpoint_changed, labels_changed })
    }

    fn affects(&self, service: &Service) -> bool {
        let (before, after) = (selects(service, self.old), selects(service, self.new));
        match (self.old, self.new) {
            (Some(_), Some(_)) if !self.labels_changed => after,
            (Some(_), Some(_)) if !self.endpoint_changed => before != after,
            _ => before || after,
        }
    }

    /// The time of the pod's last Ready transition, if it is new for this Service.
    fn trigger_time(&self, service: &Service) -> Option<Time> {
        let new = self.new.filter(|_| selects(service, self.new))?;
        let old = self.old.filter(|_| selects(service, self.old));
        let before = old.and_then(Pod::ready_changed_at);
        new.ready_changed_at().filter(|at| before.is_none_or(|before| *at > before))
    }
}

fn selects(service: &Service, pod: Option<&Pod>) -> bool {
    let Some((selector, pod)) = service.selector.as_ref().zip(pod) else { return false };
    selector.is_subset_of(&pod.meta.labels)
}

/// Whether the endpoint of a pod changed. Every update of a terminating pod counts: its phase decides
/// whether it is listed, and no other event reports the phase.
fn endpoint_changed(old: &Pod, new: &Pod) -> bool {
    old.is_terminating()
        || new.is_terminating()
        || old.is_ready() != new.is_ready()
        || old.pod_ips != new.pod_ips
        || old.meta.uid != new.meta.uid
}

/// Whether the set of Services that select a pod, or its hostname, may have changed.
fn labels_changed(old: &Pod, new: &Pod) -> bool {
    old.meta.labels != new.meta.labels
        || old.hostname() != new.hostname()
        || old.spec.subdomain != new.spec.subdomain
}
