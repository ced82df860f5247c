//! A view in which one change has not happened, for the question whether a controller would have made it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use keleustes_objects::{Key, ResourceVersion};
use keleustes_plan::{AnyObject, AnyStore, KindEntry, View};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::CacheReader;

/// A change that a view is to be without.
#[derive(Clone)]
pub(crate) struct Undo {
    /// The kind of the object.
    pub(crate) kind: KindEntry,
    /// The object.
    pub(crate) key: Key,
    /// Its state before the change; `None` if it did not exist.
    pub(crate) state: Option<Arc<dyn AnyObject>>,
}

/// What a store held before a change was undone in it.
struct Aside {
    object: Option<Arc<dyn AnyObject>>,
    resource_version: ResourceVersion,
}

impl Undo {
    fn set_aside(&self, store: &mut dyn AnyStore) -> Aside {
        let aside =
            Aside { object: store.object(&self.key), resource_version: store.resource_version().clone() };
        put(store, aside.object.as_ref(), self.state.as_ref());
        aside
    }

    fn restore(&self, store: &mut dyn AnyStore, aside: Aside) {
        put(store, self.state.as_ref(), aside.object.as_ref());
        store.bookmark(aside.resource_version);
    }
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
    /// As [`CacheReader::with_view`], as if one change had not happened. The store is locked meanwhile, so that no other
    /// reader sees it without the change.
    pub(crate) fn with_view_undoing(&self, undo: &Undo, f: &mut dyn FnMut(&View<'_>)) {
        let mut guards: Vec<Guard<'_>> = self
            .caches
            .iter()
            .map(|cache| match cache.entry == undo.kind {
                true => Guard::Write(cache.store.write()),
                false => Guard::Read(cache.store.read()),
            })
            .collect();
        let undone = guards.iter_mut().find_map(|guard| match guard {
            Guard::Write(store) => Some(undo.set_aside(&mut ***store)),
            Guard::Read(_) => None,
        });
        // The store must be restored in any case; the caller contains panics of decisions.
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
        let written = guards.iter_mut().find_map(|guard| match guard {
            Guard::Write(store) => Some(store),
            Guard::Read(_) => None,
        });
        if let Some((store, aside)) = written.zip(undone) {
            undo.restore(&mut ***store, aside);
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

    fn undo(state: Option<&str>) -> Undo {
        let kind = KindEntry::of::<Namespace>();
        assert_eq!(*kind.resource(), Namespace::RESOURCE);
        Undo { kind, key: Key::cluster("a"), state: state.map(namespace) }
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
            let undo = undo(before);
            let aside = undo.set_aside(&mut *store);
            assert_eq!(version(&*store).as_deref(), before, "undone");
            undo.restore(&mut *store, aside);
            assert_eq!(version(&*store).as_deref(), after, "restored");
            assert_eq!(*store.resource_version(), ResourceVersion::from("9"));
        }
    }
}
