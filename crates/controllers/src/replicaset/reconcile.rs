//! One turn of one set: settle whose pods are whose, make or delete some, tell how many there are.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use keleustes_objects::{InternedStr, Pod, Time};
use keleustes_plan::{
    BoxFuture, Context, Item, Outcome, ReconcileError, Reconciler, Requeue, StatusUrgency, View,
};

use super::{ReplicaSetOptions, Replicated, scale, status};
use crate::workloads::adoption::{Claimed, claim};
use crate::workloads::availability::requeue_when_available;
use crate::workloads::enqueue::HasSelector;
use crate::workloads::owners::{controlled_by, orphans};
use crate::workloads::status_urgency::changed_anything;

/// The most pods that one turn makes or deletes.
const BURST_REPLICAS: usize = 500;

/// What a turn is about.
pub(super) struct Inputs<R> {
    pub(super) set: Arc<R>,
    /// Its active pods, those about to be adopted among them.
    pub(super) pods: Vec<Arc<Pod>>,
    /// How many of its pods are on their way out.
    pub(super) terminating: i32,
    /// How many active pods of the set's family are on each node.
    pub(super) active_pods_per_node: BTreeMap<InternedStr, usize>,
    pub(super) now: Time,
}

impl<R: Replicated> Inputs<R> {
    /// How many pods there are too many; negative if there are too few.
    pub(super) fn surplus(&self) -> i64 {
        let existing = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        existing - i64::from(self.set.replicas())
    }

    /// How many pods a turn may make or delete for it.
    pub(super) fn burst_limited_diff(&self) -> usize {
        usize::try_from(self.surplus().unsigned_abs()).unwrap_or(usize::MAX).min(BURST_REPLICAS)
    }

    /// The facts, and the claims that are to be settled first.
    fn gather(view: &View<'_>, item: &Item) -> Option<(Self, Claimed<Pod>)> {
        let set = view.get::<R>(item)?.clone();
        let (pods, meta) = (view.store::<Pod>(), set.meta());
        let selector = set.selector()?;
        let own = controlled_by(pods, &meta.uid);
        let terminating = own.filter(|pod| pod.is_terminating() && !pod.is_terminal());
        let terminating = terminating.filter(|pod| selector.matches(&pod.meta.labels)).count();
        let candidates = controlled_by(pods, &meta.uid).chain(orphans(pods, &meta.key.namespace));
        let claimed = claim(&*set, &selector, candidates.filter(|pod| pod.is_active()));
        let terminating = i32::try_from(terminating).unwrap_or(i32::MAX);
        let (now, pods) = (view.now().wall, claimed.owned.clone());
        let mut inputs = Self { set, pods, terminating, active_pods_per_node: BTreeMap::new(), now };
        // Who deletes all of them does not choose.
        if inputs.surplus() > 0 && inputs.burst_limited_diff() < inputs.pods.len() {
            inputs.active_pods_per_node = active_pods_per_node(&*inputs.set, view);
        }
        Some((inputs, claimed))
    }
}

/// How many active pods of the family are on each node.
fn active_pods_per_node<R: Replicated>(set: &R, view: &View<'_>) -> BTreeMap<InternedStr, usize> {
    let selectors: Vec<_> =
        set.related_replica_sets(view).into_iter().filter_map(HasSelector::selector).collect();
    let mut active_pods_per_node = BTreeMap::new();
    for pod in view.in_namespace::<Pod>(&set.key().namespace).filter(|pod| pod.is_active()) {
        if selectors.iter().any(|selector| selector.matches(&pod.meta.labels)) {
            *active_pods_per_node.entry(pod.node_name.clone()).or_default() += 1;
        }
    }
    active_pods_per_node
}

/// Works on sets of one kind.
pub(super) struct ReplicaSetReconciler<R> {
    options: ReplicaSetOptions,
    kind: PhantomData<fn() -> R>,
}

impl<R: Replicated> ReplicaSetReconciler<R> {
    pub(super) fn new(options: ReplicaSetOptions) -> Self {
        Self { options, kind: PhantomData }
    }

    async fn reconcile_key(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let Some((mut inputs, claimed)) = cx.gather(|view| Inputs::<R>::gather(view, item)) else {
            return Ok(Requeue::Forget);
        };
        inputs.pods = claimed.apply(cx).await?;
        let scaled = cx.apply(scale::plan(&inputs, &self.options)).await;
        let failed = scaled.outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Failed(failure) if inputs.surplus() > 0 => {
                Some(format!("unable to delete pods: {}", failure.message))
            }
            Outcome::Failed(failure) => Some(failure.message.clone()),
            _ => None,
        });
        // A plan that could not even be made has a complaint and no outcomes.
        let failed = failed.or_else(|| scaled.error.as_ref().map(|retry| retry.because.clone()));
        let counts = status::of(&inputs, failed.as_deref(), &self.options);
        let unavailable = counts.ready_replicas != counts.available_replicas;
        // A turn that failed comes again ever later; what it found out must not wait for that.
        let status_urgency = match &scaled.error {
            Some(_) => StatusUrgency::Immediate,
            None => status::status_urgency(&*inputs.set, &counts, changed_anything(&scaled)),
        };
        let status_written = cx.apply(status::plan(&*inputs.set, &counts, status_urgency)).await;
        // What was not done matters more than what was not said.
        scaled.all_done()?;
        status_written.all_done()?;
        Ok(if unavailable {
            requeue_when_available(&inputs.pods, inputs.set.min_ready_seconds(), inputs.now)
        } else {
            Requeue::Forget
        })
    }
}

impl<R: Replicated> Reconciler for ReplicaSetReconciler<R> {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.reconcile_key(cx, item))
    }
}
