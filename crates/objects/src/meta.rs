//! The metadata that every cached object carries.

use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::{Value, json};

use crate::{Annotations, ArcStr, InternedList, InternedStr, Key, Kind, Labels, ResourceVersion, Time, Uid};

/// What a cache keeps of an object's metadata. Annotations are kept by the kinds that read some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectMeta {
    /// Namespace and name.
    pub key: Key,
    /// The uid of this life of the object.
    pub uid: Uid,
    /// The state that was read.
    pub resource_version: ResourceVersion,
    /// How often what is wanted of it has changed; zero for kinds that do not count it.
    pub generation: i64,
    /// When it was created.
    pub creation_timestamp: Option<Time>,
    /// When its deletion was asked for, if it was.
    pub deletion_timestamp: Option<Time>,
    /// Its labels.
    pub labels: Labels,
    /// Its owners.
    pub owner_references: InternedList<OwnerReference>,
    /// Its finalizers.
    pub finalizers: InternedList<InternedStr>,
}

/// One entry of `ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: InternedStr,
    /// Kind of the owner.
    pub kind: InternedStr,
    /// Name of the owner, in the namespace of the object or in none.
    pub name: ArcStr,
    /// The life of the owner that is meant.
    pub uid: Uid,
    /// Whether this owner manages the object.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for the object.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub block_owner_deletion: bool,
}

impl ObjectMeta {
    /// The owner that manages the object, if one does.
    #[must_use]
    pub fn controller_ref(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

/// The rest of the metadata, kept by kinds that are written back whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaRest {
    /// All annotations.
    pub annotations: Annotations,
    /// What the name was made from.
    pub generate_name: InternedStr,
}

/// A kind that keeps everything of its metadata that a `PUT` would overwrite.
///
/// The server restores by itself what nobody may change (`managedFields` if absent, `selfLink`, the
/// grace period of a deletion); everything else is in [`Whole::full_meta_json`].
pub trait FullMeta: Kind {
    /// The metadata beside [`crate::Object::meta`].
    fn meta_rest(&self) -> &MetaRest;

    /// All annotations.
    fn annotations(&self) -> &Annotations {
        &self.meta_rest().annotations
    }

    /// The metadata of a body that replaces the object, or its status, and loses nothing.
    fn full_meta_json(&self) -> Value {
        let (meta, rest) = (self.meta(), self.meta_rest());
        let mut json =
            json!({"name": meta.key.name, "uid": meta.uid, "resourceVersion": meta.resource_version});
        let mut set = |field: &str, absent: bool, value: Value| {
            if !absent {
                json[field] = value;
            }
        };
        set("namespace", meta.key.namespace.is_empty(), json!(meta.key.namespace));
        set("generateName", rest.generate_name.is_empty(), json!(rest.generate_name));
        set("generation", meta.generation == 0, json!(meta.generation));
        set("creationTimestamp", meta.creation_timestamp.is_none(), json!(meta.creation_timestamp));
        set("deletionTimestamp", meta.deletion_timestamp.is_none(), json!(meta.deletion_timestamp));
        set("labels", meta.labels.is_empty(), json!(meta.labels));
        set("annotations", rest.annotations.is_empty(), json!(rest.annotations));
        set("ownerReferences", meta.owner_references.is_empty(), json!(meta.owner_references));
        set("finalizers", meta.finalizers.is_empty(), json!(meta.finalizers));
        json
    }
}

/// Metadata as it stands on the wire. `A` is what a kind wants of the annotations; by default they
/// are skipped, as is `managedFields`, always.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "A: Default + Deserialize<'de>")]
pub struct WireMeta<A = Skipped> {
    name: ArcStr,
    namespace: InternedStr,
    uid: Uid,
    resource_version: ResourceVersion,
    #[serde(deserialize_with = "null_is_default")]
    generation: i64,
    /// What the name was made from.
    pub generate_name: InternedStr,
    /// How long a deletion leaves it.
    pub deletion_grace_period_seconds: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Labels,
    owner_references: InternedList<OwnerReference>,
    finalizers: InternedList<InternedStr>,
    /// The part of the annotations that the kind reads.
    pub annotations: A,
}

/// Reads a list that hand-made objects may also write as `null`.
pub(crate) fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Box<[T]>, D::Error> {
    null_is_default(deserializer)
}

/// Reads a part that hand-made objects may also write as `null`.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Stands for a part of an object that is read over and not kept.
#[derive(Debug, Default)]
pub struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl WireMeta<Annotations> {
    /// The metadata of a kind that is written back whole.
    pub(crate) fn whole(mut self) -> (ObjectMeta, MetaRest) {
        let annotations = std::mem::take(&mut self.annotations);
        let generate_name = std::mem::take(&mut self.generate_name);
        (self.into(), MetaRest { annotations, generate_name })
    }
}

impl<A> From<WireMeta<A>> for ObjectMeta {
    fn from(wire: WireMeta<A>) -> Self {
        Self {
            key: Key { namespace: wire.namespace, name: wire.name },
            uid: wire.uid,
            resource_version: wire.resource_version,
            generation: wire.generation,
            creation_timestamp: wire.creation_timestamp,
            deletion_timestamp: wire.deletion_timestamp,
            labels: wire.labels,
            owner_references: wire.owner_references,
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
        assert_eq!(ObjectMeta::from(plain), ObjectMeta::from(managed));
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
        let meta = ObjectMeta::from(wire);
        assert_eq!(meta.labels.value("a").map(InternedStr::as_str), Some("2"));
        assert_eq!(meta.labels.value("b"), None);
        assert_eq!(meta.labels.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a", "z"]);
        assert_eq!(meta.controller_ref().map(|owner| owner.name.as_str()), Some("j"));
        assert!(meta.deletion_timestamp.is_some());
    }
}
