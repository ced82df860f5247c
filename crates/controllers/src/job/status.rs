//! The conditions and the start time in the status of a Job.

use keleustes_objects::{Condition, Conditions as _, FALSE, Job, JobStatus, TRUE, Time};
use keleustes_plan::{InvolvedObject, Plan, PlannedEvent, Write};

use super::JobOptions;
use super::view::JobView;

/// A condition with both timestamps set to now.
pub(super) fn condition(r#type: &str, status: &str, reason: &str, message: &str, now: Time) -> Condition {
    let last_probe_time = Some(now);
    Condition { last_probe_time, ..Condition::new(r#type, status, reason, message, now) }
}

/// Sets a condition in place or appends it. Returns whether the conditions changed: an equal condition is
/// kept, and a missing condition is not added with status False.
pub(super) fn set(conditions: &mut Vec<Condition>, wanted: Condition) -> bool {
    match conditions.iter_mut().find(|condition| condition.r#type == wanted.r#type) {
        Some(existing) => {
            let content = |condition: &Condition| {
                (condition.status.clone(), condition.reason.clone(), condition.message.clone())
            };
            let is_changed = content(existing) != content(&wanted);
            if is_changed {
                *existing = wanted;
            }
            is_changed
        }
        None if wanted.status == *FALSE => false,
        None => {
            conditions.push(wanted);
            true
        }
    }
}

/// Updates the Suspended condition and the start time. Returns an event if the condition changed.
pub(super) fn update_suspended_condition(
    inputs: &JobView,
    status: &mut JobStatus,
    options: &JobOptions,
) -> Option<PlannedEvent> {
    let (job, now) = (&*inputs.job, inputs.now);
    let (status_value, reason, message) = if job.spec.suspend {
        (TRUE, "Suspended", "Job suspended")
    } else {
        (FALSE, "Resumed", "Job resumed")
    };
    let wanted = condition("Suspended", status_value, &format!("Job{reason}"), message, now);
    if !set(&mut status.conditions, wanted) {
        return None;
    }
    if !job.spec.suspend {
        status.start_time = Some(now);
    } else if options.clear_start_time_on_suspend {
        status.start_time = None;
    }
    Some(PlannedEvent::normal(InvolvedObject::of(job), reason, message))
}

/// Whether the interim condition (FailureTarget or SuccessCriteriaMet) is already true.
pub(super) fn has_interim_condition(status: &JobStatus, interim: &Condition) -> bool {
    status.conditions.is_condition_true(&interim.r#type)
}

/// Writes a status with the resourceVersion that was read or last written.
pub(super) fn write(job: &Job, status: &JobStatus, because: &'static str) -> Plan {
    Plan::of(Write::put_status(job, status).because(because))
}
