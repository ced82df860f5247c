//! Objects and their history under one global revision: what a list shows and what a watch replays always agree.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::metadata::meta_str;
use super::resources::Resource;

/// One stored object, shared with every response and watch that shows it.
pub(crate) type Stored = Arc<Value>;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One entry of the history.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) resource: &'static Resource,
    pub(crate) change: Change,
    pub(crate) key: String,
    /// The state after the change; for a delete the last state, with the revision of the delete.
    pub(crate) object: Stored,
    /// The state before the change, so that selectors can tell transitions and old revisions can be rebuilt.
    pub(crate) previous: Option<Stored>,
}

/// Revisions, objects and the retained history.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// Changes up to this revision are forgotten.
    compacted: u64,
    /// Keyed by `namespace/name` as one string, because that is the order the real server lists in.
    objects: BTreeMap<(&'static str, &'static str), BTreeMap<String, Stored>>,
    history: VecDeque<Event>,
    history_limit: usize,
}

impl Store {
    pub(crate) fn new(history_limit: usize) -> Store {
        // The real store is never at revision 0, which has a meaning of its own in list and watch.
        Store {
            revision: 1,
            compacted: 0,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_limit: history_limit.max(1),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Stored> {
        self.objects.get(&resource.place())?.get(&key(namespace, name))
    }

    /// All objects of a kind in key order, restricted to a namespace if one is given.
    pub(crate) fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<(String, Stored)> {
        let Some(objects) = self.objects.get(&resource.place()) else {
            return Vec::new();
        };
        within(objects, namespace)
    }

    /// All objects of a kind as they were at `revision`; `None` if that is compacted away.
    pub(crate) fn list_at(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        revision: u64,
    ) -> Option<Vec<(String, Stored)>> {
        if revision < self.compacted {
            return None;
        }
        let mut objects = self.objects.get(&resource.place()).cloned().unwrap_or_default();
        for event in self.history.iter().rev().take_while(|e| e.revision > revision) {
            if !event.resource.shares_storage_with(resource) {
                continue;
            }
            match &event.previous {
                Some(previous) => objects.insert(event.key.clone(), Arc::clone(previous)),
                None => objects.remove(&event.key),
            };
        }
        Some(within(&objects, namespace))
    }

    /// Everything stored, kind by kind.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Stored> {
        self.objects.values().flat_map(BTreeMap::values)
    }

    /// Stores `object` (its name and namespace decide where) under the next revision.
    pub(crate) fn put(&mut self, resource: &'static Resource, mut object: Value) -> Event {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let key = key(meta_str(&object, "namespace"), meta_str(&object, "name"));
        let object = Arc::new(object);
        let previous =
            self.objects.entry(resource.place()).or_default().insert(key.clone(), Arc::clone(&object));
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        self.record(Event { revision: self.revision, resource, change, key, object, previous })
    }

    /// Stores an object that was stored before, under the revision it had then.
    pub(crate) fn load(&mut self, resource: &'static Resource, object: Stored, revision: u64) -> Event {
        self.advance(revision);
        let key = key(meta_str(&object, "namespace"), meta_str(&object, "name"));
        self.objects.entry(resource.place()).or_default().insert(key.clone(), Arc::clone(&object));
        Event { revision, resource, change: Change::Added, key, object, previous: None }
    }

    /// Moves on to a revision that was reached before; never back.
    pub(crate) fn advance(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Removes the object, showing `last` (or what is stored) as its final state; `None` if it is not there.
    pub(crate) fn remove(
        &mut self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        last: Option<Value>,
    ) -> Option<Event> {
        let key = key(namespace, name);
        let previous = self.objects.get_mut(&resource.place())?.remove(&key)?;
        self.revision += 1;
        let mut last = last.unwrap_or_else(|| Value::clone(&previous));
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let event = Event {
            revision: self.revision,
            resource,
            change: Change::Deleted,
            key,
            object: Arc::new(last),
            previous: Some(previous),
        };
        Some(self.record(event))
    }

    /// Changes of a kind after `revision`, oldest first; `None` if some of them are forgotten.
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

    /// Forgets all history: only the current revision can be read or watched from.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.revision;
    }

    fn record(&mut self, event: Event) -> Event {
        if self.history.len() == self.history_limit
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.revision;
        }
        self.history.push_back(event.clone());
        event
    }
}

/// The key of an object within its kind.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn within(objects: &BTreeMap<String, Stored>, namespace: Option<&str>) -> Vec<(String, Stored)> {
    let prefix = namespace.map(|ns| format!("{ns}/")).unwrap_or_default();
    objects
        .range(prefix.clone()..)
        .take_while(|(key, _)| key.starts_with(&prefix))
        .map(|(key, object)| (key.clone(), Arc::clone(object)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::resources::by_name;
    use super::*;

    fn named(namespace: &str, name: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name}})
    }

    fn names(list: &[(String, Stored)]) -> Vec<&str> {
        list.iter().map(|(key, _)| key.as_str()).collect()
    }

    #[test]
    fn old_revisions_are_rebuilt_from_history_until_compacted() {
        let pods = by_name("pods").unwrap();
        let mut store = Store::new(100);
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
    fn history_is_bounded_and_says_what_it_forgot() {
        let pods = by_name("pods").unwrap();
        let mut store = Store::new(2);
        for name in ["one", "two", "three"] {
            store.put(pods, named("a", name));
        }
        assert_eq!(store.compacted(), 2);
        assert!(store.since(pods, 1).is_none());
        assert_eq!(store.since(pods, 2).unwrap().count(), 2);
    }
}
