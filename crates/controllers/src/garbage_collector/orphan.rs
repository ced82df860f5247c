//! Sets the dependents of one owner free, then lets the owner go.

use keleustes_objects::Uid;
use keleustes_plan::{BoxFuture, Context, Item, Memory, Plan, ReconcileError, Reconciler, Requeue};

use super::Graph;
use super::graph::ORPHAN;
use super::places::locate;
use super::references::{Change, without_finalizer};

/// Works on owners that wait for their dependents to be orphaned.
pub(super) struct Orphan {
    pub(super) memory: Memory<Graph>,
}

impl Reconciler for Orphan {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.orphan(cx, item))
    }
}

impl Orphan {
    async fn orphan(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let uid = Uid::from(&*item.key.name);
        let known = self.memory.with(|graph| Some((graph.node(&uid)?, graph.dependents(&uid))));
        let Some((owner, dependents)) = known else { return Ok(Requeue::Forget) };
        let mut changes = Vec::new();
        for dependent in dependents {
            // A dependent that cannot be anywhere cannot be set free either.
            if let Some(place) = locate(cx, &dependent.identity).await? {
                changes.push(Change::removal(&place, std::slice::from_ref(&uid), "its owner sets it free"));
            }
        }
        // All of them, before the owner may go: without its finalizer nobody would know of the others.
        Change::send(changes, cx, true).await?;
        if let Some(place) = locate(cx, &owner.identity).await? {
            let freed = without_finalizer(&place, ORPHAN, "all dependents are free");
            cx.apply(Plan::of(freed)).await.all_done()?;
        }
        Ok(Requeue::Forget)
    }
}
