//! Metrics: creations of claims, and how many claims there are.

use std::collections::BTreeMap;

use keleustes_objects::{Key, ResourceClaim};
use keleustes_plan::{Change, Effects, Measurement, Metric};

pub(super) static CREATED: Metric = Metric::counter(
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "Number of ResourceClaims creation requests, categorized by creation status, admin access, and owner API kind.",
    &["status", "admin_access", "owner_api_group", "owner_api_kind"],
);

pub(super) static CLAIMS: Metric = Metric::gauge(
    "dynamic_resource_allocation_resource_claims",
    "Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be \
     'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty \
     (manually created by a user).",
    &["allocated", "admin_access", "source"],
);

/// The labels of a claim in [`CLAIMS`].
type Labels = (bool, bool, &'static str);

/// How many claims have which labels.
///
/// Lost on failover: the new leader counts the claims of its cache.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimCounts {
    labels: BTreeMap<Key, Labels>,
    counts: BTreeMap<Labels, u32>,
}

impl ClaimCounts {
    /// Counts a claim again after a change and observes the counts that differ.
    pub(super) fn observe(&mut self, change: &Change<ResourceClaim>, queue: &mut Effects) {
        let key = &change.latest().meta.key;
        let after = change.new().map(|claim| labels_of(claim));
        let before = match after {
            Some(labels) => self.labels.insert(key.clone(), labels),
            None => self.labels.remove(key),
        };
        if before == after {
            return;
        }
        if let Some(labels) = before {
            let count = self.counts.entry(labels).or_default();
            *count = count.saturating_sub(1);
            queue.measure(measurement(labels, *count));
        }
        if let Some(labels) = after {
            let count = self.counts.entry(labels).or_default();
            *count += 1;
            queue.measure(measurement(labels, *count));
        }
    }
}

fn labels_of(claim: &ResourceClaim) -> Labels {
    let source = if claim.is_extended_resource_claim {
        "extended_resource"
    } else if claim.pod_claim_name.as_ref().is_some_and(|name| !name.is_empty()) {
        "resource_claim_template"
    } else {
        ""
    };
    (claim.allocated_devices.is_some(), claim.requests_admin_access, source)
}

fn measurement((allocated, admin_access, source): Labels, count: u32) -> Measurement {
    CLAIMS.measurement(&[text(allocated), text(admin_access), source], count.into())
}

/// A boolean as a label value.
pub(super) fn text(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}
