//! Released volumes: kept, left to their driver, failed or recycled.

use super::*;

fn released(changes: &[(&str, Value)]) -> Value {
    let (_, volume) = bound_pair();
    with(with(volume, &[("/status/phase", json!("Released"))]), changes)
}

fn delete_policy() -> (&'static str, Value) {
    ("/spec/persistentVolumeReclaimPolicy", json!("Delete"))
}

fn sync(volume: Value) -> String {
    let a_loop = volumes_loop();
    sync_volume(&mut cluster(&a_loop, &[], &[volume]), &a_loop)
}

fn with_source(volume: Value, source: &str, value: Value) -> Value {
    with(volume, &[("/spec/local", Value::Null), (&format!("/spec/{source}"), value)])
}

/// Proves PVB-70, PVB-71, PVB-147, PVB-148.
#[test]
fn retained_external_and_migrated_volumes_are_left_alone() {
    assert_eq!(sync(released(&[])), "");
    let csi = json!({"driver": "csi.d", "volumeHandle": "h"});
    assert_eq!(sync(with_source(released(&[delete_policy()]), "csi", csi)), "");
    assert_eq!(sync(annotated(released(&[delete_policy()]), &[(names::PROVISIONED_BY, "csi.d")])), "");
    let migrated =
        [(names::PROVISIONED_BY, "kubernetes.io/aws-ebs"), (names::MIGRATED_TO, "ebs.csi.aws.com")];
    assert_eq!(sync(annotated(released(&[delete_policy()]), &migrated)), "");
    let recycled = released(&[("/spec/persistentVolumeReclaimPolicy", json!("Recycle"))]);
    assert_eq!(sync(annotated(recycled, &[(names::MIGRATED_TO, "x")])), "");
}

fn failure(reason: &str, message: &str) -> String {
    format!(
        "get persistentvolumes pv\nput persistentvolumes/status pv because the volume cannot be reclaimed\n\
         event Warning {reason} on PersistentVolume pv uid=v-pv: {message}\n"
    )
}

/// Proves PVB-72, PVB-73, PVB-74, PVB-75, PVB-113, PVB-146, PVB-170.
#[test]
fn volume_that_no_plugin_deletes_becomes_failed_once() {
    let no_match = "error getting deleter volume plugin for volume \"pv\": no volume plugin matched";
    assert_eq!(sync(released(&[delete_policy()])), failure("VolumeFailedDelete", no_match));
    let ebs = with_source(released(&[delete_policy()]), "awsElasticBlockStore", json!({"volumeID": "x"}));
    assert_eq!(sync(ebs), failure("VolumeFailedDelete", no_match));
    let nfs = with_source(released(&[delete_policy()]), "nfs", json!({"server": "s", "path": "/"}));
    let not_deletable =
        "error getting deleter volume plugin for volume \"pv\": no deletable volume plugin matched";
    assert_eq!(sync(nfs.clone()), failure("VolumeFailedDelete", not_deletable));
    let protected = [("/metadata/finalizers", json!([names::IN_TREE_FINALIZER]))];
    let by = |plugin: &str| {
        annotated(with(released(&[delete_policy()]), &protected), &[(names::PROVISIONED_BY, plugin)])
    };
    let removed = "no volume plugin matched name: kubernetes.io/glusterfs";
    assert_eq!(sync(by("kubernetes.io/glusterfs")), failure("VolumeFailedDelete", removed));
    assert_eq!(
        sync(by("kubernetes.io/nfs")),
        failure("VolumeFailedDelete", "no deletable volume plugin matched")
    );
    assert_eq!(sync(with(released(&[delete_policy()]), &[("/status/phase", json!("Failed"))])), "");
    let a_loop = volumes_loop();
    let transcript = cluster(&a_loop, &[], &[nfs]).reconcile(&a_loop, volume_key("pv"));
    assert_eq!(puts(&transcript)[0].1["status"]["message"], not_deletable);
}

/// Proves PVB-75, PVB-84, PVB-131.
#[test]
fn failure_that_cannot_be_written_backs_off() {
    let a_loop = volumes_loop();
    let path = PersistentVolume::RESOURCE.object_path(&volume_key("pv"));
    let conflict = error(ErrorReason::Conflict, "conflict");
    let mut cluster =
        cluster(&a_loop, &[], &[released(&[delete_policy()])]).failing_at("update", &path, conflict, None);
    let transcript = sync_volume(&mut cluster, &a_loop);
    assert!(transcript.ends_with("measure volume_operation_errors_total{N/A,delete} 1\n"), "{transcript}");
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
}

/// Proves PVB-14, PVB-132, PVB-135.
#[test]
fn delete_latency_ends_with_the_deletion_of_the_volume() {
    let a_loop = volumes_loop();
    let external = annotated(
        released(&[delete_policy(), ("/spec/storageClassName", json!("fast"))]),
        &[(names::PROVISIONED_BY, "csi.d")],
    );
    let mut cluster =
        cluster(&a_loop, &[], &[external]).with::<StorageClass>(class("fast", "csi.example.com"));
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
    cluster.advance_clock(Duration::from_secs(2));
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
    cluster.take::<PersistentVolume>(&a_loop, &volume_key("pv"));
    assert_eq!(
        sync_volume(&mut cluster, &a_loop),
        "measure volume_operation_total_seconds{csi.example.com,delete} 2\n"
    );
}

/// Proves PVB-112, PVB-162.
#[test]
fn unknown_policy_fails_the_volume() {
    let odd = released(&[("/spec/persistentVolumeReclaimPolicy", json!("Shred"))]);
    let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
    assert_eq!(sync(odd), failure("VolumeUnknownReclaimPolicy", message));
}

/// Proves PVB-169.
#[test]
fn changed_policy_takes_effect_at_the_next_sync() {
    let a_loop = volumes_loop();
    let mut cluster = cluster(&a_loop, &[], &[released(&[])]);
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
    let version = |number: &str| ("/metadata/resourceVersion", json!(number));
    cluster.put::<PersistentVolume>(&a_loop, released(&[delete_policy(), version("10")]));
    assert!(sync_volume(&mut cluster, &a_loop).contains("VolumeFailedDelete"));
    cluster.put::<PersistentVolume>(&a_loop, released(&[("/status/phase", json!("Failed")), version("11")]));
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
}

fn recyclable() -> Value {
    let volume = released(&[
        ("/spec/persistentVolumeReclaimPolicy", json!("Recycle")),
        ("/spec/capacity/storage", json!("12Gi")),
    ]);
    with_source(volume, "nfs", json!({"server": "s", "path": "/exports"}))
}

const RECHECK: &str = "get persistentvolumes pv\nget persistentvolumeclaims a/data\n";

fn recycler_pod(phase: &str) -> Value {
    json!({"metadata": {"name": "recycler-for-pv", "namespace": "default", "uid": "", "resourceVersion": "3"},
           "status": {"phase": phase}})
}

/// Proves PVB-8, PVB-105, PVB-107, PVB-108, PVB-165.
#[test]
fn recycler_pod_is_created_from_the_template() {
    let a_loop = volumes_loop();
    let mut cluster = cluster(&a_loop, &[], &[recyclable()]);
    let bodies = cluster.bodies(&a_loop, volume_key("pv"), "create pods ");
    let pod = &bodies[0].1;
    assert_eq!(pod["metadata"], json!({"name": "recycler-for-pv", "namespace": "default"}));
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 360);
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "vol", "nfs": {"server": "s", "path": "/exports"}}]));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["name"], "pv-recycler");
    assert_eq!(container["image"], "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6");
    assert_eq!(container["command"], json!(["/bin/sh"]));
    assert_eq!(
        container["args"],
        json!([
            "-c",
            "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1"
        ])
    );
    assert_eq!(container["volumeMounts"], json!([{"name": "vol", "mountPath": "/scrub"}]));
    // While the pod runs, nothing more is created.
    cluster.put::<Pod>(&a_loop, recycler_pod("Running"));
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
    let template = json!({"metadata": {"name": "x", "generateName": "y", "namespace": "infra", "labels": {"a": "b"}},
                          "spec": {"volumes": [{"name": "disk", "emptyDir": {}}], "nodeName": "n1"}});
    let mut options = PersistentVolumeBinderOptions::default();
    options.recycler.host_path.template = Some(template);
    let a_loop = controller(&options).loops.remove(1);
    let host =
        with_source(with(recyclable(), &[("/spec/nfs", Value::Null)]), "hostPath", json!({"path": "/d"}));
    let small = with(host, &[("/spec/capacity/storage", json!("1900Mi"))]);
    let bodies = super::cluster(&a_loop, &[], &[small]).bodies(&a_loop, volume_key("pv"), "create pods ");
    assert_eq!(
        bodies[0].1,
        json!({"metadata": {"name": "recycler-for-pv", "namespace": "infra", "labels": {"a": "b"}},
               "spec": {"volumes": [{"name": "disk", "hostPath": {"path": "/d"}}], "nodeName": "n1",
                        "activeDeadlineSeconds": 60}})
    );
}

/// Proves PVB-110, PVB-166.
#[test]
fn ended_recycler_pod_is_deleted_and_decides_about_the_volume() {
    let a_loop = volumes_loop();
    let after = |pod: Option<Value>| {
        let mut cluster = cluster(&a_loop, &[], &[recyclable()]);
        cluster.reconcile(&a_loop, volume_key("pv"));
        if let Some(pod) = pod {
            let enqueued = cluster.put::<Pod>(&a_loop, pod);
            assert_eq!(enqueued, ["pv"]);
        }
        sync_volume(&mut cluster, &a_loop)
    };
    let succeeded = after(Some(recycler_pod("Succeeded")));
    assert!(succeeded.contains("delete pods default/recycler-for-pv because the recycler pod has ended\n"));
    assert!(
        succeeded.contains("event Normal VolumeRecycled on PersistentVolume pv uid=v-pv: Volume recycled\n")
    );
    assert!(succeeded.ends_with("put persistentvolumes/status pv because no claim is bound to the volume\n"));
    let unknown = "Recycle failed: failed to recycle volume: pod failed, pod.Status.Message unknown\n";
    let failed = after(Some(recycler_pod("Failed")));
    assert!(failed.contains("delete pods default/recycler-for-pv") && failed.ends_with(unknown), "{failed}");
    let reported = after(Some(with(recycler_pod("Failed"), &[("/status/message", json!("disk full"))])));
    assert!(reported.ends_with("Recycle failed: failed to recycle volume: disk full\n"), "{reported}");
    let gone = after(None);
    let why = "Recycle failed: failed to recycle volume: recycler pod was deleted\n";
    assert!(gone.ends_with(why), "{gone}");
}

/// Nothing else would delete the pod. Its result counts only for the volume that it was created for.
#[test]
fn recycler_pod_is_deleted_and_decides_nothing_if_the_policy_has_changed() {
    let a_loop = volumes_loop();
    let ended = |policy: &str, pod: Option<&str>| {
        let mut cluster = cluster(&a_loop, &[], &[recyclable()]);
        cluster.reconcile(&a_loop, volume_key("pv"));
        let changed = [
            ("/spec/persistentVolumeReclaimPolicy", json!(policy)),
            ("/metadata/resourceVersion", json!("99")),
        ];
        cluster.put::<PersistentVolume>(&a_loop, with(recyclable(), &changed));
        pod.map(|phase| cluster.put::<Pod>(&a_loop, recycler_pod(phase)));
        let transcript = sync_volume(&mut cluster, &a_loop);
        assert_eq!(transcript.contains("delete pods default/recycler-for-pv because"), pod.is_some());
        assert!(
            !transcript.contains("put persistentvolumes") && !transcript.contains("event "),
            "{transcript}"
        );
    };
    ended("Retain", Some("Succeeded"));
    ended("Retain", Some("Failed"));
    ended("Retain", None);
    ended("Recycle", Some("Succeeded"));
}

/// Otherwise the next claim would find the data of a claim that used the volume while the pod was waiting.
#[test]
fn volume_that_was_in_use_since_its_recycler_pod_was_created_is_scrubbed_again() {
    let a_loop = volumes_loop();
    let mut cluster = cluster(&a_loop, &[], &[recyclable()]);
    cluster.reconcile(&a_loop, volume_key("pv"));
    cluster.put::<Pod>(&a_loop, recycler_pod("Pending"));
    let unused = [("/spec/claimRef", Value::Null), ("/metadata/resourceVersion", json!("98"))];
    cluster.put::<PersistentVolume>(&a_loop, with(recyclable(), &unused));
    let available = sync_volume(&mut cluster, &a_loop);
    assert!(
        available.starts_with(
            "delete pods default/recycler-for-pv because the volume of the recycler pod is not released any more\n"
        ),
        "{available}"
    );
    cluster.take::<Pod>(&a_loop, &Key::namespaced("default", "recycler-for-pv"));
    cluster
        .put::<PersistentVolume>(&a_loop, with(recyclable(), &[("/metadata/resourceVersion", json!("99"))]));
    let released = sync_volume(&mut cluster, &a_loop);
    assert!(released.contains("create pods default/recycler-for-pv"), "{released}");
    assert!(!released.contains("VolumeRecycled"), "{released}");
}

/// The pod would scrub what the next claim has written.
#[test]
fn volume_is_not_available_before_the_deletion_of_its_recycler_pod_was_accepted() {
    let a_loop = volumes_loop();
    let path = Pod::RESOURCE.object_path(&Key::namespaced("default", "recycler-for-pv"));
    let refused = error(ErrorReason::Unavailable, "etcd is down");
    let mut cluster = cluster(&a_loop, &[], &[recyclable()]).failing_at("delete", &path, refused, Some(1));
    cluster.reconcile(&a_loop, volume_key("pv"));
    cluster.put::<Pod>(&a_loop, recycler_pod("Running"));
    let unused = [("/spec/claimRef", Value::Null), ("/metadata/resourceVersion", json!("98"))];
    cluster.put::<PersistentVolume>(&a_loop, with(recyclable(), &unused));
    let refused = sync_volume(&mut cluster, &a_loop);
    assert!(refused.contains("FAILED") && !refused.contains("put persistentvolumes"), "{refused}");
    let repeated = sync_volume(&mut cluster, &a_loop);
    let deleted = repeated.find("delete pods default/recycler-for-pv because");
    let available = repeated.find("put persistentvolumes/status pv because");
    assert!(deleted.is_some() && deleted < available, "{repeated}");
}

/// The scrub of a deleted volume goes on, and its pod is deleted when it has ended.
#[test]
fn recycler_pod_of_a_deleted_volume_is_deleted_when_it_has_ended() {
    let a_loop = volumes_loop();
    let mut cluster = cluster(&a_loop, &[], &[recyclable()]);
    cluster.reconcile(&a_loop, volume_key("pv"));
    cluster.put::<Pod>(&a_loop, recycler_pod("Running"));
    cluster.take::<PersistentVolume>(&a_loop, &volume_key("pv"));
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
    let succeeded = with(recycler_pod("Succeeded"), &[("/metadata/resourceVersion", json!("4"))]);
    assert_eq!(cluster.put::<Pod>(&a_loop, succeeded), ["pv"]);
    let ended = sync_volume(&mut cluster, &a_loop);
    assert!(ended.starts_with("delete pods default/recycler-for-pv because"), "{ended}");
    assert_eq!(sync_volume(&mut cluster, &a_loop), "");
}

/// Proves PVB-104, PVB-105, PVB-106, PVB-126.
#[test]
fn volume_in_use_or_without_recycler_is_not_recycled() {
    let a_loop = volumes_loop();
    let mut used = cluster(&a_loop, &[], &[recyclable()])
        .with::<Pod>(pod("web", "data"))
        .with::<Pod>(pod("api", "data"))
        .with::<Pod>(with(pod("done", "data"), &[("/status/phase", json!("Succeeded"))]));
    assert_eq!(
        sync_volume(&mut used, &a_loop),
        format!(
            "{RECHECK}event Normal VolumeFailedRecycle on PersistentVolume pv uid=v-pv: Volume is used by pods: \
             a/api,a/web\n"
        )
    );
    let (claim, _) = bound_pair();
    let mut back = cluster(&a_loop, &[], &[recyclable()]).with_live::<PersistentVolumeClaim>(claim);
    assert_eq!(sync_volume(&mut back, &a_loop), RECHECK);
    let local = released(&[("/spec/persistentVolumeReclaimPolicy", json!("Recycle"))]);
    assert!(sync(local).ends_with(
        "event Warning VolumeFailedRecycle on PersistentVolume pv uid=v-pv: No recycler plugin found for the volume!\n"
    ));
}

/// Proves PVB-109.
#[test]
fn old_recycler_pod_is_deleted_and_the_volume_failed() {
    let a_loop = volumes_loop();
    let key = Key::namespaced("default", "recycler-for-pv");
    let exists = error(ErrorReason::AlreadyExists, "exists");
    let mut old = cluster(&a_loop, &[], &[recyclable()])
        .with_live::<Pod>(recycler_pod("Running"))
        .failing::<Pod>("create", &key, exists);
    let transcript = sync_volume(&mut old, &a_loop);
    assert!(transcript.contains("delete pods default/recycler-for-pv because"), "{transcript}");
    assert!(
        transcript.ends_with("Recycle failed: old recycler pod found, will retry later\n"),
        "{transcript}"
    );
    let exists = error(ErrorReason::AlreadyExists, "exists");
    let mut kept = cluster(&a_loop, &[], &[recyclable()])
        .with_live::<Pod>(recycler_pod("Running"))
        .failing::<Pod>("create", &key, exists)
        .failing::<Pod>("delete", &key, error(ErrorReason::Forbidden, "no"));
    let transcript = sync_volume(&mut kept, &a_loop);
    let why = "Recycle failed: failed to delete old recycler pod default/recycler-for-pv: no\n";
    assert!(transcript.ends_with(why), "{transcript}");
    let refused = error(ErrorReason::Forbidden, "no");
    let mut forbidden = cluster(&a_loop, &[], &[recyclable()]).failing::<Pod>("create", &key, refused);
    let transcript = sync_volume(&mut forbidden, &a_loop);
    assert!(
        transcript.ends_with("Recycle failed: unexpected error creating recycler pod:  no\n"),
        "{transcript}"
    );
    assert!(!transcript.contains("delete "), "{transcript}");
}
