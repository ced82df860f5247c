//! The two string types of objects: interned, and reference-counted without interning.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use internment::ArcIntern;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

/// A reference-counted string, for values that objects do not share, such as names. The empty string takes no
/// allocation.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArcStr(Option<Arc<str>>);

/// An interned string, for values that a cluster repeats, such as namespaces and label keys. Equal strings share one
/// allocation, which is freed with its last user.
///
/// Order and hash depend on the content, never on the address, so that runs are reproducible.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InternedStr(Option<ArcIntern<str>>);

impl ArcStr {
    /// The string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl InternedStr {
    /// The string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl PartialOrd for InternedStr {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InternedStr {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Equal strings share one allocation, so most comparisons in a sorted map need not read them.
        if self.0 == other.0 { std::cmp::Ordering::Equal } else { self.as_str().cmp(other.as_str()) }
    }
}

impl From<&str> for ArcStr {
    fn from(text: &str) -> Self {
        Self((!text.is_empty()).then(|| Arc::from(text)))
    }
}

impl From<String> for ArcStr {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&str> for InternedStr {
    fn from(text: &str) -> Self {
        Self((!text.is_empty()).then(|| ArcIntern::from(text)))
    }
}

macro_rules! string_like {
    ($name:ident) => {
        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                self.as_str()
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
        // Hashes as `str` does, which `Borrow<str>` requires.
        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.as_str().hash(state);
            }
        }
        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }
        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct FromStr;
                impl Visitor<'_> for FromStr {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from(text))
                    }
                    // Objects written by hand may hold null for an absent string.
                    fn visit_unit<E: Error>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }
                }
                deserializer.deserialize_any(FromStr)
            }
        }
    };
}

string_like!(ArcStr);
string_like!(InternedStr);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_interned_strings_share_one_allocation() {
        let one = InternedStr::from("kube-system");
        let two: InternedStr = serde_json::from_str("\"kube-system\"").unwrap();
        assert_eq!(one, two);
        assert!(std::ptr::eq(one.as_str(), two.as_str()));
    }

    #[test]
    fn empty_strings_take_no_allocation_and_are_equal() {
        assert_eq!((size_of::<ArcStr>(), size_of::<InternedStr>()), (16, 16));
        assert_eq!(ArcStr::from(""), ArcStr::default());
        assert_eq!(InternedStr::from(""), InternedStr::default());
        assert!([ArcStr::from(""), ArcStr::from("a")].is_sorted());
        assert_eq!(serde_json::to_string(&InternedStr::default()).unwrap(), "\"\"");
    }

    #[test]
    fn interned_strings_order_by_content() {
        let mut strings: Vec<InternedStr> = ["b", "a", "c"].into_iter().map(InternedStr::from).collect();
        strings.sort();
        assert_eq!(strings, ["a", "b", "c"]);
    }
}
