//! Moves nodes to the newest template, as many at once as may be without a pod, or with two.

use std::sync::Arc;

use keleustes_objects::Pod;

use super::inputs::{Inputs, NodeState};
use super::manage::DaemonPodChanges;
use super::pods::is_new;

const REPLACED: &str = "it is of an older template";

/// The pods of a node that are not on their way out.
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> Pair<'a> {
    /// Nothing if there are two of a kind, which must be settled first.
    fn of(facts: &Inputs, place: &'a NodeState, hash: &str) -> Option<Self> {
        let mut pair = Self { new: None, old: None };
        for pod in place.pods.iter().filter(|pod| !pod.is_terminating()) {
            let slot = if is_new(&facts.set, pod, hash) { &mut pair.new } else { &mut pair.old };
            if slot.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

/// The next step.
pub(super) fn work(facts: &Inputs, hash: &str) -> DaemonPodChanges {
    if facts.set.spec.update_strategy.r#type != "RollingUpdate" {
        return DaemonPodChanges::default();
    }
    let desired = facts.desired();
    match facts.surge(desired) {
        0 => replace(facts, hash, facts.unavailable_max(desired)),
        surge => overlap(facts, hash, surge, desired),
    }
}

/// Old pods go first. Those that serve nobody all go; of the others as many as may be missing.
fn replace(facts: &Inputs, hash: &str, unavailable_max: i32) -> DaemonPodChanges {
    let mut work = DaemonPodChanges::default();
    let (mut unavailable, mut candidates) = (0, Vec::new());
    for place in facts.nodes.values().filter(|place| place.should_run || !place.pods.is_empty()) {
        match Pair::of(facts, place, hash) {
            Some(Pair { new: Some(new), old: None }) if facts.is_available(new) => {}
            Some(Pair { new: None, old: Some(old) }) if facts.is_available(old) => candidates.push(old),
            Some(Pair { new: None, old: Some(old) }) => {
                unavailable += 1;
                work.delete.push((old.clone(), REPLACED));
            }
            _ => unavailable += 1,
        }
    }
    let room = usize::try_from(unavailable_max - unavailable).unwrap_or(0);
    work.delete.extend(candidates.into_iter().take(room).map(|pod| (pod.clone(), REPLACED)));
    work
}

/// New pods come first. Where the old one serves nobody one comes at once; of the other nodes as many get a
/// second pod as may have two.
fn overlap(facts: &Inputs, hash: &str, surge_max: i32, desired: i32) -> DaemonPodChanges {
    let mut work = DaemonPodChanges::default();
    let (mut surging, mut available) = (0, 0);
    let (mut candidates, mut unwanted) = (Vec::new(), Vec::new());
    for (node, place) in &facts.nodes {
        let Some(pair) = Pair::of(facts, place, hash) else {
            surging += 1;
            continue;
        };
        let counted = pair.old.or(pair.new);
        available += i32::from(counted.is_some_and(|pod| facts.is_available(pod)));
        match pair {
            Pair { new: None, old: Some(old) } => match (facts.is_available(old), place.should_run) {
                (false, true) => work.nodes_needing_pods.push(node.clone()),
                (false, false) => work.delete.push((old.clone(), REPLACED)),
                (true, true) => candidates.push(node.clone()),
                (true, false) => unwanted.push(old),
            },
            Pair { new: Some(new), old: Some(old) } if facts.is_available(new) => {
                work.delete.push((old.clone(), REPLACED));
            }
            Pair { new: Some(_), old: Some(_) } => surging += 1,
            Pair { old: None, .. } => {}
        }
    }
    let room = usize::try_from(surge_max - surging).unwrap_or(0);
    work.nodes_needing_pods.extend(candidates.into_iter().take(room));
    let spare = usize::try_from(available - desired).unwrap_or(0);
    work.delete.extend(unwanted.into_iter().take(spare).map(|pod| (pod.clone(), REPLACED)));
    work
}
