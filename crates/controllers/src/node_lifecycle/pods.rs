//! Says of the pods on a lost node that they are not ready, since their kubelet cannot.
//!
//! It is said once: when the node is found to be lost, when this process first sees a node that is, and
//! when a pod is bound to one that is not ready. A kubelet that thinks otherwise has the last word.

use std::sync::Arc;

use keleustes_objects::{
    ConditionStatus, Conditions as _, ErrorReason, Key, Node, Object as _, Pod, Time, UNKNOWN,
};
use keleustes_plan::{
    Change, Enqueue, InvolvedObject, Item, Loop, Memory, Outcome, PatchKind, Plan, PlannedEvent, View, Write,
};
use serde_json::json;

use super::fleet::Fleet;
use crate::pods_by_node::BY_NODE;

/// The loop. Each of its workers says it of one pod.
pub(super) fn the_loop(fleet: Memory<Fleet>) -> Loop {
    Loop::deciding("node_lifecycle_controller_pods", decide)
        .enqueue_on::<Pod>(move |change, _, wakes| pod_changed(&fleet, change, wakes))
        .enqueue_on::<Node>(node_changed)
        .reads_index(BY_NODE)
        .workers(12)
}

/// Enqueue a pod that was bound to a node that is known. At the start none is, so that a new process does not
/// meddle with the pods of nodes that say themselves that they are not ready.
fn pod_changed(fleet: &Memory<Fleet>, change: &Change<Pod>, wakes: &mut Enqueue) {
    let Some(pod) = change.new().filter(|pod| !pod.node_name.is_empty()) else { return };
    let was_there = change.old().is_some_and(|before| before.node_name == pod.node_name);
    if !was_there && fleet.with(|fleet| fleet.knows(&pod.node_name)) {
        wakes.add(pod.key().clone());
    }
}

/// Enqueue the pods of a node that was found to be lost.
fn node_changed(change: &Change<Node>, view: &View<'_>, wakes: &mut Enqueue) {
    let Some(node) = change.new() else { return };
    let since = lost_since(node);
    if since.is_some() && since != change.old().and_then(lost_since) {
        for pod in view.store::<Pod>().by_index(&BY_NODE, &node.key().name) {
            wakes.add(pod.key().clone());
        }
    }
}

/// Since when a node is known to be silent, if it is.
fn lost_since(node: &Arc<Node>) -> Option<Option<Time>> {
    let ready = node.conditions.of_type("Ready").filter(|ready| ready.status == UNKNOWN)?;
    Some(ready.last_transition_time)
}

fn decide(view: &View<'_>, item: &Item) -> Plan {
    let Some(pod) = view.get::<Pod>(item) else { return Plan::none() };
    let node = view.get::<Node>(&Key::cluster(&*pod.node_name));
    let is_lost =
        node.is_some_and(|node| node.conditions.of_type("Ready").is_some_and(|ready| !ready.is_true()));
    let says_ready = matches!(pod.condition("Ready"), Some(ConditionStatus::True | ConditionStatus::Unknown));
    if !is_lost || !says_ready {
        return Plan::none();
    }
    let body = json!({
        // As strict as replacing the whole status would be, which takes an object that is not kept whole.
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
    use serde_json::Value;

    use super::*;

    struct Stage {
        a_loop: Loop,
        world: RehearsalCluster,
        fleet: Memory<Fleet>,
        version: u32,
    }

    fn stage() -> Stage {
        let fleet: Memory<Fleet> = Memory::default();
        let a_loop = the_loop(fleet.clone());
        Stage { world: RehearsalCluster::of(&a_loop), a_loop, fleet, version: 0 }
    }

    impl Stage {
        fn put<T: keleustes_objects::Kind>(&mut self, mut json: Value) -> Vec<String> {
            self.version += 1;
            json["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.world.put::<T>(&self.a_loop, json)
        }

        fn turn(&mut self) -> String {
            self.world.reconcile(&self.a_loop, Key::namespaced("a", "x"))
        }

        /// Lets a pass have seen a node.
        fn seen(&self, node: Value) {
            let now = Now { wall: Time::from_unix_seconds(0), monotonic: std::time::Duration::ZERO };
            let node: Node = serde_json::from_value(node).unwrap();
            self.fleet.with(|fleet| drop(fleet.observe(&node, None, now).clone()));
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

    const MARKS: &str = "event Warning NodeNotReady: Node is not ready\n";

    /// Proves NLC-10, NLC-41.
    #[test]
    fn a_pod_that_is_bound_to_a_known_node_wakes_itself() {
        let mut stage = stage();
        let a_loop = &stage.a_loop;
        assert_eq!((a_loop.queue, a_loop.max_retries), ("node_lifecycle_controller_pods", None));
        assert_eq!(a_loop.rate_limiter, keleustes_plan::RateLimiter::DEFAULT);
        assert!(stage.put::<Pod>(pod("x", "n", "True")).is_empty(), "no pass has seen the node yet");
        stage.seen(node("True", "00"));
        assert_eq!(stage.put::<Pod>(pod("y", "n", "True")), ["a/y"]);
        assert!(stage.put::<Pod>(pod("y", "n", "False")).is_empty(), "it was there before");
        assert!(stage.put::<Pod>(pod("z", "", "")).is_empty());
        assert_eq!(stage.put::<Pod>(pod("z", "n", "")), ["a/z"]);
        assert!(stage.world.take::<Pod>(&stage.a_loop, &Key::namespaced("a", "z")).is_empty());
    }

    /// Proves NLC-11, NLC-34, NLC-35, NLC-39.
    #[test]
    fn a_node_that_is_found_to_be_lost_wakes_its_pods_once() {
        let mut stage = stage();
        stage.put::<Pod>(pod("x", "n", "True"));
        stage.put::<Pod>(pod("y", "n", "True"));
        stage.put::<Pod>(pod("z", "m", "True"));
        assert!(stage.put::<Node>(node("True", "00")).is_empty());
        assert!(stage.put::<Node>(node("False", "01")).is_empty(), "that it said itself");
        assert_eq!(stage.put::<Node>(node("Unknown", "02")), ["a/x", "a/y"]);
        assert!(stage.put::<Node>(node("Unknown", "02")).is_empty());
        assert_eq!(stage.put::<Node>(node("Unknown", "03")), ["a/x", "a/y"], "it was back in between");
        assert!(stage.put::<Node>(node("True", "04")).is_empty());
        // A process that finds it so does not know whether its predecessor came to it.
        stage.world.take::<Node>(&stage.a_loop, &Key::cluster("n"));
        assert_eq!(stage.put::<Node>(node("Unknown", "03")), ["a/x", "a/y"]);
    }

    /// Proves NLC-36, NLC-69, NLC-73, NLC-95.
    #[test]
    fn a_ready_pod_on_a_lost_node_is_said_not_to_be() {
        for ready in ["True", "Unknown"] {
            let mut stage = stage();
            stage.put::<Pod>(pod("x", "n", ready));
            stage.put::<Node>(node("Unknown", "00"));
            assert_eq!(
                stage.turn(),
                format!(
                    "patch pods/status a/x because its node is not ready: {{\"metadata\":{{\"resourceVersion\":\"1\"}},\
                     \"status\":{{\"conditions\":[{{\"lastTransitionTime\":\"2027-01-15T08:00:00Z\",\
                     \"status\":\"False\",\"type\":\"Ready\"}}]}}}}\n{MARKS}"
                )
            );
        }
    }

    /// Proves NLC-37, NLC-41.
    #[test]
    fn all_others_are_left_alone() {
        let told = |pod: Value, node: Option<Value>| {
            let mut stage = stage();
            stage.put::<Pod>(pod);
            if let Some(node) = node {
                stage.put::<Node>(node);
            }
            stage.turn()
        };
        assert_eq!(told(pod("x", "n", "False"), Some(node("Unknown", "00"))), "");
        let mut silent = pod("x", "n", "True");
        silent["status"]["conditions"] = json!([]);
        assert_eq!(told(silent, Some(node("Unknown", "00"))), "");
        assert_eq!(told(pod("x", "n", "True"), Some(node("True", "00"))), "");
        assert_eq!(told(pod("x", "n", "True"), None), "");
        assert_eq!(told(pod("x", "", "True"), None), "");
        let mut unjudged = node("True", "00");
        unjudged["status"] = json!({});
        assert_eq!(told(pod("x", "n", "True"), Some(unjudged)), "");
        assert!(told(pod("x", "n", "True"), Some(node("False", "00"))).ends_with(MARKS));
        assert_eq!(told(pod("y", "n", "True"), Some(node("False", "00"))), "", "there is no such pod");
    }

    /// Proves NLC-38, NLC-39.
    #[test]
    fn a_failure_is_tried_again_while_the_node_is_lost() {
        let refused = |reason: ErrorReason| {
            let mut stage = stage();
            stage.put::<Pod>(pod("x", "n", "True"));
            stage.put::<Node>(node("Unknown", "00"));
            let failure = ApiError::transport(reason, "refused");
            stage.world = stage.world.failing::<Pod>("patch", &Key::namespaced("a", "x"), failure);
            let told = stage.turn();
            stage.put::<Node>(node("True", "10"));
            assert_eq!(stage.turn(), "", "it is back, so nothing is left to be said");
            told
        };
        for reason in [ErrorReason::Conflict, ErrorReason::Unavailable] {
            assert!(refused(reason).ends_with(&format!("{MARKS}retry: refused\n")));
        }
        assert!(!refused(ErrorReason::NotFound).contains("event"));
    }
}
