//! The conditions of an autoscaler.

use keleustes_objects::{Condition, TRUE, Time};

pub(super) const ABLE_TO_SCALE: &str = "AbleToScale";
pub(super) const SCALING_ACTIVE: &str = "ScalingActive";
pub(super) const SCALING_LIMITED: &str = "ScalingLimited";
pub(super) const SCALED_TO_ZERO: &str = "ScaledToZero";

/// Sets a condition in place, or appends it. The transition time changes with the status alone.
pub(super) fn set_condition(
    conditions: &mut Vec<Condition>,
    r#type: &str,
    status: &str,
    (reason, message): (&str, &str),
    now: Time,
) {
    match conditions.iter_mut().find(|condition| condition.r#type == r#type) {
        Some(known) => {
            if known.status != status {
                known.status = status.into();
                known.last_transition_time = Some(now);
            }
            known.reason = reason.into();
            known.message = message.into();
        }
        None => conditions.push(Condition::new(r#type, status, reason, message, now)),
    }
}

/// Whether the controller itself has scaled the target to zero: the condition is the only memory of that.
pub(super) fn was_scaled_to_zero(conditions: &[Condition]) -> bool {
    let first = conditions.iter().find(|condition| condition.r#type == SCALED_TO_ZERO);
    first.is_some_and(|condition| condition.status == TRUE)
}

/// Removes the condition of a disabled feature.
pub(super) fn remove_scaled_to_zero(conditions: &mut Vec<Condition>) {
    conditions.retain(|condition| condition.r#type != SCALED_TO_ZERO);
}
