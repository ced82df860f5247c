//! Pods that use one volume with different SELinux labels: reported on both, and on no other pod.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

/// A CSI driver that mounts with labels, and claims of its volume in some namespaces.
struct SelinuxFixture<'w> {
    cluster: &'w TestCluster,
    name: String,
    drivers: Api<CSIDriver>,
    volumes: Api<PersistentVolume>,
}

impl<'w> SelinuxFixture<'w> {
    async fn create(cluster: &'w TestCluster, name: &str, namespaces: &[&String]) -> anyhow::Result<Self> {
        let client = cluster.admin.clone();
        // New in every run, also in one that repeats a failed one.
        let name = format!("{name}-{}", namespaces[0]);
        let fixture = Self {
            cluster,
            name: format!("{name}.example.com"),
            drivers: Api::all(client.clone()),
            volumes: Api::all(client),
        };
        let driver = json!({"metadata": {"name": fixture.name}, "spec": {"seLinuxMount": true, "attachRequired": false}});
        cluster.create(&fixture.drivers, driver).await?;
        for (at, namespace) in namespaces.iter().enumerate() {
            fixture.bind(&format!("{name}-{at}"), namespace).await?;
        }
        Ok(fixture)
    }

    /// Binds the claim `data` of a namespace to a volume with the handle that all of them have.
    async fn bind(&self, volume: &str, namespace: &str) -> anyhow::Result<()> {
        let spec = json!({
            "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": volume,
            "csi": {"driver": self.name, "volumeHandle": "shared"},
        });
        self.cluster.create(&self.volumes, json!({"metadata": {"name": volume}, "spec": spec})).await?;
        let available = async || {
            let status = self.volumes.get(volume).await?.status;
            Ok((status.and_then(|status| status.phase).as_deref() == Some("Available")).then_some(()))
        };
        self.cluster.eventually("the volume is available", available).await?;
        let claims: Api<PersistentVolumeClaim> = self.cluster.api(namespace);
        let spec = json!({"accessModes": ["ReadWriteMany"], "storageClassName": volume,
            "resources": {"requests": {"storage": "1Gi"}}});
        self.cluster.create(&claims, json!({"metadata": {"name": "data"}, "spec": spec})).await?;
        let ask = async || {
            let status = claims.get("data").await?.status;
            Ok((status.and_then(|status| status.phase).as_deref() == Some("Bound")).then_some(()))
        };
        self.cluster.eventually("the claim is bound", ask).await
    }

    /// Creates a pod that mounts the claim with this security context.
    async fn pod(&self, namespace: &str, name: &str, security: Value) -> anyhow::Result<()> {
        let spec = json!({
            "securityContext": security, "nodeSelector": {"no": "node"}, "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        });
        let pods: Api<Pod> = self.cluster.api(namespace);
        self.cluster.create(&pods, json!({"metadata": {"name": name}, "spec": spec})).await.map(drop)
    }

    async fn delete(&self, namespaces: &[&String]) -> anyhow::Result<()> {
        for namespace in namespaces {
            let pods: Api<Pod> = self.cluster.api(namespace);
            pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
            let claims: Api<PersistentVolumeClaim> = self.cluster.api(namespace);
            self.cluster.delete_if_exists(&claims, "data").await?;
        }
        self.drivers.delete(&self.name, &DeleteParams::default()).await?;
        let mine = |volume: &PersistentVolume| {
            volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).is_some_and(|csi| csi.driver == self.name)
        };
        for volume in self.volumes.list(&ListParams::default()).await?.into_iter().filter(mine) {
            self.cluster.delete_if_exists(&self.volumes, &volume.name_any()).await?;
        }
        Ok(())
    }
}

fn level(level: &str) -> Value {
    json!({"seLinuxOptions": {"level": level}})
}

/// `type: message` of the events about a pod with this reason.
async fn events(
    cluster: &TestCluster,
    namespace: &str,
    pod: &str,
    reason: &str,
) -> anyhow::Result<Vec<String>> {
    let fields = format!("involvedObject.name={pod},reason={reason}");
    let events = cluster.api::<Event>(namespace).list(&ListParams::default().fields(&fields)).await?;
    let text =
        |event: Event| format!("{}: {}", event.type_.unwrap_or_default(), event.message.unwrap_or_default());
    Ok(events.into_iter().map(text).collect())
}

async fn event(cluster: &TestCluster, namespace: &str, pod: &str, reason: &str) -> anyhow::Result<String> {
    let ask = async || Ok(events(cluster, namespace, pod, reason).await?.pop());
    cluster.eventually(&format!("event {reason} on {pod}"), ask).await
}

/// Proves SEW-21, SEW-25, SEW-35, SEW-36, SEW-52.
pub(crate) async fn pods_with_two_selinux_labels_on_one_volume_are_reported(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    const REASON: &str = "SELinuxLabelConflict";
    let namespace = cluster.namespace_with_service_account("selinux").await?;
    let fixture = SelinuxFixture::create(cluster, "selinux", &[&namespace]).await?;
    fixture.pod(&namespace, "one", level("s0:c1,c2")).await?;
    let full = json!({"user": "u", "role": "r", "type": "t", "level": "s0:c1,c2"});
    fixture.pod(&namespace, "same", json!({"seLinuxOptions": full})).await?;
    cluster.settle().await;
    fixture.pod(&namespace, "odd", level("s0:c3,c4")).await?;
    let said = event(cluster, &namespace, "one", REASON).await?;
    let end = "If both pods land on the same node, only one of them may access the volume.";
    let expected = format!(
        "Normal: SELinuxLabel \":::s0:c1,c2\" conflicts with pod odd that uses the same volume as this pod with SELinuxLabel \
         \":::s0:c3,c4\". {end}"
    );
    ensure!(said == expected, "{said}");
    event(cluster, &namespace, "same", REASON).await?;
    let ask = async || Ok((events(cluster, &namespace, "odd", REASON).await?.len() == 2).then_some(()));
    cluster.eventually("the odd pod has an event about both", ask).await?;
    cluster.settle().await;
    ensure!(events(cluster, &namespace, "one", REASON).await?.len() == 1, "two pods agree");
    ensure!(events(cluster, &namespace, "one", "SELinuxChangePolicyConflict").await?.is_empty());
    cluster.checkpoint("conflicts are reported").await;
    fixture.delete(&[&namespace]).await
}

/// Proves SEW-37.
pub(crate) async fn selinux_conflicts_do_not_name_pods_of_other_namespaces(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let (here, there) = (
        cluster.namespace_with_service_account("selinux-here").await?,
        cluster.namespace_with_service_account("selinux-there").await?,
    );
    let fixture = SelinuxFixture::create(cluster, "selinux-two", &[&here, &there]).await?;
    fixture.pod(&here, "mine", level("s0")).await?;
    cluster.settle().await;
    fixture.pod(&there, "secret", level("s1")).await?;
    let said = event(cluster, &here, "mine", "SELinuxLabelConflict").await?;
    let expected = "Normal: SELinuxLabel\":::s0\" conflicts with another pod that uses the same volume as this pod with a \
        different SELinuxLabel. If both pods land on the same node, only one of them may access the volume.";
    ensure!(said == expected, "{said}");
    event(cluster, &there, "secret", "SELinuxLabelConflict").await?;
    cluster.checkpoint("conflicts between namespaces are reported").await;
    fixture.delete(&[&here, &there]).await
}

/// Proves SEW-5, SEW-22, SEW-55, SEW-62.
pub(crate) async fn selinux_conflicts_depend_on_the_driver_of_the_volume(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    const REASON: &str = "SELinuxChangePolicyConflict";
    let namespace = cluster.namespace_with_service_account("selinux-driver").await?;
    let fixture = SelinuxFixture::create(cluster, "selinux-driver", &[&namespace]).await?;
    let mounts_with_labels = async |value: bool| {
        let patch = Patch::Merge(json!({"spec": {"seLinuxMount": value}}));
        fixture.drivers.patch(&fixture.name, &PatchParams::default(), &patch).await.map(drop)
    };
    mounts_with_labels(false).await?;
    cluster.settle().await;
    fixture.pod(&namespace, "plain", json!({})).await?;
    fixture.pod(&namespace, "label", level("s0")).await?;
    cluster.settle().await;
    for reason in [REASON, "SELinuxLabelConflict"] {
        ensure!(
            events(cluster, &namespace, "label", reason).await?.is_empty(),
            "nothing is mounted with labels"
        );
    }
    mounts_with_labels(true).await?;
    let said = event(cluster, &namespace, "plain", REASON).await?;
    let expected = "Normal: SELinuxChangePolicy \"Recursive\" conflicts with pod label that uses the same volume as this pod \
        with SELinuxChangePolicy \"MountOption\". If both pods land on the same node, only one of them may access the volume.";
    ensure!(said == expected, "{said}");
    for pod in ["plain", "label"] {
        event(cluster, &namespace, pod, "SELinuxLabelConflict").await?;
    }
    event(cluster, &namespace, "label", REASON).await?;
    cluster.checkpoint("the driver mounts with labels").await;
    fixture.delete(&[&namespace]).await
}
