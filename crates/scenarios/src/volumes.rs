//! Claims and volumes: bound statically, through an external driver and after scheduling; released, recycled, and lost.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Binding, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use keleustes_hollow::{Hollow, HollowHandle};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Claims of one namespace, and the volumes of the cluster.
struct VolumeFixture<'w> {
    cluster: &'w TestCluster,
    namespace: String,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    classes: Api<StorageClass>,
}

impl<'w> VolumeFixture<'w> {
    async fn create(cluster: &'w TestCluster, prefix: &str) -> anyhow::Result<Self> {
        let namespace = cluster.namespace(prefix).await?;
        let claims: Api<PersistentVolumeClaim> = cluster.api(&namespace);
        let client = claims.clone().into_client();
        let (volumes, classes) = (Api::all(client.clone()), Api::all(client));
        Ok(Self { cluster, namespace, claims, volumes, classes })
    }

    async fn claim(&self, name: &str, class: &str, size: &str) -> anyhow::Result<PersistentVolumeClaim> {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}},
        });
        self.cluster.create(&self.claims, json!({"metadata": {"name": name}, "spec": spec})).await
    }

    async fn volume(&self, name: &str, spec_fields: Value) -> anyhow::Result<PersistentVolume> {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "driver.example.com", "volumeHandle": name},
        });
        for (field, value) in spec_fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.cluster.create(&self.volumes, json!({"metadata": {"name": name}, "spec": spec})).await
    }

    async fn class(&self, name: &str, binding_mode: &str) -> anyhow::Result<()> {
        let class = json!({
            "metadata": {"name": name}, "provisioner": "driver.example.com", "reclaimPolicy": "Delete",
            "volumeBindingMode": binding_mode,
        });
        self.cluster.create(&self.classes, class).await.map(drop)
    }

    async fn claim_becomes(&self, name: &str, phase: &str) -> anyhow::Result<PersistentVolumeClaim> {
        let ask = async || {
            let claim = self.claims.get(name).await?;
            let is_so = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase);
            Ok(is_so.then_some(claim))
        };
        self.cluster.eventually(&format!("claim {name} is {phase}"), ask).await
    }

    async fn volume_becomes(&self, name: &str, phase: &str) -> anyhow::Result<PersistentVolume> {
        let ask = async || {
            let volume = self.volumes.get(name).await?;
            let is_so = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase);
            Ok(is_so.then_some(volume))
        };
        self.cluster.eventually(&format!("volume {name} is {phase}"), ask).await
    }

    /// What an external driver does when the claim names it: creates the volume that the claim waits for.
    async fn provision(&self, claim: &str) -> anyhow::Result<String> {
        let ask = async || {
            let claim = self.claims.get(claim).await?;
            let is_asked =
                claim.annotations().get(PROVISIONER).is_some_and(|name| name == "driver.example.com");
            Ok(is_asked.then_some(claim))
        };
        let claim = self.cluster.eventually("the driver is asked for a volume", ask).await?;
        let uid = claim.uid().unwrap_or_default();
        let name = format!("pvc-{uid}");
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
        let mut volume = json!({
            "metadata": {
                "name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "driver.example.com"},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": class,
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": {"driver": "driver.example.com", "volumeHandle": name},
            },
        });
        volume["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": self.namespace,
            "name": claim.name_any(), "uid": uid, "resourceVersion": claim.resource_version(),
        });
        self.cluster.create(&self.volumes, volume).await?;
        Ok(name)
    }

    async fn delete_claim(&self, name: &str) -> anyhow::Result<()> {
        delete(&self.claims, name).await?;
        let ask = async || Ok(self.claims.get_opt(name).await?.is_none().then_some(()));
        self.cluster.eventually(&format!("claim {name} is gone"), ask).await
    }

    async fn delete_volume(&self, name: &str) -> anyhow::Result<()> {
        delete(&self.volumes, name).await?;
        let ask = async || Ok(self.volumes.get_opt(name).await?.is_none().then_some(()));
        self.cluster.eventually(&format!("volume {name} is gone"), ask).await
    }
}

/// Deletes an object with the finalizers of the protection controllers, which need not run.
async fn delete<K>(api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    api.delete(name, &DeleteParams::default()).await?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        patched => patched.map(drop).map_err(Into::into),
    }
}

/// Proves PVB-19, PVB-26, PVB-50, PVB-66, PVB-71, PVB-144.
pub(crate) async fn claim_binds_the_smallest_volume_and_releases_it(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = VolumeFixture::create(cluster, "static").await?;
    fixture.volume("static-small", json!({"capacity": {"storage": "1Mi"}})).await?;
    fixture.volume("static-large", json!({"capacity": {"storage": "5Gi"}})).await?;
    fixture.volume("static-fit", json!({"capacity": {"storage": "2Gi"}})).await?;
    for name in ["static-small", "static-large", "static-fit"] {
        fixture.volume_becomes(name, "Available").await?;
    }
    fixture.claim("data", "", "1Gi").await?;
    let claim = fixture.claim_becomes("data", "Bound").await?;
    let spec = claim.spec.unwrap_or_default();
    ensure!(spec.volume_name.as_deref() == Some("static-fit"), "bound to {:?}", spec.volume_name);
    let volume = fixture.volume_becomes("static-fit", "Bound").await?;
    let claim_ref = volume.spec.and_then(|spec| spec.claim_ref).unwrap_or_default();
    ensure!(claim_ref.uid == claim.metadata.uid, "the volume is bound to {claim_ref:?}");
    cluster.checkpoint("the claim is bound").await;
    fixture.delete_claim("data").await?;
    fixture.volume_becomes("static-fit", "Released").await?;
    cluster.settle().await;
    ensure!(fixture.volumes.get_opt("static-fit").await?.is_some(), "a retained volume was deleted");
    cluster.checkpoint("the volume is released").await;
    for name in ["static-small", "static-large", "static-fit"] {
        fixture.delete_volume(name).await?;
    }
    Ok(())
}

/// Proves PVB-80, PVB-82, PVB-147.
pub(crate) async fn external_driver_provisions_a_volume_and_is_left_to_delete_it(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = VolumeFixture::create(cluster, "dynamic").await?;
    fixture.class("dynamic", "Immediate").await?;
    fixture.claim("data", "dynamic", "1Gi").await?;
    let name = fixture.provision("data").await?;
    let claim = fixture.claim_becomes("data", "Bound").await?;
    ensure!(claim.spec.and_then(|spec| spec.volume_name).as_ref() == Some(&name), "bound to another volume");
    fixture.volume_becomes(&name, "Bound").await?;
    cluster.checkpoint("the provisioned volume is bound").await;
    fixture.delete_claim("data").await?;
    fixture.volume_becomes(&name, "Released").await?;
    cluster.settle().await;
    ensure!(fixture.volumes.get_opt(&name).await?.is_some(), "the volume is the driver's to delete");
    cluster.checkpoint("the provisioned volume is released").await;
    fixture.delete_volume(&name).await?;
    fixture.classes.delete("dynamic", &DeleteParams::default()).await?;
    Ok(())
}

/// Proves PVB-24, PVB-32, PVB-83.
pub(crate) async fn delayed_claim_is_provisioned_after_a_node_is_selected(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = VolumeFixture::create(cluster, "delayed").await?;
    fixture.class("delayed", "WaitForFirstConsumer").await?;
    fixture.volume("delayed-free", json!({"storageClassName": "delayed"})).await?;
    fixture.volume_becomes("delayed-free", "Available").await?;
    fixture.claim("data", "delayed", "1Gi").await?;
    cluster.settle().await;
    let claim = fixture.claims.get("data").await?;
    ensure!(!claim.annotations().contains_key(PROVISIONER), "the driver was asked too early");
    ensure!(claim.spec.is_some_and(|spec| spec.volume_name.is_none()), "bound before a node was selected");
    cluster.checkpoint("no node is selected").await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: "n1"}}}));
    fixture.claims.patch("data", &PatchParams::default(), &patch).await?;
    let name = fixture.provision("data").await?;
    fixture.claim_becomes("data", "Bound").await?;
    cluster.checkpoint("the delayed claim is bound").await;
    fixture.delete_claim("data").await?;
    fixture.volume_becomes(&name, "Released").await?;
    for name in [&*name, "delayed-free"] {
        fixture.delete_volume(name).await?;
    }
    fixture.classes.delete("delayed", &DeleteParams::default()).await?;
    Ok(())
}

/// Proves PVB-14, PVB-43, PVB-47.
pub(crate) async fn claim_is_lost_with_its_volume_and_bound_again(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = VolumeFixture::create(cluster, "lost").await?;
    fixture.volume("lost", json!({})).await?;
    fixture.volume_becomes("lost", "Available").await?;
    fixture.claim("data", "", "1Gi").await?;
    fixture.claim_becomes("data", "Bound").await?;
    fixture.volume_becomes("lost", "Bound").await?;
    // The protection controller reports that no pod uses the claim, sooner or later than the binder binds it.
    cluster.settle().await;
    fixture.delete_volume("lost").await?;
    let claim = fixture.claim_becomes("data", "Lost").await?;
    ensure!(claim.status.is_some_and(|status| status.capacity.is_none()), "a lost claim has no capacity");
    cluster.checkpoint("the claim is lost").await;
    fixture.volume("lost", json!({})).await?;
    // The next resync notices the volume.
    fixture.claim_becomes("data", "Bound").await?;
    fixture.volume_becomes("lost", "Bound").await?;
    cluster.checkpoint("the claim is bound again").await;
    fixture.delete_claim("data").await?;
    fixture.volume_becomes("lost", "Released").await?;
    fixture.delete_volume("lost").await
}

/// Waits until a claim has had two events: one is recorded at each resync, so that how many more there are until it is bound
/// depends on timing.
async fn is_refused_twice(fixture: &VolumeFixture<'_>, claim: &str) -> anyhow::Result<()> {
    let events: Api<Event> = fixture.cluster.api(&fixture.namespace);
    let is_repeated = async || {
        let events = events.list(&ListParams::default()).await?.items.into_iter();
        let refusals = events.filter(|event| {
            event.involved_object.name.as_deref() == Some(claim)
                && event.reason.as_deref() == Some("FailedBinding")
        });
        let count: i32 = refusals.map(|event| event.count.unwrap_or(1)).sum();
        Ok((count > 1).then_some(()))
    };
    fixture.cluster.eventually(&format!("two events that {claim} has no volume"), is_repeated).await
}

/// Proves PVB-28, PVB-31.
pub(crate) async fn class_less_claim_gets_the_later_default_class(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = VolumeFixture::create(cluster, "default-class").await?;
    let class = fixture.namespace.as_str();
    // Claims that other scenarios have left get the class too, but cannot have the volume.
    let modes = json!(["ReadOnlyMany"]);
    fixture.volume("default-class", json!({"accessModes": modes, "storageClassName": class})).await?;
    fixture.volume_becomes("default-class", "Available").await?;
    let spec = json!({"accessModes": modes, "resources": {"requests": {"storage": "1Gi"}}});
    cluster.create(&fixture.claims, json!({"metadata": {"name": "data"}, "spec": spec})).await?;
    is_refused_twice(&fixture, "data").await?;
    let spec = fixture.claims.get("data").await?.spec.unwrap_or_default();
    ensure!(spec.storage_class_name.is_none() && spec.volume_name.is_none(), "{spec:?}");
    cluster.checkpoint("no class is the default").await;
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let default = json!({"metadata": {"name": class, "annotations": annotations},
        "provisioner": "kubernetes.io/no-provisioner"});
    cluster.create(&fixture.classes, default).await?;
    let claim = fixture.claim_becomes("data", "Bound").await?;
    let given = claim.spec.and_then(|spec| spec.storage_class_name);
    ensure!(given.as_deref() == Some(class), "the class is {given:?}");
    fixture.volume_becomes("default-class", "Bound").await?;
    cluster.checkpoint("the claim has the default class").await;
    fixture.classes.delete(class, &DeleteParams::default()).await?;
    fixture.delete_claim("data").await?;
    fixture.volume_becomes("default-class", "Released").await?;
    fixture.delete_volume("default-class").await
}

/// Starts a node that runs pods, and waits until it is ready.
async fn start_node(cluster: &TestCluster, prefix: &str) -> anyhow::Result<HollowHandle> {
    let hollow = Hollow::builder(cluster.admin.clone()).nodes(1).name_prefix(prefix).start();
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    let is_ready = async || {
        let status = nodes.get(&format!("{prefix}0")).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        Ok(conditions.any(|one| one.type_ == "Ready" && one.status == "True").then_some(()))
    };
    cluster.eventually("a ready node", is_ready).await?;
    Ok(hollow)
}

/// The pod that scrubs a volume waits until the scenario binds it to a node.
///
/// Proves PVB-107, PVB-108, PVB-110.
pub(crate) async fn recycled_volume_is_available_again(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = VolumeFixture::create(cluster, "recycle").await?;
    let (name, path) = (fixture.namespace.as_str(), format!("/tmp/{}", fixture.namespace));
    let spec = json!({"hostPath": {"path": path}, "csi": null, "storageClassName": name,
        "persistentVolumeReclaimPolicy": "Recycle"});
    fixture.volume(name, spec).await?;
    fixture.volume_becomes(name, "Available").await?;
    fixture.claim("data", name, "1Gi").await?;
    fixture.claim_becomes("data", "Bound").await?;
    fixture.volume_becomes(name, "Bound").await?;
    fixture.delete_claim("data").await?;
    // A comparison leaves its namespace out.
    let (pods, pod) = (cluster.api::<Pod>("default"), format!("recycler-for-{name}"));
    let created = cluster.eventually("a recycler pod", async || Ok(pods.get_opt(&pod).await?)).await?;
    let spec = serde_json::to_value(created.spec)?;
    let container = &spec["containers"][0];
    ensure!(
        spec["restartPolicy"] == "Never"
            && spec["activeDeadlineSeconds"] == 60
            && spec["volumes"][0]["hostPath"]["path"] == *path
            && container["name"] == "pv-recycler"
            && container["image"] == "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6"
            && container["volumeMounts"][0]["mountPath"] == "/scrub"
            && container["command"][0] == "/bin/sh",
        "{spec}"
    );
    cluster.settle().await;
    fixture.volume_becomes(name, "Released").await?;
    cluster.checkpoint("the recycler pod waits for a node").await;
    let hollow = start_node(cluster, &format!("{name}-")).await?;
    let target = json!({"apiVersion": "v1", "kind": "Node", "name": format!("{name}-0")});
    let binding: Binding = serde_json::from_value(json!({"metadata": {"name": pod}, "target": target}))?;
    let _: Value = pods.create_subresource("binding", &pod, &PostParams::default(), &binding).await?;
    let volume = fixture.volume_becomes(name, "Available").await?;
    ensure!(volume.spec.is_some_and(|spec| spec.claim_ref.is_none()), "the volume is not free");
    let is_gone = async || Ok(pods.get_opt(&pod).await?.is_none().then_some(()));
    cluster.eventually("the recycler pod is gone", is_gone).await?;
    cluster.checkpoint("the volume is available again").await;
    hollow.stop().await;
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    nodes.delete(&format!("{name}-0"), &DeleteParams::default()).await?;
    fixture.delete_volume(name).await
}
