//! Resets the `DisruptionTarget` condition of a pod that is not terminating two minutes after it was set, independently of
//! any budget.

use std::time::Duration;

use keleustes_objects::{Key, Object as _, Pod};
use keleustes_plan::{Change, Effects, Now, PatchKind, Plan, View, Write};
use serde_json::json;

use super::DELETION_TIMEOUT;

const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The kubelet announces a termination that may take any time before the pod is deleted.
const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";

/// Enqueues a pod that was added or updated for the time when its condition becomes stale.
pub(super) fn pod_changed(change: &Change<Pod>, view: &View<'_>, enqueue: &mut Effects) {
    let Some(pod) = change.new() else { return };
    if let Some(delay) = stale_after(pod, view.now()) {
        enqueue.add_after(pod.key().clone(), delay);
    }
}

/// Resets the condition, or waits until it is stale.
pub(super) fn decide(view: &View<'_>, item: &Key) -> Plan {
    let now = view.now();
    let Some(pod) = view.get::<Pod>(item) else { return Plan::none() };
    let Some(delay) = stale_after(pod, now) else { return Plan::none() };
    if !delay.is_zero() {
        let mut plan = Plan::none();
        plan.requeue_after(delay, "its DisruptionTarget condition to become stale");
        return plan;
    }
    // The cached pod lacks most of its status, and the role has no `get` on pods, so this is a patch. The
    // resourceVersion makes it fail if the pod has changed; null removes a field.
    let condition = json!({
        "type": DISRUPTION_TARGET,
        "status": "False",
        "reason": null,
        "message": null,
        "lastProbeTime": null,
        "observedGeneration": pod.meta.generation,
        "lastTransitionTime": now.wall,
    });
    let body = json!({
        "metadata": {"resourceVersion": pod.meta.resource_version},
        "status": {"conditions": [condition]},
    });
    Plan::of(
        Write::patch(&**pod, PatchKind::Strategic, body)
            .on_subresource("status")
            .because("it was to be disrupted two minutes ago and is not terminating"),
    )
}

/// How long until the condition of a pod is stale; `None` if it has none that becomes stale.
fn stale_after(pod: &Pod, now: Now) -> Option<Duration> {
    let condition = pod.full_condition(DISRUPTION_TARGET)?;
    let stays = !condition.is_true() || condition.reason == TERMINATION_BY_KUBELET || !pod.is_active();
    if stays {
        return None;
    }
    let timeout = DELETION_TIMEOUT.as_secs().cast_signed();
    let since = condition.last_transition_time;
    Some(since.map_or(Duration::ZERO, |since| now.until(since.plus_seconds(timeout))))
}
