//! An object that names the UID of an owner in another namespace is not that owner's, whatever else it says.
//!
//! Anybody who may create pods in one namespace may write any `ownerReferences` on them. Every workload controller is
//! therefore reconciled once without and once with such objects, and must do the same.

use keleustes_objects::{
    ControllerRevision, DaemonSet, Deployment, Job, Key, Kind, Node, Pod, ReplicaSet, ReplicationController,
    StatefulSet,
};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Controller, Loop};
use serde_json::{Value, json};

use super::fixtures::{terminating, with_field, with_phase};
use crate::{daemonset, deployment, job, replicaset, replicationcontroller, statefulset};

/// An owner named `web` in namespace `a` that wants two pods.
fn owner<O: Kind>() -> Value {
    let labels = json!({"app": "web"});
    let selector = if O::RESOURCE.kind == "ReplicationController" {
        labels.clone()
    } else {
        json!({"matchLabels": labels})
    };
    let mut owner = json!({
        "metadata": {"name": "web", "namespace": "a", "uid": "u-web", "resourceVersion": "7", "generation": 2},
        "spec": {
            "replicas": 2, "parallelism": 2, "completions": 2, "backoffLimit": 0, "completionMode": "NonIndexed",
            "selector": selector, "serviceName": "svc",
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "revisionHistoryLimit": 0,
        },
        "status": {"observedGeneration": 2, "replicas": 0},
    });
    owner["spec"]["strategy"] = json!({"type": "Recreate"});
    owner["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    owner
}

fn controlled<O: Kind>(name: &str, spec: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2027-01-01T00:00:00Z", "labels": {"app": "web"},
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{
                "apiVersion": O::RESOURCE.api_version(), "kind": O::RESOURCE.kind, "name": "web", "uid": "u-web",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

/// A ready pod of the owner on node `n`.
fn pod<O: Kind>(name: &str) -> Value {
    let mut pod =
        controlled::<O>(name, &json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}));
    pod["status"] = json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-02T00:00:00Z"}],
    });
    pod
}

/// A pod in each state that some controller treats in its own way.
fn pods<O: Kind>() -> Vec<Value> {
    let of = pod::<O>;
    let unlabeled = |pod: Value| with_field(pod, "/metadata/labels", json!({"app": "none"}));
    vec![
        of("web-0"),
        of("web-1"),
        of("web-7"),
        terminating(of("web-3")),
        unlabeled(of("web-4")),
        with_phase("Succeeded", of("web-5")),
        with_phase("Failed", of("web-6")),
        unlabeled(with_phase("Failed", of("web-8"))),
    ]
}

fn revision<O: Kind>(name: &str) -> Value {
    let mut revision = controlled::<O>(name, &Value::Null);
    revision["data"] = json!({"spec": {"template": {"$patch": "replace", "spec": {"containers": []}}}});
    revision["revision"] = json!(9);
    revision
}

fn replica_set<O: Kind>(name: &str) -> Value {
    let spec = owner::<ReplicaSet>()["spec"].take();
    let mut set = controlled::<O>(name, &spec);
    set["status"] = json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 2});
    set
}

/// The object as a tenant of namespace `b` would create it, and three that misname the owner.
fn misattributed(object: &Value) -> Vec<Value> {
    let reference = "/metadata/ownerReferences/0";
    let elsewhere = with_field(object.clone(), "/metadata/namespace", json!("b"));
    let other =
        |field: &str, value: &str| with_field(object.clone(), &format!("{reference}/{field}"), json!(value));
    vec![elsewhere, other("kind", "Another"), other("name", "another"), other("uid", "u-another")]
}

/// The transcript of one reconcile of the owner, which must be the same without and with objects of others.
#[track_caller]
fn assert_ignores<O: Kind, T: Kind>(controller: impl Fn() -> Controller, objects: &[Value]) {
    let a_loop = || -> Loop { controller().loops.remove(0) };
    let world = || {
        let namesake = with_field(owner::<O>(), "/metadata/namespace", json!("b"));
        let namesake = with_field(namesake, "/metadata/uid", json!("u-namesake"));
        let node = json!({"metadata": {"name": "n"}});
        let world = RehearsalCluster::of(&a_loop()).with::<O>(owner::<O>()).with::<O>(namesake);
        if a_loop().reads.iter().any(|kind| *kind == keleustes_plan::KindEntry::of::<Node>()) {
            world.with::<Node>(node)
        } else {
            world
        }
    };
    let web = || Key::namespaced("a", "web");
    let alone = world().reconcile(&a_loop(), web());
    for foreign in objects.iter().flat_map(misattributed) {
        let mut cluster = world();
        let enqueued = cluster.put::<T>(&a_loop(), foreign.clone());
        assert_eq!(enqueued, [""; 0], "it enqueues no workload: {foreign}");
        assert_eq!(cluster.reconcile(&a_loop(), web()), alone, "{foreign}");
    }
    let mut with_own = objects.iter().fold(world(), |world, object| world.with::<T>(object.clone()));
    assert_ne!(with_own.reconcile(&a_loop(), web()), alone, "objects of its own matter");
}

/// Proves RS-19, INF-6.
#[test]
fn a_replica_set_ignores_pods_of_another_namespace_that_name_its_uid() {
    let controller = || replicaset::controller(&replicaset::ReplicaSetOptions::default());
    assert_ignores::<ReplicaSet, Pod>(controller, &pods::<ReplicaSet>());
}

/// Proves RC-7, RC-26.
#[test]
fn a_replication_controller_ignores_pods_of_another_namespace_that_name_its_uid() {
    let controller = || replicationcontroller::controller(&replicaset::ReplicaSetOptions::default());
    assert_ignores::<ReplicationController, Pod>(controller, &pods::<ReplicationController>());
}

#[test]
fn a_deployment_ignores_replica_sets_of_another_namespace_that_name_its_uid() {
    let controller = || deployment::controller(&deployment::DeploymentOptions::default());
    assert_ignores::<Deployment, ReplicaSet>(controller, &[replica_set::<Deployment>("web-1")]);
}

/// Proves JOB-1.
#[test]
fn a_job_ignores_pods_of_another_namespace_that_name_its_uid() {
    assert_ignores::<Job, Pod>(|| job::controller(&job::JobOptions::default()), &pods::<Job>());
}

#[test]
fn a_daemon_set_ignores_objects_of_another_namespace_that_name_its_uid() {
    let controller = || daemonset::controller(&daemonset::DaemonSetOptions::default());
    assert_ignores::<DaemonSet, Pod>(controller, &pods::<DaemonSet>());
    assert_ignores::<DaemonSet, ControllerRevision>(controller, &[revision::<DaemonSet>("web-1")]);
}

/// Proves STS-9.
#[test]
fn a_stateful_set_ignores_objects_of_another_namespace_that_name_its_uid() {
    let controller = || statefulset::controller(&statefulset::StatefulSetOptions::default());
    assert_ignores::<StatefulSet, Pod>(controller, &pods::<StatefulSet>());
    assert_ignores::<StatefulSet, ControllerRevision>(controller, &[revision::<StatefulSet>("web-1")]);
}
