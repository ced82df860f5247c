//! Notices nodes that are lost, says so in their status and by taints, and says of their pods that they
//! are not ready; all of it no faster than is wise when many are lost at once.
//!
//! Three loops share what is known of the fleet. The monitor passes over all nodes and taints those that
//! are lost at the pace of their zones; evicting pods is left to the taint eviction controller. Another
//! loop keeps taints against scheduling and old labels in step with what each node says. The third says
//! of pods that they are not ready.
//!
//! Parity: pkg/controller/nodelifecycle.

mod conditions;
mod fleet;
mod health;
mod metrics;
mod monitor;
mod pods;
mod silence;
mod tainter;
mod taints;
mod zones;

use std::time::Duration;

use keleustes_objects::{Kind as _, Node, ResourceVersion, Uid};
use keleustes_plan::{Controller, Grant, InvolvedObject, Memory};

pub use health::GracePeriods;
pub use zones::EvictionRates;

use fleet::Fleet;

/// What the controller needs to be told; see the flags of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLifecycleOptions {
    /// The pause between the end of a pass and the next one.
    pub monitor_period: Duration,
    /// How long a node may be silent.
    pub grace_periods: GracePeriods,
    /// How fast nodes are tainted.
    pub eviction_rates: EvictionRates,
    /// Whether a silent node's lease is read afresh before anything is done: the gate
    /// `NodeControllerLeaseCircuitBreaker`.
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

/// The controller.
#[must_use]
pub fn controller(settings: NodeLifecycleOptions) -> Controller {
    let fleet: Memory<Fleet> = Memory::default();
    Controller::new("node-lifecycle-controller")
        .also_known_as(&["nodelifecycle"])
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
        // The pods' loop begins before the first pass, so that it can tell pods that were there from new ones.
        .with_loop(pods::the_loop(fleet.clone()))
        .with_loop(conditions::the_loop())
        .with_loop(monitor::the_loop(settings, fleet))
}

/// A node as events refer to it.
fn about(name: &str, uid: &Uid) -> InvolvedObject {
    InvolvedObject::named(&Node::RESOURCE, "", name, uid.clone(), ResourceVersion::default())
}

#[cfg(test)]
mod tests;
