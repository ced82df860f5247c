//! Jobs.

use serde::{Deserialize, Serialize};

use super::whole::whole_kind;
use crate::meta::{null_is_default, null_is_empty};
use crate::{
    ArcStr, Condition, Conditions as _, InternedStr, LabelSelector, PodTemplate, Resource, Time, Uid, Unknown,
};

whole_kind! {
    /// A job.
    Job, JobSpec, JobStatus,
    Resource::namespaced("batch", "v1", "jobs", "Job")
}

/// What is wanted of a job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// How many pods may run at once.
    pub parallelism: i32,
    /// How many pods must succeed; one, with all others ended, if it does not say.
    pub completions: Option<i32>,
    /// For how long it may run.
    pub active_deadline_seconds: Option<i64>,
    /// What failed pods mean.
    pub pod_failure_policy: Option<PodFailurePolicy>,
    /// Which indexes are enough.
    pub success_policy: Option<SuccessPolicy>,
    /// How many pods may fail.
    pub backoff_limit: i32,
    /// How many pods of one index may fail.
    pub backoff_limit_per_index: Option<i32>,
    /// How many indexes may fail.
    pub max_failed_indexes: Option<i32>,
    /// Which pods are its own.
    pub selector: Option<LabelSelector>,
    /// What pods are made from.
    pub template: PodTemplate,
    /// For how long it is kept after its end.
    pub ttl_seconds_after_finished: Option<i32>,
    /// `NonIndexed` or `Indexed`.
    pub completion_mode: InternedStr,
    /// Whether no pod is wanted for now.
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
    /// `TerminatingOrFailed` or `Failed`: when a pod may be replaced.
    pub pod_replacement_policy: InternedStr,
    /// Who else cares for it.
    pub managed_by: Option<InternedStr>,
}

/// What failed pods mean: the first rule that fits counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodFailurePolicy {
    /// The rules, in order.
    #[serde(deserialize_with = "null_is_empty")]
    pub rules: Box<[PodFailureRule]>,
}

/// What a failed pod means if it fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailureRule {
    /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
    pub action: InternedStr,
    /// It fits if a container ended so.
    pub on_exit_codes: Option<OnExitCodes>,
    /// It fits if a condition says so.
    #[serde(deserialize_with = "null_is_empty")]
    pub on_pod_conditions: Box<[OnPodCondition]>,
}

/// How a container must have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnExitCodes {
    /// Which container; any if it does not say.
    pub container_name: Option<InternedStr>,
    /// `In` or `NotIn`.
    pub operator: InternedStr,
    /// Exit codes.
    #[serde(deserialize_with = "null_is_empty")]
    pub values: Box<[i32]>,
}

/// What a condition of a pod must say.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OnPodCondition {
    /// Its type.
    pub r#type: InternedStr,
    /// What it says; `True` if absent.
    pub status: InternedStr,
}

/// Which indexes are enough for success: the first rule that is met counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// The rules, in order.
    #[serde(deserialize_with = "null_is_empty")]
    pub rules: Box<[SuccessRule]>,
}

/// Indexes that are enough for success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    /// Which indexes count; all if it does not say.
    pub succeeded_indexes: Option<ArcStr>,
    /// How many of them are enough; all if it does not say.
    pub succeeded_count: Option<i32>,
}

/// The API's defaults.
impl Default for JobSpec {
    fn default() -> Self {
        Self {
            parallelism: 1,
            completions: None,
            active_deadline_seconds: None,
            pod_failure_policy: None,
            success_policy: None,
            backoff_limit: 6,
            backoff_limit_per_index: None,
            max_failed_indexes: None,
            selector: None,
            template: PodTemplate::default(),
            ttl_seconds_after_finished: None,
            completion_mode: "NonIndexed".into(),
            suspend: false,
            pod_replacement_policy: "TerminatingOrFailed".into(),
            managed_by: None,
        }
    }
}

/// The API's defaults.
impl Default for OnPodCondition {
    fn default() -> Self {
        Self { r#type: InternedStr::default(), status: "True".into() }
    }
}

/// What is the case with a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Its conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When it was started, or resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// How many pods have neither ended nor are to be deleted.
    pub active: i32,
    /// How many pods, or indexes, have succeeded.
    pub succeeded: i32,
    /// How many pods have failed.
    pub failed: i32,
    /// How many pods are going away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    /// Indexes that have succeeded, as intervals.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub completed_indexes: ArcStr,
    /// Indexes that have failed, as intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<ArcStr>,
    /// Pods that have ended and are not yet in the numbers above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<UncountedTerminatedPods>,
    /// How many active pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// What else it says.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Pods that have ended and are not yet counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UncountedTerminatedPods {
    /// Those that succeeded.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub succeeded: Vec<Uid>,
    /// Those that failed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Uid>,
}

impl Job {
    /// Whether it has come to its end, one way or the other.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.status.conditions.is_condition_true("Complete")
            || self.status.conditions.is_condition_true("Failed")
    }

    /// Whether each of its pods works on an index.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode == "Indexed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_and_its_status_written_back() {
        let status = serde_json::json!({
            "conditions": [{"type": "Failed", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}],
            "startTime": "2026-01-01T00:00:00Z", "active": 0, "succeeded": 1, "failed": 2, "terminating": 0,
            "completedIndexes": "0", "failedIndexes": "", "ready": 0, "comes": "later",
            "uncountedTerminatedPods": {"failed": ["5f0e0a5e-7a52-4d6c-9a6b-0123456789ab"]},
        });
        let job: Job = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "sum", "namespace": "a"},
            "spec": {"completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1, "suspend": true,
                     "podFailurePolicy": {"rules": [
                         {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
                         {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
                     "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
                     "managedBy": "example.com/other", "template": {"spec": {"restartPolicy": "Never"}}},
            "status": status,
        }))
        .unwrap();
        assert!(job.is_finished() && job.is_indexed() && job.spec.suspend);
        let rules = &job.spec.pod_failure_policy.as_ref().unwrap().rules;
        assert_eq!(&*rules[0].on_exit_codes.as_ref().unwrap().values, [42]);
        assert_eq!(rules[1].on_pod_conditions[0].status, "True");
        assert_eq!(job.spec.template.restart_policy(), "Never");
        assert_eq!(serde_json::to_value(&job.status).unwrap(), status);
    }

    #[test]
    fn what_a_job_does_not_say_is_as_the_api_has_it() {
        let bare: Job = serde_json::from_str(r#"{"metadata":{"name":"r"},"spec":{"suspend":null}}"#).unwrap();
        assert_eq!((bare.spec.parallelism, bare.spec.backoff_limit), (1, 6));
        assert!(!bare.is_indexed() && !bare.is_finished());
        assert_eq!(bare.spec.pod_replacement_policy, "TerminatingOrFailed");
    }
}
