//! Checks the health of all nodes periodically: nodes added and removed, expired grace periods, zone states,
//! taints; between two checks it adds the rate-limited taints that are due. Parity: monitorNodeHealth,
//! doNoExecuteTaintingPass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ArcStr, Key, Lease, NO_EXECUTE, Node, Object as _};
use keleustes_plan::{
    Context, Loop, Memory, Now, Pass, Plan, PlannedEvent, RateLimiter, ReconcileError, Reconciler, Requeue,
    View,
};

use super::NodeLifecycleOptions;
use super::cluster_state::{ClusterState, NodeSetChange};
use super::health::{Ready, ready};
use super::mark_unknown::{CheckedNode, HealthStatus, lease_of, version_of};
use super::metrics::{
    EVICTIONS, UNHEALTHY_NODES, UPDATE_ALL_NODES_HEALTH_DURATION, UPDATE_NODE_HEALTH_DURATION, ZONE_HEALTH,
    ZONE_SIZE,
};
use super::taints::{self, TaintChange, TaintGoal};
use super::zones::{DisruptionChange, ZoneNodeCounts, zone_of};

/// Retry delay for a queued node without `Ready` condition.
const NO_READY_CONDITION_DELAY: Duration = Duration::from_millis(50);

/// Lower bound of the requeue delay, whatever the flags say.
const MIN_REQUEUE_DELAY: Duration = Duration::from_millis(1);

/// Nodes with this label do not count for their zone's state.
const EXCLUDE_DISRUPTION_LABEL: &str = "node.kubernetes.io/exclude-disruption";

/// The loop.
pub(super) fn the_loop(options: NodeLifecycleOptions, cluster_state: Memory<ClusterState>) -> Loop {
    let max_delay = options.monitor_period.max(RateLimiter::DEFAULT.base_delay);
    Loop::reconciling("node_lifecycle_controller_health", Monitor { options, cluster_state })
        .reads::<Node>()
        .reads::<Lease>()
        .initial_item(Pass)
        // Nothing else enqueues the pass, and lost nodes must not wait for a backoff that grows.
        .rate_limited_by(RateLimiter { max_delay, ..RateLimiter::DEFAULT })
}

pub(super) struct Monitor {
    pub(super) options: NodeLifecycleOptions,
    pub(super) cluster_state: Memory<ClusterState>,
}

impl Reconciler<Pass> for Monitor {
    async fn reconcile(&self, cx: &mut Context<'_>, _: &Pass) -> Result<Requeue, ReconcileError> {
        Ok(self.reconcile_once(cx).await)
    }
}

impl Monitor {
    /// Checks all nodes if that is due, otherwise adds the taints that are due. Never both in one reconcile:
    /// the cache must contain the writes of a health check before a taint is decided from it.
    async fn reconcile_once(&self, cx: &mut Context<'_>) -> Requeue {
        let started = monotonic(cx);
        if started >= self.cluster_state.with(|cluster_state| cluster_state.next_check) {
            self.check_all_nodes(cx).await;
            let ended = monotonic(cx);
            cx.measure(
                UPDATE_ALL_NODES_HEALTH_DURATION
                    .measurement(&[], ended.saturating_sub(started).as_secs_f64()),
            );
            self.cluster_state
                .with(|cluster_state| cluster_state.next_check = ended + self.options.monitor_period);
        } else {
            self.add_due_taints(cx).await;
        }
        let now = monotonic(cx);
        let due = self.cluster_state.with(|cluster_state| {
            cluster_state
                .zones
                .next_at(now)
                .map_or(cluster_state.next_check, |at| at.min(cluster_state.next_check))
        });
        Requeue::after(due.saturating_sub(now).max(MIN_REQUEUE_DELAY), "the next check of all nodes")
    }

    async fn check_all_nodes(&self, cx: &mut Context<'_>) {
        let mut result = cx.gather(|view| self.check_nodes(view));
        cx.apply(std::mem::take(&mut result.plan)).await;
        taints::apply_changes(
            cx,
            result.stale_taints(),
            "the node is new to this process, so its NoExecute taint may be stale",
        )
        .await;
        let checked_at = monotonic(cx);
        let expired =
            result.checked.iter().filter(|checked| checked.health_status == HealthStatus::Expired).count();
        self.mark_expired(cx, &mut result.checked).await;
        let marked_at = monotonic(cx);
        for at in 0..result.checked.len() {
            let finished_at = if at < expired { marked_at } else { checked_at };
            let took = finished_at.saturating_sub(result.now.monotonic);
            cx.measure(UPDATE_NODE_HEALTH_DURATION.measurement(&[], took.as_secs_f64()));
        }
        let (plan, changes) = self.handle_disruption(&result);
        cx.apply(plan).await;
        taints::apply_changes(cx, changes, "its Ready condition changed").await;
    }

    /// Checks all cached nodes and records nodes that were added or removed.
    fn check_nodes(&self, view: &View<'_>) -> HealthCheck {
        let (nodes, now): (Vec<Arc<Node>>, Now) = (view.all::<Node>().cloned().collect(), view.now());
        let mut plan = Plan::none();
        let (node_set_change, lease_cache_is_current) = self.cluster_state.with(|cluster_state| {
            let node_set_change = cluster_state.update_node_set(&nodes);
            for zone in nodes.iter().map(|node| zone_of(node)) {
                if cluster_state.zones.ensure_zone(&zone, &self.options.eviction_rates) {
                    plan.measure(EVICTIONS.measurement(&[&zone], 0.0));
                }
            }
            (node_set_change, cluster_state.lease_cache_is_current(view.store::<Lease>().resource_version()))
        });
        record_node_events(&nodes, &node_set_change, &mut plan);
        let check = |node: &Arc<Node>| {
            let lease = lease_of(view, &node.key().name);
            CheckedNode {
                node: node.clone(),
                version: node.meta.resource_version.clone(),
                was_ready: ready(node) == Some(Ready::True),
                health_status: match lease_cache_is_current {
                    true => self.health_status(node, lease.as_deref(), now),
                    false => HealthStatus::Skipped,
                },
                lease_version: version_of(lease.as_deref()),
            }
        };
        HealthCheck { checked: nodes.iter().map(check).collect(), node_set_change, now, plan }
    }

    /// Updates the zone states and returns the taint changes. If the health of no node is known, nothing
    /// changes. Parity: handleDisruption.
    fn handle_disruption(&self, result: &HealthCheck) -> (Plan, Vec<TaintChange>) {
        let mut plan = Plan::none();
        let none_known = !result.checked.is_empty() && result.known().next().is_none();
        if none_known {
            return (plan, Vec::new());
        }
        let counts_by_zone = result.zone_counts();
        let (change, dropped_zones) = self.cluster_state.with(|cluster_state| {
            cluster_state.zones.update_states(
                &counts_by_zone,
                &self.options.eviction_rates,
                result.now.monotonic,
            )
        });
        let dropped_zones = dropped_zones.into_iter().map(|zone| (zone, ZoneNodeCounts::default()));
        for (zone, counts) in dropped_zones.chain(counts_by_zone) {
            record_zone_metrics(&zone, counts, &mut plan);
        }
        let changes = self.cluster_state.with(|cluster_state| match change {
            DisruptionChange::EnterFullDisruption => {
                result
                    .checked
                    .iter()
                    .for_each(|checked| cluster_state.zones.remove(&checked.node.key().name));
                let all = result.checked.iter().filter(|checked| taints::has_no_execute_taint(&checked.node));
                all.map(|checked| checked.change(TaintGoal::Remove)).collect()
            }
            DisruptionChange::LeaveFullDisruption | DisruptionChange::None => {
                if change == DisruptionChange::LeaveFullDisruption {
                    cluster_state.reset_probe_timestamps(result.now);
                }
                let known = result.known();
                known
                    .filter_map(|(checked, ready)| result.taint_change(cluster_state, checked, ready))
                    .collect()
            }
        });
        (plan, changes)
    }

    /// Adds the taints that are due. Parity: doNoExecuteTaintingPass.
    async fn add_due_taints(&self, cx: &mut Context<'_>) {
        let changes: Vec<TaintChange> = cx.gather(|view| {
            self.cluster_state.with(|cluster_state| {
                let due_nodes = cluster_state.zones.due_nodes(view.now().monotonic);
                let changes = due_nodes
                    .iter()
                    .filter_map(|(zone, node)| taint_change_of(cluster_state, view, zone, node));
                changes.collect()
            })
        });
        let zones: BTreeMap<Key, ArcStr> =
            changes.iter().map(|change| (change.node.key().clone(), zone_of(&change.node))).collect();
        for key in taints::apply_changes(
            cx,
            changes,
            "it is not ready, and the eviction rate of its zone permits the taint",
        )
        .await
        {
            self.cluster_state.with(|cluster_state| cluster_state.zones.remove(&key.name));
            if let Some(zone) = zones.get(&key) {
                cx.measure(EVICTIONS.increment(&[zone]));
            }
        }
    }
}

fn monotonic(cx: &Context<'_>) -> Duration {
    cx.gather(|view| view.now().monotonic)
}

/// The taint change for a node that is due, decided from its cached state.
fn taint_change_of(
    cluster_state: &mut ClusterState,
    view: &View<'_>,
    zone: &ArcStr,
    name: &ArcStr,
) -> Option<TaintChange> {
    let node = view.get::<Node>(&Key::cluster(&**name));
    let has_no_ready_condition = node.is_some_and(|node| ready(node).is_none());
    if has_no_ready_condition {
        let retry_at = view.now().monotonic + NO_READY_CONDITION_DELAY;
        cluster_state.zones.taint_queue(zone)?.add_until(name, retry_at);
        return None;
    }
    match node.and_then(|node| Some((node, taints::wanted_taint(ready(node))?))) {
        Some((node, key)) => Some(TaintChange::of(node, TaintGoal::Set(key))),
        None => {
            cluster_state.zones.remove(name);
            None
        }
    }
}

/// The result of one health check of all nodes.
struct HealthCheck {
    checked: Vec<CheckedNode>,
    node_set_change: NodeSetChange,
    now: Now,
    plan: Plan,
}

impl HealthCheck {
    /// The nodes whose health is known.
    fn known(&self) -> impl Iterator<Item = (&CheckedNode, Option<Ready>)> {
        self.checked.iter().filter_map(|checked| match checked.health_status {
            HealthStatus::Known(ready) => Some((checked, ready)),
            HealthStatus::Expired | HealthStatus::Skipped => None,
        })
    }

    fn is_new(&self, node: &Node) -> bool {
        self.node_set_change.added.contains(&node.key().name)
    }

    /// Removes `NoExecute` taints from nodes that this process sees for the first time: they may come from a
    /// previous leader and be stale, so the health is determined again.
    fn stale_taints(&self) -> Vec<TaintChange> {
        let added = self.checked.iter().filter(|checked| self.is_new(&checked.node));
        added
            .filter(|checked| taints::has_no_execute_taint(&checked.node))
            .map(|checked| checked.change(TaintGoal::Remove))
            .collect()
    }

    fn zone_counts(&self) -> BTreeMap<ArcStr, ZoneNodeCounts> {
        let mut counts: BTreeMap<ArcStr, ZoneNodeCounts> = BTreeMap::new();
        for (checked, ready) in self.known() {
            if checked.node.meta.labels.value(EXCLUDE_DISRUPTION_LABEL).is_none() {
                counts.entry(zone_of(&checked.node)).or_default().count(ready == Some(Ready::True));
            }
        }
        counts
    }

    /// The taint change that the health of a node requires. Switching between the two taints and removing
    /// them is immediate; adding the first one is rate limited. Parity: processTaintBaseEviction.
    fn taint_change(
        &self,
        cluster_state: &mut ClusterState,
        checked: &CheckedNode,
        ready: Option<Ready>,
    ) -> Option<TaintChange> {
        let (node, is_new) = (&checked.node, self.is_new(&checked.node));
        let name = &node.key().name;
        match (ready?, taints::wanted_taint(ready)) {
            (Ready::True, _) => {
                cluster_state.zones.remove(name);
                (!is_new && taints::has_no_execute_taint(node)).then(|| checked.change(TaintGoal::Remove))
            }
            (_, None) => None,
            (_, Some(key)) if !is_new && taints::has_other_no_execute_taint(node, key) => {
                Some(checked.change(TaintGoal::Set(key)))
            }
            (_, Some(key)) => {
                if is_new || !node.has_taint(key, NO_EXECUTE) {
                    cluster_state.zones.taint_queue(&zone_of(node))?.add(name, self.now.monotonic);
                }
                None
            }
        }
    }
}

impl CheckedNode {
    fn change(&self, goal: TaintGoal) -> TaintChange {
        TaintChange { node: self.node.clone(), version: self.version.clone(), goal }
    }
}

/// Records the events for added and removed nodes.
fn record_node_events(nodes: &[Arc<Node>], node_set_change: &NodeSetChange, plan: &mut Plan) {
    for (name, uid) in &node_set_change.removed {
        let message = format!("Node {name} event: Removing Node {name} from Controller");
        plan.record(PlannedEvent::normal(super::node_reference(name, uid), "RemovingNode", message));
    }
    for node in nodes.iter().filter(|node| node_set_change.added.contains(&node.key().name)) {
        let name = &node.key().name;
        let message = format!("Node {name} event: Registered Node {name} in Controller");
        plan.record(PlannedEvent::normal(
            super::node_reference(name, &node.meta.uid),
            "RegisteredNode",
            message,
        ));
    }
}

#[expect(clippy::cast_precision_loss, reason = "no zone has 2^52 nodes")]
fn record_zone_metrics(zone: &ArcStr, counts: ZoneNodeCounts, plan: &mut Plan) {
    plan.measure(ZONE_SIZE.measurement(&[zone], counts.size() as f64));
    plan.measure(ZONE_HEALTH.measurement(&[zone], counts.health()));
    plan.measure(UNHEALTHY_NODES.measurement(&[zone], counts.not_ready as f64));
}
