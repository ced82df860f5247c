//! ConfigMaps that publish the cluster CA, with all fields: the publisher updates them with a PUT, and its role does not
//! grant `get`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::full_meta::impl_full_meta;
use crate::meta::{ExtraMeta, null_is_default};
use crate::{Annotations, InternedStr, Kind, ObjectMeta, Projection, Resource, WireMeta};

/// The name of the ConfigMaps that publish the cluster CA.
pub const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// A ConfigMap named [`ROOT_CA_CONFIG_MAP`]. The field selector excludes all others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct RootCaConfigMap {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// `data`, interned because it is the same in all namespaces.
    pub data: BTreeMap<InternedStr, InternedStr>,
    /// `binaryData`, base64 as in JSON.
    pub binary_data: BTreeMap<InternedStr, InternedStr>,
    /// `immutable`.
    pub immutable: Option<bool>,
}

impl_full_meta!(RootCaConfigMap);

impl Kind for RootCaConfigMap {
    const RESOURCE: Resource = Resource::built_in("", "ConfigMap");
    const PROJECTION: Projection = Projection::selected("metadata.name=kube-root-ca.crt");
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    data: BTreeMap<InternedStr, InternedStr>,
    #[serde(default, deserialize_with = "null_is_default")]
    binary_data: BTreeMap<InternedStr, InternedStr>,
    #[serde(default)]
    immutable: Option<bool>,
}

impl From<Wire> for RootCaConfigMap {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self { meta, extra_meta, data: wire.data, binary_data: wire.binary_data, immutable: wire.immutable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FullMeta as _;

    #[test]
    fn a_config_map_is_decoded() {
        let map: RootCaConfigMap = serde_json::from_str(
            r#"{"metadata":{"name":"kube-root-ca.crt","namespace":"a","annotations":{"kubernetes.io/description":"d"}},
                "data":{"ca.crt":"CA"},"binaryData":null,"immutable":false}"#,
        )
        .unwrap();
        assert_eq!(map.data.get("ca.crt").map(InternedStr::as_str), Some("CA"));
        assert_eq!(map.immutable, Some(false));
        assert_eq!(map.annotations().value("kubernetes.io/description").map(|text| text.as_str()), Some("d"));
    }
}
