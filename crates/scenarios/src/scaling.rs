//! Autoscalers in a cluster with metrics: metrics-server and an adapter on a real control plane, stand-ins in the embedded
//! cluster.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

/// One pod is added or removed at a time, so that the steps do not depend on when usage is measured.
const ONE_BY_ONE: &str = r#"{
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
}"#;

/// The annotations that say what a pod uses: for kwok, which metrics-server measures, and for the embedded cluster.
const USAGE: [&str; 2] = ["kwok.x-k8s.io/usage-cpu", "hollow.keleustes.io/cpu"];

/// A metric of the adapter. Its test provider reports 42 for the label `foo=bar`, always.
const EXTERNAL_METRIC: &str = "my-external-metric";

/// A namespace with autoscalers.
struct ScalingFixture<'w> {
    cluster: &'w TestCluster,
    namespace: String,
    deployments: Api<Deployment>,
    autoscalers: Api<HorizontalPodAutoscaler>,
}

impl<'w> ScalingFixture<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("scaling").await?;
        let (deployments, autoscalers) = (cluster.api(&namespace), cluster.api(&namespace));
        // The embedded cluster takes external metrics from ConfigMaps; the adapter does not read it.
        let metric = json!({
            "metadata": {"name": "external", "labels": {"foo": "bar"},
                "annotations": {"hollow.keleustes.io/external-metrics": "true"}},
            "data": {EXTERNAL_METRIC: "42"},
        });
        cluster.create(&cluster.api::<ConfigMap>(&namespace), metric).await?;
        Ok(Self { cluster, namespace, deployments, autoscalers })
    }

    async fn deployment(&self) -> anyhow::Result<()> {
        let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod});
        self.cluster.create(&self.deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
        Ok(())
    }

    async fn autoscaler(
        &self,
        target: Value,
        max: i32,
        metric: Value,
        behavior: Value,
    ) -> anyhow::Result<()> {
        let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": max, "metrics": [metric],
            "behavior": behavior});
        self.cluster.create(&self.autoscalers, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
        Ok(())
    }

    /// Divides a load of so many milli cores between the running pods, until there are as many as wanted.
    async fn pods_become(&self, wanted: usize, load_milli: usize) -> anyhow::Result<()> {
        let pods: Api<Pod> = self.cluster.api(&self.namespace);
        let settled = async || {
            let all = pods.list(&ListParams::default().labels("app=web")).await?.items;
            let is_running = |pod: &&Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
            };
            let running: Vec<&Pod> = all.iter().filter(is_running).collect();
            for pod in &running {
                let usage = format!("{}m", load_milli / running.len());
                if pod.annotations().get(USAGE[0]) != Some(&usage) {
                    let annotations = json!({USAGE[0]: usage, USAGE[1]: usage});
                    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
                    pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
                }
            }
            Ok((running.len() == wanted && all.len() == wanted).then_some(()))
        };
        self.cluster.eventually(&format!("{wanted} pods with a load of {load_milli}m"), settled).await
    }

    /// Lets the newest pods be deleted first. Pods of about the same age are chosen by UID, and their IP addresses would differ
    /// between two clusters.
    async fn oldest_pod_stays(&self) -> anyhow::Result<()> {
        let pods: Api<Pod> = self.cluster.api(&self.namespace);
        let mut all = pods.list(&ListParams::default().labels("app=web")).await?.items;
        all.sort_by_key(|pod| pod.metadata.creation_timestamp.clone().map(|time| time.0));
        for (younger, pod) in all.iter().enumerate() {
            let annotations =
                json!({"controller.kubernetes.io/pod-deletion-cost": format!("{}", 100 - younger)});
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// Lets the adapter report a custom metric from now on. Its test provider takes values at paths like those at which they
    /// are read.
    async fn report(&self, described: &str, metric: &str, value: usize) -> anyhow::Result<()> {
        let port = self.cluster.real()?.plane().metric_values_port().context("no metrics adapter runs")?;
        let adapter = Client::try_from(Config::new(format!("http://127.0.0.1:{port}").parse()?))?;
        let path = format!("/write-metrics/namespaces/{}/{described}/{metric}", self.namespace);
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        let body = json!(value.to_string()).to_string().into_bytes();
        adapter.request_text(request.body(body)?).await.with_context(|| format!("reporting {metric}"))?;
        Ok(())
    }

    /// Divides a custom metric between the running pods, as soon as there are so many.
    async fn pods_report(&self, metric: &str, total: usize, pods: usize) -> anyhow::Result<()> {
        self.pods_become(pods, 0).await?;
        let all: Api<Pod> = self.cluster.api(&self.namespace);
        for pod in all.list(&ListParams::default().labels("app=web")).await? {
            self.report(&format!("pods/{}", pod.name_any()), metric, total / pods).await?;
        }
        Ok(())
    }

    async fn patch_autoscaler(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.autoscalers.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn status(&self) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.autoscalers.get("web").await?)?["status"].clone())
    }

    /// Waits until the status has these numbers of replicas and this reason of `ScalingLimited`.
    async fn status_becomes(&self, replicas: i32, limited: &str) -> anyhow::Result<Value> {
        let found = async || {
            let status = self.status().await?;
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let is_limited = |one: &Value| one["type"] == "ScalingLimited" && one["reason"] == limited;
            let is_right = status["currentReplicas"] == replicas
                && status["desiredReplicas"] == replicas
                && conditions.iter().any(is_limited);
            Ok(is_right.then_some(status))
        };
        self.cluster.eventually(&format!("{replicas} replicas, {limited}"), found).await
    }
}

fn deployment_target() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

fn external_metric() -> Value {
    let metric = json!({"name": EXTERNAL_METRIC, "selector": {"matchLabels": {"foo": "bar"}}});
    json!({"type": "External", "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "10"}}})
}

/// Proves HPA-40, HPA-91, HPA-98.
pub(crate) async fn deployment_follows_its_load_up_and_down(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ScalingFixture::begin(cluster).await?;
    fixture.deployment().await?;
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    fixture.autoscaler(deployment_target(), 3, cpu, serde_json::from_str(ONE_BY_ONE)?).await?;
    fixture.pods_become(1, 5).await?;
    for pods in [2, 3] {
        fixture.pods_become(pods, 900).await?;
    }
    let status = fixture.status_becomes(3, "TooManyReplicas").await?;
    let metric = &status["currentMetrics"][0]["resource"];
    ensure!(metric["name"] == "cpu", "{status}");
    cluster.checkpoint("three pods share the load").await;
    fixture.oldest_pod_stays().await?;
    for pods in [2, 1] {
        fixture.pods_become(pods, 5).await?;
    }
    // A tenth of the target rounds up to the one pod that is the minimum: nothing limits it.
    fixture.status_becomes(1, "DesiredWithinRange").await?;
    Ok(())
}

/// Proves HPA-70, HPA-77.
pub(crate) async fn external_metric_scales_a_deployment(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ScalingFixture::begin(cluster).await?;
    fixture.deployment().await?;
    fixture.autoscaler(deployment_target(), 9, external_metric(), Value::Null).await?;
    let status = fixture.status_becomes(5, "DesiredWithinRange").await?;
    ensure!(status["currentMetrics"][0]["external"]["metric"]["name"] == EXTERNAL_METRIC, "{status}");
    Ok(())
}

/// A custom metric of the pods themselves: new pods, which report nothing yet, do not need more pods.
///
/// Proves HPA-62, HPA-74.
pub(crate) async fn custom_metric_of_pods_scales_a_deployment(cluster: &TestCluster) -> anyhow::Result<()> {
    const METRIC: &str = "queued-requests";
    let fixture = ScalingFixture::begin(cluster).await?;
    fixture.deployment().await?;
    fixture.pods_report(METRIC, 30, 1).await?;
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    let queued = json!({"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": target}});
    fixture.autoscaler(deployment_target(), 9, queued, Value::Null).await?;
    fixture.status_becomes(3, "DesiredWithinRange").await?;
    fixture.pods_report(METRIC, 60, 3).await?;
    let status = fixture.status_becomes(6, "DesiredWithinRange").await?;
    let current = &status["currentMetrics"][0]["pods"];
    ensure!(current["metric"]["name"] == METRIC && current["current"]["averageValue"] == "20", "{status}");
    Ok(())
}

/// Custom metrics of a Service, divided between the pods or not.
///
/// Proves HPA-64, HPA-66, HPA-75.
pub(crate) async fn custom_metrics_of_objects_scale_a_deployment(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ScalingFixture::begin(cluster).await?;
    fixture.deployment().await?;
    fixture.pods_become(1, 0).await?;
    let service = json!({"metadata": {"name": "front"}, "spec": {"ports": [{"port": 80}]}});
    cluster.create(&cluster.api::<Service>(&fixture.namespace), service).await?;
    let metric = |metric: &str, target: Value| {
        let described = json!({"apiVersion": "v1", "kind": "Service", "name": "front"});
        json!({"type": "Object",
            "object": {"describedObject": described, "metric": {"name": metric}, "target": target}})
    };
    let each_ten = json!({"type": "AverageValue", "averageValue": "10"});
    fixture.report("services/front", "hits", 20).await?;
    fixture.autoscaler(deployment_target(), 9, metric("hits", each_ten), Value::Null).await?;
    fixture.status_becomes(2, "DesiredWithinRange").await?;
    fixture.report("services/front", "hits", 35).await?;
    let status = fixture.status_becomes(4, "DesiredWithinRange").await?;
    let current = &status["currentMetrics"][0]["object"];
    ensure!(
        current["describedObject"]["name"] == "front" && current["current"]["averageValue"].is_string(),
        "{status}"
    );

    // A value that the number of pods does not change asks for more at each step.
    fixture.report("services/front", "load", 15).await?;
    let all_ten = json!({"type": "Value", "value": "10"});
    let load = metric("load", all_ten);
    fixture.patch_autoscaler(json!({"maxReplicas": 5, "metrics": [load]})).await?;
    let status = fixture.status_becomes(5, "TooManyReplicas").await?;
    ensure!(status["currentMetrics"][0]["object"]["current"]["value"] == "15", "{status}");
    Ok(())
}

/// Proves HPA-12.
pub(crate) async fn custom_resource_is_scaled(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ScalingFixture::begin(cluster).await?;
    let group = format!("{}.example.com", fixture.namespace);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    let names = json!({"plural": "fleets", "singular": "fleet", "kind": "Fleet", "listKind": "FleetList"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale}});
    let definition = json!({"metadata": {"name": format!("fleets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}});
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    cluster.create(&definitions, definition).await?;
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Fleet"), "fleets");
    let fleets: Api<DynamicObject> = Api::namespaced_with(cluster.admin.clone(), &fixture.namespace, &kind);
    let api_version = format!("{group}/v1");
    let fleet = json!({"apiVersion": api_version, "kind": "Fleet", "metadata": {"name": "f"}, "spec": {"replicas": 1}});
    let created = async || Ok(Some(cluster.create(&fleets, fleet.clone()).await?));
    cluster.eventually("the new kind", created).await?;
    let status = Patch::Merge(json!({"status": {"replicas": 1, "selector": "app=fleet"}}));
    fleets.patch_status("f", &PatchParams::default(), &status).await?;
    let target = json!({"apiVersion": api_version, "kind": "Fleet", "name": "f"});
    fixture.autoscaler(target, 9, external_metric(), Value::Null).await?;
    let scaled = async || Ok((fleets.get("f").await?.data["spec"]["replicas"] == 5).then_some(()));
    cluster.eventually("five replicas of the custom resource", scaled).await?;
    cluster.checkpoint("the custom resource is scaled").await;
    // What it reports of a kind that is gone depends on the age of each manager's discovery.
    fixture.autoscalers.delete("web", &DeleteParams::default()).await?;
    definitions.delete(&format!("fleets.{group}"), &DeleteParams::default()).await?;
    Ok(())
}
