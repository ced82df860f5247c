//! Which object is meant: a uid, which is never wrong, and coordinates, which references may get wrong.

use std::cmp::Ordering;
use std::fmt;

use keleustes_objects::{ArcStr, InternedStr, Key, TypeMeta, Uid};

/// One life of an object and where it is, or is said to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its type lines.
    pub(crate) line: TypeMeta,
    /// Its namespace, empty for none, and its name.
    pub(crate) key: Key,
    /// Its uid.
    pub(crate) uid: Uid,
}

impl Identity {
    /// Whether a reference that says `line` and `name`, made in `namespace`, means these coordinates.
    /// Objects of the cluster may be referred to from anywhere, others from their own namespace only.
    pub(crate) fn matches_reference(&self, line: &TypeMeta, name: &ArcStr, namespace: &InternedStr) -> bool {
        self.line == *line && self.key.name == *name && self.may_own_in(namespace)
    }

    /// Whether objects of a namespace may have this one as their owner.
    pub(crate) fn may_own_in(&self, namespace: &InternedStr) -> bool {
        self.key.namespace.is_empty() || self.key.namespace == *namespace
    }
}

/// By kind and version before the namespace, so that the order of kinds does not depend on their scope.
impl Ord for Identity {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.line, &self.key, &self.uid).cmp(&(&other.line, &other.key, &other.uid))
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, key, uid } = self;
        write!(f, "[{line}, namespace: {}, name: {}, uid: {uid}]", key.namespace, key.name)
    }
}
