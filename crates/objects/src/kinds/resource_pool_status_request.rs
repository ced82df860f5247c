//! ResourcePoolStatusRequests: a question about the devices of a driver, answered once.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::{ArcStr, InternedStr, Kind, Object, ObjectMeta, Projection, Resource, RuleCondition, WireMeta};

/// A ResourcePoolStatusRequest. API servers serve it only with a feature gate and `--runtime-config`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ResourcePoolStatusRequest {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.driver`.
    pub driver: InternedStr,
    /// `spec.poolName`; empty asks for all pools of the driver.
    pub pool_name: InternedStr,
    /// `spec.limit`: how many pools the status may list.
    pub limit: Option<i32>,
    /// `spec.defaultPartitionTypeAttribute`.
    pub default_partition_type_attribute: Option<ArcStr>,
    /// `status.conditions`; `None` if there is no status, which means that the request is not answered yet.
    pub conditions: Option<Box<[RuleCondition]>>,
}

impl Object for ResourcePoolStatusRequest {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ResourcePoolStatusRequest {
    const RESOURCE: Resource = Resource::built_in("resource.k8s.io", "ResourcePoolStatusRequest");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
    #[serde(default)]
    status: Option<WireStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    driver: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    pool_name: InternedStr,
    limit: Option<i32>,
    default_partition_type_attribute: Option<ArcStr>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[RuleCondition]>,
}

impl From<Wire> for ResourcePoolStatusRequest {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            driver: wire.spec.driver,
            pool_name: wire.spec.pool_name,
            limit: wire.spec.limit,
            default_partition_type_attribute: wire.spec.default_partition_type_attribute,
            conditions: wire.status.map(|status| status.conditions),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_status_is_a_status() {
        let request = |json| serde_json::from_value::<ResourcePoolStatusRequest>(json).unwrap();
        let pending = request(
            json!({"metadata": {"name": "r"}, "spec": {"driver": "d", "poolName": null, "limit": 3}}),
        );
        assert_eq!((pending.limit, pending.pool_name.as_str(), pending.conditions), (Some(3), "", None));
        let answered = request(json!({"metadata": {"name": "r"}, "spec": {"driver": "d"}, "status": {}}));
        assert_eq!(answered.conditions.as_deref(), Some(&[][..]));
    }
}
