//! What a turn is about: a DaemonSet, the nodes, and which of its pods are on which node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    ControllerRevision, DaemonSet, IntOrString, InternedStr, NO_EXECUTE, NO_SCHEDULE, Node, Placement, Pod,
    RollingUpdateDaemonSet, Rounding, Taint, Time, Toleration, first_that_tolerates,
};
use keleustes_plan::{Context, Item, Now, ReconcileError, View};

use super::pods::tolerations;
use crate::workloads::adoption::{Claimed, claim};
use crate::workloads::owners::{controlled_by, orphans};

pub(super) struct Inputs {
    pub(super) set: Arc<DaemonSet>,
    /// All its pods.
    pub(super) pods: Vec<Arc<Pod>>,
    /// All its revisions.
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// What is to be on each node, and what is, by the node's name.
    pub(super) nodes: BTreeMap<InternedStr, NodeState>,
    /// Its pods that are meant for nodes that do not exist.
    pub(super) astray: Vec<Arc<Pod>>,
    pub(super) now: Time,
    pub(super) monotonic: Duration,
}

/// One node.
pub(super) struct NodeState {
    pub(super) should_run: bool,
    pub(super) should_continue_running: bool,
    /// The pods there, the one that counts first.
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Whether a node may get a pod, and whether it may keep one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Eligibility {
    pub(super) should_run: bool,
    pub(super) should_continue_running: bool,
}

/// What the pods of a DaemonSet demand of a node: read once, asked of every node.
pub(super) struct NodeRequirements {
    /// Nothing if the template cannot be read; then no node will do.
    placement: Option<Placement>,
    tolerations: Vec<Toleration>,
    comparison_operators: bool,
}

impl NodeRequirements {
    pub(super) fn of(set: &DaemonSet, comparison_operators: bool) -> Self {
        let placement = set.spec.template.placement().ok();
        let tolerations = placement
            .as_ref()
            .map(|placement| tolerations(&placement.tolerations, placement.host_network))
            .unwrap_or_default();
        Self { placement, tolerations, comparison_operators }
    }

    /// Whether a node may get and keep a pod. Whether it is ready or full does not matter.
    pub(super) fn judge(&self, node: &Node) -> Eligibility {
        let (name, labels) = (&node.meta.key.name, &node.meta.labels);
        if !self.placement.as_ref().is_some_and(|placement| placement.matches_node(name, labels)) {
            return Eligibility { should_run: false, should_continue_running: false };
        }
        let untolerated = |effect: &str| {
            let counts = |taint: &&Taint| taint.effect == effect;
            node.taints.iter().filter(counts).any(|taint| {
                first_that_tolerates(&self.tolerations, taint, self.comparison_operators).is_none()
            })
        };
        let should_continue_running = !untolerated(NO_EXECUTE);
        Eligibility {
            should_run: should_continue_running && !untolerated(NO_SCHEDULE),
            should_continue_running,
        }
    }
}

/// What the caches hold for a turn, before it is settled whose things are whose.
pub(super) struct Gathered {
    set: Arc<DaemonSet>,
    pods: Claimed<Pod>,
    revisions: Claimed<ControllerRevision>,
    /// Whether each node may get and keep a pod.
    nodes: BTreeMap<InternedStr, Eligibility>,
    now: Now,
}

impl Gathered {
    /// What there is for a DaemonSet. Nothing if there is no such one, or it selects nothing.
    ///
    /// # Errors
    /// If the selector makes no sense.
    pub(super) fn gather(
        view: &View<'_>,
        item: &Item,
        comparison_operators: bool,
    ) -> Option<Result<Self, String>> {
        let set = view.get::<DaemonSet>(item)?.clone();
        let matcher = match set.spec.selector.as_ref()?.matcher() {
            Ok(matcher) => matcher,
            Err(error) => return Some(Err(error.to_string())),
        };
        let (namespace, uid) = (&set.meta.key.namespace, &set.meta.uid);
        let table = view.store::<ControllerRevision>();
        let revisions = claim(&*set, &matcher, controlled_by(table, uid).chain(orphans(table, namespace)));
        let table = view.store::<Pod>();
        let pods = claim(&*set, &matcher, controlled_by(table, uid).chain(orphans(table, namespace)));
        let demands = NodeRequirements::of(&set, comparison_operators);
        let judge = |node: &Arc<Node>| (InternedStr::from(&*node.meta.key.name), demands.judge(node));
        let nodes = view.all::<Node>().map(judge).collect();
        Some(Ok(Self { pods, revisions, nodes, now: view.now(), set }))
    }

    /// Carries out adoptions and releases, first those of revisions. What is left is what there is.
    ///
    /// # Errors
    /// If one of them fails; then nothing is decided on top of it.
    pub(super) async fn settle(self, cx: &mut Context<'_>) -> Result<Inputs, ReconcileError> {
        let revisions = self.revisions.apply(cx).await?;
        let pods = self.pods.apply(cx).await?;
        Ok(Inputs::of(self.set, pods, revisions, self.nodes, self.now))
    }
}

impl Inputs {
    /// Finds out what belongs where. Pods that ended and are being deleted are not counted any more.
    pub(super) fn of(
        set: Arc<DaemonSet>,
        pods: Vec<Arc<Pod>>,
        revisions: Vec<Arc<ControllerRevision>>,
        nodes: BTreeMap<InternedStr, Eligibility>,
        Now { wall: now, monotonic }: Now,
    ) -> Self {
        let place = |(name, judged): (InternedStr, Eligibility)| {
            let Eligibility { should_run, should_continue_running } = judged;
            (name, NodeState { should_run, should_continue_running, pods: Vec::new() })
        };
        let mut nodes: BTreeMap<InternedStr, NodeState> = nodes.into_iter().map(place).collect();
        let mut astray = Vec::new();
        for pod in pods.iter().filter(|pod| !(pod.is_terminal() && pod.is_terminating())) {
            let Some(target) = pod.target_node() else { continue };
            match nodes.get_mut(target) {
                Some(place) => place.pods.push(pod.clone()),
                None => astray.push(pod.clone()),
            }
        }
        for place in nodes.values_mut() {
            place.pods.sort_by(|one, other| seniority(one).cmp(&seniority(other)));
        }
        Self { set, pods, revisions, nodes, astray, now, monotonic }
    }

    /// How many nodes are to have a pod.
    pub(super) fn desired(&self) -> i32 {
        i32::try_from(self.nodes.values().filter(|place| place.should_run).count()).unwrap_or(i32::MAX)
    }

    /// Whether a pod has been ready for long enough.
    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    /// How many nodes may have two pods while the DaemonSet moves on, out of so many.
    pub(super) fn surge(&self, desired: i32) -> i32 {
        self.rolling_number(desired, |rolling| rolling.max_surge.as_ref())
    }

    /// How many nodes may be without a pod while the DaemonSet moves on. If neither more nor fewer are
    /// allowed, one may be missing, or nothing would ever move.
    pub(super) fn unavailable_max(&self, desired: i32) -> i32 {
        let unavailable = self.rolling_number(desired, |rolling| rolling.max_unavailable.as_ref());
        if desired > 0 && unavailable == 0 && self.surge(desired) == 0 { 1 } else { unavailable }
    }

    fn rolling_number(
        &self,
        desired: i32,
        which: fn(&RollingUpdateDaemonSet) -> Option<&IntOrString>,
    ) -> i32 {
        let strategy = &self.set.spec.update_strategy;
        let rolling = strategy.rolling_update.as_ref().filter(|_| strategy.r#type == "RollingUpdate");
        let number = rolling.and_then(which);
        number.and_then(|number| number.scaled(desired, Rounding::Up)).unwrap_or(0).max(0)
    }
}

/// Bound pods before others, then older ones.
fn seniority(pod: &Pod) -> (bool, Option<Time>, &str) {
    (pod.node_name.is_empty(), pod.meta.creation_timestamp, &pod.meta.key.name)
}
