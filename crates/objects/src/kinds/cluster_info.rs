//! The ConfigMap that joining nodes read before they trust the API server, with all fields: the signer updates it with a
//! PUT.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::full_meta::impl_full_meta;
use crate::meta::{ExtraMeta, null_is_default};
use crate::{Annotations, Kind, ObjectMeta, Projection, Resource, WireMeta};

/// The ConfigMap `kube-public/cluster-info`. Namespace and field selector exclude all others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ClusterInfo {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// `data`.
    pub data: BTreeMap<String, String>,
    /// `binaryData`, base64 as in JSON.
    pub binary_data: BTreeMap<String, String>,
    /// `immutable`.
    pub immutable: Option<bool>,
}

impl_full_meta!(ClusterInfo);

impl Kind for ClusterInfo {
    const RESOURCE: Resource = Resource::built_in("", "ConfigMap");
    const PROJECTION: Projection =
        Projection::selected("metadata.name=cluster-info").in_namespace("kube-public");
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    data: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_default")]
    binary_data: BTreeMap<String, String>,
    #[serde(default)]
    immutable: Option<bool>,
}

impl From<Wire> for ClusterInfo {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self { meta, extra_meta, data: wire.data, binary_data: wire.binary_data, immutable: wire.immutable }
    }
}
