//! EndpointSlices, with all fields: they are updated with a PUT.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::impl_full_meta;
use crate::meta::{ExtraMeta, null_is_default, null_is_empty};
use crate::protobuf::FullMessage;
use crate::{
    Addresses, Annotations, ArcStr, Interned, InternedStr, Kind, Labels, ObjectMeta, Resource,
    ResourceVersion, Uid, WireMeta,
};

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct EndpointSlice {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: InternedStr,
    /// Its endpoints.
    pub endpoints: Box<[Endpoint]>,
    /// Its ports.
    pub ports: Box<[EndpointPort]>,
}

/// An endpoint. A cluster has one per pod and Service, so its size matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// `addresses`.
    pub addresses: Addresses,
    /// `conditions`.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: EndpointConditions,
    /// `hostname`; empty if unset.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub hostname: ArcStr,
    /// `targetRef`, usually a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// `deprecatedTopology`; the controller never writes it.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub deprecated_topology: Labels,
    /// `nodeName`; empty if unset.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub node_name: InternedStr,
    /// `zone`; empty if unset.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub zone: InternedStr,
    /// `hints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Interned<EndpointHints>>,
}

/// The conditions of an endpoint; absent differs from false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// Ready for traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Able to serve, even while terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// The object an endpoint refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WireTargetRef", into = "WireTargetRef")]
pub struct TargetRef {
    /// Its kind.
    pub kind: InternedStr,
    /// Its namespace.
    pub namespace: InternedStr,
    /// Its name.
    pub name: ArcStr,
    /// Its UID.
    pub uid: Uid,
    /// The fields that the controller never writes.
    pub rest: Option<Box<TargetRefRest>>,
}

/// The rarely set fields of a [`TargetRef`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetRefRest {
    /// `apiVersion`.
    pub api_version: InternedStr,
    /// `resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `fieldPath`.
    pub field_path: InternedStr,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTargetRef {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: InternedStr,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: InternedStr,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: ArcStr,
    #[serde(skip_serializing_if = "Uid::is_empty")]
    uid: Uid,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: InternedStr,
    #[serde(skip_serializing_if = "ResourceVersion::is_empty")]
    resource_version: ResourceVersion,
    #[serde(skip_serializing_if = "str::is_empty")]
    field_path: InternedStr,
}

impl From<WireTargetRef> for TargetRef {
    fn from(wire: WireTargetRef) -> Self {
        let WireTargetRef { kind, namespace, name, uid, api_version, resource_version, field_path } = wire;
        let rest = TargetRefRest { api_version, resource_version, field_path };
        let rest = (rest != TargetRefRest::default()).then(|| Box::new(rest));
        Self { kind, namespace, name, uid, rest }
    }
}

impl From<TargetRef> for WireTargetRef {
    fn from(target: TargetRef) -> Self {
        let TargetRef { kind, namespace, name, uid, rest } = target;
        let TargetRefRest { api_version, resource_version, field_path } =
            rest.map_or_else(Default::default, |rest| *rest);
        Self { kind, namespace, name, uid, api_version, resource_version, field_path }
    }
}

/// Topology hints of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// The zones whose clients should use it.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[HintTarget]>::is_empty")]
    pub for_zones: Box<[HintTarget]>,
    /// The nodes whose clients should use it.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[HintTarget]>::is_empty")]
    pub for_nodes: Box<[HintTarget]>,
}

/// A zone or a node in a hint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct HintTarget {
    /// Its name.
    pub name: InternedStr,
}

/// A port of every endpoint in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<InternedStr>,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<InternedStr>,
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<InternedStr>,
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&EndpointSlice::RESOURCE, ""));

impl_full_meta!(EndpointSlice, WHOLE);

impl Kind for EndpointSlice {
    const RESOURCE: Resource = Resource::built_in("discovery.k8s.io", "EndpointSlice");
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default)]
    address_type: InternedStr,
    #[serde(default, deserialize_with = "null_is_empty")]
    endpoints: Box<[Endpoint]>,
    #[serde(default, deserialize_with = "null_is_empty")]
    ports: Box<[EndpointPort]>,
}

impl From<Wire> for EndpointSlice {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self {
            meta,
            extra_meta,
            address_type: wire.address_type,
            endpoints: wire.endpoints,
            ports: wire.ports,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FullMeta as _;

    #[test]
    fn an_endpoint_is_small() {
        assert!(size_of::<Endpoint>() <= 176, "{} bytes", size_of::<Endpoint>());
    }

    #[test]
    fn a_slice_is_written_back_unchanged() {
        let endpoints = serde_json::json!([
            {"addresses": ["10.0.0.7"], "conditions": {"ready": true, "serving": true, "terminating": false},
             "nodeName": "n1", "zone": "a", "hints": {"forZones": [{"name": "a"}]},
             "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "5f0e0a5e-7a52-4d6c-9a6b-0123456789ab"}},
            {"addresses": ["10.0.0.9"], "conditions": {},
             "targetRef": {"kind": "Node", "name": "n", "apiVersion": "v1", "resourceVersion": "7", "fieldPath": "f"}},
            {"addresses": ["10.0.0.8"], "conditions": {}, "hostname": "h",
             "deprecatedTopology": {"kubernetes.io/hostname": "n2"}},
        ]);
        let ports = serde_json::json!([{"name": "", "protocol": "TCP", "port": 80}]);
        let metadata = serde_json::json!({
            "name": "web-x", "namespace": "a", "generateName": "web-", "uid": "u", "resourceVersion": "5",
            "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"],
            "labels": {"kubernetes.io/service-name": "web"}, "annotations": {"note": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s",
                                 "controller": true, "blockOwnerDeletion": true}],
        });
        let slice: EndpointSlice = serde_json::from_value(serde_json::json!({
            "metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        }))
        .unwrap();
        assert_eq!(serde_json::to_value(&slice.endpoints).unwrap(), endpoints);
        assert_eq!(serde_json::to_value(&slice.ports).unwrap(), ports);
        assert_eq!(slice.full_meta_json(), metadata);
        let bare: EndpointSlice =
            serde_json::from_str(r#"{"metadata":{"name":"e"},"endpoints":null,"ports":null}"#).unwrap();
        assert!(bare.endpoints.is_empty() && bare.ports.is_empty());
    }
}
