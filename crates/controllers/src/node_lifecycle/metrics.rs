//! Metrics about zones and health checks.

use keleustes_plan::{Buckets, Metric};

pub(super) static ZONE_HEALTH: Metric = Metric::gauge(
    "node_collector_zone_health",
    "Gauge measuring percentage of healthy nodes per zone.",
    &["zone"],
);
pub(super) static ZONE_SIZE: Metric = Metric::gauge(
    "node_collector_zone_size",
    "Gauge measuring number of registered Nodes per zones.",
    &["zone"],
);
pub(super) static UNHEALTHY_NODES: Metric = Metric::gauge(
    "node_collector_unhealthy_nodes_in_zone",
    "Gauge measuring number of not Ready Nodes per zones.",
    &["zone"],
);
pub(super) static EVICTIONS: Metric = Metric::counter(
    "node_collector_evictions_total",
    "Number of Node evictions that happened since current instance of NodeController started.",
    &["zone"],
)
.with_stability("STABLE");
pub(super) static UPDATE_NODE_HEALTH_DURATION: Metric = Metric::histogram(
    "node_collector_update_node_health_duration_seconds",
    "Duration in seconds for NodeController to update the health of a single node.",
    &[],
    Buckets::Exponential { first: 0.001, factor: 4.0, count: 8 },
);
pub(super) static UPDATE_ALL_NODES_HEALTH_DURATION: Metric = Metric::histogram(
    "node_collector_update_all_nodes_health_duration_seconds",
    "Duration in seconds for NodeController to update the health of all nodes.",
    &[],
    Buckets::Exponential { first: 0.01, factor: 4.0, count: 8 },
);
