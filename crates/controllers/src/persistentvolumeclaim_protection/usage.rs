//! Whether a pod uses a claim: for its deletion a scheduled pod counts, for the `Unused` condition one that runs or will.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{ArcStr, PersistentVolumeClaim, Pod};

use crate::pods_by_claim::{ephemeral_claim_name, is_controlled_by};

/// What the answer is for. The state of a claim decides which of the two is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Removing the finalizer. An unscheduled pod does not count: kubelets start no pod whose claim is terminating.
    Deletion,
    /// The `Unused` condition. A finished pod does not count.
    Condition,
}

/// Whether a pod of the claim's namespace uses it.
///
/// Parity: `podUsesPVCForDeletion` and `podUsesPVCForUnusedSince`.
pub(super) fn uses(pod: &Pod, claim: &PersistentVolumeClaim, purpose: Purpose) -> bool {
    let name = &claim.meta.key.name;
    let names_it = || pod.persistent_volume_claims().any(|(_, named)| named == name);
    let owns_it = || {
        let volumes = pod.spec.ephemeral_volumes();
        is_controlled_by(claim, pod)
            && volumes.iter().any(|volume| ephemeral_claim_name(pod, volume) == *name)
    };
    match purpose {
        Purpose::Deletion => !pod.node_name.is_empty() && (names_it() || !is_shut_down(pod) && owns_it()),
        Purpose::Condition => !pod.is_terminated() && (names_it() || owns_it()),
    }
}

/// Whether the kubelet is done with the pod, or the pod was force-deleted: it only waits for its own finalizers. One of
/// them may wait for the claim, so a claim that belongs to the pod must not wait for the pod.
fn is_shut_down(pod: &Pod) -> bool {
    pod.is_terminating() && pod.deletion_grace_seconds() == Some(0)
}

/// The pods of a live list, by the claims that they refer to.
pub(super) struct LivePods(BTreeMap<ArcStr, Vec<Arc<Pod>>>);

impl LivePods {
    pub(super) fn of(pods: Vec<Arc<Pod>>) -> Self {
        let mut by_claim: BTreeMap<ArcStr, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in pods {
            pod.used_claims().for_each(|claim| by_claim.entry(claim).or_default().push(pod.clone()));
        }
        Self(by_claim)
    }

    /// Whether one of the pods uses the claim.
    pub(super) fn use_claim(&self, claim: &PersistentVolumeClaim, purpose: Purpose) -> bool {
        let pods = self.0.get(&claim.meta.key.name);
        pods.into_iter().flatten().any(|pod| uses(pod, claim, purpose))
    }
}
