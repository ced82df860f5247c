//! Asks controllers about a change that has happened: in a view in which it has not, would they make it?

use std::sync::Arc;

use keleustes_objects::{Key, OwnerReference, Resource, Uid};
use keleustes_plan::{AnyChange, Grant, Item, Target};

use super::comparison::{Decider, Wanted};
use super::effect::{ObservedChange, WriteEffect};
use super::observer::Unexplained;
use crate::caches::{Cache, Undo};
use crate::explain::Explainer;
use crate::inspection::{RegisteredController, RegisteredLoop};

/// How many items of one loop are asked about one change.
const ITEMS_MAX: usize = 8;
/// How many objects of a namespace are asked if no watch says which one it is.
const NEIGHBOURS_MAX: usize = 20;

/// In place of a controller, if none of this process handles an object.
pub(super) const NO_CONTROLLER: &str = "unknown";

const GARBAGE_COLLECTOR: &str = "garbage-collector-controller";
const NAMESPACES: &str = "namespace-controller";

pub(super) struct Hindsight {
    explainer: Explainer,
}

/// What the controllers say.
pub(super) enum Answer {
    /// A reconcile of this item would have made the change, by this write.
    Wanted(Box<(Decider, Wanted)>),
    /// None would have; the controller that most likely made it in the leader, and what it wants instead.
    NotWanted(&'static str, String),
}

impl Hindsight {
    pub(super) fn new(explainer: Explainer) -> Self {
        Self { explainer }
    }

    pub(super) fn client(&self) -> &kube::Client {
        &self.explainer.client
    }

    pub(super) fn controller_names(&self) -> Vec<&'static str> {
        self.explainer.inspection.controllers().iter().map(|controller| controller.name).collect()
    }

    /// All caches, each with whether it is the one whose changes are compared: the one with all objects of a resource that
    /// some controller writes.
    pub(super) fn caches(&self) -> Vec<(Arc<Cache>, bool)> {
        let controllers = self.explainer.inspection.controllers();
        let is_written = |resource: &Resource| {
            let changes = [ObservedChange::Created, ObservedChange::Updated, ObservedChange::Deleted];
            controllers
                .iter()
                .any(|controller| changes.iter().any(|change| may_make(controller.grants, resource, *change)))
        };
        let caches = self.explainer.caches.all().into_iter();
        let caches = caches.filter(|cache| {
            let resource = cache.entry().resource();
            !matches!(&*resource.plural, "events" | "leases")
        });
        let with_use = |cache: Arc<Cache>| {
            let resource = cache.entry().resource();
            let holds_all = self.explainer.caches.unfiltered_cache(resource);
            let is_best = holds_all.is_none_or(|best| Arc::ptr_eq(&best, &cache));
            let is_compared = is_best && is_written(resource);
            (cache, is_compared)
        };
        caches.map(with_use).collect()
    }

    /// Asks the controllers that may have made a change, in a view without it. With `thorough`, also those items that no
    /// watch connects with the object.
    pub(super) async fn ask(&self, change: &Unexplained, thorough: bool) -> Answer {
        let Some(meta) = change.change.meta() else { return Answer::NotWanted("", String::new()) };
        let mut states = vec![(meta.key.clone(), change.change.old.clone())];
        // What took the place of a deleted object came after it.
        states.extend(change.replacements.iter().map(|key| (key.clone(), None)));
        self.ask_without(change, &Undo::of(change.kind.clone(), states), thorough).await
    }

    /// Asks the controllers that may have made a change, in a view without some changes.
    pub(super) async fn ask_without(&self, change: &Unexplained, undo: &Undo, thorough: bool) -> Answer {
        let mut said = Vec::new();
        for controller in self.suspects(change) {
            for a_loop in &controller.loops {
                for item in self.items(a_loop, change, undo, thorough) {
                    let dry_run = self.explainer.dry_run(&controller, a_loop, &item, Some(undo)).await;
                    for write in &dry_run.writes {
                        let effect = WriteEffect::of(write, &|target| self.owner(target));
                        if effect.explains(&change.observed) {
                            let decider = Decider { controller: controller.name, queue: a_loop.queue, item };
                            let wanted = Wanted { effect, because: write.because.to_string() };
                            return Answer::Wanted(Box::new((decider, wanted)));
                        }
                    }
                    said.push((controller.name, format!("{item}: {}", dry_run.summary())));
                }
            }
        }
        let name = said.first().map_or(NO_CONTROLLER, |(name, _)| name);
        let own: Vec<_> =
            said.iter().filter(|(there, _)| *there == name).map(|(_, text)| text.as_str()).collect();
        let text = match own.is_empty() {
            true => "no controller of this process handles the object".to_owned(),
            false => format!("without this change, {}", own.join("; ")),
        };
        Answer::NotWanted(name, text)
    }

    /// The items that a change enqueues, in all controllers.
    pub(super) fn deciders_after(&self, change: &Unexplained) -> Vec<Decider> {
        let mut deciders = Vec::new();
        for controller in self.explainer.inspection.controllers() {
            for a_loop in &controller.loops {
                let items = self.explainer.items_after(a_loop, &change.kind, &change.change, None);
                deciders.extend(items.into_iter().map(|item| Decider {
                    controller: controller.name,
                    queue: a_loop.queue,
                    item,
                }));
            }
        }
        deciders
    }

    /// The controller that deletes an object because of what it belongs to: its owners are gone or terminating, or its
    /// namespace is.
    pub(super) fn collector_of(&self, change: &Unexplained) -> Option<&'static str> {
        let meta = change.change.meta().filter(|_| change.observed.change == ObservedChange::Deleted)?;
        let namespace = Key::cluster(&*meta.key.namespace);
        let is_leaving = |kind: &str, group: &str, key: &Key, uid: Option<&Uid>| {
            let caches = self.explainer.caches.all();
            let cache = caches.iter().find(|cache| {
                let resource = cache.entry().resource();
                resource.kind == kind && resource.group == group
            })?;
            let found = cache.object(key);
            let found = found.as_ref().map(|object| object.meta());
            let same = found.filter(|found| uid.is_none_or(|uid| found.uid == *uid));
            Some(same.is_none_or(|found| found.deletion_timestamp.is_some()))
        };
        if !namespace.name.is_empty() && is_leaving("Namespace", "", &namespace, None) == Some(true) {
            return Some(NAMESPACES);
        }
        let owner_is_leaving = |owner: &OwnerReference| {
            let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            let keys = [
                Key { namespace: meta.key.namespace.clone(), name: owner.name.clone() },
                Key::cluster(owner.name.as_str()),
            ];
            keys.iter().all(|key| is_leaving(&owner.kind, group, key, Some(&owner.uid)).unwrap_or(true))
        };
        let has_owners = !meta.owner_references.is_empty();
        (has_owners && meta.owner_references.iter().all(owner_is_leaving)).then_some(GARBAGE_COLLECTOR)
    }

    /// The controllers that may have made a change, according to their grants: first those that are about such objects.
    fn suspects(&self, change: &Unexplained) -> Vec<Arc<RegisteredController>> {
        let resource = change.kind.resource();
        let mut controllers = self.explainer.inspection.controllers();
        controllers.retain(|controller| may_make(controller.grants, resource, change.observed.change));
        let is_about = |controller: &Arc<RegisteredController>| {
            controller.loops.iter().any(|a_loop| a_loop.is_keyed_by(resource))
        };
        controllers.sort_by_key(|controller| !is_about(controller));
        controllers
    }

    /// The items of a loop that a change may have been made for.
    fn items(&self, a_loop: &RegisteredLoop, change: &Unexplained, undo: &Undo, thorough: bool) -> Vec<Item> {
        let AnyChange { old, new, .. } = &change.change;
        let back = AnyChange { old: new.clone(), new: old.clone(), resync: false };
        let mut items = self.explainer.items_after(a_loop, &change.kind, &change.change, None);
        items.extend(self.explainer.items_after(a_loop, &change.kind, &back, Some(undo)));
        let Some(meta) = change.change.meta() else { return items };
        let key = &meta.key;
        if a_loop.is_keyed_by(change.kind.resource()) {
            items.extend(a_loop.object_item(key));
        }
        if let Some((owner, kind)) = meta.controller_ref().zip(a_loop.keyed_by.as_ref())
            && *owner.kind == *kind.resource().kind
        {
            let owner = Key { namespace: key.namespace.clone(), name: owner.name.clone() };
            items.extend(a_loop.object_item(&owner));
        }
        items.sort();
        items.dedup();
        items.truncate(ITEMS_MAX);
        if items.is_empty() && thorough {
            // As Endpoints are named after their Service.
            items.extend(a_loop.object_item(key));
            items.extend(a_loop.initial_items.iter().take(ITEMS_MAX).cloned());
            items.extend(self.neighbours(a_loop, key));
        }
        items
    }

    /// The objects in the namespace of a key that the items of a loop are named after.
    fn neighbours(&self, a_loop: &RegisteredLoop, key: &Key) -> Vec<Item> {
        let Some(kind) = &a_loop.keyed_by else { return Vec::new() };
        let mut items = Vec::new();
        let namespace = Key::cluster(&*key.namespace);
        self.explainer.caches.cache(kind).for_each_meta(&mut |meta| {
            if items.len() < NEIGHBOURS_MAX && (meta.key.namespace == key.namespace || meta.key == namespace)
            {
                items.extend(a_loop.object_item(&meta.key));
            }
        });
        items
    }

    fn owner(&self, target: &Target) -> Option<Uid> {
        let object = self.explainer.caches.unfiltered_cache(&target.resource)?.object(&target.key)?;
        object.meta().controller_ref().map(|owner| owner.uid.clone())
    }
}

/// Whether grants allow a change. The garbage collector and others that may write everything are not asked: they decide
/// by other things than caches.
fn may_make(grants: &[Grant], resource: &Resource, change: ObservedChange) -> bool {
    let verbs: &[&str] = match change {
        ObservedChange::Created => &["create"],
        ObservedChange::Updated => &["update", "patch"],
        ObservedChange::Deleted => &["delete"],
    };
    let subresources: &[&str] = match change {
        ObservedChange::Updated => &["", "status", "scale"],
        _ => &[""],
    };
    grants.iter().filter(|grant| grant.resource != "*").any(|grant| {
        subresources.iter().any(|part| verbs.iter().any(|verb| grant.covers(resource, part, verb)))
    })
}
