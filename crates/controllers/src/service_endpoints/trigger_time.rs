//! The time of the earliest change that a write handles, from which clients measure the programming latency.

use keleustes_objects::{Labels, Pod, Service, Time};

/// The annotation with that time, on Endpoints and EndpointSlices.
pub(crate) const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What is known of the changes of one Service since its last reconcile. A new process starts without it: the time of
/// the first write is the creation of the Service.
#[derive(Clone, Default)]
pub(crate) struct TriggerTime {
    /// The selector at the last reconcile, if there was one.
    selector: Option<Labels>,
    /// Whether the Service has been reconciled.
    was_synced: bool,
    /// Its creationTimestamp at the last reconcile.
    created_at: Option<Time>,
    /// The earliest change of its pods since the last reconcile.
    earliest_pod_change: Option<Time>,
}

impl TriggerTime {
    /// Records when a pod of the Service changed.
    pub(crate) fn pod_changed(&mut self, at: Option<Time>) {
        self.earliest_pod_change = [self.earliest_pod_change, at].into_iter().flatten().min();
    }

    /// Starts a reconcile of the Service with these pods. Returns the time of the earliest change that it handles.
    pub(crate) fn begin_sync<'p>(
        &mut self,
        service: &Service,
        selected_pods: impl Iterator<Item = &'p Pod>,
    ) -> Option<Time> {
        let selector = std::mem::replace(&mut self.selector, service.selector.clone());
        // No event of a pod reports that another selector selects it.
        if let Some(selector) = selector.filter(|selector| Some(selector) != service.selector.as_ref()) {
            let newly_selected = selected_pods.filter(|pod| !selector.is_subset_of(&pod.meta.labels));
            self.pod_changed(newly_selected.filter_map(Pod::ready_changed_at).min());
        }
        let earliest_pod_change = self.earliest_pod_change.take();
        let previous = std::mem::replace(&mut self.created_at, service.meta.creation_timestamp);
        if !std::mem::replace(&mut self.was_synced, true) {
            return service.meta.creation_timestamp;
        }
        let is_newer = service.meta.creation_timestamp > previous;
        let created_at = service.meta.creation_timestamp.filter(|_| is_newer);
        [earliest_pod_change, created_at].into_iter().flatten().min()
    }
}
