//! Objects that wait for nothing but the time: their explanations say for what.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Stuck, deployment, template};
use crate::test_cluster::wait;

/// What the controllers of an object wait for, one line each.
async fn waiting(stuck: &Stuck, resource: &str, name: &str) -> Vec<String> {
    wait(Duration::from_secs(3)).await;
    let explained = stuck.explain(resource, name).await;
    explained.controllers.into_iter().flat_map(|controller| controller.waiting).collect()
}

fn assert_waits_for(waiting: &[String], reason: &str) {
    let wanted = format!("it waits for {reason} (");
    assert!(waiting.iter().any(|line| line.starts_with(&wanted)), "{reason:?} is not in {waiting:#?}");
}

fn finished_job(ttl: i32) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "shop", "name": "done"},
        "spec": {"ttlSecondsAfterFinished": ttl, "template": template()},
        "status": {"completionTime": "2026-01-01T00:00:00Z", "succeeded": 1, "conditions": [
            {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

#[tokio::test(start_paused = true)]
async fn deployment_waits_for_its_progress_deadline() {
    let stuck = Stuck::new(&["deployment-controller", "replicaset-controller"], &[deployment("", 1)]).await;
    assert_waits_for(&waiting(&stuck, "deployments", "web").await, "its progress deadline");
}

#[tokio::test(start_paused = true)]
async fn replica_set_waits_for_min_ready_seconds() {
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "shop", "name": "web", "generation": 1},
        "spec": {"replicas": 1, "minReadySeconds": 900, "selector": {"matchLabels": {"app": "web"}},
            "template": template()}});
    let stuck = Stuck::new(&["replicaset-controller"], &[set]).await;
    wait(Duration::from_secs(2)).await;
    for pod in stuck.cluster.server.objects("pods") {
        let mut pod = Value::clone(&pod);
        pod["status"] = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        stuck.put(pod);
    }
    assert_waits_for(&waiting(&stuck, "replicasets", "web").await, "minReadySeconds of its pods");
}

#[tokio::test(start_paused = true)]
async fn finished_job_waits_for_its_time_to_live() {
    let stuck = Stuck::new(&["ttl-after-finished-controller"], &[finished_job(3600)]).await;
    assert_waits_for(&waiting(&stuck, "jobs", "done").await, "ttlSecondsAfterFinished");
    let without = Stuck::new(
        &["ttl-after-finished-controller"],
        &[{
            let mut job = finished_job(0);
            job["spec"].as_object_mut().unwrap().remove("ttlSecondsAfterFinished");
            job
        }],
    )
    .await;
    assert_eq!(waiting(&without, "jobs", "done").await, [""; 0], "it waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn cron_job_waits_for_its_schedule() {
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"namespace": "shop", "name": "daily", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedule": "30 4 * * *", "concurrencyPolicy": "Allow",
            "jobTemplate": {"spec": {"template": template()}}}});
    let stuck = Stuck::new(&["cronjob-controller"], &[cron_job]).await;
    assert_waits_for(&waiting(&stuck, "cronjobs", "daily").await, "the next time of its schedule");
}

#[tokio::test(start_paused = true)]
async fn job_waits_for_its_deadline_and_for_the_backoff_of_failed_pods() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "shop", "name": "j", "generation": 1},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "activeDeadlineSeconds": 7200,
            "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed", "suspend": false,
            "manualSelector": true, "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}},
                "spec": {"containers": [{"name": "c", "image": "any:1"}], "restartPolicy": "Never"}}}});
    let stuck = Stuck::new(&["job-controller"], &[job]).await;
    assert_waits_for(&waiting(&stuck, "jobs", "j").await, "activeDeadlineSeconds");
    for pod in stuck.cluster.server.objects("pods") {
        let mut pod = Value::clone(&pod);
        pod["status"] = json!({"phase": "Failed", "containerStatuses": [{"name": "c", "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:03Z"}}}]});
        stuck.put(pod);
    }
    assert_waits_for(&waiting(&stuck, "jobs", "j").await, "the backoff of its failed pods");
}
