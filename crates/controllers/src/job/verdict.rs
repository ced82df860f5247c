//! Whether and how a Job finishes: the first matching rule of an ordered list decides.

use std::time::Duration;

use keleustes_objects::{ArcStr, Condition, Conditions as _, InternedStr, PodPhase, TRUE, Time};

use super::status::condition;
use super::success_policy;
use super::view::JobView;

/// The condition of a Job that will fail once its pods are terminated.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
/// The condition of a Job that will complete once its pods are terminated.
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// How a Job finishes.
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

    /// The verdict of an earlier reconcile.
    fn from_condition(is_success: bool, condition: &Condition) -> Self {
        Self { is_success, reason: condition.reason.clone(), message: condition.message.clone() }
    }

    /// The condition written before finalizers are removed, so that the reason outlives the pods.
    pub(super) fn interim(&self, now: Time) -> Condition {
        let r#type = if self.is_success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET };
        condition(r#type, TRUE, &self.reason, &self.message, now)
    }

    /// The condition of the finished Job.
    pub(super) fn terminal(&self, now: Time) -> Condition {
        let r#type = if self.is_success { "Complete" } else { "Failed" };
        condition(r#type, TRUE, &self.reason, &self.message, now)
    }
}

/// The rules in order. The verdict of an earlier reconcile comes first, and failure comes before success.
const RULES: [fn(&JobView) -> Option<JobVerdict>; 8] = [
    success_criteria_met,
    failure_target_set,
    failed_by_pod_failure_policy,
    backoff_limit_exceeded,
    active_deadline_exceeded,
    max_failed_indexes_exceeded,
    all_indexes_finished,
    success_policy_met,
];

/// How the Job finishes, if it does so regardless of its running pods.
pub(super) fn of(inputs: &JobView) -> Option<JobVerdict> {
    RULES.iter().find_map(|rule| rule(inputs))
}

/// The last rule, evaluated after pods were created or deleted: enough pods have succeeded and none is
/// active.
pub(super) fn completed(inputs: &JobView, active: i32) -> Option<JobVerdict> {
    let is_enough = match inputs.job.spec.completions {
        None => inputs.succeeded > 0,
        Some(completions) => inputs.succeeded >= completions,
    };
    let reached = || JobVerdict::success("CompletionsReached", "Reached expected number of succeeded pods");
    (is_enough && active == 0).then(reached)
}

/// The time until `activeDeadlineSeconds` is exceeded; zero if it is.
pub(super) fn until_active_deadline(inputs: &JobView) -> Option<Duration> {
    let seconds = inputs.job.spec.active_deadline_seconds.filter(|_| !inputs.job.spec.suspend)?;
    let left = seconds.saturating_sub(inputs.now.seconds_since(inputs.start_time?));
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
}

fn success_criteria_met(inputs: &JobView) -> Option<JobVerdict> {
    let condition = inputs.job.status.conditions.of_type(SUCCESS_CRITERIA_MET)?;
    condition.is_true().then(|| JobVerdict::from_condition(true, condition))
}

fn failure_target_set(inputs: &JobView) -> Option<JobVerdict> {
    let condition = inputs.job.status.conditions.of_type(FAILURE_TARGET)?;
    condition.is_true().then(|| JobVerdict::from_condition(false, condition))
}

fn failed_by_pod_failure_policy(inputs: &JobView) -> Option<JobVerdict> {
    let failed = inputs.members.iter().filter(|member| inputs.is_failed(&member.pod));
    let message = failed
        .map(|member| inputs.failure_policy_match(&member.pod).job_failure_message)
        .find_map(|message| message)?;
    Some(JobVerdict::failure("PodFailurePolicy", message))
}

fn backoff_limit_exceeded(inputs: &JobView) -> Option<JobVerdict> {
    let limit = inputs.job.spec.backoff_limit;
    let exceeded = inputs.failed > limit || restarts_exceed_backoff_limit(inputs, limit);
    exceeded
        .then(|| JobVerdict::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
}

/// Container restarts within a pod count as failures if the restart policy is OnFailure.
fn restarts_exceed_backoff_limit(inputs: &JobView, limit: i32) -> bool {
    if inputs.job.spec.template.restart_policy() != "OnFailure" {
        return false;
    }
    let pods = inputs.members.iter().map(|member| &member.pod);
    let running = pods.filter(|pod| matches!(pod.phase, PodPhase::Running | PodPhase::Pending));
    let restarts = running.fold(0_i32, |sum, pod| sum.saturating_add(pod.restarts()));
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

fn active_deadline_exceeded(inputs: &JobView) -> Option<JobVerdict> {
    let is_exceeded = until_active_deadline(inputs)?.is_zero();
    is_exceeded
        .then(|| JobVerdict::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

fn max_failed_indexes_exceeded(inputs: &JobView) -> Option<JobVerdict> {
    let failed = inputs.indexes.as_ref()?.failed.as_ref()?;
    let exceeded = failed.count() > inputs.job.spec.max_failed_indexes?;
    let message = "Job has exceeded the specified maximal number of failed indexes";
    exceeded.then(|| JobVerdict::failure("MaxFailedIndexesExceeded", message))
}

fn all_indexes_finished(inputs: &JobView) -> Option<JobVerdict> {
    let indexes = inputs.indexes.as_ref()?;
    let failed = indexes.failed.as_ref()?.count();
    let all_finished = failed.saturating_add(indexes.succeeded.count()) >= inputs.completions();
    (failed > 0 && all_finished).then(|| JobVerdict::failure("FailedIndexes", "Job has failed indexes"))
}

fn success_policy_met(inputs: &JobView) -> Option<JobVerdict> {
    let succeeded = &inputs.indexes.as_ref()?.succeeded;
    let policy = inputs.job.spec.success_policy.as_ref()?;
    let rule = success_policy::first_matching_rule(policy, succeeded, inputs.completions())?;
    Some(JobVerdict::success("SuccessPolicy", format!("Matched rules at index {rule}")))
}
