//! The figures that the controller tells.

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
static WANTED_SLICES: Metric = Metric::gauge(
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

/// All of them.
pub(super) const ALL: [&Metric; 9] =
    [&ADDED, &REMOVED, &ENDPOINTS, &SLICES, &WANTED_SLICES, &CHANGES, &CHANGED, &SYNCS, &BY_DISTRIBUTION];

/// A number of things.
pub(super) fn number(metric: &'static Metric, labels: &[&str], number: usize) -> Measurement {
    // A number of endpoints or slices of a cluster is far below where floating point becomes coarse.
    metric.measurement(labels, number as f64)
}

/// How much there is now.
pub(super) fn stock(recall: &EndpointSliceMemory) -> Vec<Measurement> {
    let totals = recall.totals();
    let of_all =
        [(&ENDPOINTS, totals.endpoints), (&SLICES, totals.slices), (&WANTED_SLICES, totals.desired_slices)];
    let of_all = of_all.into_iter().map(|(metric, count)| number(metric, &[], count));
    let by_wish =
        recall.distributions().map(|(wish, count)| number(&BY_DISTRIBUTION, &[wish.as_str()], count));
    of_all.chain(by_wish).collect()
}
