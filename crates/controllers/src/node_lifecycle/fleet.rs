//! All nodes and zones as this process knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ArcStr, Lease, Node, Object as _, ResourceVersion, Uid};
use keleustes_plan::Now;

use super::health::Health;
use super::zones::Zones;

/// All nodes and zones as this process knows them.
///
/// With the process all of it is lost. The next one begins with every node as if just heard of and every
/// zone as if not judged yet: whatever is done about lost nodes is done later than it would have been,
/// and at the pace of the zone from the start.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    nodes: BTreeMap<ArcStr, Health>,
    pub(super) zones: Zones,
    /// When the next pass is due.
    pub(super) next_pass: Duration,
    /// How far the cache of leases must have come before it is believed again.
    leases_wanted: Option<ResourceVersion>,
}

/// How the nodes of a pass differ from those of the one before.
#[derive(Debug, Default)]
pub(super) struct NodeSetChange {
    pub(super) came: BTreeSet<ArcStr>,
    pub(super) went: Vec<(ArcStr, Uid)>,
}

impl Fleet {
    /// Whether a node was there in the last pass.
    pub(super) fn knows(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Finds out who came and who went, and forgets the latter. One that took the name of another is both.
    pub(super) fn update_node_set(&mut self, nodes: &[Arc<Node>]) -> NodeSetChange {
        let there: BTreeMap<&ArcStr, &Uid> =
            nodes.iter().map(|node| (&node.key().name, &node.meta.uid)).collect();
        let is_gone =
            |name: &ArcStr, health: &mut Health| there.get(name).is_none_or(|uid| **uid != health.uid);
        let went: Vec<_> =
            self.nodes.extract_if(.., is_gone).map(|(name, health)| (name, health.uid)).collect();
        went.iter().for_each(|(name, _)| self.zones.remove(name));
        let came = there.into_keys().filter(|name| !self.knows(name)).cloned().collect();
        NodeSetChange { came, went }
    }

    /// Looks at a node and its lease, and tells how it fares.
    pub(super) fn observe(&mut self, node: &Node, lease: Option<&Lease>, now: Now) -> &mut Health {
        let name = &node.key().name;
        let health = Health::observe(self.nodes.get(name), node, lease, now);
        self.nodes.entry(name.clone()).insert_entry(health).into_mut()
    }

    /// Takes note of what we are about to write about a silent node.
    pub(super) fn expect_mark(&mut self, node: &Node) {
        if let Some(health) = self.nodes.get_mut(&node.key().name) {
            health.expect_mark(node);
        }
    }

    /// Gives every node a fresh grace.
    pub(super) fn reset_probe_timestamps(&mut self, now: Now) {
        self.nodes.values_mut().for_each(|health| health.reset_probe_timestamp(now));
    }

    /// Distrusts the cache of leases until it has come this far.
    pub(super) fn require_lease_resource_version(&mut self, until: &ResourceVersion) {
        if self.leases_wanted.as_ref().is_none_or(|wanted| wanted.is_older_than(until)) {
            self.leases_wanted = Some(until.clone());
        }
    }

    /// Whether the cache of leases, which has come this far, can be believed. Versions that cannot be
    /// compared are no reason not to.
    pub(super) fn lease_cache_is_current(&mut self, cached: &ResourceVersion) -> bool {
        if self.leases_wanted.as_ref().is_some_and(|wanted| cached.is_older_than(wanted)) {
            return false;
        }
        self.leases_wanted = None;
        true
    }
}
