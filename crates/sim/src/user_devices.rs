//! User actions on pods with devices: the user also takes the part of the DRA driver and of the scheduler's allocator.

use keleustes_client::{Call, PatchType};
use keleustes_objects::{
    DeviceTaintRule, Key, Kind as _, Pod, Resource, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use serde_json::{Value, json};

use crate::actions::DeviceChange;
use crate::checks::objects::{is_active, is_terminating};
use crate::recorder::text;
use crate::user::SimulatedUser;

const CLAIMS: Resource = ResourceClaim::RESOURCE;
const TEMPLATES: Resource = ResourceClaimTemplate::RESOURCE;
const RULES: Resource = DeviceTaintRule::RESOURCE;
const SLICES: Resource = ResourceSlice::RESOURCE;
const PODS: Resource = Pod::RESOURCE;

/// The driver of all devices in a storm.
const DRIVER: &str = "storm.example.com";

fn claim_spec() -> Value {
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "storm.example.com"}}]);
    json!({"devices": {"requests": requests}})
}

fn template_body() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "device"},
        "spec": {"spec": claim_spec()}})
}

fn shared_claim_body(name: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": claim_spec()})
}

/// A pod with one claim: `source` says whose.
fn pod_body(name: &str, source: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "any:0", "resources": {"claims": [{"name": "gpu"}]}}],
        "terminationGracePeriodSeconds": 5,
        "resourceClaims": [{"name": "gpu", source: value}]}})
}

fn rule_body(namespace: &str, effect: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": namespace},
        "spec": {"deviceSelector": {"driver": DRIVER, "pool": namespace}, "taint": {"key": "broken", "effect": effect}}})
}

/// The slice of a pool, which has the name of a namespace.
fn slice_body(namespace: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": namespace},
        "spec": {"driver": DRIVER, "pool": {"name": namespace, "generation": 1, "resourceSliceCount": 1},
            "allNodes": true, "devices": []}})
}

impl SimulatedUser {
    pub(crate) async fn change_devices(&self, namespace: &str, name: &str, change: DeviceChange) {
        let pod = format!("device-user-{name}");
        let pod_key = Key::namespaced(namespace, pod.as_str());
        match change {
            DeviceChange::CreatePod => {
                self.create(&TEMPLATES, namespace, &template_body()).await;
                let body = pod_body(&pod, "resourceClaimTemplateName", "device");
                self.create(&PODS, namespace, &body).await;
            }
            DeviceChange::Allocate => self.allocate(namespace, &pod, json!([])).await,
            DeviceChange::AllocateTolerating(seconds) => {
                let toleration =
                    json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
                self.allocate(namespace, &pod, json!([toleration])).await;
            }
            DeviceChange::FinishPod => self.finish(&pod_key).await,
            DeviceChange::DeletePod => self.delete(&PODS, &pod_key).await,
            DeviceChange::DeleteClaim => {
                if let Some(claim) = self.claim_of(namespace, &pod).await {
                    self.delete(&CLAIMS, &crate::user::key(&claim)).await;
                }
            }
            DeviceChange::Taint(evicts) => {
                let effect = if evicts { "NoExecute" } else { "NoSchedule" };
                self.create(&RULES, "", &rule_body(namespace, effect)).await;
            }
            DeviceChange::Untaint => self.delete(&RULES, &Key::cluster(namespace)).await,
            DeviceChange::TaintSlice(tainted) => self.taint_in_slice(namespace, &pod, tainted).await,
            _ => self.change_shared_claim(namespace, name, change).await,
        }
    }

    async fn change_shared_claim(&self, namespace: &str, name: &str, change: DeviceChange) {
        let claim = format!("shared-{name}");
        let pod = |number: u8| format!("device-sharer-{name}-{number}");
        let pod_key = |number: u8| Key::namespaced(namespace, pod(number).as_str());
        match change {
            DeviceChange::CreateSharedClaim => {
                self.create(&CLAIMS, namespace, &shared_claim_body(&claim)).await;
            }
            DeviceChange::CreateSharingPod(number) => {
                let body = pod_body(&pod(number), "resourceClaimName", &claim);
                self.create(&PODS, namespace, &body).await;
            }
            DeviceChange::AllocateShared => self.allocate_shared(namespace, &claim).await,
            DeviceChange::FinishSharingPod(number) => self.finish(&pod_key(number)).await,
            DeviceChange::DeleteSharingPod(number) => self.delete(&PODS, &pod_key(number)).await,
            DeviceChange::DeleteSharedClaim => {
                self.delete(&CLAIMS, &Key::namespaced(namespace, claim.as_str())).await;
            }
            _ => {}
        }
    }

    async fn finish(&self, pod: &Key) {
        self.merge_status_of(&PODS, pod, json!({"status": {"phase": "Succeeded"}})).await;
    }

    /// Publishes a device in the slice of its pool, with a taint or without.
    async fn taint_in_slice(&self, namespace: &str, device: &str, tainted: bool) {
        self.create(&SLICES, "", &slice_body(namespace)).await;
        let slices = self.list(&SLICES, "").await;
        let Some(slice) = slices.iter().find(|slice| text(slice, "/metadata/name") == namespace) else {
            return;
        };
        let mut devices = slice["spec"]["devices"].as_array().cloned().unwrap_or_default();
        devices.retain(|published| published["name"] != device);
        let taints = if tainted { json!([{"key": "hot", "effect": "NoExecute"}]) } else { json!([]) };
        devices.push(json!({"name": device, "taints": taints}));
        self.merge(&SLICES, &Key::cluster(namespace), json!({"spec": {"devices": devices}})).await;
    }

    /// The claim that was generated for the pod of this name.
    async fn claim_of(&self, namespace: &str, pod: &str) -> Option<Value> {
        let pods = self.list(&PODS, namespace).await;
        let pod = pods.iter().find(|one| text(one, "/metadata/name") == pod)?;
        let uid = text(pod, "/metadata/uid").to_owned();
        let claims = self.list(&CLAIMS, namespace).await;
        claims.into_iter().find(|claim| text(claim, "/metadata/ownerReferences/0/uid") == uid)
    }

    /// Allocates a device for the claim of a pod and reserves it, unless it is allocated.
    async fn allocate(&self, namespace: &str, pod: &str, tolerations: Value) {
        let Some(claim) = self.claim_of(namespace, pod).await else { return };
        if is_terminating(&claim) || claim.pointer("/status/allocation").is_some() {
            return;
        }
        let owner = &claim["metadata"]["ownerReferences"][0];
        let reserved = json!([{"resource": "pods", "name": owner["name"], "uid": owner["uid"]}]);
        self.store_allocation(&claim, pod, &tolerations, &reserved).await;
    }

    /// Allocates a device for a shared claim, unless it is allocated, and reserves it for all pods that name it and have
    /// not ended.
    async fn allocate_shared(&self, namespace: &str, name: &str) {
        let pods = self.list(&PODS, namespace).await;
        let uses =
            |pod: &&Value| text(pod, "/spec/resourceClaims/0/resourceClaimName") == name && is_active(pod);
        let claim = self.send(&Call::get(&CLAIMS, &Key::namespaced(namespace, name))).await;
        if claim.is_null() || is_terminating(&claim) {
            return;
        }
        let mut reserved = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        for pod in pods.iter().filter(uses) {
            let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
            if !reserved.iter().any(|consumer| consumer["uid"] == *uid) {
                reserved.push(json!({"resource": "pods", "name": name, "uid": uid}));
            }
        }
        let reserved = json!(reserved);
        if claim.pointer("/status/allocation").is_none() {
            self.store_allocation(&claim, name, &json!([]), &reserved).await;
        } else {
            let change = json!({"metadata": {"resourceVersion": claim["metadata"]["resourceVersion"]},
                "status": {"reservedFor": reserved}});
            self.merge_status_of(&CLAIMS, &crate::user::key(&claim), change).await;
        }
    }

    async fn store_allocation(&self, claim: &Value, device: &str, tolerations: &Value, reserved: &Value) {
        let key = crate::user::key(claim);
        let version = &claim["metadata"]["resourceVersion"];
        let finalizers = json!(["resource.kubernetes.io/delete-protection"]);
        let change = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let stored = self.send(&Call::patch(&CLAIMS, &key, PatchType::Merge, &change)).await;
        let result = json!({"request": "r", "driver": DRIVER, "pool": text(claim, "/metadata/namespace"),
            "device": device, "tolerations": tolerations});
        // As the scheduler does, nothing is allocated for a claim that has changed meanwhile.
        let change = json!({"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]},
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}});
        self.merge_status_of(&CLAIMS, &key, change).await;
    }

    pub(crate) async fn merge_status_of(&self, resource: &Resource, key: &Key, change: Value) {
        self.send(&Call::patch(resource, key, PatchType::Merge, &change).subresource("status")).await;
    }
}
