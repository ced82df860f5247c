//! What a CSI driver has to do for the claims and volumes of a cluster, as pure decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_client::{Call, DeleteOptions, PatchType};
use keleustes_objects::{
    ArcStr, InternedStr, Key, Kind as _, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource,
    Pod, PodPhase, StorageClass, VolumeAttachment,
};
use serde_json::{Value, json};

const STORAGE_PROVISIONERS: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Keeps a volume until its storage is deleted.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The name of a driver, and how it behaves.
#[derive(Clone, Debug)]
pub(super) struct DriverOptions {
    /// The name, which StorageClasses have as their provisioner.
    pub(super) name: String,
    /// How long each operation takes.
    pub(super) delay: Duration,
    /// How long a failed operation waits until it is tried again.
    pub(super) retry_delay: Duration,
    /// Whether a node has to finish an expansion: the claim gets its new capacity only while a pod that uses it runs.
    pub(super) expands_on_node: bool,
}

/// A kind of operation of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriverOperation {
    /// Creates a volume for a claim.
    Provision,
    /// Deletes the storage of a released volume, and the volume.
    Delete,
    /// Expands a volume.
    Expand,
    /// Finishes an expansion on the node.
    ExpandOnNode,
}

/// An operation on a claim or, to delete it, on a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Task {
    pub(super) operation: DriverOperation,
    pub(super) key: Key,
}

/// The observed objects.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) claims: BTreeMap<Key, PersistentVolumeClaim>,
    pub(super) volumes: BTreeMap<Key, PersistentVolume>,
    pub(super) classes: BTreeMap<Key, StorageClass>,
    pub(super) pods: BTreeMap<Key, Pod>,
    pub(super) attachments: BTreeMap<Key, VolumeAttachment>,
}

impl Observed {
    /// Everything that the driver has to do.
    pub(super) fn tasks(&self, driver: &DriverOptions) -> BTreeSet<Task> {
        let task = |operation, key: &Key| Task { operation, key: key.clone() };
        let provision = self.claims.values().filter(|claim| self.needs_volume(claim, driver));
        let provision = provision.map(|claim| task(DriverOperation::Provision, &claim.meta.key));
        let attached = self.attached_volumes();
        let delete = self.volumes.values().filter(|volume| {
            needs_deletion(volume, driver) && (is_kept(volume) || !attached.contains(&volume.meta.key.name))
        });
        let delete = delete.map(|volume| task(DriverOperation::Delete, &volume.meta.key));
        let growing =
            self.claims.values().filter_map(|claim| Some((claim, self.growing_volume(claim, driver)?)));
        let expand = growing.filter_map(|(claim, volume)| {
            let is_small = volume.spec.capacity.storage() < claim.spec.resources.requests.storage();
            let operation = if is_small || !driver.expands_on_node || !waits_for_node(claim) {
                DriverOperation::Expand
            } else if self.is_in_use(&claim.meta.key) {
                DriverOperation::ExpandOnNode
            } else {
                return None;
            };
            Some(task(operation, &claim.meta.key))
        });
        provision.chain(delete).chain(expand).collect()
    }

    fn needs_volume(&self, claim: &PersistentVolumeClaim, driver: &DriverOptions) -> bool {
        let annotation = STORAGE_PROVISIONERS.iter().find_map(|key| claim.annotations.value(key));
        let Some(class) = self.classes.get(&Key::cluster(claim.class())) else { return false };
        let is_delayed =
            class.volume_binding_mode.as_ref().is_some_and(|mode| *mode == "WaitForFirstConsumer");
        claim.meta.deletion_timestamp.is_none()
            && claim.spec.volume_name.is_empty()
            && annotation.is_some_and(|name| **name == *driver.name)
            && class.provisioner == *driver.name
            && (!is_delayed || claim.annotations.value(SELECTED_NODE).is_some())
            && !self.volumes.contains_key(&volume_key(claim))
    }

    /// The volumes that an attacher holds: it has begun if its finalizer is there. Like external-provisioner, the driver
    /// deletes no such volume: without it the attach-detach controller of a new process could not tell what is attached.
    fn attached_volumes(&self) -> BTreeSet<&ArcStr> {
        let held = self.attachments.values().filter(|one| one.attached || !one.meta.finalizers.is_empty());
        held.filter_map(|one| one.persistent_volume_name.as_ref()).collect()
    }

    /// The volume of a claim that asks for more than it has.
    fn growing_volume(
        &self,
        claim: &PersistentVolumeClaim,
        driver: &DriverOptions,
    ) -> Option<&PersistentVolume> {
        let volume = self.volumes.get(&Key::cluster(claim.spec.volume_name.clone()))?;
        let is_own = matches!(&volume.spec.source,
            PersistentVolumeSource::Csi { driver: name, .. } if *name == *driver.name);
        let is_bound = claim.phase == "Bound"
            && volume.spec.claim_ref.as_ref().is_some_and(|reference| reference.uid == claim.meta.uid);
        let wants_more = claim.spec.resources.requests.storage() > claim.status.capacity.storage();
        (is_own && is_bound && wants_more).then_some(volume)
    }

    fn is_in_use(&self, claim: &Key) -> bool {
        self.pods.values().any(|pod| {
            pod.phase == PodPhase::Running
                && pod.meta.key.namespace == claim.namespace
                && pod.used_claims().any(|name| name == claim.name)
        })
    }

    /// The requests of a task, in order; none if the objects have changed meanwhile.
    pub(super) fn calls(&self, task: &Task, driver: &DriverOptions) -> Vec<Call> {
        if !self.tasks(driver).contains(task) {
            return Vec::new();
        }
        match task.operation {
            DriverOperation::Provision => {
                let claim = self.claims.get(&task.key);
                claim.map(|claim| self.provision(claim, driver)).into_iter().collect()
            }
            DriverOperation::Delete => self.volumes.get(&task.key).map_or_else(Vec::new, delete),
            DriverOperation::Expand | DriverOperation::ExpandOnNode => self
                .claims
                .get(&task.key)
                .map_or_else(Vec::new, |claim| self.expand(claim, task.operation, driver)),
        }
    }

    fn provision(&self, claim: &PersistentVolumeClaim, driver: &DriverOptions) -> Call {
        let class = self.classes.get(&Key::cluster(claim.class()));
        let policy = class.and_then(|class| class.reclaim_policy.clone()).unwrap_or_else(|| "Delete".into());
        let name = volume_key(claim).name;
        let finalizers = if policy == "Delete" { json!([FINALIZER]) } else { json!([]) };
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: driver.name}, "finalizers": finalizers},
            "spec": {
                "accessModes": texts(&claim.spec.access_modes), "persistentVolumeReclaimPolicy": policy.as_str(),
                "capacity": {"storage": requested(claim)}, "storageClassName": claim.class(),
                "volumeMode": claim.spec.volume_mode.as_ref().map_or("Filesystem", InternedStr::as_str),
                "csi": {"driver": driver.name, "volumeHandle": name},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.meta.key.name,
                    "namespace": claim.meta.key.namespace.as_str(), "uid": claim.meta.uid.to_string(),
                    "resourceVersion": claim.meta.resource_version.to_string(),
                },
            },
        });
        Call::create(&PersistentVolume::RESOURCE, "", &volume)
    }

    /// Expands the volume, then reports it in the claim. What a lost response hides is done again.
    fn expand(
        &self,
        claim: &PersistentVolumeClaim,
        operation: DriverOperation,
        driver: &DriverOptions,
    ) -> Vec<Call> {
        let wanted = requested(claim);
        let mut calls = Vec::new();
        if operation == DriverOperation::Expand {
            calls.push(patch_status(claim, &json!({"conditions": [condition("Resizing")]})));
            let size = json!({"spec": {"capacity": {"storage": wanted}}});
            let volume = Key::cluster(claim.spec.volume_name.clone());
            calls.push(Call::patch(&PersistentVolume::RESOURCE, &volume, PatchType::Merge, &size));
            if driver.expands_on_node {
                let waits = [gone("Resizing"), condition("FileSystemResizePending")];
                calls.push(patch_status(claim, &json!({"conditions": waits})));
                return calls;
            }
        }
        let done = [gone("Resizing"), gone("FileSystemResizePending")];
        calls.push(patch_status(claim, &json!({"capacity": {"storage": wanted}, "conditions": done})));
        calls
    }
}

fn volume_key(claim: &PersistentVolumeClaim) -> Key {
    Key::cluster(format!("pvc-{}", claim.meta.uid).as_str())
}

fn requested(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.resources.requests.text("storage").map_or("0", ArcStr::as_str)
}

fn texts(list: &[InternedStr]) -> Vec<&str> {
    list.iter().map(InternedStr::as_str).collect()
}

fn waits_for_node(claim: &PersistentVolumeClaim) -> bool {
    claim.status.conditions.iter().any(|condition| condition.r#type == "FileSystemResizePending")
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True"})
}

/// Removes a condition by its type.
fn gone(kind: &str) -> Value {
    json!({"$patch": "delete", "type": kind})
}

fn patch_status(claim: &PersistentVolumeClaim, status: &Value) -> Call {
    let patch = json!({"metadata": {"uid": claim.meta.uid.to_string()}, "status": status});
    Call::patch(&PersistentVolumeClaim::RESOURCE, &claim.meta.key, PatchType::Strategic, &patch)
        .subresource("status")
}

/// Whether the driver has to delete a volume, or to let go of one that it need not delete.
fn needs_deletion(volume: &PersistentVolume, driver: &DriverOptions) -> bool {
    let is_own = volume.annotations.value(PROVISIONED_BY).is_some_and(|name| **name == *driver.name);
    let is_deleted = volume.spec.persistent_volume_reclaim_policy == "Delete" && volume.phase == "Released";
    let is_held = has_finalizer(volume);
    is_own
        && (is_kept(volume) && is_held || is_deleted && (volume.meta.deletion_timestamp.is_none() || is_held))
}

fn is_kept(volume: &PersistentVolume) -> bool {
    volume.spec.persistent_volume_reclaim_policy != "Delete"
}

fn has_finalizer(volume: &PersistentVolume) -> bool {
    volume.meta.finalizers.iter().any(|finalizer| *finalizer == FINALIZER)
}

/// Deletes a volume and removes the finalizer; the volume itself goes when the last finalizer is gone.
fn delete(volume: &PersistentVolume) -> Vec<Call> {
    let mut calls = Vec::new();
    if volume.meta.deletion_timestamp.is_none() && !is_kept(volume) {
        let deletion = DeleteOptions { uid: Some(volume.meta.uid.clone()), ..DeleteOptions::default() };
        calls.push(Call::delete(&PersistentVolume::RESOURCE, &volume.meta.key, &deletion));
    }
    if has_finalizer(volume) {
        let patch = json!({"metadata": {"uid": volume.meta.uid.to_string(), "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
        calls.push(Call::patch(&PersistentVolume::RESOURCE, &volume.meta.key, PatchType::Strategic, &patch));
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver() -> DriverOptions {
        let delay = Duration::ZERO;
        DriverOptions { name: "d".to_owned(), delay, retry_delay: delay, expands_on_node: false }
    }

    fn observed(binding_mode: &str, claim: Value, volume: Option<Value>) -> Observed {
        let class =
            json!({"metadata": {"name": "fast"}, "provisioner": "d", "volumeBindingMode": binding_mode});
        let class: StorageClass = serde_json::from_value(class).unwrap();
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        let mut observed = Observed::default();
        observed.classes.insert(class.meta.key.clone(), class);
        observed.claims.insert(claim.meta.key.clone(), claim);
        if let Some(volume) = volume {
            let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
            observed.volumes.insert(volume.meta.key.clone(), volume);
        }
        observed
    }

    fn claim(size: &str) -> Value {
        json!({
            "metadata": {"name": "c", "namespace": "a", "uid": "u", "annotations": {STORAGE_PROVISIONERS[0]: "d"}},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}},
        })
    }

    fn volume(policy: &str, phase: &str) -> Value {
        json!({
            "metadata": {"name": "pvc-u", "uid": "v", "annotations": {PROVISIONED_BY: "d"}, "finalizers": [FINALIZER]},
            "spec": {"csi": {"driver": "d", "volumeHandle": "h"}, "capacity": {"storage": "1Gi"},
                     "persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "a", "name": "c", "uid": "u"}},
            "status": {"phase": phase},
        })
    }

    fn operations(observed: &Observed, driver: &DriverOptions) -> Vec<DriverOperation> {
        observed.tasks(driver).into_iter().map(|task| task.operation).collect()
    }

    #[test]
    fn a_claim_that_names_the_driver_gets_one_volume() {
        let of = |mode: &str, claim: Value, volume| operations(&observed(mode, claim, volume), &driver());
        assert_eq!(of("Immediate", claim("1Gi"), None), [DriverOperation::Provision]);
        assert_eq!(of("Immediate", claim("1Gi"), Some(volume("Delete", "Available"))), [], "it has one");
        assert_eq!(of("WaitForFirstConsumer", claim("1Gi"), None), [], "no node is selected");
        let mut selected = claim("1Gi");
        selected["metadata"]["annotations"][SELECTED_NODE] = json!("n");
        assert_eq!(of("WaitForFirstConsumer", selected, None), [DriverOperation::Provision]);
        let mut other = claim("1Gi");
        other["metadata"]["annotations"] = json!({STORAGE_PROVISIONERS[0]: "other"});
        assert_eq!(of("Immediate", other, None), []);
        let mut deleted = claim("1Gi");
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(of("Immediate", deleted, None), []);
    }

    #[test]
    fn only_released_volumes_with_the_policy_delete_are_deleted() {
        for (policy, phase, count) in [
            ("Delete", "Released", 2),
            ("Delete", "Bound", 0),
            ("Delete", "Failed", 0),
            ("Retain", "Released", 1),
        ] {
            let observed = observed("Immediate", claim("1Gi"), Some(volume(policy, phase)));
            let task = Task { operation: DriverOperation::Delete, key: Key::cluster("pvc-u") };
            assert_eq!(observed.calls(&task, &driver()).len(), count, "{policy} {phase}");
        }
    }

    #[test]
    fn attached_volumes_are_not_deleted() {
        let mut observed = observed("Immediate", claim("1Gi"), Some(volume("Delete", "Released")));
        let mut attach = |name: &str, finalizers: &[&str]| {
            let attachment = json!({"metadata": {"name": "va", "finalizers": finalizers}, "spec": {"attacher": "d",
                "nodeName": "n", "source": {"persistentVolumeName": name}}});
            let attachment: VolumeAttachment = serde_json::from_value(attachment).unwrap();
            observed.attachments.insert(attachment.meta.key.clone(), attachment);
            operations(&observed, &driver())
        };
        assert_eq!(attach("pvc-u", &["external-attacher/d"]), []);
        assert_eq!(attach("pvc-u", &[]), [DriverOperation::Delete], "no attacher has begun");
        assert_eq!(attach("another", &["external-attacher/d"]), [DriverOperation::Delete]);
    }

    #[test]
    fn a_growing_claim_is_expanded_and_finished_on_its_node() {
        let mut growing = claim("2Gi");
        growing["spec"]["volumeName"] = json!("pvc-u");
        growing["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
        let on_node = DriverOptions { expands_on_node: true, ..driver() };
        let mut seen = observed("Immediate", growing.clone(), Some(volume("Delete", "Bound")));
        assert_eq!(operations(&seen, &driver()), [DriverOperation::Expand]);
        let mut larger = volume("Delete", "Bound");
        larger["spec"]["capacity"]["storage"] = json!("2Gi");
        growing["status"]["conditions"] = json!([condition("FileSystemResizePending")]);
        seen = observed("Immediate", growing, Some(larger));
        assert_eq!(operations(&seen, &on_node), [], "no pod runs");
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "a"},
            "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "status": {"phase": "Running"}}))
        .unwrap();
        seen.pods.insert(pod.meta.key.clone(), pod);
        assert_eq!(operations(&seen, &on_node), [DriverOperation::ExpandOnNode]);
    }
}
