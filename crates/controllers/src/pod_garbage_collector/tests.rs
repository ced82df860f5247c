//! Collections over small clusters, step by step.

use std::collections::BTreeSet;

use keleustes_objects::{ApiError, DiscoveredResources, ErrorReason, Resource, TypeMeta};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{
    Action, Applied, BoxFuture, Effects, FetchResult, ListRequest, ListResult, ReadRequest, ReconcileIo,
    Step, View,
};
use serde_json::Value;

use super::*;

/// A cluster under test.
struct TestCluster {
    a_loop: Loop,
    rehearsal: RehearsalCluster,
}

fn test_cluster(threshold: i32) -> TestCluster {
    let a_loop =
        controller(PodGarbageCollectorOptions { terminated_pod_threshold: threshold }).loops.remove(0);
    let rehearsal = RehearsalCluster::of(&a_loop);
    TestCluster { a_loop, rehearsal }
}

impl TestCluster {
    fn with<T: keleustes_objects::Kind>(mut self, json: Value) -> Self {
        self.rehearsal = self.rehearsal.with::<T>(json);
        self
    }

    fn failing<T: keleustes_objects::Kind>(mut self, verb: &str, key: &Key, reason: ErrorReason) -> Self {
        self.rehearsal = self.rehearsal.failing::<T>(verb, key, ApiError::transport(reason, "refused"));
        self
    }

    fn collect(&mut self) -> String {
        let transcript = self.rehearsal.reconcile(&self.a_loop, Pass);
        let transcript = transcript.strip_suffix("requeue after 20s\n").expect("requeued");
        transcript.to_owned()
    }

    /// A collection, and another one after every quarantine is over.
    fn collect_twice(&mut self) -> (String, String) {
        let first = self.collect();
        self.rehearsal.advance_clock(Duration::from_secs(60));
        (first, self.collect())
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

/// The pods that a transcript deletes, in order.
fn deleted(transcript: &str) -> Vec<&str> {
    let names = transcript.lines().filter_map(|line| line.strip_prefix("delete pods a/"));
    names.filter_map(|rest| rest.split(' ').next()).collect()
}

fn deletes(threshold: i32, objects: impl FnOnce(TestCluster) -> TestCluster) -> Vec<String> {
    let mut cluster = objects(test_cluster(threshold).with::<Node>(node("there", "True", "x")));
    let transcript = cluster.collect();
    let names: BTreeSet<&str> = deleted(&transcript).into_iter().collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Proves PGC-1, PGC-2, PGC-40.
#[test]
fn controller_collects_repeatedly_over_pods_and_nodes() {
    let controller = controller(PodGarbageCollectorOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("pod-garbage-collector-controller", &["podgc"][..])
    );
    assert_eq!(
        (controller.service_account, controller.event_component),
        (Some("pod-garbage-collector"), None)
    );
    let [a_loop] = &controller.loops[..] else { panic!("more than one loop") };
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["pods", "nodes"]);
    assert!(a_loop.watches.is_empty());
    assert_eq!((a_loop.workers, a_loop.initial_items.len()), (1, 1));
    // `collect` checks that the next one follows after twenty seconds.
    assert_eq!(test_cluster(1).collect(), "");
}

/// Proves PGC-3.
#[test]
fn zero_threshold_keeps_all_terminated_pods() {
    assert_eq!(PodGarbageCollectorOptions::default().terminated_pod_threshold, 12_500);
    for threshold in [0, -1] {
        let terminated =
            |cluster: TestCluster| cluster.with::<Pod>(pod("x", "Failed")).with::<Pod>(pod("y", "Failed"));
        assert!(deletes(threshold, terminated).is_empty());
        let unscheduled =
            |cluster: TestCluster| cluster.with::<Pod>(on("", terminating(pod("x", "Pending"))));
        assert_eq!(deletes(threshold, unscheduled), ["x"]);
    }
}

/// Proves PGC-8.
#[test]
fn steps_run_in_order_and_handle_each_pod_once() {
    let mut cluster = test_cluster(1)
        .with::<Node>(node("out", "False", "node.kubernetes.io/out-of-service"))
        .with::<Pod>(on("out", terminating(pod("both", "Failed"))))
        .with::<Pod>(on("out", terminating(pod("out", "Running"))))
        .with::<Pod>(on("gone", pod("orphan", "Running")))
        .with::<Pod>(on("", terminating(pod("unscheduled", "Pending"))))
        .with::<Pod>(on("", pod("young", "Succeeded")));
    let (first, second) = cluster.collect_twice();
    assert_eq!(deleted(&first), ["both", "out", "unscheduled"]);
    // Deleted pods are still cached here; the quarantine of the orphan's node is over.
    assert_eq!(deleted(&second), ["both", "out", "orphan", "unscheduled"]);
}

/// Shows other caches as soon as a plan was applied.
struct ChangingCaches {
    caches: std::collections::VecDeque<RehearsalCluster>,
    deleted: Vec<String>,
}

impl ReconcileIo for ChangingCaches {
    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        f(&self.caches[0].view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let mut applied = Applied::default();
        for write in plan.steps().iter().flat_map(Step::writes) {
            self.deleted.push(write.target.key.name.to_string());
            applied.outcomes.push(Outcome::done());
        }
        if self.caches.len() > 1 {
            self.caches.pop_front();
        }
        Box::pin(async move { applied })
    }

    fn fetch<'a>(&'a mut self, _: &'a Resource, _: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        Box::pin(async { Vec::new() })
    }

    fn fetch_metadata<'a>(&'a mut self, _: &'a Resource, _: &'a Key) -> BoxFuture<'a, FetchResult> {
        unreachable!("not read by a collection")
    }

    fn resource_of<'a>(&'a mut self, _: &'a TypeMeta) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        unreachable!("not read by a collection")
    }

    fn effects(&mut self, _: Effects) {}

    fn list<'a>(&'a mut self, _: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        unreachable!("not read by a collection")
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        unreachable!("not read by a collection")
    }

    fn read<'a>(&'a mut self, _: &'a ReadRequest) -> BoxFuture<'a, FetchResult> {
        unreachable!("not read by a collection")
    }
}

/// Proves PGC-8, PGC-16.
#[test]
fn node_that_is_back_in_service_after_the_terminated_pods_are_deleted_keeps_its_pods() {
    let cluster = |ready: &str, taint: &str| {
        let cluster = test_cluster(1)
            .with::<Node>(node("n", ready, taint))
            .with::<Pod>(on("n", terminating(pod("x", "Running"))))
            .with::<Pod>(on("", pod("old", "Failed")))
            .with::<Pod>(on("", pod("older", "Failed")));
        cluster.rehearsal
    };
    let out = || cluster("False", "node.kubernetes.io/out-of-service");
    let deleted = |caches: [RehearsalCluster; 2]| {
        let a_loop = test_cluster(1).a_loop;
        let mut io = ChangingCaches { caches: caches.into(), deleted: Vec::new() };
        {
            let mut cx = Context::new(&mut io);
            let item = Pass.into();
            let collection = std::pin::pin!(a_loop.reconciler.reconcile_boxed(&mut cx, &item));
            let mut task = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(collection.poll(&mut task).is_ready());
        }
        io.deleted
    };
    assert_eq!(deleted([out(), out()]), ["old", "x", "x"], "set to failed and deleted");
    assert_eq!(deleted([out(), cluster("True", "")]), ["old"]);
}

/// Proves PGC-10, PGC-51.
#[test]
fn pods_not_pending_running_or_unknown_count_as_terminated() {
    let all = |cluster: TestCluster| {
        ["Pending", "Running", "Unknown", "Succeeded", "Failed", ""]
            .iter()
            .enumerate()
            .fold(cluster, |cluster, (at, phase)| cluster.with::<Pod>(pod(&format!("p{at}"), phase)))
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
fn pods_beyond_the_threshold_are_deleted_evicted_first_then_oldest_then_by_name() {
    let aged = |name: &str, phase: &str, day: u8| {
        let mut pod = pod(name, phase);
        pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-{day:02}T00:00:00Z"));
        pod
    };
    let three = |cluster: TestCluster, c: Value| {
        cluster.with::<Pod>(aged("a", "Failed", 1)).with::<Pod>(aged("b", "Succeeded", 2)).with::<Pod>(c)
    };
    assert_eq!(deletes(1, |cluster| three(cluster, aged("c", "Failed", 3))), ["a", "b"]);
    assert_eq!(deletes(3, |cluster| three(cluster, aged("c", "Failed", 3))), [""; 0]);
    let mut evicted = aged("c", "Failed", 3);
    evicted["status"]["reason"] = json!("Evicted");
    assert_eq!(deletes(2, |cluster| three(cluster, evicted)), ["c"]);
    // The reason without phase `Failed` is not enough.
    let mut succeeded = aged("c", "Succeeded", 3);
    succeeded["status"]["reason"] = json!("Evicted");
    assert_eq!(deletes(2, |cluster| three(cluster, succeeded)), ["a"]);
    let same_age = |cluster: TestCluster| {
        ["z", "y", "x"].iter().fold(cluster, |cluster, name| cluster.with::<Pod>(pod(name, "Failed")))
    };
    assert_eq!(deletes(2, same_age), ["x"]);
}

/// Proves PGC-13, PGC-32, PGC-36, PGC-37, PGC-41, PGC-42.
#[test]
fn failed_deletion_is_counted_and_does_not_stop_others() {
    let mut cluster = test_cluster(1);
    for name in ["x", "y", "z"] {
        cluster = cluster.with::<Pod>(on("", pod(name, "Failed")));
    }
    for reason in [ErrorReason::NotFound, ErrorReason::Conflict, ErrorReason::Unavailable] {
        cluster = cluster.failing::<Pod>("delete", &Key::namespaced("a", "x"), reason);
        assert_eq!(
            cluster.collect(),
            "delete pods a/x because there are too many terminated pods FAILED: refused\n\
             delete pods a/y because there are too many terminated pods\n\
             measure pod_gc_collector_force_delete_pods_total{a,terminated} 1\n\
             measure pod_gc_collector_force_delete_pod_errors_total{a,terminated} 1\n\
             measure pod_gc_collector_force_delete_pods_total{a,terminated} 1\n"
        );
    }
    let write =
        delete(&Arc::new(serde_json::from_value(pod("x", "Failed")).unwrap()), DeletionReason::Terminated);
    assert_eq!(write.target.uid.to_string(), "uid-x", "the UID is a precondition");
    assert!(matches!(
        write.action,
        Action::Delete { grace_seconds: Some(0), resource_version_precondition: None, .. }
    ));
}

/// Proves PGC-15, PGC-16, PGC-17.
#[test]
fn terminating_pods_on_unready_out_of_service_nodes_are_deleted() {
    const TAINT: &str = "node.kubernetes.io/out-of-service";
    for (ready, taint, is_terminating, is_deleted) in [
        ("False", TAINT, true, true),
        ("Unknown", TAINT, true, true),
        ("True", TAINT, true, false),
        ("False", "node.kubernetes.io/unreachable", true, false),
        ("False", TAINT, false, false),
    ] {
        let with_pod = |cluster: TestCluster| {
            let pod = on("n", pod("x", "Running"));
            let pod = if is_terminating { terminating(pod) } else { pod };
            cluster.with::<Node>(node("n", ready, taint)).with::<Pod>(pod)
        };
        assert_eq!(!deletes(1, with_pod).is_empty(), is_deleted, "{ready} {taint} {is_terminating}");
    }
    let mut unreadable = node("n", "", TAINT);
    unreadable["status"] = json!({});
    unreadable["spec"]["taints"][0]["effect"] = json!("NoSchedule");
    unreadable["spec"]["taints"][0]["value"] = json!("nodeshutdown");
    let on_silent = |cluster: TestCluster| {
        cluster.with::<Node>(unreadable).with::<Pod>(on("n", terminating(pod("x", "Succeeded"))))
    };
    assert_eq!(deletes(1, on_silent), ["x"]);
    let on_missing = |cluster: TestCluster| cluster.with::<Pod>(on("n", terminating(pod("x", "Running"))));
    assert!(deletes(1, on_missing).is_empty());
}

/// Proves PGC-18, PGC-30, PGC-35, PGC-52.
#[test]
fn non_terminal_pod_is_set_to_failed_first() {
    let mut odd = on("n", terminating(pod("x", "Running")));
    odd["spec"]["containers"] = json!([{"name": "c", "env": [{"name": "A"}, {"name": "A"}]}]);
    let mut cluster = test_cluster(1)
        .with::<Node>(node("n", "False", "node.kubernetes.io/out-of-service"))
        .with::<Pod>(odd)
        .with::<Pod>(on("n", terminating(pod("y", "Running"))));
    assert_eq!(
        cluster.collect(),
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
        DeletionReason::OutOfService,
        Time::from_unix_seconds(0),
    );
    assert_eq!(write.target.uid.to_string(), "uid-x", "the executor adds the UID to the patch");
}

/// Proves PGC-30, PGC-32, PGC-37, PGC-49.
#[test]
fn pod_whose_status_patch_fails_is_kept() {
    let mut cluster = test_cluster(1)
        .with::<Pod>(on("", terminating(pod("x", "Pending"))))
        .with::<Pod>(on("", terminating(pod("y", "Pending"))))
        .failing::<Pod>("patch", &Key::namespaced("a", "x"), ErrorReason::Conflict);
    let transcript = cluster.collect();
    assert_eq!(deleted(&transcript), ["y"]);
    assert!(transcript.contains("errors_total{a,unscheduled} 1"), "{transcript}");
    assert_eq!(transcript.matches("pods_total{a,unscheduled} 1").count(), 2);
    // The next collection tries again.
    assert!(cluster.collect().contains("patch pods/status a/x"));
}

/// Proves PGC-20, PGC-21, PGC-22, PGC-23, PGC-24, PGC-38, PGC-47, PGC-48, PGC-55.
#[test]
fn pods_of_a_deleted_node_are_deleted_after_the_quarantine() {
    let mut cluster = test_cluster(100).with::<Pod>(on("gone", pod("x", "Running")));
    assert_eq!(cluster.collect(), "");
    cluster.rehearsal.advance_clock(Duration::from_secs(20));
    assert_eq!(cluster.collect(), "");
    cluster.rehearsal.advance_clock(Duration::from_secs(20));
    assert_eq!(
        cluster.collect(),
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
fn terminal_orphan_is_deleted_without_status_patch() {
    let ended = |phase: &str| {
        let mut cluster = test_cluster(100).with::<Pod>(on("gone", terminating(pod("x", phase))));
        cluster.collect_twice().1
    };
    for phase in ["Succeeded", "Failed"] {
        let transcript = ended(phase);
        assert!(!transcript.contains("patch") && deleted(&transcript) == ["x"], "{transcript}");
    }
}

/// Proves PGC-21, PGC-22, PGC-46.
#[test]
fn pods_of_a_recreated_or_unreadable_node_are_kept() {
    let orphaned = || test_cluster(100).with::<Pod>(on("gone", pod("x", "Running")));
    let mut cached_again = orphaned();
    cached_again.collect();
    cached_again.rehearsal.advance_clock(Duration::from_secs(60));
    cached_again = cached_again.with::<Node>(node("gone", "True", "x"));
    assert_eq!(cached_again.collect(), "");

    let mut only_live = orphaned();
    only_live.rehearsal = only_live.rehearsal.with_live::<Node>(node("gone", "True", "x"));
    assert_eq!(only_live.collect_twice().1, "get nodes gone\n");

    let mut unreadable = orphaned().failing::<Node>("get", &Key::cluster("gone"), ErrorReason::Unavailable);
    assert_eq!(unreadable.collect_twice().1, "get nodes gone\n");
    // Another quarantine starts with the next collection.
    assert_eq!(unreadable.collect(), "");
    unreadable.rehearsal.advance_clock(Duration::from_secs(40));
    assert_eq!(unreadable.collect(), "get nodes gone\n");
}

/// Proves PGC-54.
#[test]
fn pods_of_a_deleted_out_of_service_node_wait_for_the_quarantine() {
    let mut cluster = test_cluster(100).with::<Pod>(on("gone", terminating(pod("x", "Running"))));
    let (first, second) = cluster.collect_twice();
    assert_eq!(first, "");
    assert!(second.contains("{a,orphaned}") && !second.contains("out-of-service"), "{second}");
}

/// Proves PGC-27, PGC-28.
#[test]
fn unbound_terminating_pods_are_deleted() {
    let pods = |cluster: TestCluster| {
        cluster
            .with::<Pod>(on("", terminating(pod("pending", "Pending"))))
            .with::<Pod>(on("", terminating(pod("failed", "Failed"))))
            .with::<Pod>(on("", pod("waiting", "Pending")))
            .with::<Pod>(terminating(pod("bound", "Running")))
    };
    assert_eq!(deletes(100, pods), ["failed", "pending"]);
    let mut one = test_cluster(100).with::<Pod>(on("", terminating(pod("pending", "Pending"))));
    let transcript = one.collect();
    assert!(
        transcript.contains("{\"status\":{\"observedGeneration\":3,\"phase\":\"Failed\"}}"),
        "{transcript}"
    );
}

/// Proves PGC-31.
#[test]
fn existing_condition_keeps_its_transition_time() {
    let with_condition = |status: &str| {
        let mut pod = on("gone", pod("x", "Running"));
        pod["status"]["conditions"] = json!([{
            "type": "DisruptionTarget", "status": status, "reason": "Other",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        test_cluster(100).with::<Pod>(pod).collect_twice().1
    };
    assert!(with_condition("True").contains("\"lastTransitionTime\":\"2026-01-01T00:00:00Z\""));
    assert!(with_condition("False").contains("\"lastTransitionTime\":\"2027-01-15T08:01:00Z\""));
}
