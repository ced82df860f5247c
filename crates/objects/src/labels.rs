//! Labels and annotations: maps of strings, sorted by key.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use crate::{ArcStr, InternedList, InternedStr};

/// Labels, sorted by key. Equal sets share one allocation; the empty set takes none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(InternedList<(InternedStr, InternedStr)>);

/// Annotations, sorted by key. The empty set takes no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(Box<[(InternedStr, ArcStr)]>);

impl Labels {
    /// Whether `other` has every pair.
    #[must_use]
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.iter().all(|(key, value)| other.value(key) == Some(value))
    }

    /// A copy with one label added or replaced.
    #[must_use]
    pub fn with(&self, key: impl Into<InternedStr>, value: impl Into<InternedStr>) -> Self {
        let key = key.into();
        let kept = self.iter().filter(|(other, _)| *other != key).cloned();
        kept.chain([(key.clone(), value.into())]).collect()
    }

    /// A copy without one label.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        if self.value(key).is_none() {
            return self.clone();
        }
        self.iter().filter(|(other, _)| *other != key).cloned().collect()
    }
}

macro_rules! map_of_strings {
    ($name:ident, $value:ty) => {
        impl $name {
            /// The value of a key.
            #[must_use]
            pub fn value(&self, key: &str) -> Option<&$value> {
                let at = self.0.binary_search_by(|(candidate, _)| candidate.as_str().cmp(key)).ok()?;
                Some(&self.0[at].1)
            }

            /// Whether it is empty.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// The number of entries.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// All entries, sorted by key.
            pub fn iter(&self) -> impl Iterator<Item = &(InternedStr, $value)> {
                self.0.iter()
            }
        }

        impl FromIterator<(InternedStr, $value)> for $name {
            fn from_iter<I: IntoIterator<Item = (InternedStr, $value)>>(pairs: I) -> Self {
                let mut pairs: Vec<_> = pairs.into_iter().collect();
                pairs.sort();
                Self(pairs.into())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.iter().map(|(key, value)| (key, value)))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Pairs;
                impl<'de> Visitor<'de> for Pairs {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a map of strings")
                    }
                    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<$name, M::Error> {
                        let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(4));
                        while let Some(pair) = map.next_entry::<InternedStr, $value>()? {
                            pairs.push(pair);
                        }
                        Ok(pairs.into_iter().collect())
                    }
                    fn visit_unit<E: serde::de::Error>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }
                }
                deserializer.deserialize_any(Pairs)
            }
        }
    };
}

map_of_strings!(Labels, InternedStr);
map_of_strings!(Annotations, ArcStr);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_changed_by_copy() {
        let labels: Labels = serde_json::from_str(r#"{"b":"2","a":"1"}"#).unwrap();
        assert_eq!(serde_json::to_string(&labels.with("c", "3")).unwrap(), r#"{"a":"1","b":"2","c":"3"}"#);
        assert_eq!(serde_json::to_string(&labels.with("a", "9")).unwrap(), r#"{"a":"9","b":"2"}"#);
        assert_eq!(labels.with("c", "3").without("c"), labels);
        assert!(labels.is_subset_of(&labels.with("c", "3")));
        assert!(!labels.with("c", "3").is_subset_of(&labels));
        assert_eq!(serde_json::from_str::<Annotations>("null").unwrap(), Annotations::default());
    }
}
