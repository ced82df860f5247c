//! The metrics of the controller, under the names of the original.

use keleustes_plan::{Buckets, Measurement, Metric};

use super::cidr_set::CidrSet;

const LABELS: &[&str] = &["clusterCIDR"];

/// Blocks that became used, also because of existing nodes and Service ranges.
pub(super) static ALLOCATIONS: Metric = Metric::counter(
    "node_ipam_controller_cidrset_cidrs_allocations_total",
    "Counter measuring total number of CIDR allocations.",
    LABELS,
);

/// Blocks that became free.
pub(super) static RELEASES: Metric = Metric::counter(
    "node_ipam_controller_cidrset_cidrs_releases_total",
    "Counter measuring total number of CIDR releases.",
    LABELS,
);

/// The number of blocks; the name is misspelled as in the original.
pub(super) static CAPACITY: Metric = Metric::gauge(
    "node_ipam_controller_cirdset_max_cidrs",
    "Maximum number of CIDRs that can be allocated.",
    LABELS,
);

/// The used fraction of the blocks.
pub(super) static USAGE: Metric = Metric::gauge(
    "node_ipam_controller_cidrset_usage_cidrs",
    "Gauge measuring percentage of allocated CIDRs.",
    LABELS,
);

/// The used blocks that one allocation skipped; the help text is the original's.
pub(super) static TRIES: Metric = Metric::histogram(
    "node_ipam_controller_cidrset_allocation_tries_per_request",
    "Number of endpoints added on each Service sync",
    LABELS,
    Buckets::Exponential { first: 1.0, factor: 5.0, count: 5 },
);

/// Which controllers run in this process. The original sets it for this controller only.
pub(super) static RUNNING: Metric = Metric::gauge(
    "running_managed_controllers",
    "Indicates where instances of a controller are currently running",
    &["name", "manager"],
)
.with_stability("BETA");

/// All metrics.
pub(super) static ALL: [&Metric; 6] = [&ALLOCATIONS, &RELEASES, &CAPACITY, &USAGE, &TRIES, &RUNNING];

/// The measurements when the controller starts, before any block is used.
pub(super) fn started(sets: &[CidrSet]) -> Vec<Measurement> {
    let running = RUNNING.measurement(&["nodeipam", "kube-controller-manager"], 1.0);
    let capacity = |set: &CidrSet| CAPACITY.measurement(&[&set.cluster().to_string()], float(set.capacity()));
    sets.iter().map(capacity).chain([running]).collect()
}

/// The measurements after a change of `blocks` blocks; none if nothing changed.
pub(super) fn changed(counter: &'static Metric, set: &CidrSet, blocks: u64) -> Vec<Measurement> {
    if blocks == 0 {
        return Vec::new();
    }
    let label = set.cluster().to_string();
    let usage = float(set.used()) / float(set.capacity());
    vec![counter.measurement(&[&label], float(blocks)), USAGE.measurement(&[&label], usage)]
}

/// The measurements after one block was allocated.
pub(super) fn allocated(set: &CidrSet, skipped: u64) -> Vec<Measurement> {
    let mut measured = changed(&ALLOCATIONS, set, 1);
    measured.push(TRIES.measurement(&[&set.cluster().to_string()], float(skipped)));
    measured
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
fn float(count: u64) -> f64 {
    count as f64
}
