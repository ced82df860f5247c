//! A view in which changes have not happened, for the question whether a controller would have made it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use keleustes_objects::{Key, Resource, ResourceVersion};
use keleustes_plan::{AnyObject, AnyStore, KindEntry, View};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::CacheReader;

/// An object with its state before a change; `None` if it did not exist.
pub(crate) type StateBefore = (Key, Option<Arc<dyn AnyObject>>);

/// Changes that a view is to be without.
#[derive(Clone)]
pub(crate) struct Undo {
    kinds: Vec<(KindEntry, Vec<StateBefore>)>,
    /// Whether the view is that of an earlier moment. Memories of controllers are then those of a process that starts.
    pub(crate) is_rewound: bool,
}

/// What a store held before changes were undone in it.
struct Aside {
    objects: Vec<Option<Arc<dyn AnyObject>>>,
    resource_version: ResourceVersion,
}

impl Undo {
    /// Changes of one kind.
    pub(crate) fn of(kind: KindEntry, states: Vec<StateBefore>) -> Self {
        Self { kinds: vec![(kind, states)], is_rewound: false }
    }

    /// No changes yet: the view becomes that of an earlier moment.
    pub(crate) fn rewinding() -> Self {
        Self { kinds: Vec::new(), is_rewound: true }
    }

    /// Adds a change. It must be older than the ones before it, because the oldest state of an object counts.
    pub(crate) fn add_older(&mut self, kind: &KindEntry, (key, state): StateBefore) {
        let states = match self.kinds.iter_mut().find(|(there, _)| there == kind) {
            Some((_, states)) => states,
            None => &mut self.kinds.push_mut((kind.clone(), Vec::new())).1,
        };
        match states.iter_mut().find(|(there, _)| *there == key) {
            Some((_, newer)) => *newer = state,
            None => states.push((key, state)),
        }
    }

    /// The states of objects of a kind.
    fn states(&self, kind: &KindEntry) -> Option<&[StateBefore]> {
        self.kinds.iter().find(|(there, _)| there == kind).map(|(_, states)| states.as_slice())
    }

    /// The state of an object of a resource, if changes of it are undone.
    pub(crate) fn state(&self, resource: &Resource, key: &Key) -> Option<&Option<Arc<dyn AnyObject>>> {
        let kinds = self.kinds.iter().filter(|(kind, _)| kind.resource() == resource);
        let mut states = kinds.flat_map(|(_, states)| states);
        states.find(|(there, _)| there == key).map(|(_, state)| state)
    }
}

fn set_aside(states: &[StateBefore], store: &mut dyn AnyStore) -> Aside {
    let resource_version = store.resource_version().clone();
    let mut objects = Vec::new();
    for (key, state) in states {
        let object = store.object(key);
        put(store, object.as_ref(), state.as_ref());
        objects.push(object);
    }
    Aside { objects, resource_version }
}

fn restore(states: &[StateBefore], store: &mut dyn AnyStore, aside: Aside) {
    for ((_, state), object) in states.iter().zip(aside.objects).rev() {
        put(store, state.as_ref(), object.as_ref());
    }
    store.bookmark(aside.resource_version);
}

/// Replaces one state of an object by another.
fn put(store: &mut dyn AnyStore, from: Option<&Arc<dyn AnyObject>>, to: Option<&Arc<dyn AnyObject>>) {
    match (from, to) {
        (_, Some(to)) => drop(store.apply(to.clone())),
        (Some(from), None) => drop(store.delete(from.clone())),
        (None, None) => {}
    }
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, Box<dyn AnyStore>>),
    Write(RwLockWriteGuard<'a, Box<dyn AnyStore>>),
}

impl CacheReader {
    /// As [`CacheReader::with_view`], as if changes had not happened. Their stores are locked meanwhile, so that no
    /// other reader sees them without the changes.
    pub(crate) fn with_view_undoing(&self, undo: &Undo, f: &mut dyn FnMut(&View<'_>)) {
        let mut guards: Vec<Guard<'_>> = self
            .caches
            .iter()
            .map(|cache| match undo.states(&cache.entry) {
                Some(_) => Guard::Write(cache.store.write()),
                None => Guard::Read(cache.store.read()),
            })
            .collect();
        let mut asides = Vec::new();
        for (cache, guard) in self.caches.iter().zip(&mut guards) {
            if let (Some(states), Guard::Write(store)) = (undo.states(&cache.entry), guard) {
                asides.push(set_aside(states, &mut ***store));
            }
        }
        // The stores must be restored in any case; the caller contains panics of decisions.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let stores = self.caches.iter().zip(&guards).map(|(cache, guard)| {
                let store: &dyn AnyStore = match guard {
                    Guard::Read(store) => &***store,
                    Guard::Write(store) => &***store,
                };
                (cache.entry.clone(), store)
            });
            f(&View::new(stores.collect(), self.clocks.now()));
        }));
        let mut asides = asides.into_iter();
        for (cache, guard) in self.caches.iter().zip(&mut guards) {
            if let (Some(states), Guard::Write(store)) = (undo.states(&cache.entry), guard)
                && let Some(aside) = asides.next()
            {
                restore(states, &mut ***store, aside);
            }
        }
        if let Err(panic) = result {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{Kind, Namespace};
    use keleustes_plan::KindEntry;
    use serde_json::json;

    use super::*;

    fn namespace(version: &str) -> Arc<dyn AnyObject> {
        let json = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version}});
        Arc::new(serde_json::from_value::<Namespace>(json).unwrap())
    }

    fn state(version: Option<&str>) -> StateBefore {
        (Key::cluster("a"), version.map(namespace))
    }

    fn version(store: &dyn AnyStore) -> Option<String> {
        store.meta(&Key::cluster("a")).map(|meta| meta.resource_version.to_string())
    }

    #[test]
    fn undone_change_is_restored() {
        for (before, after) in [(None, Some("5")), (Some("4"), Some("5")), (Some("4"), None), (None, None)] {
            let mut store = KindEntry::of::<Namespace>().new_store();
            after.into_iter().for_each(|after| drop(store.apply(namespace(after))));
            store.bookmark("9".into());
            let states = [state(before)];
            let aside = set_aside(&states, &mut *store);
            assert_eq!(version(&*store).as_deref(), before, "undone");
            restore(&states, &mut *store, aside);
            assert_eq!(version(&*store).as_deref(), after, "restored");
            assert_eq!(*store.resource_version(), ResourceVersion::from("9"));
        }
    }

    #[test]
    fn oldest_state_of_an_object_counts() {
        let kind = KindEntry::of::<Namespace>();
        let mut undo = Undo::of(kind.clone(), vec![state(Some("7"))]);
        undo.add_older(&kind, state(Some("6")));
        undo.add_older(&kind, (Key::cluster("b"), None));
        assert_eq!(undo.states(&kind).map(<[_]>::len), Some(2));
        let found = undo.state(&Namespace::RESOURCE, &Key::cluster("a")).cloned().flatten();
        assert_eq!(found.map(|found| found.meta().resource_version.clone()), Some("6".into()));
        assert!(undo.state(&Namespace::RESOURCE, &Key::cluster("c")).is_none());
    }
}
