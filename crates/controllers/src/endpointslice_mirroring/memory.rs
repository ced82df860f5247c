//! The state of Endpoints that the controller keeps between reconciles.

use std::collections::BTreeMap;

use keleustes_objects::{Key, ObjectMeta, Uid};

use crate::service_endpoints::{OwnWrite, PendingWrites, Totals};

/// The state that the controller keeps in the process. A new process starts without it: every mirrored slice enqueues its
/// Endpoints again, and the totals are computed again.
#[derive(Clone, Default)]
pub(super) struct MirroringMemory {
    endpoints: BTreeMap<Key, EndpointsState>,
    totals: Totals,
}

#[derive(Clone, Default)]
struct EndpointsState {
    /// Writes of slices that the cache has not shown yet.
    pending_writes: PendingWrites,
    totals: Totals,
}

impl MirroringMemory {
    /// Starts a reconcile. The runtime reconciles a key only after the caches have observed its writes.
    pub(super) fn begin_sync(&mut self, key: &Key) {
        if let Some(state) = self.endpoints.get_mut(key) {
            state.pending_writes.clear();
        }
    }

    /// Records a write of this controller that the cache has not shown yet.
    pub(super) fn record_write(&mut self, key: &Key, slice: Uid, written: OwnWrite) {
        self.endpoints.entry(key.clone()).or_default().pending_writes.record(slice, written);
    }

    /// Whether a change or deletion of a slice in the cache is this controller's own write.
    pub(super) fn is_own_write(&mut self, key: &Key, slice: &ObjectMeta, is_deleted: bool) -> bool {
        let Some(state) = self.endpoints.get_mut(key) else { return false };
        let is_own = state.pending_writes.observe(slice, is_deleted);
        // Endpoints that are not mirrored any more leave nothing behind once their slices are deleted.
        if state.pending_writes.is_empty() && state.totals == Totals::default() {
            self.endpoints.remove(key);
        }
        is_own
    }

    /// Sets the totals of one Endpoints object.
    pub(super) fn set_totals(&mut self, key: &Key, totals: Totals) {
        let state = self.endpoints.entry(key.clone()).or_default();
        let previous = std::mem::replace(&mut state.totals, totals);
        self.totals = self.totals.plus(totals).minus(previous);
    }

    /// Forgets Endpoints that are not mirrored.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(state) = self.endpoints.remove(key) {
            self.totals = self.totals.minus(state.totals);
        }
    }

    /// The totals of all Endpoints.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }
}
