//! Leases, among them those by which kubelets show that they live.

use serde::Deserialize;

use crate::meta::null_is_default;
use crate::protobuf::{self, Message};
use crate::{ArcStr, Kind, MicroTime, Object, ObjectMeta, Resource, WireMeta};

/// The namespace of the leases that kubelets renew.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// A lease. Those of nodes are in [`NODE_LEASE_NAMESPACE`] and named as their nodes. Others are cached too: they are few,
/// and whoever hears of all objects then need not have thousands of heartbeats sent a second time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Lease {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Who holds it.
    pub holder_identity: ArcStr,
    /// For how long it holds without being renewed.
    pub lease_duration_seconds: Option<i32>,
    /// When it was renewed last.
    pub renew_time: Option<MicroTime>,
}

impl Object for Lease {
    const MESSAGE: Option<&'static Message> = Some(&protobuf::LEASE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Lease {
    const RESOURCE: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
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
    fn a_lease_is_read() {
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
