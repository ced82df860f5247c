//! Which changes concern which Service.

use std::time::Duration;

use keleustes_objects::{EndpointSlice, Key, Node, Pod, Service, Time};
use keleustes_plan::{Change, Enqueue, Memory, View};

use super::gather::zone_of;
use super::memory::EndpointSliceMemory;
use super::{EndpointSliceOptions, labels, zones_key};

/// How long a Service waits after somebody else changed one of its slices.
const AFTER_SLICES: Duration = Duration::from_secs(1);

/// Hears of services, pods, slices and nodes.
#[derive(Clone)]
pub(super) struct ServiceEnqueuer {
    memory: Memory<EndpointSliceMemory>,
    updates_batch_period: Duration,
}

impl ServiceEnqueuer {
    pub(super) fn new(settings: &EndpointSliceOptions, memory: &Memory<EndpointSliceMemory>) -> Self {
        Self { memory: memory.clone(), updates_batch_period: settings.updates_batch_period }
    }

    /// Any change of a Service concerns it, and is not kept waiting for its pods.
    pub(super) fn service_changed(&self, change: &Change<Service>, wakes: &mut Enqueue) {
        let service = &change.latest().meta.key;
        self.memory.with(|recall| recall.cancel_debounce(service));
        wakes.add(service);
    }

    /// Enqueue the Services that select a pod, or did so before, if anything changed that endpoints show. A
    /// Service that was written a moment ago waits a little: more changes may come together.
    pub(super) fn pod_changed(&self, change: &Change<Pod>, view: &View<'_>, wakes: &mut Enqueue) {
        let Some(shift) = Shift::of(change) else { return };
        let now = view.now().monotonic;
        let services = view.in_namespace::<Service>(&change.latest().meta.key.namespace);
        for service in services.filter(|service| shift.concerns(service)) {
            let key = &service.meta.key;
            let delay = self.memory.with(|recall| {
                recall.pod_changed(key, shift.came_at(service));
                recall.debounce_remaining(key, now)
            });
            wakes.add_after(key, delay.max(self.updates_batch_period));
        }
    }

    /// A node concerns the zones of the cluster when it comes, goes, falls ill, recovers or moves. What it has of
    /// CPUs is looked at on such an occasion only. One that comes concerns the Services that miss it, too: they may
    /// have given up on it.
    pub(super) fn node_changed(&self, change: &Change<Node>, wakes: &mut Enqueue) {
        let concerns = match (change.old(), change.new()) {
            (Some(old), Some(new)) => old.is_ready() != new.is_ready() || zone_of(old) != zone_of(new),
            (None, Some(new)) => {
                let name = &new.meta.key.name;
                self.memory.with(|recall| recall.missing(name).for_each(|service| wakes.add(service)));
                true
            }
            _ => true,
        };
        if concerns {
            wakes.add(zones_key());
        }
    }

    /// Enqueue the Service of a slice that somebody else has changed or deleted.
    pub(super) fn slice_changed(&self, change: &Change<EndpointSlice>, wakes: &mut Enqueue) {
        let delay = self.updates_batch_period.max(AFTER_SLICES);
        let mut wake = |service: Option<Key>| {
            if let Some(service) = service {
                wakes.add_after(service, delay);
            }
        };
        let (slice, service) = (change.latest(), labels::service_of(change.latest()));
        if let (Some(old), Some(new)) = (change.old(), change.new()) {
            let before = labels::service_of(old);
            if service != before {
                wake(service);
                return wake(before);
            }
            if labels::is_managed(old) != labels::is_managed(new) {
                return wake(service);
            }
            // Annotations and the like are nobody's concern here.
            if old.meta.uid == new.meta.uid && new.meta.generation <= old.meta.generation {
                return;
            }
        }
        let is_own_write = |service: &Key| {
            self.memory.with(|recall| recall.is_own_write(service, slice, change.is_deletion()))
        };
        if labels::is_managed(slice) && !service.as_ref().is_some_and(is_own_write) {
            wake(service);
        }
    }
}

/// What happened to a pod, as far as endpoints show it.
struct Shift<'c> {
    old: Option<&'c Pod>,
    new: Option<&'c Pod>,
    /// Whether endpoints that it is shown in change.
    is_changed: bool,
    /// Whether other Services may select it now.
    is_relabelled: bool,
}

impl<'c> Shift<'c> {
    /// `None` if endpoints show nothing of it.
    fn of(change: &'c Change<Pod>) -> Option<Self> {
        let (old, new) = (change.old().map(|pod| &**pod), change.new().map(|pod| &**pod));
        let (is_changed, is_relabelled) = match (old, new) {
            (Some(old), Some(new)) if old.meta.resource_version == new.meta.resource_version => return None,
            (Some(old), Some(new)) => (is_changed(old, new), is_relabelled(old, new)),
            _ => (true, false),
        };
        (is_changed || is_relabelled).then_some(Self { old, new, is_changed, is_relabelled })
    }

    fn concerns(&self, service: &Service) -> bool {
        let (before, after) = (selects(service, self.old), selects(service, self.new));
        match (self.old, self.new) {
            (Some(_), Some(_)) if !self.is_relabelled => after,
            (Some(_), Some(_)) if !self.is_changed => before != after,
            _ => before || after,
        }
    }

    /// When it became what it is now for a Service, if it tells.
    fn came_at(&self, service: &Service) -> Option<Time> {
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

/// Whether endpoints of a pod change. Every update of a pod on its way out counts: its phase decides whether it
/// is still listed, and nothing else would tell of that.
fn is_changed(old: &Pod, new: &Pod) -> bool {
    old.is_terminating()
        || new.is_terminating()
        || old.is_ready() != new.is_ready()
        || old.pod_ips != new.pod_ips
        || old.meta.uid != new.meta.uid
}

/// Whether other Services may select a pod, or name it otherwise.
fn is_relabelled(old: &Pod, new: &Pod) -> bool {
    old.meta.labels != new.meta.labels
        || old.hostname() != new.hostname()
        || old.spec.subdomain != new.spec.subdomain
}
