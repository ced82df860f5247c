//! Whether a Job has come to its end, and how: the first rung of a ladder that holds decides.

use std::time::Duration;

use keleustes_objects::{ArcStr, Condition, Conditions as _, InternedStr, PodPhase, TRUE, Time};

use super::status::condition;
use super::success_policy;
use super::view::JobView;

/// The condition that tells that a Job will fail, once its pods are gone.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
/// The condition that tells that a Job will be complete, once its pods are gone.
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobVerdict {
    pub(super) is_success: bool,
    pub(super) reason: InternedStr,
    pub(super) message: ArcStr,
}

impl JobVerdict {
    fn success(reason: &str, message: impl Into<ArcStr>) -> Self {
        Self { is_success: true, reason: reason.into(), message: message.into() }
    }

    fn failure(reason: &str, message: impl Into<ArcStr>) -> Self {
        Self { is_success: false, reason: reason.into(), message: message.into() }
    }

    /// The end that an earlier turn has announced.
    fn announced(is_success: bool, condition: &Condition) -> Self {
        Self { is_success, reason: condition.reason.clone(), message: condition.message.clone() }
    }

    /// What is told before the pods are let go, so that the reason outlives them.
    pub(super) fn interim(&self, now: Time) -> Condition {
        let r#type = if self.is_success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET };
        condition(r#type, TRUE, &self.reason, &self.message, now)
    }

    /// What is told at the end.
    pub(super) fn terminal(&self, now: Time) -> Condition {
        let r#type = if self.is_success { "Complete" } else { "Failed" };
        condition(r#type, TRUE, &self.reason, &self.message, now)
    }
}

/// The ladder, first rung first. What an earlier turn has announced comes before everything, and failure
/// before success.
const RUNGS: [fn(&JobView) -> Option<JobVerdict>; 8] = [
    success_announced,
    failure_announced,
    failed_by_policy,
    too_many_failures,
    too_late,
    too_many_failed_indexes,
    no_index_left,
    enough_by_policy,
];

/// How the Job ends, if it does whatever its running pods do.
pub(super) fn of(facts: &JobView) -> Option<JobVerdict> {
    RUNGS.iter().find_map(|rung| rung(facts))
}

/// The last rung, asked once pods have been seen to: all work is done and nobody works.
pub(super) fn completed(facts: &JobView, active: i32) -> Option<JobVerdict> {
    let is_enough = match facts.job.spec.completions {
        None => facts.succeeded > 0,
        Some(completions) => facts.succeeded >= completions,
    };
    let reached = || JobVerdict::success("CompletionsReached", "Reached expected number of succeeded pods");
    (is_enough && active == 0).then(reached)
}

/// After what time the Job will have run for too long.
pub(super) fn time_left(facts: &JobView) -> Option<Duration> {
    let seconds = facts.job.spec.active_deadline_seconds.filter(|_| !facts.job.spec.suspend)?;
    let left = seconds.saturating_sub(facts.now.seconds_since(facts.start_time?));
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
}

fn success_announced(facts: &JobView) -> Option<JobVerdict> {
    let condition = facts.job.status.conditions.of_type(SUCCESS_CRITERIA_MET)?;
    condition.is_true().then(|| JobVerdict::announced(true, condition))
}

fn failure_announced(facts: &JobView) -> Option<JobVerdict> {
    let condition = facts.job.status.conditions.of_type(FAILURE_TARGET)?;
    condition.is_true().then(|| JobVerdict::announced(false, condition))
}

fn failed_by_policy(facts: &JobView) -> Option<JobVerdict> {
    let failed = facts.members.iter().filter(|member| facts.is_failed(&member.pod));
    let message =
        failed.map(|member| facts.judgement(&member.pod).job_failure_message).find_map(|message| message)?;
    Some(JobVerdict::failure("PodFailurePolicy", message))
}

fn too_many_failures(facts: &JobView) -> Option<JobVerdict> {
    let limit = facts.job.spec.backoff_limit;
    let exceeded = facts.failed > limit || restarted_too_often(facts, limit);
    exceeded
        .then(|| JobVerdict::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
}

/// Containers that are started again in the same pod fail, too.
fn restarted_too_often(facts: &JobView, limit: i32) -> bool {
    if facts.job.spec.template.restart_policy() != "OnFailure" {
        return false;
    }
    let pods = facts.members.iter().map(|member| &member.pod);
    let running = pods.filter(|pod| matches!(pod.phase, PodPhase::Running | PodPhase::Pending));
    let restarts = running.fold(0_i32, |sum, pod| sum.saturating_add(pod.restarts()));
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

fn too_late(facts: &JobView) -> Option<JobVerdict> {
    let is_over = time_left(facts)?.is_zero();
    is_over.then(|| JobVerdict::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

fn too_many_failed_indexes(facts: &JobView) -> Option<JobVerdict> {
    let failed = facts.indexes.as_ref()?.failed.as_ref()?;
    let exceeded = failed.count() > facts.job.spec.max_failed_indexes?;
    let message = "Job has exceeded the specified maximal number of failed indexes";
    exceeded.then(|| JobVerdict::failure("MaxFailedIndexesExceeded", message))
}

fn no_index_left(facts: &JobView) -> Option<JobVerdict> {
    let indexes = facts.indexes.as_ref()?;
    let failed = indexes.failed.as_ref()?.count();
    let all_ended = failed.saturating_add(indexes.succeeded.count()) >= facts.completions();
    (failed > 0 && all_ended).then(|| JobVerdict::failure("FailedIndexes", "Job has failed indexes"))
}

fn enough_by_policy(facts: &JobView) -> Option<JobVerdict> {
    let succeeded = &facts.indexes.as_ref()?.succeeded;
    let policy = facts.job.spec.success_policy.as_ref()?;
    let rule = success_policy::first_matching_rule(policy, succeeded, facts.completions())?;
    Some(JobVerdict::success("SuccessPolicy", format!("Matched rules at index {rule}")))
}
