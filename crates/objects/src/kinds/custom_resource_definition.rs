//! CustomResourceDefinitions: which version is stored, and which ones were.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::{ArcStr, Condition, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A CustomResourceDefinition as the storage version migrator reads it; it is not cached.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct CustomResourceDefinition {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The name of the version of `spec.versions` that is stored, if one is.
    pub storage_version: Option<ArcStr>,
    /// `status.conditions`.
    pub conditions: Box<[Condition]>,
    /// `status.storedVersions`.
    pub stored_versions: Box<[ArcStr]>,
}

impl Object for CustomResourceDefinition {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for CustomResourceDefinition {
    const RESOURCE: Resource = Resource::built_in("apiextensions.k8s.io", "CustomResourceDefinition");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "null_is_empty")]
    versions: Box<[Version]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    name: ArcStr,
    storage: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[Condition]>,
    #[serde(deserialize_with = "null_is_empty")]
    stored_versions: Box<[ArcStr]>,
}

impl From<Wire> for CustomResourceDefinition {
    fn from(wire: Wire) -> Self {
        let storage = wire.spec.versions.iter().find(|version| version.storage);
        Self {
            meta: wire.metadata.into(),
            storage_version: storage.map(|version| version.name.clone()),
            conditions: wire.status.conditions,
            stored_versions: wire.status.stored_versions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_decoded() {
        let definition: CustomResourceDefinition = serde_json::from_str(
            r#"{"metadata":{"name":"a.b","generation":3},
                "spec":{"versions":[{"name":"v1","storage":false},{"name":"v2","storage":true,"schema":{}}]},
                "status":{"storedVersions":["v1","v2"],
                          "conditions":[{"type":"StorageMigrating","status":"True","observedGeneration":3}]}}"#,
        )
        .unwrap();
        assert_eq!(definition.storage_version.as_deref(), Some("v2"));
        assert_eq!(definition.stored_versions.len(), 2);
        assert_eq!(definition.conditions[0].observed_generation, Some(3));
        let bare: CustomResourceDefinition =
            serde_json::from_str(r#"{"metadata":{"name":"a.b"},"spec":{"versions":null},"status":null}"#)
                .unwrap();
        assert_eq!(bare.storage_version, None);
    }
}
