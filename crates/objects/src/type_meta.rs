//! `apiVersion` and `kind`, interned.

use std::cmp::Ordering;
use std::fmt;

use crate::{Interned, InternedStr, Resource};

/// `apiVersion` and `kind` of an object. Equal pairs share one allocation, so a value takes one pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct TypeMeta(Interned<(InternedStr, InternedStr)>);

impl TypeMeta {
    /// A pair of `apiVersion` and `kind`.
    #[must_use]
    pub fn new(api_version: impl Into<InternedStr>, kind: impl Into<InternedStr>) -> Self {
        Self(Interned::new((api_version.into(), kind.into())))
    }

    /// The pair of a resource's objects.
    #[must_use]
    pub fn of(resource: &Resource) -> Self {
        Self::new(&*resource.api_version(), &*resource.kind)
    }

    /// `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> &InternedStr {
        &self.0.0
    }

    /// `kind`.
    #[must_use]
    pub fn kind(&self) -> &InternedStr {
        &self.0.1
    }

    /// The group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// The version of the group.
    #[must_use]
    pub fn version(&self) -> &str {
        self.api_version().split_once('/').map_or(self.api_version(), |(_, version)| version)
    }
}

/// Orders by kind first, so that the versions of one kind are adjacent.
impl Ord for TypeMeta {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.kind(), self.api_version()).cmp(&(other.kind(), other.api_version()))
    }
}

impl PartialOrd for TypeMeta {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for TypeMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.kind())
    }
}

impl fmt::Debug for TypeMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_type_metas_share_one_allocation_and_split_into_group_and_version() {
        let deployment = TypeMeta::new("apps/v1", "Deployment");
        let same = TypeMeta::of(&Resource::namespaced("apps", "v1", "deployments", "Deployment"));
        assert_eq!(deployment, same);
        assert_eq!(size_of::<TypeMeta>(), size_of::<usize>());
        assert_eq!((deployment.group(), deployment.version()), ("apps", "v1"));
        let pod = TypeMeta::new("v1", "Pod");
        assert_eq!((pod.group(), pod.version()), ("", "v1"));
        assert_eq!(pod.to_string(), "v1/Pod");
        assert!(deployment < pod, "kinds come before versions");
    }
}
