//! The controller's metrics.

use keleustes_plan::{Buckets, Measurement, Metric};

use crate::service_endpoints::Totals;

const PER_SYNC: Buckets = Buckets::Exponential { first: 2.0, factor: 2.0, count: 15 };

const fn per_sync(name: &'static str, help: &'static str) -> Metric {
    Metric::histogram(name, help, &[], PER_SYNC)
}

pub(super) static ADDED: Metric = per_sync(
    "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
    "Number of endpoints added on each Endpoints sync",
);
pub(super) static UPDATED: Metric = per_sync(
    "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
    "Number of endpoints updated on each Endpoints sync",
);
pub(super) static REMOVED: Metric = per_sync(
    "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
    "Number of endpoints removed on each Endpoints sync",
);
pub(super) static SKIPPED: Metric = per_sync(
    "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
    "Number of addresses skipped on each Endpoints sync due to being invalid or exceeding MaxEndpointsPerSubset",
);
pub(super) static SYNC_DURATION: Metric = Metric::histogram(
    "endpoint_slice_mirroring_controller_endpoints_sync_duration",
    "Duration of syncEndpoints() in seconds",
    &[],
    Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 },
);
static ENDPOINTS: Metric = Metric::gauge(
    "endpoint_slice_mirroring_controller_endpoints_desired",
    "Number of endpoints desired",
    &[],
);
static SLICES: Metric =
    Metric::gauge("endpoint_slice_mirroring_controller_num_endpoint_slices", "Number of EndpointSlices", &[]);
static DESIRED_SLICES: Metric = Metric::gauge(
    "endpoint_slice_mirroring_controller_desired_endpoint_slices",
    "Number of EndpointSlices that would exist with perfect endpoint allocation",
    &[],
);
pub(super) static CHANGES: Metric = Metric::counter(
    "endpoint_slice_mirroring_controller_changes",
    "Number of EndpointSlice changes",
    &["operation"],
);

pub(super) const ALL: [&Metric; 9] =
    [&ADDED, &UPDATED, &REMOVED, &SKIPPED, &SYNC_DURATION, &ENDPOINTS, &SLICES, &DESIRED_SLICES, &CHANGES];

/// A measurement with an integer value.
pub(super) fn number(metric: &'static Metric, number: usize) -> Measurement {
    // The number of endpoints or slices of a cluster is far below the range where `f64` loses integers.
    metric.measurement(&[], number as f64)
}

/// The current totals of all Endpoints.
pub(super) fn totals(totals: Totals) -> [Measurement; 3] {
    [
        number(&ENDPOINTS, totals.endpoints),
        number(&SLICES, totals.slices),
        number(&DESIRED_SLICES, totals.desired_slices),
    ]
}
