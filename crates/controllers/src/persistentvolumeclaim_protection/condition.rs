//! The condition `Unused` of a bound claim. `lastTransitionTime` of a `True` one is the time since which no pod has used
//! the claim.

use keleustes_objects::{Conditions as _, FALSE, PersistentVolumeClaim, TRUE, Time};
use keleustes_plan::{Edited, Write};
use serde_json::{Value, json};

/// Its type.
pub(super) const TYPE: &str = "Unused";

/// `status` of the condition of a claim, if it has one.
pub(super) fn status(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.conditions.of_type(TYPE).map(|condition| condition.status.as_str())
}

/// Whether the condition must be written, given its current status.
pub(super) fn is_outdated(status: Option<&str>, is_used: bool) -> bool {
    match status {
        None => true,
        // Only `True` says that the claim is unused.
        Some(status) => (status == TRUE) == is_used,
    }
}

/// Writes the condition, unless the live claim is terminating, is not bound or has it already. Only a pod event or a
/// retry enqueues a claim that has the condition, so a claim that changed meanwhile is written, too.
pub(super) fn write(claim: &PersistentVolumeClaim, is_used: bool, now: Time) -> Write {
    let change = move |live: &mut Value| {
        if !live["metadata"]["deletionTimestamp"].is_null() || live["status"]["phase"] != "Bound" {
            return Edited::Unneeded;
        }
        let conditions = &mut live["status"]["conditions"];
        if conditions.is_null() {
            *conditions = json!([]);
        }
        let Some(conditions) = conditions.as_array_mut() else {
            return Edited::Impossible("status.conditions is no list".to_owned());
        };
        let existing = conditions.iter_mut().find(|condition| condition["type"] == TYPE);
        let status = existing.as_ref().and_then(|condition| condition["status"].as_str());
        if !is_outdated(status, is_used) {
            return Edited::Unneeded;
        }
        let new = condition(is_used, now);
        match existing {
            Some(existing) => *existing = new,
            None => conditions.push(new),
        }
        Edited::Changed
    };
    let because = if is_used { "a pod uses the claim" } else { "no pod uses the claim any more" };
    Write::edit(claim, change).on_subresource("status").because(because)
}

fn condition(is_used: bool, now: Time) -> Value {
    let (status, reason, message) = if is_used {
        (FALSE, "PodUsingPVC", "A pod is currently referencing this PVC")
    } else {
        (TRUE, "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    };
    json!({"type": TYPE, "status": status, "reason": reason, "message": message, "lastTransitionTime": now})
}
