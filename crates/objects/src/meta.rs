//! The metadata that every cached object carries.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::sync::Arc;

use crate::{Key, Text, Time, Uid, Version, Word};

/// What a cache keeps of an object's metadata. Annotations are kept by the kinds that read some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// The uid of this life of the object.
    pub uid: Uid,
    /// The state that was read.
    pub version: Version,
    /// When it was created.
    pub created_at: Option<Time>,
    /// When its deletion was asked for, if it was.
    pub deleted_at: Option<Time>,
    /// Its labels.
    pub labels: Labels,
    /// Its owners.
    pub owners: Box<[OwnerRef]>,
    /// Its finalizers.
    pub finalizers: Box<[Word]>,
}

/// One entry of `ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerRef {
    /// Group and version of the owner.
    pub api_version: Word,
    /// Kind of the owner.
    pub kind: Word,
    /// Name of the owner, in the namespace of the object or in none.
    pub name: Text,
    /// The life of the owner that is meant.
    pub uid: Uid,
    /// Whether this owner manages the object.
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for the object.
    pub block_owner_deletion: bool,
}

impl Meta {
    /// The owner that manages the object, if one does.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owners.iter().find(|owner| owner.controller)
    }
}

/// Labels, sorted by key. Empty sets take no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<[(Word, Word)]>>);

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Word> {
        let pairs = self.0.as_deref()?;
        let at = pairs.binary_search_by(|(candidate, _)| candidate.as_str().cmp(key)).ok()?;
        Some(&pairs[at].1)
    }

    /// All labels, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &(Word, Word)> {
        self.0.as_deref().unwrap_or_default().iter()
    }
}

impl FromIterator<(Word, Word)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Word, Word)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort();
        Self((!pairs.is_empty()).then(|| pairs.into()))
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Labels, M::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(4));
                while let Some(pair) = map.next_entry::<Word, Word>()? {
                    pairs.push(pair);
                }
                Ok(pairs.into_iter().collect())
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<Labels, E> {
                Ok(Labels::default())
            }
        }
        deserializer.deserialize_any(Pairs)
    }
}

/// Metadata as it stands on the wire. `A` is what a kind wants of the annotations; by default they
/// are skipped, as is `managedFields`, always.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "A: Default + Deserialize<'de>")]
pub struct WireMeta<A = Skipped> {
    name: Text,
    namespace: Word,
    uid: Uid,
    resource_version: Version,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Labels,
    #[serde(deserialize_with = "null_is_empty")]
    owner_references: Box<[OwnerRef]>,
    #[serde(deserialize_with = "null_is_empty")]
    finalizers: Box<[Word]>,
    /// The part of the annotations that the kind reads.
    pub annotations: A,
}

/// Reads a list that hand-made objects may also write as `null`.
pub(crate) fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Box<[T]>, D::Error> {
    Ok(Option::<Box<[T]>>::deserialize(deserializer)?.unwrap_or_default())
}

/// Stands for a part of an object that is read over and not kept.
#[derive(Debug, Default)]
pub struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl<A> From<WireMeta<A>> for Meta {
    fn from(wire: WireMeta<A>) -> Self {
        Self {
            key: Key { namespace: wire.namespace, name: wire.name },
            uid: wire.uid,
            version: wire.resource_version,
            created_at: wire.creation_timestamp,
            deleted_at: wire.deletion_timestamp,
            labels: wire.labels,
            owners: wire.owner_references,
            finalizers: wire.finalizers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves INF-3, RUN-44.
    #[test]
    fn managed_fields_are_never_kept() {
        // There is no field that could hold them: reading a huge entry leaves the same value.
        let plain: WireMeta = serde_json::from_str(r#"{"name":"a","resourceVersion":"3"}"#).unwrap();
        let managed: WireMeta = serde_json::from_str(
            r#"{"name":"a","managedFields":[{"manager":"x","fieldsV1":{"f:data":{}}}],"resourceVersion":"3"}"#,
        )
        .unwrap();
        assert_eq!(Meta::from(plain), Meta::from(managed));
    }

    #[test]
    fn owners_labels_and_times_are_read() {
        let wire: WireMeta = serde_json::from_str(
            r#"{"name":"a","namespace":"b","labels":{"z":"1","a":"2"},"finalizers":null,
                "deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"skip":"me"},
                "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"},
                                   {"apiVersion":"v1","kind":"Job","name":"j","uid":"v","controller":true}]}"#,
        )
        .unwrap();
        let meta = Meta::from(wire);
        assert_eq!(meta.labels.value("a").map(Word::as_str), Some("2"));
        assert_eq!(meta.labels.value("b"), None);
        assert_eq!(meta.labels.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a", "z"]);
        assert_eq!(meta.controller().map(|owner| owner.name.as_str()), Some("j"));
        assert!(meta.deleted_at.is_some());
    }
}
