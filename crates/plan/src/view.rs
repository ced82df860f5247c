//! What a decision reads: an immutable view of the caches, and a reading of the clocks.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Key, Kind, Time};

use crate::{AnyStore, KindEntry, Store};

/// A reading of the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time, as in API timestamps. It may jump.
    pub wall: Time,
    /// The nanoseconds of the wall clock beyond `wall`.
    pub wall_subsecond_nanoseconds: u32,
    /// Monotonic time since an arbitrary origin.
    pub monotonic: Duration,
}

impl Now {
    /// The wall-clock time from now to the start of the second `time`; zero if it is not in the future.
    #[must_use]
    pub fn until(self, time: Time) -> Duration {
        let seconds = u64::try_from(time.seconds_since(self.wall)).unwrap_or(0);
        Duration::from_secs(seconds)
            .saturating_sub(Duration::from_nanos(self.wall_subsecond_nanoseconds.into()))
    }

    /// The wall clock in nanoseconds since 1970.
    #[must_use]
    pub fn wall_nanoseconds(self) -> i128 {
        i128::from(self.wall.unix_seconds()) * 1_000_000_000 + i128::from(self.wall_subsecond_nanoseconds)
    }
}

/// An immutable view of the caches that a loop declares, at one moment.
pub struct View<'a> {
    stores: Vec<(KindEntry, &'a dyn AnyStore)>,
    now: Now,
    on_read: Option<&'a (dyn Fn(&KindEntry) + Sync)>,
}

impl<'a> View<'a> {
    /// A view of these stores.
    #[must_use]
    pub fn new(stores: Vec<(KindEntry, &'a dyn AnyStore)>, now: Now) -> Self {
        Self { stores, now, on_read: None }
    }

    /// The same view, which reports the kind of every read. The simulator compares the reads of a reconcile with the
    /// watches of its loop.
    #[must_use]
    pub fn recording<'b>(&'b self, on_read: &'b (dyn Fn(&KindEntry) + Sync)) -> View<'b> {
        View { stores: self.stores.clone(), now: self.now, on_read: Some(on_read) }
    }

    /// The clock reading of the view.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// The store of a kind.
    ///
    /// # Panics
    /// If the loop does not declare that it reads the kind, or starts without it and its cache is not synced. A
    /// decision on an empty or stale cache could delete objects.
    #[must_use]
    pub fn store<T: Kind>(&self) -> &'a Store<T> {
        self.store_if_synced()
            .unwrap_or_else(|| panic!("{} is read without being declared or synced", T::RESOURCE))
    }

    /// The store of a kind that the loop starts without; `None` until its cache is synced.
    #[must_use]
    pub fn store_if_synced<T: Kind>(&self) -> Option<&'a Store<T>> {
        let wanted = KindEntry::of::<T>();
        if let Some(on_read) = self.on_read {
            on_read(&wanted);
        }
        let (_, store) = self.stores.iter().find(|(entry, _)| *entry == wanted)?;
        store.as_any().downcast_ref()
    }

    /// One object.
    #[must_use]
    pub fn get<T: Kind>(&self, key: &Key) -> Option<&'a Arc<T>> {
        self.store::<T>().get(key)
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn all<T: Kind>(&self) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
        self.store::<T>().all()
    }

    /// The objects of one namespace, sorted by name.
    pub fn in_namespace<T: Kind>(
        &self,
        namespace: &InternedStr,
    ) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
        self.store::<T>().in_namespace(namespace)
    }
}
