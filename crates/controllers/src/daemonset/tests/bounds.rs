//! Properties: from any state, maxUnavailable and maxSurge are respected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Time};
use keleustes_plan::Now;
use proptest::prelude::*;

use super::*;
use crate::daemonset::inputs::{Eligibility, Inputs};

/// The inputs of a DaemonSet with these nodes: name, whether the node should run a pod, and its pods.
pub(super) fn inputs(set: DaemonSet, nodes: &[(&str, bool, Vec<Value>)]) -> Inputs {
    let eligibility = |(name, should_run, _): &(&str, bool, Vec<Value>)| {
        (InternedStr::from(*name), Eligibility { should_run: *should_run, should_continue_running: true })
    };
    let pods = nodes.iter().flat_map(|(_, _, pods)| pods);
    let pods = pods.map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap())).collect();
    let now = Now {
        wall: Time::from_unix_seconds(1_800_000_000),
        wall_subsecond_nanoseconds: 0,
        monotonic: Duration::from_secs(1000),
    };
    let eligibility: BTreeMap<_, _> = nodes.iter().map(eligibility).collect();
    Inputs::of(Arc::new(set), pods, Vec::new(), eligibility, now)
}

/// The state of one pod.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    new: bool,
    ready: bool,
    terminating: bool,
}

impl State {
    fn is_available(self) -> bool {
        self.ready && !self.terminating
    }
}

/// The pods of one node.
type Pods = Vec<State>;

fn pods_of(at: usize, pods: &Pods) -> impl Iterator<Item = Value> {
    let node = format!("n{at}");
    pods.iter().enumerate().map(move |(which, state)| {
        let name = format!("p{at}-{which}");
        let pod = if state.new { pod(&name, &node) } else { old(&name, &node) };
        let pod = if state.ready { pod } else { unready(pod) };
        if state.terminating { terminating(pod) } else { pod }
    })
}

/// Executes the decisions of a reconcile. Created pods are not ready yet.
fn carry_out(actions: &[String], nodes: &mut [Pods]) {
    for action in actions {
        if let Some(node) = action.strip_prefix("create on n") {
            nodes[node.parse::<usize>().unwrap()].push(State { new: true, ready: false, terminating: false });
            continue;
        }
        let (at, which) = action.strip_prefix("delete p").unwrap().split_once('-').unwrap();
        nodes[at.parse::<usize>().unwrap()][which.parse::<usize>().unwrap()].terminating = true;
    }
}

fn all_new(nodes: &[Pods]) -> bool {
    nodes.iter().all(|pods| matches!(pods[..], [State { new: true, ready: true, terminating: false }]))
}

fn step(set: &Value, nodes: &mut [Pods]) {
    let names = (0..nodes.len()).map(|at| node(&format!("n{at}")));
    let pods: Vec<Value> = nodes.iter().enumerate().flat_map(|(at, pods)| pods_of(at, pods)).collect();
    let actions = pod_changes(cluster(set.clone(), names, pods));
    carry_out(&actions, nodes);
}

/// Some pods become ready and some terminating ones are removed, at random.
fn advance_pods(nodes: &mut [Pods], rolls: &mut impl Iterator<Item = bool>) {
    for pods in nodes {
        pods.retain_mut(|state| {
            let pod_changes = rolls.next() == Some(true);
            state.ready |= pod_changes && !state.terminating;
            !(pod_changes && state.terminating)
        });
    }
}

/// Rolls a DaemonSet from outdated pods to updated ones, and checks the nodes after every reconcile.
fn roll_out(
    set: &Value,
    size: usize,
    rolls: Vec<bool>,
    holds: impl Fn(&[Pods]) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut nodes = vec![vec![State { new: false, ready: true, terminating: false }]; size];
    let mut rolls = rolls.into_iter().chain(std::iter::repeat(true));
    let mut reconciles = 0;
    while !all_new(&nodes) {
        reconciles += 1;
        prop_assert!(reconciles < 500, "the rollout completes");
        step(set, &mut nodes);
        holds(&nodes)?;
        advance_pods(&mut nodes, &mut rolls);
    }
    Ok(())
}

/// The number of nodes with two pods that are not terminating.
fn doubled(nodes: &[Pods]) -> usize {
    nodes.iter().filter(|pods| pods.iter().filter(|pod| !pod.terminating).count() > 1).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Without surge, at most maxUnavailable nodes have no available pod, and no node has two pods.
    #[test]
    fn max_unavailable_is_respected_without_surge(
        (size, most) in (1..7_usize, 1..4_usize),
        rolls in prop::collection::vec(any::<bool>(), 200),
    ) {
        roll_out(&allowing(most, 0), size, rolls, |nodes| {
            let without = nodes.iter().filter(|pods| !pods.iter().any(|pod| pod.is_available())).count();
            prop_assert!(without <= most, "{} of {}: {:?}", without, most, nodes);
            prop_assert_eq!(doubled(nodes), 0);
            Ok(())
        })?;
    }

    /// With surge, at most maxSurge nodes have two pods, and every node has an available pod.
    #[test]
    fn max_surge_is_respected_and_every_node_has_an_available_pod(
        (size, most) in (1..7_usize, 1..4_usize),
        rolls in prop::collection::vec(any::<bool>(), 200),
    ) {
        roll_out(&allowing(0, most), size, rolls, |nodes| {
            prop_assert!(doubled(nodes) <= most, "{:?}", nodes);
            prop_assert!(nodes.iter().all(|pods| pods.iter().any(|pod| pod.is_available())), "{:?}", nodes);
            Ok(())
        })?;
    }

    /// From any state, one reconcile deletes no available pod beyond maxUnavailable, and creates no pod beyond
    /// maxSurge.
    #[test]
    fn one_reconcile_respects_the_bounds_from_any_state(
        mut nodes in prop::collection::vec(any_pods(), 1..7),
        (unavailable, surge) in (0..4_usize, 0..3_usize),
    ) {
        let set = allowing(unavailable, surge);
        if surge == 0 {
            // Of two pods the oldest stays, whether it is available or not.
            nodes.iter_mut().for_each(keep_one_pod);
        }
        let most = if surge == 0 { unavailable.max(1) } else { 0 };
        let lacking = |nodes: &[Pods]| {
            nodes.iter().filter(|pods| !pods.iter().any(|pod| pod.is_available())).count()
        };
        let mut after = nodes.clone();
        step(&set, &mut after);
        prop_assert!(lacking(&after) <= lacking(&nodes).max(most), "{:?} to {:?}", nodes, after);
        // Nodes that get a second pod beside an available one.
        let surged = nodes.iter().zip(&after).filter(|(before, after)| {
            after.len() > before.len() && before.iter().any(|pod| pod.is_available())
        });
        prop_assert!(surged.count() <= surge);
    }
}

fn keep_one_pod(pods: &mut Pods) {
    let mut staying = 0;
    pods.retain(|pod| {
        staying += usize::from(!pod.terminating);
        pod.terminating || staying == 1
    });
}

/// Up to one old and one new pod, in any state, and possibly a terminating one.
fn any_pods() -> impl Strategy<Value = Pods> {
    let old =
        prop::option::of(any::<bool>().prop_map(|ready| State { new: false, ready, terminating: false }));
    let new =
        prop::option::of(any::<bool>().prop_map(|ready| State { new: true, ready, terminating: false }));
    let terminating =
        prop::option::of(any::<bool>().prop_map(|new| State { new, ready: true, terminating: true }));
    (old, new, terminating)
        .prop_map(|(old, new, terminating)| [old, new, terminating].into_iter().flatten().collect())
}
