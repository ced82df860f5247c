//! Leases: those of leader election and the heartbeats of kubelets.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::protobuf::Message;
use crate::{ArcStr, Kind, MicroTime, Object, ObjectMeta, Resource, WireMeta};

/// The namespace of the node Leases.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// A Lease. A node's Lease is in [`NODE_LEASE_NAMESPACE`] and has the name of the node. The cache holds the few others
/// too, so that the garbage collector's monitor shares it instead of receiving every heartbeat a second time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Lease {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `holderIdentity`.
    pub holder_identity: ArcStr,
    /// `leaseDurationSeconds`.
    pub lease_duration_seconds: Option<i32>,
    /// `renewTime`.
    pub renew_time: Option<MicroTime>,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> =
    LazyLock::new(|| Message::of(&Lease::RESOURCE, "spec { holderIdentity leaseDurationSeconds renewTime }"));

impl Object for Lease {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Lease {
    const RESOURCE: Resource = Resource::built_in("coordination.k8s.io", "Lease");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: ArcStr,
    lease_duration_seconds: Option<i32>,
    renew_time: Option<MicroTime>,
}

impl From<Wire> for Lease {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            holder_identity: wire.spec.holder_identity,
            lease_duration_seconds: wire.spec.lease_duration_seconds,
            renew_time: wire.spec.renew_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_decoded() {
        let lease: Lease = serde_json::from_str(
            r#"{"metadata":{"name":"n1","namespace":"kube-node-lease"},
                "spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.500000Z"}}"#,
        )
        .unwrap();
        assert_eq!((lease.holder_identity.as_str(), lease.lease_duration_seconds), ("n1", Some(40)));
        assert_eq!(lease.renew_time.map(|time| time.unix_microseconds() % 1_000_000), Some(500_000));
        let bare: Lease = serde_json::from_str(r#"{"metadata":{"name":"n"}}"#).unwrap();
        assert_eq!(bare.renew_time, None);
    }
}
