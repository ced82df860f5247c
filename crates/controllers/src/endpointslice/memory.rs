//! The state of Services that the controller keeps between reconciles.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_objects::{EndpointSlice, InternedStr, Key, Pod, Service, Time, Uid};

use super::zones::{HintsPerZone, ZoneCpuRatios};
use crate::service_endpoints::{AddressType, Debounce, OwnWrite, PendingWrites, Totals, TriggerTime};

/// The state that the controller keeps in the process. A new process starts without it, with these effects,
/// all of which upstream has, too: the trigger time of the first write for a Service is the Service's
/// creation, the event for enabled topology aware hints is recorded again, and every Service with slices is
/// enqueued again.
#[derive(Clone, Default)]
pub(super) struct EndpointSliceMemory {
    services: BTreeMap<Key, ServiceState>,
    /// The CPU ratios of the zones, once they have been computed.
    zones: Option<ZoneCpuRatios>,
    totals: Totals,
    distributions: BTreeMap<InternedStr, usize>,
}

/// The state of one Service.
#[derive(Clone, Default)]
struct ServiceState {
    trigger_time: TriggerTime,
    /// In this interval after a write of its slices, changes of its pods are debounced.
    debounce: Debounce,
    /// Writes of its slices that the cache has not shown yet.
    pending_writes: PendingWrites,
    totals: Totals,
    /// The `trafficDistribution` that it is counted under; empty if it is not counted.
    distribution: InternedStr,
    hints: Option<Box<ZoneHints>>,
    /// Nodes of its pods that did not exist at the last reconcile.
    missing_nodes: BTreeSet<InternedStr>,
}

/// The topology aware hints of a Service, which few Services have.
#[derive(Clone, Default)]
struct ZoneHints {
    is_populated: bool,
    counts: BTreeMap<AddressType, HintsPerZone>,
}

impl EndpointSliceMemory {
    fn state_of(&mut self, service: &Key) -> &mut ServiceState {
        self.services.entry(service.clone()).or_default()
    }

    /// Records when a pod of a Service changed.
    pub(super) fn pod_changed(&mut self, service: &Key, at: Option<Time>) {
        self.state_of(service).trigger_time.pod_changed(at);
    }

    /// The remaining debounce delay for changes of pods of a Service.
    pub(super) fn debounce_remaining(&self, service: &Key, now: Duration) -> Duration {
        self.services.get(service).map_or(Duration::ZERO, |state| state.debounce.remaining(now))
    }

    /// Starts a reconcile of a Service with these pods. Returns the time of the earliest change that it handles.
    pub(super) fn begin_sync<'p>(
        &mut self,
        service: &Service,
        selected_pods: impl Iterator<Item = &'p Pod>,
    ) -> Option<Time> {
        let state = self.state_of(&service.meta.key);
        // The runtime reconciles a key only after the caches have observed its writes.
        state.pending_writes.clear();
        state.trigger_time.begin_sync(service, selected_pods)
    }

    /// Starts a debounce interval for changes of a Service's pods.
    pub(super) fn start_debounce(&mut self, service: &Key, now: Duration, slices: usize) {
        self.state_of(service).debounce.start(now, slices);
    }

    /// Ends the debounce interval of a Service.
    pub(super) fn cancel_debounce(&mut self, service: &Key) {
        if let Some(state) = self.services.get_mut(service) {
            state.debounce.cancel();
        }
    }

    /// Records a write of this controller that the cache has not shown yet.
    pub(super) fn record_write(&mut self, service: &Key, slice: Uid, written: OwnWrite) {
        self.state_of(service).pending_writes.record(slice, written);
    }

    /// Whether a change or deletion of a slice in the cache is this controller's own write.
    pub(super) fn is_own_write(&mut self, service: &Key, slice: &EndpointSlice, is_deleted: bool) -> bool {
        let state = self.services.get_mut(service);
        state.is_some_and(|state| state.pending_writes.observe(&slice.meta, is_deleted))
    }

    /// Records the nodes of a Service's pods that do not exist.
    pub(super) fn set_missing_nodes<'n>(
        &mut self,
        service: &Key,
        nodes: impl Iterator<Item = &'n InternedStr>,
    ) {
        self.state_of(service).missing_nodes = nodes.cloned().collect();
    }

    /// The Services with pods on a node that did not exist.
    pub(super) fn services_missing_node(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.services.iter().filter(|(_, state)| state.missing_nodes.contains(node)).map(|(key, _)| key)
    }

    pub(super) fn zones(&self) -> Option<&ZoneCpuRatios> {
        self.zones.as_ref()
    }

    /// Stores new CPU ratios. Returns the Services whose hints overload a zone under the new ratios.
    pub(super) fn set_zones(&mut self, zones: ZoneCpuRatios) -> Vec<Key> {
        let is_overloaded = |state: &ServiceState| {
            let mut counts = state.hints.iter().flat_map(|hints| hints.counts.values());
            counts.any(|counts| zones.is_overloaded(counts))
        };
        let overloaded = self.services.iter().filter(|(_, state)| is_overloaded(state));
        let overloaded = overloaded.map(|(key, _)| key.clone()).collect();
        self.zones = Some(zones);
        overloaded
    }

    /// Stores the hints per zone of a Service. Returns whether it had hints before.
    pub(super) fn set_hint_counts(
        &mut self,
        service: &Key,
        address_type: AddressType,
        counts: HintsPerZone,
    ) -> bool {
        let hints = self.state_of(service).hints.get_or_insert_default();
        hints.counts.insert(address_type, counts);
        std::mem::replace(&mut hints.is_populated, true)
    }

    /// Records that a Service has no hints for an address type. Returns whether it had hints before, for any
    /// address type.
    pub(super) fn remove_hint_counts(&mut self, service: &Key, address_type: AddressType) -> bool {
        let state = self.state_of(service);
        let Some(hints) = &mut state.hints else { return false };
        let had_hints = std::mem::replace(&mut hints.is_populated, false);
        hints.counts.remove(&address_type);
        if hints.counts.is_empty() {
            state.hints = None;
        }
        had_hints
    }

    /// Updates the totals of a Service, and counts it under its `trafficDistribution` if that is in effect.
    pub(super) fn set_totals(&mut self, service: &Key, totals: Totals, distribution: Option<&InternedStr>) {
        let distribution = distribution.cloned().unwrap_or_default();
        let state = self.services.entry(service.clone()).or_default();
        let (previous, left) = (
            std::mem::replace(&mut state.totals, totals),
            std::mem::replace(&mut state.distribution, distribution),
        );
        let entered = state.distribution.clone();
        self.totals = self.totals.plus(totals).minus(previous);
        self.move_distribution(&left, &entered);
    }

    /// Moves one Service from one `trafficDistribution` to another. An unused one stays with the value zero,
    /// so that its series does not disappear.
    fn move_distribution(&mut self, left: &InternedStr, entered: &InternedStr) {
        if let Some(count) = self.distributions.get_mut(left) {
            *count -= 1;
        }
        if !entered.is_empty() {
            *self.distributions.entry(entered.clone()).or_default() += 1;
        }
    }

    pub(super) fn forget(&mut self, service: &Key) {
        if let Some(state) = self.services.remove(service) {
            self.totals = self.totals.minus(state.totals);
            self.move_distribution(&state.distribution, &InternedStr::default());
        }
    }

    /// The totals of all Services.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// The number of Services by `trafficDistribution`.
    pub(super) fn distributions(&self) -> impl Iterator<Item = (&InternedStr, usize)> {
        self.distributions.iter().map(|(distribution, count)| (distribution, *count))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(version: &str) -> EndpointSlice {
        let metadata = json!({"namespace": "a", "name": "web-1", "uid": "u", "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    /// Proves EPS-11, EPS-13, EPS-14.
    #[test]
    fn own_writes_are_distinguished_from_those_of_other_clients() {
        let service = Key::namespaced("a", "web");
        let memory_after = |write: OwnWrite| {
            let mut memory = EndpointSliceMemory::default();
            memory.record_write(&service, Uid::from("u"), write);
            memory
        };
        let updated = || memory_after(OwnWrite::Version("5".into()));
        assert!(!EndpointSliceMemory::default().is_own_write(&service, &slice("5"), false));
        assert!(updated().is_own_write(&service, &slice("5"), false));
        assert!(
            updated().is_own_write(&service, &slice("4"), false),
            "an older version is not a foreign change"
        );
        assert!(!updated().is_own_write(&service, &slice("6"), false), "another client has changed it since");
        assert!(!updated().is_own_write(&service, &slice("5"), true), "another client has deleted it");
        assert!(!updated().is_own_write(&Key::namespaced("a", "other"), &slice("5"), false));
        let deleted = || memory_after(OwnWrite::Deleted);
        assert!(deleted().is_own_write(&service, &slice("5"), true));
        assert!(
            deleted().is_own_write(&service, &slice("5"), false),
            "an older version of the deleted slice"
        );
        // Each write is matched once: the same change again is another client's.
        for (mut memory, is_deleted) in [(updated(), false), (deleted(), true)] {
            assert!(memory.is_own_write(&service, &slice("5"), is_deleted));
            assert!(!memory.is_own_write(&service, &slice("5"), is_deleted));
        }
    }
}
