//! The metrics of the binder.

use keleustes_plan::{Buckets, Metric};

/// The buckets of both histograms.
const BUCKETS: Buckets =
    Buckets::Explicit(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0]);

pub(super) static ALL: [&Metric; 10] = [
    &TOTAL_VOLUMES,
    &BOUND_VOLUMES,
    &UNBOUND_VOLUMES,
    &BOUND_CLAIMS,
    &UNBOUND_CLAIMS,
    &OPERATION_ERRORS,
    &OPERATION_SECONDS,
    &STORAGE_OPERATION_SECONDS,
    &RETROACTIVE_CLASSES,
    &RETROACTIVE_CLASS_ERRORS,
];

pub(super) static TOTAL_VOLUMES: Metric = Metric::gauge(
    "pv_collector_total_pv_count",
    "Gauge measuring total number of persistent volumes",
    &["plugin_name", "volume_mode"],
);

pub(super) static BOUND_VOLUMES: Metric = Metric::gauge(
    "pv_collector_bound_pv_count",
    "Gauge measuring number of persistent volume currently bound",
    &["storage_class"],
);

pub(super) static UNBOUND_VOLUMES: Metric = Metric::gauge(
    "pv_collector_unbound_pv_count",
    "Gauge measuring number of persistent volume currently unbound",
    &["storage_class"],
);

pub(super) static BOUND_CLAIMS: Metric = Metric::gauge(
    "pv_collector_bound_pvc_count",
    "Gauge measuring number of persistent volume claim currently bound",
    &["namespace", "storage_class", "volume_attributes_class"],
);

pub(super) static UNBOUND_CLAIMS: Metric = Metric::gauge(
    "pv_collector_unbound_pvc_count",
    "Gauge measuring number of persistent volume claim currently unbound",
    &["namespace", "storage_class", "volume_attributes_class"],
);

pub(super) static OPERATION_ERRORS: Metric = Metric::counter(
    "volume_operation_errors_total",
    "Total volume operation errors",
    &["plugin_name", "operation_name"],
);

pub(super) static OPERATION_SECONDS: Metric = Metric::histogram(
    "volume_operation_total_seconds",
    "Storage operation end to end duration in seconds",
    &["plugin_name", "operation_name"],
    BUCKETS,
);

/// The attach-detach controller observes it, too.
pub(crate) static STORAGE_OPERATION_SECONDS: Metric = Metric::histogram(
    "storage_operation_duration_seconds",
    "Storage operation duration",
    &["volume_plugin", "operation_name", "status", "migrated"],
    BUCKETS,
);

pub(super) static RETROACTIVE_CLASSES: Metric = Metric::counter(
    "retroactive_storageclass_total",
    "Total number of retroactive StorageClass assignments to persistent volume claim",
    &[],
);

pub(super) static RETROACTIVE_CLASS_ERRORS: Metric = Metric::counter(
    "retroactive_storageclass_errors_total",
    "Total number of failed retroactive StorageClass assignments to persistent volume claim",
    &[],
);
