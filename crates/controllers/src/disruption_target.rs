//! The `DisruptionTarget` condition: the pod is deleted because of a disruption, not because of its own
//! failure.

use keleustes_objects::{Pod, Time};
use serde_json::{Value, json};

/// Type of the condition.
const TYPE: &str = "DisruptionTarget";

/// The condition for a pod. `lastTransitionTime` is kept if the condition was already `True`.
pub(crate) fn condition(pod: &Pod, reason: &str, message: &str, now: Time) -> Value {
    let current = pod.full_condition(TYPE).filter(|current| current.is_true());
    let since = current.and_then(|current| current.last_transition_time).unwrap_or(now);
    json!({
        "type": TYPE,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": pod.meta.generation,
        "lastTransitionTime": since,
    })
}

/// Whether a pod already has the condition with this reason and message.
pub(crate) fn has_condition(pod: &Pod, reason: &str, message: &str) -> bool {
    pod.full_condition(TYPE)
        .is_some_and(|current| current.is_true() && current.reason == reason && current.message == message)
}
