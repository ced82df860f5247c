//! Claims and volumes through their lives: matched, bound, lost, released, reclaimed.
#![expect(clippy::cloned_ref_to_slice_refs, reason = "one object is written like several")]
mod binding;
mod claims;
mod corners;
mod matching;
mod provisioning;
mod reclaiming;
mod volumes;

use parking_lot::Mutex;

use keleustes_objects::{ApiError, ErrorReason, Kind as _};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Change, Loop};
use serde_json::{Value, json};

use super::*;

fn claims_loop() -> Loop {
    controller(&PersistentVolumeBinderOptions::default()).loops.remove(0)
}

fn volumes_loop() -> Loop {
    controller(&PersistentVolumeBinderOptions::default()).loops.remove(1)
}

fn claim_key() -> Key {
    Key::namespaced("a", "data")
}

fn volume_key(name: &str) -> Key {
    Key::cluster(name)
}

/// A claim for 1Gi of class `""`.
fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "a", "uid": "c-1", "resourceVersion": "7"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                 "storageClassName": "", "newerField": {"kept": true}},
        "status": {"phase": "Pending"},
    })
}

/// An Available volume of 1Gi, with a source that no plugin of this process deletes.
fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": format!("v-{name}"), "resourceVersion": "9"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "local": {"path": "/x"},
                 "persistentVolumeReclaimPolicy": "Retain", "newerField": {"kept": true}},
        "status": {"phase": "Available", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"},
    })
}

/// The value with changed fields, each given as a JSON pointer; null removes the field.
fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (mut at, mut rest) = (&mut object, pointer.trim_start_matches('/').split('/').peekable());
        while let Some(field) = rest.next() {
            let field = field.replace("~1", "/");
            if rest.peek().is_some() {
                at = &mut at[field.as_str()];
            } else if value.is_null() {
                if let Some(fields) = at.as_object_mut() {
                    fields.remove(&field);
                }
            } else {
                at[field.as_str()] = value.clone();
            }
        }
    }
    object
}

fn annotated(object: Value, annotations: &[(&str, &str)]) -> Value {
    annotations.iter().fold(object, |object, (key, value)| {
        with(object, &[(&format!("/metadata/annotations/{}", key.replace('/', "~1")), json!(value))])
    })
}

fn bound_ref(uid: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "a", "name": "data", "uid": uid,
           "resourceVersion": "5"})
}

/// A claim that is bound to volume `pv`, and that volume.
fn bound_pair() -> (Value, Value) {
    let claim = with(
        annotated(claim(), &[(names::BIND_COMPLETED, "yes"), (names::BOUND_BY_CONTROLLER, "yes")]),
        &[
            ("/spec/volumeName", json!("pv")),
            (
                "/status",
                json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}),
            ),
        ],
    );
    let volume = with(
        annotated(volume("pv"), &[(names::BOUND_BY_CONTROLLER, "yes")]),
        &[("/spec/claimRef", bound_ref("c-1")), ("/status/phase", json!("Bound"))],
    );
    (claim, volume)
}

fn class(name: &str, provisioner: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "provisioner": provisioner,
           "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
}

fn pod(name: &str, claim: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "1"},
           "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
           "status": {"phase": "Pending"}})
}

/// A test cluster for one of the loops, with claims and volumes.
fn cluster(a_loop: &Loop, claims: &[Value], volumes: &[Value]) -> RehearsalCluster {
    let cluster = RehearsalCluster::of(a_loop);
    let cluster =
        claims.iter().fold(cluster, |cluster, claim| cluster.with::<PersistentVolumeClaim>(claim.clone()));
    volumes.iter().fold(cluster, |cluster, volume| cluster.with::<PersistentVolume>(volume.clone()))
}

/// What one sync of the claim does, without bodies, reads and gauges.
fn sync_claim(cluster: &mut RehearsalCluster, a_loop: &Loop) -> String {
    without_noise(&cluster.outline(a_loop, claim_key()))
}

/// What one sync of volume `pv` does, without bodies, reads and gauges.
fn sync_volume(cluster: &mut RehearsalCluster, a_loop: &Loop) -> String {
    without_noise(&cluster.outline(a_loop, volume_key("pv")))
}

fn without_noise(transcript: &str) -> String {
    let lines = transcript.lines().filter(|line| !line.starts_with("measure pv_collector"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The bodies of the PUTs of one sync, by `resource/subresource`.
fn puts(transcript: &str) -> Vec<(String, Value)> {
    let put = |line: &str| {
        let (head, body) = line.strip_prefix("put ")?.split_once(": {")?;
        let target = head.split_whitespace().next()?.to_owned();
        Some((target, serde_json::from_str(&format!("{{{body}")).ok()?))
    };
    transcript.lines().filter_map(put).collect()
}

fn error(reason: ErrorReason, message: &str) -> ApiError {
    ApiError::transport(reason, message)
}

const GET_CLAIM: &str = "get persistentvolumeclaims a/data\n";
