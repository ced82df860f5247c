//! The metadata of cached objects.

use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::{Value, json};

use crate::{Annotations, ArcStr, InternedList, InternedStr, Key, Kind, Labels, ResourceVersion, Time, Uid};

/// The metadata that a cache holds. Annotations are held by the kinds that read some of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectMeta {
    /// Namespace and name.
    pub key: Key,
    /// UID.
    pub uid: Uid,
    /// `resourceVersion` of this state.
    pub resource_version: ResourceVersion,
    /// `generation`; zero for kinds without one.
    pub generation: i64,
    /// `creationTimestamp`.
    pub creation_timestamp: Option<Time>,
    /// `deletionTimestamp`; set while the object is terminating.
    pub deletion_timestamp: Option<Time>,
    /// `labels`.
    pub labels: Labels,
    /// `ownerReferences`.
    pub owner_references: InternedList<OwnerReference>,
    /// `finalizers`.
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
    /// Name of the owner, which is in the namespace of the object or cluster-scoped.
    pub name: ArcStr,
    /// UID of the owner.
    pub uid: Uid,
    /// Whether this is the controllerRef.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub block_owner_deletion: bool,
}

impl ObjectMeta {
    /// The controllerRef, if the object has one.
    #[must_use]
    pub fn controller_ref(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

/// The metadata beyond [`ObjectMeta`], held by kinds that are updated with a PUT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExtraMeta {
    /// All annotations.
    pub annotations: Annotations,
    /// `generateName`.
    pub generate_name: InternedStr,
}

/// A kind that holds all metadata that a PUT overwrites.
///
/// The server restores immutable fields (`managedFields` if absent, `selfLink`, `deletionGracePeriodSeconds`);
/// everything else is in [`FullMeta::full_meta_json`].
pub trait FullMeta: Kind {
    /// The metadata beyond [`crate::Object::meta`].
    fn extra_meta(&self) -> &ExtraMeta;

    /// All annotations.
    fn annotations(&self) -> &Annotations {
        &self.extra_meta().annotations
    }

    /// The complete metadata for the body of a PUT to the object or its status.
    fn full_meta_json(&self) -> Value {
        let (meta, extra) = (self.meta(), self.extra_meta());
        let mut json =
            json!({"name": meta.key.name, "uid": meta.uid, "resourceVersion": meta.resource_version});
        let mut set = |field: &str, absent: bool, value: Value| {
            if !absent {
                json[field] = value;
            }
        };
        set("namespace", meta.key.namespace.is_empty(), json!(meta.key.namespace));
        set("generateName", extra.generate_name.is_empty(), json!(extra.generate_name));
        set("generation", meta.generation == 0, json!(meta.generation));
        set("creationTimestamp", meta.creation_timestamp.is_none(), json!(meta.creation_timestamp));
        set("deletionTimestamp", meta.deletion_timestamp.is_none(), json!(meta.deletion_timestamp));
        set("labels", meta.labels.is_empty(), json!(meta.labels));
        set("annotations", extra.annotations.is_empty(), json!(extra.annotations));
        set("ownerReferences", meta.owner_references.is_empty(), json!(meta.owner_references));
        set("finalizers", meta.finalizers.is_empty(), json!(meta.finalizers));
        json
    }
}

/// Metadata as decoded. `A` is the part of the annotations that a kind reads; by default none. `managedFields` are
/// always skipped.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "A: Default + Deserialize<'de>")]
pub struct WireMeta<A = Skipped> {
    name: ArcStr,
    namespace: InternedStr,
    uid: Uid,
    resource_version: ResourceVersion,
    #[serde(deserialize_with = "null_is_default")]
    generation: i64,
    /// `generateName`.
    pub generate_name: InternedStr,
    /// `deletionGracePeriodSeconds`.
    pub deletion_grace_period_seconds: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Labels,
    owner_references: InternedList<OwnerReference>,
    finalizers: InternedList<InternedStr>,
    /// The part of the annotations that the kind reads.
    pub annotations: A,
}

/// Decodes a list; `null` is the empty list, as in objects written by hand.
pub(crate) fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Box<[T]>, D::Error> {
    null_is_default(deserializer)
}

/// Decodes a value; `null` is the default, as in objects written by hand.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A value that the decoder skips.
#[derive(Debug, Default)]
pub struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl WireMeta<Annotations> {
    /// The complete metadata.
    pub(crate) fn split(mut self) -> (ObjectMeta, ExtraMeta) {
        let annotations = std::mem::take(&mut self.annotations);
        let generate_name = std::mem::take(&mut self.generate_name);
        (self.into(), ExtraMeta { annotations, generate_name })
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
    fn managed_fields_are_never_cached() {
        // No field could hold them, so an entry changes nothing.
        let plain: WireMeta = serde_json::from_str(r#"{"name":"a","resourceVersion":"3"}"#).unwrap();
        let managed: WireMeta = serde_json::from_str(
            r#"{"name":"a","managedFields":[{"manager":"x","fieldsV1":{"f:data":{}}}],"resourceVersion":"3"}"#,
        )
        .unwrap();
        assert_eq!(ObjectMeta::from(plain), ObjectMeta::from(managed));
    }

    #[test]
    fn owner_references_labels_and_timestamps_are_decoded() {
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
