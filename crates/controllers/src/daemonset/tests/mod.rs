//! What a turn does about a DaemonSet, its pods on the nodes and its history, told step by step.

mod bounds;
mod eligible;
mod history;
mod keeping;
mod making;
mod rolling_on;
mod telling;
mod waking;

use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::rehearsal::RehearsalCluster;
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
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A DaemonSet of `v2`; one node at a time may be without a pod. Its status says nothing of pods yet.
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

/// The same, with a status that says that so many nodes have a pod, all of them well and new.
fn content(nodes: i32) -> Value {
    let mut set = set();
    for count in ["desired", "current", "updated"] {
        set["status"][format!("{count}NumberScheduled")] = json!(nodes);
    }
    set["status"]["numberReady"] = json!(nodes);
    set["status"]["numberAvailable"] = json!(nodes);
    set
}

/// The strategy: how many nodes may be without a pod, and how many may have two.
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

/// A revision of an image, of the DaemonSet, with a hash.
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

/// A pod on a node that nobody manages. It is of the newest template, runs and has been ready for long.
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

/// A pod on a node, of the newest template.
fn pod(name: &str, node: &str) -> Value {
    owned(orphan(name, node))
}

/// A pod on a node, of the template before.
fn old(name: &str, node: &str) -> Value {
    aged(pod(name, node))
}

/// Makes a pod one of the template before.
fn aged(pod: Value) -> Value {
    let labels = json!({"app": "agent", "controller-revision-hash": "h1", "pod-template-generation": "1"});
    with_field(pod, "/metadata/labels", labels)
}

/// A pod that is meant for a node and not bound yet.
fn unbound(name: &str, node: &str) -> Value {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let pod = with_phase("Pending", unready(pod(name, "")));
    with_field(pod, "/spec/affinity", json!({"nodeAffinity": required}))
}

/// A world with these nodes and pods, and two revisions, `v1` and `v2`.
fn world(
    set: Value,
    nodes: impl IntoIterator<Item = Value>,
    pods: impl IntoIterator<Item = Value>,
) -> RehearsalCluster {
    bare(set, nodes, pods)
        .with::<ControllerRevision>(revision("h1", 1, "v1"))
        .with::<ControllerRevision>(revision("h2", 2, "v2"))
}

/// A world without revisions.
fn bare(
    set: Value,
    nodes: impl IntoIterator<Item = Value>,
    pods: impl IntoIterator<Item = Value>,
) -> RehearsalCluster {
    let world = RehearsalCluster::of(&the_loop()).with::<DaemonSet>(set);
    let world = nodes.into_iter().fold(world, |world, node| world.with::<Node>(node));
    pods.into_iter().fold(world, |world, pod| world.with::<Pod>(pod))
}

/// So many nodes, each with a pod made by this.
fn many(set: Value, count: usize, pod_of: impl Fn(usize, &str) -> Value) -> RehearsalCluster {
    let names: Vec<String> = (0..count).map(|at| format!("n{at:03}")).collect();
    let pods: Vec<Value> = names.iter().enumerate().map(|(at, name)| pod_of(at, name)).collect();
    world(set, names.iter().map(|name| node(name)), pods)
}

/// What one turn does.
fn turn(mut world: RehearsalCluster) -> String {
    world.outline(&the_loop(), agent())
}

/// Which pods one turn deletes, and on which nodes it makes some.
fn moves(mut world: RehearsalCluster) -> Vec<String> {
    moves_in(&the_loop(), &mut world)
}

fn moves_in(a_loop: &Loop, world: &mut RehearsalCluster) -> Vec<String> {
    let transcript = world.reconcile(a_loop, agent());
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

/// The node that a pod is made for.
fn target(pod: &Value) -> String {
    let terms = &pod.pointer(REQUIRED).unwrap()["nodeSelectorTerms"];
    terms[0]["matchFields"][0]["values"][0].as_str().unwrap().to_owned()
}

/// The status that a turn writes.
fn status(mut world: RehearsalCluster) -> Value {
    world.bodies(&the_loop(), agent(), "put daemonsets.apps/status ").remove(0).1["status"].take()
}

/// The pod that a turn makes.
fn made(mut world: RehearsalCluster) -> Value {
    world.bodies(&the_loop(), agent(), "create pods ").remove(0).1
}

const STATUS: &str = "put daemonsets.apps/status a/agent because its pods tell something new\n";

/// Proves DS-1, DS-2, DS-85, DS-86, DS-87.
#[test]
fn it_is_known_by_the_original_s_names_and_numbers() {
    let controller = controller(&DaemonSetOptions::default());
    assert_eq!((controller.name, controller.aliases), ("daemonset-controller", &["daemonset"][..]));
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
    let set: DaemonSet = serde_json::from_value(set()).unwrap();
    let facts = bounds::facts(set, &[]);
    let plan = status::plan(&facts, &keleustes_objects::DaemonSetStatus::default(), StatusUrgency::Immediate);
    let [keleustes_plan::Step::One(write)] = plan.steps() else { panic!("one write") };
    let keleustes_plan::Action::Put { conflict_tries: 2, .. } = &write.action else { panic!("two tries") };
}

/// Proves DS-18, DS-19, DS-20, DS-91.
#[test]
fn one_that_is_gone_or_going_or_selects_all_is_left_alone() {
    let mut gone = RehearsalCluster::of(&the_loop()).with::<Node>(node("n")).with::<Pod>(pod("x", "n"));
    assert_eq!(gone.reconcile(&the_loop(), agent()), "");
    let all = with_field(set(), "/spec/selector", json!({}));
    const TOLD: &str = "event Warning SelectingAll: This daemon set is selecting all pods. A non-empty selector is required.\n";
    assert_eq!(turn(world(all.clone(), [node("n")], [])), TOLD);
    assert_eq!(turn(world(terminating(all), [node("n")], [])), TOLD);
    assert_eq!(turn(bare(terminating(set()), [node("n")], [orphan("x", "n")])), "");
    // One that selects nothing, which the API does not let in, is left alone as well.
    assert_eq!(
        turn(world(with_field(set(), "/spec/selector", Value::Null), [node("n")], [orphan("x", "n")])),
        ""
    );
}

/// Proves DS-21.
#[test]
fn a_selector_that_makes_no_sense_is_a_failure() {
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Likes", "values": ["web"]}]});
    let transcript = turn(world(with_field(set(), "/spec/selector", odd), [node("n")], []));
    assert!(transcript.starts_with("retry: ") && transcript.lines().count() == 1, "{transcript}");
}

/// Proves DS-17, DS-24, DS-79.
#[test]
fn history_then_pods_then_what_is_too_old_then_the_status() {
    let limited = || with_field(set(), "/spec/revisionHistoryLimit", json!(0));
    let renumbered = || {
        bare(limited(), [node("n")], [])
            .with::<ControllerRevision>(revision("h1", 4, "v1"))
            .with::<ControllerRevision>(revision("h2", 2, "v2"))
    };
    const RENUMBER: &str =
        "patch controllerrevisions.apps a/agent-h2 because its template is the newest again\n";
    const CREATE: &str = "create pods a/ because the node has no pod of it";
    assert_eq!(
        turn(renumbered()),
        format!(
            "{RENUMBER}{CREATE}\n\
             event Normal SuccessfulCreate: Created pod: agent-new\n\
             delete controllerrevisions.apps a/agent-h1 because it is older than the history that is kept\n\
             {STATUS}"
        )
    );
    // A failure to make a pod leaves the history alone, and the status is told.
    let failing = renumbered().failing::<Pod>("create", &key(""), api_error(ErrorReason::Forbidden));
    assert_eq!(
        turn(failing),
        format!(
            "{RENUMBER}{CREATE} FAILED: refused\n\
             event Warning FailedCreate: Error creating: refused\n\
             {STATUS}retry: refused\n"
        )
    );
    let deaf = ApiError::transport(ErrorReason::Other, "deaf");
    let both = renumbered().failing::<Pod>("create", &key(""), api_error(ErrorReason::Forbidden));
    let both = both.failing::<DaemonSet>("update", &agent(), deaf.clone());
    assert!(turn(both).ends_with("FAILED: deaf\nretry: refused\n"), "the first one is reported");
    let only_deaf = renumbered().failing::<DaemonSet>("update", &agent(), deaf);
    assert!(turn(only_deaf).ends_with("FAILED: deaf\nretry: deaf\n"));
}

/// Proves DS-71, DS-109.
#[test]
fn revisions_and_pods_are_claimed_first() {
    const ADOPT: &str = "because it matches the selector and nobody manages it";
    const RELEASE: &str = "because it does not match the selector any more";
    let unowned = |object: Value| with_field(object, "/metadata/ownerReferences", json!([]));
    let stray = with_field(revision("h0", 0, "v0"), "/metadata/labels/app", json!("none"));
    let claiming = || {
        bare(content(1), [node("n")], [orphan("x", "n")])
            .with::<ControllerRevision>(unowned(revision("h2", 2, "v2")))
            .with::<ControllerRevision>(stray.clone())
    };
    assert_eq!(
        turn(claiming()),
        format!(
            "patch controllerrevisions.apps a/agent-h0 {RELEASE}\n\
             patch controllerrevisions.apps a/agent-h2 {ADOPT}\n\
             patch pods a/x {ADOPT}\n"
        )
    );
    // Another was faster.
    let raced = claiming().failing::<Pod>("patch", &key("x"), api_error(ErrorReason::Invalid));
    assert!(turn(raced).ends_with(&format!("patch pods a/x {ADOPT} FAILED: refused\nretry: refused\n")));
    // One that turns out to be gone does not count.
    let gone = claiming().failing::<Pod>("patch", &key("x"), api_error(ErrorReason::NotFound));
    assert_eq!(moves(gone), ["create on n"]);
}
