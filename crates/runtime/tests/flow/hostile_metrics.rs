//! An autoscaler and a metrics server that is slow, down or talks nonsense: every request is bounded, the condition says
//! what is wrong, and no size changes until the metrics are right again.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use jiff::Timestamp;
use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault, MetricsSource, clock};
use keleustes_controllers::horizontal_pod_autoscaler::{self, HorizontalPodAutoscalerOptions};
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, wait};

const PERIOD: Duration = Duration::from_secs(15);
/// How long a request may take before it is given up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);

/// Every pod uses 100m, all of its request.
fn usage(_: &Value, _: &Value, _: &Value, _: u64, _: Timestamp) -> Option<(u64, u64)> {
    Some((100_000_000, 0))
}

fn no_external_metrics(_: &Value, _: Timestamp) -> Vec<(String, i64)> {
    Vec::new()
}

/// A metric that asks for four pods once its API works.
struct Metric {
    spec: Value,
    /// The path of its API.
    path: &'static str,
    /// The reason of `ScalingActive` if it cannot be read.
    reason: &'static str,
    /// The answer of a server that works; without one the embedded API server answers.
    right: Option<InjectedFault>,
}

/// Both pods use 100 % of their requests, the target is 50 %.
fn cpu() -> Metric {
    Metric {
        spec: json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}),
        path: "/apis/metrics.k8s.io/v1beta1/namespaces",
        reason: "FailedGetResourceMetric",
        right: None,
    }
}

fn external() -> Metric {
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    Metric {
        spec: json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}),
        path: "/apis/external.metrics.k8s.io/v1beta1/namespaces",
        reason: "FailedGetExternalMetric",
        right: Some(external_values(&json!("40"))),
    }
}

fn pods() -> Metric {
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    Metric {
        spec: json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": target}}),
        path: "/apis/custom.metrics.k8s.io/v1beta1/namespaces",
        reason: "FailedGetPodsMetric",
        right: Some(custom_values(&["web-0", "web-1"], &json!("20"))),
    }
}

fn object() -> Metric {
    let described = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    Metric {
        spec: json!({"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": described, "target": target}}),
        path: "/apis/custom.metrics.k8s.io/v1beta1/namespaces",
        reason: "FailedGetObjectMetric",
        right: Some(custom_values(&["web"], &json!("40"))),
    }
}

fn external_values(value: &Value) -> InjectedFault {
    let item = json!({"metricName": "queue", "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z", "value": value});
    body(200, json!({"kind": "ExternalMetricValueList", "items": [item]}).to_string())
}

fn custom_values(names: &[&str], value: &Value) -> InjectedFault {
    let item = |name: &&str| {
        json!({"describedObject": {"namespace": "default", "name": name}, "metricName": "hits",
            "timestamp": "2026-01-01T00:00:00Z", "value": value})
    };
    let items: Vec<_> = names.iter().map(item).collect();
    body(200, json!({"kind": "MetricValueList", "items": items}).to_string())
}

/// A Deployment with two pods that need four.
fn loaded_cluster(metric: &Metric) -> TestCluster {
    let metrics = MetricsSource { pod_usage: usage, external: no_external_metrics };
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().seed(7).clock(clock::following_tokio(start)).metrics(metrics).build();
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    server
        .seed(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec,
            "status": {"replicas": 2}}),
        )
        .unwrap();
    for name in ["web-0", "web-1"] {
        let long_ago = "2025-12-31T00:00:00Z";
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": long_ago});
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"containers": [container]},
            "status": {"phase": "Running", "startTime": long_ago, "conditions": [ready]}});
        server.seed(pod).unwrap();
    }
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    // Discovery lists the API group, and that is all that is needed of it.
    server
        .seed(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "metrics.custom.metrics.k8s.io"},
            "spec": {"group": "custom.metrics.k8s.io", "scope": "Namespaced",
                "names": {"plural": "metrics", "singular": "metric", "kind": "Metric", "listKind": "MetricList"},
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}))
        .unwrap();
    server
        .seed(json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": [metric.spec]}}))
        .unwrap();
    TestCluster::on_server(server, None)
}

fn replicas(cluster: &TestCluster) -> i64 {
    cluster.server.object("deployments.apps", "default", "web").unwrap()["spec"]["replicas"].as_i64().unwrap()
}

/// Status, reason and message of a condition.
fn scaling_active(cluster: &TestCluster) -> String {
    let autoscaler = cluster.server.object("horizontalpodautoscalers.autoscaling", "default", "web").unwrap();
    let conditions = autoscaler["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == "ScalingActive");
    let text = |field: &str| found.and_then(|one| one[field].as_str()).unwrap_or_default().to_owned();
    format!("{} {} {}", text("status"), text("reason"), text("message"))
}

async fn unharmed_by(fault: InjectedFault, words: &str) {
    metric_is_unharmed_by(&cpu(), fault, words).await;
}

async fn metric_is_unharmed_by(metric: &Metric, fault: InjectedFault, words: &str) {
    let cluster = loaded_cluster(metric);
    let rule = |fault| FaultRule::new(fault).method(Method::GET).target(metric.path);
    let wrong = cluster.faults.add(rule(fault));
    metric.right.iter().for_each(|right| {
        cluster.faults.add(rule(right.clone()));
    });
    let options = HorizontalPodAutoscalerOptions::default();
    let running = cluster.start(horizontal_pod_autoscaler::controller(&options)).await;
    wait(PERIOD * 2 + REQUEST_TIMEOUT * 2).await;
    let condition = scaling_active(&cluster);
    assert!(condition.starts_with(&format!("False {}", metric.reason)), "{words}: {condition}");
    assert!(condition.contains(words), "{words}: {condition}");
    assert!(condition.len() < 1000, "a message of {} bytes", condition.len());
    assert_eq!(replicas(&cluster), 2, "{words}");
    cluster.faults.disable(wrong);
    wait(PERIOD * 2 + REQUEST_TIMEOUT).await;
    assert_eq!(replicas(&cluster), 4, "{words}: the metrics are right again");
    cluster.stop(running).await;
}

fn body(code: u16, text: impl Into<Bytes>) -> InjectedFault {
    InjectedFault::RawBody { code, body: text.into() }
}

fn pod_metrics(namespace: &str, name: &str, cpu: &Value) -> InjectedFault {
    let item = json!({"metadata": {"namespace": namespace, "name": name}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
        "containers": [{"name": "c", "usage": {"cpu": cpu}}]});
    body(
        200,
        json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [item]})
            .to_string(),
    )
}

#[tokio::test(start_paused = true)]
async fn metrics_server_that_is_down_or_hangs_changes_no_size() {
    unharmed_by(InjectedFault::status(503, "ServiceUnavailable", "no endpoints"), "no endpoints").await;
    unharmed_by(
        InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused),
        "unable to fetch metrics",
    )
    .await;
    unharmed_by(InjectedFault::Hang, "unable to fetch metrics").await;
    unharmed_by(body(503, "service unavailable"), "unable to handle the request").await;
}

#[tokio::test(start_paused = true)]
async fn endless_response_of_a_metrics_server_is_cut_off() {
    // More than the limit; what is read is not kept.
    unharmed_by(body(200, vec![b' '; 33 << 20]), "exceeds 33554432 bytes").await;
}

#[tokio::test(start_paused = true)]
async fn nonsense_of_a_metrics_server_changes_no_size() {
    unharmed_by(body(200, "<html>login</html>"), "cannot be decoded").await;
    unharmed_by(body(200, "{\"items\": 7}"), "cannot be decoded").await;
    unharmed_by(body(200, "{}"), "no metrics returned").await;
    for nonsense in [json!("NaN"), json!("-Inf"), json!([1]), json!("12parsecs")] {
        unharmed_by(pod_metrics("default", "web-0", &nonsense), "cannot be decoded").await;
    }
    unharmed_by(pod_metrics("default", "web-0", &json!("-5")), "negative usage").await;
    unharmed_by(pod_metrics("default", "web-0", &json!("1000000000000000000")), "impossible usage").await;
    // Metrics of another namespace are dropped before pods are compared; those of unknown pods are compared and fit none.
    unharmed_by(pod_metrics("elsewhere", "web-0", &json!("5")), "did not receive metrics").await;
    unharmed_by(pod_metrics("default", "../../secrets", &json!("5")), "matched known pods").await;
}

/// What all metrics APIs have in common; `answer` is a response with a value.
async fn nonsense_changes_no_size(metric: &Metric, answer: impl Fn(&Value) -> InjectedFault) {
    for nonsense in [json!("NaN"), json!("-Inf"), json!([1])] {
        metric_is_unharmed_by(metric, answer(&nonsense), "cannot be decoded").await;
    }
    for impossible in [json!("1000000000000000000"), json!("-1000000000000000000"), json!("9E")] {
        metric_is_unharmed_by(metric, answer(&impossible), "impossible value").await;
    }
    metric_is_unharmed_by(metric, InjectedFault::Hang, "unable to").await;
    metric_is_unharmed_by(metric, body(200, vec![b' '; 33 << 20]), "exceeds 33554432 bytes").await;
    metric_is_unharmed_by(metric, body(200, "{\"items\": []}"), "").await;
}

#[tokio::test(start_paused = true)]
async fn nonsense_of_an_external_metrics_server_changes_no_size() {
    nonsense_changes_no_size(&external(), external_values).await;
}

#[tokio::test(start_paused = true)]
async fn nonsense_of_a_custom_metrics_server_changes_no_size() {
    nonsense_changes_no_size(&pods(), |value| custom_values(&["web-0", "web-1"], value)).await;
    nonsense_changes_no_size(&object(), |value| custom_values(&["web"], value)).await;
}
