//! ResourceClaimTemplates, whose spec is copied into ResourceClaims as it is.

use serde::Deserialize;

use super::resource_claim::WireClaimSpec;
use crate::meta::null_is_default;
use crate::{Annotations, Kind, Labels, Object, ObjectMeta, Projection, RawJson, Resource, WireMeta};

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ResourceClaimTemplate {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The labels of the claims.
    pub claim_labels: Labels,
    /// The annotations of the claims.
    pub claim_annotations: Annotations,
    /// The spec of the claims, byte for byte: fields that this program does not know are copied too.
    pub claim_spec: RawJson,
    /// Whether some request asks for admin access.
    pub requests_admin_access: bool,
    /// Whether some request is a prioritized list.
    pub has_prioritized_list: bool,
}

impl Object for ResourceClaimTemplate {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ResourceClaimTemplate {
    const RESOURCE: Resource = Resource::built_in("resource.k8s.io", "ResourceClaimTemplate");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    #[serde(deserialize_with = "null_is_default")]
    metadata: WireClaimMeta,
    spec: RawJson,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaimMeta {
    labels: Labels,
    annotations: Annotations,
}

impl From<Wire> for ResourceClaimTemplate {
    fn from(wire: Wire) -> Self {
        let WireSpec { metadata, spec } = wire.spec;
        // A spec of another shape has no requests that this program knows.
        let requests: WireClaimSpec = serde_json::from_str(spec.as_str()).unwrap_or_default();
        Self {
            meta: wire.metadata.into(),
            claim_labels: metadata.labels,
            claim_annotations: metadata.annotations,
            requests_admin_access: requests.requests_admin_access(),
            has_prioritized_list: requests.has_prioritized_list(),
            claim_spec: spec,
        }
    }
}
