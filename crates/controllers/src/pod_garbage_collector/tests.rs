//! What a pass does about pods and nodes, told step by step.

use std::collections::BTreeSet;

use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::Action;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::Value;

use super::*;

/// A world that is looked at pass by pass.
struct Passes {
    a_loop: Loop,
    world: RehearsalCluster,
}

fn passes(threshold: i32) -> Passes {
    let a_loop =
        controller(PodGarbageCollectorOptions { terminated_pod_threshold: threshold }).loops.remove(0);
    let world = RehearsalCluster::of(&a_loop);
    Passes { a_loop, world }
}

impl Passes {
    fn with<T: keleustes_objects::Kind>(mut self, json: Value) -> Self {
        self.world = self.world.with::<T>(json);
        self
    }

    fn refusing<T: keleustes_objects::Kind>(mut self, verb: &str, key: &Key, reason: ErrorReason) -> Self {
        self.world = self.world.failing::<T>(verb, key, ApiError::transport(reason, "refused"));
        self
    }

    fn pass(&mut self) -> String {
        let transcript = self.world.reconcile(&self.a_loop, Key::cluster("pass"));
        let told = transcript.strip_suffix("requeue after 20s\n").expect("the next pass");
        told.to_owned()
    }

    /// A pass, and another one when every quarantine is over.
    fn pass_twice(&mut self) -> (String, String) {
        let first = self.pass();
        self.world.advance_clock(Duration::from_secs(60));
        (first, self.pass())
    }
}

fn pod(name: &str, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": "1", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": "there"},
        "status": {"phase": phase},
    })
}

fn on(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod
}

fn terminating(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod
}

fn node(name: &str, ready: &str, taint: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// Which pods a transcript deletes, in order.
fn deleted(transcript: &str) -> Vec<&str> {
    let names = transcript.lines().filter_map(|line| line.strip_prefix("delete pods a/"));
    names.filter_map(|rest| rest.split(' ').next()).collect()
}

fn deletes(threshold: i32, objects: impl FnOnce(Passes) -> Passes) -> Vec<String> {
    let mut passes = objects(passes(threshold).with::<Node>(node("there", "True", "x")));
    let transcript = passes.pass();
    let names: BTreeSet<&str> = deleted(&transcript).into_iter().collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Proves PGC-1, PGC-2, PGC-40.
#[test]
fn it_is_one_pass_after_the_other_over_pods_and_nodes() {
    let controller = controller(PodGarbageCollectorOptions::default());
    assert_eq!((controller.name, controller.aliases), ("pod-garbage-collector-controller", &["podgc"][..]));
    assert_eq!(
        (controller.service_account, controller.event_component),
        (Some("pod-garbage-collector"), None)
    );
    let [a_loop] = &controller.loops[..] else { panic!("more than one loop") };
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["pods", "nodes"]);
    assert!(a_loop.watches.is_empty());
    assert_eq!((a_loop.workers, a_loop.initial_items.len()), (1, 1));
    // `pass` checks that the next one follows after twenty seconds.
    assert_eq!(passes(1).pass(), "");
}

/// Proves PGC-3.
#[test]
fn a_threshold_of_nothing_leaves_terminated_pods_alone() {
    assert_eq!(PodGarbageCollectorOptions::default().terminated_pod_threshold, 12_500);
    for threshold in [0, -1] {
        let terminated =
            |passes: Passes| passes.with::<Pod>(pod("x", "Failed")).with::<Pod>(pod("y", "Failed"));
        assert!(deletes(threshold, terminated).is_empty());
        let unscheduled = |passes: Passes| passes.with::<Pod>(on("", terminating(pod("x", "Pending"))));
        assert_eq!(deletes(threshold, unscheduled), ["x"]);
    }
}

/// Proves PGC-8.
#[test]
fn steps_come_in_order_and_no_pod_is_handled_twice() {
    let mut passes = passes(1)
        .with::<Node>(node("out", "False", "node.kubernetes.io/out-of-service"))
        .with::<Pod>(on("out", terminating(pod("both", "Failed"))))
        .with::<Pod>(on("out", terminating(pod("out", "Running"))))
        .with::<Pod>(on("gone", pod("orphan", "Running")))
        .with::<Pod>(on("", terminating(pod("unscheduled", "Pending"))))
        .with::<Pod>(on("", pod("young", "Succeeded")));
    let (first, second) = passes.pass_twice();
    assert_eq!(deleted(&first), ["both", "out", "unscheduled"]);
    // What was deleted is still cached here; the orphan has waited long enough.
    assert_eq!(deleted(&second), ["both", "out", "orphan", "unscheduled"]);
}

/// Proves PGC-10, PGC-51.
#[test]
fn whoever_is_not_pending_running_or_unknown_has_terminated() {
    let all = |passes: Passes| {
        ["Pending", "Running", "Unknown", "Succeeded", "Failed", ""]
            .iter()
            .enumerate()
            .fold(passes, |passes, (at, phase)| passes.with::<Pod>(pod(&format!("p{at}"), phase)))
            .with::<Pod>(terminating(pod("p6", "Failed")))
            .with::<Pod>({
                let mut young = pod("young", "Failed");
                young["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
                young
            })
    };
    assert_eq!(deletes(1, all), ["p3", "p4", "p5", "p6"]);
}

/// Proves PGC-11, PGC-12, PGC-50.
#[test]
fn the_surplus_goes_evicted_first_then_oldest_then_by_name() {
    let aged = |name: &str, phase: &str, day: u8| {
        let mut pod = pod(name, phase);
        pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-{day:02}T00:00:00Z"));
        pod
    };
    let three = |passes: Passes, c: Value| {
        passes.with::<Pod>(aged("a", "Failed", 1)).with::<Pod>(aged("b", "Succeeded", 2)).with::<Pod>(c)
    };
    assert_eq!(deletes(1, |passes| three(passes, aged("c", "Failed", 3))), ["a", "b"]);
    assert_eq!(deletes(3, |passes| three(passes, aged("c", "Failed", 3))), [""; 0]);
    let mut evicted = aged("c", "Failed", 3);
    evicted["status"]["reason"] = json!("Evicted");
    assert_eq!(deletes(2, |passes| three(passes, evicted)), ["c"]);
    // The reason alone is not enough.
    let mut succeeded = aged("c", "Succeeded", 3);
    succeeded["status"]["reason"] = json!("Evicted");
    assert_eq!(deletes(2, |passes| three(passes, succeeded)), ["a"]);
    let same_age = |passes: Passes| {
        ["z", "y", "x"].iter().fold(passes, |passes, name| passes.with::<Pod>(pod(name, "Failed")))
    };
    assert_eq!(deletes(2, same_age), ["x"]);
}

/// Proves PGC-13, PGC-32, PGC-36, PGC-37, PGC-41, PGC-42.
#[test]
fn one_failure_stops_nobody_else_and_is_counted() {
    let mut passes = passes(1);
    for name in ["x", "y", "z"] {
        passes = passes.with::<Pod>(on("", pod(name, "Failed")));
    }
    for reason in [ErrorReason::NotFound, ErrorReason::Conflict, ErrorReason::Unavailable] {
        passes = passes.refusing::<Pod>("delete", &Key::namespaced("a", "x"), reason);
        assert_eq!(
            passes.pass(),
            "delete pods a/x because there are too many terminated pods FAILED: refused\n\
             delete pods a/y because there are too many terminated pods\n\
             measure pod_gc_collector_force_delete_pods_total{a,terminated} 1\n\
             measure pod_gc_collector_force_delete_pod_errors_total{a,terminated} 1\n\
             measure pod_gc_collector_force_delete_pods_total{a,terminated} 1\n"
        );
    }
    let write = delete(&Arc::new(serde_json::from_value(pod("x", "Failed")).unwrap()), Why::Terminated);
    assert_eq!(write.target.uid.to_string(), "uid-x", "the life that was seen, and no other");
    assert!(matches!(
        write.action,
        Action::Delete { grace_seconds: Some(0), resource_version_precondition: None, .. }
    ));
}

/// Proves PGC-15, PGC-16, PGC-17.
#[test]
fn terminating_pods_go_from_nodes_that_are_out_of_service_and_not_ready() {
    const TAINT: &str = "node.kubernetes.io/out-of-service";
    for (ready, taint, is_terminating, goes) in [
        ("False", TAINT, true, true),
        ("Unknown", TAINT, true, true),
        ("True", TAINT, true, false),
        ("False", "node.kubernetes.io/unreachable", true, false),
        ("False", TAINT, false, false),
    ] {
        let with_pod = |passes: Passes| {
            let pod = on("n", pod("x", "Running"));
            let pod = if is_terminating { terminating(pod) } else { pod };
            passes.with::<Node>(node("n", ready, taint)).with::<Pod>(pod)
        };
        assert_eq!(!deletes(1, with_pod).is_empty(), goes, "{ready} {taint} {is_terminating}");
    }
    let mut silent = node("n", "", TAINT);
    silent["status"] = json!({});
    silent["spec"]["taints"][0]["effect"] = json!("NoSchedule");
    silent["spec"]["taints"][0]["value"] = json!("nodeshutdown");
    let on_silent =
        |passes: Passes| passes.with::<Node>(silent).with::<Pod>(on("n", terminating(pod("x", "Succeeded"))));
    assert_eq!(deletes(1, on_silent), ["x"]);
    let on_missing = |passes: Passes| passes.with::<Pod>(on("n", terminating(pod("x", "Running"))));
    assert!(deletes(1, on_missing).is_empty());
}

/// Proves PGC-18, PGC-30, PGC-35, PGC-52.
#[test]
fn a_pod_that_has_not_ended_is_first_said_to_have_failed() {
    let mut odd = on("n", terminating(pod("x", "Running")));
    odd["spec"]["containers"] = json!([{"name": "c", "env": [{"name": "A"}, {"name": "A"}]}]);
    let mut passes = passes(1)
        .with::<Node>(node("n", "False", "node.kubernetes.io/out-of-service"))
        .with::<Pod>(odd)
        .with::<Pod>(on("n", terminating(pod("y", "Running"))));
    assert_eq!(
        passes.pass(),
        "patch pods/status a/x because it is terminating on a node that is out of service: \
         {\"status\":{\"observedGeneration\":3,\"phase\":\"Failed\"}}\n\
         patch pods/status a/y because it is terminating on a node that is out of service: \
         {\"status\":{\"observedGeneration\":3,\"phase\":\"Failed\"}}\n\
         delete pods a/x because it is terminating on a node that is out of service\n\
         delete pods a/y because it is terminating on a node that is out of service\n\
         measure pod_gc_collector_force_delete_pods_total{a,out-of-service} 1\n\
         measure pod_gc_collector_force_delete_pods_total{a,out-of-service} 1\n"
    );
    let write = mark_failed(
        &Arc::new(serde_json::from_value(pod("x", "Running")).unwrap()),
        Why::OutOfService,
        Time::from_unix_seconds(0),
    );
    assert_eq!(write.target.uid.to_string(), "uid-x", "the executor puts it into the patch");
}

/// Proves PGC-30, PGC-32, PGC-37, PGC-49.
#[test]
fn who_cannot_be_said_to_have_failed_stays() {
    let mut passes = passes(1)
        .with::<Pod>(on("", terminating(pod("x", "Pending"))))
        .with::<Pod>(on("", terminating(pod("y", "Pending"))))
        .refusing::<Pod>("patch", &Key::namespaced("a", "x"), ErrorReason::Conflict);
    let told = passes.pass();
    assert_eq!(deleted(&told), ["y"]);
    assert!(told.contains("errors_total{a,unscheduled} 1"), "{told}");
    assert_eq!(told.matches("pods_total{a,unscheduled} 1").count(), 2);
    // The next pass tries again.
    assert!(passes.pass().contains("patch pods/status a/x"));
}

/// Proves PGC-20, PGC-21, PGC-22, PGC-23, PGC-24, PGC-38, PGC-47, PGC-48, PGC-55.
#[test]
fn pods_of_a_vanished_node_go_after_the_quarantine() {
    let mut passes = passes(100).with::<Pod>(on("gone", pod("x", "Running")));
    assert_eq!(passes.pass(), "");
    passes.world.advance_clock(Duration::from_secs(20));
    assert_eq!(passes.pass(), "");
    passes.world.advance_clock(Duration::from_secs(20));
    assert_eq!(
        passes.pass(),
        "get nodes gone\n\
         patch pods/status a/x because its node no longer exists: {\"status\":{\"conditions\":[\
         {\"lastTransitionTime\":\"2027-01-15T08:00:40Z\",\"message\":\"PodGC: node no longer exists\",\
         \"observedGeneration\":3,\"reason\":\"DeletionByPodGC\",\"status\":\"True\",\"type\":\"DisruptionTarget\"}],\
         \"observedGeneration\":3,\"phase\":\"Failed\"}}\n\
         delete pods a/x because its node no longer exists\n\
         measure pod_gc_collector_force_delete_pods_total{a,orphaned} 1\n"
    );
}

/// Proves PGC-25, PGC-45.
#[test]
fn an_orphan_that_has_ended_is_deleted_and_nothing_is_said_about_it() {
    let ended = |phase: &str| {
        let mut passes = passes(100).with::<Pod>(on("gone", terminating(pod("x", phase))));
        passes.pass_twice().1
    };
    for phase in ["Succeeded", "Failed"] {
        let told = ended(phase);
        assert!(!told.contains("patch") && deleted(&told) == ["x"], "{told}");
    }
}

/// Proves PGC-21, PGC-22, PGC-46.
#[test]
fn a_node_that_came_back_or_cannot_be_asked_for_keeps_its_pods() {
    let orphaned = || passes(100).with::<Pod>(on("gone", pod("x", "Running")));
    let mut cached_again = orphaned();
    cached_again.pass();
    cached_again.world.advance_clock(Duration::from_secs(60));
    cached_again = cached_again.with::<Node>(node("gone", "True", "x"));
    assert_eq!(cached_again.pass(), "");

    let mut only_live = orphaned();
    only_live.world = only_live.world.with_live::<Node>(node("gone", "True", "x"));
    assert_eq!(only_live.pass_twice().1, "get nodes gone\n");

    let mut silent = orphaned().refusing::<Node>("get", &Key::cluster("gone"), ErrorReason::Unavailable);
    assert_eq!(silent.pass_twice().1, "get nodes gone\n");
    // Another quarantine begins with the next pass.
    assert_eq!(silent.pass(), "");
    silent.world.advance_clock(Duration::from_secs(40));
    assert_eq!(silent.pass(), "get nodes gone\n");
}

/// Proves PGC-54.
#[test]
fn an_out_of_service_node_that_vanished_is_a_matter_of_quarantine() {
    let mut passes = passes(100).with::<Pod>(on("gone", terminating(pod("x", "Running"))));
    let (first, second) = passes.pass_twice();
    assert_eq!(first, "");
    assert!(second.contains("{a,orphaned}") && !second.contains("out-of-service"), "{second}");
}

/// Proves PGC-27, PGC-28.
#[test]
fn pods_that_were_deleted_before_they_were_bound_go() {
    let pods = |passes: Passes| {
        passes
            .with::<Pod>(on("", terminating(pod("pending", "Pending"))))
            .with::<Pod>(on("", terminating(pod("failed", "Failed"))))
            .with::<Pod>(on("", pod("waiting", "Pending")))
            .with::<Pod>(terminating(pod("bound", "Running")))
    };
    assert_eq!(deletes(100, pods), ["failed", "pending"]);
    let mut one = passes(100).with::<Pod>(on("", terminating(pod("pending", "Pending"))));
    let told = one.pass();
    assert!(told.contains("{\"status\":{\"observedGeneration\":3,\"phase\":\"Failed\"}}"), "{told}");
}

/// Proves PGC-31.
#[test]
fn a_condition_that_held_before_keeps_its_time() {
    let with_condition = |status: &str| {
        let mut pod = on("gone", pod("x", "Running"));
        pod["status"]["conditions"] = json!([{
            "type": "DisruptionTarget", "status": status, "reason": "Other",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        passes(100).with::<Pod>(pod).pass_twice().1
    };
    assert!(with_condition("True").contains("\"lastTransitionTime\":\"2026-01-01T00:00:00Z\""));
    assert!(with_condition("False").contains("\"lastTransitionTime\":\"2027-01-15T08:01:00Z\""));
}
