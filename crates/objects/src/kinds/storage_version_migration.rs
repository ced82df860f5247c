//! StorageVersionMigrations: which resource is to be rewritten, and how far that is.

use serde::{Deserialize, Serialize};

use super::full_meta::{WireSpecStatus, impl_full_meta};
use crate::meta::null_is_default;
use crate::{
    ArcStr, Condition, ExtraMeta, Kind, ObjectMeta, Projection, Resource, ResourceVersion, UnknownFields,
};

/// A StorageVersionMigration. A cluster has few of them, and their status is written back whole, so they are decoded
/// from JSON only.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct StorageVersionMigration {
    /// The metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// The desired state.
    pub spec: StorageVersionMigrationSpec,
    /// The observed state.
    pub status: StorageVersionMigrationStatus,
}

/// The spec of a StorageVersionMigration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StorageVersionMigrationSpec {
    /// The resource whose objects are rewritten.
    #[serde(deserialize_with = "null_is_default")]
    pub resource: GroupResource,
}

/// A resource of any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    #[serde(deserialize_with = "null_is_default")]
    pub group: ArcStr,
    /// The plural name.
    #[serde(deserialize_with = "null_is_default")]
    pub resource: ArcStr,
}

/// The status of a StorageVersionMigration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageVersionMigrationStatus {
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Objects with this resourceVersion or an older one are rewritten; empty until it is known.
    #[serde(skip_serializing_if = "ResourceVersion::is_empty")]
    pub resource_version: ResourceVersion,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

type Wire = WireSpecStatus<StorageVersionMigrationSpec, StorageVersionMigrationStatus>;

impl_full_meta!(StorageVersionMigration);

impl Kind for StorageVersionMigration {
    const RESOURCE: Resource = Resource::built_in("storagemigration.k8s.io", "StorageVersionMigration");
    // The gate StorageVersionMigrator of the API server may be off.
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

impl From<Wire> for StorageVersionMigration {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self { meta, extra_meta, spec: wire.spec, status: wire.status }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_migration_is_decoded_and_its_status_written_back() {
        let status = json!({
            "conditions": [{"type": "Running", "status": "True", "reason": "MigrationRunning",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "resourceVersion": "1234", "comes": {"later": true},
        });
        let migration: StorageVersionMigration = serde_json::from_value(json!({
            "metadata": {"name": "m", "annotations": {"a": "b"}},
            "spec": {"resource": {"group": "apps", "resource": "deployments"}}, "status": status,
        }))
        .unwrap();
        let GroupResource { group, resource } = &migration.spec.resource;
        assert_eq!((group.as_str(), resource.as_str()), ("apps", "deployments"));
        assert_eq!(serde_json::to_value(&migration.status).unwrap(), status);
        let bare =
            json!({"metadata": {"name": "m"}, "spec": {"resource": {"resource": "secrets"}}, "status": null});
        let bare: StorageVersionMigration = serde_json::from_value(bare).unwrap();
        assert_eq!((bare.spec.resource.group.as_str(), bare.status.resource_version.is_empty()), ("", true));
        assert_eq!(serde_json::to_value(&bare.status).unwrap(), json!({}));
    }
}
