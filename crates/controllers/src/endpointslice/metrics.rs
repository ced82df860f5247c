//! The controller's metrics.

use keleustes_plan::{Buckets, Measurement, Metric};

use super::memory::EndpointSliceMemory;

/// Small changes are by far the most frequent.
const PER_SYNC: Buckets = Buckets::Exponential { first: 2.0, factor: 2.0, count: 15 };

pub(super) static ADDED: Metric = Metric::histogram(
    "endpoint_slice_controller_endpoints_added_per_sync",
    "Number of endpoints added on each Service sync",
    &[],
    PER_SYNC,
)
.with_stability("BETA");
pub(super) static REMOVED: Metric = Metric::histogram(
    "endpoint_slice_controller_endpoints_removed_per_sync",
    "Number of endpoints removed on each Service sync",
    &[],
    PER_SYNC,
)
.with_stability("BETA");
static ENDPOINTS: Metric =
    Metric::gauge("endpoint_slice_controller_endpoints_desired", "Number of endpoints desired", &[])
        .with_stability("BETA");
static SLICES: Metric =
    Metric::gauge("endpoint_slice_controller_num_endpoint_slices", "Number of EndpointSlices", &[])
        .with_stability("BETA");
static DESIRED_SLICES: Metric = Metric::gauge(
    "endpoint_slice_controller_desired_endpoint_slices",
    "Number of EndpointSlices that would exist with perfect endpoint allocation",
    &[],
)
.with_stability("BETA");
pub(super) static CHANGES: Metric =
    Metric::counter("endpoint_slice_controller_changes", "Number of EndpointSlice changes", &["operation"]);
pub(super) static CHANGED: Metric = Metric::histogram(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "Number of EndpointSlices changed on each Service sync",
    &["topology", "traffic_distribution"],
    Buckets::SECONDS,
);
pub(super) static SYNCS: Metric =
    Metric::counter("endpoint_slice_controller_syncs", "Number of EndpointSlice syncs", &["result"]);
static BY_DISTRIBUTION: Metric = Metric::gauge(
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "Number of Services using some specific trafficDistribution",
    &["traffic_distribution"],
)
.with_stability("BETA");

pub(super) const ALL: [&Metric; 9] =
    [&ADDED, &REMOVED, &ENDPOINTS, &SLICES, &DESIRED_SLICES, &CHANGES, &CHANGED, &SYNCS, &BY_DISTRIBUTION];

/// A measurement with an integer value.
pub(super) fn number(metric: &'static Metric, labels: &[&str], number: usize) -> Measurement {
    // The number of endpoints or slices of a cluster is far below the range where `f64` loses integers.
    metric.measurement(labels, number as f64)
}

/// The current totals of all Services.
pub(super) fn totals(memory: &EndpointSliceMemory) -> Vec<Measurement> {
    let totals = memory.totals();
    let of_all =
        [(&ENDPOINTS, totals.endpoints), (&SLICES, totals.slices), (&DESIRED_SLICES, totals.desired_slices)];
    let of_all = of_all.into_iter().map(|(metric, count)| number(metric, &[], count));
    let by_distribution =
        memory.distributions().map(|(name, count)| number(&BY_DISTRIBUTION, &[name.as_str()], count));
    of_all.chain(by_distribution).collect()
}
