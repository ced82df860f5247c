//! Passes over all nodes: who came and went, who is silent, which zones are in trouble, who is to be
//! tainted; and between two passes the taints that had to wait for their turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ArcStr, Key, Lease, NO_EXECUTE, Node, Object as _};
use keleustes_plan::{
    BoxFuture, Context, Item, Loop, Memory, Now, Plan, PlannedEvent, ReconcileError, Reconciler, Requeue,
    View,
};

use super::NodeLifecycleOptions;
use super::fleet::{Fleet, NodeSetChange};
use super::health::{Ready, ready};
use super::metrics::{
    EVICTIONS, UNHEALTHY_NODES, UPDATE_ALL_NODES_HEALTH_DURATION, UPDATE_NODE_HEALTH_DURATION, ZONE_HEALTH,
    ZONE_SIZE,
};
use super::silence::{Checked, Standing, lease_of};
use super::taints::{self, Change, Goal};
use super::zones::{Turn, ZoneNodeCounts, zone_of};

/// When a node without a word of its state is looked at again in its turn.
const UNJUDGED_PAUSE: Duration = Duration::from_millis(50);

/// Whatever the flags say, others get their turn between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Nodes with this label do not count for their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The loop.
pub(super) fn the_loop(settings: NodeLifecycleOptions, fleet: Memory<Fleet>) -> Loop {
    Loop::reconciling("node_lifecycle_controller_health", Monitor { settings, fleet })
        .reads::<Node>()
        .reads::<Lease>()
        .initial_item(Key::cluster("pass"))
}

pub(super) struct Monitor {
    pub(super) settings: NodeLifecycleOptions,
    pub(super) fleet: Memory<Fleet>,
}

impl Reconciler for Monitor {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        _: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move { Ok(self.turn(cx).await) })
    }
}

impl Monitor {
    /// A pass, if one is due, else the taints whose turn it is. Never both: what a pass has written must be
    /// cached before anybody is tainted on the word of the cache.
    async fn turn(&self, cx: &mut Context<'_>) -> Requeue {
        let began = monotonic(cx);
        if began >= self.fleet.with(|fleet| fleet.next_pass) {
            self.pass(cx).await;
            let ended = monotonic(cx);
            cx.measure(
                UPDATE_ALL_NODES_HEALTH_DURATION.measurement(&[], ended.saturating_sub(began).as_secs_f64()),
            );
            self.fleet.with(|fleet| fleet.next_pass = ended + self.settings.monitor_period);
        } else {
            self.taint_waiting(cx).await;
        }
        let now = monotonic(cx);
        let due = self
            .fleet
            .with(|fleet| fleet.zones.next_at(now).map_or(fleet.next_pass, |turn| turn.min(fleet.next_pass)));
        Requeue::After(due.saturating_sub(now).max(SHORTEST_PAUSE))
    }

    async fn pass(&self, cx: &mut Context<'_>) {
        let mut pass = cx.gather(|view| self.look(view));
        cx.apply(std::mem::take(&mut pass.plan)).await;
        taints::settle(cx, pass.newcomers_to_clear(), "it was not known whether it is lost").await;
        let looked = monotonic(cx);
        if self.settings.lease_circuit_breaker {
            self.verify(cx, &mut pass.checked).await;
        }
        let silent = pass.checked.iter().filter(|checked| checked.standing == Standing::Silent).count();
        self.mark(cx, &mut pass.checked).await;
        let marked = monotonic(cx);
        for at in 0..pass.checked.len() {
            let judged_at = if at < silent { marked } else { looked };
            let took = judged_at.saturating_sub(pass.now.monotonic);
            cx.measure(UPDATE_NODE_HEALTH_DURATION.measurement(&[], took.as_secs_f64()));
        }
        let (plan, changes) = self.judge_zones(&pass);
        cx.apply(plan).await;
        taints::settle(cx, changes, "its state changed").await;
    }

    /// Takes note of all nodes as they are cached.
    fn look(&self, view: &View<'_>) -> Pass {
        let (nodes, now): (Vec<Arc<Node>>, Now) = (view.all::<Node>().cloned().collect(), view.now());
        let mut plan = Plan::none();
        let (turnover, lease_cache_is_current) = self.fleet.with(|fleet| {
            let turnover = fleet.update_node_set(&nodes);
            for zone in nodes.iter().map(|node| zone_of(node)) {
                if fleet.zones.meet(&zone, &self.settings.eviction_rates, now.monotonic) {
                    plan.measure(EVICTIONS.measurement(&[&zone], 0.0));
                }
            }
            (turnover, fleet.lease_cache_is_current(view.store::<Lease>().resource_version()))
        });
        plan_news(&nodes, &turnover, &mut plan);
        let check = |node: &Arc<Node>| {
            let lease = lease_of(view, &node.key().name);
            Checked {
                node: node.clone(),
                version: node.meta.resource_version.clone(),
                was_ready: ready(node) == Some(Ready::True),
                standing: match lease_cache_is_current {
                    true => self.standing(node, lease.as_deref(), now),
                    false => Standing::Skipped,
                },
                lease: lease.map(|lease| lease.meta.resource_version.clone()).unwrap_or_default(),
            }
        };
        Pass { checked: nodes.iter().map(check).collect(), turnover, now, plan }
    }

    /// What follows for zones and for the taints of their nodes. If nobody could be judged, nothing does.
    fn judge_zones(&self, pass: &Pass) -> (Plan, Vec<Change>) {
        let mut plan = Plan::none();
        let is_blind = !pass.checked.is_empty() && pass.judged().next().is_none();
        if is_blind {
            return (plan, Vec::new());
        }
        let counted = pass.census();
        let (turn, lost) = self
            .fleet
            .with(|fleet| fleet.zones.judge(&counted, &self.settings.eviction_rates, pass.now.monotonic));
        let lost = lost.into_iter().map(|zone| (zone, ZoneNodeCounts::default()));
        for (zone, census) in lost.chain(counted) {
            plan_figures(&zone, census, &mut plan);
        }
        let changes = self.fleet.with(|fleet| match turn {
            Turn::EnterFullDisruption => {
                pass.checked.iter().for_each(|checked| fleet.zones.remove(&checked.node.key().name));
                let all = pass.checked.iter().filter(|checked| taints::is_lost(&checked.node));
                all.map(|checked| checked.change(Goal::Clear)).collect()
            }
            Turn::LeaveFullDisruption | Turn::None => {
                if turn == Turn::LeaveFullDisruption {
                    fleet.reset_probe_timestamps(pass.now);
                }
                let judged = pass.judged();
                judged.filter_map(|(checked, ready)| pass.follow(fleet, checked, ready)).collect()
            }
        });
        (plan, changes)
    }

    /// Taints those whose turn it is.
    async fn taint_waiting(&self, cx: &mut Context<'_>) {
        let changes: Vec<Change> = cx.gather(|view| {
            self.fleet.with(|fleet| {
                let turns = fleet.zones.turns(view.now().monotonic);
                let changes = turns.iter().filter_map(|(zone, node)| its_turn(fleet, view, zone, node));
                changes.collect()
            })
        });
        let zones: BTreeMap<Key, ArcStr> =
            changes.iter().map(|change| (change.node.key().clone(), zone_of(&change.node))).collect();
        for key in taints::settle(cx, changes, "it is lost, and its zone lets it be said").await {
            self.fleet.with(|fleet| fleet.zones.remove(&key.name));
            if let Some(zone) = zones.get(&key) {
                cx.measure(EVICTIONS.increment(&[zone]));
            }
        }
    }
}

fn monotonic(cx: &Context<'_>) -> Duration {
    cx.gather(|view| view.now().monotonic)
}

/// What is to be done about a node whose turn it is, by what is cached of it now.
fn its_turn(fleet: &mut Fleet, view: &View<'_>, zone: &ArcStr, name: &ArcStr) -> Option<Change> {
    let node = view.get::<Node>(&Key::cluster(&**name));
    let is_unjudged = node.is_some_and(|node| ready(node).is_none());
    if is_unjudged {
        let again_at = view.now().monotonic + UNJUDGED_PAUSE;
        fleet.zones.tainter(zone)?.wait_until(name, again_at);
        return None;
    }
    match node.and_then(|node| Some((node, taints::wanted(ready(node))?))) {
        Some((node, key)) => Some(Change::of(node, Goal::Lost(key))),
        None => {
            fleet.zones.remove(name);
            None
        }
    }
}

/// Everything that one pass learns.
struct Pass {
    checked: Vec<Checked>,
    turnover: NodeSetChange,
    now: Now,
    plan: Plan,
}

impl Pass {
    /// The nodes of which it is known how they fare.
    fn judged(&self) -> impl Iterator<Item = (&Checked, Option<Ready>)> {
        self.checked.iter().filter_map(|checked| match checked.standing {
            Standing::Judged(ready) => Some((checked, ready)),
            Standing::Silent | Standing::Skipped => None,
        })
    }

    fn is_new(&self, node: &Node) -> bool {
        self.turnover.came.contains(&node.key().name)
    }

    /// Newcomers that are said to be lost. Whoever said so may be long gone, so it has to be found out anew.
    fn newcomers_to_clear(&self) -> Vec<Change> {
        let newcomers = self.checked.iter().filter(|checked| self.is_new(&checked.node));
        newcomers
            .filter(|checked| taints::is_lost(&checked.node))
            .map(|checked| checked.change(Goal::Clear))
            .collect()
    }

    fn census(&self) -> BTreeMap<ArcStr, ZoneNodeCounts> {
        let mut counted: BTreeMap<ArcStr, ZoneNodeCounts> = BTreeMap::new();
        for (checked, ready) in self.judged() {
            if checked.node.meta.labels.value(EXCLUDED).is_none() {
                counted.entry(zone_of(&checked.node)).or_default().count(ready == Some(Ready::True));
            }
        }
        counted
    }

    /// What the state of a node means for its taints. To say in another way that it is lost, or that it is
    /// not, takes no turn; to say it for the first time does.
    fn follow(&self, fleet: &mut Fleet, checked: &Checked, ready: Option<Ready>) -> Option<Change> {
        let (node, is_new) = (&checked.node, self.is_new(&checked.node));
        let name = &node.key().name;
        match (ready?, taints::wanted(ready)) {
            (Ready::True, _) => {
                fleet.zones.remove(name);
                (!is_new && taints::is_lost(node)).then(|| checked.change(Goal::Clear))
            }
            (_, None) => None,
            (_, Some(key)) if !is_new && taints::has_other_no_execute_taint(node, key) => {
                Some(checked.change(Goal::Lost(key)))
            }
            (_, Some(key)) => {
                if is_new || !node.has_taint(key, NO_EXECUTE) {
                    fleet.zones.tainter(&zone_of(node))?.add(name, self.now.monotonic);
                }
                None
            }
        }
    }
}

impl Checked {
    fn change(&self, goal: Goal) -> Change {
        Change { node: self.node.clone(), version: self.version.clone(), goal }
    }
}

/// Tells people who came and who went.
fn plan_news(nodes: &[Arc<Node>], turnover: &NodeSetChange, plan: &mut Plan) {
    for (name, uid) in &turnover.went {
        let message = format!("Node {name} event: Removing Node {name} from Controller");
        plan.record(PlannedEvent::normal(super::about(name, uid), "RemovingNode", message));
    }
    for node in nodes.iter().filter(|node| turnover.came.contains(&node.key().name)) {
        let name = &node.key().name;
        let message = format!("Node {name} event: Registered Node {name} in Controller");
        plan.record(PlannedEvent::normal(super::about(name, &node.meta.uid), "RegisteredNode", message));
    }
}

#[expect(clippy::cast_precision_loss, reason = "no zone has 2^52 nodes")]
fn plan_figures(zone: &ArcStr, census: ZoneNodeCounts, plan: &mut Plan) {
    plan.measure(ZONE_SIZE.measurement(&[zone], census.size() as f64));
    plan.measure(ZONE_HEALTH.measurement(&[zone], census.health()));
    plan.measure(UNHEALTHY_NODES.measurement(&[zone], census.not_ready as f64));
}
