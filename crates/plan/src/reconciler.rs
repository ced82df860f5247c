//! Reconcile, the shape of every controller: gather inputs from a view, decide, apply; once or several times.

use std::future::Future;
use std::marker::PhantomData;

use keleustes_objects::Key;

use crate::{BoxFuture, Context, Item, LoopItem, Plan, ReconcileError, Requeue, View};

/// Reconciles the items of a loop, which are keys of objects unless another type is named.
pub trait Reconciler<I: LoopItem = Key>: Send + Sync {
    /// Reconciles one item: gathers inputs from the caches, decides a plan without side effects and applies it, as
    /// often as a decision depends on the outcome of an earlier one.
    fn reconcile(
        &self,
        cx: &mut Context<'_>,
        item: &I,
    ) -> impl Future<Output = Result<Requeue, ReconcileError>> + Send;
}

/// A [`Reconciler`] with its types erased.
pub trait AnyReconciler: Send + Sync {
    /// Whether the item has the type that the loop is keyed by.
    fn accepts(&self, item: &Item) -> bool;

    /// See [`Reconciler::reconcile`].
    ///
    /// # Panics
    /// The future panics if the item has another type.
    fn reconcile_boxed<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>>;
}

/// The reconciler of a queue, which gives it the items in their type.
pub(crate) struct TypedReconciler<R, I> {
    queue: &'static str,
    reconciler: R,
    items: PhantomData<fn() -> I>,
}

impl<R, I> TypedReconciler<R, I> {
    pub(crate) fn new(queue: &'static str, reconciler: R) -> Self {
        Self { queue, reconciler, items: PhantomData }
    }
}

impl<R: Reconciler<I>, I: LoopItem> AnyReconciler for TypedReconciler<R, I> {
    fn accepts(&self, item: &Item) -> bool {
        I::from_item(item).is_some()
    }

    fn reconcile_boxed<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move {
            let Some(value) = I::from_item(item) else {
                let (queue, found, known) = (self.queue, item.type_name(), std::any::type_name::<I>());
                panic!("the queue {queue} contains {item}, a {found}, but its loop reconciles {known}");
            };
            self.reconciler.reconcile(cx, &value).await
        })
    }
}

/// The short form: one decision per item, from the caches alone.
pub(crate) struct SingleDecision<F>(pub(crate) F);

impl<I: LoopItem, F: Fn(&View<'_>, &I) -> Plan + Send + Sync> Reconciler<I> for SingleDecision<F> {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &I) -> Result<Requeue, ReconcileError> {
        let plan = cx.gather(|view| (self.0)(view, item));
        let requeue = plan.requeue_delay().map_or(Requeue::Forget, Requeue::After);
        cx.apply(plan).await.all_done().map(|()| requeue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::RehearsalCluster;
    use crate::{Loop, ObjectOr, Pass};

    #[test]
    #[should_panic(
        expected = "the queue passes contains a/b, a keleustes_objects::key::Key, but its loop reconciles keleustes_plan::item::Pass"
    )]
    fn item_of_another_type_is_not_reconciled() {
        let a_loop = Loop::deciding("passes", |_: &View<'_>, _: &Pass| Plan::none());
        let _ = RehearsalCluster::of(&a_loop).reconcile(&a_loop, Key::namespaced("a", "b"));
    }

    #[test]
    fn loop_gets_the_items_of_its_own_types() {
        let decide = |_: &View<'_>, item: &ObjectOr<Pass>| Plan::error(format!("{item:?}"));
        let a_loop = Loop::deciding("both", decide);
        let mut cluster = RehearsalCluster::of(&a_loop);
        assert_eq!(cluster.reconcile(&a_loop, Key::namespaced("a", "b")), "retry: Object(a/b)\n");
        assert_eq!(cluster.reconcile(&a_loop, Pass), "retry: Other(Pass)\n");
        let keys = Loop::deciding("keys", |_: &View<'_>, _: &Key| Plan::none());
        let accepted = |a_loop: &Loop| {
            [Key::cluster("a").into(), Pass.into()].map(|item| a_loop.reconciler.accepts(&item))
        };
        assert_eq!((accepted(&a_loop), accepted(&keys)), ([true, true], [true, false]));
    }
}
