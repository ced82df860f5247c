//! ResourceClaims: which devices are allocated, for whom, and what generated the claim.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::annotations::{EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME};
use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::Message;
use crate::{
    Annotations, ArcStr, InternedStr, Kind, Object, ObjectMeta, Projection, Resource, Toleration, Uid,
    WireMeta,
};

/// A ResourceClaim. API servers before v1.34 do not serve version v1, and a flag may switch it off.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ResourceClaim {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Annotation `resource.kubernetes.io/pod-claim-name`: the entry of the pod or PodGroup that it was generated for.
    pub pod_claim_name: Option<InternedStr>,
    /// Annotation `resource.kubernetes.io/extended-resource-claim` is `true`: the scheduler created it.
    pub is_extended_resource_claim: bool,
    /// Whether some request asks for admin access.
    pub requests_admin_access: bool,
    /// Per device class, the largest number of devices that can be allocated for its requests; sorted.
    pub requested_devices: Box<[(InternedStr, i64)]>,
    /// The devices of `status.allocation`; `None` if the claim is not allocated.
    pub allocated_devices: Option<Box<[AllocatedDevice]>>,
    /// `status.reservedFor`.
    pub reserved_for: Box<[ConsumerReference]>,
}

/// An entry of `status.allocation.devices.results`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// The DRA driver.
    pub driver: InternedStr,
    /// The pool of the driver.
    pub pool: InternedStr,
    /// The device in the pool.
    pub device: InternedStr,
    /// The taints that its request tolerates.
    #[serde(deserialize_with = "null_is_empty")]
    pub tolerations: Box<[Toleration]>,
}

/// An entry of `status.reservedFor`: a consumer in the namespace of the claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerReference {
    /// The API group; empty for the core group.
    pub api_group: InternedStr,
    /// The plural name of the resource.
    pub resource: InternedStr,
    /// The name of the consumer.
    pub name: ArcStr,
    /// The UID of the consumer.
    pub uid: Uid,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &ResourceClaim::RESOURCE,
        "
        spec {
            devices {
                requests {
                    exactly { deviceClassName allocationMode count adminAccess }
                    firstAvailable { deviceClassName allocationMode count }
                }
            }
        }
        status {
            allocation { devices { results { driver pool device tolerations } } }
            reservedFor { apiGroup resource name uid }
        }
        ",
    )
});

impl Object for ResourceClaim {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ResourceClaim {
    const RESOURCE: Resource = Resource::built_in("resource.k8s.io", "ResourceClaim");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireClaimSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

/// The part of a claim's spec that is read. A ResourceClaimTemplate has the same one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireClaimSpec {
    #[serde(deserialize_with = "null_is_default")]
    devices: WireDevices,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDevices {
    #[serde(deserialize_with = "null_is_empty")]
    requests: Box<[WireRequest]>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireRequest {
    exactly: Option<WireExactly>,
    #[serde(deserialize_with = "null_is_empty")]
    first_available: Box<[WireExactly]>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireExactly {
    #[serde(deserialize_with = "null_is_default")]
    admin_access: bool,
    device_class_name: InternedStr,
    allocation_mode: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    count: i64,
}

impl WireExactly {
    /// The largest number of devices: of an unknown allocation mode, none.
    fn devices_max(&self) -> i64 {
        match self.allocation_mode.as_str() {
            "ExactCount" => self.count,
            "All" => ALLOCATION_RESULTS_MAX,
            _ => 0,
        }
    }
}

/// The API limits the allocated devices of a claim to this number.
const ALLOCATION_RESULTS_MAX: i64 = 32;

impl WireClaimSpec {
    /// Whether some request asks for admin access. Subrequests of a prioritized list cannot.
    pub(super) fn requests_admin_access(&self) -> bool {
        self.devices
            .requests
            .iter()
            .any(|request| request.exactly.as_ref().is_some_and(|exact| exact.admin_access))
    }

    /// Per device class, the largest number of devices that can be allocated. Of a prioritized list, the largest
    /// subrequest of each class counts.
    fn requested_devices(&self) -> Box<[(InternedStr, i64)]> {
        let mut totals = BTreeMap::<InternedStr, i64>::new();
        for request in &self.devices.requests {
            let mut largest = BTreeMap::<&InternedStr, i64>::new();
            let exact = request.exactly.iter().filter(|_| request.first_available.is_empty());
            for one in request.first_available.iter().chain(exact) {
                let devices = largest.entry(&one.device_class_name).or_default();
                *devices = one.devices_max().max(*devices);
            }
            for (class, devices) in largest {
                let total = totals.entry(class.clone()).or_default();
                *total = total.saturating_add(devices);
            }
        }
        totals.into_iter().collect()
    }

    /// Whether some request is a prioritized list.
    pub(super) fn has_prioritized_list(&self) -> bool {
        self.devices.requests.iter().any(|request| !request.first_available.is_empty())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    allocation: Option<WireAllocation>,
    #[serde(deserialize_with = "null_is_empty")]
    reserved_for: Box<[ConsumerReference]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireAllocation {
    #[serde(deserialize_with = "null_is_default")]
    devices: WireResults,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireResults {
    #[serde(deserialize_with = "null_is_empty")]
    results: Box<[AllocatedDevice]>,
}

impl From<Wire> for ResourceClaim {
    fn from(mut wire: Wire) -> Self {
        let annotations = std::mem::take(&mut wire.metadata.annotations);
        Self {
            meta: wire.metadata.into(),
            pod_claim_name: annotations.value(POD_CLAIM_NAME).map(|name| InternedStr::from(&**name)),
            is_extended_resource_claim: annotations
                .value(EXTENDED_RESOURCE_CLAIM)
                .is_some_and(|value| *value == "true"),
            requests_admin_access: wire.spec.requests_admin_access(),
            requested_devices: wire.spec.requested_devices(),
            allocated_devices: wire.status.allocation.map(|allocation| allocation.devices.results),
            reserved_for: wire.status.reserved_for,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(json: Value) -> ResourceClaim {
        serde_json::from_value(json).expect("a ResourceClaim")
    }

    #[test]
    fn allocation_reservations_and_annotations_are_decoded() {
        let claim = claim(json!({
            "metadata": {"name": "c", "namespace": "a", "annotations": {
                "resource.kubernetes.io/pod-claim-name": "gpu", "resource.kubernetes.io/extended-resource-claim": "true"}},
            "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "s"}]},
                {"name": "q", "exactly": {"deviceClassName": "d", "adminAccess": true}}]}},
            "status": {
                "allocation": {"devices": {"results": [{"request": "q", "driver": "d", "pool": "p", "device": "x",
                    "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}]}]}},
                "reservedFor": [{"resource": "pods", "name": "web", "uid": "u1"}]},
        }));
        assert_eq!(claim.pod_claim_name.as_deref(), Some("gpu"));
        assert!(claim.is_extended_resource_claim && claim.requests_admin_access);
        let [device] = claim.allocated_devices.as_deref().unwrap() else { panic!("one device") };
        assert_eq!((device.pool.as_str(), device.tolerations[0].toleration_seconds), ("p", Some(3)));
        assert_eq!((&*claim.reserved_for[0].name, claim.reserved_for[0].api_group.as_str()), ("web", ""));
    }

    #[test]
    fn allocation_without_devices_is_an_allocation_and_no_status_is_none() {
        let empty =
            json!({"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": null}}}});
        assert_eq!(claim(empty).allocated_devices.as_deref(), Some(&[][..]));
        let none = claim(json!({"metadata": {"name": "c"}, "spec": null, "status": null}));
        assert_eq!((none.allocated_devices, none.requests_admin_access), (None, false));
    }
}
