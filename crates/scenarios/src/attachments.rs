//! Volumes of pods: attached to their node, refused to a second one, detached after their last pod, and taken from a
//! node that is out of service, or dead for six minutes.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use keleustes_hollow::{Hollow, HollowHandle};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

const DRIVER: &str = "driver.example.com";

/// Nodes with an attacher, and a namespace with a bound claim.
///
/// The names of the nodes are fixed, because those of VolumeAttachments are derived from them.
pub(crate) struct AttachFixture<'w> {
    cluster: &'w TestCluster,
    /// The prefix of the nodes and the name of the volume.
    name: &'static str,
    nodes: Api<Node>,
    pub(crate) pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    pub(crate) volumes: Api<PersistentVolume>,
    pub(crate) attachments: Api<VolumeAttachment>,
    events: Api<Event>,
    hollow: HollowHandle,
}

impl<'w> AttachFixture<'w> {
    pub(crate) async fn create(cluster: &'w TestCluster, name: &'static str) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account(name).await?;
        let admin = cluster.admin.clone();
        let hollow = Hollow::builder(admin.clone())
            .nodes(2)
            .name_prefix(format!("{name}-"))
            .leases(Duration::from_secs(5), Duration::from_secs(40))
            .volumes(true)
            .start();
        let fixture = Self {
            cluster,
            name,
            nodes: Api::all(admin.clone()),
            pods: cluster.api(&namespace),
            claims: cluster.api(&namespace),
            volumes: Api::all(admin.clone()),
            attachments: Api::all(admin),
            events: cluster.api(&namespace),
            hollow,
        };
        for at in 0..2 {
            let node = fixture.node(at);
            let is_ready = async || {
                let node = serde_json::to_value(fixture.nodes.get(&node).await?)?;
                let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let is_ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
                Ok((is_ready && node["spec"]["taints"].is_null()).then_some(()))
            };
            cluster.eventually(&format!("node {node} is ready"), is_ready).await?;
        }
        fixture.create_volume(&namespace).await?;
        Ok(fixture)
    }

    /// Creates the volume and its claim, and waits until they are bound.
    async fn create_volume(&self, namespace: &str) -> anyhow::Result<()> {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": namespace, "name": "data"},
            "csi": {"driver": DRIVER, "volumeHandle": self.name},
        });
        self.cluster.create(&self.volumes, json!({"metadata": {"name": self.name}, "spec": spec})).await?;
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": self.name,
            "resources": {"requests": {"storage": "1Gi"}},
        });
        self.cluster.create(&self.claims, json!({"metadata": {"name": "data"}, "spec": spec})).await?;
        let is_bound = async || {
            let claim = self.claims.get("data").await?;
            let phase = claim.status.and_then(|status| status.phase);
            Ok((phase.as_deref() == Some("Bound")).then_some(()))
        };
        self.cluster.eventually("the claim is bound", is_bound).await
    }

    pub(crate) fn node(&self, at: usize) -> String {
        format!("{}-{at}", self.name)
    }

    fn unique_name(&self) -> String {
        format!("kubernetes.io/csi/{DRIVER}^{}", self.name)
    }

    /// Creates a pod on a node that uses the claim.
    pub(crate) async fn pod(&self, name: &str, at: usize) -> anyhow::Result<()> {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node(at), "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        });
        self.cluster.create(&self.pods, pod).await.map(drop)
    }

    pub(crate) async fn delete_pod(&self, name: &str) -> anyhow::Result<()> {
        self.pods.delete(name, &DeleteParams::default()).await?;
        let is_gone = async || Ok(self.pods.get_opt(name).await?.is_none().then_some(()));
        self.cluster.eventually(&format!("pod {name} is gone"), is_gone).await
    }

    pub(crate) async fn pod_runs(&self, name: &str) -> anyhow::Result<()> {
        let runs = async || {
            let pod = self.pods.get(name).await?;
            let phase = pod.status.and_then(|status| status.phase);
            Ok((phase.as_deref() == Some("Running")).then_some(()))
        };
        self.cluster.eventually(&format!("pod {name} runs"), runs).await
    }

    /// The VolumeAttachments of the volume: the node and whether it is attached.
    pub(crate) async fn attached(&self) -> anyhow::Result<Vec<(String, bool)>> {
        let all = self.attachments.list(&ListParams::default()).await?;
        let of_it =
            |one: &VolumeAttachment| one.spec.source.persistent_volume_name.as_deref() == Some(self.name);
        let state =
            |one: VolumeAttachment| (one.spec.node_name, one.status.is_some_and(|status| status.attached));
        Ok(all.into_iter().filter(of_it).map(state).collect())
    }

    pub(crate) async fn attachments_become(&self, expected: &[(String, bool)]) -> anyhow::Result<()> {
        let ask = async || Ok((self.attached().await? == expected).then_some(()));
        self.cluster.eventually(&format!("the attachments are {expected:?}"), ask).await
    }

    /// Waits until a node lists the volume, or no longer, in both lists of its status.
    pub(crate) async fn node_reports(&self, at: usize, is_attached: bool) -> anyhow::Result<()> {
        let name = self.unique_name();
        let ask = async || {
            let node = serde_json::to_value(self.nodes.get(&self.node(at)).await?)?;
            let status = &node["status"];
            let entries = |list: &Value| list.as_array().cloned().unwrap_or_default();
            let attached = entries(&status["volumesAttached"]).iter().any(|one| one["name"] == *name);
            let in_use = entries(&status["volumesInUse"]).iter().any(|one| *one == *name);
            Ok((attached == is_attached && in_use == is_attached).then_some(()))
        };
        self.cluster.eventually(&format!("{} reports {is_attached}", self.node(at)), ask).await
    }

    /// The events of the controller about a pod.
    async fn messages(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let about =
            ListParams::default().fields(&format!("involvedObject.kind=Pod,involvedObject.name={pod}"));
        let events = self.events.list(&about).await?.items.into_iter();
        let of_controller = events.filter(|event| {
            let source = event.source.as_ref().and_then(|source| source.component.as_deref());
            source == Some("attachdetach-controller")
        });
        Ok(of_controller.filter_map(|event| event.message).collect())
    }

    async fn message_becomes(&self, pod: &str, expected: &str) -> anyhow::Result<()> {
        let ask =
            async || Ok(self.messages(pod).await?.iter().any(|message| message == expected).then_some(()));
        self.cluster.eventually(&format!("an event about {pod}: {expected}"), ask).await
    }

    pub(crate) async fn clear(self) -> anyhow::Result<()> {
        for at in 0..2 {
            self.nodes.delete(&self.node(at), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

fn succeeded(volume: &str) -> String {
    format!("AttachVolume.Attach succeeded for volume \"{volume}\" ")
}

/// Proves AD-4, AD-40, AD-50, AD-66, AD-76, AD-87, AD-93.
pub(crate) async fn volume_is_attached_with_its_pod_and_detached_after_it(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = AttachFixture::create(cluster, "attach").await?;
    fixture.pod("one", 0).await?;
    fixture.attachments_become(&[(fixture.node(0), true)]).await?;
    fixture.node_reports(0, true).await?;
    fixture.pod_runs("one").await?;
    fixture.message_becomes("one", &succeeded("attach")).await?;
    // A second pod on the node shares the attachment.
    fixture.pod("two", 0).await?;
    fixture.pod_runs("two").await?;
    cluster.checkpoint("the volume is attached").await;
    fixture.delete_pod("one").await?;
    cluster.settle().await;
    ensure!(fixture.attached().await? == [(fixture.node(0), true)], "the second pod needs it");
    fixture.delete_pod("two").await?;
    fixture.attachments_become(&[]).await?;
    fixture.node_reports(0, false).await?;
    cluster.checkpoint("the volume is detached").await;
    fixture.clear().await
}

/// Proves AD-57, AD-90, AD-92, AD-120.
pub(crate) async fn second_node_waits_for_a_volume_that_the_first_has(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = AttachFixture::create(cluster, "multi-attach").await?;
    fixture.pod("one", 0).await?;
    fixture.pod_runs("one").await?;
    fixture.pod("two", 1).await?;
    let waiting = "Waiting for detach for volume \"multi-attach\" Volume is already used by pod(s) one";
    fixture.message_becomes("two", waiting).await?;
    cluster.settle().await;
    ensure!(fixture.attached().await? == [(fixture.node(0), true)], "one node has it");
    cluster.checkpoint("the second node waits").await;
    fixture.delete_pod("one").await?;
    fixture.attachments_become(&[(fixture.node(1), true)]).await?;
    fixture.pod_runs("two").await?;
    fixture.message_becomes("two", &succeeded("multi-attach")).await?;
    fixture.node_reports(0, false).await?;
    fixture.node_reports(1, true).await?;
    cluster.checkpoint("the second node has it").await;
    fixture.delete_pod("two").await?;
    fixture.attachments_become(&[]).await?;
    fixture.clear().await
}

/// Proves AD-121, AD-122, AD-124.
pub(crate) async fn volume_in_use_leaves_an_out_of_service_node_only(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = AttachFixture::create(cluster, "out-of-service").await?;
    fixture.pod("one", 0).await?;
    fixture.pod_runs("one").await?;
    fixture.node_reports(0, true).await?;
    // The kubelet stops reporting, so the volume stays in use after the pod is gone.
    fixture.hollow.fail_node(&fixture.node(0)).await;
    fixture.pods.delete("one", &DeleteParams::default().grace_period(0)).await?;
    let is_gone = async || Ok(fixture.pods.get_opt("one").await?.is_none().then_some(()));
    cluster.eventually("the pod is gone", is_gone).await?;
    cluster.settle().await;
    ensure!(fixture.attached().await? == [(fixture.node(0), true)], "it is in use");
    cluster.checkpoint("the volume is in use").await;
    let taint =
        json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]);
    let patch = Patch::Merge(json!({"spec": {"taints": taint}}));
    fixture.nodes.patch(&fixture.node(0), &PatchParams::default(), &patch).await?;
    fixture.attachments_become(&[]).await?;
    let node = fixture.nodes.get(&fixture.node(0)).await?;
    let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    ensure!(attached.is_none_or(Vec::is_empty), "{} lists volumes", node.name_any());
    cluster.checkpoint("the volume is detached").await;
    fixture.clear().await
}

/// How long a volume in use stays on a node that is not Ready.
const FORCE_DETACH_AFTER: Duration = Duration::from_secs(360);

/// Proves AD-48, AD-49, AD-91, AD-121.
pub(crate) async fn volume_of_a_dead_node_is_detached_after_six_minutes(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = AttachFixture::create(cluster, "six-minutes").await?;
    fixture.pod("one", 0).await?;
    fixture.pod_runs("one").await?;
    fixture.node_reports(0, true).await?;
    // The kubelet stops reporting, so the volume stays in use after the pod is gone.
    fixture.hollow.fail_node(&fixture.node(0)).await;
    fixture.pods.delete("one", &DeleteParams::default().grace_period(0)).await?;
    let gone_at = tokio::time::Instant::now();
    fixture.pod("two", 1).await?;
    let waiting = "Waiting for detach for volume \"six-minutes\" Volume is already exclusively attached to one node, \
                   waiting on detach before it can be attached to another node";
    fixture.message_becomes("two", waiting).await?;
    cluster.checkpoint("the second node waits").await;
    while gone_at.elapsed() < FORCE_DETACH_AFTER - Duration::from_secs(2) {
        ensure!(fixture.attached().await? == [(fixture.node(0), true)], "it is in use");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    fixture.attachments_become(&[(fixture.node(1), true)]).await?;
    ensure!(gone_at.elapsed() >= FORCE_DETACH_AFTER, "detached after {:?}", gone_at.elapsed());
    fixture.pod_runs("two").await?;
    fixture.node_reports(1, true).await?;
    let node = fixture.nodes.get(&fixture.node(0)).await?;
    let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    ensure!(attached.is_none_or(Vec::is_empty), "{} lists volumes", node.name_any());
    cluster.checkpoint("the second node has it").await;
    fixture.delete_pod("two").await?;
    fixture.attachments_become(&[]).await?;
    fixture.clear().await
}

/// Proves AD-23.
pub(crate) async fn pod_does_not_wait_for_a_driver_that_attaches_nothing(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let drivers: Api<CSIDriver> = Api::all(cluster.admin.clone());
    let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    cluster.create(&drivers, driver).await?;
    let fixture = AttachFixture::create(cluster, "no-attach").await?;
    fixture.pod("one", 0).await?;
    fixture.pod_runs("one").await?;
    cluster.settle().await;
    ensure!(fixture.attached().await?.is_empty(), "the driver attaches nothing");
    fixture.node_reports(0, false).await?;
    cluster.checkpoint("the pod runs").await;
    // In this order: without its driver the volume would be attached in the last moment.
    fixture.delete_pod("one").await?;
    drivers.delete(DRIVER, &DeleteParams::default()).await?;
    fixture.clear().await
}
