//! Fields that few pods have, behind one pointer.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{ContainerStatus, PodParts, ReportedResources};
use crate::annotations::{
    JOB_COMPLETION_INDEX, JOB_INDEX_FAILURE_COUNT, JOB_INDEX_IGNORED_FAILURE_COUNT, POD_DELETION_COST,
};
use crate::{ArcStr, ClaimStatus, Condition, InternedStr, Pod, Time};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RareFields {
    pub(super) hostname: ArcStr,
    pub(super) affinity_node: InternedStr,
    pub(super) claims: Box<[ClaimVolume]>,
    pub(super) reason: InternedStr,
    pub(super) conditions: Box<[Condition]>,
    pub(super) containers: Box<[ContainerStatus]>,
    pub(super) annotations: ReadAnnotations,
    /// `None` is the smallest number, which leaves room for `resource_claims`.
    pub(super) deletion_grace_seconds: GraceSeconds,
    pub(super) resource_claims: Option<Box<PodClaimStatuses>>,
    /// `None` if all containers have what the spec requests.
    #[expect(
        clippy::box_collection,
        reason = "one word in every pod with rare fields; a boxed slice has two"
    )]
    pub(super) reported_resources: Option<Box<Vec<ReportedResources>>>,
    pub(super) terminating_with_running_containers: bool,
}

impl RareFields {
    /// Drops the fields of all other parts; `None` if nothing is left.
    pub(super) fn keeping(mut self, parts: PodParts) -> Option<Box<Self>> {
        if !parts.contains(PodParts::ENDPOINTS) {
            self.hostname = ArcStr::default();
        }
        if !parts.contains(PodParts::VOLUME_CLAIMS) {
            self.claims = Box::default();
        }
        if !parts.contains(PodParts::RESOURCE_CLAIMS) {
            self.resource_claims = None;
        }
        if !parts.contains(PodParts::RESOURCES) {
            self.reported_resources = None;
        }
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// `deletionGracePeriodSeconds` in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GraceSeconds(i64);

impl GraceSeconds {
    const UNSET: Self = Self(i64::MIN);

    pub(super) fn new(seconds: Option<i64>) -> Self {
        seconds.map_or(Self::UNSET, Self)
    }
}

impl Default for GraceSeconds {
    fn default() -> Self {
        Self::UNSET
    }
}

/// The part of the status that names the ResourceClaims of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodClaimStatuses {
    pub(super) statuses: Box<[ClaimStatus]>,
    pub(super) extended_resource_claim: Option<ArcStr>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimVolume {
    pub(super) volume: InternedStr,
    pub(super) claim: ArcStr,
}

/// The annotations that a controller reads; the parser skips all others.
const READ: [&str; 4] =
    [POD_DELETION_COST, JOB_COMPLETION_INDEX, JOB_INDEX_FAILURE_COUNT, JOB_INDEX_IGNORED_FAILURE_COUNT];

/// The annotations of [`READ`] that a pod has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReadAnnotations(Box<[(&'static str, InternedStr)]>);

impl<'de> Deserialize<'de> for ReadAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pick;
        impl<'de> Visitor<'de> for Pick {
            type Value = ReadAnnotations;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ReadAnnotations, M::Error> {
                let mut picked = Vec::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match READ.iter().find(|read| **read == key) {
                        Some(read) => picked.push((*read, map.next_value()?)),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(ReadAnnotations(picked.into()))
            }
        }
        deserializer.deserialize_map(Pick)
    }
}

impl Pod {
    /// `spec.hostname`; part [`PodParts::ENDPOINTS`].
    #[must_use]
    pub fn hostname(&self) -> &str {
        self.spec.parts().require(PodParts::ENDPOINTS);
        self.rare.as_deref().map_or("", |rare| &rare.hostname)
    }

    /// The node it is bound to or, until then, the one node that its required node affinity names.
    #[must_use]
    pub fn target_node(&self) -> Option<&InternedStr> {
        let affinity_node = self.rare.as_deref().map(|rare| &rare.affinity_node);
        Some(&self.node_name)
            .filter(|name| !name.is_empty())
            .or(affinity_node.filter(|name| !name.is_empty()))
    }

    /// The name of the PVC that a volume mounts; part [`PodParts::VOLUME_CLAIMS`].
    #[must_use]
    pub fn pvc_of_volume(&self, volume: &str) -> Option<&ArcStr> {
        self.spec.parts().require(PodParts::VOLUME_CLAIMS);
        self.rare.as_deref()?.claims.iter().find(|claim| claim.volume == volume).map(|claim| &claim.claim)
    }

    /// The volumes that mount PVCs, with the names of the PVCs; part [`PodParts::VOLUME_CLAIMS`].
    pub fn persistent_volume_claims(&self) -> impl Iterator<Item = (&InternedStr, &ArcStr)> {
        self.spec.parts().require(PodParts::VOLUME_CLAIMS);
        let claims = self.rare.as_deref().map_or(&[][..], |rare| &rare.claims);
        claims.iter().map(|claim| (&claim.volume, &claim.claim))
    }

    /// `status.reason`, such as `Evicted`.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.rare.as_deref().map_or("", |rare| &rare.reason)
    }

    /// All conditions that are stored with all fields; see [`Pod::full_condition`].
    #[must_use]
    pub fn full_conditions(&self) -> &[Condition] {
        self.rare.as_deref().map_or(&[], |rare| &rare.conditions)
    }

    /// The statuses of its containers, then of its init containers. Empty if no container has restarted or terminated,
    /// apart from init containers that exited with 0.
    #[must_use]
    pub fn container_statuses(&self) -> &[ContainerStatus] {
        self.rare.as_deref().map_or(&[], |rare| &rare.containers)
    }

    /// `deletionGracePeriodSeconds`.
    #[must_use]
    pub fn deletion_grace_seconds(&self) -> Option<i64> {
        let GraceSeconds(seconds) = self.rare.as_deref()?.deletion_grace_seconds;
        (seconds != i64::MIN).then_some(seconds)
    }

    /// `status.resourceClaimStatuses`; part [`PodParts::RESOURCE_CLAIMS`].
    #[must_use]
    pub fn resource_claim_statuses(&self) -> &[ClaimStatus] {
        self.claim_statuses().map_or(&[], |claims| &claims.statuses)
    }

    /// `status.extendedResourceClaimStatus.resourceClaimName`; `None` without `extendedResourceClaimStatus`. Part
    /// [`PodParts::RESOURCE_CLAIMS`].
    #[must_use]
    pub fn extended_resource_claim(&self) -> Option<&ArcStr> {
        self.claim_statuses()?.extended_resource_claim.as_ref()
    }

    fn claim_statuses(&self) -> Option<&PodClaimStatuses> {
        self.spec.parts().require(PodParts::RESOURCE_CLAIMS);
        self.rare.as_deref()?.resource_claims.as_deref()
    }

    /// Whether it is terminating and one of its containers runs.
    #[must_use]
    pub(super) fn terminating_with_running_containers(&self) -> bool {
        self.rare.as_deref().is_some_and(|rare| rare.terminating_with_running_containers)
    }

    /// When its deletion was requested: the deletionTimestamp is the end of the grace period.
    #[must_use]
    pub fn deletion_requested_at(&self) -> Option<Time> {
        let grace = self.deletion_grace_seconds().unwrap_or(0);
        Some(self.meta.deletion_timestamp?.plus_seconds(-grace))
    }

    /// Annotation `controller.kubernetes.io/pod-deletion-cost`, as written.
    #[must_use]
    pub fn deletion_cost(&self) -> Option<&str> {
        self.annotation(POD_DELETION_COST)
    }

    /// Annotation `batch.kubernetes.io/job-completion-index`, as written.
    #[must_use]
    pub fn completion_index(&self) -> Option<&str> {
        self.annotation(JOB_COMPLETION_INDEX)
    }

    /// Annotation `batch.kubernetes.io/job-index-failure-count`, as written.
    #[must_use]
    pub fn index_failure_count(&self) -> Option<&str> {
        self.annotation(JOB_INDEX_FAILURE_COUNT)
    }

    /// Annotation `batch.kubernetes.io/job-index-ignored-failure-count`, as written.
    #[must_use]
    pub fn index_ignored_failure_count(&self) -> Option<&str> {
        self.annotation(JOB_INDEX_IGNORED_FAILURE_COUNT)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        let ReadAnnotations(pairs) = &self.rare.as_deref()?.annotations;
        pairs.iter().find(|(candidate, _)| *candidate == key).map(|(_, value)| value.as_str())
    }
}
