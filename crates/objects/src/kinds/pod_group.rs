//! PodGroups: the ResourceClaims that their pods share, the Workload that they belong to and the size of a gang.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::Message;
use crate::{ClaimEntry, ClaimStatus, InternedStr, Kind, Object, ObjectMeta, Projection, Resource, WireMeta};

/// A PodGroup. API servers serve it only with a feature gate and `--runtime-config`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct PodGroup {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.workloadRef.workloadName`; empty if there is no reference.
    pub workload_name: InternedStr,
    /// `spec.schedulingPolicy.gang.minCount`; `None` if the policy is another one.
    pub gang_min_count: Option<i32>,
    /// `spec.resourceClaims`.
    pub resource_claims: Box<[ClaimEntry]>,
    /// `status.resourceClaimStatuses`.
    pub resource_claim_statuses: Box<[ClaimStatus]>,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &PodGroup::RESOURCE,
        "
        spec {
            resourceClaims { name resourceClaimName resourceClaimTemplateName }
            schedulingPolicy { gang { minCount } }
            workloadRef { workloadName }
        }
        status { resourceClaimStatuses { name resourceClaimName } }
        ",
    )
});

impl Object for PodGroup {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for PodGroup {
    const RESOURCE: Resource = Resource::built_in("scheduling.k8s.io", "PodGroup");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(deserialize_with = "null_is_default")]
    workload_ref: WireWorkloadRef,
    #[serde(deserialize_with = "null_is_default")]
    scheduling_policy: WirePolicy,
    #[serde(deserialize_with = "null_is_empty")]
    resource_claims: Box<[ClaimEntry]>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireWorkloadRef {
    workload_name: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePolicy {
    gang: Option<WireGang>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireGang {
    #[serde(deserialize_with = "null_is_default")]
    min_count: i32,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    #[serde(deserialize_with = "null_is_empty")]
    resource_claim_statuses: Box<[ClaimStatus]>,
}

impl From<Wire> for PodGroup {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            workload_name: wire.spec.workload_ref.workload_name,
            gang_min_count: wire.spec.scheduling_policy.gang.map(|gang| gang.min_count),
            resource_claims: wire.spec.resource_claims,
            resource_claim_statuses: wire.status.resource_claim_statuses,
        }
    }
}
