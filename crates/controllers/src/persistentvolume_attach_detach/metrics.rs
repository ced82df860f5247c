//! The metrics of the attach-detach controller.

use keleustes_plan::Metric;

pub(super) use crate::persistentvolume_binder::STORAGE_OPERATION_SECONDS;

pub(super) static ALL: [&Metric; 4] =
    [&VOLUMES_IN_USE, &TOTAL_VOLUMES, &FORCED_DETACHES, &STORAGE_OPERATION_SECONDS];

pub(super) static VOLUMES_IN_USE: Metric = Metric::gauge(
    "storage_count_attachable_volumes_in_use",
    "Measure number of volumes in use",
    &["node", "volume_plugin"],
);

pub(super) static TOTAL_VOLUMES: Metric = Metric::gauge(
    "attachdetach_controller_total_volumes",
    "Number of volumes in A/D Controller",
    &["plugin_name", "state"],
);

pub(super) static FORCED_DETACHES: Metric = Metric::counter(
    "attach_detach_controller_attachdetach_controller_forced_detaches",
    "Number of times the A/D Controller performed a forced detach",
    &["reason"],
);
