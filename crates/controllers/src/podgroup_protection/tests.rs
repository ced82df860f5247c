//! PodGroups that are deleted, and the pods that hold them.

use keleustes_objects::{ApiError, ErrorReason, Kind as _, ResourceClaim};
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const REMOVED: &str =
    "edit podgroups.scheduling.k8s.io a/g because the PodGroup is deleted and no active pod refers to it\n";

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

fn key() -> Key {
    Key::namespaced("a", "g")
}

/// PodGroup `a/g` with these finalizers.
fn group(is_deleted: bool, finalizers: &[&str]) -> Value {
    let mut group = json!({
        "metadata": {"namespace": "a", "name": "g", "uid": "u", "resourceVersion": "7", "finalizers": finalizers},
        "spec": {"schedulingPolicy": {"basic": {}}, "unknownToThisRelease": 1},
    });
    if is_deleted {
        group["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
    }
    group
}

fn deleted() -> Value {
    group(true, &[FINALIZER])
}

/// A pod of namespace `a` that refers to PodGroup `g`.
fn pod(name: &str, phase: &str) -> Value {
    pod_of("a", name, "g", phase)
}

fn pod_of(namespace: &str, name: &str, group: &str, phase: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "3"},
        "spec": {"containers": [], "schedulingGroup": {"podGroupName": group}},
        "status": {"phase": phase},
    })
}

fn changed(mut object: Value, resource_version: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(resource_version);
    object
}

fn cluster(group: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop()).with::<PodGroup>(group)
}

fn sync(mut cluster: RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(), key())
}

/// Proves PGP-20.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller();
    assert_eq!(controller.name, "podgroup-protection-controller");
    assert_eq!(controller.service_account, Some("podgroup-protection-controller"));
    assert!(crate::names::aliases_of(controller.name).is_empty() && controller.event_component.is_none());
    assert!(controller.metrics.is_empty() && controller.debug_handler.is_none());
    let updates: Vec<_> = controller.grants.iter().filter(|grant| grant.verbs.contains(&"update")).collect();
    assert_eq!(updates.iter().map(|grant| grant.resource).collect::<Vec<_>>(), ["podgroups"]);
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("podgroupprotection", 1, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    assert!(a_loop.starts_without.is_empty(), "both caches must be synced");
    assert_eq!(FINALIZER, "scheduling.k8s.io/podgroup-protection");
    assert_eq!(PodGroup::RESOURCE.api_version(), "scheduling.k8s.io/v1beta1");
}

/// Proves PGP-37, PGP-38.
#[test]
fn controller_exists_only_with_its_gate() {
    assert!(controller_if_enabled(PodGroupProtectionOptions::default()).is_none());
    let enabled = PodGroupProtectionOptions { enable_generic_workload: true };
    assert_eq!(controller_if_enabled(enabled).unwrap().name, "podgroup-protection-controller");
    let by_default = crate::all_controllers(&crate::ControllersOptions::default());
    let reads_groups = by_default.iter().flat_map(|one| &one.loops).flat_map(|one| &one.reads);
    assert!(reads_groups.into_iter().all(|kind| kind.resource().plural != "podgroups"));
}

/// Proves PGP-1, PGP-2, PGP-36.
#[test]
fn only_deleted_pod_groups_with_the_finalizer_are_enqueued() {
    let a_loop = the_loop();
    let enqueued = |group: Value| {
        let mut cluster = RehearsalCluster::of(&a_loop);
        let added = cluster.put::<PodGroup>(&a_loop, group.clone());
        assert_eq!(cluster.put::<PodGroup>(&a_loop, changed(group, "8")), added, "an update");
        assert!(cluster.take::<PodGroup>(&a_loop, &key()).is_empty(), "a deletion");
        added
    };
    assert_eq!(enqueued(deleted()), ["a/g"], "also in the initial list");
    assert!(enqueued(group(false, &[FINALIZER])).is_empty());
    assert!(enqueued(group(true, &["example.com/x"])).is_empty());
    assert!(enqueued(group(false, &[])).is_empty());
}

/// Proves PGP-3, PGP-4, PGP-6.
#[test]
fn only_terminal_and_deleted_pods_enqueue_their_pod_group() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    for (version, phase) in [("3", "Pending"), ("4", "Running"), ("5", "Unknown"), ("6", "")] {
        assert!(cluster.put::<Pod>(&a_loop, changed(pod("p", phase), version)).is_empty(), "{phase}");
    }
    for (version, phase) in [("7", "Succeeded"), ("8", "Succeeded"), ("9", "Failed")] {
        assert_eq!(cluster.put::<Pod>(&a_loop, changed(pod("p", phase), version)), ["a/g"], "{phase}");
    }
    assert_eq!(cluster.put::<Pod>(&a_loop, pod("q", "Failed")), ["a/g"], "an addition");
    assert_eq!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "p")), ["a/g"]);
    assert!(cluster.put::<Pod>(&a_loop, pod("r", "Running")).is_empty());
    assert_eq!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "r")), ["a/g"], "it may be the last one");
    // A relist that no longer shows the pod is a deletion like any other.
    let last: Pod = serde_json::from_value(pod("s", "Running")).unwrap();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(last.into())), ["a/g"]);
    let mut without = pod("w", "Succeeded");
    without["spec"] = json!({"containers": []});
    assert!(cluster.put::<Pod>(&a_loop, without).is_empty());
    assert!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "w")).is_empty());
}

/// Proves PGP-5.
#[test]
fn pod_that_replaces_another_enqueues_the_pod_group_of_both() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert!(cluster.put::<Pod>(&a_loop, pod("p", "Running")).is_empty());
    let mut other = changed(pod_of("a", "p", "h", "Running"), "4");
    other["metadata"]["uid"] = json!("another");
    assert_eq!(cluster.put::<Pod>(&a_loop, other), ["a/g"], "the new pod is active");
    let mut third = changed(pod_of("a", "p", "i", "Failed"), "5");
    third["metadata"]["uid"] = json!("third");
    assert_eq!(cluster.put::<Pod>(&a_loop, third), ["a/i", "a/h"]);
}

/// Proves PGP-7, PGP-8, PGP-30, PGP-33.
#[test]
fn missing_kept_and_foreign_pod_groups_need_nothing() {
    let a_loop = the_loop();
    let mut empty = RehearsalCluster::of(&a_loop);
    assert_eq!(empty.put::<Pod>(&a_loop, pod("p", "Succeeded")), ["a/g"]);
    assert_eq!(empty.reconcile(&a_loop, key()), "", "there is no such PodGroup");
    assert_eq!(sync(cluster(group(false, &[FINALIZER]))), "");
    assert_eq!(sync(cluster(group(false, &[]))), "", "the finalizer is never added");
    for foreign in [group(true, &[]), group(true, &["example.com/x"])] {
        assert_eq!(sync(cluster(foreign.clone())), "");
        assert_eq!(sync(cluster(foreign).with::<Pod>(pod("p", "Running"))), "");
    }
}

/// Proves PGP-9, PGP-11.
#[test]
fn active_pods_hold_a_deleted_pod_group_and_terminal_ones_do_not() {
    for phase in ["Pending", "Running", "Unknown", ""] {
        assert_eq!(sync(cluster(deleted()).with::<Pod>(pod("p", phase))), "", "{phase}");
        let mut terminating = pod("p", phase);
        terminating["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
        assert_eq!(sync(cluster(deleted()).with::<Pod>(terminating)), "", "terminating, {phase}");
    }
    for phase in ["Succeeded", "Failed"] {
        let mut kept = pod("p", phase);
        kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
        kept["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
        assert_eq!(sync(cluster(deleted()).with::<Pod>(kept)), REMOVED, "{phase}");
    }
}

/// Proves PGP-10, PGP-42.
#[test]
fn only_the_finalizer_is_removed() {
    let mut cluster = cluster(group(true, &["example.com/x", FINALIZER, "example.com/y", FINALIZER]));
    assert_eq!(cluster.reconcile(&the_loop(), key()), REMOVED);
    let after = cluster.live_object::<PodGroup>(&key()).expect("other finalizers keep it");
    assert_eq!(*after, group(true, &["example.com/x", "example.com/y"]));
}

/// Proves PGP-12, PGP-44.
#[test]
fn pods_are_matched_by_namespace_and_name() {
    let elsewhere = cluster(deleted())
        .with::<Pod>(pod_of("b", "p", "g", "Running"))
        .with::<Pod>(pod_of("a", "q", "other", "Running"));
    assert_eq!(sync(elsewhere), REMOVED);
    // A pod of an earlier PodGroup of this name holds the new one: a reference has no UID.
    let mut recreated = deleted();
    recreated["metadata"]["uid"] = json!("recreated");
    assert_eq!(sync(cluster(recreated).with::<Pod>(pod("p", "Running"))), "");
}

/// Proves PGP-13, PGP-39, PGP-40.
#[test]
fn caches_alone_decide() {
    let live_only = cluster(deleted()).with_live::<Pod>(pod("p", "Running"));
    assert_eq!(sync(live_only), REMOVED, "as in the original, there is no live list");
    // Another client has removed the finalizer, which the cache does not show.
    let behind = RehearsalCluster::of(&the_loop())
        .with_cached::<PodGroup>(deleted())
        .with_live::<PodGroup>(changed(group(true, &["example.com/x"]), "8"));
    assert!(sync(behind).ends_with("(resourceVersion changed)\n"));
}

/// Proves PGP-43.
#[test]
fn only_pods_count() {
    let claim = json!({"metadata": {"namespace": "a", "name": "c", "uid": "c", "resourceVersion": "4",
        "ownerReferences": [{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g",
            "uid": "u", "controller": true}]}});
    assert_eq!(sync(cluster(deleted()).with_live::<ResourceClaim>(claim)), REMOVED);
}

/// Proves PGP-31, PGP-32, PGP-35.
#[test]
fn pod_group_is_released_when_its_last_active_pod_ends() {
    let a_loop = the_loop();
    let mut cluster = cluster(deleted())
        .with::<Pod>(pod("done", "Succeeded"))
        .with::<Pod>(pod("one", "Running"))
        .with::<Pod>(pod("two", "Running"));
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    assert_eq!(cluster.put::<Pod>(&a_loop, changed(pod("one", "Failed"), "4")), ["a/g"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), "", "one is left");
    assert_eq!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "two")), ["a/g"]);
    assert_eq!(cluster.reconcile(&a_loop, key()), REMOVED);
    // A pod that comes afterwards does not bring the finalizer back.
    cluster.put::<PodGroup>(&a_loop, changed(group(true, &["example.com/x"]), "8"));
    assert!(cluster.put::<Pod>(&a_loop, pod("late", "Running")).is_empty());
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    // All pods ended before the deletion: the event of the PodGroup is enough.
    let mut ended = RehearsalCluster::of(&a_loop).with::<Pod>(pod("p", "Succeeded"));
    assert!(ended.put::<PodGroup>(&a_loop, group(false, &[FINALIZER])).is_empty());
    assert_eq!(ended.put::<PodGroup>(&a_loop, changed(deleted(), "8")), ["a/g"]);
    assert_eq!(ended.reconcile(&a_loop, key()), REMOVED);
}

/// Proves PGP-34.
#[test]
fn failed_update_is_retried_and_ends_with_the_pod_group() {
    let a_loop = the_loop();
    for reason in [ErrorReason::Conflict, ErrorReason::NotFound, ErrorReason::Unavailable] {
        let error = ApiError::transport(reason, "refused");
        let mut cluster = cluster(deleted()).failing::<PodGroup>("update", &key(), error);
        let transcript = cluster.reconcile(&a_loop, key());
        assert!(transcript.contains("retry: ") && transcript.ends_with("refused\n"), "{transcript}");
        cluster.take::<PodGroup>(&a_loop, &key());
        assert_eq!(cluster.reconcile(&a_loop, key()), "", "the cache shows its end");
    }
}
