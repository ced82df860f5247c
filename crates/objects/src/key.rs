//! Keys of objects within their kind.

use std::fmt;
use std::str::FromStr;

use crate::{ArcStr, InternedStr};

/// Namespace (empty for cluster-scoped kinds) and name of an object.
///
/// Keys order by namespace, then name, so that a sorted store keeps each namespace together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: InternedStr,
    /// The name.
    pub name: ArcStr,
}

impl Key {
    /// The key of a namespaced object.
    #[must_use]
    pub fn namespaced(namespace: impl Into<InternedStr>, name: impl Into<ArcStr>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    #[must_use]
    pub fn cluster(name: impl Into<ArcStr>) -> Self {
        Self { namespace: InternedStr::default(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is neither `name` nor `namespace/name`.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidKey(String);

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unexpected key format: {:?}", self.0)
    }
}

impl std::error::Error for InvalidKey {}

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [name] => Ok(Self::cluster(name)),
            [namespace, name] => Ok(Self::namespaced(namespace, name)),
            _ => Err(InvalidKey(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves INF-2.
    #[test]
    fn keys_are_namespace_and_name() {
        assert_eq!(Key::namespaced("a", "b").to_string(), "a/b");
        assert_eq!(Key::cluster("b").to_string(), "b");
        assert_eq!("a/b".parse(), Ok(Key::namespaced("a", "b")));
        assert_eq!("b".parse(), Ok(Key::cluster("b")));
        let error = "a/b/c".parse::<Key>().unwrap_err();
        assert_eq!(error.to_string(), "unexpected key format: \"a/b/c\"");
    }
}
