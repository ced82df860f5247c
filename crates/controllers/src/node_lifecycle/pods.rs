//! Sets the `Ready` condition of pods on an unready node to `False`, because their kubelet cannot.
//!
//! The controller patches a pod once: when its ready node becomes `Unknown`, when this process first observes a
//! node that is `Unknown`, and when the pod is bound to a node that is not ready. If the kubelet sets the
//! condition back, it stays. Parity: MarkPodsNotReady.

use std::sync::Arc;

use keleustes_objects::{
    ConditionStatus, Conditions as _, ErrorReason, Key, Node, Object as _, Pod, Time, UNKNOWN,
};
use keleustes_plan::{
    Change, Effects, InvolvedObject, Loop, Memory, Outcome, PatchKind, Plan, PlannedEvent, View, Write,
};
use serde_json::json;

use super::cluster_state::ClusterState;
use crate::pods_by_node::BY_NODE;

/// The loop. Each worker patches one pod at a time.
pub(super) fn the_loop(cluster_state: Memory<ClusterState>) -> Loop {
    Loop::deciding("node_lifecycle_controller_pods", decide)
        .keyed_by::<Pod>()
        .enqueue_on::<Pod>(move |change, _, enqueue| pod_changed(&cluster_state, change, enqueue))
        .enqueue_on::<Node>(node_changed)
        .reads_index(BY_NODE)
        .workers(12)
}

/// Enqueues a pod that was bound to a node which a health check has seen. At startup there is none, so a new
/// leader leaves the pods of nodes alone whose own kubelet reports not ready.
fn pod_changed(cluster_state: &Memory<ClusterState>, change: &Change<Pod>, enqueue: &mut Effects) {
    let Some(pod) = change.new().filter(|pod| !pod.node_name.is_empty()) else { return };
    let was_there = change.old().is_some_and(|before| before.node_name == pod.node_name);
    if !was_there && cluster_state.with(|cluster_state| cluster_state.contains(&pod.node_name)) {
        enqueue.add(pod.key().clone());
    }
}

/// Enqueues the pods of a node that was ready and became `Unknown`. A node that was `Unknown` before, with
/// another transition time, was ready in between. If `Ready` was `False` or missing, its kubelet had reported
/// that or never ran, and the pods are left alone.
fn node_changed(change: &Change<Node>, view: &View<'_>, enqueue: &mut Effects) {
    let Some(node) = change.new() else { return };
    let Some(since) = unknown_since(node) else { return };
    let became_unknown = change.old().is_none_or(|old| match unknown_since(old) {
        Some(old_since) => old_since != since,
        None => old.conditions.of_type("Ready").is_some_and(|ready| ready.is_true()),
    });
    if became_unknown {
        for pod in view.store::<Pod>().by_index(&BY_NODE, &node.key().name) {
            enqueue.add(pod.key().clone());
        }
    }
}

/// Since when `Ready` is `Unknown`, if it is.
fn unknown_since(node: &Arc<Node>) -> Option<Option<Time>> {
    let ready = node.conditions.of_type("Ready").filter(|ready| ready.status == UNKNOWN)?;
    Some(ready.last_transition_time)
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
    let Some(pod) = view.get::<Pod>(item) else { return Plan::none() };
    let node = view.get::<Node>(&Key::cluster(&*pod.node_name));
    let node_is_unready =
        node.is_some_and(|node| node.conditions.of_type("Ready").is_some_and(|ready| !ready.is_true()));
    let may_be_ready =
        matches!(pod.condition("Ready"), Some(ConditionStatus::True | ConditionStatus::Unknown));
    if !node_is_unready || !may_be_ready {
        return Plan::none();
    }
    let body = json!({
        // The same precondition as an update of the whole status, which needs the whole object, and the cache
        // keeps only a projection.
        "metadata": {"resourceVersion": pod.meta.resource_version},
        "status": {"conditions": [{
            "type": "Ready", "status": "False", "lastTransitionTime": view.now().wall,
        }]},
    });
    let event = PlannedEvent::warning(InvolvedObject::of(&**pod), "NodeNotReady", "Node is not ready");
    let write = Write::patch(&**pod, PatchKind::Strategic, body).on_subresource("status");
    Plan::of(write.because("its node is not ready").record_on_outcome(move |outcome| match outcome {
        Outcome::Failed(failure) if failure.reason == ErrorReason::NotFound => None,
        Outcome::NotSent => None,
        _ => Some(event.clone()),
    }))
}

#[cfg(test)]
mod tests {
    use keleustes_objects::ApiError;
    use keleustes_plan::Now;
    use keleustes_plan::rehearsal::RehearsalCluster;
    use keleustes_plan::rehearsal::is_retried_because;
    use serde_json::Value;

    use super::*;

    struct TestCluster {
        a_loop: Loop,
        rehearsal: RehearsalCluster,
        cluster_state: Memory<ClusterState>,
        version: u32,
    }

    fn test_cluster() -> TestCluster {
        let cluster_state: Memory<ClusterState> = Memory::default();
        let a_loop = the_loop(cluster_state.clone());
        TestCluster { rehearsal: RehearsalCluster::of(&a_loop), a_loop, cluster_state, version: 0 }
    }

    impl TestCluster {
        fn put<T: keleustes_objects::Kind>(&mut self, mut json: Value) -> Vec<String> {
            self.version += 1;
            json["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.rehearsal.put::<T>(&self.a_loop, json)
        }

        fn reconcile(&mut self) -> String {
            self.rehearsal.reconcile(&self.a_loop, Key::namespaced("a", "x"))
        }

        /// Records that a health check has seen a node.
        fn seen(&self, node: Value) {
            let now = Now {
                wall: Time::from_unix_seconds(0),
                wall_subsecond_nanoseconds: 0,
                monotonic: std::time::Duration::ZERO,
            };
            let node: Node = serde_json::from_value(node).unwrap();
            self.cluster_state.with(|cluster_state| drop(cluster_state.observe(&node, None, now).clone()));
        }
    }

    fn node(ready: &str, since: &str) -> Value {
        let since = format!("2026-01-01T00:00:{since}Z");
        json!({
            "metadata": {"name": "n", "uid": "n"},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]},
        })
    }

    fn pod(name: &str, node: &str, ready: &str) -> Value {
        let ready = json!({"type": "Ready", "status": ready, "reason": "Mine", "message": "too"});
        json!({
            "metadata": {"name": name, "namespace": "a", "uid": "x"},
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}, ready]},
        })
    }

    const EVENT: &str = "event Warning NodeNotReady on Pod a/x uid=x: Node is not ready\n";

    /// Proves NLC-10, NLC-41.
    #[test]
    fn pod_bound_to_a_known_node_is_enqueued() {
        let mut cluster = test_cluster();
        let a_loop = &cluster.a_loop;
        assert_eq!((a_loop.queue, a_loop.max_retries), ("node_lifecycle_controller_pods", None));
        assert_eq!(a_loop.rate_limiter, keleustes_plan::RateLimiter::DEFAULT);
        assert!(
            cluster.put::<Pod>(pod("x", "n", "True")).is_empty(),
            "no health check has seen the node yet"
        );
        cluster.seen(node("True", "00"));
        assert_eq!(cluster.put::<Pod>(pod("y", "n", "True")), ["a/y"]);
        assert!(cluster.put::<Pod>(pod("y", "n", "False")).is_empty(), "it was bound to the node before");
        assert!(cluster.put::<Pod>(pod("z", "", "")).is_empty());
        assert_eq!(cluster.put::<Pod>(pod("z", "n", "")), ["a/z"]);
        assert!(cluster.rehearsal.take::<Pod>(&cluster.a_loop, &Key::namespaced("a", "z")).is_empty());
    }

    /// Proves NLC-11, NLC-34, NLC-35, NLC-39.
    #[test]
    fn node_that_becomes_unknown_enqueues_its_pods_once() {
        let mut cluster = test_cluster();
        cluster.put::<Pod>(pod("x", "n", "True"));
        cluster.put::<Pod>(pod("y", "n", "True"));
        cluster.put::<Pod>(pod("z", "m", "True"));
        assert!(cluster.put::<Node>(node("True", "00")).is_empty());
        assert_eq!(cluster.put::<Node>(node("Unknown", "02")), ["a/x", "a/y"]);
        assert!(cluster.put::<Node>(node("Unknown", "02")).is_empty());
        assert_eq!(cluster.put::<Node>(node("Unknown", "03")), ["a/x", "a/y"], "it was ready in between");
        assert!(cluster.put::<Node>(node("True", "04")).is_empty());
        // A new leader does not know whether its predecessor patched the pods.
        cluster.rehearsal.take::<Node>(&cluster.a_loop, &Key::cluster("n"));
        assert_eq!(cluster.put::<Node>(node("Unknown", "03")), ["a/x", "a/y"]);
    }

    /// Proves NLC-34, NLC-35.
    #[test]
    fn node_that_was_not_ready_before_it_became_unknown_enqueues_nothing() {
        let mut cluster = test_cluster();
        cluster.put::<Pod>(pod("x", "n", "True"));
        cluster.put::<Node>(node("True", "00"));
        assert!(cluster.put::<Node>(node("False", "01")).is_empty(), "its kubelet reported that");
        assert!(cluster.put::<Node>(node("Unknown", "02")).is_empty());
        // Its kubelet never posted a status.
        let mut cluster = test_cluster();
        cluster.put::<Pod>(pod("x", "n", "True"));
        let mut without_ready = node("True", "00");
        without_ready["status"] = json!({});
        assert!(cluster.put::<Node>(without_ready).is_empty());
        assert!(cluster.put::<Node>(node("Unknown", "01")).is_empty());
        assert!(cluster.put::<Node>(node("True", "02")).is_empty());
        assert_eq!(cluster.put::<Node>(node("Unknown", "03")), ["a/x"]);
    }

    /// Proves NLC-36, NLC-69, NLC-73, NLC-95.
    #[test]
    fn ready_pod_on_an_unready_node_is_marked_not_ready() {
        for ready in ["True", "Unknown"] {
            let mut cluster = test_cluster();
            cluster.put::<Pod>(pod("x", "n", ready));
            cluster.put::<Node>(node("Unknown", "00"));
            assert_eq!(
                cluster.reconcile(),
                format!(
                    "patch pods/status a/x because its node is not ready: {{\"metadata\":{{\"resourceVersion\":\"1\"}},\
                     \"status\":{{\"conditions\":[{{\"lastTransitionTime\":\"2027-01-15T08:00:00Z\",\
                     \"status\":\"False\",\"type\":\"Ready\"}}]}}}}\n{EVENT}"
                )
            );
        }
    }

    /// Proves NLC-37, NLC-41.
    #[test]
    fn other_pods_are_not_patched() {
        let reconciled = |pod: Value, node: Option<Value>| {
            let mut cluster = test_cluster();
            cluster.put::<Pod>(pod);
            if let Some(node) = node {
                cluster.put::<Node>(node);
            }
            cluster.reconcile()
        };
        assert_eq!(reconciled(pod("x", "n", "False"), Some(node("Unknown", "00"))), "");
        let mut without_conditions = pod("x", "n", "True");
        without_conditions["status"]["conditions"] = json!([]);
        assert_eq!(reconciled(without_conditions, Some(node("Unknown", "00"))), "");
        assert_eq!(reconciled(pod("x", "n", "True"), Some(node("True", "00"))), "");
        assert_eq!(reconciled(pod("x", "n", "True"), None), "");
        assert_eq!(reconciled(pod("x", "", "True"), None), "");
        let mut without_ready = node("True", "00");
        without_ready["status"] = json!({});
        assert_eq!(reconciled(pod("x", "n", "True"), Some(without_ready)), "");
        assert!(reconciled(pod("x", "n", "True"), Some(node("False", "00"))).ends_with(EVENT));
        assert_eq!(reconciled(pod("y", "n", "True"), Some(node("False", "00"))), "", "no such pod");
    }

    /// Proves NLC-38, NLC-39.
    #[test]
    fn failed_patch_is_retried_while_the_node_is_unready() {
        let reconcile_failing = |reason: ErrorReason| {
            let mut cluster = test_cluster();
            cluster.put::<Pod>(pod("x", "n", "True"));
            cluster.put::<Node>(node("Unknown", "00"));
            let failure = ApiError::transport(reason, "refused");
            cluster.rehearsal =
                cluster.rehearsal.failing::<Pod>("patch", &Key::namespaced("a", "x"), failure);
            let transcript = cluster.reconcile();
            cluster.put::<Node>(node("True", "10"));
            assert_eq!(cluster.reconcile(), "", "the node is ready again");
            transcript
        };
        for reason in [ErrorReason::Conflict, ErrorReason::Unavailable] {
            let transcript = reconcile_failing(reason);
            assert!(transcript.contains(EVENT) && is_retried_because(&transcript, "refused"), "{transcript}");
        }
        assert!(!reconcile_failing(ErrorReason::NotFound).contains("event"));
    }
}
