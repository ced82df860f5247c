//! Claims that a stand-in CSI driver provisions, deletes and expands: alone, after scheduling, and of StatefulSets.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use keleustes_hollow::{Builder, DriverFault, DriverOperation, Hollow, HollowHandle, StorageDriver};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

mod local_path;
pub(crate) use local_path::local_path_provisioner_serves_a_stateful_set;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A namespace with claims, and a StorageClass with a driver of its own.
struct DynamicFixture<'w> {
    cluster: &'w TestCluster,
    namespace: String,
    /// The name of the class.
    class: String,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    pods: Api<Pod>,
}

impl<'w> DynamicFixture<'w> {
    async fn create(cluster: &'w TestCluster, prefix: &str, binding_mode: &str) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account(prefix).await?;
        let fixture = Self {
            cluster,
            // Unlike the prefix it is new in every run, also in one that repeats a failed one.
            class: namespace.clone(),
            claims: cluster.api(&namespace),
            volumes: Api::all(cluster.admin.clone()),
            pods: cluster.api(&namespace),
            namespace,
        };
        let class = json!({
            "metadata": {"name": fixture.class}, "provisioner": fixture.driver_name(), "reclaimPolicy": "Delete",
            "volumeBindingMode": binding_mode, "allowVolumeExpansion": true,
        });
        cluster.create(&fixture.classes(), class).await?;
        Ok(fixture)
    }

    fn classes(&self) -> Api<StorageClass> {
        Api::all(self.cluster.admin.clone())
    }

    fn driver_name(&self) -> String {
        format!("{}.example.com", self.class)
    }

    fn driver(&self) -> StorageDriver {
        StorageDriver::new(self.cluster.admin.clone(), &self.driver_name())
    }

    async fn claim(&self, name: &str) -> anyhow::Result<()> {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": self.class,
            "resources": {"requests": {"storage": "1Gi"}},
        });
        self.cluster.create(&self.claims, json!({"metadata": {"name": name}, "spec": spec})).await.map(drop)
    }

    /// Waits until a claim and its volume are bound to each other.
    async fn is_bound(&self, claim: &str) -> anyhow::Result<(PersistentVolumeClaim, PersistentVolume)> {
        let ask = async || {
            let Some(claim) = self.claims.get_opt(claim).await? else { return Ok(None) };
            let Some(name) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) else {
                return Ok(None);
            };
            let Some(volume) = self.volumes.get_opt(&name).await? else { return Ok(None) };
            let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
            let phases = [
                claim.status.as_ref().and_then(|status| status.phase.as_deref()),
                volume.status.as_ref().and_then(|status| status.phase.as_deref()),
            ];
            let is_bound = reference.uid == claim.uid() && phases == [Some("Bound"); 2];
            Ok(is_bound.then_some((claim, volume)))
        };
        self.cluster.eventually(&format!("claim {claim} is bound"), ask).await
    }

    async fn is_gone<K>(&self, api: &Api<K>, name: &str) -> anyhow::Result<()>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let ask = async || Ok(api.get_opt(name).await?.is_none().then_some(()));
        self.cluster.eventually(&format!("{name} is gone"), ask).await
    }

    async fn delete_claim(&self, name: &str, volume: &str) -> anyhow::Result<()> {
        self.claims.delete(name, &DeleteParams::default()).await?;
        self.is_gone(&self.claims, name).await?;
        self.is_gone(&self.volumes, volume).await
    }

    fn node(&self) -> String {
        format!("{}-0", self.namespace)
    }

    /// Starts a node that runs and stops pods.
    async fn start_node(&self) -> anyhow::Result<HollowHandle> {
        self.start_node_with(Hollow::builder(self.cluster.admin.clone())).await
    }

    async fn start_node_with(&self, builder: Builder) -> anyhow::Result<HollowHandle> {
        let hollow = builder.nodes(1).name_prefix(format!("{}-", self.namespace)).start();
        let nodes: Api<Node> = Api::all(self.cluster.admin.clone());
        let ready = async || {
            let node = serde_json::to_value(nodes.get(&self.node()).await?)?;
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
            let is_ready = conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            let is_untainted = node.pointer("/spec/taints").is_none_or(|taints| *taints == json!([]));
            Ok((is_ready && is_untainted).then_some(()))
        };
        self.cluster.eventually("a ready node", ready).await?;
        Ok(hollow)
    }

    async fn delete_node(&self, hollow: HollowHandle) -> anyhow::Result<()> {
        hollow.stop().await;
        let nodes: Api<Node> = Api::all(self.cluster.admin.clone());
        nodes.delete(&self.node(), &DeleteParams::default()).await.map(drop).map_err(Into::into)
    }

    async fn delete_class(&self) -> anyhow::Result<()> {
        self.classes().delete(&self.class, &DeleteParams::default()).await.map(drop).map_err(Into::into)
    }

    /// Asks for 2Gi.
    async fn grow(&self, claim: &str, size: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
        self.claims.patch(claim, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The claim, as soon as its status satisfies this.
    async fn status_becomes(
        &self,
        claim: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<()> {
        let ask = async || {
            let claim = serde_json::to_value(self.claims.get(claim).await?)?;
            Ok(is_so(&claim["status"]).then_some(()))
        };
        self.cluster.eventually(&format!("claim {claim}: {what}"), ask).await
    }

    async fn is_announced(&self, claim: &str, reason: &str) -> anyhow::Result<()> {
        let events: Api<Event> = self.cluster.api(&self.namespace);
        let fields = format!("involvedObject.name={claim},reason={reason}");
        let ask = async || {
            let found = events.list(&ListParams::default().fields(&fields)).await?;
            Ok((!found.items.is_empty()).then_some(()))
        };
        self.cluster.eventually(&format!("event {reason} on {claim}"), ask).await
    }
}

fn has_condition(status: &Value, kind: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn name_of(volume: &PersistentVolume) -> String {
    volume.name_any()
}

/// Proves PVB-80, PVB-147.
pub(crate) async fn storage_driver_provisions_and_deletes_volumes(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = DynamicFixture::create(cluster, "provisioned", "Immediate").await?;
    let driver = fixture.driver().start();
    driver.fail(DriverOperation::Provision, DriverFault::LostResponse, 1).await;
    driver.fail(DriverOperation::Delete, DriverFault::Partial, 1).await;
    fixture.claim("data").await?;
    let (_, volume) = fixture.is_bound("data").await?;
    driver.fail(DriverOperation::Provision, DriverFault::Refused, 2).await;
    fixture.claim("more").await?;
    let (_, other) = fixture.is_bound("more").await?;
    cluster.checkpoint("both claims are bound").await;
    fixture.delete_claim("data", &name_of(&volume)).await?;
    cluster.settle().await;
    ensure!(
        fixture.volumes.get_opt(&name_of(&other)).await?.is_some(),
        "the volume of the other claim is gone"
    );
    fixture.delete_claim("more", &name_of(&other)).await?;
    driver.stop().await;
    fixture.delete_class().await
}

/// Proves PVB-24, PVB-83.
pub(crate) async fn storage_driver_provisions_a_delayed_claim_for_its_node(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = DynamicFixture::create(cluster, "first-consumer", "WaitForFirstConsumer").await?;
    let driver = fixture.driver().start();
    driver.fail(DriverOperation::Provision, DriverFault::Hang(Duration::from_millis(800)), 1).await;
    fixture.claim("data").await?;
    fixture.is_announced("data", "WaitForFirstConsumer").await?;
    cluster.settle().await;
    let claim = fixture.claims.get("data").await?;
    ensure!(claim.spec.is_some_and(|spec| spec.volume_name.is_none()), "bound before a node was selected");
    cluster.checkpoint("no node is selected").await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: "n1"}}}));
    fixture.claims.patch("data", &PatchParams::default(), &patch).await?;
    let (_, volume) = fixture.is_bound("data").await?;
    cluster.checkpoint("the delayed claim is bound").await;
    fixture.delete_claim("data", &name_of(&volume)).await?;
    driver.stop().await;
    fixture.delete_class().await
}

/// A StatefulSet of two pods with a claim each, on the node of the fixture.
fn stateful_set(fixture: &DynamicFixture<'_>, policy: &str) -> Value {
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": fixture.class,
        "resources": {"requests": {"storage": "1Gi"}}}});
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 2, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": policy, "whenDeleted": policy},
        "volumeClaimTemplates": [claim],
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "nodeName": fixture.node(), "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
    }})
}

async fn scale(sets: &Api<StatefulSet>, replicas: i32) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    sets.patch("web", &PatchParams::default(), &patch).await.map(drop).map_err(Into::into)
}

async fn replicas_become(
    fixture: &DynamicFixture<'_>,
    sets: &Api<StatefulSet>,
    replicas: i32,
) -> anyhow::Result<()> {
    let ask = async || {
        let status = sets.get("web").await?.status.unwrap_or_default();
        let is_so = status.replicas == replicas && status.ready_replicas.unwrap_or_default() == replicas;
        Ok(is_so.then_some(()))
    };
    fixture.cluster.eventually(&format!("{replicas} ready replicas"), ask).await
}

/// Scales a StatefulSet down and up and deletes it. With the policy Retain its claims stay, with Delete each goes with its
/// pod or with the set, and its volume with it.
async fn life_of_claims(cluster: &TestCluster, prefix: &str, policy: &str) -> anyhow::Result<()> {
    let fixture = DynamicFixture::create(cluster, prefix, "Immediate").await?;
    let (driver, hollow) = (fixture.driver().start(), fixture.start_node().await?);
    let sets: Api<StatefulSet> = cluster.api(&fixture.namespace);
    cluster.create(&sets, stateful_set(&fixture, policy)).await?;
    replicas_become(&fixture, &sets, 2).await?;
    let (first, first_volume) = fixture.is_bound("data-web-0").await?;
    let (second, second_volume) = fixture.is_bound("data-web-1").await?;
    cluster.checkpoint("two pods have claims").await;
    let is_kept = policy == "Retain";

    scale(&sets, 1).await?;
    fixture.is_gone(&fixture.pods, "web-1").await?;
    if is_kept {
        cluster.settle().await;
        ensure!(fixture.claims.get("data-web-1").await?.uid() == second.uid(), "the claim was replaced");
    } else {
        fixture.is_gone(&fixture.claims, "data-web-1").await?;
        fixture.is_gone(&fixture.volumes, &name_of(&second_volume)).await?;
    }
    replicas_become(&fixture, &sets, 1).await?;
    cluster.checkpoint("one pod is left").await;
    scale(&sets, 2).await?;
    replicas_become(&fixture, &sets, 2).await?;
    let (again, again_volume) = fixture.is_bound("data-web-1").await?;
    ensure!((again.uid() == second.uid()) == is_kept, "scaled up with another claim than {policy} allows");
    ensure!(fixture.claims.get("data-web-0").await?.uid() == first.uid(), "the first claim was replaced");

    sets.delete("web", &DeleteParams::default()).await?;
    for pod in ["web-0", "web-1"] {
        fixture.is_gone(&fixture.pods, pod).await?;
    }
    if is_kept {
        cluster.settle().await;
        for claim in ["data-web-0", "data-web-1"] {
            let claim = fixture.claims.get_opt(claim).await?.context("a retained claim is gone")?;
            ensure!(claim.metadata.deletion_timestamp.is_none(), "a retained claim is deleted");
        }
        cluster.checkpoint("the claims outlive the StatefulSet").await;
        for claim in ["data-web-0", "data-web-1"] {
            fixture.claims.delete(claim, &DeleteParams::default()).await?;
        }
    }
    for (claim, volume) in [("data-web-0", &first_volume), ("data-web-1", &again_volume)] {
        fixture.is_gone(&fixture.claims, claim).await?;
        fixture.is_gone(&fixture.volumes, &name_of(volume)).await?;
    }
    cluster.checkpoint("nothing is left").await;
    driver.stop().await;
    fixture.delete_node(hollow).await?;
    fixture.delete_class().await
}

pub(crate) async fn retained_claims_outlive_their_stateful_set(cluster: &TestCluster) -> anyhow::Result<()> {
    life_of_claims(cluster, "retained", "Retain").await
}

pub(crate) async fn deleted_claims_go_with_their_stateful_set(cluster: &TestCluster) -> anyhow::Result<()> {
    life_of_claims(cluster, "not-retained", "Delete").await
}

/// Proves EXP-3.
pub(crate) async fn storage_driver_expands_a_claim_that_no_pod_uses(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = DynamicFixture::create(cluster, "expanded", "Immediate").await?;
    let driver = fixture.driver().start();
    fixture.claim("data").await?;
    let (_, volume) = fixture.is_bound("data").await?;
    driver.fail(DriverOperation::Expand, DriverFault::Partial, 1).await;
    fixture.grow("data", "2Gi").await?;
    fixture.is_announced("data", "ExternalExpanding").await?;
    fixture
        .status_becomes("data", "it has 2Gi", |status| {
            status["capacity"]["storage"] == "2Gi" && !has_condition(status, "Resizing")
        })
        .await?;
    let capacity = fixture.volumes.get(&name_of(&volume)).await?.spec.and_then(|spec| spec.capacity);
    let capacity = capacity.and_then(|capacity| capacity.get("storage").cloned());
    ensure!(capacity.is_some_and(|size| size.0 == "2Gi"), "the volume did not grow");
    cluster.checkpoint("the claim has grown").await;
    fixture.delete_claim("data", &name_of(&volume)).await?;
    driver.stop().await;
    fixture.delete_class().await
}

pub(crate) async fn storage_driver_expands_a_claim_on_the_node_of_its_pod(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = DynamicFixture::create(cluster, "expanded-online", "Immediate").await?;
    let (driver, hollow) = (fixture.driver().expands_on_node(true).start(), fixture.start_node().await?);
    fixture.claim("data").await?;
    let (_, volume) = fixture.is_bound("data").await?;
    fixture.grow("data", "2Gi").await?;
    fixture.is_announced("data", "ExternalExpanding").await?;
    let waits = |status: &Value| has_condition(status, "FileSystemResizePending");
    fixture.status_becomes("data", "it waits for a node", waits).await?;
    cluster.settle().await;
    let pending = serde_json::to_value(fixture.claims.get("data").await?)?;
    ensure!(pending["status"]["capacity"]["storage"] == "1Gi", "grown without a node: {pending}");
    cluster.checkpoint("the claim waits for a node").await;
    let spec = json!({
        "nodeName": fixture.node(), "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    });
    cluster.create(&fixture.pods, json!({"metadata": {"name": "user"}, "spec": spec})).await?;
    fixture
        .status_becomes("data", "it has 2Gi", |status| {
            status["capacity"]["storage"] == "2Gi" && !waits(status)
        })
        .await?;
    cluster.checkpoint("the claim has grown on its node").await;
    grow_under_running_pod(cluster, &fixture).await?;
    fixture.pods.delete("user", &DeleteParams::default()).await?;
    fixture.is_gone(&fixture.pods, "user").await?;
    fixture.delete_claim("data", &name_of(&volume)).await?;
    driver.stop().await;
    fixture.delete_node(hollow).await?;
    fixture.delete_class().await
}

/// The claim grows while its pod keeps running.
async fn grow_under_running_pod(cluster: &TestCluster, fixture: &DynamicFixture<'_>) -> anyhow::Result<()> {
    let running = async || {
        let pod = fixture.pods.get("user").await?;
        let runs = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
        Ok(runs.then_some(pod))
    };
    let before = cluster.eventually("pod user runs", &running).await?;
    fixture.grow("data", "3Gi").await?;
    fixture
        .status_becomes("data", "it has 3Gi", |status| {
            status["capacity"]["storage"] == "3Gi" && !has_condition(status, "FileSystemResizePending")
        })
        .await?;
    let after = running().await?.context("pod user does not run any more")?;
    ensure!(before.metadata.uid == after.metadata.uid, "pod user was replaced");
    cluster.checkpoint("the claim has grown while its pod runs").await;
    Ok(())
}
