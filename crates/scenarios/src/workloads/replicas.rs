//! ReplicaSets and ReplicationControllers keep as many pods as they are asked for.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Yard, condition, template};
use crate::World;

/// Proves RS-32, RS-33, RS-47, RS-61, RS-67, RS-77, RS-78.
pub(crate) async fn a_replica_set_adopts_releases_and_scales(world: &World) -> anyhow::Result<()> {
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
    world.stand_still("one was adopted").await;

    // One that is labelled otherwise is let go, and replaced.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "debug"}}}));
    let stray =
        pods.iter().find(|pod| pod.uid() != orphan.uid()).context("a pod of the set's own")?.name_any();
    yard.pods.patch(&stray, &PatchParams::default(), &patch).await?;
    yard.active_pods_become(4).await?;
    let released = async || Ok((!is_owned(&yard.pods.get(&stray).await?)).then_some(()));
    world.eventually("the release", released).await?;
    world.stand_still("one was let go").await;

    // The only one that is ready is the last to go.
    yard.say_ready(&orphan).await?;
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
    let is_right = |messages: &[String]| {
        let count = |part: &str| messages.iter().filter(|message| message.starts_with(part)).count();
        ["SuccessfulCreate Created pod: web-", "SuccessfulDelete Deleted pod: web-"].map(count) == [3, 2]
    };
    yard.told("ReplicaSet", is_right).await
}

/// Proves RC-11, RC-14, RC-19, RC-20.
pub(crate) async fn a_replication_controller_scales(world: &World) -> anyhow::Result<()> {
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
        yard.say_ready(&pod).await?;
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
    world.stand_still("one more was asked for").await;
    scale(0).await?;
    yard.active_pods_become(0).await?;
    becomes([0, 0, 0]).await
}

pub(crate) async fn a_replica_set_tells_why_it_cannot_grow(world: &World) -> anyhow::Result<()> {
    let yard = Yard::open(world, "crowded").await?;
    let quotas = world.api::<ResourceQuota>(&yard.name);
    world.create(&quotas, json!({"metadata": {"name": "room"}, "spec": {"hard": {"pods": "1"}}})).await?;
    // Nobody counts what is used; the server does as long as it is told of a beginning.
    let room = async |pods: &str, used: Option<&str>| -> anyhow::Result<()> {
        let (now, hard) = (PatchParams::default(), json!({"hard": {"pods": pods}}));
        let mut status = hard.clone();
        if let Some(used) = used {
            status["used"] = json!({"pods": used});
        }
        quotas.patch("room", &now, &Patch::Merge(json!({"spec": hard}))).await?;
        quotas.patch_status("room", &now, &Patch::Merge(json!({"status": status}))).await?;
        Ok(())
    };
    room("1", Some("0")).await?;
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1")},
    });
    world.create(&yard.sets, set).await?;
    let says = async |replicas: i32, failure: &str| {
        let ask = async || {
            let status = yard.sets.get("web").await?.status.unwrap_or_default();
            Ok((status.replicas == replicas && condition(&status, "ReplicaFailure") == failure).then_some(()))
        };
        world.eventually(&format!("{replicas} pods and {failure:?}"), ask).await
    };
    says(1, "True FailedCreate").await?;
    yard.told("ReplicaSet", |messages| messages.iter().any(|one| one.starts_with("FailedCreate "))).await?;
    world.stand_still("there is no room").await;
    room("10", None).await?;
    yard.active_pods_become(3).await?;
    says(3, "").await
}
