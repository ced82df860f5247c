//! Marks nodes without heartbeat as `Unknown`, taints nodes that are not ready or unreachable, and marks
//! their pods as not ready, at a rate that depends on how many nodes of a zone are affected.
//!
//! Three loops share the cluster state. The health monitor checks all nodes periodically and adds `NoExecute`
//! taints at the eviction rate of each zone; the taint eviction controller deletes the pods. The second loop
//! keeps `NoSchedule` taints and the deprecated beta labels in sync with a node's conditions and labels. The
//! third marks pods as not ready.
//!
//! Parity: pkg/controller/nodelifecycle.

mod cluster_state;
mod conditions;
mod health;
mod mark_unknown;
mod metrics;
mod monitor;
mod pods;
mod taint_queue;
mod taints;
mod zones;

use std::time::Duration;

use keleustes_objects::{Kind as _, Node, ResourceVersion, Uid};
use keleustes_plan::{Controller, Grant, InvolvedObject, Memory};

pub use health::GracePeriods;
pub use zones::EvictionRates;

use cluster_state::ClusterState;

/// Options of the node lifecycle controller; see the flags of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLifecycleOptions {
    /// Delay from the end of one health check of all nodes to the start of the next
    /// (`--node-monitor-period`).
    pub monitor_period: Duration,
    /// How long a node may go without heartbeat before it is marked `Unknown`.
    pub grace_periods: GracePeriods,
    /// How fast nodes are tainted.
    pub eviction_rates: EvictionRates,
    /// Whether the Lease of a node with an expired grace period is read live before the node is marked: the
    /// feature gate `NodeControllerLeaseCircuitBreaker`.
    pub lease_circuit_breaker: bool,
}

impl Default for NodeLifecycleOptions {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            grace_periods: GracePeriods {
                monitor: Duration::from_secs(50),
                startup: Duration::from_secs(60),
            },
            eviction_rates: EvictionRates {
                node_eviction_rate: 0.1,
                secondary_node_eviction_rate: 0.01,
                large_cluster_size_threshold: 50,
                unhealthy_zone_threshold: 0.55,
            },
            lease_circuit_breaker: true,
        }
    }
}

/// Builds the controller.
#[must_use]
pub fn controller(options: NodeLifecycleOptions) -> Controller {
    let cluster_state: Memory<ClusterState> = Memory::default();
    Controller::new("node-lifecycle-controller")
        .service_account("node-controller")
        .event_component("node-controller")
        .may_write(&[
            Grant { group: "", resource: "nodes", verbs: &["get", "patch"] },
            Grant { group: "", resource: "nodes/status", verbs: &["patch"] },
            Grant { group: "", resource: "pods/status", verbs: &["patch"] },
            Grant { group: "coordination.k8s.io", resource: "leases", verbs: &["get"] },
        ])
        .metrics([
            &metrics::ZONE_HEALTH,
            &metrics::ZONE_SIZE,
            &metrics::UNHEALTHY_NODES,
            &metrics::EVICTIONS,
            &metrics::UPDATE_NODE_HEALTH_DURATION,
            &metrics::UPDATE_ALL_NODES_HEALTH_DURATION,
        ])
        // The pods' loop starts before the first health check, so that it can distinguish existing pods from
        // new ones.
        .with_loop(pods::the_loop(cluster_state.clone()))
        .with_loop(conditions::the_loop())
        .with_loop(monitor::the_loop(options, cluster_state))
}

/// A node as the involved object of an event.
fn node_reference(name: &str, uid: &Uid) -> InvolvedObject {
    InvolvedObject::named(&Node::RESOURCE, "", name, uid.clone(), ResourceVersion::default())
}

#[cfg(test)]
mod tests;
