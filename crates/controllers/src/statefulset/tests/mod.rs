//! The transcript of one reconcile of a StatefulSet with given pods, claims and revisions.

mod adoption;
mod history;
mod identity_and_claims;
mod max_unavailable;
mod ordering;
mod recreate_strategy;
mod rolling_updates;
mod status_updates;
mod watch_events;

use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::rehearsal::is_retried_because;
use keleustes_plan::{Loop, RateLimiter};
use serde_json::{Value, json};

use super::*;
use crate::workloads::fixtures::{api_error, recently_ready, terminating, unready, with_field, with_phase};

fn the_loop() -> Loop {
    controller(&StatefulSetOptions::default()).loops.remove(0)
}

fn loop_of(options: &StatefulSetOptions) -> Loop {
    controller(options).loops.remove(0)
}

fn key(name: &str) -> Key {
    Key::namespaced("a", name)
}

fn web() -> Key {
    key("web")
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image, "resources": {}}]}})
}

/// An OrderedReady StatefulSet of `v2` with so many replicas. Its status counts no pods.
fn set(replicas: i32) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "a", "uid": "u-web", "resourceVersion": "7", "generation": 2,
            "annotations": {"note": "x"},
        },
        "spec": {
            "replicas": replicas, "serviceName": "svc", "podManagementPolicy": "OrderedReady",
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("v2"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}},
            "revisionHistoryLimit": 10,
        },
        "status": {
            "observedGeneration": 2, "replicas": 0, "currentRevision": "web-1", "updateRevision": "web-2",
            "collisionCount": 0,
        },
    })
}

/// The StatefulSet with a status that reports all replicas as updated.
fn up_to_date(replicas: i32) -> Value {
    let mut set = set(replicas);
    for count in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        set["status"][count] = json!(replicas);
    }
    with_field(set, "/status/currentRevision", json!("web-2"))
}

fn parallel(set: Value) -> Value {
    with_field(set, "/spec/podManagementPolicy", json!("Parallel"))
}

/// A StatefulSet with one claim template, `data`.
fn with_claim_template(set: Value) -> Value {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "labels": {"of": "db"}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"},
    });
    with_field(set, "/spec/volumeClaimTemplates", json!([claim]))
}

/// The StatefulSet with a retention policy for scale-down and for deletion.
fn with_retention_policy(set: Value, scaled: &str, deleted: &str) -> Value {
    let policy = json!({"whenScaled": scaled, "whenDeleted": deleted});
    with_field(set, "/spec/persistentVolumeClaimRetentionPolicy", policy)
}

/// A revision of an image, controlled by the StatefulSet.
fn revision(name: &str, number: i64, image: &str) -> Value {
    let mut template = template(image);
    template["$patch"] = json!("replace");
    let revision = json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": "3",
            "labels": {"app": "web"}, "creationTimestamp": "2027-01-01T00:00:00Z",
        },
        "data": {"spec": {"template": template}},
        "revision": number,
    });
    owned(revision)
}

/// An object controlled by the StatefulSet.
fn owned(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([owner()]);
    object
}

fn owner() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u-web", "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// An orphan of the update revision that runs and is available.
fn orphan(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": "1",
            "labels": {
                "app": "web", "statefulset.kubernetes.io/pod-name": name, "controller-revision-hash": "web-2",
            },
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-02T00:00:00Z"}],
        },
    })
}

/// A pod of the update revision.
fn pod(number: i32) -> Value {
    owned(orphan(&format!("web-{number}")))
}

/// A pod of the previous revision.
fn old(number: i32) -> Value {
    with_field(pod(number), "/metadata/labels/controller-revision-hash", json!("web-1"))
}

/// A pod that mounts its claim.
fn mounting(pod: Value) -> Value {
    let name = format!("data-{}", pod["metadata"]["name"].as_str().unwrap());
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    with_field(pod, "/spec/volumes", volumes)
}

/// A claim of a pod, with these owners.
fn claim(number: i32, owners: &[Value]) -> Value {
    let name = format!("data-web-{number}");
    json!({"metadata": {"name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": "2",
                        "ownerReferences": owners}})
}

/// A cluster with two revisions, `v1` and `v2`.
fn cluster(set: Value, pods: impl IntoIterator<Item = Value>) -> RehearsalCluster {
    bare(set, pods)
        .with::<ControllerRevision>(revision("web-1", 1, "v1"))
        .with::<ControllerRevision>(revision("web-2", 2, "v2"))
}

/// A cluster without revisions.
fn bare(set: Value, pods: impl IntoIterator<Item = Value>) -> RehearsalCluster {
    let cluster = RehearsalCluster::of(&the_loop()).with::<StatefulSet>(set);
    pods.into_iter().fold(cluster, |cluster, pod| cluster.with::<Pod>(pod))
}

fn with_claims(cluster: RehearsalCluster, claims: impl IntoIterator<Item = Value>) -> RehearsalCluster {
    claims.into_iter().fold(cluster, |cluster, claim| cluster.with::<PersistentVolumeClaim>(claim))
}

/// The transcript of one reconcile.
fn reconcile(mut cluster: RehearsalCluster) -> String {
    cluster.outline(&the_loop(), web())
}

/// The transcript of one reconcile without metrics and status writes.
fn actions(cluster: RehearsalCluster) -> String {
    let transcript = reconcile(cluster);
    let is_action = |line: &&str| !line.starts_with("measure") && !line.starts_with("put statefulsets");
    transcript.lines().filter(is_action).map(|line| format!("{line}\n")).collect()
}

/// The writes to pods of one reconcile, as verb and name.
fn pod_actions(cluster: RehearsalCluster) -> Vec<String> {
    pod_actions_by(&the_loop(), cluster)
}

fn pod_actions_by(a_loop: &Loop, mut cluster: RehearsalCluster) -> Vec<String> {
    let transcript = cluster.outline(a_loop, web());
    let of_pod = |line: &str| {
        let (verb, rest) = line.split_once(" pods a/")?;
        Some(format!("{verb} {}", rest.split(' ').next().unwrap_or_default()))
    };
    transcript.lines().filter(|line| !line.starts_with("retry: ")).filter_map(of_pod).collect()
}

/// The body of the only write whose transcript line starts with `beginning`.
fn body(mut cluster: RehearsalCluster, beginning: &str) -> Value {
    let mut bodies = cluster.bodies(&the_loop(), web(), beginning);
    assert_eq!(bodies.len(), 1, "one {beginning} per reconcile");
    bodies.remove(0).1
}

/// The status that one reconcile writes.
fn status(cluster: RehearsalCluster) -> Value {
    body(cluster, "put statefulsets.apps/status ")["status"].take()
}

const STATUS: &str = "put statefulsets.apps/status a/web because its pods or revisions changed\n";
const MAX: &str = "measure statefulset_controller_statefulset_max_unavailable{a,web,OrderedReady} 1\n";
const NONE_MISSING: &str =
    "measure statefulset_controller_statefulset_unavailable_replicas{a,web,OrderedReady} 0\n";

/// Proves STS-1, STS-2, STS-3.
#[test]
fn names_grants_workers_and_rate_limits_equal_the_original_s() {
    let controller = controller(&StatefulSetOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("statefulset-controller", &["statefulset"][..])
    );
    assert_eq!(
        (controller.service_account, controller.event_component),
        (Some("statefulset-controller"), Some("statefulset-controller"))
    );
    let grants: Vec<_> = controller.grants.iter().map(|grant| (grant.resource, grant.verbs)).collect();
    assert_eq!(
        grants,
        [
            ("statefulsets", &["get"][..]),
            ("statefulsets/status", &["update"]),
            ("pods", &["create", "delete", "get", "patch", "update"]),
            ("persistentvolumeclaims", &["create", "get", "update"]),
            ("controllerrevisions", &["create", "delete", "get", "patch", "update"]),
        ]
    );
    let a_loop = the_loop();
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("statefulset", 5, None));
    assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["statefulsets.apps", "pods", "persistentvolumeclaims", "controllerrevisions.apps"]);
    let watches: Vec<_> = a_loop.watches.iter().map(|watch| watch.kind.resource().to_string()).collect();
    assert_eq!(watches, ["statefulsets.apps", "pods"], "no other kind enqueues it");
}

/// The verb and the resource of each write of a reconcile.
fn requests(cluster: RehearsalCluster) -> Vec<String> {
    let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let transcript = reconcile(cluster);
    let written = transcript
        .lines()
        .filter(|line| !["event", "measure", "retry:"].iter().any(|word| line.starts_with(word)));
    written.map(words).collect()
}

/// Proves STS-94, STS-95, STS-96, STS-97.
#[test]
fn each_resource_is_written_with_these_requests_only() {
    let lost = with_field(pod(0), "/metadata/labels/statefulset.kubernetes.io~1pod-name", json!("x"));
    let released = with_field(pod(1), "/metadata/labels", json!({"app": "none"}));
    let claimed = || with_claim_template(with_retention_policy(up_to_date(1), "Retain", "Delete"));
    let owned_claim = || with_claims(cluster(claimed(), [mounting(pod(0))]), [claim(0, &[])]);
    let changed =
        with_field(with_field(set(0), "/spec/template", template("v3")), "/metadata/generation", json!(3));
    let back =
        with_field(with_field(set(0), "/spec/template", template("v1")), "/metadata/generation", json!(3));
    let limited = with_field(up_to_date(0), "/spec/revisionHistoryLimit", json!(0));
    let orphaned = with_field(revision("web-3", 3, "v9"), "/metadata/ownerReferences", json!([]));
    for (cluster, expected) in [
        (cluster(set(1), []), "create pods"),
        (cluster(up_to_date(1), [lost]), "edit pods"),
        (cluster(up_to_date(1), [pod(0), pod(1)]), "delete pods"),
        (cluster(up_to_date(1), [orphan("web-0")]), "patch pods"),
        (cluster(up_to_date(1), [pod(0), released]), "patch pods"),
        (cluster(with_claim_template(set(1)), []), "create persistentvolumeclaims"),
        (owned_claim(), "edit persistentvolumeclaims"),
        (cluster(changed, []), "create controllerrevisions.apps"),
        (cluster(back, []), "patch controllerrevisions.apps"),
        (cluster(limited, []), "delete controllerrevisions.apps"),
        (cluster(up_to_date(0), []).with::<ControllerRevision>(orphaned), "patch controllerrevisions.apps"),
        (
            cluster(with_field(up_to_date(1), "/metadata/generation", json!(3)), [pod(0)]),
            "put statefulsets.apps/status",
        ),
    ] {
        let requests = requests(cluster);
        assert_eq!(requests.first().map(String::as_str), Some(expected), "{requests:?}");
        // The spec of the StatefulSet is never written.
        let of_set = requests.iter().filter(|request| request.contains(" statefulsets.apps"));
        assert!(of_set.clone().all(|request| request == "put statefulsets.apps/status"), "{requests:?}");
    }
    // A pod or a revision that is not found counts as deleted, and a conflict of a claim is retried.
    let surplus = cluster(up_to_date(1), [pod(0), pod(1)]);
    let gone = surplus.failing::<Pod>("delete", &key("web-1"), api_error(ErrorReason::NotFound));
    assert!(!reconcile(gone).contains("retry"));
    let raced = owned_claim().failing::<PersistentVolumeClaim>(
        "update",
        &key("data-web-0"),
        api_error(ErrorReason::Conflict),
    );
    assert!(is_retried_because(&reconcile(raced), "refused"));
    let (set, pod): (StatefulSet, Pod) =
        (serde_json::from_value(set(1)).unwrap(), serde_json::from_value(pod(0)).unwrap());
    let write = pods::deletion(&set, &pod, "test");
    let keleustes_plan::Action::Delete { propagation: None, grace_seconds: None, .. } = write.action else {
        panic!("a DELETE with default options")
    };
    assert_eq!(write.target.uid.to_string(), "u-web-0", "a UID precondition");
}

/// Proves STS-13.
#[test]
fn nothing_is_done_for_a_deleted_stateful_set_or_an_invalid_selector() {
    let mut deleted = RehearsalCluster::of(&the_loop()).with::<Pod>(pod(0));
    assert_eq!(deleted.reconcile(&the_loop(), web()), "");
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Likes", "values": ["web"]}]});
    assert_eq!(reconcile(cluster(with_field(set(2), "/spec/selector", odd), [pod(0)])), "");
    // A StatefulSet that is up to date is only measured.
    assert_eq!(reconcile(cluster(up_to_date(2), [pod(0), pod(1)])), format!("{NONE_MISSING}{MAX}"));
}

/// Proves STS-38.
#[test]
fn a_terminating_stateful_set_only_updates_its_status() {
    let terminating_owner =
        terminating(with_claim_template(with_retention_policy(set(3), "Delete", "Delete")));
    let pods =
        [mounting(old(0)), with_phase("Failed", old(1)), old(7), with_phase("Pending", orphan("web-2"))];
    assert_eq!(reconcile(cluster(terminating_owner, pods)), format!("{MAX}{STATUS}"));
    let unseen = terminating(set(0));
    let cluster = bare(unseen, []);
    assert!(
        reconcile(cluster).starts_with("create controllerrevisions.apps a/web-"),
        "revisions are kept, too"
    );
}
