//! ReplicaSets and ReplicationControllers keep the wanted number of pods.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{WorkloadFixture, condition, template};
use crate::TestCluster;

/// Proves RS-32, RS-33, RS-47, RS-61, RS-67, RS-77, RS-78.
pub(crate) async fn replica_set_adopts_releases_and_scales(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::create(cluster, "replicas").await?;
    let mut orphan = template("v1");
    orphan["metadata"]["name"] = json!("orphan");
    let orphan: Pod = cluster.create(&fixture.pods, orphan).await?;
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1")},
    });
    let set = cluster.create(&fixture.sets, set).await?;
    let is_owned =
        |pod: &Pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == set.uid().as_ref());
    let adopted = async || Ok(fixture.active_pods().await?.iter().all(is_owned).then_some(()));
    let pods = fixture.active_pods_become(3).await?;
    cluster.eventually("the adoption", adopted).await?;
    cluster.checkpoint("one pod is adopted").await;

    // A pod whose labels no longer match is released and replaced.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "debug"}}}));
    let relabelled =
        pods.iter().find(|pod| pod.uid() != orphan.uid()).context("a pod of the set's own")?.name_any();
    fixture.pods.patch(&relabelled, &PatchParams::default(), &patch).await?;
    fixture.active_pods_become(4).await?;
    let released = async || Ok((!is_owned(&fixture.pods.get(&relabelled).await?)).then_some(()));
    cluster.eventually("the release", released).await?;
    cluster.checkpoint("one pod is released").await;

    // The only ready pod is deleted last.
    fixture.mark_ready(&orphan).await?;
    let ready = async || {
        let status = fixture.sets.get("web").await?.status.unwrap_or_default();
        Ok((status.ready_replicas == Some(1) && status.replicas == 3).then_some(()))
    };
    cluster.eventually("one is ready", ready).await?;
    let one = Patch::Merge(json!({"spec": {"replicas": 1}}));
    fixture.sets.patch("web", &PatchParams::default(), &one).await?;
    let left = fixture.active_pods_become(2).await?;
    ensure!(left.iter().any(|pod| pod.uid() == orphan.uid()), "the ready pod is deleted");
    let settled = async || {
        let set = fixture.sets.get("web").await?;
        let status = set.status.unwrap_or_default();
        let counts = [Some(status.replicas), status.ready_replicas, status.available_replicas];
        let seen = status.observed_generation == set.metadata.generation;
        Ok((seen && counts == [Some(1); 3]).then_some(()))
    };
    cluster.eventually("the status", settled).await?;
    let is_right = |messages: &[String]| {
        let count = |part: &str| messages.iter().filter(|message| message.starts_with(part)).count();
        ["SuccessfulCreate Created pod: web-", "SuccessfulDelete Deleted pod: web-"].map(count) == [3, 2]
    };
    fixture.events_become("ReplicaSet", is_right).await
}

/// A controllerRef is meant for the namespace of its object: pods elsewhere that name the set are the garbage
/// collector's business, and the set neither counts nor deletes them.
pub(crate) async fn replica_set_ignores_pods_of_another_namespace_that_name_it(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::create(cluster, "owner").await?;
    let elsewhere = WorkloadFixture::create(cluster, "elsewhere").await?;
    let spec =
        json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1")});
    let set = cluster.create(&fixture.sets, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let own = fixture.active_pods_become(2).await?;
    let status_is = async |replicas: i32| {
        let ask = async || {
            let set = fixture.sets.get("web").await?;
            let status = set.status.unwrap_or_default();
            let settled = status.observed_generation == set.metadata.generation;
            Ok((settled && status.replicas == replicas).then_some(set.metadata.resource_version))
        };
        cluster.eventually(&format!("{replicas} replicas in the status"), ask).await
    };
    let strangers = async |names: &[&str]| {
        for name in names {
            let mut pod = template("v1");
            pod["metadata"]["name"] = json!(name);
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                "uid": set.uid(), "controller": true, "blockOwnerDeletion": true}]);
            let _: Pod = cluster.create(&elsewhere.pods, pod).await?;
        }
        anyhow::Ok(())
    };
    let before = status_is(2).await?;
    strangers(&["one", "two", "three"]).await?;
    cluster.settle().await;
    elsewhere.active_pods_become(0).await.context("the garbage collector deletes pods without an owner")?;
    cluster.settle().await;
    ensure!(status_is(2).await? == before, "pods of another namespace changed the set");
    let uids = |pods: &[Pod]| pods.iter().filter_map(kube::ResourceExt::uid).collect::<BTreeSet<_>>();
    ensure!(uids(&fixture.active_pods().await?) == uids(&own), "the set's own pods changed");

    // Scaling down while such pods exist deletes one of the set's own.
    strangers(&["four", "five"]).await?;
    let one = Patch::Merge(json!({"spec": {"replicas": 1}}));
    fixture.sets.patch("web", &PatchParams::default(), &one).await?;
    let left = fixture.active_pods_become(1).await?;
    ensure!(uids(&left).is_subset(&uids(&own)), "a pod was replaced");
    status_is(1).await?;
    elsewhere.active_pods_become(0).await?;
    cluster.settle().await;
    let is_right = |messages: &[String]| {
        let count = |part: &str| messages.iter().filter(|message| message.starts_with(part)).count();
        ["SuccessfulCreate Created pod: web-", "SuccessfulDelete Deleted pod: web-"].map(count) == [2, 1]
            && messages.len() == 3
    };
    fixture.events_become("ReplicaSet", is_right).await
}

/// Proves RC-11, RC-14, RC-19, RC-20.
pub(crate) async fn replication_controller_scales(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::create(cluster, "rc").await?;
    let controllers = cluster.api::<ReplicationController>(&fixture.name);
    let spec = json!({"replicas": 2, "selector": {"app": "web"}, "template": template("v1")});
    cluster.create(&controllers, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let scale = async |replicas: i32| {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        controllers.patch("web", &PatchParams::default(), &patch).await
    };
    for pod in fixture.active_pods_become(2).await? {
        let owners = serde_json::to_value(pod.owner_references())?;
        ensure!(owners[0]["apiVersion"] == "v1" && owners[0]["kind"] == "ReplicationController", "{owners}");
        fixture.mark_ready(&pod).await?;
    }
    let becomes = async |wanted: [i32; 3]| {
        let ask = async || {
            let status = controllers.get("web").await?.status.unwrap_or_default();
            let number = |count: Option<i32>| count.unwrap_or(0);
            let there = [status.replicas, number(status.ready_replicas), number(status.available_replicas)];
            Ok((there == wanted).then_some(()))
        };
        cluster.eventually(&format!("a status of {wanted:?}"), ask).await
    };
    becomes([2, 2, 2]).await?;
    scale(3).await?;
    becomes([3, 2, 2]).await?;
    cluster.checkpoint("one more replica is requested").await;
    scale(0).await?;
    fixture.active_pods_become(0).await?;
    becomes([0, 0, 0]).await
}

pub(crate) async fn replica_set_reports_an_exceeded_quota(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = WorkloadFixture::create(cluster, "quota").await?;
    let quotas = cluster.api::<ResourceQuota>(&fixture.name);
    cluster.create(&quotas, json!({"metadata": {"name": "room"}, "spec": {"hard": {"pods": "1"}}})).await?;
    // There is no quota controller; the API server counts usage once the status has an initial value.
    let set_quota = async |pods: &str, used: Option<&str>| -> anyhow::Result<()> {
        let (now, hard) = (PatchParams::default(), json!({"hard": {"pods": pods}}));
        let mut status = hard.clone();
        if let Some(used) = used {
            status["used"] = json!({"pods": used});
        }
        quotas.patch("room", &now, &Patch::Merge(json!({"spec": hard}))).await?;
        quotas.patch_status("room", &now, &Patch::Merge(json!({"status": status}))).await?;
        Ok(())
    };
    set_quota("1", Some("0")).await?;
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1")},
    });
    cluster.create(&fixture.sets, set).await?;
    let status_becomes = async |replicas: i32, failure: &str| {
        let ask = async || {
            let status = fixture.sets.get("web").await?.status.unwrap_or_default();
            Ok((status.replicas == replicas && condition(&status, "ReplicaFailure") == failure).then_some(()))
        };
        cluster.eventually(&format!("{replicas} pods and {failure:?}"), ask).await
    };
    status_becomes(1, "True FailedCreate").await?;
    fixture
        .events_become("ReplicaSet", |messages| messages.iter().any(|one| one.starts_with("FailedCreate ")))
        .await?;
    cluster.checkpoint("the quota is exceeded").await;
    set_quota("10", None).await?;
    fixture.active_pods_become(3).await?;
    status_becomes(3, "").await
}
