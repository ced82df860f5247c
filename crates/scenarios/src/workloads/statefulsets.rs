//! StatefulSets start, roll and stop their pods one after the other, and keep or delete their claims.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{WorkloadFixture, image, is_ready, template};
use crate::TestCluster;
use crate::test_cluster::set_finalizers;

/// A StatefulSet `web` in its own namespace.
struct StatefulSetFixture<'w> {
    fixture: WorkloadFixture<'w>,
    sets: Api<StatefulSet>,
    claims: Api<PersistentVolumeClaim>,
}

impl<'w> StatefulSetFixture<'w> {
    async fn create(cluster: &'w TestCluster, prefix: &str, spec_fields: Value) -> anyhow::Result<Self> {
        let fixture = WorkloadFixture::create(cluster, prefix).await?;
        let mut spec = json!({
            "serviceName": "peers", "selector": {"matchLabels": {"app": "web"}}, "template": template("v1"),
        });
        for (field, value) in spec_fields.as_object().context("the spec fields are an object")? {
            spec[field] = value.clone();
        }
        let (sets, claims) = (cluster.api(&fixture.name), cluster.api(&fixture.name));
        cluster.create(&sets, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
        Ok(Self { fixture, sets, claims })
    }

    async fn change(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.sets.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn change_image(&self, image: &str) -> anyhow::Result<()> {
        self.change(json!({"template": template(image)})).await
    }

    async fn set_partition(&self, partition: i32) -> anyhow::Result<()> {
        self.change(json!({"updateStrategy": {"rollingUpdate": {"partition": partition}}})).await
    }

    /// All pods by ordinal: name, image and whether they are not terminating.
    async fn pods(&self) -> anyhow::Result<Vec<(String, String, bool)>> {
        let list = self.fixture.pods.list(&ListParams::default()).await?;
        let describe = |pod: &Pod| (pod.name_any(), image(pod), pod.metadata.deletion_timestamp.is_none());
        let mut pods: Vec<_> = list.iter().map(describe).collect();
        pods.sort();
        Ok(pods)
    }

    /// Waits until exactly these pods exist: an image for each ordinal.
    async fn pods_become(&self, images: &[&str]) -> anyhow::Result<()> {
        let entry = |(at, image): (usize, &&str)| (format!("web-{at}"), (*image).to_owned(), true);
        let wanted: Vec<_> = images.iter().enumerate().map(entry).collect();
        let ask = async || Ok((self.pods().await? == wanted).then_some(()));
        self.fixture.cluster.eventually(&format!("pods {images:?}"), ask).await
    }

    /// Waits until exactly these pods exist, and checks that the next step does not follow.
    async fn pods_stay(&self, images: &[&str]) -> anyhow::Result<()> {
        self.pods_become(images).await?;
        self.fixture.cluster.settle().await;
        self.pods_become(images).await?;
        self.fixture.cluster.checkpoint(&format!("{images:?}")).await;
        Ok(())
    }

    async fn mark_ready(&self, at: usize) -> anyhow::Result<()> {
        self.fixture.mark_ready(&self.fixture.pods.get(&format!("web-{at}")).await?).await
    }

    /// Waits until the status has these numbers; missing fields count as 0.
    async fn status_becomes(&self, wanted: Value) -> anyhow::Result<()> {
        let ask = async || {
            let set = serde_json::to_value(self.sets.get("web").await?)?;
            let seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            let count = |field: &String| set["status"][field].as_i64().unwrap_or(0);
            let mut fields = wanted.as_object().into_iter().flatten();
            Ok((seen && fields.all(|(field, value)| *value == count(field))).then_some(()))
        };
        self.fixture.cluster.eventually(&format!("a status of {wanted}"), ask).await
    }

    /// Marks pods ready one after the other until all are of the newest revision.
    async fn roll(&self, replicas: i32, missing_max: usize) -> anyhow::Result<()> {
        let ask = async || {
            let pods = self.fixture.active_pods().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let least = usize::try_from(replicas)?.saturating_sub(missing_max);
            if let Some(pod) = pods.iter().find(|pod| !is_ready(pod)) {
                self.fixture.mark_ready(pod).await?;
            }
            let set = self.sets.get("web").await?;
            let status = set.status.unwrap_or_default();
            let counts = [status.updated_replicas, status.ready_replicas, status.current_replicas];
            let done = status.observed_generation == set.metadata.generation
                && status.current_revision == status.update_revision
                && counts == [Some(replicas); 3];
            Ok((done || ready < least).then_some(ready >= least))
        };
        ensure!(
            self.fixture.cluster.eventually("the end of a rollout", ask).await?,
            "too few pods are ready"
        );
        self.fixture.cluster.checkpoint("the rollout is complete").await;
        Ok(())
    }

    /// The owner kinds of a claim; `None` if it is deleted or terminating.
    async fn claim(&self, name: &str) -> anyhow::Result<Option<Vec<String>>> {
        let claim = self.claims.get_opt(name).await?;
        let not_terminating = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none());
        let kinds = |claim: &PersistentVolumeClaim| {
            claim.owner_references().iter().map(|owner| owner.kind.clone()).collect()
        };
        Ok(not_terminating.as_ref().map(kinds))
    }
}

fn claims_of(when_scaled: &str) -> Value {
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    json!({
        "replicas": 3,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": when_scaled, "whenDeleted": "Retain"},
    })
}

fn identity_is_right(pod: &Pod) -> anyhow::Result<()> {
    let pod = serde_json::to_value(pod)?;
    let labels = &pod["metadata"]["labels"];
    ensure!(labels["statefulset.kubernetes.io/pod-name"] == "web-2", "{labels}");
    ensure!(labels["apps.kubernetes.io/pod-index"] == "2", "{labels}");
    let hash = labels["controller-revision-hash"].as_str().unwrap_or_default();
    ensure!(hash.starts_with("web-"), "{labels}");
    let spec = &pod["spec"];
    ensure!(spec["hostname"] == "web-2" && spec["subdomain"] == "peers", "{spec}");
    ensure!(spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == "data-web-2", "{spec}");
    Ok(())
}

/// Proves STS-21, STS-22, STS-24, STS-42, STS-47, STS-50, STS-53, STS-58, STS-98, STS-100.
pub(crate) async fn stateful_set_starts_and_stops_pods_in_order(cluster: &TestCluster) -> anyhow::Result<()> {
    let stateful_set = StatefulSetFixture::create(cluster, "ordered", claims_of("Delete")).await?;
    for at in 0..3 {
        stateful_set.pods_stay(&vec!["v1"; at + 1]).await?;
        stateful_set.mark_ready(at).await?;
    }
    stateful_set.status_becomes(json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3})).await?;
    identity_is_right(&stateful_set.fixture.pods.get("web-2").await?)?;
    for at in 0..3 {
        let owners = stateful_set.claim(&format!("data-web-{at}")).await?;
        ensure!(owners.as_ref().is_some_and(Vec::is_empty), "data-web-{at} belongs to {owners:?}");
    }

    // The highest ordinal is deleted first, and the next one only when it is gone.
    let pods = &stateful_set.fixture.pods;
    set_finalizers(pods, "web-2", &["example.com/held"]).await?;
    stateful_set.change(json!({"replicas": 1})).await?;
    let expected = |last_is_kept| {
        let entry = |at: usize| (format!("web-{at}"), "v1".to_owned(), at < 2 || last_is_kept);
        (0..3).map(entry).collect::<Vec<_>>()
    };
    let terminating = async || Ok((stateful_set.pods().await? == expected(false)).then_some(()));
    cluster.eventually("the last pod is terminating", terminating).await?;
    cluster.settle().await;
    ensure!(stateful_set.pods().await? == expected(false), "the next pod is deleted too early");
    cluster.checkpoint("the last pod is terminating").await;
    set_finalizers(pods, "web-2", &[]).await?;
    stateful_set.pods_become(&["v1"]).await?;
    for name in ["data-web-1", "data-web-2"] {
        let deleted = async || Ok(stateful_set.claim(name).await?.is_none().then_some(()));
        cluster.eventually(&format!("{name} is deleted"), deleted).await?;
    }
    ensure!(stateful_set.claim("data-web-0").await? == Some(Vec::new()), "the first claim is kept");
    stateful_set.status_becomes(json!({"replicas": 1, "readyReplicas": 1, "currentReplicas": 1})).await?;
    let is_right = |messages: &[String]| {
        let recorded_once = |text: &str| messages.iter().filter(|message| *message == text).count() == 1;
        recorded_once("SuccessfulCreate Create Claim data-web-1 Pod web-1 in StatefulSet web success")
            && recorded_once("SuccessfulCreate Create Pod web-1 in StatefulSet web successful")
            && recorded_once("SuccessfulDelete Delete Pod web-1 in StatefulSet web successful")
    };
    stateful_set.fixture.events_become("StatefulSet", is_right).await
}

/// Proves STS-29, STS-30, STS-44, STS-70, STS-86, STS-93, STS-117.
pub(crate) async fn stateful_set_rolls_down_to_its_partition(cluster: &TestCluster) -> anyhow::Result<()> {
    let stateful_set = StatefulSetFixture::create(cluster, "partition", json!({"replicas": 3})).await?;
    stateful_set.roll(3, 3).await?;
    stateful_set.set_partition(2).await?;
    stateful_set.change_image("v2").await?;
    stateful_set.pods_become(&["v1", "v1", "v2"]).await?;
    stateful_set.mark_ready(2).await?;
    stateful_set
        .status_becomes(json!({"readyReplicas": 3, "currentReplicas": 2, "updatedReplicas": 1}))
        .await?;
    // Below the partition a deleted pod is recreated with the old revision.
    stateful_set.fixture.pods.delete("web-0", &DeleteParams::default()).await?;
    stateful_set.status_becomes(json!({"readyReplicas": 2})).await?;
    stateful_set.pods_stay(&["v1", "v1", "v2"]).await?;
    stateful_set.mark_ready(0).await?;
    stateful_set
        .status_becomes(json!({"readyReplicas": 3, "currentReplicas": 2, "updatedReplicas": 1}))
        .await?;

    stateful_set.set_partition(0).await?;
    stateful_set.pods_stay(&["v1", "v2", "v2"]).await?;
    stateful_set.mark_ready(1).await?;
    stateful_set.pods_stay(&["v2", "v2", "v2"]).await?;
    stateful_set.roll(3, 1).await?;
    let revision_map = |numbers: [(i64, &str); 2]| numbers.map(|(at, image)| (at, image.to_owned())).into();
    let revisions = stateful_set.fixture.revisions().await?;
    ensure!(revisions == revision_map([(1, "v1"), (2, "v2")]), "{revisions:?}");
    let name = stateful_set.sets.get("web").await?.status.and_then(|status| status.update_revision);

    // Rolling back and forth reuses the revisions.
    stateful_set.change_image("v1").await?;
    stateful_set.roll(3, 1).await?;
    let revisions = stateful_set.fixture.revisions().await?;
    ensure!(revisions == revision_map([(2, "v2"), (3, "v1")]), "{revisions:?}");
    stateful_set.change_image("v2").await?;
    stateful_set.roll(3, 1).await?;
    let revisions = stateful_set.fixture.revisions().await?;
    ensure!(revisions == revision_map([(3, "v1"), (4, "v2")]), "{revisions:?}");
    let again = stateful_set.sets.get("web").await?.status.and_then(|status| status.update_revision);
    ensure!(name == again, "{name:?} became {again:?}");
    Ok(())
}

/// Proves STS-41, STS-55, STS-71, STS-75.
pub(crate) async fn parallel_stateful_set_does_not_wait_for_readiness(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let spec_fields = json!({
        "replicas": 4, "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
    });
    let stateful_set = StatefulSetFixture::create(cluster, "parallel", spec_fields).await?;
    stateful_set.pods_become(&["v1"; 4]).await?;
    stateful_set.roll(4, 4).await?;
    stateful_set.change_image("v2").await?;
    stateful_set.pods_stay(&["v1", "v1", "v2", "v2"]).await?;
    stateful_set.roll(4, 2).await?;
    // Scaling down does not wait for readiness either.
    stateful_set.change(json!({"replicas": 6})).await?;
    stateful_set.pods_become(&["v2"; 6]).await?;
    cluster.checkpoint("all pods are created at once").await;
    stateful_set.change(json!({"replicas": 1})).await?;
    stateful_set.pods_become(&["v2"]).await?;
    stateful_set.status_becomes(json!({"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1})).await
}

pub(crate) async fn stateful_set_updates_on_delete_and_deletes_its_claims(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let mut spec_fields = claims_of("Retain");
    spec_fields["replicas"] = json!(2);
    spec_fields["ordinals"] = json!({"start": 3});
    spec_fields["updateStrategy"] = json!({"type": "OnDelete"});
    spec_fields["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = json!("Delete");
    let stateful_set = StatefulSetFixture::create(cluster, "by-hand", spec_fields).await?;
    let pods = &stateful_set.fixture.pods;
    let pods_are = async |wanted: &[(&str, &str)]| {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, image)| ((*name).to_owned(), (*image).to_owned(), true)).collect();
        let ask = async || Ok((stateful_set.pods().await? == wanted).then_some(()));
        cluster.eventually(&format!("pods {wanted:?}"), ask).await
    };
    pods_are(&[("web-3", "v1")]).await?;
    stateful_set.mark_ready(3).await?;
    pods_are(&[("web-3", "v1"), ("web-4", "v1")]).await?;
    stateful_set.mark_ready(4).await?;
    stateful_set.status_becomes(json!({"readyReplicas": 2, "updatedReplicas": 2})).await?;
    cluster.checkpoint("all pods are ready").await;

    stateful_set.change_image("v2").await?;
    stateful_set.status_becomes(json!({"readyReplicas": 2, "updatedReplicas": 0})).await?;
    cluster.checkpoint("no pod is replaced automatically").await;
    pods.delete("web-4", &DeleteParams::default()).await?;
    pods_are(&[("web-3", "v1"), ("web-4", "v2")]).await?;
    stateful_set.mark_ready(4).await?;
    stateful_set
        .status_becomes(json!({"readyReplicas": 2, "updatedReplicas": 1, "currentReplicas": 1}))
        .await?;
    let owners = stateful_set.claim("data-web-4").await?;
    ensure!(owners == Some(vec!["StatefulSet".to_owned()]), "data-web-4 belongs to {owners:?}");
    cluster.checkpoint("one pod is replaced after a delete").await;

    stateful_set.sets.delete("web", &DeleteParams::default()).await?;
    pods_are(&[]).await?;
    for name in ["data-web-3", "data-web-4"] {
        let deleted = async || Ok(stateful_set.claim(name).await?.is_none().then_some(()));
        cluster.eventually(&format!("{name} is deleted"), deleted).await?;
    }
    Ok(())
}
