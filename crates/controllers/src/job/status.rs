//! What the status of a Job says beside its counters: conditions, and when it was started.

use keleustes_objects::{Condition, Conditions as _, FALSE, Job, JobStatus, TRUE, Time};
use keleustes_plan::{InvolvedObject, Plan, PlannedEvent, Write};

use super::JobOptions;
use super::view::JobView;

/// A condition of a Job, as of now.
pub(super) fn condition(r#type: &str, status: &str, reason: &str, message: &str, now: Time) -> Condition {
    let last_probe_time = Some(now);
    Condition { last_probe_time, ..Condition::new(r#type, status, reason, message, now) }
}

/// Sets a condition where it stands, or at the end. Tells whether that is news: what says the same
/// already is left alone, and what is not there need not be said to be false.
pub(super) fn set(conditions: &mut Vec<Condition>, wanted: Condition) -> bool {
    match conditions.iter_mut().find(|there| there.r#type == wanted.r#type) {
        Some(there) => {
            let says = |condition: &Condition| {
                (condition.status.clone(), condition.reason.clone(), condition.message.clone())
            };
            let is_news = says(there) != says(&wanted);
            if is_news {
                *there = wanted;
            }
            is_news
        }
        None if wanted.status == *FALSE => false,
        None => {
            conditions.push(wanted);
            true
        }
    }
}

/// Tells in the status whether the Job is suspended, and to people if that is news.
pub(super) fn update_suspended_condition(
    facts: &JobView,
    status: &mut JobStatus,
    settings: &JobOptions,
) -> Option<PlannedEvent> {
    let (job, now) = (&*facts.job, facts.now);
    let (says, reason, message) = if job.spec.suspend {
        (TRUE, "Suspended", "Job suspended")
    } else {
        (FALSE, "Resumed", "Job resumed")
    };
    let wanted = condition("Suspended", says, &format!("Job{reason}"), message, now);
    if !set(&mut status.conditions, wanted) {
        return None;
    }
    if !job.spec.suspend {
        status.start_time = Some(now);
    } else if settings.clear_start_time_on_suspend {
        status.start_time = None;
    }
    Some(PlannedEvent::normal(InvolvedObject::of(job), reason, message))
}

/// Whether the Job is said to end so already.
pub(super) fn has_interim_condition(status: &JobStatus, interim: &Condition) -> bool {
    status.conditions.is_condition_true(&interim.r#type)
}

/// Writes a status, from the state that was seen or last written and from no other.
pub(super) fn write(job: &Job, status: &JobStatus, because: &'static str) -> Plan {
    Plan::of(Write::put_status(job, status).because(because))
}
