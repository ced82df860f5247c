//! Endpoints, with all fields: they are updated with a PUT.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::impl_full_meta;
use crate::meta::{ExtraMeta, null_is_empty};
use crate::protobuf::FullMessage;
use crate::{Address, Annotations, ArcStr, InternedStr, Kind, ObjectMeta, Resource, TargetRef, WireMeta};

/// The Endpoints of a Service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Endpoints {
    /// The metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// The addresses, grouped by ports.
    pub subsets: Box<[EndpointSubset]>,
}

/// Addresses with the same ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSubset {
    /// The addresses that are ready.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[EndpointAddress]>::is_empty")]
    pub addresses: Box<[EndpointAddress]>,
    /// The addresses that are not ready.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[EndpointAddress]>::is_empty")]
    pub not_ready_addresses: Box<[EndpointAddress]>,
    /// The ports of each address.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[SubsetPort]>::is_empty")]
    pub ports: Box<[SubsetPort]>,
}

/// An address in Endpoints. A cluster has up to 1,000 per Service, so its size matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    /// `ip`, in the spelling of the object.
    pub ip: Address,
    /// `hostname`; empty if unset.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub hostname: ArcStr,
    /// `nodeName`; empty if unset.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub node_name: InternedStr,
    /// `targetRef`, usually a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

impl Default for EndpointAddress {
    fn default() -> Self {
        Self {
            ip: Address::from(""),
            hostname: ArcStr::default(),
            node_name: InternedStr::default(),
            target_ref: None,
        }
    }
}

/// A port in Endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubsetPort {
    /// `name`; empty if unset.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: InternedStr,
    /// The number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: InternedStr,
    /// The application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<InternedStr>,
}

/// The API's defaults.
impl Default for SubsetPort {
    fn default() -> Self {
        Self { name: InternedStr::default(), port: 0, protocol: "TCP".into(), app_protocol: None }
    }
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&Endpoints::RESOURCE, ""));

impl_full_meta!(Endpoints, WHOLE);

impl Kind for Endpoints {
    const RESOURCE: Resource = Resource::built_in("", "Endpoints");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_empty")]
    subsets: Box<[EndpointSubset]>,
}

impl From<Wire> for Endpoints {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self { meta, extra_meta, subsets: wire.subsets }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::FullMeta as _;

    #[test]
    fn endpoints_are_written_back_unchanged_and_small() {
        let subsets = json!([{
            "addresses": [
                {"ip": "10.0.0.7", "nodeName": "n1", "hostname": "h",
                 "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "u", "resourceVersion": "5"}},
                {"ip": "010.0.0.8"},
            ],
            "notReadyAddresses": [{"ip": "fd00::1"}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "h2c"},
                      {"port": 53, "protocol": "UDP"}],
        }]);
        let metadata = json!({
            "name": "web", "namespace": "a", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"},
            "annotations": {"note": "x"}, "finalizers": ["f/g"],
        });
        let endpoints: Endpoints =
            serde_json::from_value(json!({"metadata": metadata, "subsets": subsets})).unwrap();
        assert_eq!(serde_json::to_value(&endpoints.subsets).unwrap(), subsets);
        assert_eq!(endpoints.full_meta_json(), metadata);
        for bare in [json!(null), json!([]), json!([{"addresses": null, "ports": [{"port": 1}]}])] {
            let bare = json!({"metadata": {"name": "e"}, "subsets": bare});
            assert!(serde_json::from_value::<Endpoints>(bare).unwrap().subsets.len() < 2);
        }
        assert!(size_of::<EndpointAddress>() <= 144, "{} bytes", size_of::<EndpointAddress>());
    }
}
