//! What one look at all pods and nodes finds to be garbage, or likely to be.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::taint_keys::OUT_OF_SERVICE;
use keleustes_objects::{InternedStr, Key, Node, Object as _, Pod, PodPhase, Uid};
use keleustes_plan::View;

/// Pods by the reason for which they may have to go. No pod is in two of the lists.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Surplus of terminated pods, the first to go first.
    pub(super) terminated: Vec<Arc<Pod>>,
    /// Terminating on a node that is out of service.
    pub(super) out_of_service: Vec<Arc<Pod>>,
    /// Bound to a node that is not cached.
    pub(super) without_node: Vec<Arc<Pod>>,
    /// Terminating without ever having been bound.
    pub(super) unscheduled: Vec<Arc<Pod>>,
    /// Names of nodes that pods are bound to and that are not cached.
    pub(super) unknown_nodes: BTreeSet<InternedStr>,
}

impl Candidates {
    pub(super) fn gather(view: &View<'_>, threshold: i32) -> Self {
        let mut suspects = Self { terminated: surplus(view, threshold), ..Self::default() };
        let taken: BTreeSet<Uid> = suspects.terminated.iter().map(|pod| pod.meta.uid.clone()).collect();
        for pod in view.all::<Pod>() {
            let list = if pod.node_name.is_empty() {
                pod.is_terminating().then_some(&mut suspects.unscheduled)
            } else if let Some(node) = view.get::<Node>(&Key::cluster(&*pod.node_name)) {
                (pod.is_terminating() && is_out_of_service(node)).then_some(&mut suspects.out_of_service)
            } else {
                suspects.unknown_nodes.insert(pod.node_name.clone());
                Some(&mut suspects.without_node)
            };
            if let Some(list) = list.filter(|_| !taken.contains(&pod.meta.uid)) {
                list.push(pod.clone());
            }
        }
        suspects
    }
}

/// The terminated pods that are beyond the threshold: evicted ones first, then the oldest.
fn surplus(view: &View<'_>, threshold: i32) -> Vec<Arc<Pod>> {
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
    pods.sort_by(|one, other| rank(one).cmp(&rank(other)));
    pods.truncate(count - threshold);
    pods
}

/// What is sorted by. A pod without a time of creation is the oldest.
fn rank(pod: &Pod) -> impl Ord {
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
