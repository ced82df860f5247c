//! The cached objects of one kind and their indexes, like client-go's `Indexer`.

use std::borrow::Borrow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use keleustes_objects::{ArcStr, InternedStr, Key, Object, ResourceVersion};

use crate::Change;

thread_local! {
    static ROWS_READ: Cell<u64> = const { Cell::new(0) };
}

/// How many rows this thread has read from stores. A test compares two readings: work that must not grow with the number of
/// objects reads a bounded number of rows.
pub(crate) fn rows_read() -> u64 {
    ROWS_READ.get()
}

/// The object of a row, which is counted as read.
fn read<T>(row: &Row<T>) -> &Arc<T> {
    ROWS_READ.set(ROWS_READ.get() + 1);
    &row.0
}

/// The objects of one kind, sorted by namespace and name.
///
/// Rows are keyed by the key inside the object, so no name is held twice.
pub struct Store<T> {
    rows: BTreeSet<Row<T>>,
    indexes: Vec<Indexed<T>>,
    resource_version: ResourceVersion,
}

/// A named index: it maps values to the objects that have them.
pub struct Index<T> {
    /// Unique within the kind.
    pub name: &'static str,
    /// Emits every value under which an object is indexed.
    pub values: fn(&T, &mut dyn FnMut(InternedStr)),
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Index<T> {}

struct Indexed<T> {
    index: Index<T>,
    rows: BTreeMap<InternedStr, BTreeSet<Row<T>>>,
}

/// An index of this name exists already.
#[derive(Debug, PartialEq, Eq)]
pub struct DuplicateIndex(pub &'static str);

impl fmt::Display for DuplicateIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {:?} exists already", self.0)
    }
}

impl std::error::Error for DuplicateIndex {}

impl<T: Object> Default for Store<T> {
    fn default() -> Self {
        Self { rows: BTreeSet::new(), indexes: Vec::new(), resource_version: ResourceVersion::default() }
    }
}

impl<T: Object> Store<T> {
    /// Adds an index and fills it from the stored objects.
    ///
    /// # Errors
    /// If an index of this name exists already.
    pub fn add_index(&mut self, index: Index<T>) -> Result<(), DuplicateIndex> {
        if self.indexes.iter().any(|existing| existing.index.name == index.name) {
            return Err(DuplicateIndex(index.name));
        }
        let mut indexed = Indexed { index, rows: BTreeMap::new() };
        for row in &self.rows {
            indexed.insert(row);
        }
        self.indexes.push(indexed);
        Ok(())
    }

    /// The object with this key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.rows.get(key).map(read)
    }

    /// All objects, sorted by namespace and name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.rows.iter().map(read)
    }

    /// The objects of one namespace, sorted by name.
    pub fn in_namespace<'a>(
        &'a self,
        namespace: &InternedStr,
    ) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
        let first = Key { namespace: namespace.clone(), name: ArcStr::default() };
        let namespace = namespace.clone();
        self.rows
            .range::<Key, _>((Bound::Included(first), Bound::Unbounded))
            .map(read)
            .take_while(move |object| object.key().namespace == namespace)
    }

    /// The objects with a value in an index, sorted by namespace and name.
    ///
    /// # Panics
    /// If the loop did not declare the index: an empty result would lead to wrong decisions.
    pub fn by_index<'a>(
        &'a self,
        index: &Index<T>,
        value: &str,
    ) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
        let indexed = self.indexes.iter().find(|existing| existing.index.name == index.name);
        let indexed = indexed.unwrap_or_else(|| panic!("index {:?} was not declared", index.name));
        indexed.rows.get(value).into_iter().flatten().map(read)
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The resourceVersion up to which the store is synced.
    #[must_use]
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    /// Handles a bookmark: the store is synced up to this resourceVersion without a change to its objects.
    pub fn bookmark(&mut self, resource_version: ResourceVersion) {
        self.resource_version = resource_version;
    }

    /// Adds or updates an object. The stored objects decide which of the two it is, not the type of the watch event.
    pub fn apply(&mut self, object: Arc<T>) -> Change<T> {
        self.resource_version = object.meta().resource_version.clone();
        self.put(object)
    }

    /// Removes an object. The change holds `last` even if the object was not stored.
    pub fn delete(&mut self, last: Arc<T>) -> Change<T> {
        self.resource_version = last.meta().resource_version.clone();
        self.take(last.key());
        Change::deleted(last)
    }

    /// Removes an object whose last state could not be decoded. The change holds the stored state.
    pub fn delete_key(&mut self, key: &Key, resource_version: ResourceVersion) -> Option<Change<T>> {
        self.resource_version = resource_version;
        let last = self.get(key)?.clone();
        self.take(key);
        Some(Change::deleted(last))
    }

    /// Replaces all objects after a relist and returns the changes, deletions first. The store holds the new state
    /// before a handler receives the first change. An unchanged object yields [`Change::unchanged`]. Objects in `unreadable` exist
    /// but could not be decoded; their stored state stays, because reporting them as deleted would have the garbage
    /// collector delete their dependents.
    pub fn replace(
        &mut self,
        objects: impl IntoIterator<Item = Arc<T>>,
        unreadable: &[Key],
        resource_version: ResourceVersion,
    ) -> Vec<Change<T>> {
        let mut absent = self.rows.clone();
        for key in unreadable {
            absent.remove(key);
        }
        let mut changes = Vec::new();
        for object in objects {
            absent.remove(object.key());
            changes.push(self.put(object));
        }
        let mut deleted: Vec<_> = absent.into_iter().map(|row| row.0).collect();
        deleted.retain(|object| self.take(object.key()).is_some());
        self.resource_version = resource_version;
        deleted.into_iter().map(Change::deleted).chain(changes).collect()
    }

    fn put(&mut self, object: Arc<T>) -> Change<T> {
        let old = self.rows.get(object.key()).map(|row| row.0.clone());
        if let Some(old) = &old {
            let (before, after) = (old.meta(), object.meta());
            if before.resource_version == after.resource_version
                && before.uid == after.uid
                && !after.resource_version.is_empty()
            {
                return Change::unchanged(old.clone());
            }
            self.take(&after.key);
        }
        let row = Row(object.clone());
        for indexed in &mut self.indexes {
            indexed.insert(&row);
        }
        self.rows.insert(row);
        Change::between(old, object)
    }

    fn take(&mut self, key: &Key) -> Option<Arc<T>> {
        let row = self.rows.take(key)?;
        for indexed in &mut self.indexes {
            indexed.remove(&row);
        }
        Some(row.0)
    }
}

impl<T: Object> Indexed<T> {
    fn insert(&mut self, row: &Row<T>) {
        (self.index.values)(&row.0, &mut |value| {
            self.rows.entry(value).or_default().insert(row.clone());
        });
    }

    fn remove(&mut self, row: &Row<T>) {
        (self.index.values)(&row.0, &mut |value| {
            if let Some(rows) = self.rows.get_mut(&value) {
                rows.remove(row.0.key());
                if rows.is_empty() {
                    self.rows.remove(&value);
                }
            }
        });
    }
}

/// An object that sorts and compares by its key.
struct Row<T>(Arc<T>);

impl<T> Clone for Row<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Object> Borrow<Key> for Row<T> {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

impl<T: Object> PartialEq for Row<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl<T: Object> Eq for Row<T> {}

impl<T: Object> PartialOrd for Row<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Object> Ord for Row<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keleustes_objects::PartialObjectMeta;

    fn partial(key: &str, uid: &str, version: &str) -> Arc<PartialObjectMeta> {
        let key: Key = key.parse().unwrap();
        let json = format!(
            r#"{{"metadata":{{"name":"{}","namespace":"{}","uid":"{uid}","resourceVersion":"{version}"}}}}"#,
            key.name, key.namespace
        );
        Arc::new(serde_json::from_str(&json).unwrap())
    }

    fn keys<'a>(objects: impl Iterator<Item = &'a Arc<PartialObjectMeta>>) -> Vec<String> {
        objects.map(|object| object.key().to_string()).collect()
    }

    const BY_UID: Index<PartialObjectMeta> =
        Index { name: "uid", values: |object, emit| emit(InternedStr::from(&*object.meta.uid.to_string())) };

    /// Proves INF-4.
    #[test]
    fn namespace_and_index_lookups_cover_objects_stored_before_the_index() {
        let mut store = Store::default();
        store.replace(
            [partial("a/x", "1", "5"), partial("b/x", "2", "6"), partial("a/y", "3", "7")],
            &[],
            "9".into(),
        );
        assert_eq!(keys(store.in_namespace(&InternedStr::from("a"))), ["a/x", "a/y"]);
        assert_eq!(keys(store.in_namespace(&InternedStr::from("c"))), [""; 0]);
        store.add_index(BY_UID).unwrap();
        assert_eq!(keys(store.by_index(&BY_UID, "2")), ["b/x"], "a late index covers stored objects");
        store.apply(partial("b/z", "4", "10"));
        assert_eq!(keys(store.by_index(&BY_UID, "4")), ["b/z"]);
        store.apply(partial("b/z", "5", "11"));
        assert_eq!(keys(store.by_index(&BY_UID, "4")), [""; 0], "no stale entries");
        store.delete(partial("b/z", "5", "12"));
        assert_eq!(keys(store.by_index(&BY_UID, "5")), [""; 0]);
        assert_eq!(store.add_index(BY_UID), Err(DuplicateIndex("uid")));
    }

    /// Proves INF-32, INF-36.
    #[test]
    fn stored_objects_decide_between_added_and_updated() {
        let mut store = Store::default();
        let added = store.apply(partial("a/x", "1", "5"));
        assert!(added.old().is_none() && added.new().is_some());
        let updated = store.apply(partial("a/x", "1", "6"));
        assert_eq!(updated.old().map(|old| old.meta.resource_version.to_string()).as_deref(), Some("5"));
        let recreated = store.apply(partial("a/x", "2", "9"));
        let uids = (
            recreated.old().map(|o| o.meta.uid.to_string()),
            recreated.new().map(|n| n.meta.uid.to_string()),
        );
        assert_eq!(
            uids,
            (Some("1".into()), Some("2".into())),
            "a recreated object is an update with two UIDs"
        );
    }

    /// Proves INF-33.
    #[test]
    fn a_deletion_holds_the_final_state_even_of_an_object_that_was_not_stored() {
        let mut store = Store::default();
        store.apply(partial("a/x", "1", "5"));
        let change = store.delete(partial("a/x", "1", "8"));
        assert_eq!(change.old().map(|old| old.meta.resource_version.to_string()).as_deref(), Some("8"));
        assert!(store.is_empty());
        assert!(store.delete(partial("a/never", "2", "9")).is_deletion());
    }

    /// Proves INF-34, INF-35, INF-37, INF-144.
    #[test]
    fn a_relist_yields_deletions_first_and_unchanged_objects_as_unchanged() {
        let mut store = Store::default();
        store.replace(
            [partial("a/kept", "1", "5"), partial("a/gone", "2", "6"), partial("a/new", "3", "7")],
            &[],
            "7".into(),
        );
        let changes = store.replace(
            [partial("a/added", "4", "8"), partial("a/kept", "1", "5"), partial("a/new", "3", "9")],
            &[],
            "9".into(),
        );
        let what = |change: &Change<PartialObjectMeta>| match (change.old(), change.new()) {
            (None, _) => "added",
            (_, None) => "deleted",
            _ if change.is_unchanged() => "unchanged",
            _ => "changed",
        };
        let yielded: Vec<_> =
            changes.iter().map(|change| (what(change), change.latest().key().to_string())).collect();
        assert_eq!(
            yielded,
            [
                ("deleted", "a/gone".into()),
                ("added", "a/added".into()),
                ("unchanged", "a/kept".into()),
                ("changed", "a/new".into())
            ]
        );
        assert!(changes.iter().all(|change| !change.is_resync()));
        assert_eq!(keys(store.all()), ["a/added", "a/kept", "a/new"]);
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_not_reported_as_deleted() {
        let mut store = Store::default();
        store.replace([partial("a/odd", "1", "5"), partial("a/gone", "2", "6")], &[], "7".into());
        let unreadable = [Key::namespaced("a", "odd"), Key::namespaced("a", "never-read")];
        let changes = store.replace([], &unreadable, "9".into());
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].latest().key().to_string(), "a/gone");
        assert_eq!(keys(store.all()), ["a/odd"]);
    }

    /// Proves INF-41, INF-150.
    #[test]
    fn the_resource_version_follows_every_event_and_the_list() {
        let mut store = Store::default();
        store.replace([partial("a/x", "1", "50")], &[], "40".into());
        assert_eq!(
            store.resource_version().to_string(),
            "40",
            "that of the list, even if an object is newer"
        );
        store.apply(partial("a/x", "1", "51"));
        assert_eq!(store.resource_version().to_string(), "51");
        store.bookmark("60".into());
        assert_eq!(store.resource_version().to_string(), "60");
        store.delete(partial("a/x", "1", "61"));
        assert_eq!(store.resource_version().to_string(), "61");
    }
}
