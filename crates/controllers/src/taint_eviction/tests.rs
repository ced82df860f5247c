//! Reconciles of one pod as it and the taints of its node change.

use keleustes_objects::{ApiError, Kind};
use keleustes_plan::Action;
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::rehearsal::is_retried_because;
use serde_json::Value;

use super::*;

const DELETES: &str =
    "delete pods a/x because it does not, or no longer, tolerate a NoExecute taint of its node\n";
const MARKING: &str = "event Normal TaintManagerEviction on Pod a/x uid=: Marking for deletion Pod a/x\n";
const CANCELS: &str = "event Normal TaintManagerEviction on Pod a/x uid=: Cancelling deletion of Pod a/x\n";
const COUNTS: &str = "measure taint_eviction_controller_pod_deletions_total{} 1\n\
                      measure taint_eviction_controller_pod_deletion_duration_seconds{} 0\n";

struct TestCluster {
    a_loop: Loop,
    rehearsal: RehearsalCluster,
    version: u32,
}

/// Pod `a/x` with these tolerations, on node `n` with these taints.
fn test_cluster(taints: &Value, tolerations: &Value) -> TestCluster {
    let a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    let rehearsal = RehearsalCluster::of(&a_loop);
    let mut cluster = TestCluster { a_loop, rehearsal, version: 0 };
    cluster.put::<Node>(node("n", taints));
    cluster.put::<Pod>(pod("x", tolerations));
    cluster
}

impl TestCluster {
    /// Puts an object into the cache and returns the enqueued items.
    fn put<T: Kind>(&mut self, mut json: Value) -> Vec<String> {
        self.version += 1;
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.rehearsal.put::<T>(&self.a_loop, json)
    }

    fn reconcile(&mut self) -> String {
        self.rehearsal.reconcile(&self.a_loop, Key::namespaced("a", "x"))
    }

    fn later(&mut self, seconds: u64) -> &mut Self {
        self.rehearsal.advance_clock(Duration::from_secs(seconds));
        self
    }

    fn failing(mut self, verb: &str, reason: ErrorReason) -> Self {
        let (key, failure) = (Key::namespaced("a", "x"), ApiError::transport(reason, "refused"));
        self.rehearsal = self.rehearsal.failing::<Pod>(verb, &key, failure);
        self
    }
}

fn node(name: &str, taints: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}})
}

fn pod(name: &str, tolerations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": "uid-1", "generation": 4},
        "spec": {"nodeName": "n", "tolerations": tolerations},
    })
}

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "NoExecute"})
}

fn tolerates(key: &str, seconds: Option<i64>) -> Value {
    json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds})
}

/// The transcript of an eviction.
fn evicts() -> String {
    format!("{MARKING}{}{DELETES}{COUNTS}", patches())
}

fn patches() -> String {
    "patch pods/status a/x because it does not, or no longer, tolerate a NoExecute taint of its node: \
     {\"status\":{\"conditions\":[{\"lastTransitionTime\":\"2027-01-15T08:00:00Z\",\
     \"message\":\"Taint manager: deleting due to NoExecute taint\",\"observedGeneration\":4,\
     \"reason\":\"DeletionByTaintManager\",\"status\":\"True\",\"type\":\"DisruptionTarget\"}]}}\n"
        .to_owned()
}

/// Proves TE-1, TE-6, TE-26, TE-35, TE-38.
#[test]
fn controller_has_upstreams_names() {
    let controller = controller(TaintEvictionOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("taint-eviction-controller", &[][..])
    );
    assert_eq!(controller.service_account, Some("node-controller"));
    assert_eq!(controller.event_component, Some("taint-eviction-controller"));
    let [a_loop] = &controller.loops[..] else { panic!("more than one loop") };
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["pods", "nodes"]);
    assert_eq!(a_loop.indexes[0].name, "spec.nodeName");
    // It starts when both caches are synced.
    assert_eq!((a_loop.workers, a_loop.starts_without.len()), (32, 0));
    assert!(controller.debug_handler.is_none() && controller.observer.is_none());
    // Neither PodDisruptionBudgets nor the eviction API: the pods are deleted.
    let writes: Vec<_> = controller.grants.iter().map(|grant| (grant.group, grant.resource)).collect();
    assert!(writes.contains(&("", "pods")) && !writes.contains(&("", "pods/eviction")), "{writes:?}");
    assert!(writes.iter().all(|(group, _)| *group != "policy"), "{writes:?}");
}

/// Proves TE-2, TE-9, TE-10, TE-14.
#[test]
fn changed_node_taints_enqueue_the_pods_of_the_node() {
    let mut cluster = test_cluster(&json!([]), &json!([]));
    cluster.put::<Pod>(pod("y", &json!([])));
    let mut elsewhere = pod("z", &json!([]));
    elsewhere["spec"]["nodeName"] = json!("m");
    cluster.put::<Pod>(elsewhere);
    let mut put = |taints: Value| cluster.put::<Node>(node("n", &taints));
    assert!(put(json!([{"key": "a", "effect": "NoSchedule"}])).is_empty());
    assert_eq!(put(json!([taint("a")])), ["a/x", "a/y"]);
    assert!(put(json!([taint("a"), {"key": "b", "effect": "NoSchedule"}])).is_empty());
    let at = |time: &str| json!({"key": "a", "effect": "NoExecute", "timeAdded": time});
    assert_eq!(put(json!([at("2026-01-01T00:00:00Z")])), ["a/x", "a/y"]);
    assert_eq!(put(json!([at("2026-01-02T00:00:00Z")])), ["a/x", "a/y"], "also if only timeAdded changed");
    assert_eq!(put(json!([taint("a"), taint("b")])), ["a/x", "a/y"]);
    assert_eq!(put(json!([taint("b"), taint("a")])), ["a/x", "a/y"], "also if only the order changed");
    // No eviction is scheduled, so none has to be cancelled.
    assert!(put(json!([])).is_empty());
}

/// Proves TE-3, TE-45.
#[test]
fn pod_is_enqueued_on_creation_deletion_binding_and_changed_tolerations() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([]));
    let mut unbound = pod("y", &json!([]));
    unbound["spec"]["nodeName"] = json!("");
    assert!(cluster.put::<Pod>(unbound).is_empty());
    assert_eq!(cluster.put::<Pod>(pod("y", &json!([]))), ["a/y"], "it was bound");
    let mut same = pod("y", &json!([]));
    same["metadata"]["labels"] = json!({"a": "b"});
    same["status"] = json!({"phase": "Running"});
    assert!(cluster.put::<Pod>(same).is_empty());
    assert_eq!(cluster.put::<Pod>(pod("y", &json!([tolerates("a", Some(60))]))), ["a/y"]);
    let mut recreated = pod("y", &json!([tolerates("a", Some(60))]));
    recreated["metadata"]["uid"] = json!("uid-2");
    assert_eq!(cluster.put::<Pod>(recreated), ["a/y"]);
    // The deletion of a pod without scheduled eviction enqueues nothing.
    let a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    assert!(cluster.rehearsal.take::<Pod>(&a_loop, &Key::namespaced("a", "y")).is_empty());
    cluster.put::<Pod>(pod("x", &json!([tolerates("a", Some(60))])));
    cluster.reconcile();
    assert_eq!(cluster.rehearsal.take::<Pod>(&cluster.a_loop, &Key::namespaced("a", "x")), ["a/x"]);
}

/// Proves TE-18, TE-24, TE-28, TE-33, TE-36, TE-37, TE-49.
#[test]
fn pod_without_toleration_is_evicted_immediately() {
    assert_eq!(test_cluster(&json!([taint("a")]), &json!([])).reconcile(), evicts());
    assert_eq!(
        test_cluster(&json!([taint("a"), taint("b")]), &json!([tolerates("a", None)])).reconcile(),
        evicts()
    );
    assert_eq!(test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(0))])).reconcile(), evicts());
    assert_eq!(
        DELETION_DURATION.metric_type,
        keleustes_plan::MetricType::Histogram(Buckets::Explicit(&[
            0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0
        ]))
    );
}

/// Proves TE-27, TE-26.
#[test]
fn all_pods_are_treated_alike() {
    let mut odd = pod("x", &json!([]));
    odd["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "m"});
    odd["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    odd["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([]));
    cluster.put::<Pod>(odd);
    assert_eq!(cluster.reconcile(), evicts());
}

/// Proves TE-29, TE-31, TE-47.
#[test]
fn condition_is_written_once_and_both_writes_have_uid_preconditions() {
    let mut marked = pod("x", &json!([]));
    marked["status"] = json!({"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": REASON, "message": MESSAGE,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let mut there = test_cluster(&json!([taint("a")]), &json!([]));
    there.put::<Pod>(marked.clone());
    assert_eq!(there.reconcile(), format!("{MARKING}{DELETES}{COUNTS}"));
    marked["status"]["conditions"][0]["reason"] = json!("PreemptionByScheduler");
    let mut by_another = test_cluster(&json!([taint("a")]), &json!([]));
    by_another.put::<Pod>(marked.clone());
    let transcript = by_another.reconcile();
    assert!(transcript.contains("\"lastTransitionTime\":\"2026-01-01T00:00:00Z\""), "{transcript}");
    let pod: Pod = serde_json::from_value(marked).unwrap();
    let [patch, delete] = &writes(&Arc::new(pod), Time::from_unix_seconds(0))[..] else {
        panic!("two writes")
    };
    assert_eq!([patch, delete].map(|write| write.target.uid.to_string()), ["uid-1", "uid-1"]);
    assert!(matches!(
        delete.action,
        Action::Delete { propagation: None, grace_seconds: None, resource_version_precondition: None }
    ));
}

/// Proves TE-21, TE-22, TE-23, TE-42.
#[test]
fn first_toleration_period_is_kept() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(300))]));
    assert_eq!(cluster.reconcile(), "requeue after 300s\n");
    for seconds in [20, 3000] {
        cluster.put::<Pod>(pod("x", &json!([tolerates("a", Some(seconds)), tolerates("b", Some(5))])));
        assert_eq!(
            cluster.later(10).reconcile(),
            format!("requeue after {}s\n", if seconds == 20 { 290 } else { 280 })
        );
    }
    cluster.put::<Node>(node("n", &json!([taint("a"), taint("b")])));
    assert_eq!(
        cluster.reconcile(),
        "requeue after 280s\n",
        "a shorter toleration does not shorten the period"
    );
    cluster.put::<Node>(node("n", &json!([taint("a"), taint("c")])));
    let transcript = cluster.reconcile();
    assert!(
        transcript.starts_with(&format!("{CANCELS}{MARKING}")),
        "an untolerated taint does: {transcript}"
    );
}

/// Proves TE-21, TE-37, TE-49.
#[test]
fn pod_is_evicted_when_its_toleration_period_ends() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    assert_eq!(cluster.reconcile(), "requeue after 60s\n");
    assert_eq!(cluster.later(59).reconcile(), "requeue after 1s\n");
    let transcript = cluster.later(3).reconcile();
    assert!(transcript.starts_with(MARKING) && transcript.contains(DELETES), "{transcript}");
    assert!(
        transcript.ends_with("measure taint_eviction_controller_pod_deletion_duration_seconds{} 2\n"),
        "{transcript}"
    );
    // It is terminating and still exists; another reconcile starts another period.
    assert_eq!(cluster.reconcile(), "requeue after 60s\n");
}

/// Proves TE-9, TE-19, TE-34, TE-40, TE-41, TE-53.
#[test]
fn eviction_is_cancelled_when_all_taints_are_tolerated() {
    let tolerations = json!([tolerates("a", Some(60)), tolerates("b", None)]);
    let mut cluster = test_cluster(&json!([taint("a"), taint("b")]), &tolerations);
    assert_eq!(cluster.reconcile(), "requeue after 60s\n");
    assert_eq!(cluster.later(30).put::<Node>(node("n", &json!([taint("b")]))), ["a/x"]);
    assert_eq!(cluster.reconcile(), CANCELS);
    assert_eq!(cluster.reconcile(), "");
    cluster.put::<Node>(node("n", &json!([taint("a")])));
    assert_eq!(cluster.reconcile(), "requeue after 60s\n", "the full period again");
    assert_eq!(cluster.put::<Node>(node("n", &json!([]))), ["a/x"]);
    assert_eq!(cluster.reconcile(), CANCELS);
    cluster.put::<Node>(node("n", &json!([taint("a")])));
    assert_eq!(cluster.reconcile(), "requeue after 60s\n");
    cluster.put::<Pod>(pod("x", &json!([tolerates("a", None)])));
    assert_eq!(cluster.reconcile(), CANCELS);
}

/// Proves TE-43.
#[test]
fn swapped_taints_keep_the_toleration_period() {
    let (not_ready, unreachable) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
    let tolerations = json!([tolerates(not_ready, Some(300)), tolerates(unreachable, Some(300))]);
    let mut cluster = test_cluster(&json!([taint(not_ready)]), &tolerations);
    cluster.reconcile();
    cluster.later(100).put::<Node>(node("n", &json!([taint(not_ready), taint(unreachable)])));
    assert_eq!(cluster.reconcile(), "requeue after 200s\n");
    cluster.put::<Node>(node("n", &json!([taint(unreachable)])));
    assert_eq!(cluster.reconcile(), "requeue after 200s\n");
    cluster.put::<Node>(node("n", &json!([taint(not_ready)])));
    assert_eq!(cluster.reconcile(), "requeue after 200s\n");
}

/// Proves TE-8, TE-48.
#[test]
fn deleted_node_does_not_cancel_the_eviction() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    cluster.reconcile();
    assert!(cluster.rehearsal.take::<Node>(&cluster.a_loop, &Key::cluster("n")).is_empty());
    assert_eq!(cluster.later(20).reconcile(), "requeue after 40s\n");
    assert!(cluster.later(40).reconcile().contains(DELETES));
    assert_eq!(cluster.reconcile(), "", "no new eviction is scheduled");
}

/// Proves TE-2, TE-9, TE-40.
#[test]
fn node_that_returns_without_the_taint_cancels_evictions() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    cluster.put::<Pod>(pod("unscheduled", &json!([tolerates("a", None)])));
    assert_eq!(cluster.reconcile(), "requeue after 60s\n");
    cluster.rehearsal.take::<Node>(&cluster.a_loop, &Key::cluster("n"));
    assert!(cluster.later(20).put::<Node>(node("m", &json!([]))).is_empty(), "another node");
    let returned = cluster.put::<Node>(node("n", &json!([{"key": "a", "effect": "NoSchedule"}])));
    assert_eq!(returned, ["a/x"], "only the pod with a scheduled eviction");
    assert_eq!(cluster.reconcile(), CANCELS);
    assert_eq!(cluster.later(60).reconcile(), "");
    assert_eq!(cluster.put::<Node>(node("n", &json!([taint("a")]))), ["a/unscheduled", "a/x"]);
    assert_eq!(cluster.reconcile(), "requeue after 60s\n", "the full period again");
}

/// Proves TE-2.
#[test]
fn node_that_returns_with_the_taint_keeps_the_toleration_period() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    cluster.reconcile();
    cluster.rehearsal.take::<Node>(&cluster.a_loop, &Key::cluster("n"));
    assert_eq!(cluster.later(20).put::<Node>(node("n", &json!([taint("a")]))), ["a/x"]);
    assert_eq!(cluster.reconcile(), "requeue after 40s\n");
}

/// Proves TE-11, TE-46.
#[test]
fn deleted_pod_cancels_its_eviction() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    cluster.reconcile();
    assert_eq!(cluster.rehearsal.take::<Pod>(&cluster.a_loop, &Key::namespaced("a", "x")), ["a/x"]);
    assert_eq!(cluster.reconcile(), CANCELS);
    assert_eq!(cluster.reconcile(), "");
}

/// Proves TE-47.
#[test]
fn recreated_pod_has_its_own_toleration_period() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    cluster.reconcile();
    let mut recreated = pod("x", &json!([tolerates("a", Some(60))]));
    recreated["metadata"]["uid"] = json!("uid-2");
    cluster.later(50).put::<Pod>(recreated);
    assert_eq!(cluster.reconcile(), format!("{CANCELS}requeue after 60s\n"));
}

/// Proves TE-12, TE-13.
#[test]
fn only_the_taints_of_the_pods_node_count() {
    let mut unbound = pod("x", &json!([]));
    unbound["spec"]["nodeName"] = json!("");
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([]));
    cluster.put::<Pod>(unbound);
    assert_eq!(cluster.reconcile(), "");
    let mut elsewhere = pod("x", &json!([]));
    elsewhere["spec"]["nodeName"] = json!("m");
    cluster.put::<Pod>(elsewhere.clone());
    assert_eq!(cluster.reconcile(), "", "that node is not cached");
    cluster.put::<Node>(node("m", &json!([{"key": "a", "effect": "NoSchedule"}])));
    assert_eq!(cluster.reconcile(), "");
    cluster.put::<Node>(node("m", &json!([taint("b")])));
    assert!(cluster.reconcile().contains(DELETES));
}

/// Proves TE-39.
#[test]
fn new_leader_starts_the_full_toleration_period() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    cluster.reconcile();
    cluster.later(59);
    cluster.a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    assert_eq!(cluster.reconcile(), "requeue after 60s\n");
}

/// Proves TE-4, TE-24, TE-30, TE-44.
#[test]
fn eviction_is_retried_until_done_and_recorded_once() {
    let failed =
        |before: &str, write: &str| format!("{before}{write} FAILED: refused\nretry: {write}: refused\n");
    let a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    assert_eq!(
        (a_loop.queue, a_loop.max_retries, a_loop.rate_limiter),
        ("noexec_taint_pod", None, RETRY_BACKOFF)
    );
    assert_eq!(RETRY_BACKOFF.base_delay, Duration::from_millis(10));
    for (verb, transcript) in [
        ("patch", failed("", patches().split(": {").next().unwrap())),
        ("delete", failed(&patches(), DELETES.trim_end())),
    ] {
        let mut cluster =
            test_cluster(&json!([taint("a")]), &json!([])).failing(verb, ErrorReason::Unavailable);
        assert_eq!(cluster.reconcile(), format!("{MARKING}{transcript}"));
        for _ in 2..=10 {
            assert_eq!(cluster.reconcile(), transcript);
        }
        cluster.put::<Node>(node("n", &json!([])));
        assert_eq!(cluster.reconcile(), "", "its deletion was already attempted, so nothing is cancelled");
    }
}

#[test]
fn toleration_added_while_an_eviction_is_retried_starts_its_period() {
    let no_toleration = || test_cluster(&json!([taint("a")]), &json!([]));
    let mut cluster = no_toleration().failing("delete", ErrorReason::Unavailable);
    assert!(is_retried_because(&cluster.reconcile(), "refused"));
    assert_eq!(cluster.put::<Pod>(pod("x", &json!([tolerates("a", Some(60))]))), ["a/x"]);
    assert_eq!(cluster.reconcile(), "requeue after 60s\n", "nothing was scheduled, so nothing is cancelled");
    assert_eq!(cluster.later(59).reconcile(), "requeue after 1s\n");
    let transcript = cluster.later(1).reconcile();
    assert!(transcript.starts_with(MARKING) && is_retried_because(&transcript, "refused"), "{transcript}");
    // The period has ended; the same toleration, or a shorter one, does not start another.
    for seconds in [60, 30] {
        cluster.put::<Pod>(pod("x", &json!([tolerates("a", Some(seconds))])));
        let transcript = cluster.later(1).reconcile();
        assert!(transcript.contains("delete") && !transcript.contains(MARKING), "{seconds}: {transcript}");
    }
    // Nor does a node that is not cached.
    cluster.rehearsal.take::<Node>(&cluster.a_loop, &Key::cluster("n"));
    assert!(cluster.reconcile().contains("delete"));
    cluster.put::<Node>(node("n", &json!([taint("a")])));
    assert!(cluster.reconcile().contains("delete"));
    cluster.put::<Pod>(pod("x", &json!([tolerates("a", None)])));
    assert_eq!(cluster.reconcile(), "", "tolerated forever");
    assert_eq!(cluster.later(100).reconcile(), "");
}

#[test]
fn toleration_extended_before_the_first_attempt_does_not_stop_the_retries() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(60))]))
        .failing("delete", ErrorReason::Unavailable);
    cluster.reconcile();
    cluster.put::<Pod>(pod("x", &json!([tolerates("a", Some(600))])));
    assert_eq!(cluster.later(10).reconcile(), "requeue after 50s\n", "the first period is kept");
    assert!(is_retried_because(&cluster.later(50).reconcile(), "refused"));
    assert!(is_retried_because(&cluster.later(1).reconcile(), "refused"));
}

/// Proves TE-32.
#[test]
fn not_found_ends_the_eviction() {
    for verb in ["patch", "delete"] {
        let transcript =
            test_cluster(&json!([taint("a")]), &json!([])).failing(verb, ErrorReason::NotFound).reconcile();
        assert!(transcript.ends_with("FAILED: refused\n"), "not retried, not counted: {transcript}");
    }
    // A conflict may mean that the pod was recreated; the new pod is enqueued when it is cached.
    let transcript =
        test_cluster(&json!([taint("a")]), &json!([])).failing("delete", ErrorReason::Conflict).reconcile();
    assert!(is_retried_because(&transcript, "refused"), "{transcript}");
}

/// Proves TE-19.
#[test]
fn very_long_toleration_is_requeued_daily() {
    let mut cluster = test_cluster(&json!([taint("a")]), &json!([tolerates("a", Some(i64::MAX))]));
    assert_eq!(cluster.reconcile(), "requeue after 86400s\n");
    assert_eq!(cluster.later(86_400).reconcile(), "requeue after 86400s\n");
}

/// Proves TE-16.
#[test]
fn comparison_operators_need_the_feature_gate() {
    let transcript = |enable_comparison_operators: bool| {
        let taint = json!([{"key": "a", "value": "5", "effect": "NoExecute"}]);
        let toleration = json!([{"key": "a", "operator": "Lt", "value": "10"}]);
        let mut cluster = test_cluster(&taint, &toleration);
        cluster.a_loop = controller(TaintEvictionOptions { enable_comparison_operators }).loops.remove(0);
        cluster.reconcile()
    };
    assert_eq!((transcript(false), transcript(true)), (evicts(), String::new()));
}
