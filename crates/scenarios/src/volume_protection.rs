//! Claims, volumes and classes that are deleted while they are in use, claims of ephemeral volumes, and claims that grow.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use keleustes_hollow::{Hollow, HollowHandle};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::test_cluster::set_finalizers;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";

/// A namespace with claims and pods, and the volumes of these claims.
struct VolumeFixture<'w> {
    cluster: &'w TestCluster,
    namespace: String,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    pods: Api<Pod>,
}

impl<'w> VolumeFixture<'w> {
    async fn new(cluster: &'w TestCluster, prefix: &str) -> anyhow::Result<Self> {
        let namespace = cluster.namespace_with_service_account(prefix).await?;
        let volumes = Api::all(cluster.admin.clone());
        let (claims, pods) = (cluster.api(&namespace), cluster.api(&namespace));
        Ok(Self { cluster, namespace, claims, volumes, pods })
    }

    /// The name of a cluster-scoped object of this scenario.
    fn global(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    fn node(&self) -> String {
        self.global("0")
    }

    /// Starts a node that runs and stops pods.
    async fn start_node(&self) -> anyhow::Result<HollowHandle> {
        let prefix = format!("{}-", self.namespace);
        let hollow = Hollow::builder(self.cluster.admin.clone()).nodes(1).name_prefix(prefix).start();
        let nodes: Api<Node> = Api::all(self.cluster.admin.clone());
        let ready = async || {
            let node = serde_json::to_value(nodes.get(&self.node()).await?)?;
            let is_untainted = node.pointer("/spec/taints").is_none_or(|taints| *taints == json!([]));
            Ok((condition(&node, "Ready")["status"] == "True" && is_untainted).then_some(()))
        };
        self.cluster.eventually("a ready node", ready).await?;
        Ok(hollow)
    }

    async fn claim(&self, name: &str, spec: Value) -> anyhow::Result<PersistentVolumeClaim> {
        let mut claim = json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        }});
        merge(&mut claim["spec"], spec);
        self.cluster.create(&self.claims, claim).await
    }

    async fn volume(&self, name: &str, spec: Value) -> anyhow::Result<PersistentVolume> {
        let mut volume = json!({"metadata": {"name": self.global(name)}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
        }});
        merge(&mut volume["spec"], spec);
        self.cluster.create(&self.volumes, volume).await
    }

    /// Creates a claim and a volume of this name that are bound to each other, as the binder leaves them.
    async fn bound_claim(&self, name: &str, class: &str, source: Value) -> anyhow::Result<()> {
        let volume_name = self.global(name);
        let claim = self.claim(name, json!({"volumeName": volume_name, "storageClassName": class})).await?;
        let mut spec = json!({"storageClassName": class, "claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": self.namespace, "name": name,
            "uid": claim.uid(),
        }});
        merge(&mut spec, source);
        self.volume(name, spec).await?;
        let params = PatchParams::default();
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        self.volumes.patch_status(&volume_name, &params, &bound).await?;
        // A binder whose cache has the bound claim and not yet its volume reports that the claim is lost.
        self.cluster.settle().await;
        let completed = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
        self.claims.patch(name, &params, &Patch::Merge(completed)).await?;
        let bound = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
        self.claims.patch_status(name, &params, &Patch::Merge(bound)).await?;
        Ok(())
    }

    /// Marks the volume of a deleted claim as released. The binder does so, too, if it runs, and then the volume may be
    /// gone.
    async fn release(&self, name: &str) -> anyhow::Result<()> {
        let released = Patch::Merge(json!({"status": {"phase": "Released"}}));
        match self.volumes.patch_status(&self.global(name), &PatchParams::default(), &released).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            patched => Ok(patched.map(drop)?),
        }
    }

    /// Creates a pod with these volumes, on the node if there is one.
    async fn pod(&self, name: &str, node: Option<&str>, volumes: Value) -> anyhow::Result<()> {
        let mut pod = json!({"metadata": {"name": name}, "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "volumes": volumes,
            "containers": [{"name": "c", "image": "i"}],
        }});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        self.cluster.create(&self.pods, pod).await.map(drop)
    }

    /// Waits until a claim has the condition `Unused` with this status and reason.
    async fn unused_becomes(&self, name: &str, status: &str, reason: &str) -> anyhow::Result<()> {
        let ask = async || {
            let claim = serde_json::to_value(self.claims.get(name).await?)?;
            let unused = condition(&claim, "Unused");
            Ok((unused["status"] == status && unused["reason"] == reason).then_some(()))
        };
        self.cluster.eventually(&format!("{name} has Unused={status} because of {reason}"), ask).await
    }

    /// Waits for an event about an object: type, reason and message.
    async fn events_contain(&self, about: &str, text: &str) -> anyhow::Result<()> {
        let events = self.cluster.api::<Event>(&self.namespace);
        let of_object = ListParams::default().fields(&format!("involvedObject.name={about}"));
        let ask = async || {
            let events = events.list(&of_object).await?.items.into_iter();
            let lines = events
                .filter_map(|event| Some(format!("{} {} {}", event.type_?, event.reason?, event.message?)));
            Ok(lines.into_iter().any(|line| line == text).then_some(()))
        };
        self.cluster.eventually(&format!("the event {text:?}"), ask).await
    }
}

fn claim_volume(name: &str) -> Value {
    json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}])
}

fn ephemeral_volume(name: &str) -> Value {
    json!({"name": name, "ephemeral": {"volumeClaimTemplate": {
        "metadata": {"labels": {"of": "template"}, "annotations": {"of": "template"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                 "resources": {"requests": {"storage": "1Gi"}}},
    }}})
}

fn csi(name: &str) -> Value {
    json!({"csi": {"driver": "csi.example.com", "volumeHandle": name}})
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn condition<'v>(object: &'v Value, r#type: &str) -> &'v Value {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|one| one["type"] == r#type).unwrap_or(&Value::Null)
}

/// Waits until an object is gone.
async fn is_gone<K>(cluster: &TestCluster, api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    let ask = async || Ok(api.get_opt(name).await?.is_none().then_some(()));
    cluster.eventually(&format!("{name} is gone"), ask).await
}

/// Checks that an object is terminating and keeps this finalizer.
async fn is_held<K>(cluster: &TestCluster, api: &Api<K>, name: &str, finalizer: &str) -> anyhow::Result<()>
where
    K: kube::Resource + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    cluster.settle().await;
    let object = api.get(name).await?;
    ensure!(object.meta().deletion_timestamp.is_some(), "{name} is not terminating");
    ensure!(object.finalizers().iter().any(|present| present == finalizer), "{name} lost {finalizer}");
    Ok(())
}

/// Proves PVCP-12, PVCP-31, PVCP-32, PVCP-53, PVCP-57.
pub(crate) async fn claim_in_use_is_deleted_after_its_pod(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = VolumeFixture::new(cluster, "claims").await?;
    let hollow = fixture.start_node().await?;
    fixture.bound_claim("data", "", csi("data")).await?;
    fixture.unused_becomes("data", "True", "NoPodsUsingPVC").await?;
    fixture.claim("pending", json!({})).await?;
    fixture.claim("waited-for", json!({})).await?;
    // This pod is never scheduled, so it keeps its claim from nothing.
    fixture.pod("unscheduled", None, claim_volume("waited-for")).await?;
    fixture.pod("user", Some(&fixture.node()), claim_volume("data")).await?;
    let runs = async || {
        let pod = fixture.pods.get("user").await?;
        Ok(pod.status.filter(|status| status.phase.as_deref() == Some("Running")).map(drop))
    };
    cluster.eventually("a running pod", runs).await?;
    fixture.unused_becomes("data", "False", "PodUsingPVC").await?;
    cluster.checkpoint("a pod uses the claim").await;

    for name in ["data", "pending", "waited-for"] {
        fixture.claims.delete(name, &DeleteParams::default()).await?;
    }
    is_gone(cluster, &fixture.claims, "pending").await?;
    is_gone(cluster, &fixture.claims, "waited-for").await?;
    is_held(cluster, &fixture.claims, "data", CLAIM_FINALIZER).await?;
    cluster.checkpoint("the claim waits for its pod").await;

    fixture.pods.delete("user", &DeleteParams::default()).await?;
    is_gone(cluster, &fixture.pods, "user").await?;
    is_gone(cluster, &fixture.claims, "data").await?;
    // A living claim gets the finalizer back.
    fixture.claim("open", json!({})).await?;
    set_finalizers(&fixture.claims, "open", &[]).await?;
    let protected = async || {
        Ok(fixture.claims.get("open").await?.finalizers().contains(&CLAIM_FINALIZER.to_owned()).then_some(()))
    };
    cluster.eventually("the finalizer of a claim", protected).await?;
    fixture.pods.delete("unscheduled", &DeleteParams::default().grace_period(0)).await?;
    hollow.stop().await;
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    nodes.delete(&fixture.node(), &DeleteParams::default()).await?;
    fixture.release("data").await?;
    cluster.delete_if_exists(&fixture.volumes, &fixture.global("data")).await
}

/// Proves PVP-11, PVP-12, PVP-30, PVP-31, PVP-37.
pub(crate) async fn bound_volume_is_deleted_after_its_claim(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = VolumeFixture::new(cluster, "volumes").await?;
    let mut free = csi("free");
    // A class of its own, or a pending claim of another scenario would be bound to it.
    free["storageClassName"] = json!(fixture.global("free"));
    fixture.volume("free", free).await?;
    fixture.bound_claim("data", "", csi("data")).await?;
    let (free, data) = (fixture.global("free"), fixture.global("data"));
    set_finalizers(&fixture.volumes, &data, &["example.com/other"]).await?;
    let both = async || {
        let finalizers = fixture.volumes.get(&data).await?.finalizers().to_vec();
        Ok((finalizers == ["example.com/other", VOLUME_FINALIZER]).then_some(()))
    };
    cluster.eventually("the finalizer of a volume", both).await?;
    cluster.checkpoint("the volumes are protected").await;
    set_finalizers(&fixture.volumes, &data, &[VOLUME_FINALIZER]).await?;
    fixture.volumes.delete(&free, &DeleteParams::default()).await?;
    is_gone(cluster, &fixture.volumes, &free).await?;

    fixture.volumes.delete(&data, &DeleteParams::default()).await?;
    is_held(cluster, &fixture.volumes, &data, VOLUME_FINALIZER).await?;
    cluster.checkpoint("the volume waits for its claim").await;
    fixture.claims.delete("data", &DeleteParams::default()).await?;
    is_gone(cluster, &fixture.claims, "data").await?;
    fixture.release("data").await?;
    is_gone(cluster, &fixture.volumes, &data).await
}

/// Proves EPH-13, EPH-15, EPH-17, EPH-25, EPH-31, EPH-32, EPH-35, PVCP-55.
pub(crate) async fn ephemeral_volumes_get_claims_of_their_own(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = VolumeFixture::new(cluster, "ephemeral").await?;
    let elsewhere = VolumeFixture::new(cluster, "elsewhere").await?;
    elsewhere.claim("web-scratch", json!({})).await?;
    let volumes =
        json!([ephemeral_volume("scratch"), {"name": "tmp", "emptyDir": {}}, ephemeral_volume("cache")]);
    fixture.pod("web", None, volumes).await?;
    let owner = fixture.pods.get("web").await?.uid();
    for name in ["web-scratch", "web-cache"] {
        let ask = async || Ok(fixture.claims.get_opt(name).await?);
        let claim = cluster.eventually(&format!("the claim {name}"), ask).await?;
        let owners: Vec<_> = claim.owner_references().iter().map(|owner| Some(owner.uid.clone())).collect();
        ensure!(owners == [owner.clone()], "{name} belongs to {owners:?}");
    }

    fixture.claim("taken-scratch", json!({})).await?;
    let foreign = fixture.claims.get("taken-scratch").await?.uid();
    fixture.pod("taken", None, json!([ephemeral_volume("scratch"), ephemeral_volume("cache")])).await?;
    let namespace = &fixture.namespace;
    let event = format!(
        "Warning FailedBinding ephemeral volume scratch: PVC {namespace}/taken-scratch was not created for pod \
         {namespace}/taken (pod is not owner)"
    );
    fixture.events_contain("taken", &event).await?;
    cluster.settle().await;
    ensure!(fixture.claims.get("taken-scratch").await?.uid() == foreign, "the foreign claim is not touched");
    ensure!(fixture.claims.get_opt("taken-cache").await?.is_none(), "the second volume waits for the first");
    cluster.checkpoint("the name of a claim is taken").await;

    fixture.claims.delete("taken-scratch", &DeleteParams::default()).await?;
    let replaced = async || {
        let claim = fixture.claims.get_opt("taken-scratch").await?;
        Ok(claim.filter(|claim| claim.uid() != foreign && !claim.owner_references().is_empty()).map(drop))
    };
    cluster.eventually("a claim of the pod's own", replaced).await?;
    let second = async || Ok(fixture.claims.get_opt("taken-cache").await?.map(drop));
    cluster.eventually("the claim of the second volume", second).await?;
    cluster.checkpoint("all volumes have claims").await;

    fixture.pods.delete("web", &DeleteParams::default().grace_period(0)).await?;
    is_gone(cluster, &fixture.claims, "web-scratch").await?;
    is_gone(cluster, &fixture.claims, "web-cache").await?;
    ensure!(elsewhere.claims.get_opt("web-scratch").await?.is_some(), "another namespace is another matter");
    fixture.pods.delete("taken", &DeleteParams::default().grace_period(0)).await?;
    is_gone(cluster, &fixture.claims, "taken-scratch").await
}

/// Proves VACP-11, VACP-12, VACP-16, VACP-40.
pub(crate) async fn volume_attributes_class_in_use_is_kept(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = VolumeFixture::new(cluster, "attributes").await?;
    let classes: Api<VolumeAttributesClass> = Api::all(cluster.admin.clone());
    let (gold, idle) = (fixture.global("gold"), fixture.global("idle"));
    for name in [&gold, &idle] {
        let class =
            json!({"metadata": {"name": name}, "driverName": "csi.example.com", "parameters": {"iops": "1"}});
        cluster.create(&classes, class).await?;
        set_finalizers(&classes, name, &[]).await?;
        let protected = async || {
            Ok(classes.get(name).await?.finalizers().contains(&CLASS_FINALIZER.to_owned()).then_some(()))
        };
        cluster.eventually("the finalizer of a class", protected).await?;
    }
    fixture.claim("data", json!({"volumeAttributesClassName": gold})).await?;
    fixture
        .volume(
            "v",
            json!({"csi": {"driver": "csi.example.com", "volumeHandle": "v"},
                               "volumeAttributesClassName": gold}),
        )
        .await?;
    // The caches must have the references before the class is deleted, and an idle class shows when they are synced.
    cluster.settle().await;
    for name in [&gold, &idle] {
        classes.delete(name, &DeleteParams::default()).await?;
    }
    is_gone(cluster, &classes, &idle).await?;
    is_held(cluster, &classes, &gold, CLASS_FINALIZER).await?;
    fixture.claims.delete("data", &DeleteParams::default()).await?;
    is_gone(cluster, &fixture.claims, "data").await?;
    is_held(cluster, &classes, &gold, CLASS_FINALIZER).await?;
    cluster.checkpoint("a volume refers to the class").await;
    fixture.volumes.delete(&fixture.global("v"), &DeleteParams::default()).await?;
    is_gone(cluster, &classes, &gold).await
}

/// Proves EXP-20, EXP-25, EXP-40, EXP-41.
pub(crate) async fn growing_claim_is_left_to_its_resizer(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = VolumeFixture::new(cluster, "growing").await?;
    let classes: Api<StorageClass> = Api::all(cluster.admin.clone());
    let class = fixture.global("grows");
    let grows =
        json!({"metadata": {"name": class}, "provisioner": "csi.example.com", "allowVolumeExpansion": true});
    cluster.create(&classes, grows).await?;
    fixture.bound_claim("csi", &class, csi("csi")).await?;
    let migrated = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
    fixture.bound_claim("migrated", &class, migrated).await?;
    let unchanged = fixture.volumes.get(&fixture.global("csi")).await?.resource_version();
    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    for name in ["csi", "migrated"] {
        fixture.claims.patch(name, &PatchParams::default(), &larger).await?;
    }
    let resizer = "volume.kubernetes.io/storage-resizer";
    let annotated = async || {
        let claim = fixture.claims.get("migrated").await?;
        Ok(claim.annotations().get(resizer).filter(|driver| *driver == "ebs.csi.aws.com").map(drop))
    };
    cluster.eventually("the resizer of a migrated volume", annotated).await?;
    let waiting = "Normal ExternalExpanding waiting for an external controller to expand this PVC";
    fixture.events_contain("csi", waiting).await?;
    let migrating = "Normal ExternalExpanding CSI migration enabled for kubernetes.io/aws-ebs; waiting for external \
                     resizer to expand the pvc";
    fixture.events_contain("migrated", migrating).await?;
    cluster.settle().await;
    ensure!(
        !fixture.claims.get("csi").await?.annotations().contains_key(resizer),
        "CSI volumes need no annotation"
    );
    let now = fixture.volumes.get(&fixture.global("csi")).await?.resource_version();
    ensure!(now == unchanged, "the volume is not written");
    cluster.checkpoint("the claims wait for their resizers").await;
    for name in ["csi", "migrated"] {
        fixture.claims.delete(name, &DeleteParams::default()).await?;
        is_gone(cluster, &fixture.claims, name).await?;
        fixture.release(name).await?;
        cluster.delete_if_exists(&fixture.volumes, &fixture.global(name)).await?;
        is_gone(cluster, &fixture.volumes, &fixture.global(name)).await?;
    }
    classes.delete(&class, &DeleteParams::default()).await?;
    Ok(())
}
