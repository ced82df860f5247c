//! Pods, stored in few bytes because a cluster has many.
//!
//! A pod is stored in three places. The fields that come from its template are in a [`PodSpec`], which all pods of the template
//! share. The fields that every pod has are in [`Pod`]. The fields that few pods have (restarts, PVCs, some annotations,
//! uncommon conditions) are behind one pointer and read by methods. The tests assert the resulting sizes.
//!
//! Fields that few controllers read belong to [`PodParts`], which are decoded and stored only if an enabled controller reads
//! them.

mod conditions;
mod containers;
mod inline_volumes;
mod parts;
mod rare;
mod reported_resources;
mod resources;
mod secrets;
mod selinux;
mod spec;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::{self, Message};
use crate::{
    Address, Addresses, ArcStr, ClaimStatus, DecodeError, Encoded, Interned, InternedStr, Kind, Object,
    ObjectMeta, Resource, Time, WireMeta,
};

pub use conditions::{Availability, ConditionStatus};
pub use containers::{ContainerStatus, Terminated};
pub use inline_volumes::InlineVolume;
pub use parts::PodParts;
pub use reported_resources::{QosClass, ReportedResources};
pub use resources::ResourceList;
pub use selinux::{SelinuxSpec, SelinuxVolume, SelinuxVolumeSource};
pub use spec::{Container, ContainerPort, PodSpec, ResourceRequirements};

use conditions::CommonConditions;
use rare::{ClaimVolume, GraceSeconds, PodClaimStatuses, RareFields, ReadAnnotations};

/// A pod.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Pod {
    /// Its metadata. The annotations that are kept have methods.
    pub meta: ObjectMeta,
    /// The fields that come from its template, interned.
    pub spec: Interned<PodSpec>,
    /// `spec.nodeName`; empty until the pod is bound.
    pub node_name: InternedStr,
    /// `status.phase`.
    pub phase: PodPhase,
    qos_class: QosClass,
    pod_ips: Addresses,
    start_time: Option<Time>,
    conditions: CommonConditions,
    rare: Option<Box<RareFields>>,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Not set yet.
    #[default]
    Unset,
    /// `Pending`.
    Pending,
    /// `Running`.
    Running,
    /// `Succeeded`.
    Succeeded,
    /// `Failed`.
    Failed,
    /// `Unknown`.
    Unknown,
    /// A phase that this program does not know.
    Other,
}

/// The fields of all parts, as they are read from protobuf.
static MESSAGE: LazyLock<Message> =
    LazyLock::new(|| Message::of_all(&Pod::RESOURCE, &PodParts::ALL.fields()));

impl Object for Pod {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn read_parts(object: Encoded<'_>, parts: PodParts) -> Result<Self, DecodeError> {
        let wire: Wire = match object {
            Encoded::Json(text) => serde_json::from_str(text).map_err(DecodeError::Json)?,
            Encoded::Protobuf(bytes) => {
                protobuf::from_slice(bytes, parts.message()).map_err(DecodeError::Protobuf)?
            }
        };
        Ok(Self::new(wire, parts))
    }

    fn with_parts(&self, parts: PodParts) -> Option<Self> {
        let spec = PodSpec::clone(&self.spec).keeping(parts);
        let rare = self.rare.as_deref().cloned().and_then(|rare| rare.keeping(parts));
        Some(Self { spec: Interned::new(spec), rare, ..self.clone() }.keeping_status(parts))
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Pod {
    const RESOURCE: Resource = Resource::built_in("", "Pod");
}

impl Pod {
    /// `status.qosClass`; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn qos_class(&self) -> QosClass {
        self.spec.parts().require(PodParts::RESOURCES);
        self.qos_class
    }

    /// `status.startTime`; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn start_time(&self) -> Option<Time> {
        self.spec.parts().require(PodParts::RESOURCES);
        self.start_time
    }

    /// Its addresses: `status.podIPs`, or `status.podIP` if there are none; part [`PodParts::ENDPOINTS`].
    #[must_use]
    pub fn pod_ips(&self) -> &Addresses {
        self.spec.parts().require(PodParts::ENDPOINTS);
        &self.pod_ips
    }

    /// Whether its phase is `Succeeded` or `Failed`.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.phase.is_terminal()
    }

    /// Whether it has a deletionTimestamp.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// Whether it is neither terminal nor terminating.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_terminating()
    }
}

impl PodPhase {
    /// Whether it is `Succeeded` or `Failed`.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The API's spelling; empty for `Unset` and `Other`.
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
    qos_class: InternedStr,
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
    #[serde(deserialize_with = "null_is_empty")]
    resource_claim_statuses: Box<[ClaimStatus]>,
    extended_resource_claim_status: Option<WireExtendedResourceClaim>,
    #[serde(deserialize_with = "null_is_empty")]
    ephemeral_container_statuses: Box<[containers::WireContainerStatus]>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireExtendedResourceClaim {
    resource_claim_name: ArcStr,
}

impl WireStatus {
    /// The names of its ResourceClaims, which few pods have.
    fn take_claims(&mut self) -> Option<Box<PodClaimStatuses>> {
        let statuses = std::mem::take(&mut self.resource_claim_statuses);
        let extended = self.extended_resource_claim_status.take().map(|status| status.resource_claim_name);
        let claims = PodClaimStatuses { statuses, extended_resource_claim: extended };
        (claims != PodClaimStatuses::default()).then(|| Box::new(claims))
    }

    fn has_running_container(&self) -> bool {
        let statuses = self.container_statuses.iter().chain(&self.init_container_statuses);
        statuses.chain(&self.ephemeral_container_statuses).any(containers::WireContainerStatus::is_running)
    }
}

#[derive(Deserialize)]
struct WireIp {
    #[serde(default)]
    ip: Option<Address>,
}

impl From<Wire> for Pod {
    fn from(wire: Wire) -> Self {
        Self::new(wire, PodParts::ALL)
    }
}

impl Pod {
    fn new(mut wire: Wire, parts: PodParts) -> Self {
        let (own, spec) = wire.spec.split();
        let mut status = wire.status;
        let resource_claims = status.take_claims();
        let has_running_container = status.has_running_container();
        let (conditions, full_conditions) = CommonConditions::split(status.conditions);
        let is_resize_pending =
            full_conditions.iter().any(|condition| condition.r#type == "PodResizePending");
        let statuses = status.container_statuses.iter_mut().chain(&mut status.init_container_statuses);
        let reported = statuses.filter_map(containers::WireContainerStatus::take_resources).collect();
        let reported_resources = reported_resources::to_keep(reported, &spec, is_resize_pending);
        let listed = status.pod_ips.into_iter().filter_map(|ip| ip.ip);
        let mut ips: Addresses = listed.collect();
        if ips.is_empty() && !status.pod_ip.is_empty() {
            ips = [Address::from(&*status.pod_ip)].into_iter().collect();
        }
        let claims = own.claims.into_iter().map(|(volume, claim)| ClaimVolume { volume, claim }).collect();
        let deletion_grace_seconds = wire.metadata.deletion_grace_period_seconds;
        let annotations = wire.metadata.annotations.take().unwrap_or_default();
        let meta = ObjectMeta::from(wire.metadata);
        let rare = RareFields {
            // The hostname of a StatefulSet's pod is its name; both share one allocation.
            hostname: if own.hostname == meta.key.name { meta.key.name.clone() } else { own.hostname },
            // Only an unbound pod needs the node that its affinity names.
            affinity_node: own.affinity_node.filter(|_| own.node_name.is_empty()).unwrap_or_default(),
            claims,
            reason: status.reason,
            conditions: full_conditions,
            containers: containers::informative(
                status.container_statuses,
                status.init_container_statuses,
                &spec,
            ),
            annotations,
            deletion_grace_seconds: GraceSeconds::new(deletion_grace_seconds),
            resource_claims,
            reported_resources,
            // Only the volumes of a terminating pod depend on it, so other pods need no field.
            terminating_with_running_containers: meta.deletion_timestamp.is_some() && has_running_container,
        };
        Self {
            meta,
            spec: Interned::new(spec.keeping(parts)),
            node_name: own.node_name,
            phase: PodPhase::from(&*status.phase),
            qos_class: QosClass::from(&*status.qos_class),
            pod_ips: ips,
            start_time: status.start_time,
            conditions,
            rare: rare.keeping(parts),
        }
        .keeping_status(parts)
    }

    /// Drops the fields of its status that belong to other parts, apart from the rare ones.
    fn keeping_status(mut self, parts: PodParts) -> Self {
        if !parts.contains(PodParts::RESOURCES) {
            (self.qos_class, self.start_time) = (QosClass::default(), None);
        }
        if !parts.contains(PodParts::ENDPOINTS) {
            self.pod_ips = Addresses::default();
        }
        self
    }
}
