//! The current generation of each pool, without a pass over its slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{ArcStr, InternedStr, ResourceSlice};
use keleustes_plan::{Change, View};

use super::indexes::{SLICES_BY_POOL, pool_value};

/// Driver and name of a pool.
pub(super) type PoolName = (InternedStr, InternedStr);

/// The generations of the slices of all pools, as the events of slices have shown them.
///
/// Lost on failover: a pool is read from the cache again with the first event of one of its slices.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolGenerations(BTreeMap<PoolName, Pool>);

#[derive(Clone, Debug, Default)]
struct Pool {
    /// The generation of each slice, by the name of the slice.
    by_slice: BTreeMap<ArcStr, i64>,
    /// How many slices have a generation.
    slices: BTreeMap<i64, usize>,
}

impl PoolGenerations {
    /// The highest generation of a pool; `None` if no event of one of its slices was seen.
    pub(super) fn current(&self, pool: &PoolName) -> Option<i64> {
        self.0.get(pool)?.current()
    }

    /// Takes over a change of a slice. Returns the pools whose current generation is another one now, or may be, because
    /// the pool was not known.
    pub(super) fn observe(&mut self, change: &Change<ResourceSlice>, view: &View<'_>) -> Vec<PoolName> {
        let (old, new) = (change.old().map(pool_of), change.new().map(pool_of));
        let mut names: Vec<PoolName> = old.iter().chain(&new).cloned().collect();
        names.dedup();
        let before: Vec<_> = names.iter().map(|name| self.current(name)).collect();
        for name in &names {
            self.0.entry(name.clone()).or_insert_with(|| Pool::in_cache(view, name));
        }
        if let (Some(slice), Some(name)) = (change.old(), &old)
            && let Some(pool) = self.0.get_mut(name)
        {
            pool.remove(&slice.meta.key.name);
        }
        if let (Some(slice), Some(name)) = (change.new(), new) {
            self.0.entry(name).or_default().insert(slice);
        }
        let is_other =
            |(name, before): &(PoolName, Option<i64>)| before.is_none() || self.current(name) != *before;
        let others = names.iter().cloned().zip(before).filter(is_other).map(|(name, _)| name).collect();
        for name in &names {
            if self.current(name).is_none() {
                self.0.remove(name);
            }
        }
        others
    }
}

impl Pool {
    fn in_cache(view: &View<'_>, (driver, name): &PoolName) -> Self {
        let mut pool = Self::default();
        let slices = view.store::<ResourceSlice>().by_index(&SLICES_BY_POOL, &pool_value(driver, name));
        slices.for_each(|slice| pool.insert(slice));
        pool
    }

    fn current(&self) -> Option<i64> {
        self.slices.last_key_value().map(|(generation, _)| *generation)
    }

    fn insert(&mut self, slice: &ResourceSlice) {
        self.remove(&slice.meta.key.name);
        self.by_slice.insert(slice.meta.key.name.clone(), slice.pool_generation);
        *self.slices.entry(slice.pool_generation).or_default() += 1;
    }

    fn remove(&mut self, slice: &ArcStr) {
        let Some(generation) = self.by_slice.remove(slice) else { return };
        let left = self.slices.remove(&generation).map_or(0, |slices| slices - 1);
        if left > 0 {
            self.slices.insert(generation, left);
        }
    }
}

/// The pool of a slice.
pub(super) fn pool_of(slice: &Arc<ResourceSlice>) -> PoolName {
    (slice.driver.clone(), slice.pool.clone())
}
