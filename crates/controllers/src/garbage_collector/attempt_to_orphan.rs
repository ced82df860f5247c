//! Reconciles `attempt_to_orphan`: removes an owner from the ownerReferences of its dependents, then removes
//! its finalizer `orphan`.

use keleustes_plan::{Context, Memory, Plan, ReconcileError, Reconciler, Requeue};

use super::graph::ORPHAN;
use super::lookup::resolve_target;
use super::references::{OwnerReferencesPatch, without_finalizer};
use super::{Graph, NodeItem};

/// The reconciler of the `attempt_to_orphan` queue.
pub(super) struct AttemptToOrphan {
    pub(super) memory: Memory<Graph>,
}

impl Reconciler<NodeItem> for AttemptToOrphan {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &NodeItem) -> Result<Requeue, ReconcileError> {
        let uid = &item.uid;
        let known = self.memory.with(|graph| Some((graph.node(uid)?, graph.dependents(uid))));
        let Some((owner, dependents)) = known else { return Ok(Requeue::Forget) };
        let (mut patches, mut unresolved) = (Vec::new(), None);
        for dependent in dependents {
            match resolve_target(cx, &dependent.identity).await {
                Ok(Some(target)) => patches.push(OwnerReferencesPatch::remove_owners(
                    &target,
                    std::slice::from_ref(uid),
                    "its owner is deleted with propagationPolicy Orphan",
                )),
                // A namespaced kind without a namespace cannot be addressed, so there is nothing to patch.
                Ok(None) => {}
                // The others are orphaned meanwhile.
                Err(error) => unresolved = unresolved.or(Some(error)),
            }
        }
        // All dependents are patched before the finalizer is removed: once the owner is deleted, the
        // remaining dependents would be garbage collected.
        OwnerReferencesPatch::send(patches, cx, true).await?;
        if let Some(error) = unresolved {
            return Err(error);
        }
        if let Some(target) = resolve_target(cx, &owner.identity).await? {
            let write = without_finalizer(&target, ORPHAN, "all dependents are orphaned");
            cx.apply(Plan::of(write)).await.all_done()?;
        }
        Ok(Requeue::Forget)
    }
}
