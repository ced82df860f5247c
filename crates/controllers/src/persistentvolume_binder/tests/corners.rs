//! Pods by their claims, the phases that are written, re-created objects, and conflicts while a volume is reclaimed.

use super::*;

use crate::pods_by_claim::pods_of_claim;

/// Proves PVB-3.
#[test]
fn pods_are_found_by_named_and_by_ephemeral_claims() {
    let a_loop = claims_loop();
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp", "emptyDir": {}},
                         {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]);
    let web = with(pod("web", ""), &[("/spec/volumes", volumes)]);
    let elsewhere = with(pod("web", "data"), &[("/metadata/namespace", json!("b"))]);
    let cluster = cluster(&a_loop, &[], &[]).with::<Pod>(web).with::<Pod>(elsewhere);
    let found = |name: &str| {
        let pods = pods_of_claim(&cluster.view(), &Key::namespaced("a", name));
        pods.map(|pod| pod.meta.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found("data"), ["a/web"]);
    assert_eq!(found("web-scratch"), ["a/web"]);
    for other in ["scratch", "web-tmp", "web-v", "tmp", "web"] {
        assert_eq!(found(other), [""; 0], "{other}");
    }
    // The index is what finds the pod that a delayed claim waits for.
    let late = with(class("late", "d"), &[("/volumeBindingMode", json!("WaitForFirstConsumer"))]);
    let name = json!("web-scratch");
    let delayed = with(claim(), &[("/spec/storageClassName", json!("late")), ("/metadata/name", name)]);
    let mut cluster = cluster.with::<StorageClass>(late).with::<PersistentVolumeClaim>(delayed);
    let transcript = cluster.outline(&a_loop, Key::namespaced("a", "web-scratch"));
    assert!(transcript.contains("waiting for pod web to be scheduled"), "{transcript}");
}

/// Every phase that one sync writes, as `resource/status phase`.
fn phases(transcript: &str) -> Vec<String> {
    let statuses = puts(transcript).into_iter().filter(|(target, _)| target.ends_with("/status"));
    statuses
        .map(|(target, body)| format!("{target} {}", body["status"]["phase"].as_str().unwrap_or("none")))
        .collect()
}

/// Proves PVB-119.
#[test]
fn seven_phases_are_written() {
    let (of_claims, of_volumes) = (claims_loop(), volumes_loop());
    let (bound_claim, bound_volume) = bound_pair();
    let claim_phases = |claim: &Value, volumes: &[Value]| {
        let mut cluster = cluster(&of_claims, std::slice::from_ref(claim), volumes);
        phases(&cluster.reconcile(&of_claims, claim_key()))
    };
    let volume_phases = |volume: Value| {
        let mut cluster = cluster(&of_volumes, &[], &[volume]);
        phases(&cluster.reconcile(&of_volumes, volume_key("pv")))
    };
    let new = with(claim(), &[("/status/phase", json!(""))]);
    assert_eq!(claim_phases(&new, &[]), ["persistentvolumeclaims/status Pending"]);
    assert_eq!(
        claim_phases(&claim(), &[volume("pv")]),
        ["persistentvolumes/status Bound", "persistentvolumeclaims/status Bound"]
    );
    assert_eq!(claim_phases(&bound_claim, &[]), ["persistentvolumeclaims/status Lost"]);
    let pending = with(volume("pv"), &[("/status/phase", json!("Pending"))]);
    assert_eq!(volume_phases(pending), ["persistentvolumes/status Available"]);
    assert_eq!(volume_phases(bound_volume.clone()), ["persistentvolumes/status Released"]);
    let policy = ("/spec/persistentVolumeReclaimPolicy", json!("Delete"));
    let undeletable = with(bound_volume, &[("/status/phase", json!("Released")), policy]);
    assert_eq!(volume_phases(undeletable), ["persistentvolumes/status Failed"]);
}

/// Proves PVB-161.
#[test]
fn the_volume_of_a_claim_that_was_created_again_is_released_at_its_own_resync() {
    let a_loop = volumes_loop();
    let (old, volume) = bound_pair();
    let again = with(claim(), &[("/metadata/uid", json!("c-2")), ("/metadata/resourceVersion", json!("8"))]);
    let mut cluster = cluster(&a_loop, &[old], &[volume]);
    assert_eq!(cluster.put::<PersistentVolumeClaim>(&a_loop, again), [""; 0], "no deletion");
    let cached = cluster.view().get::<PersistentVolume>(&volume_key("pv")).unwrap().clone();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(cached)), ["pv"]);
    assert_eq!(phases(&cluster.reconcile(&a_loop, volume_key("pv"))), ["persistentvolumes/status Released"]);
    // A volume that was created again does not wake the claim either.
    let claims = claims_loop();
    let (bound, volume) = bound_pair();
    let mut cluster = super::cluster(&claims, &[bound], &[volume.clone()]);
    let again = with(volume, &[("/metadata/uid", json!("v-2")), ("/metadata/resourceVersion", json!("10"))]);
    assert_eq!(cluster.put::<PersistentVolume>(&claims, again), [""; 0]);
}

fn released(policy: &str) -> Value {
    let (_, volume) = bound_pair();
    let changes =
        [("/status/phase", json!("Released")), ("/spec/persistentVolumeReclaimPolicy", json!(policy))];
    with(volume, &changes)
}

fn recyclable() -> Value {
    let nfs = json!({"server": "s", "path": "/exports"});
    with(released("Recycle"), &[("/spec/local", Value::Null), ("/spec/nfs", nfs)])
}

fn recycler_pod(phase: &str) -> Value {
    json!({"metadata": {"name": "recycler-for-pv", "namespace": "default", "uid": "", "resourceVersion": "3"},
           "status": {"phase": phase}})
}

const CREATED: &str = "create pods default/recycler-for-pv because the released volume is recycled";

/// Proves PVB-164.
#[test]
fn a_conflict_lets_a_deletion_back_off_and_a_recycling_start_again() {
    let a_loop = volumes_loop();
    let path = PersistentVolume::RESOURCE.object_path(&volume_key("pv"));
    let conflict = || error(ErrorReason::Conflict, "conflict");
    // The phase is written onto the copy of the sync.
    let transcript = cluster(&a_loop, &[], &[released("Delete")]).reconcile(&a_loop, volume_key("pv"));
    assert_eq!(puts(&transcript)[0].1["metadata"]["resourceVersion"], "9", "{transcript}");
    let a_loop = volumes_loop();
    let mut deleted =
        cluster(&a_loop, &[], &[released("Delete")]).failing_at("update", &path, conflict(), None);
    assert!(sync_volume(&mut deleted, &a_loop).contains("volume_operation_errors_total"));
    assert_eq!(sync_volume(&mut deleted, &a_loop), "", "it backs off");
    deleted.advance_clock(Duration::from_secs(130));
    assert!(sync_volume(&mut deleted, &a_loop).contains("volume_operation_errors_total"), "and tries again");
    // Without a recycler the volume fails; a conflict there is tried again at the next sync.
    let local = released("Recycle");
    let a_loop = volumes_loop();
    let mut failing = cluster(&a_loop, &[], &[local]).failing_at("update", &path, conflict(), None);
    let first = sync_volume(&mut failing, &a_loop);
    assert!(first.contains("put persistentvolumes/status pv"), "{first}");
    assert_eq!(sync_volume(&mut failing, &a_loop), first, "no backoff");
    // A conflict at the unbind: the volume stays Released and is scrubbed again.
    let a_loop = volumes_loop();
    let mut scrubbed = cluster(&a_loop, &[], &[recyclable()]);
    assert!(sync_volume(&mut scrubbed, &a_loop).contains(CREATED));
    scrubbed.put::<Pod>(&a_loop, recycler_pod("Succeeded"));
    let mut scrubbed = scrubbed.failing_at("update", &path, conflict(), Some(1));
    let ended = sync_volume(&mut scrubbed, &a_loop);
    assert!(ended.contains("VolumeRecycled") && !ended.contains("put persistentvolumes/status"), "{ended}");
    scrubbed.take::<Pod>(&a_loop, &Key::namespaced("default", "recycler-for-pv"));
    let again = sync_volume(&mut scrubbed, &a_loop);
    assert!(again.contains(CREATED), "{again}");
}

/// Proves PVB-167.
#[test]
fn after_a_restart_the_old_recycler_pod_is_replaced() {
    let a_loop = volumes_loop();
    let path = format!("{}/recycler-for-pv", "/api/v1/namespaces/default/pods");
    let exists = error(ErrorReason::AlreadyExists, "exists");
    // Another process created the pod; this one knows nothing of it.
    let mut cluster = cluster(&a_loop, &[], &[recyclable()])
        .with_live::<Pod>(recycler_pod("Running"))
        .failing_at("create", &path, exists, Some(1));
    let transcript = cluster.reconcile(&a_loop, volume_key("pv"));
    assert!(transcript.contains("delete pods default/recycler-for-pv"), "{transcript}");
    assert_eq!(phases(&transcript), ["persistentvolumes/status Failed"]);
    let failed =
        with(recyclable(), &[("/status/phase", json!("Failed")), ("/metadata/resourceVersion", json!("10"))]);
    cluster.put::<PersistentVolume>(&a_loop, failed);
    let next = sync_volume(&mut cluster, &a_loop);
    assert!(next.contains(CREATED) && !next.contains("delete"), "{next}");
    // The name of the pod would be too long: the server refuses it every time.
    let long = "v".repeat(250);
    let named = with(recyclable(), &[("/metadata/name", json!(long))]);
    let key = Key::namespaced("default", format!("recycler-for-{long}").as_str());
    let refused = error(ErrorReason::Invalid, "metadata.name: must be no more than 253 characters");
    let a_loop = volumes_loop();
    let mut cluster = super::cluster(&a_loop, &[], &[named]).failing::<Pod>("create", &key, refused);
    for _ in 0..2 {
        let transcript = cluster.reconcile(&a_loop, volume_key(&long));
        assert_eq!(phases(&transcript), ["persistentvolumes/status Failed"], "{transcript}");
    }
}
