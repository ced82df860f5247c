//! CronJobs.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::spec_status_kind;
use crate::meta::null_is_default;
use crate::protobuf::FullMessage;
use crate::{
    Annotations, ArcStr, InternedStr, Kind, Labels, RawJson, Resource, ResourceVersion, Time, Uid,
    UnknownFields,
};

spec_status_kind! {
    /// A CronJob.
    CronJob, CronJobSpec, CronJobStatus,
    Resource::built_in("batch", "CronJob"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&CronJob::RESOURCE, ""));

/// The spec of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    /// The schedule.
    pub schedule: ArcStr,
    /// The name of the time zone; the zone of the process if unset.
    pub time_zone: Option<ArcStr>,
    /// How late a Job may be created.
    pub starting_deadline_seconds: Option<i64>,
    /// `Allow`, `Forbid` or `Replace`.
    pub concurrency_policy: InternedStr,
    /// Whether the CronJob is suspended.
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
    /// What its Jobs are made from.
    #[serde(deserialize_with = "null_is_default")]
    pub job_template: JobTemplate,
    /// How many complete Jobs are kept; all if unset.
    pub successful_jobs_history_limit: Option<i32>,
    /// How many failed Jobs are kept; all if unset.
    pub failed_jobs_history_limit: Option<i32>,
}

/// The template of a CronJob's Jobs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobTemplate {
    /// The metadata that its Jobs get.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: JobTemplateMeta,
    /// The spec of its Jobs, with all fields.
    pub spec: RawJson,
}

/// The metadata of a Job template; a Job gets nothing else from it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobTemplateMeta {
    /// `labels`.
    pub labels: Labels,
    /// `annotations`.
    pub annotations: Annotations,
}

/// The status of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// The Jobs that the controller has created and not seen finished.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ObjectReference>,
    /// The schedule time of the last created Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// The completionTime of the last Job that completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Kind.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: InternedStr,
    /// Namespace.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: InternedStr,
    /// Name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: ArcStr,
    /// UID.
    #[serde(skip_serializing_if = "Uid::is_empty")]
    pub uid: Uid,
    /// Group and version.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: InternedStr,
    /// The resourceVersion at the time of the reference.
    #[serde(skip_serializing_if = "ResourceVersion::is_empty")]
    pub resource_version: ResourceVersion,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_job_is_decoded_and_its_status_written_back() {
        let status = serde_json::json!({
            "active": [{"kind": "Job", "namespace": "a", "name": "sum-1", "apiVersion": "batch/v1",
                        "uid": "5f0e0a5e-7a52-4d6c-9a6b-0123456789ab", "resourceVersion": "5", "comes": "later"}],
            "lastScheduleTime": "2026-01-01T00:00:00Z", "lastSuccessfulTime": "2026-01-01T00:00:09Z",
            "comes": "later",
        });
        let cron_job: CronJob = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "sum", "namespace": "a"},
            "spec": {"schedule": "@daily", "timeZone": "Etc/UTC", "startingDeadlineSeconds": 10, "suspend": null,
                     "concurrencyPolicy": "Forbid", "failedJobsHistoryLimit": 1,
                     "jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": null},
                                     "spec": {"comes": {"much": "later"}}}},
            "status": status,
        }))
        .unwrap();
        assert!(!cron_job.spec.suspend && cron_job.spec.concurrency_policy == "Forbid");
        assert_eq!(cron_job.spec.time_zone.as_deref(), Some("Etc/UTC"));
        assert_eq!(cron_job.spec.job_template.spec.as_str(), r#"{"comes":{"much":"later"}}"#);
        assert_eq!(serde_json::to_value(&cron_job.status).unwrap(), status);
        let bare: CronJob =
            serde_json::from_str(r#"{"metadata":{"name":"r"},"status":{"active":null}}"#).unwrap();
        assert_eq!(serde_json::to_value(&bare.status).unwrap(), serde_json::json!({}));
    }
}
