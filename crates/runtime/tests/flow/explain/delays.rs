//! Objects that wait for nothing but the time: their explanations say for what.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault, MetricsSource, clock};
use keleustes_client::RateLimit;
use keleustes_client::layers::{MiddlewareLayer, RetryAfter, Throttle, transport};
use keleustes_controllers::{ControllersOptions, enabled_controllers};
use keleustes_runtime::loops;
use serde_json::{Value, json};
use tower::Layer as _;

use super::{Stuck, deployment, template};
use crate::test_cluster::{TestCluster, settle, wait};

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

fn assert_has_line(waiting: &[String], wanted: &str) {
    assert!(waiting.iter().any(|line| line.contains(wanted)), "{wanted:?} is not in {waiting:#?}");
}

fn replica_set(replicas: i32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "shop", "name": "web", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template()}})
}

#[tokio::test(start_paused = true)]
async fn replica_set_waits_for_the_rate_limit_of_the_client() {
    let cluster = TestCluster::new();
    let rate = RateLimit { qps: 0.1, burst: 2 };
    let service = transport(cluster.faults.layer(cluster.server.clone()));
    let throttled = MiddlewareLayer::new(Throttle::new(rate, "h".to_owned(), None)).layer(service);
    let client = kube::Client::new(throttled, "default");
    let stuck = Stuck::with_client(cluster, client, &["replicaset-controller"], &[replica_set(3)]).await;
    let lines = waiting(&stuck, "replicasets", "web").await;
    let wanted = "it is being reconciled for 3s, waiting for the rate limit since 00:00:00 (--kube-api-qps)";
    assert_has_line(&lines, wanted);
    wait(Duration::from_secs(100)).await;
    assert_eq!(stuck.cluster.server.objects("pods").len(), 3);
    let lines = waiting(&stuck, "replicasets", "web").await;
    assert!(!lines.iter().any(|line| line.contains("rate limit")), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn replica_set_waits_for_the_rate_limit_of_the_api_server() {
    let cluster = TestCluster::new();
    let refused = FaultRule::new(InjectedFault::too_many_requests(60)).method(Method::POST).target("/pods");
    cluster.faults.add(refused);
    let service = transport(cluster.faults.layer(cluster.server.clone()));
    let repeated = MiddlewareLayer::new(RetryAfter::new("h".to_owned(), None)).layer(service);
    let client = kube::Client::new(repeated, "default");
    let stuck = Stuck::with_client(cluster, client, &["replicaset-controller"], &[replica_set(1)]).await;
    let lines = waiting(&stuck, "replicasets", "web").await;
    let wanted = "waiting for the rate limit since 00:00:00 (Retry-After of the API server)";
    assert_has_line(&lines, wanted);
}

#[tokio::test(start_paused = true)]
async fn replica_set_waits_for_its_coalesced_status() {
    let stuck = Stuck::new(&["replicaset-controller"], &[replica_set(4)]).await;
    wait(Duration::from_secs(10)).await;
    // The last one would be a milestone, which is written at once.
    for pod in stuck.cluster.server.objects("pods").iter().take(3) {
        let mut pod = Value::clone(pod);
        pod["status"] = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        stuck.put(pod);
        settle().await;
    }
    let explained = stuck.explain("replicasets", "web").await;
    let lines: Vec<_> = explained.controllers.into_iter().flat_map(|one| one.waiting).collect();
    assert_has_line(&lines, "its status update is coalesced until 00:00:1");
    wait(Duration::from_secs(30)).await;
    let set = stuck.cluster.server.object("replicasets.apps", "shop", "web").unwrap();
    assert_eq!(set["status"]["readyReplicas"], 3);
    assert_eq!(waiting(&stuck, "replicasets", "web").await, [""; 0]);
}

/// A controller whose kind the API server does not serve does not start, and says so.
#[tokio::test(start_paused = true)]
async fn controller_waits_for_a_kind_that_is_not_served() {
    let cluster = TestCluster::new();
    let not_served =
        InjectedFault::status(404, "NotFound", "the server could not find the requested resource");
    cluster.faults.add(FaultRule::new(not_served).method(Method::GET).target("/apis/apps/v1/replicasets?"));
    let stuck = Stuck::on(cluster, &[], &[replica_set(1)]).await;
    let named = |name: &str| name == "replicaset-controller";
    let mut chosen = enabled_controllers(&ControllersOptions::default(), &named).unwrap();
    let (inspection, context) = (&stuck.cluster.context.inspection, stuck.cluster.context.clone());
    inspection.register(&chosen);
    let (controller, client) = (chosen.remove(0), stuck.cluster.client());
    let starting =
        tokio::spawn(async move { loops::start(controller, &context, client, Arc::new(|_| {})).await });
    let lines = waiting(&stuck, "replicasets", "web").await;
    let wanted = "the controller has not started: it waits for the caches of replicasets.apps";
    assert_has_line(&lines, wanted);
    assert_has_line(&lines, "could not find the requested resource");
    assert!(!starting.is_finished());
    starting.abort();
}

/// Every pod uses 10m of the 100m that it requests.
fn low_usage(_: &Value, _: &Value, _: &Value, _: u64, _: jiff::Timestamp) -> Option<(u64, u64)> {
    Some((10_000_000, 0))
}

#[tokio::test(start_paused = true)]
async fn autoscaler_waits_for_its_stabilization_window() {
    let metrics = MetricsSource { pod_usage: low_usage, external: |_, _| Vec::new() };
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().seed(7).clock(clock::following_tokio(start)).metrics(metrics).build();
    let target = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": target, "metrics": [cpu]}});
    let mut set = replica_set(3);
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let controllers = ["replicaset-controller", "horizontal-pod-autoscaler-controller"];
    let cluster = TestCluster::on_server(server, None);
    let stuck = Stuck::on(cluster, &controllers, &[set, autoscaler]).await;
    wait(Duration::from_secs(2)).await;
    for pod in stuck.cluster.server.objects("pods") {
        let mut pod = Value::clone(&pod);
        pod["status"] = json!({"phase": "Running", "startTime": "2025-12-31T00:00:00Z", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:00Z"}]});
        stuck.put(pod);
    }
    wait(Duration::from_secs(60)).await;
    let explained = stuck.explain("hpa", "web").await;
    let wanted =
        "the stabilization window keeps its size (ScaleDownStabilized): recent recommendations were higher";
    let causes: Vec<_> = explained.causes.iter().map(|cause| cause.text.clone()).collect();
    assert_has_line(&causes, wanted);
    assert_eq!(explained.state, "waiting");
    wait(Duration::from_secs(400)).await;
    let explained = stuck.explain("hpa", "web").await;
    assert!(!explained.text().contains("stabilization"), "{}", explained.text());
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
