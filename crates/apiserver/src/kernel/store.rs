//! Objects and their history with one global revision: lists and watches always agree.

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::metadata::meta_str;
use super::resources::Resource;
pub(crate) use super::stored_object::SharedObject;
use super::stored_object::StoredObject;

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change in the history.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) resource: &'static Resource,
    pub(crate) change: Change,
    pub(crate) key: String,
    /// The state after the change; for a delete the last state, with the revision of the delete.
    pub(crate) stored: StoredObject,
    /// The state before the change, for selector transitions and lists at older revisions.
    pub(crate) previous: Option<StoredObject>,
    /// The parsed states, on first use; the history itself holds only the texts.
    parsed: OnceCell<SharedObject>,
    parsed_previous: OnceCell<SharedObject>,
}

impl Event {
    /// The state after the change.
    pub(crate) fn object(&self) -> &SharedObject {
        self.parsed.get_or_init(|| self.stored.value())
    }

    /// The state before the change.
    pub(crate) fn previous_object(&self) -> Option<&SharedObject> {
        let previous = self.previous.as_ref()?;
        Some(self.parsed_previous.get_or_init(|| previous.value()))
    }

    fn as_text(&self) -> Event {
        Event { parsed: OnceCell::new(), parsed_previous: OnceCell::new(), ..self.clone() }
    }
}

/// Objects, the current revision and the history.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// Changes up to this revision have been compacted.
    compacted: u64,
    /// Keyed by `namespace/name` as one string, because kube-apiserver lists in this order.
    objects: BTreeMap<(&'static str, &'static str), BTreeMap<String, StoredObject>>,
    history: VecDeque<Event>,
    history_limit: usize,
    /// Total size of the texts in the history, including those of objects that are still current.
    history_bytes: usize,
    history_bytes_max: usize,
    /// Builds the stored form of an object.
    keep: fn(&'static Resource, &SharedObject) -> StoredObject,
}

impl Store {
    pub(crate) fn new(history_limit: usize, history_bytes_max: usize) -> Store {
        // Starts at 1: revision 0 has a special meaning in list and watch.
        Store {
            revision: 1,
            compacted: 0,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_limit: history_limit.max(1),
            history_bytes: 0,
            history_bytes_max,
            keep: StoredObject::new,
        }
    }

    /// Keeps the parsed form of every object from now on.
    pub(crate) fn keep_parsed(&mut self) {
        self.keep = StoredObject::parsed;
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// The stored object.
    pub(crate) fn stored(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&StoredObject> {
        self.objects.get(&resource.storage_location())?.get(&key(namespace, name))
    }

    /// The object, parsed.
    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<SharedObject> {
        self.stored(resource, namespace, name).map(StoredObject::value)
    }

    /// Whether the object has not been written since its creation.
    pub(crate) fn is_as_created(&self, resource: &Resource, namespace: &str, name: &str) -> bool {
        let key = key(namespace, name);
        let about = |event: &&Event| event.key == key && event.resource.shares_storage_with(resource);
        self.history.iter().rev().find(about).is_some_and(|event| event.change == Change::Added)
    }

    /// All objects of a resource in key order, parsed.
    pub(crate) fn values(&self, resource: &Resource, namespace: Option<&str>) -> Vec<SharedObject> {
        self.list(resource, namespace).into_iter().map(|(_, stored)| stored.value()).collect()
    }

    /// All objects of a resource in key order, optionally of one namespace.
    pub(crate) fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<(&str, &StoredObject)> {
        let prefix = prefix(namespace);
        let objects = self.objects.get(&resource.storage_location());
        objects.into_iter().flat_map(|objects| within(objects, &prefix)).collect()
    }

    /// All objects of a resource at `revision`; `None` if it has been compacted.
    pub(crate) fn list_at(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        revision: u64,
    ) -> Option<Vec<(&str, &StoredObject)>> {
        if revision < self.compacted {
            return None;
        }
        // The earlier states of the keys changed since; of several changes of a key the first one decides.
        let mut then: BTreeMap<&str, Option<&StoredObject>> = BTreeMap::new();
        for event in self.history.iter().rev().take_while(|e| e.revision > revision) {
            if event.resource.shares_storage_with(resource) {
                then.insert(&event.key, event.previous.as_ref());
            }
        }
        let prefix = prefix(namespace);
        let mut listed = self.list(resource, namespace);
        if then.is_empty() {
            return Some(listed);
        }
        listed.retain(|(key, _)| !then.contains_key(key));
        let changed = then.into_iter().filter(|(key, _)| key.starts_with(&prefix));
        listed.extend(changed.filter_map(|(key, stored)| Some((key, stored?))));
        listed.sort_by_key(|(key, _)| *key);
        Some(listed)
    }

    /// All stored objects, resource by resource.
    pub(crate) fn all_stored(&self) -> impl Iterator<Item = &StoredObject> {
        self.objects.values().flat_map(BTreeMap::values)
    }

    /// All objects, resource by resource, parsed.
    pub(crate) fn all(&self) -> impl Iterator<Item = SharedObject> {
        self.all_stored().map(StoredObject::value)
    }

    /// Stores `object` under the key of its namespace and name, with the next revision.
    pub(crate) fn put(&mut self, resource: &'static Resource, mut object: Value) -> Event {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let key = key(meta_str(&object, "namespace"), meta_str(&object, "name"));
        let object = Arc::new(object);
        let stored = (self.keep)(resource, &object);
        let previous =
            self.objects.entry(resource.storage_location()).or_default().insert(key.clone(), stored.clone());
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        self.record(resource, change, key, (stored, object), previous)
    }

    /// Stores an object while restoring, with its earlier revision.
    pub(crate) fn load(&mut self, resource: &'static Resource, object: &SharedObject, revision: u64) {
        self.advance(revision);
        let key = key(meta_str(object, "namespace"), meta_str(object, "name"));
        let stored = (self.keep)(resource, object);
        self.objects.entry(resource.storage_location()).or_default().insert(key, stored);
    }

    /// Raises the revision to at least `revision`.
    pub(crate) fn advance(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Removes the object, with `last` (or the stored state) as its final state; `None` if it does not exist.
    pub(crate) fn remove(
        &mut self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        last: Option<Value>,
    ) -> Option<Event> {
        let key = key(namespace, name);
        let previous = self.objects.get_mut(&resource.storage_location())?.remove(&key)?;
        self.revision += 1;
        let mut last = last.unwrap_or_else(|| Value::clone(&previous.value()));
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let last = Arc::new(last);
        let stored = (self.keep)(resource, &last);
        Some(self.record(resource, Change::Deleted, key, (stored, last), Some(previous)))
    }

    /// Changes of a resource after `revision`, oldest first; `None` if some of them have been compacted.
    pub(crate) fn since<'a>(
        &'a self,
        resource: &'a Resource,
        revision: u64,
    ) -> Option<impl Iterator<Item = &'a Event>> {
        if revision < self.compacted {
            return None;
        }
        Some(
            self.history
                .iter()
                .filter(move |e| e.revision > revision && e.resource.shares_storage_with(resource)),
        )
    }

    /// Drops the history: reads and watches are possible only at the current revision.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.history_bytes = 0;
        self.compacted = self.revision;
    }

    fn record(
        &mut self,
        resource: &'static Resource,
        change: Change,
        key: String,
        (stored, object): (StoredObject, SharedObject),
        previous: Option<StoredObject>,
    ) -> Event {
        self.history_bytes += stored.text().len();
        while self.history.len() == self.history_limit || self.history_bytes > self.history_bytes_max {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_bytes -= oldest.stored.text().len();
            self.compacted = oldest.revision;
        }
        let (parsed, parsed_previous) = (OnceCell::from(object), OnceCell::new());
        let event = Event {
            revision: self.revision,
            resource,
            change,
            key,
            stored,
            previous,
            parsed,
            parsed_previous,
        };
        self.history.push_back(event.as_text());
        event
    }
}

/// The key of an object within its resource.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn prefix(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default()
}

fn within<'a>(
    objects: &'a BTreeMap<String, StoredObject>,
    prefix: &str,
) -> impl Iterator<Item = (&'a str, &'a StoredObject)> {
    let (from, prefix) = (prefix.to_owned(), prefix.to_owned());
    objects
        .range(from..)
        .take_while(move |(key, _)| key.starts_with(&prefix))
        .map(|(key, stored)| (key.as_str(), stored))
}

#[cfg(test)]
mod tests {
    use super::super::resources::by_name;
    use super::*;

    fn named(namespace: &str, name: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name}})
    }

    fn names<'a>(list: &[(&'a str, &StoredObject)]) -> Vec<&'a str> {
        list.iter().map(|(key, _)| *key).collect()
    }

    #[test]
    fn old_revisions_are_rebuilt_from_history_until_compacted() {
        let pods = by_name("pods").unwrap();
        let mut store = Store::new(100, usize::MAX);
        store.put(pods, named("a", "one"));
        let before = store.put(pods, named("a", "two")).revision;
        store.put(by_name("nodes").unwrap(), named("", "n"));
        store.remove(pods, "a", "one", None).unwrap();
        store.put(pods, named("b", "three"));
        assert_eq!(names(&store.list(pods, None)), ["a/two", "b/three"]);
        assert_eq!(names(&store.list_at(pods, None, before).unwrap()), ["a/one", "a/two"]);
        assert_eq!(names(&store.list(pods, Some("a"))), ["a/two"]);
        store.compact();
        assert!(store.list_at(pods, None, before).is_none());
        assert!(store.since(pods, before).is_none());
        assert_eq!(store.since(pods, store.revision()).unwrap().count(), 0);
    }

    #[test]
    fn history_is_bounded_and_records_the_compacted_revision() {
        let pods = by_name("pods").unwrap();
        let mut store = Store::new(2, usize::MAX);
        for name in ["one", "two", "three"] {
            store.put(pods, named("a", name));
        }
        assert_eq!(store.compacted(), 2);
        assert!(store.since(pods, 1).is_none());
        assert_eq!(store.since(pods, 2).unwrap().count(), 2);
    }
}
