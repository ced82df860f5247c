//! User actions on PodGroups, on the records of API servers in StorageVersions and on pools of devices: the user also takes
//! the part of the API servers and of the DRA driver.

use keleustes_client::{Call, DeleteOptions, PatchType};
use keleustes_objects::{
    Key, Kind as _, Lease, Pod, PodGroup, ResourcePoolStatusRequest, ResourceSlice, StorageVersion, Workload,
};
use serde_json::{Value, json};

use crate::actions::{PodGroupChange, PoolChange, StorageVersionChange};
use crate::recorder::text;
use crate::user::SimulatedUser;

/// The driver of the pools that requests are about.
pub(crate) const POOL_DRIVER: &str = "pools.example.com";
/// The namespace of identity Leases.
pub(crate) const IDENTITY_NAMESPACE: &str = "kube-system";
/// The label of identity Leases, and its value.
pub(crate) const IDENTITY_LABEL: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
/// A namespace whose Leases mean nothing.
const FOREIGN_NAMESPACE: &str = "default";

fn storage_version_name(resource: u8) -> &'static str {
    ["apps.deployments", "batch.jobs"][usize::from(resource % 2)]
}

fn identity_lease(namespace: &str, server: u8) -> (Key, Value) {
    let name = format!("apiserver-{server}");
    let (label, value) = IDENTITY_LABEL;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name, "labels": {label: value}},
        "spec": {"holderIdentity": name}});
    (Key::namespaced(namespace, name.as_str()), lease)
}

impl SimulatedUser {
    pub(crate) async fn change_pod_group(&self, namespace: &str, name: &str, change: PodGroupChange) {
        let pod = |number: u8| format!("group-{name}-{number}");
        let pod_key = |number: u8| Key::namespaced(namespace, pod(number).as_str());
        match change {
            PodGroupChange::Create => self.create_pod_group(namespace, name).await,
            PodGroupChange::Delete => {
                self.delete(&PodGroup::RESOURCE, &Key::namespaced(namespace, name)).await;
            }
            PodGroupChange::CreatePod(number) => {
                self.create(&Pod::RESOURCE, namespace, &pod_body(&pod(number), Some(name))).await;
            }
            PodGroupChange::FinishPod(number) => {
                let change = json!({"status": {"phase": "Succeeded"}});
                self.merge_status_of(&Pod::RESOURCE, &pod_key(number), change).await;
            }
            PodGroupChange::DeletePod(number) => self.delete(&Pod::RESOURCE, &pod_key(number)).await,
            PodGroupChange::ReplacePod(number) => {
                let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
                self.send(&Call::delete(&Pod::RESOURCE, &pod_key(number), &options)).await;
                self.create(&Pod::RESOURCE, namespace, &pod_body(&pod(number), None)).await;
            }
        }
    }

    async fn create_pod_group(&self, namespace: &str, name: &str) {
        let policy = json!({"gang": {"minCount": 2}});
        let workload = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload",
            "metadata": {"name": name},
            "spec": {"podGroupTemplates": [{"name": "main", "schedulingPolicy": policy}]}});
        self.create(&Workload::RESOURCE, namespace, &workload).await;
        let group = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name}, "spec": {"schedulingPolicy": policy,
                "workloadRef": {"workloadName": name, "templateName": "main"}}});
        self.create(&PodGroup::RESOURCE, namespace, &group).await;
    }

    pub(crate) async fn change_storage_versions(&self, change: StorageVersionChange) {
        match change {
            StorageVersionChange::StartServer(server) => self.apply_lease(IDENTITY_NAMESPACE, server).await,
            StorageVersionChange::StopServer(server) => {
                self.delete(&Lease::RESOURCE, &identity_lease(IDENTITY_NAMESPACE, server).0).await;
            }
            StorageVersionChange::RestartServer(server) => {
                self.delete(&Lease::RESOURCE, &identity_lease(IDENTITY_NAMESPACE, server).0).await;
                self.apply_lease(IDENTITY_NAMESPACE, server).await;
            }
            StorageVersionChange::CreateForeignLease(server) => {
                self.apply_lease(FOREIGN_NAMESPACE, server).await;
            }
            StorageVersionChange::DeleteForeignLease(server) => {
                self.delete(&Lease::RESOURCE, &identity_lease(FOREIGN_NAMESPACE, server).0).await;
            }
            StorageVersionChange::Record(server, resource, version) => {
                self.record_storage_version(server, storage_version_name(resource), version).await;
            }
            StorageVersionChange::Delete(resource) => {
                self.delete(&StorageVersion::RESOURCE, &Key::cluster(storage_version_name(resource))).await;
            }
        }
    }

    async fn apply_lease(&self, namespace: &str, server: u8) {
        let (key, lease) = identity_lease(namespace, server);
        let apply = PatchType::Apply { manager: "kube-apiserver".to_owned(), force: true };
        self.send(&Call::patch(&Lease::RESOURCE, &key, apply, &lease)).await;
    }

    /// An API server records in which version it stores a resource.
    async fn record_storage_version(&self, server: u8, name: &str, version: u8) {
        let key = Key::cluster(name);
        let body = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
            "metadata": {"name": name}, "spec": {}});
        self.create(&StorageVersion::RESOURCE, "", &body).await;
        let found = self.send(&Call::get(&StorageVersion::RESOURCE, &key)).await;
        let id = format!("apiserver-{server}");
        let mut records = found["status"]["storageVersions"].as_array().cloned().unwrap_or_default();
        records.retain(|record| record["apiServerID"] != id);
        let versions = ["v1", "v2"];
        records.push(json!({"apiServerID": id, "encodingVersion": versions[usize::from(version % 2)],
            "decodableVersions": versions, "servedVersions": versions}));
        let first = records[0]["encodingVersion"].clone();
        let agree = records.iter().all(|record| record["encodingVersion"] == first);
        let common = if agree { first } else { Value::Null };
        let state = if agree { "Set" } else { "Unset" };
        let condition = json!({"type": "AllEncodingVersionsEqual",
            "status": if agree { "True" } else { "False" }, "reason": format!("CommonEncodingVersion{state}"),
            "message": format!("Common encoding version {}", state.to_lowercase()),
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let change = json!({"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "status": {"storageVersions": records, "commonEncodingVersion": common, "conditions": [condition]}});
        self.merge_status_of(&StorageVersion::RESOURCE, &key, change).await;
    }

    pub(crate) async fn change_pools(&self, change: PoolChange) {
        match change {
            PoolChange::Publish(pool, devices) => {
                let generation = self.newest_generation(pool).await + 1;
                self.publish(&slice_body(pool, 0, generation, 1, devices)).await;
                self.delete_slice(pool, 1).await;
            }
            PoolChange::PublishHalf(pool, devices) => {
                let generation = self.newest_generation(pool).await + 1;
                self.publish(&slice_body(pool, 0, generation, 2, devices)).await;
            }
            PoolChange::PublishRest(pool, devices) => {
                let generation = self.newest_generation(pool).await;
                self.publish(&slice_body(pool, 1, generation, 2, devices)).await;
            }
            PoolChange::Delete(pool) => {
                self.delete_slice(pool, 0).await;
                self.delete_slice(pool, 1).await;
            }
            PoolChange::CreateRequest(number, pool, limit) => {
                let pool = pool.map(pool_name);
                let request = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
                    "metadata": {"name": request_name(number)},
                    "spec": {"driver": POOL_DRIVER, "poolName": pool, "limit": limit}});
                self.create(&ResourcePoolStatusRequest::RESOURCE, "", &request).await;
            }
            PoolChange::DeleteRequest(number) => {
                self.delete(&ResourcePoolStatusRequest::RESOURCE, &Key::cluster(request_name(number))).await;
            }
        }
    }

    async fn newest_generation(&self, pool: u8) -> i64 {
        let slices = self.list(&ResourceSlice::RESOURCE, "").await;
        let of_pool = slices.iter().filter(|slice| text(slice, "/spec/pool/name") == pool_name(pool));
        of_pool.filter_map(|slice| slice["spec"]["pool"]["generation"].as_i64()).max().unwrap_or_default()
    }

    async fn publish(&self, slice: &Value) {
        self.create(&ResourceSlice::RESOURCE, "", slice).await;
        let change = json!({"spec": {"pool": slice["spec"]["pool"], "devices": slice["spec"]["devices"]}});
        self.merge(&ResourceSlice::RESOURCE, &Key::cluster(text(slice, "/metadata/name")), change).await;
    }

    async fn delete_slice(&self, pool: u8, number: u8) {
        self.delete(&ResourceSlice::RESOURCE, &Key::cluster(slice_name(pool, number))).await;
    }
}

fn pool_name(pool: u8) -> String {
    format!("pool-{pool}")
}

fn slice_name(pool: u8, number: u8) -> String {
    format!("pool-{pool}-{number}")
}

fn request_name(number: u8) -> String {
    format!("request-{number}")
}

/// A slice of a pool, whose every third device is tainted.
fn slice_body(pool: u8, number: u8, generation: i64, slices: u8, devices: u8) -> Value {
    let device = |index: u8| {
        let taints = if index % 3 == 2 { json!([{"key": "hot", "effect": "NoSchedule"}]) } else { json!([]) };
        json!({"name": format!("device-{number}-{index}"), "taints": taints})
    };
    let devices: Vec<_> = (0..devices).map(device).collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": slice_name(pool, number)},
        "spec": {"driver": POOL_DRIVER, "allNodes": true, "devices": devices,
            "pool": {"name": pool_name(pool), "generation": generation, "resourceSliceCount": slices}}})
}

/// A pod of a PodGroup, or of none.
fn pod_body(name: &str, group: Option<&str>) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "any:0"}], "terminationGracePeriodSeconds": 5}});
    if let Some(group) = group {
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    }
    pod
}
