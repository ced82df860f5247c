//! StorageVersions: in which version each API server stores a resource.

use serde::{Deserialize, Serialize};

use super::full_meta::{WireSpecStatus, impl_full_meta};
use crate::meta::null_is_default;
use crate::{ArcStr, Condition, ExtraMeta, Kind, ObjectMeta, Projection, Resource, UnknownFields};

/// A StorageVersion. Its status is written back whole, so it is decoded from JSON only.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct StorageVersion {
    /// The metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// The observed state.
    pub status: StorageVersionStatus,
}

/// The status of a StorageVersion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageVersionStatus {
    /// One record per API server.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub storage_versions: Vec<ServerStorageVersion>,
    /// The version in which all API servers store the resource, if they agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_encoding_version: Option<ArcStr>,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The record of one API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerStorageVersion {
    /// The name of the API server's identity Lease.
    #[serde(rename = "apiServerID", deserialize_with = "null_is_default")]
    pub api_server_id: ArcStr,
    /// The version in which it stores the resource.
    #[serde(deserialize_with = "null_is_default")]
    pub encoding_version: ArcStr,
    /// The versions that it decodes and serves, and all other fields.
    #[serde(flatten)]
    pub rest: UnknownFields,
}

type Wire = WireSpecStatus<serde::de::IgnoredAny, StorageVersionStatus>;

impl_full_meta!(StorageVersion);

impl Kind for StorageVersion {
    const RESOURCE: Resource = Resource::built_in("internal.apiserver.k8s.io", "StorageVersion");
    // An alpha API, which API servers do not serve by default.
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

impl From<Wire> for StorageVersion {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self { meta, extra_meta, status: wire.status }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_storage_version_is_decoded_and_its_status_written_back() {
        let status = json!({
            "storageVersions": [{"apiServerID": "a", "encodingVersion": "apps/v1",
                                 "decodableVersions": ["apps/v1"], "servedVersions": ["apps/v1"]}],
            "commonEncodingVersion": "apps/v1",
            "conditions": [{"type": "AllEncodingVersionsEqual", "status": "True", "observedGeneration": 1}],
            "comes": "later",
        });
        let version: StorageVersion = serde_json::from_value(json!({
            "metadata": {"name": "apps.deployments"}, "spec": {}, "status": status,
        }))
        .unwrap();
        assert_eq!(version.status.storage_versions[0].api_server_id, "a");
        assert_eq!(serde_json::to_value(&version.status).unwrap(), status);
        let bare: StorageVersion = serde_json::from_value(json!({"metadata": {"name": "a.b"}})).unwrap();
        assert_eq!(serde_json::to_value(&bare.status).unwrap(), json!({}));
    }
}
