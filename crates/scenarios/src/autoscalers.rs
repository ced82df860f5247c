//! Autoscalers in a cluster without a metrics API: bounds hold, and conditions say what is missing.

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::TestCluster;

/// A Deployment whose pods are never made ready, and its autoscaler.
struct AutoscalerFixture<'w> {
    cluster: &'w TestCluster,
    deployments: Api<Deployment>,
    autoscalers: Api<HorizontalPodAutoscaler>,
}

impl<'w> AutoscalerFixture<'w> {
    async fn begin(cluster: &'w TestCluster, replicas: i32) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account("hpa").await?;
        let (deployments, autoscalers) = (cluster.api(&namespace), cluster.api(&namespace));
        let pod = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}});
        let spec =
            json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod});
        cluster.create(&deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}});
        let spec = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4, "metrics": [metric]});
        cluster.create(&autoscalers, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
        Ok(Self { cluster, deployments, autoscalers })
    }

    async fn replicas_become(&self, wanted: i32) -> anyhow::Result<()> {
        let scaled = async || {
            let replicas = self.deployments.get("web").await?.spec.replicas;
            Ok((replicas == Some(wanted)).then_some(()))
        };
        self.cluster.eventually(&format!("{wanted} replicas"), scaled).await
    }

    /// Waits for a condition with this status and reason.
    async fn condition_becomes(&self, kind: &str, status: &str, reason: &str) -> anyhow::Result<Value> {
        let found = async || {
            let autoscaler = serde_json::to_value(self.autoscalers.get("web").await?)?;
            let conditions = autoscaler["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_wanted =
                |one: &Value| one["type"] == kind && one["status"] == status && one["reason"] == reason;
            Ok(conditions.into_iter().find(is_wanted))
        };
        self.cluster.eventually(&format!("condition {kind}={status} ({reason})"), found).await
    }

    async fn scale(&self, replicas: i32) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.deployments.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// Proves HPA-19, HPA-20.
pub(crate) async fn autoscaler_without_metrics_keeps_its_bounds(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = AutoscalerFixture::begin(cluster, 1).await?;
    fixture.replicas_become(2).await?;
    let inactive = fixture.condition_becomes("ScalingActive", "False", "FailedGetResourceMetric").await?;
    let message = inactive["message"].as_str().unwrap_or_default();
    ensure!(message.contains("failed to get cpu utilization"), "{message}");
    cluster.checkpoint("the minimum is reached").await;
    fixture.scale(7).await?;
    fixture.replicas_become(4).await?;
    Ok(())
}

/// Proves HPA-22.
pub(crate) async fn autoscaler_is_disabled_by_zero_replicas(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = AutoscalerFixture::begin(cluster, 0).await?;
    fixture.condition_becomes("ScalingActive", "False", "ScalingDisabled").await?;
    cluster.settle().await;
    fixture.replicas_become(0).await
}
