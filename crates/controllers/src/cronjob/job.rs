//! The Job of a scheduled time.

use keleustes_objects::{CronJob, Time, annotations};
use serde_json::{Map, Value, json};

use super::schedule;
use super::time_zones::TimeZones;
use crate::workloads::owners::controller_ref;

/// The name: one per minute, so that it locks the scheduled time.
pub(super) fn name(cron_job: &CronJob, scheduled: Time) -> String {
    format!("{}-{}", cron_job.meta.key.name, scheduled.unix_seconds() / 60)
}

/// The body of the Job. From the metadata of the template it takes labels and annotations only.
///
/// # Errors
/// If the time zone is unknown or the spec of the template is not valid JSON.
pub(super) fn body(cron_job: &CronJob, scheduled: Time, zones: &TimeZones) -> Result<Value, String> {
    let template = &cron_job.spec.job_template;
    let zone = zones.load(cron_job.spec.time_zone.as_deref().unwrap_or_default())?;
    let labels: Map<String, Value> =
        template.metadata.labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    let mut annotations: Map<String, Value> =
        template.metadata.annotations.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    let scheduled_text = schedule::rfc3339(&zone, scheduled.unix_seconds());
    annotations.insert(annotations::CRON_JOB_SCHEDULED_TIMESTAMP.to_owned(), json!(scheduled_text));
    let spec: Value = serde_json::from_str(template.spec.as_str()).map_err(|error| error.to_string())?;
    Ok(json!({
        "metadata": {
            "name": name(cron_job, scheduled),
            "namespace": cron_job.meta.key.namespace,
            "labels": labels,
            "annotations": annotations,
            "creationTimestamp": scheduled,
            "ownerReferences": [controller_ref::<CronJob>(&cron_job.meta)],
        },
        "spec": spec,
    }))
}
