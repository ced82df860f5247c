//! Single reconciles of a DaemonSet: its pods on the nodes, its history and its status.

mod bounds;
mod eligibility;
mod enqueue;
mod history;
mod manage;
mod pod_creation;
mod rolling_update;
mod status;

use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::rehearsal::is_retried_because;
use keleustes_plan::{Loop, RateLimiter, StatusUrgency};
use serde_json::{Value, json};

use super::*;
use crate::workloads::fixtures::{api_error, recently_ready, terminating, unready, with_field, with_phase};

fn the_loop() -> Loop {
    controller(&DaemonSetOptions::default()).loops.remove(0)
}

fn key(name: &str) -> Key {
    Key::namespaced("a", name)
}

fn agent() -> Key {
    key("agent")
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": image, "resources": {}}]}})
}

/// A DaemonSet with image `v2` and maxUnavailable 1. Its status counts no pods yet.
fn set() -> Value {
    json!({
        "metadata": {
            "name": "agent", "namespace": "a", "uid": "u-agent", "resourceVersion": "7", "generation": 2,
            "annotations": {"deprecated.daemonset.template.generation": "2"},
        },
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template("v2"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "revisionHistoryLimit": 10,
        },
        "status": {"observedGeneration": 2},
    })
}

/// The same, with a status that counts this many nodes, each with an available and updated pod.
fn content(nodes: i32) -> Value {
    let mut set = set();
    for count in ["desired", "current", "updated"] {
        set["status"][format!("{count}NumberScheduled")] = json!(nodes);
    }
    set["status"]["numberReady"] = json!(nodes);
    set["status"]["numberAvailable"] = json!(nodes);
    set
}

/// A DaemonSet with this maxUnavailable and maxSurge.
fn allowing(unavailable: impl Into<Value>, surge: impl Into<Value>) -> Value {
    let numbers = json!({"maxUnavailable": unavailable.into(), "maxSurge": surge.into()});
    with_field(set(), "/spec/updateStrategy/rollingUpdate", numbers)
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}})
}

fn tainted(name: &str, key: &str, effect: &str) -> Value {
    with_field(node(name), "/spec/taints", json!([{"key": key, "value": "v", "effect": effect}]))
}

/// A revision of the DaemonSet with a hash and an image.
fn revision(hash: &str, number: i64, image: &str) -> Value {
    let mut template = template(image);
    template["$patch"] = json!("replace");
    owned(json!({
        "metadata": {
            "name": format!("agent-{hash}"), "namespace": "a", "uid": format!("u-{hash}"), "resourceVersion": "3",
            "labels": {"app": "agent", "controller-revision-hash": hash},
        },
        "data": {"spec": {"template": template}},
        "revision": number,
    }))
}

fn owned(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([owner()]);
    object
}

fn owner() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u-agent", "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// An orphaned pod on a node, with the labels of the current revision, running and long ready.
fn orphan(name: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2027-01-01T00:00:00Z",
            "labels": {"app": "agent", "controller-revision-hash": "h2", "pod-template-generation": "2"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-02T00:00:00Z"}],
        },
    })
}

/// A pod on a node, of the current revision.
fn pod(name: &str, node: &str) -> Value {
    owned(orphan(name, node))
}

/// A pod on a node, of the previous revision.
fn old(name: &str, node: &str) -> Value {
    outdated(pod(name, node))
}

/// Gives a pod the labels of the previous revision.
fn outdated(pod: Value) -> Value {
    let labels = json!({"app": "agent", "controller-revision-hash": "h1", "pod-template-generation": "1"});
    with_field(pod, "/metadata/labels", labels)
}

/// A pod that targets a node by its affinity and is not bound yet.
fn unbound(name: &str, node: &str) -> Value {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let pod = with_phase("Pending", unready(pod(name, "")));
    with_field(pod, "/spec/affinity", json!({"nodeAffinity": required}))
}

/// A cluster with these nodes and pods, and two revisions, `v1` and `v2`.
fn cluster(
    set: Value,
    nodes: impl IntoIterator<Item = Value>,
    pods: impl IntoIterator<Item = Value>,
) -> RehearsalCluster {
    bare(set, nodes, pods)
        .with::<ControllerRevision>(revision("h1", 1, "v1"))
        .with::<ControllerRevision>(revision("h2", 2, "v2"))
}

/// A cluster without revisions.
fn bare(
    set: Value,
    nodes: impl IntoIterator<Item = Value>,
    pods: impl IntoIterator<Item = Value>,
) -> RehearsalCluster {
    let cluster = RehearsalCluster::of(&the_loop()).with::<DaemonSet>(set);
    let cluster = nodes.into_iter().fold(cluster, |cluster, node| cluster.with::<Node>(node));
    pods.into_iter().fold(cluster, |cluster, pod| cluster.with::<Pod>(pod))
}

/// A cluster with this many nodes, each with a pod from `pod_of`.
fn cluster_of(set: Value, count: usize, pod_of: impl Fn(usize, &str) -> Value) -> RehearsalCluster {
    let names: Vec<String> = (0..count).map(|at| format!("n{at:03}")).collect();
    let pods: Vec<Value> = names.iter().enumerate().map(|(at, name)| pod_of(at, name)).collect();
    cluster(set, names.iter().map(|name| node(name)), pods)
}

/// The transcript of one reconcile.
fn transcript_of(mut cluster: RehearsalCluster) -> String {
    cluster.outline(&the_loop(), agent())
}

/// The pods that one reconcile deletes, and the nodes on which it creates pods.
fn pod_changes(mut cluster: RehearsalCluster) -> Vec<String> {
    pod_changes_in(&the_loop(), &mut cluster)
}

fn pod_changes_in(a_loop: &Loop, cluster: &mut RehearsalCluster) -> Vec<String> {
    let transcript = cluster.reconcile(a_loop, agent());
    let read = |line: &str| {
        if let Some(rest) = line.strip_prefix("delete pods a/") {
            return Some(format!("delete {}", rest.split(' ').next()?));
        }
        let (_, body) = line.strip_prefix("create pods a/ ")?.split_once(": {")?;
        let body: Value = serde_json::from_str(&format!("{{{body}")).ok()?;
        Some(format!("create on {}", target(&body)))
    };
    transcript.lines().filter_map(read).collect()
}

const REQUIRED: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// The target node of a pod.
fn target(pod: &Value) -> String {
    let terms = &pod.pointer(REQUIRED).unwrap()["nodeSelectorTerms"];
    terms[0]["matchFields"][0]["values"][0].as_str().unwrap().to_owned()
}

/// The status that a reconcile writes.
fn status(mut cluster: RehearsalCluster) -> Value {
    cluster.bodies(&the_loop(), agent(), "put daemonsets.apps/status ").remove(0).1["status"].take()
}

/// The pod that a reconcile creates.
fn created_pod(mut cluster: RehearsalCluster) -> Value {
    cluster.bodies(&the_loop(), agent(), "create pods ").remove(0).1
}

const STATUS: &str = "put daemonsets.apps/status a/agent because the status changed\n";

/// Proves DS-1, DS-2, DS-85, DS-86.
#[test]
fn names_grants_and_limits_are_those_of_upstream() {
    let controller = controller(&DaemonSetOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("daemonset-controller", &["daemonset"][..])
    );
    assert_eq!(
        (controller.service_account, controller.event_component),
        (Some("daemon-set-controller"), Some("daemonset-controller"))
    );
    let grants: Vec<_> = controller.grants.iter().map(|grant| (grant.resource, grant.verbs)).collect();
    assert_eq!(
        grants,
        [
            ("daemonsets", &["get"][..]),
            ("daemonsets/status", &["update"]),
            ("pods", &["create", "delete", "patch"]),
            ("controllerrevisions", &["create", "delete", "get", "patch", "update"]),
        ]
    );
    let a_loop = the_loop();
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("daemonset", 2, None));
    assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["daemonsets.apps", "pods", "controllerrevisions.apps", "nodes"]);
}

/// Proves DS-18, DS-19, DS-20, DS-91.
#[test]
fn a_deleted_terminating_or_select_all_daemonset_is_not_reconciled() {
    let mut gone = RehearsalCluster::of(&the_loop()).with::<Node>(node("n")).with::<Pod>(pod("x", "n"));
    assert_eq!(gone.reconcile(&the_loop(), agent()), "");
    let all = with_field(set(), "/spec/selector", json!({}));
    const SELECTING_ALL: &str = "event Warning SelectingAll on DaemonSet a/agent uid=u-agent: This daemon set is selecting all pods. A non-empty selector is required.\n";
    assert_eq!(transcript_of(cluster(all.clone(), [node("n")], [])), SELECTING_ALL);
    assert_eq!(transcript_of(cluster(terminating(all), [node("n")], [])), SELECTING_ALL);
    assert_eq!(transcript_of(bare(terminating(set()), [node("n")], [orphan("x", "n")])), "");
    // A DaemonSet without a selector, which the API rejects, is not reconciled either.
    assert_eq!(
        transcript_of(cluster(
            with_field(set(), "/spec/selector", Value::Null),
            [node("n")],
            [orphan("x", "n")]
        )),
        ""
    );
}

/// Proves DS-21.
#[test]
fn an_invalid_selector_is_an_error() {
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Likes", "values": ["web"]}]});
    let transcript = transcript_of(cluster(with_field(set(), "/spec/selector", odd), [node("n")], []));
    assert!(transcript.starts_with("retry: ") && transcript.lines().count() == 1, "{transcript}");
}

/// Proves DS-17, DS-24, DS-79.
#[test]
fn writes_are_in_the_order_history_pods_cleanup_status() {
    let limited = || with_field(set(), "/spec/revisionHistoryLimit", json!(0));
    let renumbered = || {
        bare(limited(), [node("n")], [])
            .with::<ControllerRevision>(revision("h1", 4, "v1"))
            .with::<ControllerRevision>(revision("h2", 2, "v2"))
    };
    const RENUMBER: &str =
        "patch controllerrevisions.apps a/agent-h2 because its template is the newest again\n";
    const CREATE: &str = "create pods a/ because the node has no pod of the DaemonSet";
    assert_eq!(
        transcript_of(renumbered()),
        format!(
            "{RENUMBER}{CREATE}\n\
             event Normal SuccessfulCreate on DaemonSet a/agent uid=u-agent: Created pod: agent-new\n\
             delete controllerrevisions.apps a/agent-h1 because the revision exceeds revisionHistoryLimit\n\
             {STATUS}"
        )
    );
    // After a failed pod creation the history is not cleaned up, and the status is written.
    let failing = renumbered().failing::<Pod>("create", &key(""), api_error(ErrorReason::Forbidden));
    assert_eq!(
        transcript_of(failing),
        format!(
            "{RENUMBER}{CREATE} FAILED: refused\n\
             event Warning FailedCreate on DaemonSet a/agent uid=u-agent: Error creating: refused\n\
             {STATUS}retry: {CREATE}: refused\n"
        )
    );
    let unreachable = ApiError::transport(ErrorReason::Other, "unreachable");
    let both = renumbered().failing::<Pod>("create", &key(""), api_error(ErrorReason::Forbidden));
    let both = both.failing::<DaemonSet>("update", &agent(), unreachable.clone());
    assert!(
        transcript_of(both).ends_with(&format!("FAILED: unreachable\nretry: {CREATE}: refused\n")),
        "the first one is reported"
    );
    let only_unreachable = renumbered().failing::<DaemonSet>("update", &agent(), unreachable);
    assert!(is_retried_because(&transcript_of(only_unreachable), "unreachable"));
}

/// Proves DS-71, DS-109.
#[test]
fn revisions_and_pods_are_adopted_and_released_first() {
    const ADOPT: &str = "because it matches the selector and has no controllerRef";
    const RELEASE: &str = "because it does not match the selector any more";
    let unowned = |object: Value| with_field(object, "/metadata/ownerReferences", json!([]));
    let stray = with_field(revision("h0", 0, "v0"), "/metadata/labels/app", json!("none"));
    let with_orphans = || {
        bare(content(1), [node("n")], [orphan("x", "n")])
            .with::<ControllerRevision>(unowned(revision("h2", 2, "v2")))
            .with::<ControllerRevision>(stray.clone())
    };
    assert_eq!(
        transcript_of(with_orphans()),
        format!(
            "patch controllerrevisions.apps a/agent-h0 {RELEASE}\n\
             patch controllerrevisions.apps a/agent-h2 {ADOPT}\n\
             patch pods a/x {ADOPT}\n"
        )
    );
    // Another controller has adopted it.
    let raced = with_orphans().failing::<Pod>("patch", &key("x"), api_error(ErrorReason::Invalid));
    assert!(transcript_of(raced).ends_with(&format!(
        "patch pods a/x {ADOPT} FAILED: refused\nretry: patch pods a/x {ADOPT}: refused\n"
    )));
    // A pod that is not found does not count.
    let gone = with_orphans().failing::<Pod>("patch", &key("x"), api_error(ErrorReason::NotFound));
    assert_eq!(pod_changes(gone), ["create on n"]);
}
