//! Reconciles one ReplicaSet: adopt and release pods, create or delete pods, write the status.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use keleustes_objects::{InternedStr, Key, Pod, Time};
use keleustes_plan::{Context, Outcome, ReconcileError, Reconciler, Requeue, StatusUrgency, View};

use super::{ReplicaSetOptions, Replicated, scale, status};
use crate::workloads::adoption::{Claimed, claim};
use crate::workloads::availability::requeue_when_available;
use crate::workloads::enqueue::HasSelector;
use crate::workloads::owners::{controlled_by, controlled_by_or_orphans};
use crate::workloads::status_urgency::changed_anything;

/// The most pods that one reconcile creates or deletes.
const BURST_REPLICAS: usize = 500;

/// The inputs of one reconcile.
pub(super) struct Inputs<R> {
    pub(super) set: Arc<R>,
    /// Its active pods, including the orphans about to be adopted.
    pub(super) pods: Vec<Arc<Pod>>,
    /// The number of its terminating pods.
    pub(super) terminating: i32,
    /// Active pods of related ReplicaSets per node.
    pub(super) active_pods_per_node: BTreeMap<InternedStr, usize>,
    pub(super) now: Time,
}

impl<R: Replicated> Inputs<R> {
    /// The number of surplus pods; negative if pods are missing.
    pub(super) fn surplus(&self) -> i64 {
        let existing = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        existing - i64::from(self.set.replicas())
    }

    /// How many pods one reconcile creates or deletes.
    pub(super) fn burst_limited_diff(&self) -> usize {
        usize::try_from(self.surplus().unsigned_abs()).unwrap_or(usize::MAX).min(BURST_REPLICAS)
    }

    /// The inputs, and the adoptions and releases that are applied first.
    fn gather(view: &View<'_>, item: &Key) -> Option<(Self, Claimed<Pod>)> {
        let set = view.get::<R>(item)?.clone();
        let pods = view.store::<Pod>();
        let selector = set.selector()?;
        let own = controlled_by(pods, &*set);
        let terminating = own.filter(|pod| pod.is_terminating() && !pod.is_terminal());
        let terminating = terminating.filter(|pod| selector.matches(&pod.meta.labels)).count();
        let candidates = controlled_by_or_orphans(pods, &*set);
        let claimed = claim(&*set, &selector, candidates.filter(|pod| pod.is_active()));
        let terminating = i32::try_from(terminating).unwrap_or(i32::MAX);
        let (now, pods) = (view.now().wall, claimed.owned.clone());
        let mut inputs = Self { set, pods, terminating, active_pods_per_node: BTreeMap::new(), now };
        // If all pods are deleted, no ranking is needed.
        if inputs.surplus() > 0 && inputs.burst_limited_diff() < inputs.pods.len() {
            inputs.active_pods_per_node = active_pods_per_node(&*inputs.set, view);
        }
        Some((inputs, claimed))
    }
}

/// Active pods of related ReplicaSets per node.
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

/// Reconciles ReplicaSets or ReplicationControllers.
pub(super) struct ReplicaSetReconciler<R> {
    options: ReplicaSetOptions,
    kind: PhantomData<fn() -> R>,
}

impl<R: Replicated> ReplicaSetReconciler<R> {
    pub(super) fn new(options: ReplicaSetOptions) -> Self {
        Self { options, kind: PhantomData }
    }
}

impl<R: Replicated> Reconciler for ReplicaSetReconciler<R> {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
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
        // A plan that could not be built has an error and no outcomes.
        let failed = failed.or_else(|| scaled.error.as_ref().map(|retry| retry.because.clone()));
        let counts = status::of(&inputs, failed.as_deref(), &self.options);
        let unavailable = counts.ready_replicas != counts.available_replicas;
        // A failed reconcile is retried with backoff; its status must not wait for that.
        let status_urgency = match &scaled.error {
            Some(_) => StatusUrgency::Immediate,
            None => status::status_urgency(&*inputs.set, &counts, changed_anything(&scaled)),
        };
        let status_written = cx.apply(status::plan(&*inputs.set, &counts, status_urgency)).await;
        // An error of the pod writes takes precedence over an error of the status write.
        scaled.all_done()?;
        status_written.all_done()?;
        Ok(if unavailable {
            requeue_when_available(&inputs.pods, inputs.set.min_ready_seconds(), inputs.now)
        } else {
            Requeue::Forget
        })
    }
}
