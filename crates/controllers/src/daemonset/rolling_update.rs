//! Rolls pods to the current template, within maxUnavailable or maxSurge.

use std::sync::Arc;

use keleustes_objects::Pod;

use super::inputs::{Inputs, NodeState};
use super::manage::DaemonPodChanges;
use super::pods::is_updated;

const OUTDATED: &str = "the pod is outdated";

/// The pods of a node that are not terminating.
struct NodePods<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> NodePods<'a> {
    /// `None` if two pods are updated or two are outdated, which `manage` resolves first.
    fn of(inputs: &Inputs, state: &'a NodeState, hash: &str) -> Option<Self> {
        let mut pair = Self { new: None, old: None };
        for pod in state.pods.iter().filter(|pod| !pod.is_terminating()) {
            let slot = if is_updated(&inputs.set, pod, hash) { &mut pair.new } else { &mut pair.old };
            if slot.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

/// The next step of the rolling update.
pub(super) fn pod_changes(inputs: &Inputs, hash: &str) -> DaemonPodChanges {
    if inputs.set.spec.update_strategy.r#type != "RollingUpdate" {
        return DaemonPodChanges::default();
    }
    let desired = inputs.desired();
    match inputs.max_surge(desired) {
        0 => delete_old_pods(inputs, hash, inputs.max_unavailable(desired)),
        max_surge => create_new_pods(inputs, hash, max_surge, desired),
    }
}

/// Deletes outdated pods: all unavailable ones, and available ones within maxUnavailable.
fn delete_old_pods(inputs: &Inputs, hash: &str, max_unavailable: i32) -> DaemonPodChanges {
    let mut changes = DaemonPodChanges::default();
    let (mut unavailable, mut candidates) = (0, Vec::new());
    for state in inputs.nodes.values().filter(|state| state.should_run || !state.pods.is_empty()) {
        match NodePods::of(inputs, state, hash) {
            Some(NodePods { new: Some(new), old: None }) if inputs.is_available(new) => {}
            Some(NodePods { new: None, old: Some(old) }) if inputs.is_available(old) => candidates.push(old),
            Some(NodePods { new: None, old: Some(old) }) => {
                unavailable += 1;
                changes.pods_to_delete.push((old.clone(), OUTDATED));
            }
            _ => unavailable += 1,
        }
    }
    let budget = usize::try_from(max_unavailable - unavailable).unwrap_or(0);
    changes.pods_to_delete.extend(candidates.into_iter().take(budget).map(|pod| (pod.clone(), OUTDATED)));
    changes
}

/// Creates updated pods before outdated ones are deleted: on all nodes whose outdated pod is unavailable,
/// and on others within maxSurge.
fn create_new_pods(inputs: &Inputs, hash: &str, max_surge: i32, desired: i32) -> DaemonPodChanges {
    let mut changes = DaemonPodChanges::default();
    let (mut surging, mut available) = (0, 0);
    let (mut candidates, mut misscheduled) = (Vec::new(), Vec::new());
    for (node, state) in &inputs.nodes {
        let Some(pair) = NodePods::of(inputs, state, hash) else {
            surging += 1;
            continue;
        };
        let counted = pair.old.or(pair.new);
        available += i32::from(counted.is_some_and(|pod| inputs.is_available(pod)));
        match pair {
            NodePods { new: None, old: Some(old) } => match (inputs.is_available(old), state.should_run) {
                (false, true) => changes.nodes_needing_pods.push(node.clone()),
                (false, false) => changes.pods_to_delete.push((old.clone(), OUTDATED)),
                (true, true) => candidates.push(node.clone()),
                (true, false) => misscheduled.push(old),
            },
            NodePods { new: Some(new), old: Some(old) } if inputs.is_available(new) => {
                changes.pods_to_delete.push((old.clone(), OUTDATED));
            }
            NodePods { new: Some(_), old: Some(_) } => surging += 1,
            NodePods { old: None, .. } => {}
        }
    }
    let budget = usize::try_from(max_surge - surging).unwrap_or(0);
    changes.nodes_needing_pods.extend(candidates.into_iter().take(budget));
    let spare = usize::try_from(available - desired).unwrap_or(0);
    changes.pods_to_delete.extend(misscheduled.into_iter().take(spare).map(|pod| (pod.clone(), OUTDATED)));
    changes
}
