//! Deployments roll within maxSurge and maxUnavailable, do not roll while paused, and scale old and new
//! ReplicaSets proportionally.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{WorkloadFixture, condition, is_ready, template};
use crate::TestCluster;
use crate::test_cluster::set_finalizers;

impl WorkloadFixture<'_> {
    /// Creates a Deployment with maxSurge 1 and maxUnavailable 1.
    async fn deploy(&self, image: &str, replicas: i32) -> anyhow::Result<()> {
        let rolling = json!({"maxSurge": 1, "maxUnavailable": 1});
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image),
                "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            },
        });
        self.cluster.create(&self.deployments, deployment).await?;
        Ok(())
    }

    async fn change(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.deployments.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn change_image(&self, image: &str) -> anyhow::Result<()> {
        let containers = json!([{"name": "c", "image": image}]);
        self.change(json!({"template": {"spec": {"containers": containers}}})).await
    }

    /// Marks one pod after the other ready until the Deployment is complete, and checks the bounds each
    /// time. The surge is checked on spec.replicas: with either manager old pods may exist a moment longer
    /// than the new ones that replace them.
    async fn roll(&self, wanted: i64, ready_min: usize) -> anyhow::Result<()> {
        let extremes = Cell::new((0, usize::MAX));
        self.cluster
            .eventually("the end of a rollout", async || {
                let pods = self.active_pods().await?;
                let ready = pods.iter().filter(|pod| is_ready(pod)).count();
                let requested: i64 = self.sizes().await?.values().sum();
                let (most, fewest) = extremes.get();
                extremes.set((requested.max(most), fewest.min(ready)));
                if let Some(pod) = pods.iter().find(|pod| !is_ready(pod)) {
                    self.mark_ready(pod).await?;
                }
                self.is_complete().await
            })
            .await?;
        let (most, fewest) = extremes.get();
        ensure!(most <= wanted + 1, "{most} replicas were requested where {wanted} are wanted");
        ensure!(fewest >= ready_min, "only {fewest} pods were ready of {wanted}");
        Ok(())
    }

    async fn is_complete(&self) -> anyhow::Result<Option<()>> {
        let deployment = self.deployments.get("web").await?;
        let wanted = deployment.spec.replicas;
        let status = deployment.status.clone().unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        let seen = status.observed_generation == deployment.metadata.generation;
        let available = progress(&deployment) == "True NewReplicaSetAvailable";
        Ok((seen && available && counts.iter().all(|count| *count == wanted)).then_some(()))
    }

    /// spec.replicas of the ReplicaSet of each image.
    async fn sizes(&self) -> anyhow::Result<BTreeMap<String, i64>> {
        let mut sizes = BTreeMap::new();
        for set in self.sets.list(&ListParams::default()).await? {
            let spec = serde_json::to_value(&set.spec)?;
            let image = spec["template"]["spec"]["containers"][0]["image"].as_str().context("an image")?;
            let size = spec["replicas"].as_i64().context("a size")?;
            sizes.insert(image.to_owned(), size);
        }
        Ok(sizes)
    }

    async fn sizes_become(&self, wanted: &[(&str, i64)]) -> anyhow::Result<()> {
        let wanted: BTreeMap<_, _> = wanted.iter().map(|&(image, size)| (image.to_owned(), size)).collect();
        let what = format!("sizes of {wanted:?}");
        self.cluster.eventually(&what, async || Ok((self.sizes().await? == wanted).then_some(()))).await
    }

    /// An annotation of the Deployment, and of the ReplicaSet of an image.
    async fn annotation(&self, image: &str, key: &str) -> anyhow::Result<[String; 2]> {
        let of = |all: &BTreeMap<String, String>| all.get(key).cloned().unwrap_or_default();
        let deployment = self.deployments.get("web").await?;
        for set in self.sets.list(&ListParams::default()).await? {
            let json = serde_json::to_value(&set)?;
            if json["spec"]["template"]["spec"]["containers"][0]["image"] == image {
                return Ok([of(deployment.annotations()), of(set.annotations())]);
            }
        }
        anyhow::bail!("no ReplicaSet has {image}")
    }
}

fn progress(deployment: &Deployment) -> String {
    condition(&deployment.status, "Progressing")
}

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// Proves DEP-29, DEP-36, DEP-55, DEP-57, DEP-67, DEP-84.
pub(crate) async fn a_deployment_rolls_within_its_bounds(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::create(cluster, "rolling").await?;
    fixture.deploy("v1", 4).await?;
    fixture.sizes_become(&[("v1", 4)]).await?;
    fixture.roll(4, 0).await?;
    cluster.checkpoint("the first revision is complete").await;

    fixture.change_image("v2").await?;
    fixture.roll(4, 3).await?;
    fixture.sizes_become(&[("v1", 0), ("v2", 4)]).await?;
    cluster.checkpoint("the second revision is complete").await;
    let revisions = fixture.annotation("v2", REVISION).await?;
    ensure!(revisions == ["2", "2"], "{revisions:?}");

    // Rolling back, as `kubectl rollout undo` does, reuses the old ReplicaSet.
    fixture.change_image("v1").await?;
    fixture.roll(4, 3).await?;
    fixture.sizes_become(&[("v1", 4), ("v2", 0)]).await?;
    let revisions = fixture.annotation("v1", REVISION).await?;
    ensure!(revisions == ["3", "3"], "{revisions:?}");
    let [_, history] = fixture.annotation("v1", REVISION_HISTORY).await?;
    ensure!(history == "1", "{history}");

    let parts = ["Scaled up replica set web-", "Scaled down replica set web-", " from 0 to 4"];
    let is_right = |messages: &[String]| {
        let recorded = |part: &&str| messages.iter().any(|message| message.contains(part));
        parts.iter().all(recorded) && messages.iter().all(|message| message.starts_with("ScalingReplicaSet "))
    };
    fixture.events_become("Deployment", is_right).await
}

/// Proves DEP-44, DEP-47, DEP-68, DEP-70, DEP-103.
pub(crate) async fn a_deployment_is_paused_and_scaled_during_a_rollout(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::create(cluster, "pausing").await?;
    fixture.deploy("v1", 4).await?;
    fixture.roll(4, 0).await?;

    fixture.change(json!({"paused": true})).await?;
    fixture.change_image("v2").await?;
    let paused = async || {
        Ok((progress(&fixture.deployments.get("web").await?) == "Unknown DeploymentPaused").then_some(()))
    };
    cluster.eventually("the pause", paused).await?;
    fixture.change(json!({"replicas": 6})).await?;
    fixture.sizes_become(&[("v1", 6)]).await?;
    cluster.settle().await;
    ensure!(fixture.sizes().await?.len() == 1, "no rollout while paused");
    for pod in fixture.active_pods_become(6).await? {
        fixture.mark_ready(&pod).await?;
    }
    let available = async || {
        let status = fixture.deployments.get("web").await?.status.unwrap_or_default();
        Ok((status.available_replicas == Some(6)).then_some(()))
    };
    cluster.eventually("all are available", available).await?;
    cluster.checkpoint("no rollout while paused").await;

    // The rollout stops at the bounds, since no new pod becomes ready: one surplus, one unavailable.
    fixture.change(json!({"paused": false})).await?;
    fixture.sizes_become(&[("v1", 5), ("v2", 2)]).await?;
    cluster.checkpoint("the rollout is blocked by unready pods").await;
    fixture.change(json!({"replicas": 12})).await?;
    // 13 pods are allowed and 7 exist: both ReplicaSets are scaled proportionally.
    fixture.sizes_become(&[("v1", 9), ("v2", 4)]).await?;
    fixture.active_pods_become(13).await?;
    cluster.checkpoint("both ReplicaSets are scaled up").await;
    fixture.roll(12, 5).await?;
    fixture.sizes_become(&[("v1", 0), ("v2", 12)]).await?;
    Ok(())
}

pub(crate) async fn a_deployment_recreates_pods_and_exceeds_its_progress_deadline(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::create(cluster, "recreating").await?;
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1"),
            "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 1,
        },
    });
    cluster.create(&fixture.deployments, deployment).await?;
    fixture.roll(2, 0).await?;

    // No new pod is created while an old one exists, even a terminating one.
    let last = fixture.active_pods_become(2).await?[0].name_any();
    set_finalizers(&fixture.pods, &last, &["example.com/hold"]).await?;
    fixture.change_image("v2").await?;
    fixture.active_pods_become(0).await?;
    cluster.settle().await;
    ensure!(fixture.sizes().await? == [("v1".to_owned(), 0)].into(), "no new pod is created yet");
    cluster.checkpoint("the last old pod is terminating").await;
    set_finalizers(&fixture.pods, &last, &[]).await?;
    fixture.roll(2, 0).await?;
    cluster.checkpoint("all pods are recreated").await;

    fixture.change(json!({"progressDeadlineSeconds": 2})).await?;
    fixture.change_image("v3").await?;
    let late = async || {
        let condition = progress(&fixture.deployments.get("web").await?);
        Ok((condition == "False ProgressDeadlineExceeded").then_some(()))
    };
    cluster.eventually("the deadline", late).await?;
    fixture.active_pods_become(2).await?;
    cluster.checkpoint("the progress deadline is exceeded").await;
    // The rollout completes after the deadline. revisionHistoryLimit 1 keeps one old ReplicaSet.
    fixture.roll(2, 0).await?;
    fixture.sizes_become(&[("v2", 0), ("v3", 2)]).await
}
