//! Deletes pods that do not tolerate a `NoExecute` taint of their node: at once, or as soon as the time is
//! over for which they tolerate it.
//!
//! An item is a pod. Its turn comes when the pod or the taints of its node change, and when its time is
//! over. Everything is decided anew at each turn from the pod and the node as they are then; only since
//! when a pod waits is remembered.
//!
//! Parity: pkg/controller/tainteviction.

mod evictions;
mod tolerance;

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    ErrorReason, Key, Kind as _, NO_EXECUTE, Node, Object as _, Pod, ResourceVersion, Taint, Time, Uid,
};
use keleustes_plan::{
    BoxFuture, Buckets, Change, Context, Controller, Enqueue, Grant, InvolvedObject, Item, Loop, Memory,
    Metric, Outcome, PatchKind, Plan, PlannedEvent, RateLimiter, ReconcileError, Reconciler, Requeue, View,
    Write,
};
use serde_json::json;

use crate::disruption_target;
use crate::pods_by_node::BY_NODE;
use evictions::{Evictions, Then};

/// What the controller needs to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaintEvictionOptions {
    /// Whether tolerations may compare numbers: the gate `TaintTolerationComparisonOperators`.
    pub enable_comparison_operators: bool,
}

/// Evictions under way at once. Whatever holds one of them up must not hold up the others.
const WORKERS: usize = 32;

/// The pauses between two tries of one eviction. Other pods' tries do not count: there is no reason to
/// keep one where it must not be because another could not be deleted.
const TRIES: RateLimiter = RateLimiter {
    base_delay: Duration::from_millis(10),
    max_delay: Duration::from_secs(60),
    retries_per_second: 1e6,
    retries_burst: 1e6,
};

const REASON: &str = "DeletionByTaintManager";
const MESSAGE: &str = "Taint manager: deleting due to NoExecute taint";
const BECAUSE: &str = "its node has a taint that it does not tolerate any longer";
const EVENT: &str = "TaintManagerEviction";

static DELETED: Metric = Metric::counter(
    "taint_eviction_controller_pod_deletions_total",
    "Number of pods that this controller deleted since it started.",
    &[],
);
static TOOK: Metric = Metric::histogram(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "Seconds from the moment when a pod was due to go until it was deleted.",
    &[],
    Buckets::Explicit(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0]),
);

/// The controller.
#[must_use]
pub fn controller(settings: TaintEvictionOptions) -> Controller {
    let evictions: Memory<Evictions> = Memory::default();
    let (of_pods, of_nodes) = (evictions.clone(), evictions.clone());
    Controller::new("taint-eviction-controller")
        .service_account("node-controller")
        .event_component("taint-eviction-controller")
        .may_write(&[
            Grant { group: "", resource: "pods", verbs: &["delete"] },
            Grant { group: "", resource: "pods/status", verbs: &["patch"] },
        ])
        .metrics([&DELETED, &TOOK])
        .with_loop(
            Loop::reconciling("noexec_taint_pod", Evict { settings, evictions })
                .enqueue_on::<Pod>(move |change, view, wakes| pod_changed(&of_pods, change, view, wakes))
                .enqueue_on::<Node>(move |change, view, wakes| node_changed(&of_nodes, change, view, wakes))
                .reads_index(BY_NODE)
                .workers(WORKERS)
                .rate_limited_by(TRIES),
        )
}

/// Enqueue a pod that came, went or tolerates something else now, if it waits or its node is tainted.
fn pod_changed(evictions: &Memory<Evictions>, change: &Change<Pod>, view: &View<'_>, wakes: &mut Enqueue) {
    let says = |pod: &Arc<Pod>| (pod.meta.uid.clone(), pod.node_name.clone(), pod.spec.tolerations.clone());
    if change.old().map(says) == change.new().map(says) {
        return;
    }
    let pod = change.latest();
    let is_tainted = |node: &Arc<Node>| no_execute(node).next().is_some();
    let is_threatened =
        || !change.is_deletion() && view.get(&Key::cluster(&*pod.node_name)).is_some_and(is_tainted);
    if evictions.with(|evictions| evictions.knows(pod.key())) || is_threatened() {
        wakes.add(pod.key().clone());
    }
}

/// Enqueue the pods of a node whose taints changed: all of them, or those that wait if no taint is left. What
/// waits goes on waiting when its node goes.
fn node_changed(evictions: &Memory<Evictions>, change: &Change<Node>, view: &View<'_>, wakes: &mut Enqueue) {
    let taints = |node: &Arc<Node>| no_execute(node).cloned().collect::<Vec<Taint>>();
    let (before, Some(after)) = (change.old().map(taints), change.new().map(taints)) else { return };
    if before.unwrap_or_default() == after {
        return;
    }
    for pod in view.store::<Pod>().by_index(&BY_NODE, &change.latest().key().name) {
        if !after.is_empty() || evictions.with(|evictions| evictions.knows(pod.key())) {
            wakes.add(pod.key().clone());
        }
    }
}

fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    node.taints.iter().filter(|taint| taint.effect == NO_EXECUTE)
}

struct Evict {
    settings: TaintEvictionOptions,
    evictions: Memory<Evictions>,
}

impl Reconciler for Evict {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.turn(cx, item))
    }
}

impl Evict {
    async fn turn(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let (verdict, now) = cx.gather(|view| {
            let enable_comparison_operators = self.settings.enable_comparison_operators;
            (
                self.evictions.with(|evictions| evictions.judge(view, item, enable_comparison_operators)),
                view.now().wall,
            )
        });
        let mut plan = Plan::none();
        if verdict.cancelled {
            plan.record(event(item, "Cancelling deletion of Pod"));
        }
        match verdict.then {
            Then::Rest => cx.apply(plan).await.all_done().map(|()| Requeue::Forget),
            Then::Wait(time) => cx.apply(plan).await.all_done().map(|()| Requeue::After(time)),
            Then::Evict { pod, due, is_first_try } => {
                if is_first_try {
                    plan.record(event(item, "Marking for deletion Pod"));
                }
                self.evict(cx, plan, &pod, due, now).await
            }
        }
    }

    /// Says in the pod's status why it goes, and deletes it. If it is gone by now, there is nothing left to
    /// do.
    async fn evict(
        &self,
        cx: &mut Context<'_>,
        mut plan: Plan,
        pod: &Arc<Pod>,
        due: Duration,
        now: Time,
    ) -> Result<Requeue, ReconcileError> {
        writes(pod, now).into_iter().for_each(|write| plan.push(write));
        let applied = cx.apply(plan).await;
        let is_gone = applied.outcomes.iter().any(
            |outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason == ErrorReason::NotFound),
        );
        if !is_gone {
            applied.all_done()?;
        }
        self.evictions.with(|evictions| evictions.cancel(pod.key()));
        if !is_gone {
            let ended = cx.gather(|view| view.now().monotonic);
            cx.measure(DELETED.increment(&[]));
            cx.measure(TOOK.measurement(&[], ended.saturating_sub(due).as_secs_f64()));
        }
        Ok(Requeue::Forget)
    }
}

/// What is written about a pod that goes.
fn writes(pod: &Arc<Pod>, now: Time) -> Vec<Write> {
    let mut writes = Vec::new();
    if !disruption_target::is_there(pod, REASON, MESSAGE) {
        let condition = disruption_target::wanted(pod, REASON, MESSAGE, now);
        let status = json!({"status": {"conditions": [condition]}});
        writes.push(Write::patch(&**pod, PatchKind::Strategic, status).on_subresource("status"));
    }
    writes.push(Write::delete(&**pod));
    writes.into_iter().map(|write| write.because(BECAUSE)).collect()
}

/// An event about a pod of which no more is known than its name.
fn event(pod: &Key, what: &str) -> PlannedEvent {
    let involved = InvolvedObject::named(
        &Pod::RESOURCE,
        &pod.namespace,
        &pod.name,
        Uid::default(),
        ResourceVersion::default(),
    );
    PlannedEvent::normal(involved, EVENT, format!("{what} {pod}"))
}

#[cfg(test)]
mod tests;
