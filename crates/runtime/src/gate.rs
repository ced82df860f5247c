//! Read your own writes: an item is held back until the caches have seen what it wrote.
//!
//! This is what stands in for counted expectations. A controller that has just created three pods
//! would, on a cache that has seen only two of them, create a third again. So the version of every
//! successful write (or the uid of a deleted object) is remembered under the item's key, and the
//! key is not looked at again before each cache concerned has come at least that far. A refusal or a fresh
//! read that tells of an object the cache does not show is remembered in the same way. Bookmarks move
//! caches forward even when nothing happens to a kind, so no key waits longer than a bookmark takes;
//! and should a cache never get there, a key is let through after [`HOLD_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Key, Resource, ResourceVersion, Uid};
use keleustes_plan::Item;
use parking_lot::Mutex;

use crate::caches::Cache;
use crate::clock::Clocks;

/// How long a key is held back at most, counted from its last write: a server restored from a backup
/// counts its versions anew, and an object that cannot be read any more is never seen to go.
pub const HOLD_MAX: Duration = Duration::from_secs(300);

/// With fewer records than this, nobody looks for those that are no longer needed.
const RECORDS_MIN: usize = 64;

/// The gate of one loop.
pub struct Gate {
    /// The caches whose staleness could mislead the loop.
    caches: Vec<Arc<Cache>>,
    /// The cache of the objects that items are named after. What was written for one of them is of no
    /// concern to another that takes its name later.
    owners: Option<Arc<Cache>>,
    clocks: Clocks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each key waits to see.
    records: BTreeMap<Key, Record>,
    /// Items that came to the gate and were not let through.
    held: BTreeSet<Item>,
    /// How many records there were after the last search for those no longer needed.
    kept: usize,
    /// How many whole lists the caches had taken in when somebody last looked.
    lists: u64,
}

/// What was written for one key.
#[derive(Default)]
struct Record {
    /// The life of the owner at that time; `None` if none was known.
    owner: Option<Uid>,
    /// The items that were worked on.
    writers: BTreeSet<Item>,
    expires_at: Duration,
    wants: Vec<Want>,
}

struct Want {
    cache: usize,
    sight: Sight,
}

enum Sight {
    /// A state of the world at least this new.
    Version(ResourceVersion),
    /// This life of an object gone, or going.
    Deletion(Key, Uid),
    /// An object of this name, or a list taken in after so many others.
    Presence(Key, u64),
}

/// What the gate says to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateDecision {
    /// It may be worked on.
    Proceed,
    /// It is held. [`Gate::release`] will give it back; if not, it may come again after this time.
    HoldFor(Duration),
}

impl Gate {
    /// A gate in front of a loop that reads these caches, one of them of the objects that its items
    /// are named after.
    #[must_use]
    pub fn new(caches: &[Arc<Cache>], owners: Option<Arc<Cache>>, clocks: Clocks) -> Self {
        Self { caches: caches.to_vec(), owners, clocks, state: Mutex::default() }
    }

    /// Remembers a write that led to a new state; the newest counts.
    pub fn expect_version(&self, item: &Item, resource: &Resource, version: &ResourceVersion) {
        if version.is_empty() {
            return;
        }
        self.remember(item, resource, |record, cache| {
            let newest = record.wants.iter_mut().find_map(|want| match &mut want.sight {
                Sight::Version(there) if want.cache == cache => Some(there),
                _ => None,
            });
            match newest {
                Some(there) if version.is_older_than(there) => {}
                Some(there) => *there = version.clone(),
                None => record.wants.push(Want { cache, sight: Sight::Version(version.clone()) }),
            }
        });
    }

    /// Remembers a deletion.
    pub fn expect_deleted(&self, item: &Item, resource: &Resource, object: &Key, uid: &Uid) {
        self.remember(item, resource, |record, cache| {
            record.wants.push(Want { cache, sight: Sight::Deletion(object.clone(), uid.clone()) });
        });
    }

    /// Remembers having been told that there is an object of this name already.
    pub fn expect_present(&self, item: &Item, resource: &Resource, object: &Key) {
        self.remember(item, resource, |record, cache| {
            let sight = Sight::Presence(object.clone(), self.caches[cache].list_count());
            record.wants.push(Want { cache, sight });
        });
    }

    /// Remembers a fresh read that found an object, if a cache does not show it: should it go before a list would show
    /// it, nothing else would tell.
    pub fn expect_fetched(&self, item: &Item, resource: &Resource, object: &Key) {
        let of_kind = |cache: &&Arc<Cache>| cache.entry().resource() == resource;
        if self.caches.iter().filter(of_kind).any(|cache| cache.uid(object).is_none()) {
            self.expect_present(item, resource, object);
        }
    }

    fn remember(&self, item: &Item, resource: &Resource, remember: impl Fn(&mut Record, usize)) {
        let mut state = self.state.lock();
        let now = self.clocks.monotonic();
        let caches = self.caches.iter().enumerate();
        for (at, _) in caches.filter(|(_, cache)| cache.entry().resource() == resource) {
            let record = state.records.entry(item.key.clone()).or_default();
            if let Some(owner) = self.owner(item) {
                record.belongs_to(owner);
            }
            record.writers.insert(item.clone());
            record.expires_at = now + HOLD_MAX;
            remember(record, at);
        }
        // Keys that nobody asks about again would otherwise stay for ever.
        if state.records.len() > (2 * state.kept).max(RECORDS_MIN) {
            state.records.retain(|key, record| self.holds(key, record, now));
            state.kept = state.records.len();
        }
    }

    /// Whether an item may be worked on.
    #[must_use]
    pub fn decide(&self, item: &Item) -> GateDecision {
        let mut state = self.state.lock();
        let now = self.clocks.monotonic();
        let Some(record) = state.records.get_mut(&item.key) else {
            state.held.remove(item);
            return GateDecision::Proceed;
        };
        if self.holds(&item.key, record, now) {
            let passage = GateDecision::HoldFor(record.expires_at.saturating_sub(now));
            state.held.insert(item.clone());
            return passage;
        }
        if !record.wants.is_empty() && record.expires_at <= now {
            tracing::warn!(%item, after = ?HOLD_MAX, "let through although a cache lags behind its last write");
        }
        state.records.remove(&item.key);
        state.held.remove(item);
        GateDecision::Proceed
    }

    /// How many whole lists the caches have taken in. An item during whose turn this number grew is to
    /// be looked at again, for the reason that [`Gate::release`] has.
    #[must_use]
    pub fn list_count(&self) -> u64 {
        self.caches.iter().map(|cache| cache.list_count()).sum()
    }

    /// The held items that may be worked on now.
    ///
    /// After a whole new list, those that have written something lately are among them: of what was made
    /// and undone between two lists nobody is ever told, so nothing else would wake them.
    #[must_use]
    pub fn take_released(&self) -> Vec<Item> {
        let lists = self.list_count();
        let State { records, held, lists: seen, .. } = &mut *self.state.lock();
        if std::mem::replace(seen, lists) != lists {
            held.extend(records.values().flat_map(|record| record.writers.iter().cloned()));
        }
        let now = self.clocks.monotonic();
        let is_free = |item: &Item| {
            !records.get_mut(&item.key).is_some_and(|record| self.holds(&item.key, record, now))
        };
        held.extract_if(.., is_free).collect()
    }

    /// Whether there is still something to wait for. What has been seen is struck off.
    fn holds(&self, key: &Key, record: &mut Record, now: Duration) -> bool {
        if record.owner.is_some() && record.owner != self.owner(key) {
            return false;
        }
        record.wants.retain(|want| !self.has_seen(want));
        !record.wants.is_empty() && now < record.expires_at
    }

    fn owner(&self, key: &Key) -> Option<Uid> {
        self.owners.as_ref()?.uid(key)
    }

    fn has_seen(&self, want: &Want) -> bool {
        let cache = &self.caches[want.cache];
        match &want.sight {
            Sight::Version(version) => !cache.resource_version().is_older_than(version),
            Sight::Deletion(key, uid) => cache.has_observed_deletion(key, uid),
            Sight::Presence(key, lists) => cache.list_count() != *lists || cache.uid(key).is_some(),
        }
    }
}

impl Record {
    /// What was written for another owner of the same name is forgotten.
    fn belongs_to(&mut self, owner: Uid) {
        if self.owner.as_ref().is_some_and(|there| *there != owner) {
            self.wants.clear();
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

    #[tokio::test(start_paused = true)]
    async fn records_that_nobody_asks_about_do_not_pile_up() {
        let client = kube::Client::new(ApiServer::default(), "default");
        let clocks = Clocks::new(|| 0);
        let caches = Caches::new(client, clocks.clone(), Random::seeded(7), Metrics::new(), None);
        let cache = caches.cache(&KindEntry::of::<Namespace>());
        cache.wait_for_sync().await;
        let gate = Gate::new(std::slice::from_ref(&cache), None, clocks);
        for n in 0..10_000 {
            let item = Item::from(Key::cluster(format!("n{n}")));
            gate.expect_version(&item, &Namespace::RESOURCE, &cache.resource_version());
        }
        assert!(gate.state.lock().records.len() <= 2 * RECORDS_MIN);
        for n in 0..1000 {
            let item = Item::from(Key::cluster(format!("n{n}")));
            gate.expect_version(&item, &Namespace::RESOURCE, &ResourceVersion::from("1000000"));
        }
        assert!(gate.state.lock().records.len() >= 1000, "what is still waited for stays");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_and_is_not_shown_is_looked_at_again_after_the_next_list() {
        let server = ApiServer::default();
        let clocks = Clocks::new(|| 0);
        let client = kube::Client::new(server.clone(), "default");
        let caches = Caches::new(client, clocks.clone(), Random::seeded(7), Metrics::new(), None);
        let cache = caches.cache(&KindEntry::of::<Namespace>());
        cache.wait_for_sync().await;
        let gate = Gate::new(std::slice::from_ref(&cache), None, clocks);
        let item = Item::from(Key::cluster("item"));
        assert!(gate.take_released().is_empty());

        gate.expect_fetched(&item, &Namespace::RESOURCE, &Key::cluster("default"));
        assert_eq!(gate.decide(&item), GateDecision::Proceed, "the cache shows it");
        gate.expect_fetched(&item, &Namespace::RESOURCE, &Key::cluster("gone-by-then"));
        assert!(matches!(gate.decide(&item), GateDecision::HoldFor(_)));
        tokio::time::advance(Duration::from_secs(1)).await;
        cache.wait_for_list_since(gate.clocks.monotonic()).await;
        assert_eq!(gate.take_released(), std::slice::from_ref(&item));
        assert_eq!(gate.decide(&item), GateDecision::Proceed);
    }
}
