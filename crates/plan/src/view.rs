//! What a controller sees: tables that hold still, and a reading of the clocks.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Key, Kind, Time};

use crate::{AnyStore, KindEntry, Store};

/// A reading of the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall time, as the API writes it. It may jump.
    pub wall: Time,
    /// Time since some moment in the past. It never goes back.
    pub monotonic: Duration,
}

/// An immutable view of the caches that a controller declared, at one moment.
pub struct View<'a> {
    tables: Vec<(KindEntry, &'a dyn AnyStore)>,
    now: Now,
}

impl<'a> View<'a> {
    /// A view of these tables.
    #[must_use]
    pub fn new(tables: Vec<(KindEntry, &'a dyn AnyStore)>, now: Now) -> Self {
        Self { tables, now }
    }

    /// What the clocks said when the view was taken.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// All objects of a kind.
    ///
    /// # Panics
    /// If the controller did not declare that it reads this kind, or declared that it may begin without it and it is not
    /// known yet. What it would see could be empty or stale, and a decision on that is worse than none.
    #[must_use]
    pub fn store<T: Kind>(&self) -> &'a Store<T> {
        self.store_if_synced().unwrap_or_else(|| panic!("{} is read without being declared", T::RESOURCE))
    }

    /// All objects of a kind that the loop may begin without; nothing until they are known.
    #[must_use]
    pub fn store_if_synced<T: Kind>(&self) -> Option<&'a Store<T>> {
        let wanted = KindEntry::of::<T>();
        let (_, table) = self.tables.iter().find(|(entry, _)| *entry == wanted)?;
        table.as_any().downcast_ref()
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
