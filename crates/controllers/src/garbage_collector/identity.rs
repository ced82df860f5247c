//! The identity of an object: its UID, which is always right, and coordinates, which an owner reference may
//! state wrongly.

use std::cmp::Ordering;
use std::fmt;

use keleustes_objects::{ArcStr, InternedStr, Key, TypeMeta, Uid};

/// The UID of an object and its coordinates, observed or taken from an owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// apiVersion and kind.
    pub(crate) type_meta: TypeMeta,
    /// Namespace (empty if cluster-scoped) and name.
    pub(crate) key: Key,
    /// UID.
    pub(crate) uid: Uid,
}

impl Identity {
    /// Whether an owner reference with this apiVersion, kind and `name`, on an object in `namespace`, has
    /// these coordinates. A cluster-scoped owner may be referenced from any namespace, a namespaced owner
    /// only from its own.
    pub(crate) fn matches_reference(
        &self,
        type_meta: &TypeMeta,
        name: &ArcStr,
        namespace: &InternedStr,
    ) -> bool {
        self.type_meta == *type_meta && self.key.name == *name && self.may_own_in_namespace(namespace)
    }

    /// Whether objects in `namespace` may have this object as owner.
    pub(crate) fn may_own_in_namespace(&self, namespace: &InternedStr) -> bool {
        self.key.namespace.is_empty() || self.key.namespace == *namespace
    }
}

/// Orders by apiVersion and kind before the namespace, so that the order of kinds does not depend on their
/// scope.
impl Ord for Identity {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.type_meta, &self.key, &self.uid).cmp(&(&other.type_meta, &other.key, &other.uid))
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { type_meta, key, uid } = self;
        write!(f, "[{type_meta}, namespace: {}, name: {}, uid: {uid}]", key.namespace, key.name)
    }
}
