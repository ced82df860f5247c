//! Loads of schedules and autoscalers: what they cost while nothing happens, and how late they are when something does.

use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp, ToSpan as _, tz::TimeZone};
use keleustes_objects::Resource;
use serde_json::{Value, json};

use super::bench_cluster::BenchCluster;
use super::loads::{keys, namespace_names, times_until};
use super::objects::{DEPLOYMENTS, JOBS, create_all, create_namespaces, deployment, list, patch_all};

const CRON_JOBS: Resource = Resource::namespaced("batch", "v1", "cronjobs", "CronJob");
const AUTOSCALERS: Resource =
    Resource::namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler");

/// The load whose control plane needs the adapter for external metrics.
pub(super) const AUTOSCALERS_LOAD: &str = "autoscalers";

const A_MINUTE: Duration = Duration::from_secs(60);

/// A thousand autoscalers of an external metric that is always on target, at the default period of 15 s.
pub(super) async fn autoscalers(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, cluster.share(1000));
    create_namespaces(&cluster.client, &namespaces).await?;
    let deployments = keys.iter().map(|key| (key.namespace.to_string(), deployment(&key.name, 1)));
    create_all(&cluster.client, &DEPLOYMENTS, deployments).await?;
    cluster
        .phase("create", async |client| {
            let all = keys.iter().map(|key| (key.namespace.to_string(), autoscaler(&key.name)));
            create_all(client, &AUTOSCALERS, all).await?;
            let is_active = |one: &Value| one["status"]["currentMetrics"][0]["type"] == "External";
            times_until(client, &AUTOSCALERS, keys.len(), is_active).await
        })
        .await?;
    cluster.phase("a minute on target", a_minute).await
}

/// The adapter reports 44 for this metric, so one replica is right.
fn autoscaler(name: &str) -> Value {
    let external = json!({"metric": {"name": "other-external-metric"}, "target": {"type": "AverageValue", "averageValue": "44"}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    json!({"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10,
        "metrics": [{"type": "External", "external": external}]}})
}

/// Ten thousand CronJobs, first with no time due, then with the same.
pub(super) async fn cron_jobs(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, cluster.share(10_000));
    create_namespaces(&cluster.client, &namespaces).await?;
    cluster
        .phase("create", async |client| {
            let all = keys.iter().map(|key| (key.namespace.to_string(), cron_job(&key.name)));
            create_all(client, &CRON_JOBS, all).await?;
            Ok(Vec::new())
        })
        .await?;
    cluster.phase("a minute without a due time", a_minute).await?;
    // All must know of it before, also the API server's watch cache; a change takes a few milliseconds.
    let preparation = SignedDuration::from_secs(60 + i64::try_from(keys.len() / 50)?);
    let due = Timestamp::now() + preparation;
    let due = due.to_zoned(TimeZone::UTC).round(jiff::Unit::Minute)? + 1.minute();
    let schedule = format!("{} {} * * *", due.minute(), due.hour());
    patch_all(&cluster.client, &CRON_JOBS, &keys, &json!({"spec": {"schedule": schedule}})).await?;
    let wait = due.timestamp().duration_since(Timestamp::now()) - SignedDuration::from_secs(5);
    tokio::time::sleep(Duration::try_from(wait).context("the changes took too long")?).await;
    let due = due.timestamp();
    cluster
        .phase("all due at once", async |client| {
            let delays = std::cell::RefCell::new(Vec::new());
            BenchCluster::until("a Job for each", async || {
                let jobs = list(client, &JOBS, "").await?;
                let is_complete = jobs.len() == keys.len();
                if is_complete {
                    *delays.borrow_mut() = jobs.iter().filter_map(|job| delay(job, due)).collect();
                }
                Ok(is_complete)
            })
            .await?;
            Ok(delays.into_inner())
        })
        .await
}

async fn a_minute(_: &kube::Client) -> anyhow::Result<Vec<f64>> {
    tokio::time::sleep(A_MINUTE).await;
    Ok(Vec::new())
}

/// Once a year; its Jobs are suspended, so that only their creation is measured.
fn cron_job(name: &str) -> Value {
    let container = json!({"name": "c", "image": "images.example.com/team/job:1.2.3"});
    let pod = json!({"restartPolicy": "Never", "containers": [container]});
    json!({"metadata": {"name": name}, "spec": {"schedule": "0 0 29 2 *", "timeZone": "Etc/UTC",
        "jobTemplate": {"spec": {"suspend": true, "template": {"spec": pod}}}}})
}

/// The seconds from the due time until a Job was created.
fn delay(job: &Value, due: Timestamp) -> Option<f64> {
    let created: Timestamp = job["metadata"]["creationTimestamp"].as_str()?.parse().ok()?;
    Some(created.duration_since(due).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_measured_from_the_due_time() {
        let job = json!({"metadata": {"creationTimestamp": "2026-01-01T00:05:03Z"}});
        assert_eq!(delay(&job, "2026-01-01T00:05:00Z".parse().unwrap()), Some(3.0));
        assert_eq!(delay(&json!({}), Timestamp::UNIX_EPOCH), None);
    }
}
