//! Metrics of answered requests.

use keleustes_plan::{Buckets, Metric};

pub(super) static PROCESSED: Metric = Metric::counter(
    "resourcepoolstatusrequest_controller_requests_processed_total",
    "Total number of ResourcePoolStatusRequests processed",
    &["driver_name"],
);

pub(super) static ERRORS: Metric = Metric::counter(
    "resourcepoolstatusrequest_controller_request_processing_errors_total",
    "Total number of errors encountered while processing ResourcePoolStatusRequests",
    &["driver_name"],
);

pub(super) static DURATION: Metric = Metric::histogram(
    "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
    "Time taken to process a ResourcePoolStatusRequest",
    &["driver_name"],
    Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 },
);
