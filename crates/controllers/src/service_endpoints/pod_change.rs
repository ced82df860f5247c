//! Which Services a change of a pod affects.

use keleustes_objects::{Pod, Service, Time};
use keleustes_plan::Change;

/// How a change of a pod affects endpoints.
pub(crate) struct PodChange<'c> {
    old: Option<&'c Pod>,
    new: Option<&'c Pod>,
    /// Whether the endpoint of the pod changed.
    endpoint_changed: bool,
    /// Whether the set of Services that select the pod may have changed.
    labels_changed: bool,
}

impl<'c> PodChange<'c> {
    /// `None` if the change does not affect endpoints.
    pub(crate) fn of(change: &'c Change<Pod>) -> Option<Self> {
        let (old, new) = (change.old().map(|pod| &**pod), change.new().map(|pod| &**pod));
        let (endpoint_changed, labels_changed) = match (old, new) {
            (Some(old), Some(new)) if old.meta.resource_version == new.meta.resource_version => return None,
            (Some(old), Some(new)) => (endpoint_changed(old, new), labels_changed(old, new)),
            _ => (true, false),
        };
        (endpoint_changed || labels_changed).then_some(Self { old, new, endpoint_changed, labels_changed })
    }

    /// Whether the change affects the endpoints of a Service.
    pub(crate) fn affects(&self, service: &Service) -> bool {
        let (before, after) = (selects(service, self.old), selects(service, self.new));
        match (self.old, self.new) {
            (Some(_), Some(_)) if !self.labels_changed => after,
            (Some(_), Some(_)) if !self.endpoint_changed => before != after,
            _ => before || after,
        }
    }

    /// The time of the pod's last Ready transition, if it is new for this Service.
    pub(crate) fn trigger_time(&self, service: &Service) -> Option<Time> {
        let new = self.new.filter(|_| selects(service, self.new))?;
        let old = self.old.filter(|_| selects(service, self.old));
        let before = old.and_then(Pod::ready_changed_at);
        new.ready_changed_at().filter(|at| before.is_none_or(|before| *at > before))
    }
}

pub(crate) fn selects(service: &Service, pod: Option<&Pod>) -> bool {
    let Some((selector, pod)) = service.selector.as_ref().zip(pod) else { return false };
    selector.is_subset_of(&pod.meta.labels)
}

/// Whether the endpoint of a pod changed. Every update of a terminating pod counts: its phase decides
/// whether it is listed, and no other event reports the phase.
fn endpoint_changed(old: &Pod, new: &Pod) -> bool {
    old.is_terminating()
        || new.is_terminating()
        || old.is_ready() != new.is_ready()
        || old.pod_ips() != new.pod_ips()
        || old.meta.uid != new.meta.uid
}

/// Whether the set of Services that select a pod, or its hostname, may have changed.
fn labels_changed(old: &Pod, new: &Pod) -> bool {
    old.meta.labels != new.meta.labels
        || old.hostname() != new.hostname()
        || old.spec.subdomain() != new.spec.subdomain()
}
