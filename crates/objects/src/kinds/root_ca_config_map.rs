//! The config maps that carry the cluster's CA, whole: they are replaced by `PUT`, and nobody may read
//! them afresh.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::whole::keeps_whole_meta;
use crate::meta::{MetaRest, null_is_default};
use crate::{Annotations, InternedStr, Kind, ObjectMeta, Projection, Resource, WireMeta};

/// The name of the config maps that carry the cluster's CA.
pub const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// A config map named [`ROOT_CA_CONFIG_MAP`]. Others never reach this cache: the server holds them back.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct RootCaConfigMap {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The rest of its metadata.
    pub rest: MetaRest,
    /// Its texts. Words, because all namespaces carry the same.
    pub data: BTreeMap<InternedStr, InternedStr>,
    /// Its bytes, base64 as on the wire.
    pub binary_data: BTreeMap<InternedStr, InternedStr>,
    /// Whether its data must not change, if it says.
    pub immutable: Option<bool>,
}

keeps_whole_meta!(RootCaConfigMap);

impl Kind for RootCaConfigMap {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
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
        let (meta, rest) = wire.metadata.whole();
        Self { meta, rest, data: wire.data, binary_data: wire.binary_data, immutable: wire.immutable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FullMeta as _;

    #[test]
    fn a_config_map_is_read() {
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
