//! The objects of every counted resource, per namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use keleustes_objects::quota::{Evaluator, is_ignored_by_quota, object_count_alias, object_count_name};
use keleustes_objects::{ApiResource, InternedStr, Key, ObjectMeta, Resource};
use keleustes_plan::{Effects, Memory, Metric, Observer};

use super::RESOURCE_CHANGES;
use super::replenishment::Trigger;

/// All counted resources. One that was monitored once stays, so that its name keeps its usage when the API server no
/// longer serves it.
#[derive(Clone, Default)]
pub(super) struct MonitoredObjects {
    /// By the name by which the objects are counted.
    resources: BTreeMap<String, CountedResource>,
}

/// The objects of one resource.
#[derive(Clone)]
pub(super) struct CountedResource {
    /// The resource in the version in which it was monitored first.
    pub(super) resource: Resource,
    is_synced: bool,
    /// Hashes of the UIDs by namespace: a watch can deliver an object twice, and eight bytes are enough to tell.
    objects: BTreeMap<InternedStr, BTreeSet<u64>>,
    /// Objects that exist, but could not be decoded.
    unreadable: BTreeSet<Key>,
}

impl MonitoredObjects {
    /// Whether objects are counted by this name.
    pub(super) fn counts(&self, name: &str) -> bool {
        self.resources.contains_key(name) || self.by_alias(name).is_some()
    }

    /// Whether the objects of a resource are counted by this name.
    pub(super) fn counts_resource(&self, group: &str, plural: &str, name: &str) -> bool {
        let count_name = object_count_name(group, plural);
        self.resources.contains_key(&count_name)
            && (name == count_name || object_count_alias(group, plural) == Some(name))
    }

    /// The resource whose objects are counted by this name.
    pub(super) fn counted_by(&self, name: &str) -> Option<&CountedResource> {
        self.resources.get(name).or_else(|| self.by_alias(name))
    }

    fn by_alias(&self, name: &str) -> Option<&CountedResource> {
        object_count_alias("", name).and_then(|plural| self.resources.get(&object_count_name("", plural)))
    }

    fn resource_mut(&mut self, resource: &Resource) -> &mut CountedResource {
        let name = object_count_name(&resource.group, &resource.plural);
        self.resources.entry(name).or_insert_with(|| CountedResource {
            resource: resource.clone(),
            is_synced: false,
            objects: BTreeMap::new(),
            unreadable: BTreeSet::new(),
        })
    }
}

impl CountedResource {
    /// The number of objects in a namespace; `None` before the first list.
    pub(super) fn count(&self, namespace: &InternedStr) -> Option<usize> {
        let readable = self.objects.get(namespace).map_or(0, BTreeSet::len);
        let unreadable = self.unreadable.iter().filter(|key| key.namespace == *namespace).count();
        self.is_synced.then_some(readable + unreadable)
    }

    /// Takes over a complete list and returns the namespaces in which objects are missing from it.
    fn list(&mut self, metas: &[&ObjectMeta], unreadable: &[Key]) -> Vec<InternedStr> {
        let mut listed = BTreeMap::<InternedStr, BTreeSet<u64>>::new();
        for meta in metas {
            listed.entry(meta.key.namespace.clone()).or_default().insert(hash_of(meta));
        }
        let is_missing = |(namespace, known): &(&InternedStr, &BTreeSet<u64>)| {
            listed.get(*namespace).is_none_or(|listed| !known.is_subset(listed))
        };
        let missing =
            self.objects.iter().filter(is_missing).map(|(namespace, _)| namespace.clone()).collect();
        self.objects = listed;
        self.unreadable = unreadable.iter().cloned().collect();
        self.is_synced = true;
        missing
    }

    fn add(&mut self, meta: &ObjectMeta) {
        self.unreadable.remove(&meta.key);
        self.objects.entry(meta.key.namespace.clone()).or_default().insert(hash_of(meta));
    }

    fn remove(&mut self, meta: &ObjectMeta) {
        self.unreadable.remove(&meta.key);
        if let Some(objects) = self.objects.get_mut(&meta.key.namespace) {
            objects.remove(&hash_of(meta));
            if objects.is_empty() {
                self.objects.remove(&meta.key.namespace);
            }
        }
    }
}

/// The hash of the UID. An aggregated API may serve objects without UIDs, which differ in their names.
fn hash_of(meta: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    if meta.uid.is_empty() {
        meta.key.name.hash(&mut hasher);
    } else {
        meta.uid.hash(&mut hasher);
    }
    hasher.finish()
}

/// Observes every namespaced resource without an evaluator of its own. Only deletions have effects: admission accounts
/// for creations.
pub(super) struct ObjectCounter {
    pub(super) monitored: Memory<MonitoredObjects>,
}

impl Observer for ObjectCounter {
    fn queue(&self) -> Option<&'static str> {
        None // The queue of resource changes counts what counts.
    }

    fn failures(&self) -> Option<&'static Metric> {
        None
    }

    fn ignores(&self, served: &ApiResource) -> bool {
        let Resource { group, plural, namespaced, .. } = &served.resource;
        !namespaced
            || !served.has_verb("create")
            || is_ignored_by_quota(group, plural)
            || Evaluator::of(group, plural).is_some()
    }

    fn on_resource(&self, resource: &Resource) {
        self.monitored.with(|monitored| {
            monitored.resource_mut(resource);
        });
    }

    fn on_list(&self, resource: &Resource, metas: &[&ObjectMeta], unreadable: &[Key], effects: &mut Effects) {
        let missing =
            self.monitored.with(|monitored| monitored.resource_mut(resource).list(metas, unreadable));
        for namespace in missing {
            effects.enqueue(RESOURCE_CHANGES, Trigger::change(&namespace, &resource.group, &resource.plural));
        }
    }

    fn on_update(&self, resource: &Resource, meta: &ObjectMeta, _effects: &mut Effects) {
        self.monitored.with(|monitored| monitored.resource_mut(resource).add(meta));
    }

    fn on_delete(&self, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects) {
        self.monitored.with(|monitored| monitored.resource_mut(resource).remove(meta));
        let item = Trigger::change(&meta.key.namespace, &resource.group, &resource.plural);
        effects.enqueue(RESOURCE_CHANGES, item);
    }

    /// Every quota is enqueued when the loops start.
    fn on_start_leading(&self, _effects: &mut Effects) {}
}
