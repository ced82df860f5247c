//! Finds objects by their controller, and orphans by their namespace.
//!
//! A controller is identified by namespace, kind, name and UID. The UID alone is not enough: a user who may create an
//! object in one namespace may name the UID of an owner in another.

use keleustes_objects::{InternedStr, Key, Kind, Object, ObjectMeta, OwnerReference};
use keleustes_plan::{Index, Store, View};
use serde_json::{Value, json};
use std::sync::Arc;

/// An index by controller: `namespace/Kind/name/uid` of the controllerRef, or the namespace of an orphan.
///
/// Parity: `PodControllerIndexKey` in pkg/controller/controller_utils.go.
pub(crate) const fn by_controller<T: Object>() -> Index<T> {
    Index { name: "controller", values: controller_of }
}

fn controller_of<T: Object>(object: &T, emit: &mut dyn FnMut(InternedStr)) {
    let meta = object.meta();
    match meta.controller_ref() {
        Some(owner) => emit(InternedStr::from(&*reference_key(&meta.key.namespace, owner))),
        // No namespace contains a slash, so this is never the key of a controller.
        None => emit(meta.key.namespace.clone()),
    }
}

fn reference_key(namespace: &str, owner: &OwnerReference) -> String {
    format!("{namespace}/{}/{}/{}", owner.kind, owner.name, owner.uid)
}

/// The objects that an owner controls, sorted by name. All of them are in the owner's namespace.
pub(crate) fn controlled_by<'a, O: Kind, T: Object>(
    store: &'a Store<T>,
    owner: &O,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, O, T> {
    let (key, uid) = (owner.key(), &owner.meta().uid);
    let value = format!("{}/{}/{}/{uid}", key.namespace, O::RESOURCE.kind, key.name);
    store.by_index(&by_controller(), &value)
}

/// The objects of a namespace that have this controllerRef, sorted by name.
pub(crate) fn with_controller_ref<'a, T: Object>(
    store: &'a Store<T>,
    namespace: &str,
    owner: &OwnerReference,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
    store.by_index(&by_controller(), &reference_key(namespace, owner))
}

/// The orphans of a namespace, sorted by name.
pub(crate) fn orphans<'a, T: Object>(
    store: &'a Store<T>,
    namespace: &str,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
    store.by_index(&by_controller(), namespace)
}

/// The objects that an owner controls, and the orphans that it may adopt.
pub(crate) fn controlled_by_or_orphans<'a, O: Kind, T: Object>(
    store: &'a Store<T>,
    owner: &O,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, O, T> {
    controlled_by(store, owner).chain(orphans(store, &owner.key().namespace))
}

/// Whether the controllerRef of an object points to this owner.
pub(crate) fn is_controlled_by<O: Kind>(object: &ObjectMeta, owner: &O) -> bool {
    let (meta, kind) = (owner.meta(), &*O::RESOURCE.kind);
    object.key.namespace == meta.key.namespace
        && object.controller_ref().is_some_and(|controller| {
            controller.uid == meta.uid && controller.kind == *kind && controller.name == meta.key.name
        })
}

/// The object that an owner reference points to, if it has this kind and the reference's UID. The API group
/// is not compared.
pub(crate) fn resolve<'a, T: Kind>(
    view: &View<'a>,
    namespace: &InternedStr,
    owner: &OwnerReference,
) -> Option<&'a Arc<T>> {
    if owner.kind != *T::RESOURCE.kind {
        return None;
    }
    let key = Key { namespace: namespace.clone(), name: owner.name.clone() };
    view.get::<T>(&key).filter(|object| object.meta().uid == owner.uid)
}

/// A controllerRef to an object of this kind, as an entry of `ownerReferences`.
pub(crate) fn controller_ref<T: Kind>(owner: &ObjectMeta) -> Value {
    json!({
        "apiVersion": T::RESOURCE.api_version(),
        "kind": T::RESOURCE.kind,
        "name": owner.key.name,
        "uid": owner.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
