//! Deployments, ReplicaSets and ReplicationControllers, and the pods they keep.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod, ReplicationController, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Scenario, Stage, World};

pub(crate) const A_DEPLOYMENT_ROLLS_WITHIN_ITS_BOUNDS: Scenario = Scenario {
    name: "a_deployment_rolls_within_its_bounds",
    stage: Stage::Anywhere,
    play: |world| a_deployment_rolls_within_its_bounds(world).boxed_local(),
};

pub(crate) const A_DEPLOYMENT_PAUSES_AND_SCALES_IN_THE_MIDDLE: Scenario = Scenario {
    name: "a_deployment_pauses_and_scales_in_the_middle",
    stage: Stage::Anywhere,
    play: |world| a_deployment_pauses_and_scales_in_the_middle(world).boxed_local(),
};

pub(crate) const A_REPLICA_SET_ADOPTS_RELEASES_AND_SCALES: Scenario = Scenario {
    name: "a_replica_set_adopts_releases_and_scales",
    stage: Stage::Anywhere,
    play: |world| a_replica_set_adopts_releases_and_scales(world).boxed_local(),
};

pub(crate) const A_REPLICATION_CONTROLLER_SCALES: Scenario = Scenario {
    name: "a_replication_controller_scales",
    stage: Stage::Anywhere,
    play: |world| a_replication_controller_scales(world).boxed_local(),
};

/// A namespace whose pods nobody runs: what kubelets would say of them is said by the scenario.
struct Yard<'w> {
    world: &'w World,
    name: String,
    deployments: Api<Deployment>,
    sets: Api<ReplicaSet>,
    pods: Api<Pod>,
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

impl<'w> Yard<'w> {
    async fn open(world: &'w World, prefix: &str) -> anyhow::Result<Self> {
        let name = world.namespace(prefix).await?;
        let accounts = world.api::<ServiceAccount>(&name);
        world.eventually("the default account", async || Ok(accounts.get_opt("default").await?)).await?;
        let (deployments, sets, pods) = (world.api(&name), world.api(&name), world.api(&name));
        Ok(Self { world, name, deployments, sets, pods })
    }

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

    /// Pods that are not on their way out.
    async fn active_pods(&self) -> anyhow::Result<Vec<Pod>> {
        let pods = self.pods.list(&ListParams::default()).await?;
        Ok(pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
    }

    async fn say_ready(&self, pod: &Pod, ready: bool) -> anyhow::Result<()> {
        let condition = json!({
            "type": "Ready", "status": if ready { "True" } else { "False" },
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let patch = Patch::Merge(json!({"status": {"phase": "Running", "conditions": [condition]}}));
        match self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            told => told.map(drop).context("saying that a pod is ready"),
        }
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
                    self.say_ready(pod, true).await?;
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

    async fn active_pods_become(&self, wanted: usize) -> anyhow::Result<Vec<Pod>> {
        let ask = async || {
            let pods = self.active_pods().await?;
            Ok((pods.len() == wanted).then_some(pods))
        };
        self.world.eventually(&format!("{wanted} pods"), ask).await
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

    /// What people were told about an object, where events are kept.
    async fn messages(&self, kind: &str) -> anyhow::Result<Option<Vec<String>>> {
        if self.world.plane.is_none() {
            return Ok(None);
        }
        let events = self.world.api::<Event>(&self.name).list(&ListParams::default()).await?.into_iter();
        let about = events.filter(|event| event.involved_object.kind.as_deref() == Some(kind));
        Ok(Some(about.filter_map(|event| Some(format!("{} {}", event.reason?, event.message?))).collect()))
    }
}

fn is_ready(pod: &Pod) -> bool {
    condition(&pod.status, "Ready").starts_with("True")
}

fn progress(deployment: &Deployment) -> String {
    condition(&deployment.status, "Progressing")
}

/// Status and reason of a condition.
fn condition(status: &impl Serialize, r#type: &str) -> String {
    let status = serde_json::to_value(status).unwrap_or_default();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|one| one["type"] == r#type);
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    found.next().map_or_else(String::new, |one| format!("{} {}", text(one, "status"), text(one, "reason")))
}

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// Proves DEP-29, DEP-36, DEP-55, DEP-57, DEP-67, DEP-84.
async fn a_deployment_rolls_within_its_bounds(world: &World) -> anyhow::Result<()> {
    let yard = Yard::open(world, "rolling").await?;
    yard.deploy("v1", 4).await?;
    yard.sizes_become(&[("v1", 4)]).await?;
    yard.roll(4, 0).await?;

    yard.change_image("v2").await?;
    yard.roll(4, 3).await?;
    yard.sizes_become(&[("v1", 0), ("v2", 4)]).await?;
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

    if let Some(messages) = yard.messages("Deployment").await? {
        for part in ["Scaled up replica set web-", "Scaled down replica set web-", " from 0 to 4"] {
            ensure!(messages.iter().any(|message| message.contains(part)), "{part} is not in {messages:?}");
        }
        let others = messages.iter().find(|message| !message.starts_with("ScalingReplicaSet "));
        ensure!(others.is_none(), "{others:?}");
    }
    Ok(())
}

/// Proves DEP-44, DEP-47, DEP-68, DEP-70, DEP-103.
async fn a_deployment_pauses_and_scales_in_the_middle(world: &World) -> anyhow::Result<()> {
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
        yard.say_ready(&pod, true).await?;
    }
    let available = async || {
        let status = yard.deployments.get("web").await?.status.unwrap_or_default();
        Ok((status.available_replicas == Some(6)).then_some(()))
    };
    world.eventually("all are available", available).await?;

    // The rollout stands still at the bounds, since no new pod becomes ready: one surplus, one missing.
    yard.change(json!({"paused": false})).await?;
    yard.sizes_become(&[("v1", 5), ("v2", 2)]).await?;
    yard.change(json!({"replicas": 12})).await?;
    // Thirteen may be there, seven were: each grows by its share.
    yard.sizes_become(&[("v1", 9), ("v2", 4)]).await?;
    yard.active_pods_become(13).await?;
    yard.roll(12, 5).await?;
    yard.sizes_become(&[("v1", 0), ("v2", 12)]).await?;
    Ok(())
}

/// Proves RS-32, RS-33, RS-47, RS-61, RS-67, RS-77, RS-78.
async fn a_replica_set_adopts_releases_and_scales(world: &World) -> anyhow::Result<()> {
    let yard = Yard::open(world, "replicas").await?;
    let mut orphan = template("v1");
    orphan["metadata"]["name"] = json!("orphan");
    let orphan: Pod = world.create(&yard.pods, orphan).await?;
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1")},
    });
    let set = world.create(&yard.sets, set).await?;
    let is_owned =
        |pod: &Pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == set.uid().as_ref());
    let adopted = async || Ok(yard.active_pods().await?.iter().all(is_owned).then_some(()));
    let pods = yard.active_pods_become(3).await?;
    world.eventually("the adoption", adopted).await?;

    // One that is labelled otherwise is let go, and replaced.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "debug"}}}));
    let stray =
        pods.iter().find(|pod| pod.uid() != orphan.uid()).context("a pod of the set's own")?.name_any();
    yard.pods.patch(&stray, &PatchParams::default(), &patch).await?;
    yard.active_pods_become(4).await?;
    let released = async || Ok((!is_owned(&yard.pods.get(&stray).await?)).then_some(()));
    world.eventually("the release", released).await?;

    // The only one that is ready is the last to go.
    yard.say_ready(&orphan, true).await?;
    let ready = async || {
        let status = yard.sets.get("web").await?.status.unwrap_or_default();
        Ok((status.ready_replicas == Some(1) && status.replicas == 3).then_some(()))
    };
    world.eventually("one is ready", ready).await?;
    let one = Patch::Merge(json!({"spec": {"replicas": 1}}));
    yard.sets.patch("web", &PatchParams::default(), &one).await?;
    let left = yard.active_pods_become(2).await?;
    ensure!(left.iter().any(|pod| pod.uid() == orphan.uid()), "the ready one is gone");
    let settled = async || {
        let set = yard.sets.get("web").await?;
        let status = set.status.unwrap_or_default();
        let counts = [Some(status.replicas), status.ready_replicas, status.available_replicas];
        let seen = status.observed_generation == set.metadata.generation;
        Ok((seen && counts == [Some(1); 3]).then_some(()))
    };
    world.eventually("the status", settled).await?;
    if let Some(messages) = yard.messages("ReplicaSet").await? {
        let count = |part: &str| messages.iter().filter(|message| message.starts_with(part)).count();
        let told = ["SuccessfulCreate Created pod: web-", "SuccessfulDelete Deleted pod: web-"].map(count);
        ensure!(told == [3, 2], "{messages:?}");
    }
    Ok(())
}

/// Proves RC-11, RC-14, RC-19, RC-20.
async fn a_replication_controller_scales(world: &World) -> anyhow::Result<()> {
    let yard = Yard::open(world, "rc").await?;
    let controllers = world.api::<ReplicationController>(&yard.name);
    let spec = json!({"replicas": 2, "selector": {"app": "web"}, "template": template("v1")});
    world.create(&controllers, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let scale = async |replicas: i32| {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        controllers.patch("web", &PatchParams::default(), &patch).await
    };
    for pod in yard.active_pods_become(2).await? {
        let owners = serde_json::to_value(pod.owner_references())?;
        ensure!(owners[0]["apiVersion"] == "v1" && owners[0]["kind"] == "ReplicationController", "{owners}");
        yard.say_ready(&pod, true).await?;
    }
    let becomes = async |wanted: [i32; 3]| {
        let ask = async || {
            let status = controllers.get("web").await?.status.unwrap_or_default();
            let number = |count: Option<i32>| count.unwrap_or(0);
            let there = [status.replicas, number(status.ready_replicas), number(status.available_replicas)];
            Ok((there == wanted).then_some(()))
        };
        world.eventually(&format!("a status of {wanted:?}"), ask).await
    };
    becomes([2, 2, 2]).await?;
    scale(3).await?;
    becomes([3, 2, 2]).await?;
    scale(0).await?;
    yard.active_pods_become(0).await?;
    becomes([0, 0, 0]).await
}
