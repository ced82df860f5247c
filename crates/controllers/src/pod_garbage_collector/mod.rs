//! Force-deletes terminated pods beyond a threshold, pods on deleted nodes, terminating pods on
//! out-of-service nodes, and terminating pods that were never bound.
//!
//! There is one item: a collection over all pods and nodes, requeued 20 seconds after it ended. In one
//! collection each pod is handled once, by the first step that selects it.
//!
//! Parity: pkg/controller/podgc/gc_controller.go.

mod candidates;
mod quarantine;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Key, Node, Object as _, Pod, Time};
use keleustes_plan::{
    Context, Controller, Grant, Loop, Memory, Metric, NEXT_PASS, OnFailure, Outcome, Pass, PatchKind, Plan,
    ReconcileError, Reconciler, Requeue, Write,
};
use serde_json::json;

use crate::disruption_target;
use candidates::{Candidates, beyond_threshold};
use quarantine::Quarantine;

/// Options of the pod garbage collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodGarbageCollectorOptions {
    /// How many terminated pods are kept; zero or less keeps all (`--terminated-pod-gc-threshold`).
    pub terminated_pod_threshold: i32,
}

impl Default for PodGarbageCollectorOptions {
    fn default() -> Self {
        Self { terminated_pod_threshold: 12_500 }
    }
}

/// Delay from the end of one collection to the start of the next.
const GC_CHECK_PERIOD: Duration = Duration::from_secs(20);

static FORCE_DELETED: Metric = Metric::counter(
    "pod_gc_collector_force_delete_pods_total",
    "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
    &["namespace", "reason"],
);
static FORCE_DELETE_ERRORS: Metric = Metric::counter(
    "pod_gc_collector_force_delete_pod_errors_total",
    "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
    &["namespace", "reason"],
);

/// Builds the controller.
#[must_use]
pub fn controller(options: PodGarbageCollectorOptions) -> Controller {
    Controller::new("pod-garbage-collector-controller")
        .service_account("pod-garbage-collector")
        .may_write(&[
            Grant { group: "", resource: "pods", verbs: &["delete"] },
            Grant { group: "", resource: "pods/status", verbs: &["patch"] },
            Grant { group: "", resource: "nodes", verbs: &["get"] },
        ])
        .metrics([&FORCE_DELETED, &FORCE_DELETE_ERRORS])
        .with_loop(
            Loop::reconciling("pod_garbage_collector", PodGc { options, quarantine: Memory::default() })
                .reads::<Pod>()
                .reads::<Node>()
                .initial_item(Pass),
        )
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeletionReason {
    Terminated,
    OutOfService,
    Orphaned,
    Unscheduled,
}

impl DeletionReason {
    /// The value of the metric label `reason`.
    fn label(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }

    fn because(self) -> &'static str {
        match self {
            Self::Terminated => "there are too many terminated pods",
            Self::OutOfService => "it is terminating on a node that is out of service",
            Self::Orphaned => "its node no longer exists",
            Self::Unscheduled => "it is terminating and was never bound to a node",
        }
    }
}

struct PodGc {
    options: PodGarbageCollectorOptions,
    quarantine: Memory<Quarantine>,
}

impl Reconciler<Pass> for PodGc {
    async fn reconcile(&self, cx: &mut Context<'_>, _: &Pass) -> Result<Requeue, ReconcileError> {
        self.collect(cx).await;
        Ok(Requeue::after(GC_CHECK_PERIOD, NEXT_PASS))
    }
}

impl PodGc {
    async fn collect(&self, cx: &mut Context<'_>) {
        let threshold = self.options.terminated_pod_threshold;
        let (terminated, now) = cx.gather(|view| (beyond_threshold(view, threshold), view.now().wall));
        force_delete(cx, &terminated, DeletionReason::Terminated, now).await;
        // Deleting thousands of pods takes minutes, after which a node may be in service again.
        let (mut candidates, quarantined, now) = cx.gather(|view| {
            let candidates = Candidates::gather(view, &terminated);
            let quarantined = self.quarantine.with(|quarantine| {
                candidates.unknown_nodes.iter().for_each(|node| quarantine.admit(node, view.now().monotonic));
                quarantine.release(view.now().monotonic)
            });
            (candidates, quarantined, view.now().wall)
        });
        force_delete(cx, &candidates.out_of_service, DeletionReason::OutOfService, now).await;
        let deleted_nodes = deleted_nodes(cx, &candidates, &quarantined).await;
        candidates.without_node.retain(|pod| deleted_nodes.contains(&pod.node_name));
        force_delete(cx, &candidates.without_node, DeletionReason::Orphaned, now).await;
        force_delete(cx, &candidates.unscheduled, DeletionReason::Unscheduled, now).await;
    }
}

/// The quarantined nodes that are neither cached nor found by a live read. A node whose live read fails is
/// checked again after another quarantine. Parity: discoverDeletedNodes.
async fn deleted_nodes(
    cx: &mut Context<'_>,
    candidates: &Candidates,
    quarantined: &[InternedStr],
) -> Vec<InternedStr> {
    let unknown = |node: &&InternedStr| candidates.unknown_nodes.contains(*node);
    let keys: Vec<Key> = quarantined.iter().filter(unknown).map(|node| Key::cluster(&**node)).collect();
    let answers = cx.fetch_all::<Node>(&keys).await;
    let absent = keys.iter().zip(answers).filter(|(_, answer)| matches!(answer, Ok(None)));
    absent.map(|(key, _)| InternedStr::from(&*key.name)).collect()
}

/// Deletes pods with grace period zero. A pod that is not terminal is first set to phase `Failed`, so that
/// its controller learns the result; if that patch fails, the pod is kept until the next collection.
async fn force_delete(cx: &mut Context<'_>, pods: &[Arc<Pod>], reason: DeletionReason, now: Time) {
    let (terminal, non_terminal): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| pod.is_terminal());
    let mut plan = Plan::none();
    plan.push_parallel(non_terminal.iter().map(|pod| mark_failed(pod, reason, now)).collect());
    let marked = apply_per_pod(cx, plan, &non_terminal).await;
    let deletable: Vec<&Arc<Pod>> = terminal.into_iter().chain(marked).collect();
    let mut plan = Plan::none();
    plan.push_parallel(deletable.iter().map(|pod| delete(pod, reason)).collect());
    let deleted: BTreeSet<&Key> =
        apply_per_pod(cx, plan, &deletable).await.into_iter().map(|pod| pod.key()).collect();
    for pod in pods {
        let labels = [pod.meta.key.namespace.as_str(), reason.label()];
        cx.measure(FORCE_DELETED.increment(&labels));
        if !deleted.contains(pod.key()) {
            cx.measure(FORCE_DELETE_ERRORS.increment(&labels));
        }
    }
}

/// Applies one write per pod and returns the pods whose write succeeded.
async fn apply_per_pod<'p>(cx: &mut Context<'_>, plan: Plan, pods: &[&'p Arc<Pod>]) -> Vec<&'p Arc<Pod>> {
    if plan.is_none() {
        return Vec::new();
    }
    let outcomes = cx.apply(plan).await.outcomes;
    let done = pods.iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Done { .. }));
    done.map(|(pod, _)| *pod).collect()
}

fn mark_failed(pod: &Arc<Pod>, reason: DeletionReason, now: Time) -> Write {
    let mut status = json!({"phase": "Failed", "observedGeneration": pod.meta.generation});
    if reason == DeletionReason::Orphaned {
        let condition =
            disruption_target::condition(pod, "DeletionByPodGC", "PodGC: node no longer exists", now);
        status["conditions"] = json!([condition]);
    }
    Write::patch(&**pod, PatchKind::Strategic, json!({"status": status}))
        .on_subresource("status")
        .on_failure(OnFailure::LogOnly)
        .because(reason.because())
}

fn delete(pod: &Arc<Pod>, reason: DeletionReason) -> Write {
    Write::delete(&**pod).grace_seconds(0).on_failure(OnFailure::LogOnly).because(reason.because())
}

#[cfg(test)]
mod tests;
