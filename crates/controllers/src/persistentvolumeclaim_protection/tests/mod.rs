//! Claims and pods in every combination: what enqueues a claim, who uses it, and what is written.

mod condition;
mod deletion;
mod enqueue;

use keleustes_objects::{ApiError, ErrorReason, Kind as _};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Action, Edit, RateLimiter, Step};
use serde_json::{Value, json};

use super::*;

const REMOVED: &str = "edit persistentvolumeclaims a/c because the claim is deleted and no pod uses it\n";
const ADDED: &str = "edit persistentvolumeclaims a/c because the protection finalizer is missing\n";
const USED: &str = "edit persistentvolumeclaims/status a/c because a pod uses the claim\n";
const UNUSED: &str = "edit persistentvolumeclaims/status a/c because no pod uses the claim any more\n";
const LISTED: &str = "list pods in a\n";

fn the_loop() -> Loop {
    controller(ClaimProtectionOptions::default()).loops.remove(0)
}

fn loop_without_condition() -> Loop {
    controller(ClaimProtectionOptions { report_unused: false }).loops.remove(0)
}

fn key() -> Key {
    Key::namespaced("a", "c")
}

/// A bound claim with the finalizer and this `Unused` condition; none if it is empty.
fn claim(unused: &str) -> Value {
    let mut conditions = vec![json!({"type": "Resizing", "status": "True"})];
    if !unused.is_empty() {
        conditions.push(json!({"type": "Unused", "status": unused, "reason": "old", "lastProbeTime": null,
                               "lastTransitionTime": "2020-01-01T00:00:00Z"}));
    }
    json!({
        "metadata": {"name": "c", "namespace": "a", "uid": "c-uid", "resourceVersion": "7",
                     "finalizers": ["example.com/first", FINALIZER, "example.com/last"]},
        "spec": {"unknownToThisRelease": 1},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "conditions": conditions,
                   "allocatedResources": {"storage": "2Gi"}, "modifyVolumeStatus": {"status": "Pending"}},
    })
}

fn deleted(mut claim: Value) -> Value {
    claim["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
    claim
}

fn without_finalizer(mut claim: Value) -> Value {
    claim["metadata"]["finalizers"] = json!(["example.com/first"]);
    claim
}

fn named(mut object: Value, name: &str) -> Value {
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("{name}-uid"));
    object
}

fn changed(mut object: Value, resource_version: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(resource_version);
    object
}

/// A running pod on a node that names the claim.
fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "p-uid", "resourceVersion": "3"},
        "spec": {"nodeName": "n1", "containers": [{"name": "x"}],
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "x", "state": {"running": {}}}]},
    })
}

/// The pod `p` with an ephemeral volume whose claim is `p-v`.
fn ephemeral_pod() -> Value {
    let mut pod = pod();
    pod["spec"]["volumes"] = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    pod
}

/// The claim of the ephemeral volume, controlled by a pod of this UID.
fn ephemeral_claim(unused: &str, owner: &str) -> Value {
    let mut claim = named(claim(unused), "p-v");
    claim["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]);
    claim
}

fn with_phase(mut object: Value, phase: &str) -> Value {
    object["status"]["phase"] = json!(phase);
    object
}

fn unscheduled(mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!("");
    pod
}

fn terminating(mut pod: Value, grace_seconds: u32) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace_seconds);
    pod
}

fn cluster(claim: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop()).with::<PersistentVolumeClaim>(claim)
}

fn sync(cluster: RehearsalCluster) -> String {
    let mut cluster = cluster;
    cluster.reconcile(&the_loop(), key())
}

/// The live claim after a reconcile.
fn written(mut cluster: RehearsalCluster) -> Value {
    cluster.reconcile(&the_loop(), key());
    cluster.live_object::<PersistentVolumeClaim>(&key()).expect("the claim").clone()
}

fn pods_path() -> String {
    Pod::RESOURCE.collection_path("a")
}

/// Proves PVCP-6, PVCP-7, PVCP-45.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller(ClaimProtectionOptions::default());
    assert_eq!(controller.name, "persistentvolumeclaim-protection-controller");
    assert_eq!(crate::names::aliases_of(controller.name), ["pvc-protection"]);
    assert_eq!(controller.service_account, Some("pvc-protection-controller"));
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    assert!(controller.debug_handler.is_none());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("pvcprotection", 1, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    assert_eq!(FINALIZER, "kubernetes.io/pvc-protection");
}
