//! The two kinds of strings that objects are made of: interned words and texts of their own.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use internment::ArcIntern;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

/// A string of its own, cheap to clone. The empty one takes no allocation.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArcStr(Option<Arc<str>>);

/// A string that a cluster repeats; every equal word shares one allocation, freed with its last user.
///
/// Words order and hash by content, never by address, so that nothing observable depends on where
/// the allocator happened to put them.
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
        // Equal words are one allocation, which saves reading most of the strings in a sorted table.
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
        // As strings hash, because both are borrowed as strings.
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
                    // The API encodes an absent string as null in a few hand-made objects.
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
    fn equal_words_share_one_allocation() {
        let one = InternedStr::from("kube-system");
        let two: InternedStr = serde_json::from_str("\"kube-system\"").unwrap();
        assert_eq!(one, two);
        assert!(std::ptr::eq(one.as_str(), two.as_str()));
    }

    #[test]
    fn empty_strings_cost_nothing_and_are_all_equal() {
        assert_eq!((size_of::<ArcStr>(), size_of::<InternedStr>()), (16, 16));
        assert_eq!(ArcStr::from(""), ArcStr::default());
        assert_eq!(InternedStr::from(""), InternedStr::default());
        assert!([ArcStr::from(""), ArcStr::from("a")].is_sorted());
        assert_eq!(serde_json::to_string(&InternedStr::default()).unwrap(), "\"\"");
    }

    #[test]
    fn words_order_by_content() {
        let mut words: Vec<InternedStr> = ["b", "a", "c"].into_iter().map(InternedStr::from).collect();
        words.sort();
        assert_eq!(words, ["a", "b", "c"]);
    }
}
