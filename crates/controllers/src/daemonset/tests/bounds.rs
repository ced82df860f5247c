//! Whatever state nodes are in, no more of them are without a pod, or have two, than may be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Time};
use keleustes_plan::Now;
use proptest::prelude::*;

use super::*;
use crate::daemonset::inputs::{Eligibility, Inputs};

/// The facts of a DaemonSet with these nodes: their names, whether they are to have a pod, and what they have.
pub(super) fn facts(set: DaemonSet, nodes: &[(&str, bool, Vec<Value>)]) -> Inputs {
    let judged = |(name, should_run, _): &(&str, bool, Vec<Value>)| {
        (InternedStr::from(*name), Eligibility { should_run: *should_run, should_continue_running: true })
    };
    let pods = nodes.iter().flat_map(|(_, _, pods)| pods);
    let pods = pods.map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap())).collect();
    let now = Now { wall: Time::from_unix_seconds(1_800_000_000), monotonic: Duration::from_secs(1000) };
    let judged: BTreeMap<_, _> = nodes.iter().map(judged).collect();
    Inputs::of(Arc::new(set), pods, Vec::new(), judged, now)
}

/// How one pod of a node is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    new: bool,
    well: bool,
    going: bool,
}

impl State {
    fn serves(self) -> bool {
        self.well && !self.going
    }
}

/// The pods of one node.
type Pods = Vec<State>;

fn pods_of(at: usize, pods: &Pods) -> impl Iterator<Item = Value> {
    let node = format!("n{at}");
    pods.iter().enumerate().map(move |(which, state)| {
        let name = format!("p{at}-{which}");
        let pod = if state.new { pod(&name, &node) } else { old(&name, &node) };
        let pod = if state.well { pod } else { unready(pod) };
        if state.going { terminating(pod) } else { pod }
    })
}

/// Carries out what a turn decided. Pods that are made are not ready yet.
fn carry_out(actions: &[String], nodes: &mut [Pods]) {
    for action in actions {
        if let Some(node) = action.strip_prefix("create on n") {
            nodes[node.parse::<usize>().unwrap()].push(State { new: true, well: false, going: false });
            continue;
        }
        let (at, which) = action.strip_prefix("delete p").unwrap().split_once('-').unwrap();
        nodes[at.parse::<usize>().unwrap()][which.parse::<usize>().unwrap()].going = true;
    }
}

fn all_new(nodes: &[Pods]) -> bool {
    nodes.iter().all(|pods| matches!(pods[..], [State { new: true, well: true, going: false }]))
}

fn step(set: &Value, nodes: &mut [Pods]) {
    let names = (0..nodes.len()).map(|at| node(&format!("n{at}")));
    let pods: Vec<Value> = nodes.iter().enumerate().flat_map(|(at, pods)| pods_of(at, pods)).collect();
    let actions = moves(world(set.clone(), names, pods));
    carry_out(&actions, nodes);
}

/// Some pods get ready, some that go are gone, others take their time.
fn let_time_pass(nodes: &mut [Pods], rolls: &mut impl Iterator<Item = bool>) {
    for pods in nodes {
        pods.retain_mut(|state| {
            let moves = rolls.next() == Some(true);
            state.well |= moves && !state.going;
            !(moves && state.going)
        });
    }
}

/// Rolls a DaemonSet from old pods to new ones, turn by turn, and has every turn looked at.
fn roll_out(
    set: &Value,
    size: usize,
    rolls: Vec<bool>,
    holds: impl Fn(&[Pods]) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut nodes = vec![vec![State { new: false, well: true, going: false }]; size];
    let mut rolls = rolls.into_iter().chain(std::iter::repeat(true));
    let mut turns = 0;
    while !all_new(&nodes) {
        turns += 1;
        prop_assert!(turns < 500, "it comes to its end");
        step(set, &mut nodes);
        holds(&nodes)?;
        let_time_pass(&mut nodes, &mut rolls);
    }
    Ok(())
}

/// How many nodes have two pods that stay.
fn doubled(nodes: &[Pods]) -> usize {
    nodes.iter().filter(|pods| pods.iter().filter(|pod| !pod.going).count() > 1).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Without surplus no more nodes are without a pod that serves than may be, and none has two.
    #[test]
    fn no_more_nodes_are_without_than_may_be(
        (size, most) in (1..7_usize, 1..4_usize),
        rolls in prop::collection::vec(any::<bool>(), 200),
    ) {
        roll_out(&allowing(most, 0), size, rolls, |nodes| {
            let without = nodes.iter().filter(|pods| !pods.iter().any(|pod| pod.serves())).count();
            prop_assert!(without <= most, "{} of {}: {:?}", without, most, nodes);
            prop_assert_eq!(doubled(nodes), 0);
            Ok(())
        })?;
    }

    /// With surplus no more nodes have two than may have, and none is ever without a pod that serves.
    #[test]
    fn no_more_nodes_have_two_than_may_have(
        (size, most) in (1..7_usize, 1..4_usize),
        rolls in prop::collection::vec(any::<bool>(), 200),
    ) {
        roll_out(&allowing(0, most), size, rolls, |nodes| {
            prop_assert!(doubled(nodes) <= most, "{:?}", nodes);
            prop_assert!(nodes.iter().all(|pods| pods.iter().any(|pod| pod.serves())), "{:?}", nodes);
            Ok(())
        })?;
    }

    /// From any state whatsoever, a step takes no pod that serves beyond what may be missing, and adds none
    /// beyond what may be too many.
    #[test]
    fn one_step_stays_within_the_bounds_from_any_state(
        mut nodes in prop::collection::vec(any_pods(), 1..7),
        (unavailable, surge) in (0..4_usize, 0..3_usize),
    ) {
        let set = allowing(unavailable, surge);
        if surge == 0 {
            // Of two the senior one stays, and nobody asks which one serves.
            nodes.iter_mut().for_each(only_one_stays);
        }
        let most = if surge == 0 { unavailable.max(1) } else { 0 };
        let lacking = |nodes: &[Pods]| {
            nodes.iter().filter(|pods| !pods.iter().any(|pod| pod.serves())).count()
        };
        let mut after = nodes.clone();
        step(&set, &mut after);
        prop_assert!(lacking(&after) <= lacking(&nodes).max(most), "{:?} to {:?}", nodes, after);
        // Nodes that get a second pod beside one that serves.
        let surged = nodes.iter().zip(&after).filter(|(before, after)| {
            after.len() > before.len() && before.iter().any(|pod| pod.serves())
        });
        prop_assert!(surged.count() <= surge);
    }
}

fn only_one_stays(pods: &mut Pods) {
    let mut staying = 0;
    pods.retain(|pod| {
        staying += usize::from(!pod.going);
        pod.going || staying == 1
    });
}

/// Up to one old and one new pod, in any state, and maybe one that goes.
fn any_pods() -> impl Strategy<Value = Pods> {
    let old = prop::option::of(any::<bool>().prop_map(|well| State { new: false, well, going: false }));
    let new = prop::option::of(any::<bool>().prop_map(|well| State { new: true, well, going: false }));
    let going = prop::option::of(any::<bool>().prop_map(|new| State { new, well: true, going: true }));
    (old, new, going).prop_map(|(old, new, going)| [old, new, going].into_iter().flatten().collect())
}
