//! Nodes: health, taints, labels, capacity and attached volumes.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::FullMessage;
use crate::{
    ArcStr, Condition, Conditions, InternedStr, Kind, Object, ObjectMeta, Quantity, Resource, Taint, WireMeta,
};

/// A node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Node {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Box<[Taint]>,
    /// The conditions, with all fields and in order.
    pub conditions: Box<[Condition]>,
    /// Allocatable CPU in millicores; zero if unset.
    pub allocatable_cpu_milli: i64,
    /// Allocatable pods; zero if unset.
    pub allocatable_pods: i64,
    /// `spec.podCIDR`.
    pub pod_cidr: ArcStr,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Box<[ArcStr]>,
    /// Annotation `node.alpha.kubernetes.io/ttl` in seconds; `None` if it is missing or no number.
    pub ttl_seconds: Option<i32>,
    /// Whether it has the annotation `volumes.kubernetes.io/controller-managed-attach-detach`, with any value.
    pub has_managed_attachments: bool,
    /// `status.volumesAttached`.
    pub volumes_attached: Box<[AttachedVolume]>,
    /// `status.volumesInUse`.
    pub volumes_in_use: Box<[ArcStr]>,
}

/// An entry of `status.volumesAttached`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachedVolume {
    /// The unique volume name.
    pub name: ArcStr,
    /// `devicePath`.
    #[serde(deserialize_with = "null_is_default")]
    pub device_path: ArcStr,
}

impl Node {
    /// Whether its `Ready` condition is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.is_condition_true("Ready")
    }

    /// Whether it has a taint with this key and effect.
    #[must_use]
    pub fn has_taint(&self, key: &str, effect: &str) -> bool {
        self.taints.iter().any(|taint| taint.is(key, effect))
    }
}

/// All fields, in of which those below are neither read nor written back.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| {
    FullMessage::of(
        &Node::RESOURCE,
        "
        spec { configSource externalID podPreemptionPolicy providerID }
        status {
            addresses capacity config daemonEndpoints declaredFeatures features images nodeInfo phase runtimeHandlers
        }
        ",
    )
});

impl Object for Node {
    const WHOLE: Option<&'static LazyLock<FullMessage>> = Some(&WHOLE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Node {
    const RESOURCE: Resource = Resource::built_in("", "Node");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Option<ReadAnnotations>>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReadAnnotations {
    #[serde(rename = "node.alpha.kubernetes.io/ttl")]
    ttl: Option<InternedStr>,
    #[serde(rename = "volumes.kubernetes.io/controller-managed-attach-detach")]
    managed_attach_detach: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "null_is_default")]
    unschedulable: bool,
    #[serde(deserialize_with = "null_is_empty")]
    taints: Box<[Taint]>,
    #[serde(rename = "podCIDR", deserialize_with = "null_is_default")]
    pod_cidr: ArcStr,
    #[serde(rename = "podCIDRs", deserialize_with = "null_is_empty")]
    pod_cidrs: Box<[ArcStr]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[Condition]>,
    #[serde(deserialize_with = "null_is_default")]
    allocatable: Allocatable,
    #[serde(rename = "volumesAttached", deserialize_with = "null_is_empty")]
    volumes_attached: Box<[AttachedVolume]>,
    #[serde(rename = "volumesInUse", deserialize_with = "null_is_empty")]
    volumes_in_use: Box<[ArcStr]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocatable {
    cpu: Quantity,
    pods: Quantity,
}

impl From<Wire> for Node {
    fn from(mut wire: Wire) -> Self {
        let annotations = wire.metadata.annotations.take().unwrap_or_default();
        Self {
            meta: wire.metadata.into(),
            unschedulable: wire.spec.unschedulable,
            taints: wire.spec.taints,
            conditions: wire.status.conditions,
            allocatable_cpu_milli: wire.status.allocatable.cpu.milli(),
            allocatable_pods: wire.status.allocatable.pods.whole(),
            pod_cidr: wire.spec.pod_cidr,
            pod_cidrs: wire.spec.pod_cidrs,
            ttl_seconds: annotations.ttl.and_then(|text| text.parse().ok()),
            has_managed_attachments: annotations.managed_attach_detach.is_some(),
            volumes_attached: wire.status.volumes_attached,
            volumes_in_use: wire.status.volumes_in_use,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_decoded() {
        let node: Node = serde_json::from_str(
            r#"{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"a"},
                            "annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":""}},
                "spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64"],"unschedulable":true,
                        "taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"}]},
                "status":{"allocatable":{"cpu":"3920m","memory":"1Gi","pods":"110"},
                          "volumesAttached":[{"name":"v1","devicePath":"d"},{"name":"v2"}],"volumesInUse":["v1"],
                          "conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}"#,
        )
        .unwrap();
        assert!(node.is_ready() && node.unschedulable);
        assert!(node.has_taint("node.kubernetes.io/unschedulable", "NoSchedule"));
        assert!(node.taints[0].time_added.is_some() && node.conditions[0].last_heartbeat_time.is_some());
        assert_eq!((node.allocatable_cpu_milli, node.allocatable_pods), (3920, 110));
        assert_eq!(node.pod_cidr.as_str(), "10.0.0.0/24");
        assert_eq!(
            node.pod_cidrs.iter().map(ArcStr::as_str).collect::<Vec<_>>(),
            ["10.0.0.0/24", "fd00::/64"]
        );
        assert!(node.has_managed_attachments);
        assert_eq!((&*node.volumes_attached[0].name, &*node.volumes_attached[0].device_path), ("v1", "d"));
        assert_eq!((node.volumes_attached.len(), &*node.volumes_in_use[0]), (2, "v1"));
        let bare: Node =
            serde_json::from_str(r#"{"metadata":{"name":"n"},"spec":{"taints":null},"status":null}"#)
                .unwrap();
        assert!(
            !bare.is_ready()
                && !bare.has_managed_attachments
                && bare.volumes_attached.is_empty()
                && bare.taints.is_empty()
                && bare.pod_cidrs.is_empty()
                && bare.allocatable_cpu_milli == 0
        );
    }
}
