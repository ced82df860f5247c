//! Volumes of every phase, deleted or not, with and without the finalizer.

use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::json;

use super::*;

const REMOVED: &str = "edit persistentvolumes pv because the volume is deleted and not bound\n";
const ADDED: &str = "edit persistentvolumes pv because the protection finalizer is missing\n";

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

fn key() -> Key {
    Key::cluster("pv")
}

fn volume(phase: &str, is_deleted: bool, finalizers: &[&str]) -> Value {
    let mut volume = json!({
        "metadata": {"name": "pv", "uid": "u", "resourceVersion": "7", "finalizers": finalizers},
        "spec": {"claimRef": {"namespace": "a", "name": "c", "uid": "c-uid"}, "unknownToThisRelease": 1},
        "status": {"phase": phase},
    });
    if is_deleted {
        volume["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
    }
    volume
}

fn changed(mut volume: Value, resource_version: &str) -> Value {
    volume["metadata"]["resourceVersion"] = json!(resource_version);
    volume
}

fn sync(volume: Value) -> String {
    let a_loop = the_loop();
    RehearsalCluster::of(&a_loop).with::<PersistentVolume>(volume).reconcile(&a_loop, key())
}

fn written(volume: Value) -> Value {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop).with::<PersistentVolume>(volume);
    cluster.reconcile(&a_loop, key());
    cluster.live_object::<PersistentVolume>(&key()).expect("the volume").clone()
}

/// Proves PVP-1, PVP-4, PVP-25.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller();
    assert_eq!(controller.name, "persistentvolume-protection-controller");
    assert_eq!(
        (crate::names::aliases_of(controller.name), controller.service_account),
        (&["pv-protection"][..], Some("pv-protection-controller"))
    );
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    assert!(controller.debug_handler.is_none());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("pvprotection", 1, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    let kinds: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["persistentvolumes"]);
    assert!(a_loop.starts_without.is_empty());
    assert_eq!(FINALIZER, "kubernetes.io/pv-protection");
}

/// Proves PVP-1, PVP-2, PVP-3, PVP-40.
#[test]
fn volume_is_enqueued_if_the_finalizer_is_missing_or_in_the_way() {
    let a_loop = the_loop();
    let enqueued = |volume: Value| {
        let mut cluster = RehearsalCluster::of(&a_loop);
        let added = cluster.put::<PersistentVolume>(&a_loop, volume.clone());
        assert_eq!(cluster.put::<PersistentVolume>(&a_loop, changed(volume, "8")), added, "an update, too");
        let cached = cluster.view().get::<PersistentVolume>(&key()).unwrap().clone();
        assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(cached)), added, "a resync, too");
        assert!(cluster.take::<PersistentVolume>(&a_loop, &key()).is_empty(), "a deletion enqueues nothing");
        added
    };
    assert_eq!(enqueued(volume("Bound", false, &[])), ["pv"]);
    assert_eq!(enqueued(volume("Bound", true, &[FINALIZER])), ["pv"]);
    assert!(enqueued(volume("Available", false, &[FINALIZER])).is_empty());
    assert!(enqueued(volume("Released", true, &["example.com/x"])).is_empty());
}

/// Proves PVP-11, PVP-12, PVP-15, PVP-31, PVP-38, PVP-39, PVP-41, PVP-43.
#[test]
fn deleted_volume_loses_the_finalizer_unless_it_is_bound() {
    for phase in ["Available", "Released", "Failed", "Pending", "", "Shining"] {
        assert_eq!(sync(volume(phase, true, &[FINALIZER])), REMOVED, "{phase}");
    }
    // Whatever its claimRef says.
    let mut reserved = volume("Available", true, &[FINALIZER]);
    reserved["spec"]["claimRef"]["uid"] = json!("");
    assert_eq!(sync(reserved), REMOVED);
    assert_eq!(sync(volume("Bound", true, &[FINALIZER])), "", "kept, without a retry");
    let mut unclaimed = volume("Bound", true, &[FINALIZER]);
    unclaimed["spec"].as_object_mut().unwrap().remove("claimRef");
    assert_eq!(sync(unclaimed), "", "only the phase decides");
}

/// Proves PVP-13, PVP-14, PVP-36, PVP-37.
#[test]
fn living_volume_gets_the_finalizer_at_the_end_and_a_deleted_one_does_not() {
    let a_loop = the_loop();
    assert_eq!(sync(volume("Available", false, &[])), ADDED);
    assert_eq!(sync(volume("Available", true, &[])), "");
    let with = written(volume("Bound", false, &["example.com/x"]));
    assert_eq!(with["metadata"]["finalizers"], json!(["example.com/x", FINALIZER]));
    let mut cluster =
        RehearsalCluster::of(&a_loop).with::<PersistentVolume>(volume("Bound", false, &[FINALIZER]));
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    let by_hand = changed(volume("Bound", false, &[]), "8");
    assert_eq!(cluster.put::<PersistentVolume>(&a_loop, by_hand), ["pv"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), ADDED, "removed by a user");
}

/// Proves PVP-16, PVP-20, PVP-22.
#[test]
fn other_finalizers_and_fields_survive() {
    let others = ["external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-controller"];
    let before = volume("Released", true, &[others[0], FINALIZER, others[1], FINALIZER]);
    let mut wanted = before.clone();
    wanted["metadata"]["finalizers"] = json!(others);
    assert_eq!(written(before.clone()), wanted);
    assert_eq!(sync(before), REMOVED, "one write and no live read of anything else");
}

/// Proves PVP-10, PVP-42.
#[test]
fn missing_volume_needs_nothing_and_a_new_one_is_judged_by_itself() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    cluster.put::<PersistentVolume>(&a_loop, volume("Released", true, &[FINALIZER]));
    let mut recreated = changed(volume("Bound", false, &[FINALIZER]), "9");
    recreated["metadata"]["uid"] = json!("another");
    cluster.put::<PersistentVolume>(&a_loop, recreated);
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
}

/// Proves PVP-21.
#[test]
fn failed_write_is_retried() {
    let a_loop = the_loop();
    for reason in [ErrorReason::Conflict, ErrorReason::Forbidden, ErrorReason::Unavailable] {
        for volume in [volume("Released", true, &[FINALIZER]), volume("Bound", false, &[])] {
            let mut cluster = RehearsalCluster::of(&a_loop)
                .with::<PersistentVolume>(volume)
                .failing::<PersistentVolume>("update", &key(), ApiError::transport(reason, "refused"));
            let transcript = cluster.reconcile(&a_loop, key());
            assert!(transcript.contains("retry: ") && transcript.ends_with("refused\n"), "{transcript}");
        }
    }
}

/// Proves PVP-12, PVP-30, PVP-32, PVP-34, PVP-35.
#[test]
fn phase_that_was_judged_is_the_one_that_is_released() {
    let a_loop = the_loop();
    // The cache shows a released volume that is bound by now.
    let mut stale = RehearsalCluster::of(&a_loop)
        .with_cached::<PersistentVolume>(volume("Released", true, &[FINALIZER]))
        .with_live::<PersistentVolume>(changed(volume("Bound", true, &[FINALIZER]), "8"));
    assert!(stale.reconcile(&a_loop, key()).ends_with("(resourceVersion changed)\n"));
    // Even with the same resourceVersion a bound volume is not released.
    let mut odd = RehearsalCluster::of(&a_loop)
        .with_cached::<PersistentVolume>(volume("Released", true, &[FINALIZER]))
        .with_live::<PersistentVolume>(volume("Bound", true, &[FINALIZER]));
    assert!(odd.reconcile(&a_loop, key()).ends_with("(unneeded)\n"));
    // A bound one keeps the finalizer however often it is updated, until its phase changes.
    let mut bound =
        RehearsalCluster::of(&a_loop).with::<PersistentVolume>(volume("Bound", true, &[FINALIZER]));
    for version in ["8", "9", "10"] {
        let update = changed(volume("Bound", true, &[FINALIZER]), version);
        assert_eq!(bound.put::<PersistentVolume>(&a_loop, update), ["pv"]);
        assert_eq!(bound.reconcile(&a_loop, key()), "");
    }
    let released = changed(volume("Released", true, &[FINALIZER]), "11");
    assert_eq!(bound.put::<PersistentVolume>(&a_loop, released), ["pv"]);
    assert_eq!(bound.reconcile(&a_loop, key()), REMOVED);
}
