//! CronJobs create a Job for the most recent time that is due, as their concurrency policy allows.
//!
//! Schedules have a minute, or a few years, between their times, so all scenarios but one wait for none: they set
//! the time of the last run to the year 2020, and the most recent time since then is due at once. An external controller
//! manages the Jobs: the scenarios finish them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

const FIRST_OF_JUNE: &str = "0 0 1 6 *";
const FIRST_OF_JANUARY: &str = "0 0 1 1 *";

/// A CronJob `c` in its own namespace.
struct CronJobFixture<'w> {
    cluster: &'w TestCluster,
    cron_jobs: Api<CronJob>,
    jobs: Api<Job>,
}

impl<'w> CronJobFixture<'w> {
    /// Creates the CronJob with these spec fields, suspended.
    async fn begin(cluster: &'w TestCluster, fields: Value) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("cronjobs").await?;
        let mut spec = json!({
            "schedule": FIRST_OF_JUNE, "timeZone": "Etc/UTC", "suspend": true,
            "jobTemplate": {"metadata": {"labels": {"made": "here"}, "annotations": {"kept": "too"}}, "spec": job_spec()},
        });
        merge(&mut spec, &fields)?;
        let fixture = Self { cluster, cron_jobs: cluster.api(&namespace), jobs: cluster.api(&namespace) };
        cluster.create(&fixture.cron_jobs, json!({"metadata": {"name": "c"}, "spec": spec})).await?;
        Ok(fixture)
    }

    async fn patch(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.cron_jobs.patch("c", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Makes the most recent time of a schedule due: without a change of the schedule in the last update, which would
    /// only be evaluated at its next time.
    async fn make_due(&self, schedule: &str) -> anyhow::Result<()> {
        self.patch(json!({"suspend": true, "schedule": schedule})).await?;
        let patch = Patch::Merge(json!({"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}}));
        self.cron_jobs.patch_status("c", &PatchParams::default(), &patch).await?;
        self.patch(json!({"suspend": false})).await
    }

    /// Waits until there are this many Jobs, and returns them in the order of their schedule times.
    async fn jobs(&self, count: usize) -> anyhow::Result<Vec<Job>> {
        let mut jobs = self
            .cluster
            .eventually(&format!("{count} Jobs"), async || {
                let jobs = self.jobs.list(&ListParams::default()).await?.items;
                Ok((jobs.len() == count).then_some(jobs))
            })
            .await?;
        jobs.sort_by_key(kube::ResourceExt::name_any);
        Ok(jobs)
    }

    /// Waits until the status lists these Jobs as active.
    async fn active_become(&self, names: &[String]) -> anyhow::Result<Value> {
        self.cluster
            .eventually(&format!("active Jobs {names:?}"), async || {
                let status = serde_json::to_value(self.cron_jobs.get("c").await?.status)?;
                let active = status["active"].as_array().cloned().unwrap_or_default();
                let mut there: Vec<_> = active.iter().filter_map(|entry| entry["name"].as_str()).collect();
                there.sort_unstable();
                Ok((there == names).then(|| status.clone()))
            })
            .await
    }

    async fn finish(&self, job: &Job, condition: &str, at: &str) -> anyhow::Result<()> {
        finish(&self.jobs, &job.name_any(), condition, at).await
    }
}

fn job_spec() -> Value {
    json!({"managedBy": "example.com/scenario", "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}})
}

fn merge(spec: &mut Value, fields: &Value) -> anyhow::Result<()> {
    for (field, value) in fields.as_object().context("the fields are an object")? {
        spec[field] = value.clone();
    }
    Ok(())
}

/// Finishes a Job, as its controller would.
async fn finish(jobs: &Api<Job>, name: &str, condition: &str, at: &str) -> anyhow::Result<()> {
    let interim = if condition == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
    let conditions: Vec<_> = [interim, condition]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at}))
        .collect();
    let mut status = json!({"startTime": at, "conditions": conditions});
    if condition == "Complete" {
        status["completionTime"] = json!(at);
    }
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}

/// Proves CRON-8, CRON-18, CRON-19, CRON-31, CRON-42, CRON-43, CRON-44, CRON-74.
pub(crate) async fn cron_job_runs_its_most_recent_missed_time(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = CronJobFixture::begin(cluster, json!({})).await?;
    fixture.make_due(FIRST_OF_JUNE).await?;
    let job = fixture.jobs(1).await?.remove(0);
    let status = fixture.active_become(&[job.name_any()]).await?;
    let scheduled = status["lastScheduleTime"].as_str().context("no lastScheduleTime")?;
    ensure!(scheduled.ends_with("-06-01T00:00:00Z"), "scheduled for {scheduled}");
    let stamp = job.annotations().get("batch.kubernetes.io/cronjob-scheduled-timestamp");
    ensure!(stamp.map(String::as_str) == Some(scheduled), "the annotation is {stamp:?}");
    ensure!(job.labels().get("made").is_some_and(|label| label == "here"), "{:?}", job.labels());
    ensure!(job.annotations().contains_key("kept"), "{:?}", job.annotations());
    let owner = job.owner_references().first().context("no owner reference")?;
    ensure!(owner.kind == "CronJob" && owner.controller == Some(true), "{owner:?}");
    let entry = &status["active"][0];
    ensure!(entry["uid"] == json!(job.uid()) && entry["apiVersion"] == "batch/v1", "{entry}");
    cluster.checkpoint("the Job runs").await;
    let completed = "2026-01-01T00:00:10Z";
    fixture.finish(&job, "Complete", completed).await?;
    let status = fixture.active_become(&[]).await?;
    ensure!(status["lastSuccessfulTime"] == completed, "{status}");
    cluster.settle().await;
    fixture.jobs(1).await?;
    cluster.checkpoint("the Job is complete").await;
    Ok(())
}

/// Proves CRON-38.
pub(crate) async fn allowed_jobs_of_a_cron_job_run_concurrently(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = CronJobFixture::begin(cluster, json!({"concurrencyPolicy": "Allow"})).await?;
    fixture.make_due(FIRST_OF_JUNE).await?;
    let first = fixture.jobs(1).await?.remove(0);
    fixture.active_become(&[first.name_any()]).await?;
    fixture.make_due(FIRST_OF_JANUARY).await?;
    let names: Vec<_> = fixture.jobs(2).await?.iter().map(kube::ResourceExt::name_any).collect();
    fixture.active_become(&names).await?;
    cluster.checkpoint("both Jobs run").await;
    Ok(())
}

/// Proves CRON-36, CRON-98.
pub(crate) async fn forbidden_job_of_a_cron_job_waits_for_the_running_one(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = CronJobFixture::begin(cluster, json!({"concurrencyPolicy": "Forbid"})).await?;
    fixture.make_due(FIRST_OF_JUNE).await?;
    let first = fixture.jobs(1).await?.remove(0);
    fixture.active_become(&[first.name_any()]).await?;
    fixture.make_due(FIRST_OF_JANUARY).await?;
    cluster.settle().await;
    ensure!(fixture.jobs(1).await?[0].uid() == first.uid(), "the running Job was replaced");
    fixture.finish(&first, "Failed", "2026-01-01T00:00:10Z").await?;
    let jobs = fixture.jobs(2).await?;
    let second = jobs.iter().find(|job| job.uid() != first.uid()).context("no second Job")?;
    fixture.active_become(&[second.name_any()]).await?;
    cluster.checkpoint("the missed time runs").await;
    Ok(())
}

/// Proves CRON-37, CRON-67.
pub(crate) async fn replacing_cron_job_deletes_the_running_job(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = CronJobFixture::begin(cluster, json!({"concurrencyPolicy": "Replace"})).await?;
    fixture.make_due(FIRST_OF_JUNE).await?;
    let first = fixture.jobs(1).await?.remove(0);
    fixture.active_become(&[first.name_any()]).await?;
    fixture.make_due(FIRST_OF_JANUARY).await?;
    let second = cluster
        .eventually("the new Job alone", async || {
            let mut jobs = fixture.jobs.list(&ListParams::default()).await?.items;
            let is_replaced = jobs.len() == 1 && jobs[0].uid() != first.uid();
            Ok(is_replaced.then(|| jobs.remove(0)))
        })
        .await?;
    fixture.active_become(&[second.name_any()]).await?;
    cluster.checkpoint("the Job is replaced").await;
    Ok(())
}

/// Proves CRON-24, CRON-34, CRON-28.
pub(crate) async fn suspended_or_late_cron_job_creates_no_job(cluster: &TestCluster) -> anyhow::Result<()> {
    let late = CronJobFixture::begin(cluster, json!({"startingDeadlineSeconds": 60})).await?;
    // In the embedded cluster it is still the first of January.
    late.make_due(FIRST_OF_JUNE).await?;
    let suspended = CronJobFixture::begin(cluster, json!({})).await?;
    suspended.make_due(FIRST_OF_JUNE).await?;
    let first = suspended.jobs(1).await?.remove(0);
    suspended.active_become(&[first.name_any()]).await?;
    // A suspended CronJob with a time that is due.
    suspended.patch(json!({"suspend": true, "schedule": FIRST_OF_JANUARY})).await?;
    let patch = Patch::Merge(json!({"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}}));
    suspended.cron_jobs.patch_status("c", &PatchParams::default(), &patch).await?;
    cluster.settle().await;
    let status = serde_json::to_value(late.cron_jobs.get("c").await?.status)?;
    ensure!(status["lastScheduleTime"] == "2020-01-01T00:00:00Z", "{status}");
    late.jobs(0).await?;
    suspended.jobs(1).await?;
    Ok(())
}

/// Proves CRON-50, CRON-51, CRON-52.
pub(crate) async fn cron_job_keeps_its_newest_finished_jobs(cluster: &TestCluster) -> anyhow::Result<()> {
    let limits = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1});
    let fixture = CronJobFixture::begin(cluster, limits).await?;
    fixture.make_due(FIRST_OF_JUNE).await?;
    let first = fixture.jobs(1).await?.remove(0);
    fixture.active_become(&[first.name_any()]).await?;
    fixture.finish(&first, "Complete", "2026-01-01T00:00:10Z").await?;
    fixture.active_become(&[]).await?;
    fixture.make_due(FIRST_OF_JANUARY).await?;
    let jobs = fixture.jobs(2).await?;
    let second = jobs.iter().find(|job| job.uid() != first.uid()).context("no second Job")?;
    fixture.active_become(&[second.name_any()]).await?;
    fixture.finish(second, "Complete", "2026-01-01T00:00:20Z").await?;
    ensure!(fixture.jobs(1).await?[0].uid() == second.uid(), "the newer Job was deleted");
    fixture.active_become(&[]).await?;
    cluster.checkpoint("one complete Job is kept").await;
    fixture.make_due(FIRST_OF_JUNE).await?;
    let jobs = fixture.jobs(2).await?;
    let third = jobs.iter().find(|job| job.uid() != second.uid()).context("no third Job")?;
    fixture.active_become(&[third.name_any()]).await?;
    fixture.finish(third, "Failed", "2026-01-01T00:00:30Z").await?;
    fixture.active_become(&[]).await?;
    fixture.jobs(2).await?;
    // Only now, because the original reports a Job as missing that it deletes before its cache has seen that
    // status.active no longer names it.
    cluster.settle().await;
    fixture.patch(json!({"failedJobsHistoryLimit": 0})).await?;
    ensure!(fixture.jobs(1).await?[0].uid() == second.uid(), "a failed Job was kept");
    Ok(())
}

const MANY: usize = 1000;

/// Proves CRON-43.
pub(crate) async fn thousand_cron_jobs_of_one_minute_run_once_each(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = CronJobFixture::begin(cluster, json!({})).await?;
    let created = fixture.cron_jobs.get("c").await?.metadata.creation_timestamp.context("no time")?.0;
    // A minute that begins once all of them exist.
    let due = Timestamp::from_second((created.as_second() / 60 + 2) * 60)?;
    let schedule = due.strftime("%-M %-H * * *").to_string();
    let create = async |n: usize| {
        let spec = json!({"schedule": schedule, "timeZone": "Etc/UTC", "jobTemplate": {"spec": job_spec()}});
        let body = json!({"metadata": {"name": format!("many-{n:03}")}, "spec": spec});
        cluster.create(&fixture.cron_jobs, body).await
    };
    stream::iter(0..MANY).map(create).buffer_unordered(8).try_collect::<Vec<_>>().await?;
    ensure!(
        fixture.jobs.list_metadata(&ListParams::default()).await?.items.is_empty(),
        "a Job exists too early"
    );
    tokio::time::sleep(Duration::try_from(due.duration_since(created))?).await;
    // The original may send twenty requests per second, and needs minutes.
    for count in [MANY / 4, MANY / 2, MANY * 3 / 4, MANY] {
        let active = async || {
            let listed = fixture.cron_jobs.list(&ListParams::default()).await?.items;
            let is_active =
                |one: &&CronJob| one.status.as_ref().is_some_and(|status| status.active.is_some());
            tokio::time::sleep(Duration::from_millis(500)).await;
            Ok((listed.iter().filter(is_active).count() >= count).then_some(()))
        };
        cluster.eventually(&format!("{count} active CronJobs"), active).await?;
    }
    let jobs = fixture.jobs(MANY).await?;
    let mut owners = BTreeSet::new();
    for job in &jobs {
        let stamp = job.annotations().get("batch.kubernetes.io/cronjob-scheduled-timestamp");
        ensure!(stamp == Some(&due.to_string()), "{} is scheduled for {stamp:?}", job.name_any());
        let early = job.metadata.creation_timestamp.as_ref().is_none_or(|time| time.0 < due);
        ensure!(!early, "{} exists before its time", job.name_any());
        owners.extend(job.owner_references().iter().map(|owner| owner.name.clone()));
    }
    ensure!(owners.len() == MANY, "{} CronJobs have run", owners.len());
    Ok(())
}

/// Proves TTLF-2, TTLF-14, TTLF-25, TTLF-40, TTLF-49.
pub(crate) async fn finished_job_is_deleted_after_its_ttl(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace_with_service_account("ttl").await?;
    let jobs = cluster.api::<Job>(&namespace);
    for (name, ttl) in
        [("now", Some(0)), ("later", Some(1_000_000_000)), ("never", None), ("running", Some(0))]
    {
        let mut spec = job_spec();
        spec["ttlSecondsAfterFinished"] = json!(ttl);
        cluster.create(&jobs, json!({"metadata": {"name": name}, "spec": spec})).await?;
    }
    let at = "2026-01-01T00:00:00Z";
    finish(&jobs, "never", "Complete", at).await?;
    finish(&jobs, "later", "Failed", at).await?;
    finish(&jobs, "now", "Failed", at).await?;
    let gone = |name: &'static str| {
        let jobs = &jobs;
        async move {
            let absent = async || Ok(jobs.get_opt(name).await?.is_none().then_some(()));
            cluster.eventually(&format!("Job {name} to be deleted"), absent).await
        }
    };
    gone("now").await?;
    cluster.settle().await;
    let left: Vec<_> =
        jobs.list(&ListParams::default()).await?.iter().map(kube::ResourceExt::name_any).collect();
    ensure!(left == ["later", "never", "running"], "{left:?} are left");
    cluster.checkpoint("the expired Job is deleted").await;
    let expired = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 0}}));
    jobs.patch("later", &PatchParams::default(), &expired).await?;
    gone("later").await?;
    let left: Vec<_> =
        jobs.list(&ListParams::default()).await?.iter().map(kube::ResourceExt::name_any).collect();
    ensure!(left == ["never", "running"], "{left:?} are left");
    Ok(())
}
