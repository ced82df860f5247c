//! What a write changes, as far as a watch can show it. Writes of two managers are compared by this, and not by their
//! requests: one may PATCH what the other PUTs.
//!
//! What depends on chance has no name here: an object whose name the API server generates is known by its owner, and so is
//! a deleted one, because which of several equal pods a controller deletes is not determined.

use keleustes_objects::{Key, ObjectMeta, Resource, Uid};
use keleustes_plan::{Action, AnyChange, Target, Write};

/// The objects of one resource in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collection {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource. Versions do not matter: both managers may use different ones.
    pub plural: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
}

impl Collection {
    /// The collection that an object belongs to.
    #[must_use]
    pub fn of(resource: &Resource, namespace: &str) -> Self {
        Self {
            group: resource.group.clone().into_owned(),
            plural: resource.plural.clone().into_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// The resource, as kubectl takes it.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// What a write changes in a collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// An object comes into being.
    Create {
        /// Its name; empty if the API server generates it.
        name: String,
        /// The `generateName` of an object without a name.
        prefix: String,
        /// The controller that owns it.
        owner: Option<Uid>,
    },
    /// An object changes.
    Update {
        /// Its name.
        name: String,
        /// The subresource; empty for the object itself.
        subresource: &'static str,
    },
    /// An object is deleted, or begins to terminate.
    Delete {
        /// Its name.
        name: String,
        /// The controller that owns it.
        owner: Option<Uid>,
    },
    /// All objects of the collection are deleted.
    DeleteAll,
}

/// The effect of one write, with the place where it shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteEffect {
    /// Where.
    pub collection: Collection,
    /// What.
    pub effect: Effect,
}

impl WriteEffect {
    /// The effect of a planned write; `owner_of` knows the controllers that own existing objects.
    #[must_use]
    pub fn of<R>(write: &Write<R>, owner_of: &dyn Fn(&Target) -> Option<Uid>) -> Self {
        let Target { resource, key, .. } = &write.target;
        let name = key.name.to_string();
        let effect = match &write.action {
            Action::Create(body) => {
                let text = |field: &str| body["metadata"][field].as_str().unwrap_or_default().to_owned();
                let owners = body["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                let owner = owners.clone().find(|owner| owner["controller"] == true);
                let owner = owner.and_then(|owner| owner["uid"].as_str()).map(Uid::from);
                let name = if name.is_empty() { text("name") } else { name };
                Effect::Create { name, prefix: text("generateName"), owner }
            }
            Action::Delete { .. } => Effect::Delete { name, owner: owner_of(&write.target) },
            Action::DeleteCollection { .. } => Effect::DeleteAll,
            Action::Apply { .. }
            | Action::Patch { .. }
            | Action::Edit(_)
            | Action::PatchMetadata(_)
            | Action::Put { .. } => Effect::Update { name, subresource: write.subresource() },
        };
        Self { collection: Collection::of(resource, &key.namespace), effect }
    }

    /// The verb and the subresource, for people.
    #[must_use]
    pub fn verb(&self) -> String {
        match &self.effect {
            Effect::Create { .. } => "create".to_owned(),
            Effect::Update { subresource: "", .. } => "update".to_owned(),
            Effect::Update { subresource, .. } => format!("update {subresource}"),
            Effect::Delete { .. } => "delete".to_owned(),
            Effect::DeleteAll => "deletecollection".to_owned(),
        }
    }

    /// The name of the object, or what there is of it.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.effect {
            Effect::Create { name, prefix, .. } if name.is_empty() => format!("{prefix}*"),
            Effect::Create { name, .. } | Effect::Update { name, .. } | Effect::Delete { name, .. } => {
                name.clone()
            }
            Effect::DeleteAll => "*".to_owned(),
        }
    }

    /// Whether a change that was observed is what this write would do.
    #[must_use]
    pub fn explains(&self, observed: &Observed) -> bool {
        if self.collection != observed.collection {
            return false;
        }
        match (&self.effect, observed.change) {
            (Effect::Create { name, prefix, owner }, ObservedChange::Created) if name.is_empty() => {
                *owner == observed.owner && (owner.is_some() || observed.name.starts_with(prefix.as_str()))
            }
            (Effect::Update { name, subresource }, ObservedChange::Updated) => {
                *name == observed.name && !(*subresource == "status" && observed.is_spec_changed)
            }
            (Effect::Create { name, .. }, ObservedChange::Created) => *name == observed.name,
            (Effect::Delete { name, owner }, ObservedChange::Deleted) => {
                *name == observed.name || owner.is_some() && *owner == observed.owner
            }
            (Effect::DeleteAll, ObservedChange::Deleted) => true,
            _ => false,
        }
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObservedChange {
    /// It came into being.
    Created,
    /// It changed.
    Updated,
    /// It was deleted, or began to terminate.
    Deleted,
}

impl ObservedChange {
    /// The verb.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Created => "create",
            Self::Updated => "update",
            Self::Deleted => "delete",
        }
    }
}

/// A change of one object that a watch has delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Where.
    pub collection: Collection,
    /// The name of the object.
    pub name: String,
    /// The controller that owns it.
    pub owner: Option<Uid>,
    /// What happened.
    pub change: ObservedChange,
    /// Whether the generation has changed, so that it was no write of a status.
    pub is_spec_changed: bool,
}

/// Resources whose updates are mostly heartbeats and statuses of nodes. Only those updates that change metadata or spec are
/// observed; a status that a controller writes is compared if it is decided here first.
const MOSTLY_STATUS_OF_NODES: &[&str] = &["pods", "nodes"];

impl Observed {
    /// What a change in a cache says; `None` if nothing happened that a controller could have written.
    #[must_use]
    pub fn of(resource: &Resource, change: &AnyChange) -> Option<Self> {
        if change.resync || change.is_unchanged() {
            return None;
        }
        let (old, new) =
            (change.old.as_ref().map(|old| old.meta()), change.new.as_ref().map(|new| new.meta()));
        let (meta, what) = match (old, new) {
            (None, Some(new)) => (new, ObservedChange::Created),
            (Some(old), Some(new)) if old.uid != new.uid => (new, ObservedChange::Created),
            (Some(old), None) if old.deletion_timestamp.is_none() => (old, ObservedChange::Deleted),
            (Some(old), Some(new))
                if old.deletion_timestamp.is_none() && new.deletion_timestamp.is_some() =>
            {
                (old, ObservedChange::Deleted)
            }
            (Some(old), Some(new)) => {
                let is_status = resource.group.is_empty()
                    && MOSTLY_STATUS_OF_NODES.contains(&&*resource.plural)
                    && has_same_metadata(old, new);
                (!is_status).then_some((new, ObservedChange::Updated))?
            }
            // It was terminating, and is gone now.
            (Some(_), None) | (None, None) => return None,
        };
        let Key { namespace, name } = &meta.key;
        let generation = |meta: Option<&ObjectMeta>| meta.map(|meta| meta.generation);
        Some(Self {
            is_spec_changed: generation(old) != generation(new),
            collection: Collection::of(resource, namespace),
            name: name.to_string(),
            owner: meta.controller_ref().map(|owner| owner.uid.clone()),
            change: what,
        })
    }
}

impl Observed {
    /// Whether the object belonged to a controller before, so that a change by another client is worth a line.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.owner.is_some() && self.change != ObservedChange::Created
    }
}

fn has_same_metadata(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    (&old.labels, &old.owner_references, &old.finalizers, old.generation)
        == (&new.labels, &new.owner_references, &new.finalizers, new.generation)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keleustes_objects::PartialObjectMeta;
    use keleustes_plan::{AnyObject, Precondition, WriteDraft};
    use serde_json::{Value, json};

    use super::*;

    const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
    const SETS: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");

    fn object(name: &str, version: &str, more: &Value) -> Arc<dyn AnyObject> {
        let mut metadata = json!({"namespace": "shop", "name": name, "uid": "u", "resourceVersion": version});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object: PartialObjectMeta = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        Arc::new(object)
    }

    fn owned_by(uid: &str) -> Value {
        json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}]})
    }

    fn change(old: Option<Arc<dyn AnyObject>>, new: Option<Arc<dyn AnyObject>>) -> AnyChange {
        AnyChange { old, new, resync: false }
    }

    fn target(resource: &Resource, name: &str) -> Target {
        Target::named(resource, Key::namespaced("shop", name), Precondition::None("nothing is sent"))
    }

    fn effect<R>(write: &Write<R>, owner: Option<&str>) -> WriteEffect {
        WriteEffect::of(write, &|_| owner.map(Uid::from))
    }

    fn create_pod(owner: &str) -> WriteDraft {
        let mut metadata = owned_by(owner);
        metadata["generateName"] = "web-".into();
        let mut write = Write::delete_target(target(&PODS, ""));
        write.action = Action::Create(json!({"metadata": metadata}));
        write
    }

    #[test]
    fn generated_names_are_compared_by_owner() {
        let created = change(None, Some(object("web-x7k2p", "5", &owned_by("set-1"))));
        let observed = Observed::of(&PODS, &created).unwrap();
        assert_eq!(observed.change, ObservedChange::Created);
        assert!(effect(&create_pod("set-1"), None).explains(&observed));
        assert!(!effect(&create_pod("set-2"), None).explains(&observed), "another ReplicaSet's pod");
        assert_eq!(effect(&create_pod("set-1"), None).name(), "web-*");
    }

    #[test]
    fn deletions_are_compared_by_owner() {
        let pod = object("web-a", "5", &owned_by("set-1"));
        let observed = Observed::of(&PODS, &change(Some(pod), None)).unwrap();
        let delete = Write::delete_target(target(&PODS, "web-b"));
        assert!(effect(&delete, Some("set-1")).explains(&observed), "another of several equal pods");
        assert!(!effect(&delete, Some("set-2")).explains(&observed));
        assert!(!effect(&delete, None).explains(&observed), "two pods without an owner are not equal");
        assert!(effect(&Write::delete_target(target(&PODS, "web-a")), None).explains(&observed));
        assert!(effect(&Write::delete_collection(&PODS, "shop"), None).explains(&observed));
        assert!(!effect(&Write::delete_collection(&PODS, "other"), None).explains(&observed));
    }

    #[test]
    fn object_that_terminates_is_deleted_once() {
        let alive = object("web-a", "5", &json!({}));
        let terminating = object("web-a", "6", &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let first = Observed::of(&PODS, &change(Some(alive), Some(terminating.clone()))).unwrap();
        assert_eq!(first.change, ObservedChange::Deleted);
        assert_eq!(Observed::of(&PODS, &change(Some(terminating), None)), None);
    }

    #[test]
    fn statuses_of_pods_are_not_observed_and_their_labels_are() {
        let (old, new) = (object("a", "5", &json!({})), object("a", "6", &json!({})));
        assert_eq!(Observed::of(&PODS, &change(Some(old.clone()), Some(new.clone()))), None);
        assert!(Observed::of(&SETS, &change(Some(old.clone()), Some(new))).is_some());
        let labelled = object("a", "6", &json!({"labels": {"a": "b"}}));
        let observed = Observed::of(&PODS, &change(Some(old.clone()), Some(labelled))).unwrap();
        assert_eq!(observed.change, ObservedChange::Updated);
        assert_eq!(Observed::of(&PODS, &change(Some(old.clone()), Some(old))), None, "unchanged");
    }

    #[test]
    fn status_does_not_explain_a_change_of_the_spec() {
        let (old, new) =
            (object("web", "5", &json!({"generation": 1})), object("web", "6", &json!({"generation": 2})));
        let observed = Observed::of(&SETS, &change(Some(old), Some(new))).unwrap();
        let patch = |subresource| {
            let write =
                Write::patch_target(target(&SETS, "web"), keleustes_plan::PatchKind::Merge, json!({}));
            effect(&write.on_subresource(subresource), None)
        };
        assert!(!patch("status").explains(&observed));
        assert!(patch("").explains(&observed) && patch("scale").explains(&observed));
    }

    #[test]
    fn recreated_object_is_a_creation() {
        let old = object("a", "5", &json!({}));
        let new = object("a", "9", &json!({"uid": "v"}));
        let observed = Observed::of(&SETS, &change(Some(old), Some(new))).unwrap();
        assert_eq!(observed.change, ObservedChange::Created);
    }

    #[test]
    fn any_way_of_updating_has_the_same_effect() {
        let old = object("web", "5", &json!({}));
        let new = object("web", "6", &json!({}));
        let observed = Observed::of(&SETS, &change(Some(old), Some(new))).unwrap();
        let patch = keleustes_plan::PatchKind::Merge;
        let patched = effect(&Write::patch_target(target(&SETS, "web"), patch, json!({})), None);
        let metadata = effect(&Write::patch_metadata(target(&SETS, "web"), |_| None), None);
        assert!(patched.explains(&observed) && metadata.explains(&observed));
        assert!(!effect(&Write::delete_target(target(&SETS, "web")), None).explains(&observed));
        assert_eq!(patched.collection.resource(), "replicasets.apps");
    }
}
