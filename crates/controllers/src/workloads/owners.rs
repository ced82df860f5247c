//! Finds objects by the UID of their controller, and orphans by their namespace.

use keleustes_objects::{InternedStr, Key, Kind, Object, ObjectMeta, OwnerReference, Uid};
use keleustes_plan::{Index, Store, View};
use serde_json::{Value, json};
use std::sync::Arc;

/// An index by controller UID: the UID of the controllerRef, or the namespace of an orphan.
pub(crate) const fn by_controller_uid<T: Object>() -> Index<T> {
    Index { name: "controllerUid", values: controller_uid_of }
}

fn controller_uid_of<T: Object>(object: &T, emit: &mut dyn FnMut(InternedStr)) {
    let meta = object.meta();
    match meta.controller_ref() {
        Some(owner) => emit(InternedStr::from(&*owner.uid.to_string())),
        None => emit(orphan_key(&meta.key.namespace)),
    }
}

/// No UID contains a slash.
fn orphan_key(namespace: &str) -> InternedStr {
    InternedStr::from(&*format!("{namespace}/"))
}

/// The objects that an owner controls, sorted by name.
pub(crate) fn controlled_by<'a, T: Object>(
    store: &'a Store<T>,
    owner: &Uid,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
    store.by_index(&by_controller_uid(), &owner.to_string())
}

/// The orphans of a namespace, sorted by name.
pub(crate) fn orphans<'a, T: Object>(
    store: &'a Store<T>,
    namespace: &str,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
    store.by_index(&by_controller_uid(), &orphan_key(namespace))
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
