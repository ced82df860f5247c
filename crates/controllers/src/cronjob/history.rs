//! Which finished Jobs are beyond the history limits.

use std::sync::Arc;

use keleustes_objects::{CronJobSpec, Job};

/// The finished Jobs beyond the limits: complete ones first, then failed ones, each oldest first.
pub(super) fn surplus(spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits =
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let beyond = |(kind, limit): (&str, Option<i32>)| {
        let Some(limit) = limit else { return Vec::new() };
        let finished = |job: &&Arc<Job>| job.finished_condition().is_some_and(|last| last.r#type == kind);
        let mut finished: Vec<_> = jobs.iter().filter(finished).cloned().collect();
        finished.sort_by(|one, other| {
            let start = |job: &Job| (job.status.start_time.is_none(), job.status.start_time);
            (start(one), &one.meta.key.name).cmp(&(start(other), &other.meta.key.name))
        });
        let kept = usize::try_from(limit).unwrap_or(0);
        finished.truncate(finished.len().saturating_sub(kept));
        finished
    };
    limits.into_iter().flat_map(beyond).collect()
}
