//! Pods: what the controllers read of them, in as few bytes as a cluster of many asks for.
//!
//! A pod takes three things apart. What its template says is in a [`PodSpec`] that all pods of the
//! template share. What every pod has of its own is in [`Pod`]. What few pods have (restarts, claims,
//! annotations that some controller reads, unusual conditions) is behind one pointer and asked for by
//! methods. See the tests for the bytes that this comes to.

mod conditions;
mod containers;
mod more;
mod spec;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::{self, Message};
use crate::{
    Address, Addresses, ArcStr, Interned, InternedStr, Kind, Object, ObjectMeta, Resource, Time, WireMeta,
};

pub use conditions::{Availability, ConditionStatus};
pub use containers::{ContainerStatus, Terminated};
pub use spec::{Container, ContainerPort, PodSpec};

use conditions::UsualConditions;
use more::{Claim, More, ReadAnnotations};

/// A pod.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Pod {
    /// Its metadata. The few annotations that are kept have methods of their own.
    pub meta: ObjectMeta,
    /// What its template says; shared with all pods that say the same.
    pub spec: Interned<PodSpec>,
    /// The node it is bound to; empty if it is not.
    pub node_name: InternedStr,
    /// Where it is in its life.
    pub phase: PodPhase,
    /// Its addresses: `status.podIPs`, or `status.podIP` if there are none.
    pub pod_ips: Addresses,
    /// When its node took it over.
    pub start_time: Option<Time>,
    conditions: UsualConditions,
    more: Option<Box<More>>,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Nobody has said yet.
    #[default]
    Unset,
    /// Not all of its containers have started.
    Pending,
    /// Its containers run.
    Running,
    /// All containers ended well; none will start again.
    Succeeded,
    /// All containers ended, one badly; none will start again.
    Failed,
    /// Its node is silent.
    Unknown,
    /// A phase that this program does not know.
    Other,
}

impl Object for Pod {
    const MESSAGE: Option<&'static Message> = Some(&protobuf::POD);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Pod {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");
}

impl Pod {
    /// Whether all its containers have ended for good.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether its deletion was asked for.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// Whether it has neither ended nor is to be deleted.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_terminating()
    }
}

impl PodPhase {
    /// The phase as the API spells it; the empty string for those it cannot spell.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Unset | Self::Other => "",
        }
    }
}

impl From<&str> for PodPhase {
    fn from(text: &str) -> Self {
        let known = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Unknown];
        let other = if text.is_empty() { Self::Unset } else { Self::Other };
        known.into_iter().find(|phase| phase.as_str() == text).unwrap_or(other)
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Option<ReadAnnotations>>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: spec::WireSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    phase: InternedStr,
    reason: InternedStr,
    #[serde(rename = "podIP")]
    pod_ip: ArcStr,
    #[serde(rename = "podIPs", deserialize_with = "null_is_empty")]
    pod_ips: Box<[WireIp]>,
    start_time: Option<Time>,
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[conditions::WireCondition]>,
    #[serde(deserialize_with = "null_is_empty")]
    container_statuses: Box<[containers::WireContainerStatus]>,
    #[serde(deserialize_with = "null_is_empty")]
    init_container_statuses: Box<[containers::WireContainerStatus]>,
}

#[derive(Deserialize)]
struct WireIp {
    #[serde(default)]
    ip: Option<Address>,
}

impl From<Wire> for Pod {
    fn from(mut wire: Wire) -> Self {
        let (own, spec) = wire.spec.split();
        let status = wire.status;
        let (conditions, unusual) = UsualConditions::sort_out(status.conditions);
        let listed = status.pod_ips.into_iter().filter_map(|ip| ip.ip);
        let mut ips: Addresses = listed.collect();
        if ips.is_empty() && !status.pod_ip.is_empty() {
            ips = [Address::from(&*status.pod_ip)].into_iter().collect();
        }
        let claims = own.claims.into_iter().map(|(volume, claim)| Claim { volume, claim }).collect();
        let deletion_grace_seconds = wire.metadata.deletion_grace_period_seconds;
        let annotations = wire.metadata.annotations.take().unwrap_or_default();
        let meta = ObjectMeta::from(wire.metadata);
        let more = More {
            // Pods of stateful sets are called so; one text is enough.
            hostname: if own.hostname == meta.key.name { meta.key.name.clone() } else { own.hostname },
            // Once a pod is bound, nobody asks any more where it was to be bound to.
            wanted_node: own.wanted_node.filter(|_| own.node_name.is_empty()).unwrap_or_default(),
            claims,
            reason: status.reason,
            conditions: unusual,
            containers: containers::noteworthy(
                status.container_statuses,
                status.init_container_statuses,
                &spec,
            ),
            annotations,
            deletion_grace_seconds,
        };
        Self {
            meta,
            spec: Interned::new(spec),
            node_name: own.node_name,
            phase: PodPhase::from(&*status.phase),
            pod_ips: ips,
            start_time: status.start_time,
            conditions,
            more: (more != More::default()).then(|| Box::new(more)),
        }
    }
}
