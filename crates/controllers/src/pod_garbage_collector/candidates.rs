//! Selects the pods that are, or may be, garbage.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::taint_keys::OUT_OF_SERVICE;
use keleustes_objects::{InternedStr, Key, Node, Object as _, Pod, PodPhase, Uid};
use keleustes_plan::View;

/// Pods by the state of their node, which is a reason to delete them. No pod is in two of the lists.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Terminating pods on out-of-service nodes.
    pub(super) out_of_service: Vec<Arc<Pod>>,
    /// Pods bound to a node that is not cached.
    pub(super) without_node: Vec<Arc<Pod>>,
    /// Terminating pods that were never bound.
    pub(super) unscheduled: Vec<Arc<Pod>>,
    /// Names of nodes that pods are bound to and that are not cached.
    pub(super) unknown_nodes: BTreeSet<InternedStr>,
}

impl Candidates {
    /// The candidates among all pods but those that were handled already.
    pub(super) fn gather(view: &View<'_>, handled: &[Arc<Pod>]) -> Self {
        let mut candidates = Self::default();
        let handled: BTreeSet<&Uid> = handled.iter().map(|pod| &pod.meta.uid).collect();
        for pod in view.all::<Pod>() {
            let list = if pod.node_name.is_empty() {
                pod.is_terminating().then_some(&mut candidates.unscheduled)
            } else if let Some(node) = view.get::<Node>(&Key::cluster(&*pod.node_name)) {
                (pod.is_terminating() && is_out_of_service(node)).then_some(&mut candidates.out_of_service)
            } else {
                candidates.unknown_nodes.insert(pod.node_name.clone());
                Some(&mut candidates.without_node)
            };
            if let Some(list) = list.filter(|_| !handled.contains(&pod.meta.uid)) {
                list.push(pod.clone());
            }
        }
        candidates
    }
}

/// The terminated pods beyond the threshold, in order of deletion: evicted ones first, then the oldest.
pub(super) fn beyond_threshold(view: &View<'_>, threshold: i32) -> Vec<Arc<Pod>> {
    let threshold = match usize::try_from(threshold) {
        Ok(threshold @ 1..) => threshold,
        _ => return Vec::new(),
    };
    let terminated = || view.all::<Pod>().filter(|pod| is_terminated(pod));
    let count = terminated().count();
    if count <= threshold {
        return Vec::new();
    }
    let mut pods: Vec<Arc<Pod>> = terminated().cloned().collect();
    pods.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
    pods.truncate(count - threshold);
    pods
}

/// The sort key. A pod without creationTimestamp counts as the oldest.
fn sort_key(pod: &Pod) -> impl Ord {
    (!is_evicted(pod), pod.meta.creation_timestamp, pod.meta.key.name.clone(), pod.key().namespace.clone())
}

fn is_evicted(pod: &Pod) -> bool {
    pod.phase == PodPhase::Failed && pod.reason() == "Evicted"
}

fn is_terminated(pod: &Pod) -> bool {
    !matches!(pod.phase, PodPhase::Pending | PodPhase::Running | PodPhase::Unknown)
}

fn is_out_of_service(node: &Node) -> bool {
    !node.is_ready() && node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}
