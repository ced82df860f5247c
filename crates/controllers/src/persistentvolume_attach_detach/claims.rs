//! Adds the volumes of pods whose claim has been bound after they were scheduled.

use std::collections::BTreeSet;

use keleustes_objects::{ArcStr, Key, PersistentVolumeClaim};
use keleustes_plan::{Context, Effects, Memory, ReconcileError, Reconciler, Requeue, View};

use super::NODES_QUEUE;
use super::state::State;
use super::volume::NodeName;
use crate::pods_by_claim::pods_of_claim;

/// Reconciles claims.
pub(super) struct ClaimReconciler {
    /// What is known.
    pub(super) state: Memory<State>,
}

impl Reconciler for ClaimReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let changed = cx.gather(|view| self.state.with(|state| add_pods(state, view, item)));
        let mut effects = Effects::default();
        for node in changed {
            effects.enqueue(NODES_QUEUE, Key::cluster(ArcStr::from(node.as_str())));
        }
        cx.effects(effects);
        Ok(Requeue::Forget)
    }
}

/// Parity: syncPVCByKey.
fn add_pods(state: &mut State, view: &View<'_>, claim: &Key) -> BTreeSet<NodeName> {
    let bound = view.get::<PersistentVolumeClaim>(claim);
    if bound.is_none_or(|claim| claim.phase != "Bound" || claim.spec.volume_name.is_empty()) {
        return BTreeSet::new();
    }
    let pods = pods_of_claim(view, claim).filter(|pod| !pod.node_name.is_empty() && !pod.is_terminated());
    pods.filter(|pod| state.add_pod(view, pod)).map(|pod| pod.node_name.clone()).collect()
}
