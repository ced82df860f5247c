//! What few pods have, behind one pointer.

use serde::Deserialize;

use super::ContainerStatus;
use crate::{Condition, Pod, Text, Time, Word};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct More {
    pub(super) hostname: Text,
    pub(super) wanted_node: Word,
    pub(super) claims: Box<[Claim]>,
    pub(super) reason: Word,
    pub(super) conditions: Box<[Condition]>,
    pub(super) containers: Box<[ContainerStatus]>,
    pub(super) annotations: ReadAnnotations,
    pub(super) deletion_grace_seconds: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    pub(super) volume: Word,
    pub(super) claim: Text,
}

/// The annotations that some controller reads; all others are skipped by the parser. To keep one
/// more, add a field here and a method below.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct ReadAnnotations {
    #[serde(rename = "controller.kubernetes.io/pod-deletion-cost")]
    deletion_cost: Option<Word>,
    #[serde(rename = "batch.kubernetes.io/job-completion-index")]
    completion_index: Option<Word>,
    #[serde(rename = "batch.kubernetes.io/job-index-failure-count")]
    index_failure_count: Option<Word>,
    #[serde(rename = "batch.kubernetes.io/job-index-ignored-failure-count")]
    index_ignored_failure_count: Option<Word>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<Word>,
}

impl Pod {
    /// `spec.hostname`.
    #[must_use]
    pub fn hostname(&self) -> &str {
        self.more.as_deref().map_or("", |more| &more.hostname)
    }

    /// The node it is bound to or, while it is not, the one node that its required affinity names.
    #[must_use]
    pub fn target_node(&self) -> Option<&Word> {
        let wanted = self.more.as_deref().map(|more| &more.wanted_node);
        Some(&self.node_name).filter(|name| !name.is_empty()).or(wanted.filter(|name| !name.is_empty()))
    }

    /// The claim that one of its volumes mounts.
    #[must_use]
    pub fn claim_of_volume(&self, volume: &str) -> Option<&Text> {
        self.more.as_deref()?.claims.iter().find(|claim| claim.volume == volume).map(|claim| &claim.claim)
    }

    /// Volumes that mount claims, with the names of the claims.
    pub fn claims(&self) -> impl Iterator<Item = (&Word, &Text)> {
        let claims = self.more.as_deref().map_or(&[][..], |more| &more.claims);
        claims.iter().map(|claim| (&claim.volume, &claim.claim))
    }

    /// `status.reason`, such as `Evicted`.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.more.as_deref().map_or("", |more| &more.reason)
    }

    /// All conditions that are kept whole; see [`Pod::unusual_condition`].
    #[must_use]
    pub fn unusual_conditions(&self) -> &[Condition] {
        self.more.as_deref().map_or(&[], |more| &more.conditions)
    }

    /// What became of its containers, then of its init containers. Empty if no container was ever
    /// restarted and none has ended, but for init containers that did their work.
    #[must_use]
    pub fn container_statuses(&self) -> &[ContainerStatus] {
        self.more.as_deref().map_or(&[], |more| &more.containers)
    }

    /// How many seconds its deletion leaves it.
    #[must_use]
    pub fn deletion_grace_seconds(&self) -> Option<i64> {
        self.more.as_deref()?.deletion_grace_seconds
    }

    /// When its deletion was asked for: the server writes the time at which the grace ends.
    #[must_use]
    pub fn deletion_asked_at(&self) -> Option<Time> {
        let grace = self.deletion_grace_seconds().unwrap_or(0);
        Some(self.meta.deleted_at?.plus_seconds(-grace))
    }

    /// Annotation `controller.kubernetes.io/pod-deletion-cost`, as written.
    #[must_use]
    pub fn deletion_cost(&self) -> Option<&str> {
        self.read_annotations()?.deletion_cost.as_deref()
    }

    /// Annotation `batch.kubernetes.io/job-completion-index`, as written.
    #[must_use]
    pub fn completion_index(&self) -> Option<&str> {
        self.read_annotations()?.completion_index.as_deref()
    }

    /// Annotation `batch.kubernetes.io/job-index-failure-count`, as written.
    #[must_use]
    pub fn index_failure_count(&self) -> Option<&str> {
        self.read_annotations()?.index_failure_count.as_deref()
    }

    /// Annotation `batch.kubernetes.io/job-index-ignored-failure-count`, as written.
    #[must_use]
    pub fn index_ignored_failure_count(&self) -> Option<&str> {
        self.read_annotations()?.index_ignored_failure_count.as_deref()
    }

    /// Whether a kubelet made it from a file of its own.
    #[must_use]
    pub fn is_mirror(&self) -> bool {
        self.read_annotations().is_some_and(|annotations| annotations.mirror.is_some())
    }

    fn read_annotations(&self) -> Option<&ReadAnnotations> {
        Some(&self.more.as_deref()?.annotations)
    }
}
