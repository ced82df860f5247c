//! Reconcile, the shape of every controller: gather inputs from a view, decide, apply; once or several times.

use std::future::Future;

use crate::{BoxFuture, Context, Item, Plan, ReconcileError, Requeue, View};

/// Reconciles the items of a loop.
pub trait Reconciler: Send + Sync {
    /// Reconciles one item: gathers inputs from the caches, decides a plan without side effects and applies it, as
    /// often as a decision depends on the outcome of an earlier one.
    fn reconcile(
        &self,
        cx: &mut Context<'_>,
        item: &Item,
    ) -> impl Future<Output = Result<Requeue, ReconcileError>> + Send;
}

/// A [`Reconciler`] with its type erased.
pub trait AnyReconciler: Send + Sync {
    /// See [`Reconciler::reconcile`].
    fn reconcile_boxed<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>>;
}

impl<R: Reconciler> AnyReconciler for R {
    fn reconcile_boxed<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.reconcile(cx, item))
    }
}

/// The short form: one decision per item, from the caches alone.
pub(crate) struct SingleDecision<F>(pub(crate) F);

impl<F: Fn(&View<'_>, &Item) -> Plan + Send + Sync> Reconciler for SingleDecision<F> {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let plan = cx.gather(|view| (self.0)(view, item));
        let requeue = plan.requeue_delay().map_or(Requeue::Forget, Requeue::After);
        cx.apply(plan).await.all_done().map(|()| requeue)
    }
}
