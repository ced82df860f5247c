//! Finds managed objects by the life of the one that manages them, and those that nobody manages.

use keleustes_objects::{InternedStr, Key, Kind, Object, ObjectMeta, OwnerReference, Uid};
use keleustes_plan::{Index, Store, View};
use serde_json::{Value, json};
use std::sync::Arc;

/// An index by manager: the uid of the owner that manages an object, or its namespace if none does.
pub(crate) const fn by_controller_uid<T: Object>() -> Index<T> {
    Index { name: "manager", values: controller_uid_of }
}

fn controller_uid_of<T: Object>(object: &T, emit: &mut dyn FnMut(InternedStr)) {
    let meta = object.meta();
    match meta.controller_ref() {
        Some(owner) => emit(InternedStr::from(&*owner.uid.to_string())),
        None => emit(orphan_key(&meta.key.namespace)),
    }
}

/// No uid has a slash.
fn orphan_key(namespace: &str) -> InternedStr {
    InternedStr::from(&*format!("{namespace}/"))
}

/// The objects that an owner manages, sorted by name.
pub(crate) fn controlled_by<'a, T: Object>(
    table: &'a Store<T>,
    owner: &Uid,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
    table.by_index(&by_controller_uid(), &owner.to_string())
}

/// The objects of a namespace that nobody manages, sorted by name.
pub(crate) fn orphans<'a, T: Object>(
    table: &'a Store<T>,
    namespace: &str,
) -> impl Iterator<Item = &'a Arc<T>> + use<'a, T> {
    table.by_index(&by_controller_uid(), &orphan_key(namespace))
}

/// The object that a reference names, if it is of this kind and the same life. The group is not
/// compared.
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

/// The entry of `ownerReferences` that makes an object of this kind the manager.
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
