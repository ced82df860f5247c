//! Health of all nodes and state of all zones, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ArcStr, Lease, Node, Object as _, ResourceVersion, Uid};
use keleustes_plan::Now;

use super::health::Health;
use super::zones::Zones;

/// Health of all nodes and state of all zones.
///
/// Lost on failover. The new leader starts with every node as if its heartbeat had just been received and
/// every zone in state `Initial`: taints are added later than they would have been, and rate limited from the
/// start.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterState {
    nodes: BTreeMap<ArcStr, Health>,
    pub(super) zones: Zones,
    /// When the next health check is due, on the monotonic clock.
    pub(super) next_check: Duration,
    /// The resourceVersion that the Lease cache must reach before it is used again.
    required_lease_version: Option<ResourceVersion>,
}

/// Nodes added and removed since the previous health check.
#[derive(Debug, Default)]
pub(super) struct NodeSetChange {
    pub(super) added: BTreeSet<ArcStr>,
    pub(super) removed: Vec<(ArcStr, Uid)>,
}

impl ClusterState {
    /// Whether the last health check saw a node.
    pub(super) fn contains(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Determines which nodes were added and removed, and drops the removed ones. A node recreated with
    /// another UID is both.
    pub(super) fn update_node_set(&mut self, nodes: &[Arc<Node>]) -> NodeSetChange {
        let current: BTreeMap<&ArcStr, &Uid> =
            nodes.iter().map(|node| (&node.key().name, &node.meta.uid)).collect();
        let is_removed =
            |name: &ArcStr, health: &mut Health| current.get(name).is_none_or(|uid| **uid != health.uid);
        let removed: Vec<_> =
            self.nodes.extract_if(.., is_removed).map(|(name, health)| (name, health.uid)).collect();
        removed.iter().for_each(|(name, _)| self.zones.remove(name));
        let added = current.into_keys().filter(|name| !self.contains(name)).cloned().collect();
        NodeSetChange { added, removed }
    }

    /// Updates the health of a node from its status and its Lease.
    pub(super) fn observe(&mut self, node: &Node, lease: Option<&Lease>, now: Now) -> &mut Health {
        let name = &node.key().name;
        let health = Health::observe(self.nodes.get(name), node, lease, now);
        self.nodes.entry(name.clone()).insert_entry(health).into_mut()
    }

    /// Whether a live Lease of a node was renewed since the renewal that was observed last.
    pub(super) fn lacks_heartbeat(&self, node: &Node, live: &Lease) -> bool {
        self.nodes.get(&node.key().name).is_none_or(|health| health.is_before_renewal(live))
    }

    /// Records the `Ready` condition that this process has written, so that it does not count as a heartbeat.
    pub(super) fn expect_unknown_condition(&mut self, node: &Node) {
        if let Some(health) = self.nodes.get_mut(&node.key().name) {
            health.expect_unknown_condition(node);
        }
    }

    /// Restarts the grace period of every node.
    pub(super) fn reset_probe_timestamps(&mut self, now: Now) {
        self.nodes.values_mut().for_each(|health| health.reset_probe_timestamp(now));
    }

    /// Stops using the Lease cache until it has reached this resourceVersion.
    pub(super) fn require_lease_resource_version(&mut self, until: &ResourceVersion) {
        if self.required_lease_version.as_ref().is_none_or(|required| required.is_older_than(until)) {
            self.required_lease_version = Some(until.clone());
        }
    }

    /// Whether the Lease cache, which is synced up to this resourceVersion, may be used. ResourceVersions
    /// that cannot be compared do not block it.
    pub(super) fn lease_cache_is_current(&mut self, cached: &ResourceVersion) -> bool {
        if self.required_lease_version.as_ref().is_some_and(|required| cached.is_older_than(required)) {
            return false;
        }
        self.required_lease_version = None;
        true
    }
}
