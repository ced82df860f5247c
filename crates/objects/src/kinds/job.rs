//! Jobs.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::full_meta::spec_status_kind;
use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::FullMessage;
use crate::{
    ArcStr, Condition, Conditions as _, InternedStr, Kind, LabelSelector, PodTemplate, Resource, Time, Uid,
    UnknownFields,
};

spec_status_kind! {
    /// A Job.
    Job, JobSpec, JobStatus,
    Resource::built_in("batch", "Job"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&Job::RESOURCE, ""));

/// The spec of a Job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// The maximum number of active pods.
    pub parallelism: i32,
    /// The number of pods that must succeed; if unset, one success completes the Job once all pods have finished.
    pub completions: Option<i32>,
    /// How long the Job may be active.
    pub active_deadline_seconds: Option<i64>,
    /// How failed pods are handled.
    pub pod_failure_policy: Option<PodFailurePolicy>,
    /// Which succeeded indexes complete the Job.
    pub success_policy: Option<SuccessPolicy>,
    /// The number of pod failures before the Job fails.
    pub backoff_limit: i32,
    /// The number of pod failures of one index before the index fails.
    pub backoff_limit_per_index: Option<i32>,
    /// The number of failed indexes before the Job fails.
    pub max_failed_indexes: Option<i32>,
    /// The selector of its pods.
    pub selector: Option<LabelSelector>,
    /// The pod template.
    pub template: PodTemplate,
    /// How long a finished Job is kept.
    pub ttl_seconds_after_finished: Option<i32>,
    /// `NonIndexed` or `Indexed`.
    pub completion_mode: InternedStr,
    /// Whether the Job is suspended.
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
    /// `TerminatingOrFailed` or `Failed`: the state in which a pod is replaced.
    pub pod_replacement_policy: InternedStr,
    /// The controller that reconciles the Job.
    pub managed_by: Option<InternedStr>,
    /// How its pods are scheduled as a group, as the server sent it.
    pub scheduling: Option<Box<Value>>,
}

/// How failed pods are handled: the first matching rule decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodFailurePolicy {
    /// The rules, in order.
    #[serde(deserialize_with = "null_is_empty")]
    pub rules: Box<[PodFailurePolicyRule]>,
}

/// A rule of a pod failure policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailurePolicyRule {
    /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
    pub action: InternedStr,
    /// Matches exit codes of containers.
    pub on_exit_codes: Option<OnExitCodes>,
    /// Matches pod conditions.
    #[serde(deserialize_with = "null_is_empty")]
    pub on_pod_conditions: Box<[OnPodCondition]>,
}

/// A requirement on the exit code of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnExitCodes {
    /// The container; any if unset.
    pub container_name: Option<InternedStr>,
    /// `In` or `NotIn`.
    pub operator: InternedStr,
    /// The exit codes.
    #[serde(deserialize_with = "null_is_empty")]
    pub values: Box<[i32]>,
}

/// A requirement on a pod condition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OnPodCondition {
    /// Its type.
    pub r#type: InternedStr,
    /// Its status; `True` if unset.
    pub status: InternedStr,
}

/// When a Job succeeds before all indexes have: the first satisfied rule decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// The rules, in order.
    #[serde(deserialize_with = "null_is_empty")]
    pub rules: Box<[SuccessPolicyRule]>,
}

/// A rule of a success policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessPolicyRule {
    /// The indexes that count; all if unset.
    pub succeeded_indexes: Option<ArcStr>,
    /// How many of them must have succeeded; all if unset.
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
            scheduling: None,
        }
    }
}

/// The API's defaults.
impl Default for OnPodCondition {
    fn default() -> Self {
        Self { r#type: InternedStr::default(), status: "True".into() }
    }
}

/// The status of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When the Job was started or resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the Job completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The number of active pods: neither finished nor terminating.
    pub active: i32,
    /// The number of succeeded pods or indexes.
    pub succeeded: i32,
    /// The number of failed pods.
    pub failed: i32,
    /// The number of terminating pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    /// The succeeded indexes, as intervals.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub completed_indexes: ArcStr,
    /// The failed indexes, as intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<ArcStr>,
    /// Finished pods that `succeeded` and `failed` do not include yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<UncountedTerminatedPods>,
    /// The number of ready active pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// UIDs of finished pods that are not yet counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UncountedTerminatedPods {
    /// Succeeded pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub succeeded: Vec<Uid>,
    /// Failed pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Uid>,
}

impl Job {
    /// Whether it is complete or failed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.status.conditions.is_condition_true("Complete")
            || self.status.conditions.is_condition_true("Failed")
    }

    /// The first condition `Complete` or `Failed` with status `True`, in the order of the list.
    #[must_use]
    pub fn finished_condition(&self) -> Option<&Condition> {
        let finished = |condition: &&Condition| {
            (condition.r#type == "Complete" || condition.r#type == "Failed") && condition.is_true()
        };
        self.status.conditions.iter().find(finished)
    }

    /// Whether its completion mode is `Indexed`.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode == "Indexed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_decoded_and_its_status_written_back() {
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
    fn a_job_has_the_api_defaults() {
        let bare: Job = serde_json::from_str(r#"{"metadata":{"name":"r"},"spec":{"suspend":null}}"#).unwrap();
        assert_eq!((bare.spec.parallelism, bare.spec.backoff_limit), (1, 6));
        assert!(!bare.is_indexed() && !bare.is_finished());
        assert_eq!(bare.spec.pod_replacement_policy, "TerminatingOrFailed");
    }
}
