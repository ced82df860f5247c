//! The inputs of a reconcile: a DaemonSet, the nodes, and its pods by node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    ControllerRevision, DaemonSet, IntOrString, InternedStr, Key, NO_EXECUTE, NO_SCHEDULE, Node, Placement,
    Pod, RollingUpdateDaemonSet, Rounding, Taint, Time, Toleration, first_that_tolerates,
};
use keleustes_plan::{Context, Now, ReconcileError, View};

use super::pods::tolerations;
use crate::workloads::adoption::{Claimed, claim};
use crate::workloads::owners::controlled_by_or_orphans;

pub(super) struct Inputs {
    pub(super) set: Arc<DaemonSet>,
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// Eligibility and pods of each node, by node name.
    pub(super) nodes: BTreeMap<InternedStr, NodeState>,
    /// Its pods that target nodes that do not exist.
    pub(super) pods_on_missing_nodes: Vec<Arc<Pod>>,
    pub(super) now: Time,
    pub(super) monotonic: Duration,
}

/// Eligibility and pods of one node.
pub(super) struct NodeState {
    pub(super) should_run: bool,
    pub(super) should_continue_running: bool,
    /// The pods on the node. The first one is the one that the status counts.
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Whether a node should get a pod, and whether a pod there may continue to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Eligibility {
    pub(super) should_run: bool,
    pub(super) should_continue_running: bool,
}

/// The node requirements of the pod template, parsed once and evaluated for every node.
pub(super) struct NodeRequirements {
    /// `None` if the template cannot be parsed; then no node is eligible.
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

    /// Evaluates a node. Its readiness and free capacity do not matter.
    pub(super) fn eligibility(&self, node: &Node) -> Eligibility {
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

/// The cached objects for a reconcile, before adoptions and releases.
pub(super) struct Gathered {
    set: Arc<DaemonSet>,
    pods: Claimed<Pod>,
    revisions: Claimed<ControllerRevision>,
    /// The eligibility of each node.
    nodes: BTreeMap<InternedStr, Eligibility>,
    now: Now,
}

impl Gathered {
    /// Reads the caches. `None` if the DaemonSet does not exist or has no selector.
    ///
    /// # Errors
    /// If the selector is invalid.
    pub(super) fn gather(
        view: &View<'_>,
        item: &Key,
        comparison_operators: bool,
    ) -> Option<Result<Self, String>> {
        let set = view.get::<DaemonSet>(item)?.clone();
        let matcher = match set.spec.selector.as_ref()?.matcher() {
            Ok(matcher) => matcher,
            Err(error) => return Some(Err(error.to_string())),
        };
        let table = view.store::<ControllerRevision>();
        let revisions = claim(&*set, &matcher, controlled_by_or_orphans(table, &*set));
        let table = view.store::<Pod>();
        let pods = claim(&*set, &matcher, controlled_by_or_orphans(table, &*set));
        let requirements = NodeRequirements::of(&set, comparison_operators);
        let evaluate =
            |node: &Arc<Node>| (InternedStr::from(&*node.meta.key.name), requirements.eligibility(node));
        let nodes = view.all::<Node>().map(evaluate).collect();
        Some(Ok(Self { pods, revisions, nodes, now: view.now(), set }))
    }

    /// Adopts and releases revisions, then pods.
    ///
    /// # Errors
    /// If one of the writes fails; then nothing else is decided.
    pub(super) async fn claim(self, cx: &mut Context<'_>) -> Result<Inputs, ReconcileError> {
        let revisions = self.revisions.apply(cx).await?;
        let pods = self.pods.apply(cx).await?;
        Ok(Inputs::of(self.set, pods, revisions, self.nodes, self.now))
    }
}

impl Inputs {
    /// Assigns pods to nodes. Finished pods that are terminating are ignored.
    pub(super) fn of(
        set: Arc<DaemonSet>,
        pods: Vec<Arc<Pod>>,
        revisions: Vec<Arc<ControllerRevision>>,
        nodes: BTreeMap<InternedStr, Eligibility>,
        Now { wall: now, monotonic, .. }: Now,
    ) -> Self {
        let state = |(name, eligibility): (InternedStr, Eligibility)| {
            let Eligibility { should_run, should_continue_running } = eligibility;
            (name, NodeState { should_run, should_continue_running, pods: Vec::new() })
        };
        let mut nodes: BTreeMap<InternedStr, NodeState> = nodes.into_iter().map(state).collect();
        let mut pods_on_missing_nodes = Vec::new();
        for pod in pods.iter().filter(|pod| !(pod.is_terminal() && pod.is_terminating())) {
            let Some(target) = pod.target_node() else { continue };
            match nodes.get_mut(target) {
                Some(state) => state.pods.push(pod.clone()),
                None => pods_on_missing_nodes.push(pod.clone()),
            }
        }
        for state in nodes.values_mut() {
            state.pods.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
        }
        Self { set, pods, revisions, nodes, pods_on_missing_nodes, now, monotonic }
    }

    /// The number of nodes that should have a pod.
    pub(super) fn desired(&self) -> i32 {
        i32::try_from(self.nodes.values().filter(|state| state.should_run).count()).unwrap_or(i32::MAX)
    }

    /// Whether a pod has been ready for minReadySeconds.
    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    /// maxSurge: how many of the desired nodes may have two pods during a rollout.
    pub(super) fn max_surge(&self, desired: i32) -> i32 {
        self.scaled_bound(desired, |rolling| rolling.max_surge.as_ref())
    }

    /// maxUnavailable: how many of the desired nodes may be without an available pod during a rollout. If
    /// maxUnavailable and maxSurge are both zero it is one; otherwise the rollout could not proceed.
    pub(super) fn max_unavailable(&self, desired: i32) -> i32 {
        let unavailable = self.scaled_bound(desired, |rolling| rolling.max_unavailable.as_ref());
        if desired > 0 && unavailable == 0 && self.max_surge(desired) == 0 { 1 } else { unavailable }
    }

    fn scaled_bound(&self, desired: i32, which: fn(&RollingUpdateDaemonSet) -> Option<&IntOrString>) -> i32 {
        let strategy = &self.set.spec.update_strategy;
        let rolling = strategy.rolling_update.as_ref().filter(|_| strategy.r#type == "RollingUpdate");
        let number = rolling.and_then(which);
        number.and_then(|number| number.scaled(desired, Rounding::Up)).unwrap_or(0).max(0)
    }
}

/// Sorts bound pods first, then by creation time and name.
fn sort_key(pod: &Pod) -> (bool, Option<Time>, &str) {
    (pod.node_name.is_empty(), pod.meta.creation_timestamp, &pod.meta.key.name)
}
