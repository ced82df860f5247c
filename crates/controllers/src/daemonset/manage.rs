//! What is missing and what is too much on each node, whatever the template.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Pod, PodPhase};
use keleustes_plan::{InvolvedObject, Plan, PlannedEvent};

use super::backoff::FailedPodBackoff;
use super::inputs::{Inputs, NodeState};
use super::pods::{body, creation, has_hash};
use crate::workloads::pod_writes;

/// The most pods that are made, and the most that are deleted, at once.
const BURST: usize = 250;

/// Pods to make and pods to delete.
#[derive(Default)]
pub(super) struct DaemonPodChanges {
    /// Nodes that get a pod.
    pub(super) nodes_needing_pods: Vec<InternedStr>,
    /// Pods that go, with the reason.
    pub(super) delete: Vec<(Arc<Pod>, &'static str)>,
    events: Vec<PlannedEvent>,
    /// When to look again because a node must not get its next pod yet.
    pub(super) requeue_after: Option<Duration>,
}

impl DaemonPodChanges {
    /// Whether there is anything to do.
    pub(super) fn is_none(&self) -> bool {
        self.nodes_needing_pods.is_empty() && self.delete.is_empty()
    }

    /// The writes: creations in growing batches, then deletions at once.
    pub(super) fn plan(self, facts: &Inputs, hash: &str) -> Plan {
        let set = &*facts.set;
        let mut plan = Plan::none();
        if !self.nodes_needing_pods.is_empty() {
            let body = match body(set, hash) {
                Ok(body) => body,
                Err(why) => return Plan::error(why),
            };
            let nodes = self.nodes_needing_pods.iter().take(BURST);
            plan.push_slow_start(nodes.map(|node| creation(set, &body, node)).collect());
        }
        self.events.into_iter().for_each(|event| plan.record(event));
        let deletions = self.delete.iter().take(BURST);
        plan.push_parallel(deletions.map(|(pod, why)| pod_writes::delete(set, pod, why)).collect());
        plan
    }
}

/// What is to be done on all nodes.
pub(super) fn work(facts: &Inputs, hash: &str, kills: &mut FailedPodBackoff) -> DaemonPodChanges {
    let mut work = DaemonPodChanges::default();
    let surges = facts.surge(1) > 0;
    for (node, place) in &facts.nodes {
        if place.should_run && place.pods.is_empty() {
            work.nodes_needing_pods.push(node.clone());
        } else if place.should_continue_running {
            let running = sort_out(facts, (node, place), kills, &mut work);
            match surges {
                false => keep_one(&running, &mut work),
                true if running.is_empty() && place.should_run => work.nodes_needing_pods.push(node.clone()),
                true => keep_two(facts, hash, &running, &mut work),
            }
        } else {
            let staying = place.pods.iter().filter(|pod| !pod.is_terminating());
            work.delete.extend(staying.map(|pod| (pod.clone(), "its node is not to have one")));
        }
    }
    let unbound = facts.astray.iter().filter(|pod| pod.node_name.is_empty() && !pod.is_terminating());
    work.delete.extend(unbound.map(|pod| (pod.clone(), "the node it is for does not exist")));
    work
}

/// Takes out what has ended; what is left runs.
fn sort_out<'a>(
    facts: &Inputs,
    (node, place): (&InternedStr, &'a NodeState),
    kills: &mut FailedPodBackoff,
    work: &mut DaemonPodChanges,
) -> Vec<&'a Arc<Pod>> {
    let set = &facts.set;
    let mut running = Vec::new();
    for pod in place.pods.iter().filter(|pod| !pod.is_terminating()) {
        let key = &pod.meta.key;
        match pod.phase {
            PodPhase::Failed => {
                let place = (set.meta.uid.clone(), set.status.observed_generation, node.clone());
                if let Some(pause) = kills.pause(&place, facts.monotonic) {
                    work.requeue_after = Some(work.requeue_after.map_or(pause, |there| there.min(pause)));
                    continue;
                }
                kills.note(place, facts.monotonic);
                let message = format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                work.events.push(PlannedEvent::warning(
                    InvolvedObject::of(&**set),
                    "FailedDaemonPod",
                    message,
                ));
                work.delete.push((pod.clone(), "it has failed"));
            }
            PodPhase::Succeeded => {
                let message =
                    format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
                work.events.push(PlannedEvent::normal(
                    InvolvedObject::of(&**set),
                    "SucceededDaemonPod",
                    message,
                ));
                work.delete.push((pod.clone(), "it has ended, which a daemon does not"));
            }
            _ => running.push(pod),
        }
    }
    running
}

/// Without surplus, the senior pod stays.
fn keep_one(running: &[&Arc<Pod>], work: &mut DaemonPodChanges) {
    let surplus = running.iter().skip(1);
    work.delete.extend(surplus.map(|pod| ((*pod).clone(), "its node has another one")));
}

/// With surplus, one pod of the newest template and one of an older stay, until the new one can do without
/// the old.
fn keep_two(facts: &Inputs, hash: &str, running: &[&Arc<Pod>], work: &mut DaemonPodChanges) {
    if running.len() < 2 {
        return;
    }
    let new = running.iter().find(|pod| has_hash(pod, hash));
    let old = running.iter().find(|pod| !has_hash(pod, hash));
    let stays = |pod: &&&Arc<Pod>| [new, old].into_iter().flatten().any(|kept| kept.meta.uid == pod.meta.uid);
    let surplus = running.iter().filter(|pod| !stays(pod));
    work.delete.extend(surplus.map(|pod| ((*pod).clone(), "its node has another one")));
    if let (Some(new), Some(old)) = (new, old)
        && (!old.is_ready() || facts.is_available(new))
    {
        work.delete.push(((*old).clone(), "a newer one has taken its place"));
    }
}
