//! The figures that are told about zones and passes.

use keleustes_plan::{Buckets, Metric};

pub(super) static ZONE_HEALTH: Metric = Metric::gauge(
    "node_collector_zone_health",
    "Share of nodes of a zone that are ready, in percent.",
    &["zone"],
);
pub(super) static ZONE_SIZE: Metric =
    Metric::gauge("node_collector_zone_size", "Number of nodes of a zone.", &["zone"]);
pub(super) static UNHEALTHY_NODES: Metric = Metric::gauge(
    "node_collector_unhealthy_nodes_in_zone",
    "Number of nodes of a zone that are not ready.",
    &["zone"],
);
pub(super) static EVICTIONS: Metric = Metric::counter(
    "node_collector_evictions_total",
    "Number of nodes that were tainted as lost since this process began.",
    &["zone"],
)
.with_stability("STABLE");
pub(super) static UPDATE_NODE_HEALTH_DURATION: Metric = Metric::histogram(
    "node_collector_update_node_health_duration_seconds",
    "Seconds until one node was judged.",
    &[],
    Buckets::Exponential { first: 0.001, factor: 4.0, count: 8 },
);
pub(super) static UPDATE_ALL_NODES_HEALTH_DURATION: Metric = Metric::histogram(
    "node_collector_update_all_nodes_health_duration_seconds",
    "Seconds until all nodes were judged.",
    &[],
    Buckets::Exponential { first: 0.01, factor: 4.0, count: 8 },
);
