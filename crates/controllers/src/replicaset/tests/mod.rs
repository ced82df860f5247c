//! The transcript of one reconcile of a ReplicaSet with given pods.

mod adoption;
mod scaling;
mod status_updates;
mod watch_events;

use keleustes_objects::{ErrorReason, Key};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Loop, RateLimiter};
use serde_json::{Value, json};

use super::*;
use crate::workloads::fixtures::{api_error, terminating, with_field};

fn the_loop() -> Loop {
    controller(&ReplicaSetOptions::default()).loops.remove(0)
}

fn web() -> Key {
    Key::namespaced("a", "web")
}

/// A ReplicaSet with so many desired replicas and a status of 0 replicas.
fn set(replicas: i32) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "a", "uid": "u-web", "resourceVersion": "7", "generation": 2,
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "n"}},
        },
        "status": {"observedGeneration": 2, "replicas": 0, "terminatingReplicas": 0},
    })
}

/// The ReplicaSet with a status that reports all replicas as ready and available.
fn up_to_date(replicas: i32) -> Value {
    let mut set = set(replicas);
    for count in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        set["status"][count] = json!(replicas);
    }
    set
}

/// A running, ready orphan that matches the ReplicaSet's selector.
fn orphan(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": "1",
            "labels": {"app": "web"}, "creationTimestamp": "2027-01-01T00:00:00Z",
        },
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-02T00:00:00Z"}],
        },
    })
}

/// The same, controlled by the ReplicaSet.
fn pod(name: &str) -> Value {
    owned_by("ReplicaSet", "web", "u-web", orphan(name))
}

fn owned_by(kind: &str, name: &str, uid: &str, mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    object
}

fn cluster(set: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop()).with::<ReplicaSet>(set)
}

fn with_pods(cluster: RehearsalCluster, pods: impl IntoIterator<Item = Value>) -> RehearsalCluster {
    pods.into_iter().fold(cluster, |cluster, pod| cluster.with::<Pod>(pod))
}

/// The transcript of one reconcile.
fn reconcile(mut cluster: RehearsalCluster) -> String {
    cluster.outline(&the_loop(), web())
}

#[track_caller]
fn check(cluster: RehearsalCluster, expected: &str) {
    assert_eq!(reconcile(cluster), expected);
}

/// The body of the first write whose transcript line starts with `beginning`.
fn body(mut cluster: RehearsalCluster, beginning: &str) -> Value {
    cluster.bodies(&the_loop(), web(), beginning).remove(0).1
}

/// The status that one reconcile writes.
fn status(cluster: RehearsalCluster) -> Value {
    body(cluster, "put replicasets.apps/status")["status"].take()
}

const ADOPT: &str = "because it matches the selector and has no controllerRef";
const CREATE: &str = "create pods a/ because there are fewer pods than wanted\n\
                      event Normal SuccessfulCreate on ReplicaSet a/web uid=u-web: Created pod: web-new\n";
const STATUS: &str = "put replicasets.apps/status a/web because replica counts or conditions changed\n";

/// Proves RS-1, RS-2, RS-3, RS-4, RS-73, RS-75, RS-82, INF-125.
#[test]
fn names_grants_workers_and_rate_limits_equal_the_original_s() {
    let controller = controller(&ReplicaSetOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("replicaset-controller", &["replicaset"][..])
    );
    assert_eq!(
        (controller.service_account, controller.event_component),
        (Some("replicaset-controller"), Some("replicaset-controller"))
    );
    let grants: Vec<_> =
        controller.grants.iter().map(|grant| (grant.resource, grant.verbs.join(","))).collect();
    let verbs = |verbs: &str| verbs.to_owned();
    assert_eq!(
        grants,
        [
            ("replicasets", verbs("get")),
            ("replicasets/status", verbs("update")),
            ("pods", verbs("create,delete,patch")),
        ]
    );
    let a_loop = the_loop();
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("replicaset", 5, None));
    assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["replicasets.apps", "pods"]);
}

/// Proves RS-21, RS-70, RS-90.
#[test]
fn adoption_then_pod_writes_then_status() {
    let young =
        with_field(orphan("y"), "/status/conditions/0/lastTransitionTime", json!("2027-01-15T07:59:58Z"));
    let waiting = with_field(set(1), "/spec/minReadySeconds", json!(5));
    let two = with_pods(
        cluster(waiting.clone()),
        [orphan("x"), with_field(young.clone(), "/status/phase", json!("Pending"))],
    );
    check(
        two,
        &format!(
            "patch pods a/x {ADOPT}\n\
             patch pods a/y {ADOPT}\n\
             measure replicaset_controller_sorting_deletion_age_ratio{{}} 1\n\
             delete pods a/y because there are more pods than wanted\n\
             event Normal SuccessfulDelete on ReplicaSet a/web uid=u-web: Deleted pod: y\n\
             {STATUS}\
             requeue after 3s\n"
        ),
    );
    let few = with_pods(cluster(with_field(waiting, "/spec/replicas", json!(3))), [orphan("x"), young]);
    check(
        few,
        &format!("patch pods a/x {ADOPT}\npatch pods a/y {ADOPT}\n{CREATE}{STATUS}requeue after 3s\n"),
    );
}

/// Proves RS-76.
#[test]
fn a_replica_set_is_read_live_only_before_adoptions_and_after_a_conflict_of_its_status() {
    let stray = with_field(pod("s"), "/metadata/labels", json!({"app": "none"}));
    let full = cluster(set(9)).failing_at(
        "create",
        "/api/v1/namespaces/a/pods/",
        api_error(ErrorReason::AlreadyExists),
        None,
    );
    let raced = with_pods(cluster(set(1)), [pod("x")]);
    let raced = raced.failing::<ReplicaSet>("update", &web(), api_error(ErrorReason::Conflict));
    for (mut cluster, reads_wanted) in [
        (with_pods(cluster(set(3)), [orphan("x"), stray.clone()]), vec![]),
        (with_pods(cluster(set(0)), [pod("x"), pod("y")]), vec![]),
        (with_pods(cluster(terminating(set(1))), [pod("x")]), vec![]),
        (raced, vec!["get replicasets.apps a/web"]),
        (full, vec![]),
    ] {
        let transcript = cluster.reconcile(&the_loop(), web());
        let reads: Vec<_> =
            transcript.lines().filter(|line| line.starts_with("get ") || line.starts_with("list ")).collect();
        assert_eq!(reads, reads_wanted);
        assert!(transcript.contains("replicasets.apps/status"), "{transcript}");
    }
    // The executor reads the owner for a guarded write: an adoption, and no other.
    let owner: ReplicaSet = serde_json::from_value(set(3)).unwrap();
    let pods =
        [orphan("x"), stray].map(|pod| std::sync::Arc::new(serde_json::from_value::<Pod>(pod).unwrap()));
    let matches = |pod: &Pod| *pod.meta.key.name == *"x";
    let plan = crate::workloads::adoption::claim_if(&owner, None, matches, pods.iter()).plan();
    let guarded: Vec<_> = plan
        .steps()
        .iter()
        .flat_map(keleustes_plan::Step::writes)
        .map(|write| (write.verb(), write.target.key.name.to_string(), write.guard.is_some()))
        .collect();
    let adopted = ("patch", "x".to_owned(), true);
    assert!(guarded.contains(&adopted), "{guarded:?}");
    assert!(guarded.iter().filter(|write| **write != adopted).all(|(.., guarded)| !guarded), "{guarded:?}");
}

/// Proves RS-25, RS-83.
#[test]
fn no_state_is_kept_and_a_deleted_replica_set_is_ignored() {
    let mut gone = with_pods(RehearsalCluster::of(&the_loop()), [pod("x")]);
    assert_eq!(gone.reconcile(&the_loop(), web()), "");
    let mut there = with_pods(cluster(set(2)), [pod("x")]);
    let first = there.reconcile(&the_loop(), web());
    // A new process with the same caches.
    assert_eq!(there.reconcile(&the_loop(), web()), first);
}

/// Proves RS-26.
#[test]
fn a_replica_set_with_an_invalid_or_empty_selector_is_ignored() {
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Likes", "values": ["web"]}]});
    for selector in [odd, json!({}), Value::Null] {
        check(
            with_pods(cluster(with_field(set(2), "/spec/selector", selector)), [pod("x"), orphan("y")]),
            "",
        );
    }
}
