//! The events of the controller, with upstream's texts.

use keleustes_objects::{CronJob, ErrorReason, Job};
use keleustes_plan::{InvolvedObject, Outcome, PlannedEvent};

pub(super) const TOO_MANY_MISSED: &str =
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";

pub(super) fn unsupported_schedule(schedule: &str) -> String {
    let quoted = super::schedule::quote(schedule);
    format!(
        "CRON_TZ or TZ used in schedule {quoted} is not officially supported, see \
         https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
    )
}

pub(super) fn unparseable(cron_job: &CronJob, schedule: &str) -> PlannedEvent {
    let message = format!("unparseable schedule for cronjob: {schedule}");
    PlannedEvent::warning(InvolvedObject::of(cron_job), "UnParseableCronJobSchedule", message)
}

pub(super) fn already_active(cron_job: &CronJob) -> PlannedEvent {
    let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
    PlannedEvent::normal(InvolvedObject::of(cron_job), "JobAlreadyActive", message)
}

pub(super) fn unexpected(cron_job: &CronJob, job: &Job) -> PlannedEvent {
    let name = &job.meta.key.name;
    let message = format!("Saw a job that the controller did not create or forgot: {name}");
    PlannedEvent::warning(InvolvedObject::of(cron_job), "UnexpectedJob", message)
}

pub(super) fn completed(cron_job: &CronJob, job: &Job) -> PlannedEvent {
    let condition = job.finished_condition().map_or("", |condition| &*condition.r#type);
    let message = format!("Saw completed job: {}, condition: {condition}", job.meta.key.name);
    PlannedEvent::normal(InvolvedObject::of(cron_job), "SawCompletedJob", message)
}

pub(super) fn missing(cron_job: &CronJob, name: &str) -> PlannedEvent {
    let message = format!("Active job went missing: {name}");
    PlannedEvent::normal(InvolvedObject::of(cron_job), "MissingJob", message)
}

pub(super) fn failed_get(cron_job: &CronJob, error: &str) -> PlannedEvent {
    PlannedEvent::warning(InvolvedObject::of(cron_job), "FailedGet", format!("Get job: {error}"))
}

/// The event of a create.
pub(super) fn created(
    cron_job: &CronJob,
    name: String,
) -> impl Fn(&Outcome) -> Option<PlannedEvent> + Send + Sync + 'static {
    let involved = InvolvedObject::of(cron_job);
    move |outcome| match outcome {
        Outcome::Done { .. } => {
            let message = format!("Created job {name}");
            Some(PlannedEvent::normal(involved.clone(), "SuccessfulCreate", message))
        }
        Outcome::Failed(error) => match error.reason {
            ErrorReason::AlreadyExists | ErrorReason::NamespaceTerminating => None,
            _ => {
                let message = format!("Error creating job: {error}");
                Some(PlannedEvent::warning(involved.clone(), "FailedCreate", message))
            }
        },
        Outcome::Unneeded | Outcome::NotSent => None,
    }
}

/// The event of a delete.
pub(super) fn deleted(
    cron_job: &CronJob,
    name: String,
) -> impl Fn(&Outcome) -> Option<PlannedEvent> + Send + Sync + 'static {
    let involved = InvolvedObject::of(cron_job);
    move |outcome| match outcome {
        Outcome::Done { .. } => {
            let message = format!("Deleted job {name}");
            Some(PlannedEvent::normal(involved.clone(), "SuccessfulDelete", message))
        }
        Outcome::Failed(error) => {
            let message = format!("Deleted job: {error}");
            Some(PlannedEvent::warning(involved.clone(), "FailedDelete", message))
        }
        Outcome::Unneeded | Outcome::NotSent => None,
    }
}
