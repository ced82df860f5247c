//! User actions on claims that a CSI driver provisions, on their volumes, and on the pods that use them.

use keleustes_client::{Call, DeleteOptions, PatchType};
use keleustes_hollow::annotations;
use keleustes_objects::{
    Key, Kind as _, Node, PersistentVolume, PersistentVolumeClaim, Pod, Resource, VolumeAttachment,
    VolumeAttributesClass,
};
use serde_json::{Value, json};

use crate::actions::{Attaching, StorageChange, StorageKind, node};
use crate::generate::NAMESPACES;
use crate::recorder::text;
use crate::user::{SimulatedUser, key};

const CLAIMS: Resource = PersistentVolumeClaim::RESOURCE;
const VOLUMES: Resource = PersistentVolume::RESOURCE;
const ATTACHMENTS: Resource = VolumeAttachment::RESOURCE;
const ATTRIBUTES_CLASSES: Resource = VolumeAttributesClass::RESOURCE;
const PODS: Resource = Pod::RESOURCE;

/// The CSI driver of storms.
pub(crate) const DRIVER: &str = "csi.storm.example.com";
/// The names of pods that use storage start with this.
const POD_PREFIX: &str = "disk-user-";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

impl StorageKind {
    fn class(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Retained => "retained",
            Self::Delayed => "delayed",
        }
    }
}

fn attributes_class_name(number: u8) -> String {
    format!("attributes-{number}")
}

fn attributes_class(number: u8) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": {"name": attributes_class_name(number)}, "driverName": DRIVER,
        "parameters": {"iops": format!("{number}000")}})
}

/// The StorageClasses and VolumeAttributesClasses of a storm with a CSI driver.
pub(crate) fn initial_objects() -> [Value; 5] {
    let class = |kind: StorageKind, policy: &str, mode: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": kind.class()},
            "provisioner": DRIVER, "reclaimPolicy": policy, "volumeBindingMode": mode, "allowVolumeExpansion": true})
    };
    [
        class(StorageKind::Deleted, "Delete", "Immediate"),
        class(StorageKind::Retained, "Retain", "Immediate"),
        class(StorageKind::Delayed, "Delete", "WaitForFirstConsumer"),
        attributes_class(1),
        attributes_class(2),
    ]
}

fn claim_spec(class: StorageKind, shared: bool) -> Value {
    let mode = if shared { "ReadWriteMany" } else { "ReadWriteOnce" };
    json!({"accessModes": [mode], "storageClassName": class.class(), "resources": {"requests": {"storage": "1Gi"}}})
}

/// A pod on a node that uses the claim, and perhaps an ephemeral one.
fn pod_body(name: &str, claim: &str, node: &str, ephemeral: bool) -> Value {
    let mut volumes = vec![json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}})];
    if ephemeral {
        let template = json!({"spec": claim_spec(StorageKind::Deleted, false)});
        volumes.push(json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}));
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node, "containers": [{"name": "main", "image": "any:0"}],
        "terminationGracePeriodSeconds": 5, "volumes": volumes}})
}

/// The annotations that let attaching and detaching go this way.
fn attaching_annotations(attaching: Attaching) -> Value {
    let mut all = json!({annotations::ATTACH_DELAY: null, annotations::ATTACH_ERROR: null,
        annotations::DETACH_DELAY: null, annotations::DETACH_ERROR: null});
    match attaching {
        Attaching::Works => {}
        Attaching::AttachesAfter(seconds) => all[annotations::ATTACH_DELAY] = json!(format!("{seconds}s")),
        Attaching::AttachFails => all[annotations::ATTACH_ERROR] = json!("no slot"),
        Attaching::DetachesAfter(seconds) => all[annotations::DETACH_DELAY] = json!(format!("{seconds}s")),
        Attaching::DetachFails => all[annotations::DETACH_ERROR] = json!("busy"),
    }
    json!({"metadata": {"annotations": all}})
}

impl SimulatedUser {
    pub(crate) async fn change_storage(&self, namespace: &str, name: &str, change: StorageChange) {
        let claim = format!("disk-{name}");
        let claim_key = Key::namespaced(namespace, claim.as_str());
        let pod = |number: u8| format!("{POD_PREFIX}{name}-{number}");
        match change {
            StorageChange::CreateClaim { class, shared } => {
                let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": claim}, "spec": claim_spec(class, shared)});
                self.create(&CLAIMS, namespace, &body).await;
            }
            StorageChange::SelectNode(number) => {
                let selected = json!({"metadata": {"annotations": {SELECTED_NODE: node(number)}}});
                self.merge(&CLAIMS, &claim_key, selected).await;
            }
            StorageChange::GrowClaim => {
                let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
                self.merge(&CLAIMS, &claim_key, larger).await;
            }
            StorageChange::DeleteClaim => self.delete(&CLAIMS, &claim_key).await,
            StorageChange::CreatePod(number, at, ephemeral) => {
                let body = pod_body(&pod(number), &claim, &node(at), ephemeral);
                self.create(&PODS, namespace, &body).await;
            }
            StorageChange::DeletePod(number, forced) => {
                let grace_period_seconds = forced.then_some(0);
                let options = DeleteOptions { grace_period_seconds, ..DeleteOptions::default() };
                let key = Key::namespaced(namespace, pod(number).as_str());
                self.send(&Call::delete(&PODS, &key, &options)).await;
            }
            StorageChange::Retain(retains) => {
                let policy = if retains { "Retain" } else { "Delete" };
                let change = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
                self.change_volume_of(&claim_key, change).await;
            }
            StorageChange::SetAttaching(attaching) => {
                self.change_volume_of(&claim_key, attaching_annotations(attaching)).await;
            }
            StorageChange::DeleteAttachment => self.delete_attachment_of(&claim_key).await,
            StorageChange::SetAttributes(number) => {
                let change = json!({"spec": {"volumeAttributesClassName": attributes_class_name(number)}});
                self.merge(&CLAIMS, &claim_key, change).await;
            }
            StorageChange::ModifyVolume => self.modify_volume_of(&claim_key).await,
            StorageChange::SetAttributesClass(number, true) => {
                self.create(&ATTRIBUTES_CLASSES, "", &attributes_class(number)).await;
            }
            StorageChange::SetAttributesClass(number, false) => {
                let class = Key::cluster(attributes_class_name(number));
                self.delete(&ATTRIBUTES_CLASSES, &class).await;
            }
        }
    }

    async fn volume_of(&self, claim: &Key) -> Option<Key> {
        let found = self.send(&Call::get(&CLAIMS, claim)).await;
        let volume = text(&found, "/spec/volumeName");
        (!volume.is_empty()).then(|| Key::cluster(volume))
    }

    async fn change_volume_of(&self, claim: &Key, change: Value) {
        if let Some(volume) = self.volume_of(claim).await {
            self.merge(&VOLUMES, &volume, change).await;
        }
    }

    /// The volume first, then the status of the claim.
    async fn modify_volume_of(&self, claim: &Key) {
        let found = self.send(&Call::get(&CLAIMS, claim)).await;
        let class = text(&found, "/spec/volumeAttributesClassName");
        if !class.is_empty() {
            self.change_volume_of(claim, json!({"spec": {"volumeAttributesClassName": class}})).await;
            let change = json!({"status": {"currentVolumeAttributesClassName": class}});
            self.send(&Call::patch(&CLAIMS, claim, PatchType::Merge, &change).subresource("status")).await;
        }
    }

    async fn delete_attachment_of(&self, claim: &Key) {
        let Some(volume) = self.volume_of(claim).await else { return };
        let attachments = self.list(&ATTACHMENTS, "").await;
        let of_volume = |one: &&Value| text(one, "/spec/source/persistentVolumeName") == &*volume.name;
        if let Some(attachment) = attachments.iter().find(of_volume) {
            self.delete(&ATTACHMENTS, &Key::cluster(text(attachment, "/metadata/name"))).await;
        }
    }

    /// Cordons a node and deletes its pods that use storage.
    pub(crate) async fn drain(&self, number: usize) {
        let name = node(number);
        self.merge(&Node::RESOURCE, &Key::cluster(name.as_str()), json!({"spec": {"unschedulable": true}}))
            .await;
        for namespace in NAMESPACES {
            for pod in self.list(&PODS, namespace).await {
                let uses_storage = text(&pod, "/metadata/name").starts_with(POD_PREFIX);
                if uses_storage && text(&pod, "/spec/nodeName") == name {
                    self.delete(&PODS, &key(&pod)).await;
                }
            }
        }
    }

    /// Attaching and detaching works for all volumes.
    pub(crate) async fn restore_volumes(&self) {
        for volume in self.list(&VOLUMES, "").await {
            let annotated = volume.pointer("/metadata/annotations").and_then(Value::as_object);
            let is_faulty =
                annotated.is_some_and(|all| all.keys().any(|key| key.starts_with("hollow.keleustes.io/")));
            if is_faulty {
                let key = Key::cluster(text(&volume, "/metadata/name"));
                let change = attaching_annotations(Attaching::Works);
                self.send(&Call::patch(&VOLUMES, &key, PatchType::Merge, &change)).await;
            }
        }
    }
}
