//! The condition by which a pod says, before it goes, that it does not go by a fault of its own.

use keleustes_objects::{Pod, Time};
use serde_json::{Value, json};

/// The type of the condition.
const TYPE: &str = "DisruptionTarget";

/// The condition as it is to be on a pod. It says since when it holds; if it held before, that stays.
pub(crate) fn wanted(pod: &Pod, reason: &str, message: &str, now: Time) -> Value {
    let there = pod.full_condition(TYPE).filter(|there| there.is_true());
    let since = there.and_then(|there| there.last_transition_time).unwrap_or(now);
    json!({
        "type": TYPE,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": pod.meta.generation,
        "lastTransitionTime": since,
    })
}

/// Whether a pod says so already, for this reason and in these words.
pub(crate) fn is_there(pod: &Pod, reason: &str, message: &str) -> bool {
    pod.full_condition(TYPE)
        .is_some_and(|there| there.is_true() && there.reason == reason && there.message == message)
}
