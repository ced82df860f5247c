//! Read your own writes: an item is held back until the caches have seen what it wrote.
//!
//! This is what stands in for counted expectations. A controller that has just created three pods
//! would, on a cache that has seen only two of them, create a third again. So the version of every
//! successful write (or the uid of a deleted object) is remembered under the item's key, and the
//! key is not looked at again before each cache concerned has come at least that far. Bookmarks move
//! caches forward even when nothing happens to a kind, so no key waits longer than a bookmark takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keleustes_objects::{Key, Resource, Uid, Version};
use keleustes_plan::Item;
use parking_lot::Mutex;

use crate::caches::Cache;

/// The gate of one loop.
pub struct Gate {
    /// The caches whose staleness could mislead the loop.
    caches: Vec<Arc<Cache>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each key waits to see.
    wants: BTreeMap<Key, Vec<Want>>,
    /// Items that came to the gate and were not let through.
    held: BTreeSet<Item>,
}

struct Want {
    cache: usize,
    sight: Sight,
}

enum Sight {
    /// A state of the world at least this new.
    Version(Version),
    /// This life of an object gone, or going.
    Deletion(Key, Uid),
}

impl Gate {
    /// A gate in front of a loop that reads these caches.
    #[must_use]
    pub fn new(caches: Vec<Arc<Cache>>) -> Self {
        Self { caches, state: Mutex::default() }
    }

    /// Remembers a write that led to a new state.
    pub fn wrote(&self, key: &Key, resource: &Resource, version: &Version) {
        self.remember(key, resource, |wants, cache| {
            let newest = wants.iter_mut().find_map(|want| match &mut want.sight {
                Sight::Version(there) if want.cache == cache => Some(there),
                _ => None,
            });
            match newest {
                Some(there) if there.is_older_than(version) => *there = version.clone(),
                Some(_) => {}
                None => wants.push(Want { cache, sight: Sight::Version(version.clone()) }),
            }
        });
    }

    /// Remembers a deletion.
    pub fn deleted(&self, key: &Key, resource: &Resource, object: &Key, uid: &Uid) {
        self.remember(key, resource, |wants, cache| {
            wants.push(Want { cache, sight: Sight::Deletion(object.clone(), uid.clone()) });
        });
    }

    fn remember(&self, key: &Key, resource: &Resource, remember: impl Fn(&mut Vec<Want>, usize)) {
        let mut state = self.state.lock();
        for (at, cache) in self.caches.iter().enumerate() {
            if cache.entry().resource() == resource {
                remember(state.wants.entry(key.clone()).or_default(), at);
            }
        }
    }

    /// Whether an item may be worked on. If not, it is held and given back by [`Gate::release`].
    #[must_use]
    pub fn lets_through(&self, item: &Item) -> bool {
        let mut state = self.state.lock();
        let passes = self.has_seen_all(&mut state, &item.key);
        if !passes {
            state.held.insert(item.clone());
        }
        passes
    }

    /// The held items that may be worked on now.
    #[must_use]
    pub fn release(&self) -> Vec<Item> {
        let mut state = self.state.lock();
        if state.held.is_empty() {
            return Vec::new();
        }
        let held = std::mem::take(&mut state.held);
        let (free, held) = held.into_iter().partition(|item| self.has_seen_all(&mut state, &item.key));
        state.held = held;
        free.into_iter().collect()
    }

    fn has_seen_all(&self, state: &mut State, key: &Key) -> bool {
        let Some(wants) = state.wants.get_mut(key) else { return true };
        wants.retain(|want| !self.has_seen(want));
        let seen = wants.is_empty();
        if seen {
            state.wants.remove(key);
        }
        seen
    }

    fn has_seen(&self, want: &Want) -> bool {
        let cache = &self.caches[want.cache];
        match &want.sight {
            Sight::Version(version) => !cache.version().is_older_than(version),
            Sight::Deletion(key, uid) => cache.has_seen_deletion(key, uid),
        }
    }
}
