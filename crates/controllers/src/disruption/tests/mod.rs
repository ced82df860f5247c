//! Decision tables of the controller. The clock of a rehearsal starts at 2027-01-15T08:00:00Z.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
mod controllers;
mod counts;
mod enqueue;
mod evictions;
mod stale_targets;
mod statuses;

use keleustes_objects::{Key, Pod, PodDisruptionBudget, Time};
use keleustes_plan::Loop;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;

/// The loop with this queue.
fn loop_of(queue: &str) -> Loop {
    let mut loops = controller(DisruptionOptions::default()).loops;
    loops.remove(loops.iter().position(|one| one.queue == queue).unwrap())
}

fn budgets() -> Loop {
    loop_of(QUEUE)
}

/// The time this many seconds from now.
fn at(seconds: i64) -> String {
    Time::from_unix_seconds(NOW + seconds).to_string()
}

fn key(name: &str) -> Key {
    Key::namespaced("a", name)
}

/// The budget `a/web` of the pods with `app=web`, in generation 2, with these further fields of its spec.
fn budget(spec: Value) -> Value {
    let mut budget = json!({
        "metadata": {"namespace": "a", "name": "web", "uid": "b1", "resourceVersion": "5", "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    });
    for (field, value) in spec.as_object().unwrap() {
        budget["spec"][field] = value.clone();
    }
    budget
}

/// The budget with a status.
fn with_status(mut budget: Value, status: Value) -> Value {
    budget["status"] = status;
    budget
}

/// A ready pod `a/NAME` with `app=web` and without a controller.
fn pod(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "a", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "3",
                     "generation": 4, "labels": {"app": "web"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// The object with a controllerRef.
fn owned(mut object: Value, api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
    object
}

/// Ready pods of the ReplicaSet `a/web`.
fn pods_of_web(count: usize) -> Vec<Value> {
    (0..count).map(|number| of_web(pod(&format!("web-{number}")))).collect()
}

fn of_web(pod: Value) -> Value {
    owned(pod, "apps/v1", "ReplicaSet", "web", "r1")
}

/// The object with another status of its `Ready` condition.
fn not_ready(mut pod: Value) -> Value {
    pod["status"]["conditions"][0]["status"] = json!("False");
    pod
}

fn terminating(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!(at(-1));
    object
}

/// A workload `a/NAME` with this many replicas.
fn workload(name: &str, uid: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"namespace": "a", "name": name, "uid": uid, "resourceVersion": "2"},
        "spec": {"replicas": replicas},
    })
}

fn cluster(budget: Value, pods: &[Value]) -> RehearsalCluster {
    let cluster = RehearsalCluster::of(&budgets()).with::<PodDisruptionBudget>(budget);
    pods.iter().cloned().fold(cluster, RehearsalCluster::with::<Pod>)
}

/// The cluster with the ReplicaSet `a/web`, which wants this many pods.
fn with_web(cluster: RehearsalCluster, replicas: i32) -> RehearsalCluster {
    cluster.with::<ReplicaSet>(workload("web", "r1", replicas))
}

/// What a reconcile of `a/web` did.
#[derive(Debug, Default)]
struct Synced {
    /// The events, without `event `.
    events: Vec<String>,
    /// The reads.
    reads: Vec<String>,
    /// The bodies of the successful status updates.
    updates: Vec<Value>,
    /// The failed status updates.
    failed_updates: usize,
    /// The lines about queues.
    queued: Vec<String>,
    /// The error with which the item is requeued.
    retry: Option<String>,
}

impl Synced {
    /// The status of the only update.
    fn status(&self) -> &Value {
        assert_eq!(self.updates.len(), 1, "{self:?}");
        &self.updates[0]["status"]
    }

    /// `expected, desired, healthy, allowed` of the only update.
    fn numbers(&self) -> [i64; 4] {
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
            .map(|field| self.status()[field].as_i64().unwrap())
    }

    /// The DisruptionAllowed condition of the only update: status, reason and message.
    fn condition(&self) -> [String; 3] {
        let condition = &self.status()["conditions"][0];
        ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default().to_owned())
    }

    /// The reasons of the events.
    fn reasons(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.split(' ').nth(1).unwrap()).collect()
    }

    /// The message of the only fail-safe update, which has an event with the same text.
    fn failure(&self) -> String {
        let [status, reason, message] = self.condition();
        assert_eq!((status.as_str(), reason.as_str()), ("False", "SyncFailed"), "{self:?}");
        message
    }
}

fn sync(cluster: &mut RehearsalCluster) -> Synced {
    let mut synced = Synced::default();
    for line in cluster.reconcile(&budgets(), key("web")).lines() {
        if let Some(event) = line.strip_prefix("event ") {
            synced.events.push(event.to_owned());
        } else if line.starts_with("put poddisruptionbudgets.policy/status a/web because ") {
            match line.split_once(": {") {
                Some((_, body)) => synced.updates.push(serde_json::from_str(&format!("{{{body}")).unwrap()),
                None => synced.failed_updates += 1,
            }
        } else if let Some(error) = line.strip_prefix("retry: ") {
            synced.retry = Some(error.to_owned());
        } else if line.starts_with("enqueue ") {
            synced.queued.push(line.to_owned());
        } else {
            synced.reads.push(line.to_owned());
        }
    }
    synced
}
