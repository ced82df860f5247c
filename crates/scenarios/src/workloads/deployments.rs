//! Deployments roll within their bounds, stand still in a pause, and share what is added among old and new.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Yard, condition, is_ready, template};
use crate::World;
use crate::world::hold;

impl Yard<'_> {
    /// A Deployment of which one pod may be surplus and one missing.
    async fn deploy(&self, image: &str, replicas: i32) -> anyhow::Result<()> {
        let rolling = json!({"maxSurge": 1, "maxUnavailable": 1});
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image),
                "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            },
        });
        self.world.create(&self.deployments, deployment).await?;
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

    /// Lets one pod after the other become ready until the Deployment says that all is done, and checks the
    /// bounds at every look. The surplus is one of pods that are asked for: old ones that are to go may
    /// outlive by a moment the new ones that take their place, with either manager.
    async fn roll(&self, wanted: i64, least: usize) -> anyhow::Result<()> {
        let worst = Cell::new((0, usize::MAX));
        self.world
            .eventually("the end of a rollout", async || {
                let pods = self.active_pods().await?;
                let ready = pods.iter().filter(|pod| is_ready(pod)).count();
                let asked: i64 = self.sizes().await?.values().sum();
                let (most, fewest) = worst.get();
                worst.set((asked.max(most), fewest.min(ready)));
                if let Some(pod) = pods.iter().find(|pod| !is_ready(pod)) {
                    self.say_ready(pod).await?;
                }
                self.is_complete().await
            })
            .await?;
        let (most, fewest) = worst.get();
        ensure!(most <= wanted + 1, "{most} pods were asked for where {wanted} are wanted");
        ensure!(fewest >= least, "only {fewest} pods were ready of {wanted}");
        Ok(())
    }

    async fn is_complete(&self) -> anyhow::Result<Option<()>> {
        let deployment = self.deployments.get("web").await?;
        let wanted = deployment.spec.replicas;
        let status = deployment.status.clone().unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        let seen = status.observed_generation == deployment.metadata.generation;
        let told = progress(&deployment) == "True NewReplicaSetAvailable";
        Ok((seen && told && counts.iter().all(|count| *count == wanted)).then_some(()))
    }

    /// How many pods the ReplicaSet of each image asks for.
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
        self.world.eventually(&what, async || Ok((self.sizes().await? == wanted).then_some(()))).await
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
pub(crate) async fn a_deployment_rolls_within_its_bounds(world: &World) -> anyhow::Result<()> {
    let yard = Yard::open(world, "rolling").await?;
    yard.deploy("v1", 4).await?;
    yard.sizes_become(&[("v1", 4)]).await?;
    yard.roll(4, 0).await?;
    world.stand_still("the first revision is there").await;

    yard.change_image("v2").await?;
    yard.roll(4, 3).await?;
    yard.sizes_become(&[("v1", 0), ("v2", 4)]).await?;
    world.stand_still("the second revision is there").await;
    let revisions = yard.annotation("v2", REVISION).await?;
    ensure!(revisions == ["2", "2"], "{revisions:?}");

    // Back, as `kubectl rollout undo` does it: the old ReplicaSet is used again.
    yard.change_image("v1").await?;
    yard.roll(4, 3).await?;
    yard.sizes_become(&[("v1", 4), ("v2", 0)]).await?;
    let revisions = yard.annotation("v1", REVISION).await?;
    ensure!(revisions == ["3", "3"], "{revisions:?}");
    let [_, history] = yard.annotation("v1", REVISION_HISTORY).await?;
    ensure!(history == "1", "{history}");

    let parts = ["Scaled up replica set web-", "Scaled down replica set web-", " from 0 to 4"];
    let is_right = |messages: &[String]| {
        let told = |part: &&str| messages.iter().any(|message| message.contains(part));
        parts.iter().all(told) && messages.iter().all(|message| message.starts_with("ScalingReplicaSet "))
    };
    yard.told("Deployment", is_right).await
}

/// Proves DEP-44, DEP-47, DEP-68, DEP-70, DEP-103.
pub(crate) async fn a_deployment_pauses_and_scales_in_the_middle(world: &World) -> anyhow::Result<()> {
    let yard = Yard::open(world, "pausing").await?;
    yard.deploy("v1", 4).await?;
    yard.roll(4, 0).await?;

    yard.change(json!({"paused": true})).await?;
    yard.change_image("v2").await?;
    let paused = async || {
        Ok((progress(&yard.deployments.get("web").await?) == "Unknown DeploymentPaused").then_some(()))
    };
    world.eventually("the pause", paused).await?;
    yard.change(json!({"replicas": 6})).await?;
    yard.sizes_become(&[("v1", 6)]).await?;
    world.settle().await;
    ensure!(yard.sizes().await?.len() == 1, "nothing rolls during a pause");
    for pod in yard.active_pods_become(6).await? {
        yard.say_ready(&pod).await?;
    }
    let available = async || {
        let status = yard.deployments.get("web").await?.status.unwrap_or_default();
        Ok((status.available_replicas == Some(6)).then_some(()))
    };
    world.eventually("all are available", available).await?;
    world.stand_still("nothing rolls during a pause").await;

    // The rollout stands still at the bounds, since no new pod becomes ready: one surplus, one missing.
    yard.change(json!({"paused": false})).await?;
    yard.sizes_become(&[("v1", 5), ("v2", 2)]).await?;
    world.stand_still("the rollout is at its bounds").await;
    yard.change(json!({"replicas": 12})).await?;
    // Thirteen may be there, seven were: each grows by its share.
    yard.sizes_become(&[("v1", 9), ("v2", 4)]).await?;
    yard.active_pods_become(13).await?;
    world.stand_still("both have grown").await;
    yard.roll(12, 5).await?;
    yard.sizes_become(&[("v1", 0), ("v2", 12)]).await?;
    Ok(())
}

pub(crate) async fn a_deployment_recreates_forgets_and_misses_its_deadline(
    world: &World,
) -> anyhow::Result<()> {
    let yard = Yard::open(world, "recreating").await?;
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1"),
            "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 1,
        },
    });
    world.create(&yard.deployments, deployment).await?;
    yard.roll(2, 0).await?;

    // As long as an old pod is there, even on its way out, no new one is made.
    let last = yard.active_pods_become(2).await?[0].name_any();
    hold(&yard.pods, &last, &["example.com/hold"]).await?;
    yard.change_image("v2").await?;
    yard.active_pods_become(0).await?;
    world.settle().await;
    ensure!(yard.sizes().await? == [("v1".to_owned(), 0)].into(), "nothing new is made yet");
    world.stand_still("the last old pod goes").await;
    hold(&yard.pods, &last, &[]).await?;
    yard.roll(2, 0).await?;
    world.stand_still("all is made anew").await;

    yard.change(json!({"progressDeadlineSeconds": 2})).await?;
    yard.change_image("v3").await?;
    let late = async || {
        let told = progress(&yard.deployments.get("web").await?);
        Ok((told == "False ProgressDeadlineExceeded").then_some(()))
    };
    world.eventually("the deadline", late).await?;
    yard.active_pods_become(2).await?;
    world.stand_still("the deadline is missed").await;
    // Late is better than never. Of what was, one revision is remembered.
    yard.roll(2, 0).await?;
    yard.sizes_become(&[("v2", 0), ("v3", 2)]).await
}
