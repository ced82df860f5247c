//! What is done about one pod as it and the taints of its node change, turn by turn.

use keleustes_objects::{ApiError, Kind};
use keleustes_plan::Action;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::Value;

use super::*;

const DELETES: &str = "delete pods a/x because its node has a taint that it does not tolerate any longer\n";
const MARKS: &str = "event Normal TaintManagerEviction: Marking for deletion Pod a/x\n";
const CANCELS: &str = "event Normal TaintManagerEviction: Cancelling deletion of Pod a/x\n";
const COUNTS: &str = "measure taint_eviction_controller_pod_deletions_total{} 1\n\
                      measure taint_eviction_controller_pod_deletion_duration_seconds{} 0\n";

struct Stage {
    a_loop: Loop,
    world: RehearsalCluster,
    version: u32,
}

/// Pod `a/x` with these tolerations, on node `n` with these taints.
fn stage(taints: &Value, tolerations: &Value) -> Stage {
    let a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    let world = RehearsalCluster::of(&a_loop);
    let mut stage = Stage { a_loop, world, version: 0 };
    stage.put::<Node>(node("n", taints));
    stage.put::<Pod>(pod("x", tolerations));
    stage
}

impl Stage {
    /// Shows an object and tells the items it wakes.
    fn put<T: Kind>(&mut self, mut json: Value) -> Vec<String> {
        self.version += 1;
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.world.put::<T>(&self.a_loop, json)
    }

    fn turn(&mut self) -> String {
        self.world.reconcile(&self.a_loop, Key::namespaced("a", "x"))
    }

    fn later(&mut self, seconds: u64) -> &mut Self {
        self.world.advance_clock(Duration::from_secs(seconds));
        self
    }

    fn refusing(mut self, verb: &str, reason: ErrorReason) -> Self {
        let (key, failure) = (Key::namespaced("a", "x"), ApiError::transport(reason, "refused"));
        self.world = self.world.failing::<Pod>(verb, &key, failure);
        self
    }
}

fn node(name: &str, taints: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}})
}

fn pod(name: &str, tolerations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": "life-1", "generation": 4},
        "spec": {"nodeName": "n", "tolerations": tolerations},
    })
}

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "NoExecute"})
}

fn tolerates(key: &str, seconds: Option<i64>) -> Value {
    json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds})
}

/// Everything that is done when a pod goes.
fn evicts() -> String {
    format!("{MARKS}{}{DELETES}{COUNTS}", patches())
}

fn patches() -> String {
    "patch pods/status a/x because its node has a taint that it does not tolerate any longer: \
     {\"status\":{\"conditions\":[{\"lastTransitionTime\":\"2027-01-15T08:00:00Z\",\
     \"message\":\"Taint manager: deleting due to NoExecute taint\",\"observedGeneration\":4,\
     \"reason\":\"DeletionByTaintManager\",\"status\":\"True\",\"type\":\"DisruptionTarget\"}]}}\n"
        .to_owned()
}

/// Proves TE-1, TE-6, TE-35, TE-38.
#[test]
fn it_is_known_by_the_original_s_names() {
    let controller = controller(TaintEvictionOptions::default());
    assert_eq!((controller.name, controller.aliases), ("taint-eviction-controller", &[][..]));
    assert_eq!(controller.service_account, Some("node-controller"));
    assert_eq!(controller.event_component, Some("taint-eviction-controller"));
    let [a_loop] = &controller.loops[..] else { panic!("more than one loop") };
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["pods", "nodes"]);
    assert_eq!(a_loop.indexes[0].name, "spec.nodeName");
}

/// Proves TE-2, TE-9, TE-10, TE-14.
#[test]
fn a_change_of_a_node_s_taints_wakes_its_pods() {
    let mut stage = stage(&json!([]), &json!([]));
    stage.put::<Pod>(pod("y", &json!([])));
    let mut elsewhere = pod("z", &json!([]));
    elsewhere["spec"]["nodeName"] = json!("m");
    stage.put::<Pod>(elsewhere);
    let mut put = |taints: Value| stage.put::<Node>(node("n", &taints));
    assert!(put(json!([{"key": "a", "effect": "NoSchedule"}])).is_empty());
    assert_eq!(put(json!([taint("a")])), ["a/x", "a/y"]);
    assert!(put(json!([taint("a"), {"key": "b", "effect": "NoSchedule"}])).is_empty());
    let at = |time: &str| json!({"key": "a", "effect": "NoExecute", "timeAdded": time});
    assert_eq!(put(json!([at("2026-01-01T00:00:00Z")])), ["a/x", "a/y"]);
    assert_eq!(put(json!([at("2026-01-02T00:00:00Z")])), ["a/x", "a/y"], "also another time");
    assert_eq!(put(json!([taint("a"), taint("b")])), ["a/x", "a/y"]);
    assert_eq!(put(json!([taint("b"), taint("a")])), ["a/x", "a/y"], "also another order");
    // Nobody waits, so nobody has to hear that there is nothing to wait for any more.
    assert!(put(json!([])).is_empty());
}

/// Proves TE-3, TE-45.
#[test]
fn a_pod_wakes_itself_by_coming_going_moving_and_tolerating_otherwise() {
    let mut stage = stage(&json!([taint("a")]), &json!([]));
    let mut unbound = pod("y", &json!([]));
    unbound["spec"]["nodeName"] = json!("");
    assert!(stage.put::<Pod>(unbound).is_empty());
    assert_eq!(stage.put::<Pod>(pod("y", &json!([]))), ["a/y"], "it was bound");
    let mut same = pod("y", &json!([]));
    same["metadata"]["labels"] = json!({"a": "b"});
    same["status"] = json!({"phase": "Running"});
    assert!(stage.put::<Pod>(same).is_empty());
    assert_eq!(stage.put::<Pod>(pod("y", &json!([tolerates("a", Some(60))]))), ["a/y"]);
    let mut another_life = pod("y", &json!([tolerates("a", Some(60))]));
    another_life["metadata"]["uid"] = json!("life-2");
    assert_eq!(stage.put::<Pod>(another_life), ["a/y"]);
    // One that never waited may go in peace.
    let a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    assert!(stage.world.take::<Pod>(&a_loop, &Key::namespaced("a", "y")).is_empty());
    stage.put::<Pod>(pod("x", &json!([tolerates("a", Some(60))])));
    stage.turn();
    assert_eq!(stage.world.take::<Pod>(&stage.a_loop, &Key::namespaced("a", "x")), ["a/x"]);
}

/// Proves TE-18, TE-24, TE-28, TE-33, TE-36, TE-37, TE-49.
#[test]
fn who_does_not_tolerate_goes_at_once() {
    assert_eq!(stage(&json!([taint("a")]), &json!([])).turn(), evicts());
    assert_eq!(stage(&json!([taint("a"), taint("b")]), &json!([tolerates("a", None)])).turn(), evicts());
    assert_eq!(stage(&json!([taint("a")]), &json!([tolerates("a", Some(0))])).turn(), evicts());
    assert_eq!(
        TOOK.metric_type,
        keleustes_plan::MetricType::Histogram(Buckets::Explicit(&[
            0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0
        ]))
    );
}

/// Proves TE-27, TE-26.
#[test]
fn nobody_gets_special_treatment() {
    let mut odd = pod("x", &json!([]));
    odd["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "m"});
    odd["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    odd["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut stage = stage(&json!([taint("a")]), &json!([]));
    stage.put::<Pod>(odd);
    assert_eq!(stage.turn(), evicts());
}

/// Proves TE-29, TE-31, TE-47.
#[test]
fn the_condition_is_written_once_and_both_writes_mean_the_life_that_was_seen() {
    let mut marked = pod("x", &json!([]));
    marked["status"] = json!({"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": REASON, "message": MESSAGE,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let mut there = stage(&json!([taint("a")]), &json!([]));
    there.put::<Pod>(marked.clone());
    assert_eq!(there.turn(), format!("{MARKS}{DELETES}{COUNTS}"));
    marked["status"]["conditions"][0]["reason"] = json!("PreemptionByScheduler");
    let mut by_another = stage(&json!([taint("a")]), &json!([]));
    by_another.put::<Pod>(marked.clone());
    let told = by_another.turn();
    assert!(told.contains("\"lastTransitionTime\":\"2026-01-01T00:00:00Z\""), "{told}");
    let pod: Pod = serde_json::from_value(marked).unwrap();
    let [patch, delete] = &writes(&Arc::new(pod), Time::from_unix_seconds(0))[..] else {
        panic!("two writes")
    };
    assert_eq!([patch, delete].map(|write| write.target.uid.to_string()), ["life-1", "life-1"]);
    assert!(matches!(
        delete.action,
        Action::Delete { propagation: None, grace_seconds: None, resource_version_precondition: None }
    ));
}

/// Proves TE-21, TE-22, TE-23, TE-42.
#[test]
fn who_tolerates_for_a_time_waits_for_the_time_it_was_given_first() {
    let mut stage = stage(&json!([taint("a")]), &json!([tolerates("a", Some(300))]));
    assert_eq!(stage.turn(), "requeue after 300s\n");
    for seconds in [20, 3000] {
        stage.put::<Pod>(pod("x", &json!([tolerates("a", Some(seconds)), tolerates("b", Some(5))])));
        assert_eq!(
            stage.later(10).turn(),
            format!("requeue after {}s\n", if seconds == 20 { 290 } else { 280 })
        );
    }
    stage.put::<Node>(node("n", &json!([taint("a"), taint("b")])));
    assert_eq!(stage.turn(), "requeue after 280s\n", "a shorter time does not bring it forward");
    stage.put::<Node>(node("n", &json!([taint("a"), taint("c")])));
    let told = stage.turn();
    assert!(told.starts_with(&format!("{CANCELS}{MARKS}")), "not to be tolerated at all does: {told}");
}

/// Proves TE-21, TE-37, TE-49.
#[test]
fn when_its_time_is_over_it_goes() {
    let mut stage = stage(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    assert_eq!(stage.turn(), "requeue after 60s\n");
    assert_eq!(stage.later(59).turn(), "requeue after 1s\n");
    let told = stage.later(3).turn();
    assert!(told.starts_with(MARKS) && told.contains(DELETES), "{told}");
    assert!(
        told.ends_with("measure taint_eviction_controller_pod_deletion_duration_seconds{} 2\n"),
        "{told}"
    );
    // It is asked to go and still there. Should it be looked at again, that is another wait.
    assert_eq!(stage.turn(), "requeue after 60s\n");
}

/// Proves TE-9, TE-19, TE-34, TE-40, TE-41, TE-53.
#[test]
fn when_nothing_threatens_it_any_more_the_wait_ends() {
    let tolerations = json!([tolerates("a", Some(60)), tolerates("b", None)]);
    let mut stage = stage(&json!([taint("a"), taint("b")]), &tolerations);
    assert_eq!(stage.turn(), "requeue after 60s\n");
    assert_eq!(stage.later(30).put::<Node>(node("n", &json!([taint("b")]))), ["a/x"]);
    assert_eq!(stage.turn(), CANCELS);
    assert_eq!(stage.turn(), "");
    stage.put::<Node>(node("n", &json!([taint("a")])));
    assert_eq!(stage.turn(), "requeue after 60s\n", "the full time again");
    assert_eq!(stage.put::<Node>(node("n", &json!([]))), ["a/x"]);
    assert_eq!(stage.turn(), CANCELS);
    stage.put::<Node>(node("n", &json!([taint("a")])));
    assert_eq!(stage.turn(), "requeue after 60s\n");
    stage.put::<Pod>(pod("x", &json!([tolerates("a", None)])));
    assert_eq!(stage.turn(), CANCELS);
}

/// Proves TE-43.
#[test]
fn a_swap_of_taints_keeps_the_time() {
    let (not_ready, unreachable) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
    let tolerations = json!([tolerates(not_ready, Some(300)), tolerates(unreachable, Some(300))]);
    let mut stage = stage(&json!([taint(not_ready)]), &tolerations);
    stage.turn();
    stage.later(100).put::<Node>(node("n", &json!([taint(not_ready), taint(unreachable)])));
    assert_eq!(stage.turn(), "requeue after 200s\n");
    stage.put::<Node>(node("n", &json!([taint(unreachable)])));
    assert_eq!(stage.turn(), "requeue after 200s\n");
    stage.put::<Node>(node("n", &json!([taint(not_ready)])));
    assert_eq!(stage.turn(), "requeue after 200s\n");
}

/// Proves TE-8, TE-48.
#[test]
fn who_waits_goes_on_waiting_when_its_node_goes() {
    let mut stage = stage(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    stage.turn();
    assert!(stage.world.take::<Node>(&stage.a_loop, &Key::cluster("n")).is_empty());
    assert_eq!(stage.later(20).turn(), "requeue after 40s\n");
    assert!(stage.later(40).turn().contains(DELETES));
    assert_eq!(stage.turn(), "", "and who does not wait does not begin to");
}

/// Proves TE-11, TE-46.
#[test]
fn who_is_gone_waits_for_nothing() {
    let mut stage = stage(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    stage.turn();
    assert_eq!(stage.world.take::<Pod>(&stage.a_loop, &Key::namespaced("a", "x")), ["a/x"]);
    assert_eq!(stage.turn(), CANCELS);
    assert_eq!(stage.turn(), "");
}

/// Proves TE-47.
#[test]
fn who_takes_the_name_later_has_its_own_time() {
    let mut stage = stage(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    stage.turn();
    let mut another_life = pod("x", &json!([tolerates("a", Some(60))]));
    another_life["metadata"]["uid"] = json!("life-2");
    stage.later(50).put::<Pod>(another_life);
    assert_eq!(stage.turn(), format!("{CANCELS}requeue after 60s\n"));
}

/// Proves TE-12, TE-13.
#[test]
fn only_where_a_pod_is_counts() {
    let mut unbound = pod("x", &json!([]));
    unbound["spec"]["nodeName"] = json!("");
    let mut stage = stage(&json!([taint("a")]), &json!([]));
    stage.put::<Pod>(unbound);
    assert_eq!(stage.turn(), "");
    let mut elsewhere = pod("x", &json!([]));
    elsewhere["spec"]["nodeName"] = json!("m");
    stage.put::<Pod>(elsewhere.clone());
    assert_eq!(stage.turn(), "", "nothing is known of that node");
    stage.put::<Node>(node("m", &json!([{"key": "a", "effect": "NoSchedule"}])));
    assert_eq!(stage.turn(), "");
    stage.put::<Node>(node("m", &json!([taint("b")])));
    assert!(stage.turn().contains(DELETES));
}

/// Proves TE-39.
#[test]
fn a_new_process_gives_the_full_time_again() {
    let mut stage = stage(&json!([taint("a")]), &json!([tolerates("a", Some(60))]));
    stage.turn();
    stage.later(59);
    stage.a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    assert_eq!(stage.turn(), "requeue after 60s\n");
}

/// Proves TE-4, TE-24, TE-30, TE-44.
#[test]
fn an_eviction_is_tried_until_it_is_done_and_announced_once() {
    let a_loop = controller(TaintEvictionOptions::default()).loops.remove(0);
    assert_eq!((a_loop.queue, a_loop.max_retries, a_loop.rate_limiter), ("noexec_taint_pod", None, TRIES));
    assert_eq!(TRIES.base_delay, Duration::from_millis(10));
    for (verb, told) in [
        ("patch", format!("{} FAILED: refused\nretry: refused\n", patches().split(": {").next().unwrap())),
        ("delete", format!("{}{} FAILED: refused\nretry: refused\n", patches(), DELETES.trim_end())),
    ] {
        let mut stage = stage(&json!([taint("a")]), &json!([])).refusing(verb, ErrorReason::Unavailable);
        assert_eq!(stage.turn(), format!("{MARKS}{told}"));
        for _ in 2..=10 {
            assert_eq!(stage.turn(), told);
        }
        stage.put::<Node>(node("n", &json!([])));
        assert_eq!(stage.turn(), "", "it was not waiting any more, so nothing is cancelled");
    }
}

/// Proves TE-32.
#[test]
fn who_is_gone_by_now_is_left_alone() {
    for verb in ["patch", "delete"] {
        let told = stage(&json!([taint("a")]), &json!([])).refusing(verb, ErrorReason::NotFound).turn();
        assert!(told.ends_with("FAILED: refused\n"), "not tried again, not counted: {told}");
    }
    // A conflict may tell of another life. When that is cached, it is judged by itself.
    let told = stage(&json!([taint("a")]), &json!([])).refusing("delete", ErrorReason::Conflict).turn();
    assert!(told.ends_with("retry: refused\n"), "{told}");
}

/// Proves TE-19.
#[test]
fn a_wait_beyond_all_time_is_taken_in_days() {
    let mut stage = stage(&json!([taint("a")]), &json!([tolerates("a", Some(i64::MAX))]));
    assert_eq!(stage.turn(), "requeue after 86400s\n");
    assert_eq!(stage.later(86_400).turn(), "requeue after 86400s\n");
}

/// Proves TE-16.
#[test]
fn the_gate_lets_numbers_be_compared() {
    let turn = |enable_comparison_operators: bool| {
        let taint = json!([{"key": "a", "value": "5", "effect": "NoExecute"}]);
        let toleration = json!([{"key": "a", "operator": "Lt", "value": "10"}]);
        let mut stage = stage(&taint, &toleration);
        stage.a_loop = controller(TaintEvictionOptions { enable_comparison_operators }).loops.remove(0);
        stage.turn()
    };
    assert_eq!((turn(false), turn(true)), (evicts(), String::new()));
}
