//! User actions on claims, volumes and the pods that use them.

use keleustes_client::{Call, PatchType};
use keleustes_objects::{Key, Kind as _, PersistentVolume, PersistentVolumeClaim, Pod, Resource};
use serde_json::{Value, json};

use crate::actions::{ReclaimPolicy, VolumeChange};
use crate::user::SimulatedUser;

const CLAIMS: Resource = PersistentVolumeClaim::RESOURCE;
const VOLUMES: Resource = PersistentVolume::RESOURCE;
const PODS: Resource = Pod::RESOURCE;

fn claim_body(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}}})
}

/// A pod that names the claim and has an ephemeral volume.
fn pod_body(name: &str, claim: &str) -> Value {
    let template = json!({"spec": claim_body("")["spec"]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "any:0"}], "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}})
}

fn volume_body(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "csi.example.com", "volumeHandle": name}}})
}

fn policy_name(policy: ReclaimPolicy) -> &'static str {
    match policy {
        ReclaimPolicy::Retain => "Retain",
        ReclaimPolicy::Delete => "Delete",
        ReclaimPolicy::Recycle => "Recycle",
    }
}

/// The binder deletes only directories below /tmp.
fn host_path_body(name: &str, policy: ReclaimPolicy) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
        "persistentVolumeReclaimPolicy": policy_name(policy), "hostPath": {"path": format!("/tmp/{name}")}}})
}

impl SimulatedUser {
    pub(crate) async fn change_volumes(&self, namespace: &str, name: &str, change: VolumeChange) {
        let key = Key::namespaced(namespace, name);
        let pod = format!("user-of-{name}");
        let pod_key = Key::namespaced(namespace, pod.as_str());
        let volume = format!("{namespace}-{name}");
        let volume_key = Key::cluster(volume.as_str());
        let host_path = format!("{volume}-host");
        match change {
            VolumeChange::CreateClaim => drop(self.create(&CLAIMS, namespace, &claim_body(name)).await),
            VolumeChange::BindClaim => {
                self.merge_status(&CLAIMS, &key, json!({"status": {"phase": "Bound"}})).await;
            }
            VolumeChange::DeleteClaim => self.delete(&CLAIMS, &key).await,
            VolumeChange::RemoveClaimFinalizers => {
                self.merge(&CLAIMS, &key, json!({"metadata": {"finalizers": null}})).await;
            }
            VolumeChange::CreatePod => drop(self.create(&PODS, namespace, &pod_body(&pod, name)).await),
            VolumeChange::DeletePod => self.delete(&PODS, &pod_key).await,
            VolumeChange::TakeEphemeralName => {
                self.create(&CLAIMS, namespace, &claim_body(&format!("{pod}-scratch"))).await;
            }
            VolumeChange::DeleteEphemeralClaim => {
                let claim = Key::namespaced(namespace, format!("{pod}-scratch").as_str());
                self.delete(&CLAIMS, &claim).await;
            }
            VolumeChange::CreateVolume => drop(self.create(&VOLUMES, "", &volume_body(&volume)).await),
            VolumeChange::SetVolumePhase(is_bound) => {
                let phase = if is_bound { "Bound" } else { "Released" };
                self.merge_status(&VOLUMES, &volume_key, json!({"status": {"phase": phase}})).await;
            }
            VolumeChange::DeleteVolume => self.delete(&VOLUMES, &volume_key).await,
            VolumeChange::CreateHostPath(policy) => {
                self.create(&VOLUMES, "", &host_path_body(&host_path, policy)).await;
            }
            VolumeChange::SetReclaimPolicy(policy) => {
                let change = json!({"spec": {"persistentVolumeReclaimPolicy": policy_name(policy)}});
                self.merge(&VOLUMES, &Key::cluster(host_path.as_str()), change).await;
            }
        }
    }

    async fn merge_status(&self, resource: &Resource, key: &Key, change: Value) {
        self.send(&Call::patch(resource, key, PatchType::Merge, &change).subresource("status")).await;
    }
}
