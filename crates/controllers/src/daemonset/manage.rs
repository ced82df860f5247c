//! Missing and surplus pods on each node, independent of a rollout.

use std::sync::Arc;

use keleustes_objects::{InternedStr, Pod, PodPhase};
use keleustes_plan::{Delay, InvolvedObject, Plan, PlannedEvent};

use super::backoff::FailedPodBackoff;
use super::inputs::{Inputs, NodeState};
use super::pods::{create_pod, has_hash, pod_body};
use crate::workloads::pod_writes;

/// The maximum number of creations, and of deletions, in one reconcile.
const BURST: usize = 250;

/// Pods to create and to delete.
#[derive(Default)]
pub(super) struct DaemonPodChanges {
    pub(super) nodes_needing_pods: Vec<InternedStr>,
    /// Pods to delete, each with the reason.
    pub(super) pods_to_delete: Vec<(Arc<Pod>, &'static str)>,
    events: Vec<PlannedEvent>,
    /// When to requeue because the deletion of a failed pod is backed off.
    pub(super) requeue_after: Option<Delay>,
}

impl DaemonPodChanges {
    /// Whether there is nothing to create or delete.
    pub(super) fn is_none(&self) -> bool {
        self.nodes_needing_pods.is_empty() && self.pods_to_delete.is_empty()
    }

    /// The writes: creations with slow start, then deletions in parallel.
    pub(super) fn plan(self, inputs: &Inputs, hash: &str) -> Plan {
        let set = &*inputs.set;
        let mut plan = Plan::none();
        if !self.nodes_needing_pods.is_empty() {
            let body = match pod_body(set, hash) {
                Ok(body) => body,
                Err(why) => return Plan::error(why),
            };
            let nodes = self.nodes_needing_pods.iter().take(BURST);
            plan.push_slow_start(nodes.map(|node| create_pod(set, &body, node)).collect());
        }
        self.events.into_iter().for_each(|event| plan.record(event));
        let deletions = self.pods_to_delete.iter().take(BURST);
        plan.push_parallel(deletions.map(|(pod, why)| pod_writes::delete(set, pod, why)).collect());
        plan
    }
}

/// Decides for all nodes.
pub(super) fn pod_changes(inputs: &Inputs, hash: &str, backoff: &mut FailedPodBackoff) -> DaemonPodChanges {
    backoff.drop_expired(inputs.monotonic);
    let mut changes = DaemonPodChanges::default();
    let surges = inputs.max_surge(1) > 0;
    for (node, state) in &inputs.nodes {
        if state.should_run && state.pods.is_empty() {
            changes.nodes_needing_pods.push(node.clone());
        } else if state.should_continue_running {
            let running = delete_finished_pods(inputs, (node, state), backoff, &mut changes);
            match surges {
                false => delete_surplus(&running, &mut changes),
                true if running.is_empty() && state.should_run => {
                    changes.nodes_needing_pods.push(node.clone());
                }
                true => delete_surplus_with_surge(inputs, hash, &running, &mut changes),
            }
        } else {
            let not_terminating = state.pods.iter().filter(|pod| !pod.is_terminating());
            changes.pods_to_delete.extend(
                not_terminating.map(|pod| (pod.clone(), "the node is not eligible for a daemon pod")),
            );
        }
    }
    let unbound =
        inputs.pods_on_missing_nodes.iter().filter(|pod| pod.node_name.is_empty() && !pod.is_terminating());
    changes.pods_to_delete.extend(unbound.map(|pod| (pod.clone(), "the target node does not exist")));
    changes
}

/// Deletes finished pods; returns the running ones.
fn delete_finished_pods<'a>(
    inputs: &Inputs,
    (node, state): (&InternedStr, &'a NodeState),
    backoff: &mut FailedPodBackoff,
    changes: &mut DaemonPodChanges,
) -> Vec<&'a Arc<Pod>> {
    let set = &inputs.set;
    let mut running = Vec::new();
    for pod in state.pods.iter().filter(|pod| !pod.is_terminating()) {
        let key = &pod.meta.key;
        match pod.phase {
            PodPhase::Failed => {
                let backoff_key = (set.meta.uid.clone(), set.status.observed_generation, node.clone());
                if let Some(left) = backoff.delay(&backoff_key, inputs.monotonic) {
                    let delay = Delay::of(left, "the backoff of its failed pods");
                    changes.requeue_after =
                        Some(changes.requeue_after.map_or(delay, |earlier| earlier.min(delay)));
                    continue;
                }
                backoff.record_deletion(backoff_key, inputs.monotonic);
                let message = format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                changes.events.push(PlannedEvent::warning(
                    InvolvedObject::of(&**set),
                    "FailedDaemonPod",
                    message,
                ));
                changes.pods_to_delete.push((pod.clone(), "the pod failed"));
            }
            PodPhase::Succeeded => {
                let message =
                    format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
                changes.events.push(PlannedEvent::normal(
                    InvolvedObject::of(&**set),
                    "SucceededDaemonPod",
                    message,
                ));
                changes
                    .pods_to_delete
                    .push((pod.clone(), "the pod succeeded, but daemon pods must keep running"));
            }
            _ => running.push(pod),
        }
    }
    running
}

/// Without maxSurge, only the oldest pod of a node stays.
fn delete_surplus(running: &[&Arc<Pod>], changes: &mut DaemonPodChanges) {
    let surplus = running.iter().skip(1);
    changes.pods_to_delete.extend(surplus.map(|pod| ((*pod).clone(), "the node has another daemon pod")));
}

/// With maxSurge, the oldest updated pod and the oldest outdated pod stay. The outdated one is deleted when
/// the updated one is available or the outdated one is not ready.
fn delete_surplus_with_surge(
    inputs: &Inputs,
    hash: &str,
    running: &[&Arc<Pod>],
    changes: &mut DaemonPodChanges,
) {
    if running.len() < 2 {
        return;
    }
    let new = running.iter().find(|pod| has_hash(pod, hash));
    let old = running.iter().find(|pod| !has_hash(pod, hash));
    let stays = |pod: &&&Arc<Pod>| [new, old].into_iter().flatten().any(|kept| kept.meta.uid == pod.meta.uid);
    let surplus = running.iter().filter(|pod| !stays(pod));
    changes.pods_to_delete.extend(surplus.map(|pod| ((*pod).clone(), "the node has another daemon pod")));
    if let (Some(new), Some(old)) = (new, old)
        && (!old.is_ready() || inputs.is_available(new))
    {
        changes.pods_to_delete.push(((*old).clone(), "an updated pod replaces it"));
    }
}
