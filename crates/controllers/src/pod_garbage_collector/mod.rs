//! Force-deletes pods that nobody else will finish off: terminated ones beyond a threshold, those of nodes
//! that vanished or are out of service, and those that were deleted before they were bound.
//!
//! There is one item, a pass over everything, which comes again a while after it ended. Each pod is
//! handled once in a pass, by the first step that finds it.
//!
//! Parity: pkg/controller/podgc/gc_controller.go.

mod quarantine;
mod suspects;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{InternedStr, Key, Node, Object as _, Pod, Time};
use keleustes_plan::{
    BoxFuture, Context, Controller, Grant, Item, Loop, Memory, Metric, OnFailure, Outcome, PatchKind, Plan,
    ReconcileError, Reconciler, Requeue, Write,
};
use serde_json::json;

use crate::disruption_target;
use quarantine::Quarantine;
use suspects::Candidates;

/// What the controller needs to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodGarbageCollectorOptions {
    /// How many terminated pods may stay; with zero or less, all may.
    pub terminated_pod_threshold: i32,
}

impl Default for PodGarbageCollectorOptions {
    fn default() -> Self {
        Self { terminated_pod_threshold: 12_500 }
    }
}

/// The pause between the end of a pass and the next one.
const PAUSE: Duration = Duration::from_secs(20);

static FORCE_DELETED: Metric = Metric::counter(
    "pod_gc_collector_force_delete_pods_total",
    "Number of pods that this controller set out to delete by force.",
    &["namespace", "reason"],
);
static FAILED: Metric = Metric::counter(
    "pod_gc_collector_force_delete_pod_errors_total",
    "Number of pods that this controller failed to delete by force.",
    &["namespace", "reason"],
);

/// The controller.
#[must_use]
pub fn controller(settings: PodGarbageCollectorOptions) -> Controller {
    Controller::new("pod-garbage-collector-controller")
        .also_known_as(&["podgc"])
        .service_account("pod-garbage-collector")
        .may_write(&[
            Grant { group: "", resource: "pods", verbs: &["delete"] },
            Grant { group: "", resource: "pods/status", verbs: &["patch"] },
            Grant { group: "", resource: "nodes", verbs: &["get"] },
        ])
        .metrics([&FORCE_DELETED, &FAILED])
        .with_loop(
            Loop::reconciling("pod_garbage_collector", Pass { settings, quarantine: Memory::default() })
                .reads::<Pod>()
                .reads::<Node>()
                .initial_item(Key::cluster("pass")),
        )
}

/// Why a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Terminated,
    OutOfService,
    Orphaned,
    Unscheduled,
}

impl Why {
    /// The label of the metrics.
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

struct Pass {
    settings: PodGarbageCollectorOptions,
    quarantine: Memory<Quarantine>,
}

impl Reconciler for Pass {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        _: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move {
            self.pass(cx).await;
            Ok(Requeue::After(PAUSE))
        })
    }
}

impl Pass {
    async fn pass(&self, cx: &mut Context<'_>) {
        let threshold = self.settings.terminated_pod_threshold;
        let (mut suspects, quarantined, now) = cx.gather(|view| {
            let suspects = Candidates::gather(view, threshold);
            let quarantined = self.quarantine.with(|quarantine| {
                suspects.unknown_nodes.iter().for_each(|node| quarantine.admit(node, view.now().monotonic));
                quarantine.release(view.now().monotonic)
            });
            (suspects, quarantined, view.now().wall)
        });
        force_delete(cx, &suspects.terminated, Why::Terminated, now).await;
        force_delete(cx, &suspects.out_of_service, Why::OutOfService, now).await;
        let gone = gone(cx, &suspects, &quarantined).await;
        suspects.without_node.retain(|pod| gone.contains(&pod.node_name));
        force_delete(cx, &suspects.without_node, Why::Orphaned, now).await;
        force_delete(cx, &suspects.unscheduled, Why::Unscheduled, now).await;
    }
}

/// Those of the nodes that no pod waits for in vain: they are neither cached nor, freshly asked, there. Of
/// whom nobody can tell just now is asked again after another quarantine.
async fn gone(cx: &mut Context<'_>, suspects: &Candidates, quarantined: &[InternedStr]) -> Vec<InternedStr> {
    let unknown = |node: &&InternedStr| suspects.unknown_nodes.contains(*node);
    let keys: Vec<Key> = quarantined.iter().filter(unknown).map(|node| Key::cluster(&**node)).collect();
    let answers = cx.fetch_all::<Node>(&keys).await;
    let absent = keys.iter().zip(answers).filter(|(_, answer)| matches!(answer, Ok(None)));
    absent.map(|(key, _)| InternedStr::from(&*key.name)).collect()
}

/// Deletes pods without giving them time. One that has not ended is first said to have failed, so that
/// whoever counts on it learns what became of it; if that cannot be said, it stays until the next pass.
async fn force_delete(cx: &mut Context<'_>, pods: &[Arc<Pod>], why: Why, now: Time) {
    let (ended, unended): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| pod.is_terminal());
    let mut plan = Plan::none();
    plan.push_parallel(unended.iter().map(|pod| mark_failed(pod, why, now)).collect());
    let marked = carry_out(cx, plan, &unended).await;
    let ready: Vec<&Arc<Pod>> = ended.into_iter().chain(marked).collect();
    let mut plan = Plan::none();
    plan.push_parallel(ready.iter().map(|pod| delete(pod, why)).collect());
    let deleted: BTreeSet<&Key> =
        carry_out(cx, plan, &ready).await.into_iter().map(|pod| pod.key()).collect();
    for pod in pods {
        let labels = [pod.meta.key.namespace.as_str(), why.label()];
        cx.measure(FORCE_DELETED.increment(&labels));
        if !deleted.contains(pod.key()) {
            cx.measure(FAILED.increment(&labels));
        }
    }
}

/// Carries out one write per pod and tells for which of them it was done.
async fn carry_out<'p>(cx: &mut Context<'_>, plan: Plan, pods: &[&'p Arc<Pod>]) -> Vec<&'p Arc<Pod>> {
    if plan.is_none() {
        return Vec::new();
    }
    let outcomes = cx.apply(plan).await.outcomes;
    let done = pods.iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Done { .. }));
    done.map(|(pod, _)| *pod).collect()
}

fn mark_failed(pod: &Arc<Pod>, why: Why, now: Time) -> Write {
    let mut status = json!({"phase": "Failed", "observedGeneration": pod.meta.generation});
    if why == Why::Orphaned {
        let condition =
            disruption_target::wanted(pod, "DeletionByPodGC", "PodGC: node no longer exists", now);
        status["conditions"] = json!([condition]);
    }
    Write::patch(&**pod, PatchKind::Strategic, json!({"status": status}))
        .on_subresource("status")
        .on_failure(OnFailure::LogOnly)
        .because(why.because())
}

fn delete(pod: &Arc<Pod>, why: Why) -> Write {
    Write::delete(&**pod).grace_seconds(0).on_failure(OnFailure::LogOnly).because(why.because())
}

#[cfg(test)]
mod tests;
