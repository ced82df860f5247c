//! Deletes pods that do not tolerate a `NoExecute` taint of their node: immediately, or after their
//! `tolerationSeconds`.
//!
//! The key is a pod. It is enqueued when the pod or the taints of its node change, and when its toleration
//! expires. Each reconcile decides from the cached pod and node; only the start of the toleration period is
//! remembered.
//!
//! Parity: pkg/controller/tainteviction.

mod evictions;
mod tolerance;

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    ErrorReason, Key, Kind as _, NO_EXECUTE, Node, Object as _, Pod, PodParts, ResourceVersion, Taint, Time,
    Uid,
};
use keleustes_plan::{
    Buckets, Change, Context, Controller, Effects, Grant, InvolvedObject, Loop, Memory, Metric, Outcome,
    PatchKind, Plan, PlannedEvent, RateLimiter, ReconcileError, Reconciler, Requeue, View, Write,
};
use serde_json::json;

use crate::disruption_target;
use crate::pods_by_node::BY_NODE;
use evictions::{Evictions, NextStep};

/// Options of the taint eviction controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaintEvictionOptions {
    /// Whether tolerations may use the operators `Lt` and `Gt`: the feature gate
    /// `TaintTolerationComparisonOperators`.
    pub enable_comparison_operators: bool,
}

/// Concurrent evictions. A slow one must not delay the others.
const WORKERS: usize = 32;

/// Backoff between two attempts to evict one pod. There is no limit across pods: a failed deletion of one pod
/// must not delay the eviction of another.
const RETRY_BACKOFF: RateLimiter = RateLimiter {
    base_delay: Duration::from_millis(10),
    max_delay: Duration::from_secs(60),
    retries_per_second: 1e6,
    retries_burst: 1_000_000,
};

const REASON: &str = "DeletionByTaintManager";
const MESSAGE: &str = "Taint manager: deleting due to NoExecute taint";
const BECAUSE: &str = "it does not, or no longer, tolerate a NoExecute taint of its node";
const EVENT: &str = "TaintManagerEviction";

static DELETED: Metric = Metric::counter(
    "taint_eviction_controller_pod_deletions_total",
    "Total number of Pods deleted by TaintEvictionController since its start.",
    &[],
);
static DELETION_DURATION: Metric = Metric::histogram(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
    &[],
    Buckets::Explicit(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0]),
);

/// Builds the controller.
#[must_use]
pub fn controller(options: TaintEvictionOptions) -> Controller {
    let evictions: Memory<Evictions> = Memory::default();
    let (of_pods, of_nodes) = (evictions.clone(), evictions.clone());
    Controller::new("taint-eviction-controller")
        .service_account("node-controller")
        .event_component("taint-eviction-controller")
        .may_write(&[
            Grant { group: "", resource: "pods", verbs: &["delete"] },
            Grant { group: "", resource: "pods/status", verbs: &["patch"] },
        ])
        .metrics([&DELETED, &DELETION_DURATION])
        .with_loop(
            Loop::reconciling("noexec_taint_pod", Evict { options, evictions })
                .keyed_by::<Pod>()
                .enqueue_on::<Pod>(move |change, view, enqueue| pod_changed(&of_pods, change, view, enqueue))
                .enqueue_on::<Node>(move |change, view, enqueue| {
                    node_changed(&of_nodes, change, view, enqueue);
                })
                .reads_pod_parts(PodParts::TOLERATIONS)
                .reads_index(BY_NODE)
                .workers(WORKERS)
                .rate_limited_by(RETRY_BACKOFF),
        )
}

/// Enqueues a pod that was created, deleted, bound, or whose tolerations changed, if its eviction is
/// scheduled or its node is tainted.
fn pod_changed(evictions: &Memory<Evictions>, change: &Change<Pod>, view: &View<'_>, enqueue: &mut Effects) {
    let relevant_fields =
        |pod: &Arc<Pod>| (pod.meta.uid.clone(), pod.node_name.clone(), pod.spec.tolerations().to_vec());
    if change.old().map(relevant_fields) == change.new().map(relevant_fields) {
        return;
    }
    let pod = change.latest();
    let is_tainted = |node: &Arc<Node>| no_execute(node).next().is_some();
    let node_is_tainted =
        || !change.is_deletion() && view.get(&Key::cluster(&*pod.node_name)).is_some_and(is_tainted);
    if evictions.with(|evictions| evictions.contains(pod.key())) || node_is_tainted() {
        enqueue.add(pod.key().clone());
    }
}

/// Enqueues the pods of a node that was added or whose `NoExecute` taints changed: all of them, or only those
/// with a scheduled eviction if it has no such taint. The deletion of a node does not cancel scheduled
/// evictions; its return without the taints does.
fn node_changed(
    evictions: &Memory<Evictions>,
    change: &Change<Node>,
    view: &View<'_>,
    enqueue: &mut Effects,
) {
    let taints = |node: &Arc<Node>| no_execute(node).cloned().collect::<Vec<Taint>>();
    let Some(new_taints) = change.new().map(taints) else { return };
    if change.old().map(taints).as_ref() == Some(&new_taints) {
        return;
    }
    for pod in view.store::<Pod>().by_index(&BY_NODE, &change.latest().key().name) {
        if !new_taints.is_empty() || evictions.with(|evictions| evictions.contains(pod.key())) {
            enqueue.add(pod.key().clone());
        }
    }
}

fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    node.taints.iter().filter(|taint| taint.effect == NO_EXECUTE)
}

struct Evict {
    options: TaintEvictionOptions,
    evictions: Memory<Evictions>,
}

impl Reconciler for Evict {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let (decision, now) = cx.gather(|view| {
            let enable_comparison_operators = self.options.enable_comparison_operators;
            (
                self.evictions.with(|evictions| evictions.decide(view, item, enable_comparison_operators)),
                view.now().wall,
            )
        });
        let mut plan = Plan::none();
        if decision.cancelled {
            plan.record(event(item, "Cancelling deletion of Pod"));
        }
        match decision.next_step {
            NextStep::Nothing => cx.apply(plan).await.all_done().map(|()| Requeue::Forget),
            NextStep::Wait(time) => {
                cx.apply(plan).await.all_done().map(|()| Requeue::after(time, "tolerationSeconds"))
            }
            NextStep::Evict { pod, due, is_first_attempt } => {
                if is_first_attempt {
                    plan.record(event(item, "Marking for deletion Pod"));
                }
                self.evict(cx, plan, &pod, due, now).await
            }
        }
    }
}

impl Evict {
    /// Adds the `DisruptionTarget` condition and deletes the pod. Done if the pod no longer exists.
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
        let not_found = applied.outcomes.iter().any(
            |outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason == ErrorReason::NotFound),
        );
        if !not_found {
            applied.all_done()?;
        }
        self.evictions.with(|evictions| evictions.cancel(pod.key()));
        if !not_found {
            let finished = cx.gather(|view| view.now().monotonic);
            cx.measure(DELETED.increment(&[]));
            cx.measure(DELETION_DURATION.measurement(&[], finished.saturating_sub(due).as_secs_f64()));
        }
        Ok(Requeue::Forget)
    }
}

/// The writes that evict a pod.
fn writes(pod: &Arc<Pod>, now: Time) -> Vec<Write> {
    let mut writes = Vec::new();
    if !disruption_target::has_condition(pod, REASON, MESSAGE) {
        let condition = disruption_target::condition(pod, REASON, MESSAGE, now);
        let status = json!({"status": {"conditions": [condition]}});
        writes.push(Write::patch(&**pod, PatchKind::Strategic, status).on_subresource("status"));
    }
    writes.push(Write::delete(&**pod));
    writes.into_iter().map(|write| write.because(BECAUSE)).collect()
}

/// An event about a pod that is identified by its key only.
fn event(pod: &Key, action: &str) -> PlannedEvent {
    let involved = InvolvedObject::named(
        &Pod::RESOURCE,
        &pod.namespace,
        &pod.name,
        Uid::default(),
        ResourceVersion::default(),
    );
    PlannedEvent::normal(involved, EVENT, format!("{action} {pod}"))
}

#[cfg(test)]
mod tests;
