//! ServiceCIDRs: their ranges and conditions.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::{ArcStr, Condition, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A ServiceCIDR. A cluster has few of them, so they are decoded from JSON only.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ServiceCidr {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.cidrs`.
    pub cidrs: Box<[ArcStr]>,
    /// `status.conditions`.
    pub conditions: Box<[Condition]>,
}

impl Object for ServiceCidr {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ServiceCidr {
    const RESOURCE: Resource = Resource::built_in("networking.k8s.io", "ServiceCIDR");
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
    cidrs: Box<[ArcStr]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[Condition]>,
}

impl From<Wire> for ServiceCidr {
    fn from(wire: Wire) -> Self {
        Self { meta: wire.metadata.into(), cidrs: wire.spec.cidrs, conditions: wire.status.conditions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_cidr_is_decoded() {
        let range: ServiceCidr = serde_json::from_str(
            r#"{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/16","fd00::/108"]},
                "status":{"conditions":[{"type":"Ready","status":"True","reason":"","message":"m"}]}}"#,
        )
        .unwrap();
        assert_eq!(
            range.cidrs.iter().map(ArcStr::as_str).collect::<Vec<_>>(),
            ["10.96.0.0/16", "fd00::/108"]
        );
        assert!(range.conditions[0].is_true() && range.conditions[0].reason.is_empty());
        let bare: ServiceCidr =
            serde_json::from_str(r#"{"metadata":{"name":"a"},"spec":{"cidrs":null},"status":null}"#).unwrap();
        assert!(bare.cidrs.is_empty() && bare.conditions.is_empty());
    }
}
