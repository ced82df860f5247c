//! Marks nodes without heartbeat as `Unknown`, after verifying with live reads that the Lease cache is not
//! stale.

use std::sync::Arc;

use keleustes_objects::{Key, Lease, NODE_LEASE_NAMESPACE, Node, Object as _, ResourceVersion, Time};
use keleustes_plan::{Context, Now, OnFailure, Outcome, PatchKind, Plan, PlannedEvent, Write};
use serde_json::json;

use super::health::{Ready, ready, unknown_status};
use super::monitor::Monitor;

/// As many nodes as the original handles in parallel.
const NODES_AT_A_TIME: usize = 8;

/// Attempts to patch a node's status, with a live read of the node between two attempts.
const STATUS_PATCH_ATTEMPTS: usize = 5;

/// One node in a health check.
#[derive(Debug)]
pub(super) struct CheckedNode {
    pub(super) node: Arc<Node>,
    /// The resourceVersion that patches are based on: that of the cached node, or of this process's last
    /// write.
    pub(super) version: ResourceVersion,
    /// ResourceVersion of the cached Lease; empty if there is none.
    pub(super) lease_version: ResourceVersion,
    /// Whether `Ready` was `True` at the start of the health check.
    pub(super) was_ready: bool,
    pub(super) health_status: HealthStatus,
}

/// The result of checking one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthStatus {
    /// The `Ready` status; `None` without `Ready` condition.
    Known(Option<Ready>),
    /// The grace period has expired, and the status must be set to `Unknown`.
    Expired,
    /// The health cannot be determined in this health check. The node does not count, and nothing is done
    /// about it.
    Skipped,
}

impl Monitor {
    /// Determines the health of a node from its status and its Lease.
    pub(super) fn health_status(&self, node: &Node, lease: Option<&Lease>, now: Now) -> HealthStatus {
        let grace_periods = &self.options.grace_periods;
        let is_expired = self
            .cluster_state
            .with(|cluster_state| cluster_state.observe(node, lease, now).is_expired(grace_periods, now));
        let is_unknown = ready(node) == Some(Ready::Unknown);
        if is_expired && !is_unknown { HealthStatus::Expired } else { HealthStatus::Known(ready(node)) }
    }

    /// Marks the expired nodes. Each request may wait for the rate limit of the controller's client, so a few nodes
    /// are handled at a time: a node whose heartbeat returns meanwhile must not be marked.
    pub(super) async fn mark_expired(&self, cx: &mut Context<'_>, nodes: &mut [CheckedNode]) {
        let is_expired = |checked: &&mut CheckedNode| checked.health_status == HealthStatus::Expired;
        let mut expired: Vec<&mut CheckedNode> = nodes.iter_mut().filter(is_expired).collect();
        let mut cache_is_stale = false;
        for batch in expired.chunks_mut(NODES_AT_A_TIME) {
            if cache_is_stale {
                batch.iter_mut().for_each(|checked| checked.health_status = HealthStatus::Skipped);
                continue;
            }
            cx.gather(|view| {
                for checked in batch.iter_mut() {
                    let lease = lease_of(view, &checked.node.key().name);
                    checked.health_status = self.health_status(&checked.node, lease.as_deref(), view.now());
                    checked.lease_version = version_of(lease.as_deref());
                }
            });
            if self.options.lease_circuit_breaker {
                cache_is_stale = self.verify_leases(cx, batch).await;
            }
            self.mark_unknown(cx, batch).await;
        }
    }

    /// Reads the Leases of expired nodes live. If one has another resourceVersion than the cached Lease, the cache is
    /// stale: its node is not marked in this health check, nor any node in later ones until the cache has caught up. If
    /// the Lease was renewed, the cache lacks a heartbeat and may lack those of other nodes, so no other node is marked
    /// in this health check either; returns whether this is so. Any other change of a Lease is no heartbeat: who
    /// may write one Lease must not keep all lost nodes from being marked.
    async fn verify_leases(&self, cx: &mut Context<'_>, nodes: &mut [&mut CheckedNode]) -> bool {
        let is_expired = |checked: &&mut &mut CheckedNode| checked.health_status == HealthStatus::Expired;
        let mut expired: Vec<&mut &mut CheckedNode> = nodes.iter_mut().filter(is_expired).collect();
        let key = |checked: &&mut &mut CheckedNode| {
            Key::namespaced(NODE_LEASE_NAMESPACE, &*checked.node.key().name)
        };
        let keys: Vec<Key> = expired.iter().map(key).collect();
        let answers = if keys.is_empty() { Vec::new() } else { cx.fetch_all::<Lease>(&keys).await };
        let mut cache_is_stale = false;
        for (checked, answer) in expired.iter_mut().zip(answers) {
            match answer {
                Ok(Some(live)) if live.meta.resource_version != checked.lease_version => {
                    checked.health_status = HealthStatus::Skipped;
                    cache_is_stale |= self.cluster_state.with(|cluster_state| {
                        cluster_state.require_lease_resource_version(&live.meta.resource_version);
                        cluster_state.lacks_heartbeat(&checked.node, &live)
                    });
                }
                Ok(_) => {}
                Err(_) => checked.health_status = HealthStatus::Skipped,
            }
        }
        if cache_is_stale {
            expired.iter_mut().for_each(|checked| checked.health_status = HealthStatus::Skipped);
        }
        cache_is_stale
    }

    /// Sets the conditions of the expired nodes to `Unknown`. If a patch fails, the node is read live and
    /// checked again; a node that cannot be read either is skipped.
    async fn mark_unknown(&self, cx: &mut Context<'_>, nodes: &mut [&mut CheckedNode]) {
        for _ in 0..STATUS_PATCH_ATTEMPTS {
            let now = cx.gather(|view| view.now());
            let mut remaining = self.try_mark_unknown(cx, nodes, now.wall).await;
            let keys: Vec<Key> = remaining.iter().map(|checked| checked.node.key().clone()).collect();
            if keys.is_empty() {
                return;
            }
            let answers = cx.fetch_all::<Node>(&keys).await;
            let leases =
                cx.gather(|view| keys.iter().map(|key| lease_of(view, &key.name)).collect::<Vec<_>>());
            let mut plan = Plan::none();
            for ((checked, answer), lease) in remaining.iter_mut().zip(answers).zip(leases) {
                let Ok(Some(live)) = answer else {
                    checked.health_status = HealthStatus::Skipped;
                    continue;
                };
                checked.health_status = self.health_status(&live, lease.as_deref(), now);
                checked.version = live.meta.resource_version.clone();
                checked.node = Arc::new(live);
                // The patch may have been applied although its response was lost.
                if checked.health_status == HealthStatus::Known(Some(Ready::Unknown)) {
                    record_not_ready(&mut plan, checked);
                }
            }
            cx.apply(plan).await;
        }
        let remaining = nodes.iter_mut().filter(|checked| checked.health_status == HealthStatus::Expired);
        remaining.for_each(|checked| checked.health_status = HealthStatus::Skipped);
    }

    /// Patches once and returns the nodes whose patch failed.
    async fn try_mark_unknown<'n>(
        &self,
        cx: &mut Context<'_>,
        nodes: &'n mut [&mut CheckedNode],
        now: Time,
    ) -> Vec<&'n mut CheckedNode> {
        let (mut plan, mut writes, mut sent) = (Plan::none(), Vec::new(), Vec::new());
        for checked in nodes.iter_mut().filter(|checked| checked.health_status == HealthStatus::Expired) {
            if let Some(status) = unknown_status(&checked.node, now) {
                let body = json!({"metadata": {"resourceVersion": checked.version}, "status": status});
                let write = Write::patch(&*checked.node, PatchKind::Strategic, body).on_subresource("status");
                writes.push(
                    write
                        .on_failure(OnFailure::LogOnly)
                        .because("its grace period expired without heartbeat"),
                );
                sent.push(&mut **checked);
            }
        }
        plan.push_parallel(writes);
        let outcomes = if sent.is_empty() { Vec::new() } else { cx.apply(plan).await.outcomes };
        let (mut events, mut remaining) = (Plan::none(), Vec::new());
        for (checked, outcome) in sent.into_iter().zip(outcomes) {
            if let Outcome::Done { resource_version: version, .. } = outcome {
                checked.version = version;
                checked.health_status = HealthStatus::Known(Some(Ready::Unknown));
                // Only now: after a failed write, a node without a status would seem to have lost its condition,
                // which restarts its grace period.
                self.cluster_state
                    .with(|cluster_state| cluster_state.expect_unknown_condition(&checked.node));
                record_not_ready(&mut events, checked);
            } else {
                remaining.push(checked);
            }
        }
        cx.apply(events).await;
        remaining
    }
}

/// Records the event for a node that was ready and is marked `Unknown` now.
fn record_not_ready(plan: &mut Plan, checked: &CheckedNode) {
    if checked.was_ready {
        let name = &checked.node.key().name;
        let message = format!("Node {name} status is now: NodeNotReady");
        plan.record(PlannedEvent::normal(
            super::node_reference(name, &checked.node.meta.uid),
            "NodeNotReady",
            message,
        ));
    }
}

/// The resourceVersion of a cached Lease; empty if there is none.
pub(super) fn version_of(lease: Option<&Lease>) -> ResourceVersion {
    lease.map(|lease| lease.meta.resource_version.clone()).unwrap_or_default()
}

/// The cached Lease of a node.
pub(super) fn lease_of(view: &keleustes_plan::View<'_>, node: &str) -> Option<Arc<Lease>> {
    view.get::<Lease>(&Key::namespaced(NODE_LEASE_NAMESPACE, node)).cloned()
}
