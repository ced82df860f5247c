//! Nodes: health, taints, labels and capacity.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::{Condition, Conditions, Kind, Object, ObjectMeta, Quantity, Resource, Taint, WireMeta, protobuf};

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

impl Object for Node {
    const WHOLE: Option<&'static protobuf::FullMessage> = Some(&protobuf::NODE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Node {
    const RESOURCE: Resource = Resource::cluster("", "v1", "nodes", "Node");
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
    #[serde(deserialize_with = "null_is_default")]
    unschedulable: bool,
    #[serde(deserialize_with = "null_is_empty")]
    taints: Box<[Taint]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[Condition]>,
    #[serde(deserialize_with = "null_is_default")]
    allocatable: Allocatable,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocatable {
    cpu: Quantity,
    pods: Quantity,
}

impl From<Wire> for Node {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            unschedulable: wire.spec.unschedulable,
            taints: wire.spec.taints,
            conditions: wire.status.conditions,
            allocatable_cpu_milli: wire.status.allocatable.cpu.milli(),
            allocatable_pods: wire.status.allocatable.pods.whole(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_decoded() {
        let node: Node = serde_json::from_str(
            r#"{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"a"}},
                "spec":{"podCIDR":"10.0.0.0/24","unschedulable":true,
                        "taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"}]},
                "status":{"allocatable":{"cpu":"3920m","memory":"1Gi","pods":"110"},
                          "conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}"#,
        )
        .unwrap();
        assert!(node.is_ready() && node.unschedulable);
        assert!(node.has_taint("node.kubernetes.io/unschedulable", "NoSchedule"));
        assert!(node.taints[0].time_added.is_some() && node.conditions[0].last_heartbeat_time.is_some());
        assert_eq!((node.allocatable_cpu_milli, node.allocatable_pods), (3920, 110));
        let bare: Node =
            serde_json::from_str(r#"{"metadata":{"name":"n"},"spec":{"taints":null},"status":null}"#)
                .unwrap();
        assert!(!bare.is_ready() && bare.taints.is_empty() && bare.allocatable_cpu_milli == 0);
    }
}
