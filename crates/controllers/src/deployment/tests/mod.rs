//! The transcript of one reconcile of a Deployment with given ReplicaSets.

mod new_replica_set;
mod revision_annotations;
mod rollbacks;
mod rollouts;
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
    controller(&DeploymentOptions::default()).loops.remove(0)
}

fn web() -> Key {
    Key::namespaced("a", "web")
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A Deployment of `v2` with so many replicas, maxSurge 1 and maxUnavailable 1. Its status is empty.
fn deployment(replicas: i32) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "a", "uid": "u-web", "resourceVersion": "7", "generation": 2,
            "annotations": {annotations::REVISION: "2"},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("v2"),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        },
        "status": {"observedGeneration": 2},
    })
}

/// The Deployment with a status that reports a complete rollout.
fn complete(replicas: i32) -> Value {
    let mut complete = deployment(replicas);
    for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        complete["status"][count] = json!(replicas);
    }
    complete["status"]["terminatingReplicas"] = json!(0);
    complete["status"]["conditions"] = json!([
        condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        condition(
            "Progressing",
            "True",
            "NewReplicaSetAvailable",
            "ReplicaSet \"new\" has successfully progressed."
        ),
    ]);
    complete
}

/// A condition that is one hour old.
fn condition(r#type: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": r#type, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2027-01-15T07:00:00Z", "lastUpdateTime": "2027-01-15T07:00:00Z",
    })
}

fn recreating(deployment: Value) -> Value {
    with_field(deployment, "/spec/strategy", json!({"type": "Recreate"}))
}

/// A ReplicaSet of an image with so many replicas, so many of them available, last resized for 3 desired
/// replicas. `new` was created after `old` and `older`.
fn set(name: &str, image: &str, replicas: i32, available: i32) -> Value {
    let (day, revision) = match name {
        "new" => (3, "2"),
        "old" => (2, "1"),
        _ => (1, "0"),
    };
    json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": "5", "generation": 1,
            "creationTimestamp": format!("2027-01-0{day}T00:00:00Z"), "labels": {"app": "web"},
            "annotations": {
                annotations::REVISION: revision, annotations::DESIRED_REPLICAS: "3",
                annotations::MAX_REPLICAS: "4",
            },
            "ownerReferences": [owner()],
        },
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image)},
        "status": {
            "observedGeneration": 1, "replicas": replicas, "readyReplicas": available,
            "availableReplicas": available, "terminatingReplicas": 0,
        },
    })
}

fn owner() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-web", "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn new(replicas: i32, available: i32) -> Value {
    set("new", "v2", replicas, available)
}

fn old(replicas: i32, available: i32) -> Value {
    set("old", "v1", replicas, available)
}

fn paused(deployment: Value) -> Value {
    with_field(deployment, "/spec/paused", json!(true))
}

fn cluster(deployment: Value, sets: impl IntoIterator<Item = Value>) -> RehearsalCluster {
    let cluster = RehearsalCluster::of(&the_loop()).with::<Deployment>(deployment);
    sets.into_iter().fold(cluster, |cluster, set| cluster.with::<ReplicaSet>(set))
}

/// The transcript of one reconcile.
fn reconcile(mut cluster: RehearsalCluster) -> String {
    cluster.outline(&the_loop(), web())
}

#[track_caller]
fn check(cluster: RehearsalCluster, expected: &str) {
    assert_eq!(reconcile(cluster), expected);
}

/// The bodies of the writes whose transcript lines start with `beginning`, with the names of their targets.
fn bodies(mut cluster: RehearsalCluster, beginning: &str) -> Vec<(String, Value)> {
    cluster.bodies(&the_loop(), web(), beginning)
}

/// The sizes that one reconcile gives to ReplicaSets, in order.
fn sizes(cluster: RehearsalCluster) -> Vec<(String, i64)> {
    let patches = bodies(cluster, "patch replicasets.apps ").into_iter();
    patches.filter_map(|(name, body)| Some((name, body["spec"]["replicas"].as_i64()?))).collect()
}

fn sized(sizes: &[(&str, i64)]) -> Vec<(String, i64)> {
    sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect()
}

/// The body that one reconcile puts to `deployments/status`.
fn put(cluster: RehearsalCluster) -> Value {
    let mut puts = bodies(cluster, "put deployments.apps/status ");
    assert_eq!(puts.len(), 1, "one status per reconcile");
    puts.remove(0).1
}

/// A condition of the status that one reconcile puts.
fn written_condition(cluster: RehearsalCluster, r#type: &str) -> Value {
    let status = put(cluster)["status"].take();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == r#type).unwrap_or_default()
}

/// Status, reason and message of a condition.
fn words(condition: &Value) -> [&str; 3] {
    ["status", "reason", "message"].map(|word| condition[word].as_str().unwrap_or_default())
}

const STATUS: &str = "put deployments.apps/status a/web because its ReplicaSets or conditions changed\n";

/// Proves DEP-1, DEP-2, DEP-3, DEP-4, DEP-96, DEP-99, RUN-95.
#[test]
fn names_grants_workers_and_rate_limits_equal_the_original_s() {
    let controller = controller(&DeploymentOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("deployment-controller", &["deployment"][..])
    );
    assert_eq!(
        (controller.service_account, controller.event_component),
        (Some("deployment-controller"), Some("deployment-controller"))
    );
    let grants: Vec<_> = controller.grants.iter().map(|grant| (grant.resource, grant.verbs)).collect();
    assert_eq!(
        grants,
        [
            ("deployments", &["get", "update"][..]),
            ("deployments/status", &["update"]),
            ("replicasets", &["create", "delete", "get", "patch"]),
        ]
    );
    assert!(
        controller.metrics.is_empty() && controller.debug_handler.is_none() && controller.observer.is_none()
    );
    assert_eq!(controller.loops.len(), 1);
    let a_loop = the_loop();
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("deployment", 5, Some(15)));
    assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["deployments.apps", "replicasets.apps", "pods"]);
    let starts_without: Vec<_> =
        a_loop.starts_without.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(starts_without, ["pods"]);
}

/// Proves DEP-91.
#[test]
fn each_resource_is_written_with_these_requests_only() {
    let limited = with_field(complete(3), "/spec/revisionHistoryLimit", json!(0));
    let mut back = deployment(3);
    back["metadata"]["annotations"][annotations::ROLLBACK_TO] = json!("1");
    let orphan = with_field(old(0, 0), "/metadata/ownerReferences", json!([]));
    let stray = with_field(old(0, 0), "/metadata/labels", json!({"app": "none"}));
    for (cluster, expected, edits_deployment) in [
        (cluster(deployment(3), []), "create replicasets.apps", false),
        (cluster(deployment(3), [old(3, 3), new(1, 1)]), "patch replicasets.apps", false),
        (cluster(complete(3), [orphan, new(3, 3)]), "patch replicasets.apps", false),
        (cluster(complete(3), [stray, new(3, 3)]), "patch replicasets.apps", false),
        (cluster(limited, [old(0, 0), new(3, 3)]), "delete replicasets.apps", false),
        (cluster(back, [new(3, 3), old(0, 0)]), "edit deployments.apps", true),
        (
            cluster(with_field(complete(3), "/metadata/generation", json!(3)), [new(3, 3)]),
            "put deployments.apps/status",
            false,
        ),
    ] {
        let transcript = reconcile(cluster);
        let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let requests: Vec<_> =
            transcript.lines().filter(|line| !line.starts_with("event ")).map(words).collect();
        assert_eq!(requests[0], expected, "{transcript}");
        let others = requests
            .iter()
            .filter(|it| !it.ends_with(" replicasets.apps") && *it != "put deployments.apps/status");
        assert_eq!(
            others.count(),
            usize::from(edits_deployment),
            "the spec is written by a rollback only: {transcript}"
        );
    }
}

/// Proves DEP-11.
#[test]
fn nothing_is_done_for_a_deleted_or_complete_deployment() {
    let mut gone = RehearsalCluster::of(&the_loop()).with::<ReplicaSet>(new(3, 3));
    assert_eq!(gone.reconcile(&the_loop(), web()), "");
    check(cluster(complete(3), [new(3, 3)]), "");
}

/// Proves DEP-12, DEP-97.
#[test]
fn a_deployment_with_an_empty_selector_gets_a_warning_and_nothing_else() {
    const WARNING: &str = "event Warning SelectingAll on Deployment a/web uid=u-web: \
                        This deployment is selecting all pods. A non-empty selector is required.\n";
    const OBSERVED: &str = "put deployments.apps/status a/web because its generation was observed";
    let all = with_field(deployment(3), "/spec/selector", json!({}));
    check(cluster(all.clone(), [old(3, 3)]), WARNING);
    let unseen = with_field(all, "/metadata/generation", json!(3));
    check(cluster(unseen.clone(), []), &format!("{WARNING}{OBSERVED}\n"));
    assert_eq!(put(cluster(unseen.clone(), []))["status"]["observedGeneration"], 3);
    let deaf = cluster(unseen, []).failing::<Deployment>("update", &web(), api_error(ErrorReason::Conflict));
    check(deaf, &format!("{WARNING}{OBSERVED} FAILED: refused\n"));
}

/// Proves DEP-13, DEP-101, DEP-110, DEP-118.
#[test]
fn replica_sets_are_adopted_and_released_first() {
    const ADOPT: &str =
        "patch replicasets.apps a/old because it matches the selector and has no controllerRef";
    const RELEASE: &str = "patch replicasets.apps a/old because it does not match the selector any more";
    let orphan = || with_field(old(0, 0), "/metadata/ownerReferences", json!([]));
    check(cluster(complete(3), [orphan(), new(3, 3)]), &format!("{ADOPT}\n"));
    // Its live size may differ, so nothing is created before its watch event arrives.
    check(cluster(deployment(3), [orphan()]), &format!("{ADOPT}\n"));
    let raced = cluster(deployment(3), [orphan()]);
    let raced =
        raced.failing::<ReplicaSet>("patch", &Key::namespaced("a", "old"), api_error(ErrorReason::Invalid));
    check(raced, &format!("{ADOPT} FAILED: refused\nretry: {ADOPT}: refused\n"));
    let terminating_owner = RehearsalCluster::of(&the_loop()).with_cached::<Deployment>(complete(3));
    let terminating_owner =
        terminating_owner.with_live::<Deployment>(terminating(complete(3))).with::<ReplicaSet>(orphan());
    check(
        terminating_owner,
        &format!("{ADOPT} FAILED: the owner is being deleted\nretry: {ADOPT}: the owner is being deleted\n"),
    );
    let of_another = with_field(old(2, 2), "/metadata/ownerReferences/0/uid", json!("u-other"));
    check(cluster(complete(3), [of_another, new(3, 3)]), "");
    let stray = with_field(old(2, 2), "/metadata/labels", json!({"app": "none"}));
    check(cluster(complete(3), [stray, new(3, 3)]), &format!("{RELEASE}\n"));
}

/// Proves DEP-14, DEP-100.
#[test]
fn deletion_pause_rollback_and_scaling_take_precedence_in_order() {
    let mut all = paused(terminating(with_field(deployment(5), "/metadata/annotations/note", json!("x"))));
    all["metadata"]["annotations"][annotations::ROLLBACK_TO] = json!("1");
    let sets = || [old(2, 2), new(2, 2)];
    const REFRESH: &str =
        "patch replicasets.apps a/new because its annotations or minReadySeconds are outdated\n";
    // Terminating: only the status, and the annotations of the new ReplicaSet.
    check(cluster(all.clone(), sets()), &format!("{REFRESH}{STATUS}"));
    assert_eq!(written_condition(cluster(all.clone(), sets()), "Progressing"), Value::Null);
    // Paused: ReplicaSets are resized.
    all["metadata"]["deletionTimestamp"] = Value::Null;
    assert_eq!(sizes(cluster(all.clone(), sets())), sized(&[("new", 3), ("old", 3)]));
    assert_eq!(words(&written_condition(cluster(all.clone(), sets()), "Progressing"))[1], "DeploymentPaused");
    // With the rollback annotation.
    all["spec"]["paused"] = json!(false);
    assert_eq!(reconcile(cluster(all.clone(), sets())), REFRESH, "the new ReplicaSet is refreshed first");
    let refreshed = with_field(new(2, 2), "/metadata/annotations/note", json!("x"));
    let refreshed = cluster(all.clone(), [old(2, 2), refreshed]);
    assert!(reconcile(refreshed).contains("event Normal DeploymentRollback"));
    // Resized for another number of replicas.
    all["metadata"]["annotations"][annotations::ROLLBACK_TO] = json!("");
    assert_eq!(sizes(cluster(all.clone(), sets())), sized(&[("new", 3), ("old", 3)]));
    // A rolling update.
    all["spec"]["replicas"] = json!(3);
    assert_eq!(sizes(cluster(all, sets())), sized(&[("old", 0)]));
}

/// Proves DEP-15.
#[test]
fn an_unknown_strategy_is_an_error() {
    let odd = with_field(deployment(3), "/spec/strategy", json!({"type": "Magic"}));
    check(cluster(odd, [new(3, 3)]), "retry: unexpected deployment strategy type: Magic\n");
}
