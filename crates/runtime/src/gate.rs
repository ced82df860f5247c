//! Read your own writes: a key is held back until the caches have observed what it wrote.
//!
//! The gate takes the place of upstream's counted expectations. A controller that has just created three pods
//! and reconciles on a cache that shows only two of them would create another one. So the gate records, under
//! the item's key, the resourceVersion of every successful write (or the UID of a deleted object), and does
//! not let the key reconcile again before each cache concerned has observed it. An AlreadyExists response or
//! a live read that shows an object missing from the cache is recorded in the same way, and so is what the executor
//! finds out about a write whose response was lost. Bookmarks advance
//! caches even when no object of a kind changes, so no key waits longer than a bookmark takes; if a cache
//! never gets there, the key proceeds after [`HOLD_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Key, Resource, ResourceVersion, Uid};
use keleustes_plan::Item;
use parking_lot::Mutex;

use crate::caches::Cache;
use crate::clock::Clocks;

/// How long a key is held back at most, counted from its last write: an API server restored from a backup
/// reuses lower resourceVersions, and the deletion of an object that can no longer be decoded is never
/// observed.
pub const HOLD_MAX: Duration = Duration::from_secs(300);

/// Below this number of records, no search for obsolete ones is made.
const RECORDS_MIN: usize = 64;

/// The gate of one loop.
pub struct Gate {
    /// The caches that the loop reads.
    caches: Vec<Arc<Cache>>,
    /// The cache of the objects that items are named after. What was written for one of them does not hold
    /// back a later object of the same name with another UID.
    owners: Option<Arc<Cache>>,
    clocks: Clocks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each key waits for.
    records: BTreeMap<Key, Record>,
    /// Items that are held back.
    held: BTreeSet<Item>,
    /// The keys that wait for an object to be present.
    presences: BTreeSet<Key>,
    /// How many records there were after the last search for obsolete ones.
    records_kept: usize,
    /// The sum of the caches' list counts when it was last read.
    list_count: u64,
}

/// What was written for one key.
#[derive(Default)]
struct Record {
    /// The UID of the owner at that time; `None` if the cache did not have it.
    owner: Option<Uid>,
    /// The items that were reconciled.
    items: BTreeSet<Item>,
    expires_at: Duration,
    pending: Vec<PendingExpectation>,
}

struct PendingExpectation {
    cache: usize,
    expectation: Expectation,
}

impl PendingExpectation {
    fn is_presence(&self) -> bool {
        matches!(self.expectation, Expectation::Presence(..))
    }
}

enum Expectation {
    /// The cache is at this resourceVersion or a later one.
    Version(ResourceVersion),
    /// The object with this UID is deleted or terminating.
    Deletion(Key, Uid),
    /// The cache shows an object of this name, or has relisted since this list count.
    Presence(Key, u64),
}

/// Whether an item may be reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateDecision {
    /// It may be reconciled.
    Proceed,
    /// It is held back. [`Gate::take_released`] returns it once it may proceed; otherwise it may be tried
    /// again after this time.
    HoldFor(Duration),
}

impl Gate {
    /// A gate in front of a loop that reads these caches; `owners` is the cache of the objects that its items
    /// are named after.
    #[must_use]
    pub fn new(caches: &[Arc<Cache>], owners: Option<Arc<Cache>>, clocks: Clocks) -> Self {
        Self { caches: caches.to_vec(), owners, clocks, state: Mutex::default() }
    }

    /// Whether the loop reads this resource.
    #[must_use]
    pub fn reads(&self, resource: &Resource) -> bool {
        self.caches.iter().any(|cache| cache.entry().resource() == resource)
    }

    /// Expects the resourceVersion that a write returned; the newest one counts.
    pub fn expect_version(&self, item: &Item, resource: &Resource, version: &ResourceVersion) {
        if version.is_empty() {
            return;
        }
        self.record_for(item, resource, |record, cache| {
            let newest =
                record.pending.iter_mut().find_map(|pending_one| match &mut pending_one.expectation {
                    Expectation::Version(newest) if pending_one.cache == cache => Some(newest),
                    _ => None,
                });
            match newest {
                Some(newest) if version.is_older_than(newest) => {}
                Some(newest) => *newest = version.clone(),
                None => record
                    .pending
                    .push(PendingExpectation { cache, expectation: Expectation::Version(version.clone()) }),
            }
        });
    }

    /// Expects a deletion.
    pub fn expect_deleted(&self, item: &Item, resource: &Resource, object: &Key, uid: &Uid) {
        self.record_for(item, resource, |record, cache| {
            record.pending.push(PendingExpectation {
                cache,
                expectation: Expectation::Deletion(object.clone(), uid.clone()),
            });
        });
    }

    /// Expects an object of this name, after an AlreadyExists response.
    pub fn expect_present(&self, item: &Item, resource: &Resource, object: &Key) {
        self.record_for(item, resource, |record, cache| {
            let expectation = Expectation::Presence(object.clone(), self.caches[cache].list_count());
            record.pending.push(PendingExpectation { cache, expectation });
        });
        self.state.lock().presences.insert(item.key().clone());
    }

    /// Expects an object that a live read has found and a cache does not show: if it is deleted before the
    /// next list would show it, no watch event would enqueue the key.
    pub fn expect_fetched(&self, item: &Item, resource: &Resource, object: &Key) {
        let of_kind = |cache: &&Arc<Cache>| cache.entry().resource() == resource;
        if self.caches.iter().filter(of_kind).any(|cache| cache.uid(object).is_none()) {
            self.expect_present(item, resource, object);
        }
    }

    fn record_for(&self, item: &Item, resource: &Resource, add: impl Fn(&mut Record, usize)) {
        let mut state = self.state.lock();
        let now = self.clocks.monotonic();
        let caches = self.caches.iter().enumerate();
        for (at, _) in caches.filter(|(_, cache)| cache.entry().resource() == resource) {
            let record = state.records.entry(item.key().clone()).or_default();
            if let Some(owner) = self.owner(item.key()) {
                record.set_owner(owner);
            }
            record.items.insert(item.clone());
            record.expires_at = now + HOLD_MAX;
            add(record, at);
        }
        // Keys that are never enqueued again would otherwise stay for ever.
        if state.records.len() > (2 * state.records_kept).max(RECORDS_MIN) {
            state.records.retain(|key, record| self.holds(key, record, now));
            state.records_kept = state.records.len();
        }
    }

    /// Whether an item may be reconciled now.
    #[must_use]
    pub fn decide(&self, item: &Item) -> GateDecision {
        let mut state = self.state.lock();
        let now = self.clocks.monotonic();
        let Some(record) = state.records.get_mut(item.key()) else {
            state.held.remove(item);
            return GateDecision::Proceed;
        };
        if self.holds(item.key(), record, now) {
            let decision = GateDecision::HoldFor(record.expires_at.saturating_sub(now));
            state.held.insert(item.clone());
            return decision;
        }
        if !record.pending.is_empty() && record.expires_at <= now {
            tracing::warn!(%item, after = ?HOLD_MAX, "a cache has not observed the last write of this key, reconciling it anyway");
        }
        state.records.remove(item.key());
        state.held.remove(item);
        GateDecision::Proceed
    }

    /// What a key waits for, for people, and how long at most. Empty if it may be reconciled.
    #[must_use]
    pub fn pending(&self, key: &Key) -> (Vec<String>, Duration) {
        let state = self.state.lock();
        let now = self.clocks.monotonic();
        let Some(record) = state.records.get(key).filter(|record| now < record.expires_at) else {
            return (Vec::new(), Duration::ZERO);
        };
        if record.owner.is_some() && record.owner != self.owner(key) {
            return (Vec::new(), Duration::ZERO);
        }
        let unmet = record.pending.iter().filter(|pending_one| !self.is_met(pending_one));
        let describe = |pending_one: &PendingExpectation| {
            let cache = &self.caches[pending_one.cache];
            let resource = cache.entry().resource();
            match &pending_one.expectation {
                Expectation::Version(version) => format!(
                    "the cache of {resource} is at resourceVersion {}, this controller has written {version}",
                    cache.resource_version()
                ),
                Expectation::Deletion(object, _) => {
                    format!("the cache of {resource} has not observed that {object} was deleted")
                }
                Expectation::Presence(object, _) => {
                    format!("the cache of {resource} does not show {object} yet, which exists")
                }
            }
        };
        (unmet.map(describe).collect(), record.expires_at.saturating_sub(now))
    }

    /// Some of the items that are held back.
    #[must_use]
    pub fn held(&self, limit: usize) -> Vec<Item> {
        self.state.lock().held.iter().take(limit).cloned().collect()
    }

    /// How many lists the caches have stored in all. An item during whose reconcile this number grew must be
    /// requeued, for the reason given at [`Gate::take_released`].
    #[must_use]
    pub fn list_count(&self) -> u64 {
        self.caches.iter().map(|cache| cache.list_count()).sum()
    }

    /// Removes and returns the held items that may be reconciled now.
    ///
    /// After a relist, items that have written recently are among them: if what they wrote was undone between
    /// two lists, no watch event reports it, so nothing else would enqueue them.
    #[must_use]
    pub fn take_released(&self) -> Vec<Item> {
        let list_count = self.list_count();
        let State { records, held, presences, list_count: seen_list_count, .. } = &mut *self.state.lock();
        if std::mem::replace(seen_list_count, list_count) != list_count {
            held.extend(records.values().flat_map(|record| record.items.iter().cloned()));
        }
        // An object that was observed may be deleted again before its key is reconciled, and is not waited for then.
        presences.retain(|key| {
            let Some(record) = records.get_mut(key) else { return false };
            record.pending.retain(|pending_one| !pending_one.is_presence() || !self.is_met(pending_one));
            record.pending.iter().any(PendingExpectation::is_presence)
        });
        let now = self.clocks.monotonic();
        let may_proceed = |item: &Item| {
            !records.get_mut(item.key()).is_some_and(|record| self.holds(item.key(), record, now))
        };
        held.extract_if(.., may_proceed).collect()
    }

    /// Whether there is still something to wait for. Expectations that have been met are removed.
    fn holds(&self, key: &Key, record: &mut Record, now: Duration) -> bool {
        if record.owner.is_some() && record.owner != self.owner(key) {
            return false;
        }
        record.pending.retain(|pending_one| !self.is_met(pending_one));
        !record.pending.is_empty() && now < record.expires_at
    }

    fn owner(&self, key: &Key) -> Option<Uid> {
        self.owners.as_ref()?.uid(key)
    }

    fn is_met(&self, pending_one: &PendingExpectation) -> bool {
        let cache = &self.caches[pending_one.cache];
        match &pending_one.expectation {
            Expectation::Version(version) => !cache.resource_version().is_older_than(version),
            Expectation::Deletion(key, uid) => cache.has_observed_deletion(key, uid),
            Expectation::Presence(key, list_count) => {
                cache.list_count() != *list_count || cache.uid(key).is_some()
            }
        }
    }
}

impl Record {
    /// Drops the expectations of an earlier owner of the same name.
    fn set_owner(&mut self, owner: Uid) {
        if self.owner.as_ref().is_some_and(|previous| *previous != owner) {
            self.pending.clear();
        }
        self.owner = Some(owner);
    }
}

#[cfg(test)]
mod tests {
    use keleustes_apiserver::ApiServer;
    use keleustes_objects::{Kind as _, Namespace};
    use keleustes_plan::KindEntry;

    use super::*;
    use crate::caches::Caches;
    use crate::clock::Random;
    use crate::metrics::Metrics;

    /// The gate of a loop that reads Namespaces, and their cache, which is synced.
    async fn gate_of_namespaces(server: &ApiServer) -> (Gate, Arc<Cache>) {
        let clocks = Clocks::new(|| 0);
        let client = kube::Client::new(server.clone(), "default");
        let caches = Caches::new(client, clocks.clone(), Random::seeded(7), Metrics::new(), None);
        let cache = caches.cache(&KindEntry::of::<Namespace>());
        cache.wait_for_sync().await;
        (Gate::new(std::slice::from_ref(&cache), None, clocks), cache)
    }

    #[tokio::test(start_paused = true)]
    async fn obsolete_records_are_dropped() {
        let (gate, cache) = gate_of_namespaces(&ApiServer::default()).await;
        for n in 0..10_000 {
            let item = Item::from(Key::cluster(format!("n{n}")));
            gate.expect_version(&item, &Namespace::RESOURCE, &cache.resource_version());
        }
        assert!(gate.state.lock().records.len() <= 2 * RECORDS_MIN);
        for n in 0..1000 {
            let item = Item::from(Key::cluster(format!("n{n}")));
            gate.expect_version(&item, &Namespace::RESOURCE, &ResourceVersion::from("1000000"));
        }
        assert!(gate.state.lock().records.len() >= 1000, "records that are still needed stay");
    }

    #[tokio::test(start_paused = true)]
    async fn object_that_was_observed_and_deleted_since_is_not_waited_for() {
        let server = ApiServer::default();
        let (gate, cache) = gate_of_namespaces(&server).await;
        let (item, name) = (Item::from(Key::cluster("item")), Key::cluster("default"));
        gate.expect_present(&item, &Namespace::RESOURCE, &Key::cluster("never"));
        assert!(gate.take_released().is_empty());
        assert!(matches!(gate.decide(&item), GateDecision::HoldFor(_)));

        let item = Item::from(Key::cluster("other"));
        gate.expect_present(&item, &Namespace::RESOURCE, &name);
        assert!(gate.take_released().is_empty(), "nothing is held");
        server.remove("namespaces", "", "default");
        while cache.uid(&name).is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(gate.decide(&item), GateDecision::Proceed);
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_fetched_an_uncached_object_is_released_by_the_next_list() {
        let server = ApiServer::default();
        let (gate, cache) = gate_of_namespaces(&server).await;
        let item = Item::from(Key::cluster("item"));
        assert!(gate.take_released().is_empty());

        gate.expect_fetched(&item, &Namespace::RESOURCE, &Key::cluster("default"));
        assert_eq!(gate.decide(&item), GateDecision::Proceed, "the cache shows it");
        gate.expect_fetched(&item, &Namespace::RESOURCE, &Key::cluster("deleted-by-then"));
        assert!(matches!(gate.decide(&item), GateDecision::HoldFor(_)));
        tokio::time::advance(Duration::from_secs(1)).await;
        cache.wait_for_list_since(gate.clocks.monotonic()).await;
        assert_eq!(gate.take_released(), std::slice::from_ref(&item));
        assert_eq!(gate.decide(&item), GateDecision::Proceed);
    }
}
