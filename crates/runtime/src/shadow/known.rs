//! Known differences from the original, as data with reasons. A report lists them separately.
//!
//! Each row is a consequence of a row in `docs/differences/controllers.md`, or of how a shadow works (`docs/shadow.md`).

use super::comparison::{Difference, DifferenceKind};

/// A known difference. Empty fields match everything.
pub struct KnownDifference {
    /// The kind.
    pub kind: DifferenceKind,
    /// The controller.
    pub controller: &'static str,
    /// The resource, as kubectl takes it.
    pub resource: &'static str,
    /// The verb and the subresource.
    pub verb: &'static str,
    /// A part of the reason of the decision.
    pub because: &'static str,
    /// Whether it is known only for a Service that has lost a slice: one was deleted or relabelled, or stays terminating.
    pub after_lost_slice: bool,
    /// Why it is there.
    pub reason: &'static str,
}

/// All known differences.
pub const KNOWN: &[KnownDifference] = &[
    KnownDifference {
        kind: DifferenceKind::OnlyOurs,
        controller: "endpointslice-controller",
        resource: "endpointslices.discovery.k8s.io",
        verb: "create",
        because: "",
        after_lost_slice: true,
        reason: "the original does not recreate a slice that it did not write itself, or that stays terminating, before the Service or a pod changes",
    },
    KnownDifference {
        kind: DifferenceKind::OnlyOurs,
        controller: "endpointslice-mirroring-controller",
        resource: "endpointslices.discovery.k8s.io",
        verb: "create",
        because: "",
        after_lost_slice: true,
        reason: "the original does not recreate a slice that it did not write itself before the Endpoints change",
    },
    KnownDifference {
        kind: DifferenceKind::OnlyOurs,
        controller: "daemonset-controller",
        resource: "pods",
        verb: "delete",
        because: "the target node does not exist",
        after_lost_slice: false,
        reason: MISSING_NODE,
    },
    KnownDifference {
        kind: DifferenceKind::OtherContent,
        controller: "daemonset-controller",
        resource: "pods",
        verb: "delete",
        because: "the target node does not exist",
        after_lost_slice: false,
        reason: MISSING_NODE,
    },
];

const MISSING_NODE: &str = "a deleted node enqueues no DaemonSet: a pod that was to run there stays until the next change of the DaemonSet or its pods, and a shadow reconciles more often than a leader";

/// Why a difference is known, if it is. `has_lost_slice`: its controller has lost a slice of the Service in question.
#[must_use]
pub fn reason(difference: &Difference, has_lost_slice: bool) -> Option<&'static str> {
    let fits = |known: &&KnownDifference| {
        let matches = |listed: &str, actual: &str| listed.is_empty() || listed == actual;
        known.kind == difference.kind
            && matches(known.controller, &difference.controller)
            && matches(known.resource, &difference.resource)
            && matches(known.verb, &difference.verb)
            && difference.reason.contains(known.because)
            && (has_lost_slice || !known.after_lost_slice)
    };
    KNOWN.iter().find(fits).map(|known| known.reason)
}

/// Controllers and resources that are not compared, or in one direction only, with the reason.
pub const LIMITS: &[(&str, &str)] = &[
    ("events", "events are not compared: both managers count and coalesce them differently"),
    ("leases", "the Lease of the leader election is not compared"),
    (
        "pods/status, nodes",
        "the kubelet writes them all the time; a status, taint or label that this process wants and the leader does not write is found, the opposite is not",
    ),
    (
        "certificatesigningrequest-approving-controller",
        "it asks the API server with SubjectAccessReviews, which this process does not send; approvals are not compared",
    ),
    (
        "garbage-collector-controller",
        "the deletion of an object whose owners are gone counts as an agreement, even if another client deleted it",
    ),
    (
        "namespace-controller",
        "a deletion in a terminating namespace counts as an agreement, even if another client deleted the object",
    ),
    (
        "writes that the leader's API server refuses",
        "a quota or webhook refuses the leader, and this process would be refused as well, but it wants the write for as long as the leader tries: it is reported as only ours",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_difference_has_a_reason_and_names_a_resource() {
        for known in KNOWN {
            assert!(known.reason.len() > 20 && !known.resource.is_empty() && !known.controller.is_empty());
        }
    }
}
