//! Classes, and the claims and volumes that refer to them in all ways.

use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const REMOVED: &str = "edit volumeattributesclasses.storage.k8s.io gold because the class is deleted and nothing refers to it\n";
const ADDED: &str =
    "edit volumeattributesclasses.storage.k8s.io gold because the protection finalizer is missing\n";

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

fn key() -> Key {
    Key::cluster("gold")
}

fn class(is_deleted: bool, finalizers: &[&str]) -> Value {
    let mut class = json!({
        "metadata": {"name": "gold", "uid": "u", "resourceVersion": "7", "finalizers": finalizers},
        "driverName": "csi.example.com", "parameters": {"iops": "1000"}, "unknownToThisRelease": 1,
    });
    if is_deleted {
        class["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
    }
    class
}

fn deleted() -> Value {
    class(true, &[FINALIZER])
}

/// A claim that asks for, has and is changed to these classes.
fn claim(spec: &str, current: &str, target: &str) -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "a", "uid": "c-uid", "resourceVersion": "3"},
        "spec": {"volumeAttributesClassName": spec},
        "status": {"phase": "Bound", "currentVolumeAttributesClassName": current,
                   "modifyVolumeStatus": {"targetVolumeAttributesClassName": target, "status": "InProgress"}},
    })
}

fn volume(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "5"},
           "spec": {"volumeAttributesClassName": class, "storageClassName": "gold"},
           "status": {"phase": "Released"}})
}

fn changed(mut object: Value, resource_version: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(resource_version);
    object
}

fn cluster(class: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop()).with::<VolumeAttributesClass>(class)
}

fn sync(mut cluster: RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(), key())
}

fn written(mut cluster: RehearsalCluster) -> Value {
    cluster.reconcile(&the_loop(), key());
    cluster.live_object::<VolumeAttributesClass>(&key()).expect("the class").clone()
}

/// Proves VACP-1, VACP-8, VACP-9, VACP-22, VACP-25.
#[test]
fn descriptor_matches_the_role_and_waits_for_three_caches() {
    let controller = controller();
    assert_eq!(controller.name, "volumeattributesclass-protection-controller");
    assert_eq!(controller.service_account, Some("volumeattributesclass-protection-controller"));
    assert!(crate::names::aliases_of(controller.name).is_empty() && controller.event_component.is_none());
    assert!(controller.metrics.is_empty() && controller.debug_handler.is_none());
    let updates: Vec<_> = controller.grants.iter().filter(|grant| grant.verbs.contains(&"update")).collect();
    assert_eq!(
        updates.iter().map(|grant| grant.resource).collect::<Vec<_>>(),
        ["volumeattributesclasses", "events"]
    );
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("vacprotection", 1, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    let kinds: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["volumeattributesclasses", "persistentvolumeclaims", "persistentvolumes"]);
    assert!(a_loop.starts_without.is_empty(), "an empty cache is not the same as no claim");
    let indexes: Vec<_> =
        a_loop.indexes.iter().map(|index| (index.kind.resource().plural.to_string(), index.name)).collect();
    let name = "volumeAttributesClassName";
    assert_eq!(indexes, [("persistentvolumeclaims".into(), name), ("persistentvolumes".into(), name)]);
    let class = VolumeAttributesClass::RESOURCE;
    assert_eq!((&*class.group, &*class.version), ("storage.k8s.io", "v1"));
    assert_eq!(FINALIZER, "kubernetes.io/vac-protection");
}

/// Proves VACP-2, VACP-34, VACP-38, VACP-40, VACP-43.
#[test]
fn class_is_enqueued_if_the_finalizer_is_missing_or_in_the_way() {
    let a_loop = the_loop();
    let enqueued = |class: Value| {
        let mut cluster = RehearsalCluster::of(&a_loop);
        let added = cluster.put::<VolumeAttributesClass>(&a_loop, class.clone());
        assert_eq!(cluster.put::<VolumeAttributesClass>(&a_loop, changed(class, "8")), added);
        assert!(cluster.take::<VolumeAttributesClass>(&a_loop, &key()).is_empty());
        added
    };
    assert_eq!(enqueued(class(false, &[])), ["gold"]);
    assert_eq!(enqueued(deleted()), ["gold"], "also one that became unused while no manager ran");
    assert!(enqueued(class(false, &[FINALIZER])).is_empty());
    assert!(enqueued(class(true, &["example.com/x"])).is_empty(), "left alone");
    // A new class gets it, and one whose finalizer a user removed gets it back.
    assert_eq!(sync(cluster(class(false, &[]))), ADDED);
    assert_eq!(sync(cluster(class(true, &[]))), "");
}

/// Proves VACP-3, VACP-4, VACP-5, VACP-35.
#[test]
fn dropped_references_enqueue_their_classes() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, claim("a", "b", "c")).is_empty(), "an addition");
    let items =
        |cluster: &mut RehearsalCluster, claim: Value| cluster.put::<PersistentVolumeClaim>(&a_loop, claim);
    assert!(items(&mut cluster, changed(claim("b", "c", "a"), "4")).is_empty(), "the same classes");
    assert_eq!(items(&mut cluster, changed(claim("d", "c", ""), "5")), ["a", "b"]);
    let mut recreated = changed(claim("d", "", ""), "6");
    recreated["metadata"]["uid"] = json!("another");
    assert_eq!(items(&mut cluster, recreated), ["c"], "of another claim with the same name");
    assert_eq!(cluster.take::<PersistentVolumeClaim>(&a_loop, &Key::namespaced("a", "c")), ["d"]);

    assert!(cluster.put::<PersistentVolume>(&a_loop, volume("v", "gold")).is_empty());
    assert!(cluster.put::<PersistentVolume>(&a_loop, changed(volume("v", "gold"), "6")).is_empty());
    assert_eq!(cluster.put::<PersistentVolume>(&a_loop, changed(volume("v", "iron"), "7")), ["gold"]);
    assert_eq!(cluster.take::<PersistentVolume>(&a_loop, &Key::cluster("v")), ["iron"]);
    // A relist that no longer shows the object is a deletion like any other.
    let last: PersistentVolume = serde_json::from_value(volume("v", "gold")).unwrap();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(last.into())), ["gold"]);
}

/// Proves VACP-6, VACP-7, VACP-11, VACP-12, VACP-14, VACP-16, VACP-31, VACP-42.
#[test]
fn every_reference_protects_a_deleted_class() {
    assert_eq!(sync(cluster(deleted())), REMOVED);
    for claim in [claim("gold", "", ""), claim("", "gold", ""), claim("iron", "iron", "gold")] {
        assert_eq!(sync(cluster(deleted()).with::<PersistentVolumeClaim>(claim.clone())), "", "{claim}");
        let mut pending = claim.clone();
        pending["metadata"]["namespace"] = json!("b");
        pending["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
        pending["status"]["phase"] = json!("Pending");
        assert_eq!(sync(cluster(deleted()).with::<PersistentVolumeClaim>(pending)), "");
    }
    assert_eq!(
        sync(cluster(deleted()).with::<PersistentVolume>(volume("v", "gold"))),
        "",
        "a released volume"
    );
    let unrelated = cluster(deleted())
        .with::<PersistentVolumeClaim>(claim("iron", "", "silver"))
        .with::<PersistentVolume>(volume("v", ""));
    assert_eq!(sync(unrelated), REMOVED, "a StorageClass of the same name is another thing");
}

/// Proves VACP-15.
#[test]
fn caches_alone_decide() {
    let live_only = cluster(deleted()).with_live::<PersistentVolumeClaim>(claim("gold", "", ""));
    assert_eq!(sync(live_only), REMOVED, "as in the original, there is no live list");
}

/// Proves VACP-13, VACP-20, VACP-36.
#[test]
fn only_the_finalizer_changes() {
    let after = written(cluster(class(false, &["example.com/x"])));
    assert_eq!(after, class(false, &["example.com/x", FINALIZER]));
    let before = class(true, &["example.com/x", FINALIZER, "example.com/y", FINALIZER]);
    assert_eq!(written(cluster(before)), class(true, &["example.com/x", "example.com/y"]));
    let stale = RehearsalCluster::of(&the_loop())
        .with_cached::<VolumeAttributesClass>(deleted())
        .with_live::<VolumeAttributesClass>(changed(deleted(), "8"));
    assert!(sync(stale).ends_with("(resourceVersion changed)\n"));
}

/// Proves VACP-10, VACP-33, VACP-41.
#[test]
fn missing_class_needs_nothing_and_a_new_one_is_protected_by_old_references() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop).with::<PersistentVolumeClaim>(claim("gold", "", ""));
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    assert_eq!(cluster.put::<VolumeAttributesClass>(&a_loop, class(false, &[])), ["gold"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), ADDED);
    cluster.put::<VolumeAttributesClass>(&a_loop, changed(deleted(), "8"));
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
}

/// Proves VACP-21, VACP-37.
#[test]
fn failed_write_is_retried() {
    for reason in [ErrorReason::Conflict, ErrorReason::Forbidden, ErrorReason::Unavailable] {
        for class in [class(false, &[]), deleted()] {
            let error = ApiError::transport(reason, "refused");
            let transcript = sync(cluster(class).failing::<VolumeAttributesClass>("update", &key(), error));
            assert!(transcript.contains("retry: ") && transcript.ends_with("refused\n"), "{transcript}");
        }
    }
}

/// Proves VACP-30, VACP-32, VACP-39.
#[test]
fn class_is_released_when_the_last_of_its_references_goes() {
    let a_loop = the_loop();
    let mut cluster = cluster(deleted())
        .with::<PersistentVolumeClaim>(claim("gold", "gold", ""))
        .with::<PersistentVolume>(volume("v", "gold"))
        .with::<PersistentVolume>(volume("w", "gold"));
    let asks = changed(claim("iron", "gold", "iron"), "4");
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, asks).is_empty(), "it still has the class");
    let has = changed(claim("iron", "iron", ""), "5");
    assert_eq!(cluster.put::<PersistentVolumeClaim>(&a_loop, has), ["gold"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), "", "the volumes have it");
    assert_eq!(cluster.put::<PersistentVolume>(&a_loop, changed(volume("v", "iron"), "6")), ["gold"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    assert_eq!(cluster.take::<PersistentVolume>(&a_loop, &Key::cluster("w")), ["gold"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), REMOVED);
}
