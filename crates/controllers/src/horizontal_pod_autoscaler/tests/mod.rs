//! Decision tables of the horizontal pod autoscaler.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
mod behaviors;
mod enqueue;
mod failures;
mod metrics;
mod targets;

use std::time::Duration;

use keleustes_objects::{
    ApiResource, DiscoveredResources, GroupVersion, HorizontalPodAutoscaler, Key, Pod, Resource, Subresource,
};
use keleustes_plan::Loop;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::{HorizontalPodAutoscalerOptions, controller};

/// The clock of a rehearsal.
const NOW: &str = "2027-01-15T08:00:00Z";
const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/web/scale";
const POD_METRICS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods";

fn key() -> Key {
    Key::namespaced("shop", "web")
}

fn the_loop() -> Loop {
    with_options(|_| {})
}

fn with_options(change: impl FnOnce(&mut HorizontalPodAutoscalerOptions)) -> Loop {
    let mut options = HorizontalPodAutoscalerOptions::default();
    change(&mut options);
    controller(&options).loops.remove(0)
}

/// An autoscaler of the Deployment `web` for 1 to 10 replicas at 50% CPU.
fn autoscaler() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "generation": 2},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 10, "metrics": [cpu(50)],
        },
    })
}

fn with_spec(change: impl FnOnce(&mut Value)) -> Value {
    let mut autoscaler = autoscaler();
    change(&mut autoscaler["spec"]);
    autoscaler
}

fn cpu(target: i32) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": target}}})
}

fn external(target: Value) -> Value {
    json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}})
}

fn object(target: Value) -> Value {
    json!({"type": "Object", "object": {"metric": {"name": "hits"}, "target": target,
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"}}})
}

fn pods_metric(target: &str) -> Value {
    json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": target}}})
}

fn scale(spec: i32, status: i32) -> Value {
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "web", "namespace": "shop", "uid": "d1", "resourceVersion": "50"},
        "spec": {"replicas": spec}, "status": {"replicas": status, "selector": "app=web"}})
}

/// A pod that started and became ready an hour ago, with a request of one CPU.
fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "3",
                     "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}]},
        "status": {"phase": "Running", "startTime": "2027-01-15T07:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:00:00Z"}]},
    })
}

fn changed_pod(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod(name);
    change(&mut pod);
    pod
}

fn sample(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop"}, "timestamp": NOW, "window": "30s",
        "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": "50Mi"}}]})
}

fn pod_metrics(samples: &[Value]) -> Value {
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": samples})
}

fn values(values: &[&str]) -> Value {
    let item = |value: &&str| json!({"metricName": "queue", "timestamp": NOW, "value": value});
    json!({"items": values.iter().map(item).collect::<Vec<_>>()})
}

fn custom_value(name: &str, value: &str) -> Value {
    json!({"describedObject": {"kind": "Pod", "namespace": "shop", "name": name}, "timestamp": NOW, "value": value,
        "metric": {"name": "hits"}})
}

fn api(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    scales: bool,
) -> ApiResource {
    let subresource = Subresource {
        name: "scale".to_owned(),
        group: "autoscaling".to_owned(),
        version: "v1".to_owned(),
        kind: "Scale".to_owned(),
        verbs: Vec::new(),
    };
    ApiResource {
        resource: Resource::namespaced(group, version, plural, kind),
        preferred: true,
        singular: String::new(),
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: if scales { vec![subresource] } else { Vec::new() },
    }
}

fn discovery() -> DiscoveredResources {
    let served = |group: &str, version: &str| GroupVersion {
        group: group.to_owned(),
        version: version.to_owned(),
        preferred: true,
    };
    DiscoveredResources {
        resources: vec![
            api("", "v1", "pods", "Pod", false),
            api("", "v1", "services", "Service", false),
            api("apps", "v1", "deployments", "Deployment", true),
            api("example.com", "v1", "widgets", "Widget", true),
        ],
        versions: vec![served("apps", "v1"), served("custom.metrics.k8s.io", "v1beta2")],
        ..DiscoveredResources::default()
    }
}

/// A cluster with the autoscaler registered, its target of this size, and these pods.
fn cluster(a_loop: &Loop, autoscaler: Value, size: i32, pods: &[Value]) -> RehearsalCluster {
    let mut cluster =
        RehearsalCluster::of(a_loop).with_discovery(Ok(discovery())).with_response(SCALE, scale(size, size));
    for pod in pods {
        cluster = cluster.with::<Pod>(pod.clone());
    }
    cluster.put::<HorizontalPodAutoscaler>(a_loop, autoscaler);
    cluster
}

/// Pods with these CPU usages in milli units.
fn loaded(usages: &[i64]) -> (Vec<Value>, Value) {
    let name = |at: usize| format!("web-{at}");
    let samples: Vec<_> =
        usages.iter().enumerate().map(|(at, usage)| sample(&name(at), &format!("{usage}m"))).collect();
    ((0..usages.len()).map(|at| pod(&name(at))).collect(), pod_metrics(&samples))
}

/// What a reconcile did, without measurements and request lines.
fn essence(transcript: &str) -> String {
    let is_essential =
        |line: &&str| !["measure ", "get ", "list "].iter().any(|start| line.starts_with(start));
    transcript.lines().filter(is_essential).map(|line| format!("{line}\n")).collect()
}

/// The status that a transcript writes.
fn status(transcript: &str) -> Value {
    let line =
        transcript.lines().find(|line| line.starts_with("put horizontalpodautoscalers.autoscaling/status"));
    let Some((_, body)) = line.and_then(|line| line.split_once(": {")) else { return Value::Null };
    serde_json::from_str::<Value>(&format!("{{{body}")).unwrap()["status"].clone()
}

/// A condition of a written status: `status reason: message`.
fn condition(transcript: &str, r#type: &str) -> String {
    let status = status(transcript);
    let found =
        status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == r#type).cloned();
    found.map_or(String::new(), |one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", text("status"), text("reason"), text("message"))
    })
}

/// The size that a transcript writes to the target.
fn written_size(transcript: &str) -> Option<i64> {
    let line = transcript.lines().find(|line| line.starts_with("put deployments.apps/scale"))?;
    let (_, body) = line.split_once(": {")?;
    serde_json::from_str::<Value>(&format!("{{{body}")).unwrap()["spec"]["replicas"].as_i64()
}

fn events(transcript: &str) -> Vec<String> {
    let lines = transcript.lines().filter_map(|line| line.strip_prefix("event "));
    lines.map(|line| line.replace(" on HorizontalPodAutoscaler shop/web uid=u1", "")).collect()
}

/// Reconciles an autoscaler once with pods of these CPU usages.
fn reconciled(autoscaler: Value, size: i32, usages: &[i64]) -> String {
    let a_loop = the_loop();
    let (pods, metrics) = loaded(usages);
    let mut cluster = cluster(&a_loop, autoscaler, size, &pods).with_response(POD_METRICS, metrics);
    cluster.reconcile(&a_loop, key())
}

/// Stores the status that a transcript writes in the cache.
fn store(cluster: &mut RehearsalCluster, a_loop: &Loop, mut autoscaler: Value, transcript: &str) -> Value {
    if !status(transcript).is_null() {
        autoscaler["status"] = status(transcript);
    }
    put(cluster, a_loop, &mut autoscaler);
    autoscaler
}

/// Updates the autoscaler in the cache, with the next resourceVersion.
fn put(cluster: &mut RehearsalCluster, a_loop: &Loop, autoscaler: &mut Value) {
    let cached =
        cluster.view().get::<HorizontalPodAutoscaler>(&key()).unwrap().meta.resource_version.to_string();
    autoscaler["metadata"]["resourceVersion"] = json!((cached.parse::<u64>().unwrap() + 1).to_string());
    cluster.put::<HorizontalPodAutoscaler>(a_loop, autoscaler.clone());
}

const PERIOD: Duration = Duration::from_secs(15);
