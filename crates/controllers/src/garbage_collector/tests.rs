//! The requests of one reconcile of an item of either queue.

use keleustes_plan::rehearsal::is_retried_because;
use std::sync::Arc;

use keleustes_objects::{ApiError, ApiResource, DiscoveredResources, Key, PartialObjectMeta, Resource, Uid};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Controller, Effects, Item, Observer};
use serde_json::{Value, json};

use super::*;

const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
const MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
const NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
const SETS: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");
const OLD_SETS: Resource = Resource::namespaced("apps", "v1beta1", "replicasets", "ReplicaSet");
const WIDGETS: Resource = Resource::namespaced("example.org", "v1", "widgets", "Widget");

fn served(resource: Resource) -> ApiResource {
    ApiResource {
        resource,
        preferred: true,
        singular: String::new(),
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    }
}

/// A controller, the objects its graph has observed, and the objects on the API server.
struct TestCluster {
    controller: Controller,
    rehearsal: RehearsalCluster,
}

impl Default for TestCluster {
    fn default() -> Self {
        let resources = [PODS, MAPS, NODES, SETS, OLD_SETS, WIDGETS].map(served).to_vec();
        let discovered = DiscoveredResources { resources, ..DiscoveredResources::default() };
        Self {
            controller: controller(&GarbageCollectorOptions::default()),
            rehearsal: RehearsalCluster::default().with_discovery(Ok(discovered)),
        }
    }
}

/// An object in wire form; its UID is its name, its resourceVersion 7.
fn object(resource: &Resource, key: &str) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {
        "namespace": namespace, "name": name, "uid": name, "resourceVersion": "7", "ownerReferences": []}})
}

trait ObjectExt: Sized {
    fn owned(self, owner: &Resource, name: &str) -> Self;
    fn with(self, pointer: &str, value: Value) -> Self;

    fn blocking(self, owner: &Resource, name: &str) -> Self {
        self.owned(owner, name).with("/metadata/ownerReferences/0/blockOwnerDeletion", json!(true))
    }

    fn terminating(self, finalizers: &[&str]) -> Self {
        self.with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))
            .with("/metadata/finalizers", json!(finalizers))
    }
}

impl ObjectExt for Value {
    fn owned(mut self, owner: &Resource, name: &str) -> Self {
        let reference =
            json!({"apiVersion": owner.api_version(), "kind": owner.kind, "name": name, "uid": name});
        self["metadata"]["ownerReferences"].as_array_mut().unwrap().push(reference);
        self
    }

    fn with(mut self, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.pointer_mut(parent).unwrap()[field] = value;
        self
    }
}

impl TestCluster {
    fn observer(&self) -> Arc<dyn Observer> {
        self.controller.observer.clone().unwrap()
    }

    /// The graph has observed an object, which need not exist any more.
    fn observed(self, resource: &Resource, json: Value) -> Self {
        let seen: PartialObjectMeta = serde_json::from_value(json).unwrap();
        self.observer().on_update(resource, &seen.meta, &mut Effects::default());
        self
    }

    /// The API server has an object, which need not have been observed yet.
    fn live(mut self, resource: &Resource, json: Value) -> Self {
        self.rehearsal = self.rehearsal.with_live_resource(resource, json);
        self
    }

    fn has(self, resource: &Resource, json: Value) -> Self {
        self.observed(resource, json.clone()).live(resource, json)
    }

    fn failing(mut self, verb: &str, resource: &Resource, key: &str, failure: &ApiError, times: u32) -> Self {
        let path = resource.object_path(&key.parse::<Key>().unwrap());
        self.rehearsal = self.rehearsal.failing_at(verb, &path, failure.clone(), Some(times));
        self
    }

    fn attempt_to_delete(&mut self, uid: &str) -> String {
        self.rehearsal.reconcile(&self.controller.loops[0], NodeItem { uid: uid.into(), is_virtual: false })
    }

    fn attempt_to_delete_virtual(&mut self, uid: &str) -> String {
        self.rehearsal.reconcile(&self.controller.loops[0], NodeItem { uid: uid.into(), is_virtual: true })
    }

    fn attempt_to_orphan(&mut self, uid: &str) -> String {
        self.rehearsal.reconcile(&self.controller.loops[1], NodeItem { uid: uid.into(), is_virtual: false })
    }
}

fn answer(code: u16, reason: &str) -> ApiError {
    ApiError::from_status(code, reason, &format!("HTTP {code}"), [], 0)
}

fn unsupported() -> ApiError {
    answer(415, "UnsupportedMediaType")
}

/// Proves GC-50.
#[test]
fn virtual_item_is_dropped_if_the_node_is_removed_or_observed() {
    let mut cluster = TestCluster::default().has(&SETS, object(&SETS, "ns/set"));
    assert_eq!(cluster.attempt_to_delete_virtual("unknown"), "");
    assert_eq!(cluster.attempt_to_delete_virtual("set"), "", "observed in the meantime");
    assert_eq!(cluster.attempt_to_delete("set"), "get replicasets.apps ns/set\n");
}

/// Proves GC-51.
#[test]
fn terminating_object_is_not_read() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "gone").terminating(&["other"]);
    assert_eq!(TestCluster::default().has(&PODS, pod).attempt_to_delete("pod"), "");
}

/// Proves GC-52, GC-132.
#[test]
fn object_missing_on_the_api_server_is_removed_from_the_graph() {
    let owner = object(&SETS, "ns/set");
    let pod = object(&PODS, "ns/pod").owned(&SETS, "set");
    let mut cluster = TestCluster::default().observed(&SETS, owner.clone()).has(&PODS, pod.clone());
    assert_eq!(
        cluster.attempt_to_delete("set"),
        "get replicasets.apps ns/set\nenqueue pod in garbage_collector_attempt_to_delete\n"
    );
    assert_eq!(cluster.attempt_to_delete("set"), "", "it is no longer in the graph");

    let successor = owner.clone().with("/metadata/uid", json!("another"));
    let mut cluster = TestCluster::default().observed(&SETS, owner).live(&SETS, successor).has(&PODS, pod);
    assert_eq!(
        cluster.attempt_to_delete("set"),
        "get replicasets.apps ns/set\nenqueue pod in garbage_collector_attempt_to_delete\n",
        "the same name with another UID is another object"
    );
    assert_eq!(cluster.attempt_to_delete("set"), "");
}

/// Proves GC-53, GC-126.
#[test]
fn namespaced_owner_without_namespace_is_not_read() {
    let node = object(&NODES, "node").owned(&SETS, "set");
    let mut cluster = TestCluster::default().has(&NODES, node);
    assert_eq!(cluster.attempt_to_delete_virtual("set"), "", "no live read, no retry");
}

/// Proves GC-54.
#[test]
fn failed_live_read_is_retried() {
    let failure = answer(500, "InternalError");
    let mut cluster = TestCluster::default()
        .has(&SETS, object(&SETS, "ns/set"))
        .failing("get", &SETS, "ns/set", &failure, 1);
    assert_eq!(
        cluster.attempt_to_delete("set"),
        "get replicasets.apps ns/set\nretry: reading replicasets.apps ns/set: HTTP 500\n"
    );
    let unknown = Resource::namespaced("example.org", "v1", "unknowns", "Unknown");
    let mut cluster = TestCluster::default().has(&unknown, object(&unknown, "ns/one"));
    assert_eq!(
        cluster.attempt_to_delete("one"),
        "retry: unable to get REST mapping for example.org/v1/Unknown.\n"
    );
}

/// Proves GC-56.
#[test]
fn live_owner_references_decide() {
    let seen = object(&PODS, "ns/pod").owned(&SETS, "gone");
    let mut cluster = TestCluster::default().observed(&PODS, seen).live(&PODS, object(&PODS, "ns/pod"));
    assert_eq!(cluster.attempt_to_delete("pod"), "get pods ns/pod\n", "it has no owners");
}

/// Proves GC-57, GC-62, GC-92, GC-128, GC-129.
#[test]
fn solid_owner_keeps_the_object_and_other_references_are_removed() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "solid").owned(&SETS, "gone").owned(&MAPS, "waiting");
    let cluster = TestCluster::default()
        .has(&PODS, pod)
        .has(&SETS, object(&SETS, "ns/solid").terminating(&["other"]))
        .has(&MAPS, object(&MAPS, "ns/waiting").terminating(&["foregroundDeletion"]));
    let mut cluster = cluster;
    assert_eq!(
        cluster.attempt_to_delete("pod"),
        "get pods ns/pod\nget replicasets.apps ns/solid\nget replicasets.apps ns/gone\nget configmaps ns/waiting\n\
         patch pods ns/pod because these owners no longer exist or wait for their dependents, and it has a solid owner: {\"metadata\":{\"ownerReferences\":\
         [{\"$patch\":\"delete\",\"uid\":\"gone\"},{\"$patch\":\"delete\",\"uid\":\"waiting\"}]}}\n"
    );
    let pod = object(&PODS, "ns/pod").owned(&SETS, "solid");
    let mut cluster = TestCluster::default().has(&PODS, pod).has(&SETS, object(&SETS, "ns/solid"));
    assert_eq!(
        cluster.attempt_to_delete("pod"),
        "get pods ns/pod\nget replicasets.apps ns/solid\n",
        "nothing to remove"
    );
}

/// Proves GC-57, GC-65, GC-66.
#[test]
fn object_without_solid_owners_is_deleted_with_the_policy_of_its_finalizers() {
    for (finalizers, policy) in [
        (vec!["orphan", "foregroundDeletion"], "Orphan"),
        (vec!["foregroundDeletion"], "Foreground"),
        (vec!["other"], "Background"),
        (vec![], "Background"),
    ] {
        let pod =
            object(&PODS, "ns/pod").owned(&SETS, "gone").with("/metadata/finalizers", json!(finalizers));
        let mut cluster = TestCluster::default().has(&PODS, pod);
        assert_eq!(
            cluster.attempt_to_delete("pod"),
            format!(
                "get pods ns/pod\nget replicasets.apps ns/gone\n\
                 delete pods ns/pod because it has no solid owner ({policy}) at 7\n"
            )
        );
    }
    let successor = object(&SETS, "ns/set").with("/metadata/uid", json!("another"));
    let pod = object(&PODS, "ns/pod").owned(&SETS, "set");
    let mut cluster = TestCluster::default().has(&PODS, pod).has(&SETS, successor);
    assert!(cluster.attempt_to_delete("pod").contains("delete pods"), "another UID is another owner");
}

#[test]
fn terminating_object_is_not_deleted_again() {
    let seen = object(&PODS, "ns/pod").owned(&SETS, "gone");
    let reads = "get pods ns/pod\nget replicasets.apps ns/gone\n";
    for finalizers in [&["other"][..], &["foregroundDeletion"], &["orphan"]] {
        let live = seen.clone().terminating(finalizers);
        assert_eq!(
            TestCluster::default().observed(&PODS, seen.clone()).live(&PODS, live).attempt_to_delete("pod"),
            reads
        );
    }
    let set = object(&SETS, "ns/set").blocking(&MAPS, "owner");
    let mut cluster = TestCluster::default()
        .has(&MAPS, object(&MAPS, "ns/owner").terminating(&["foregroundDeletion"]))
        .observed(&SETS, set.clone())
        .live(&SETS, set.terminating(&["other"]))
        .has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "set"));
    assert!(
        cluster.attempt_to_delete("set").contains("(Foreground)"),
        "its deletion in progress has another policy"
    );
}

/// Proves GC-58, GC-59.
#[test]
fn owner_known_absent_is_not_read_again() {
    let mut cluster = TestCluster::default();
    for name in ["a", "b"] {
        cluster = cluster.has(&PODS, object(&PODS, &format!("ns/{name}")).owned(&SETS, "gone"));
        cluster = cluster.has(&MAPS, object(&MAPS, &format!("ns/{name}{name}")).owned(&NODES, "node"));
    }
    cluster = cluster.has(&PODS, object(&PODS, "else/c").owned(&SETS, "gone"));
    cluster = cluster.has(&PODS, object(&PODS, "else/d").owned(&NODES, "node"));
    let reads = |transcript: &str| transcript.lines().filter(|line| line.starts_with("get ")).count();
    assert_eq!(reads(&cluster.attempt_to_delete("a")), 2);
    assert_eq!(reads(&cluster.attempt_to_delete("b")), 1, "the owner is known absent in this namespace");
    assert_eq!(reads(&cluster.attempt_to_delete("c")), 2, "and may exist in another");
    assert_eq!(reads(&cluster.attempt_to_delete("aa")), 2);
    assert_eq!(
        reads(&cluster.attempt_to_delete("bb")),
        1,
        "a cluster-scoped owner is absent for every namespace"
    );
    assert_eq!(reads(&cluster.attempt_to_delete("d")), 1);
}

/// Proves GC-60, GC-126.
#[test]
fn cluster_scoped_object_with_namespaced_owner_is_kept_without_retry() {
    let node = object(&NODES, "node").owned(&NODES, "gone").owned(&SETS, "set");
    let mut cluster = TestCluster::default().has(&NODES, node);
    assert_eq!(cluster.attempt_to_delete("node"), "get nodes node\nget nodes gone\n");
}

/// Proves GC-61, GC-123.
#[test]
fn owner_that_cannot_be_read_fails_the_reconcile() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "gone").owned(&MAPS, "map");
    let failure = answer(503, "ServiceUnavailable");
    let mut cluster = TestCluster::default().has(&PODS, pod).failing("get", &MAPS, "ns/map", &failure, 1);
    assert!(cluster.attempt_to_delete("pod").ends_with("retry: reading configmaps ns/map: HTTP 503\n"));
    let retired = Resource::namespaced("apps", "v1alpha1", "replicasets", "ReplicaSet");
    let mut cluster = TestCluster::default().has(&PODS, object(&PODS, "ns/pod").owned(&retired, "set"));
    for _ in 0..3 {
        assert_eq!(
            cluster.attempt_to_delete("pod"),
            "get pods ns/pod\nretry: unable to get REST mapping for apps/v1alpha1/ReplicaSet.\n"
        );
    }
}

/// Proves GC-63, GC-65.
#[test]
fn dependent_of_an_owner_in_foreground_deletion_is_deleted_in_foreground_if_it_has_dependents() {
    let cluster = || {
        TestCluster::default()
            .has(&MAPS, object(&MAPS, "ns/owner").terminating(&["foregroundDeletion"]))
            .has(&SETS, object(&SETS, "ns/set").blocking(&MAPS, "owner"))
    };
    assert_eq!(
        cluster().attempt_to_delete("set"),
        "get replicasets.apps ns/set\nget configmaps ns/owner\n\
         delete replicasets.apps ns/set because it has no solid owner (Background) at 7\n"
    );
    let mut cluster = cluster().has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "set"));
    assert_eq!(
        cluster.attempt_to_delete("set"),
        "get replicasets.apps ns/set\nget configmaps ns/owner\n\
         delete replicasets.apps ns/set because its owner is in foreground deletion, and it has dependents (Foreground) at 7\n"
    );
}

/// Proves GC-64, GC-95, GC-141.
#[test]
fn cycle_of_blocking_owners_is_unblocked() {
    let cluster = || {
        let both = object(&SETS, "ns/set").blocking(&MAPS, "owner").owned(&MAPS, "other");
        TestCluster::default()
            .has(&MAPS, object(&MAPS, "ns/owner").blocking(&SETS, "set").terminating(&["foregroundDeletion"]))
            .has(&MAPS, object(&MAPS, "ns/other").terminating(&["foregroundDeletion"]))
            .has(&SETS, both)
    };
    let reads = "get replicasets.apps ns/set\nget configmaps ns/owner\nget configmaps ns/other\n";
    let opened = "patch replicasets.apps ns/set because its owner and its dependent block each other's deletion: \
        {\"metadata\":{\"ownerReferences\":[{\"blockOwnerDeletion\":false,\"uid\":\"owner\"}]}}\n";
    let deleted = "delete replicasets.apps ns/set because its owner is in foreground deletion, and it has dependents \
        (Foreground) at 7\n";
    assert_eq!(cluster().attempt_to_delete("set"), format!("{reads}{opened}{deleted}"));
    let refused = cluster()
        .failing("patch", &SETS, "ns/set", &answer(500, "InternalError"), 1)
        .attempt_to_delete("set");
    assert!(refused.contains("FAILED: HTTP 500\nretry: patch replicasets.apps ns/set"), "{refused}");
    assert!(!refused.contains("delete "), "{refused}");
    let mut cluster = cluster();
    cluster.rehearsal = cluster.rehearsal.failing_at(
        "patch",
        "/apis/apps/v1/namespaces/ns/replicasets/set",
        unsupported(),
        Some(1),
    );
    let transcript = cluster.attempt_to_delete("set");
    assert!(
        transcript.contains(
            "patch replicasets.apps ns/set because its owner and its dependent block each other's deletion: \
             {\"ownerReferences\":[{\"apiVersion\":\"v1\",\"blockOwnerDeletion\":false,\"kind\":\"ConfigMap\",\
             \"name\":\"owner\",\"uid\":\"owner\"},{\"apiVersion\":\"v1\",\"blockOwnerDeletion\":false,\"kind\":\
             \"ConfigMap\",\"name\":\"other\",\"uid\":\"other\"}]}\n"
        ),
        "without strategic merge patch, the whole list is sent: {transcript}"
    );
    assert!(transcript.ends_with(deleted));
}

/// Proves GC-66.
#[test]
fn not_found_on_delete_removes_the_node_and_other_errors_are_retried() {
    let cluster = |failure: &ApiError| {
        TestCluster::default()
            .has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "gone"))
            .has(&MAPS, object(&MAPS, "ns/map").owned(&PODS, "pod"))
            .failing("delete", &PODS, "ns/pod", failure, 1)
    };
    let gone = cluster(&answer(404, "NotFound")).attempt_to_delete("pod");
    assert!(
        gone.ends_with("FAILED: HTTP 404\nenqueue map in garbage_collector_attempt_to_delete\n"),
        "{gone}"
    );
    let refused = cluster(&answer(403, "Forbidden")).attempt_to_delete("pod");
    assert!(
        refused.ends_with("retry: delete pods ns/pod because it has no solid owner: HTTP 403\n"),
        "{refused}"
    );
}

/// Proves GC-67, GC-134, GC-138.
#[test]
fn existing_object_that_was_not_observed_yet_is_retried() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "set");
    let mut cluster = TestCluster::default().has(&PODS, pod).live(&SETS, object(&SETS, "ns/set"));
    for _ in 0..2 {
        assert_eq!(
            cluster.attempt_to_delete_virtual("set"),
            "get replicasets.apps ns/set\n\
             retry: [apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] has not been observed yet\n"
        );
    }
    assert_eq!(
        cluster.attempt_to_delete("pod"),
        "get pods ns/pod\nget replicasets.apps ns/set\n",
        "the owner is solid"
    );
    let mut cluster = cluster.observed(&SETS, object(&SETS, "ns/set"));
    assert_eq!(cluster.attempt_to_delete_virtual("set"), "");
}

/// Proves GC-55, GC-70, GC-71, GC-72, GC-96, GC-97.
#[test]
fn foreground_finalizer_is_removed_when_no_dependent_blocks() {
    let owner =
        object(&SETS, "ns/set").owned(&MAPS, "gone").terminating(&["first", "foregroundDeletion", "last"]);
    let cluster = || TestCluster::default().has(&SETS, owner.clone());
    let finalizer_removed = "get replicasets.apps ns/set\npatch replicasets.apps ns/set because no dependent blocks its deletion: \
        {\"finalizers\":[\"first\",\"last\"]}\n";
    assert_eq!(cluster().attempt_to_delete("set"), finalizer_removed, "its own owners do not matter");
    let mut unblocked = cluster().has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "set"));
    assert_eq!(unblocked.attempt_to_delete("set"), finalizer_removed);
    let mut blocked = cluster()
        .has(&PODS, object(&PODS, "ns/pod").blocking(&SETS, "set"))
        .has(&SETS, object(&SETS, "ns/busy").blocking(&SETS, "set").terminating(&["foregroundDeletion"]));
    assert_eq!(
        blocked.attempt_to_delete("set"),
        "get replicasets.apps ns/set\nenqueue pod in garbage_collector_attempt_to_delete\n",
        "a dependent in foreground deletion is not enqueued"
    );
    let last = object(&SETS, "ns/set").terminating(&["foregroundDeletion"]);
    let transcript = TestCluster::default().has(&SETS, last.clone()).attempt_to_delete("set");
    assert!(transcript.ends_with("{\"finalizers\":null}\n"), "{transcript}");
    let mut released =
        TestCluster::default().observed(&SETS, last).live(&SETS, object(&SETS, "ns/set").terminating(&["x"]));
    assert!(released.attempt_to_delete("set").ends_with("(unneeded)\n"));
}

/// Proves GC-73, GC-74, GC-75, GC-92.
#[test]
fn orphan_finalizer_is_removed_after_all_dependents_are_patched() {
    let cluster = || {
        TestCluster::default()
            .has(&SETS, object(&SETS, "ns/set").terminating(&["orphan"]))
            .has(&PODS, object(&PODS, "ns/a").owned(&SETS, "set").owned(&NODES, "n"))
            .has(&PODS, object(&PODS, "ns/b").blocking(&SETS, "set"))
            .live(&PODS, object(&PODS, "ns/unseen").owned(&SETS, "set"))
    };
    let patch = |name: &str, result: &str| {
        format!("patch pods ns/{name} because its owner is deleted with propagationPolicy Orphan{result}\n")
    };
    let body = ": {\"metadata\":{\"ownerReferences\":[{\"$patch\":\"delete\",\"uid\":\"set\"}]}}";
    let finalizer_removed =
        "patch replicasets.apps ns/set because all dependents are orphaned: {\"finalizers\":null}\n";
    assert_eq!(
        cluster().attempt_to_orphan("set"),
        format!("{}{}{finalizer_removed}", patch("a", body), patch("b", body))
    );
    let mut gone = cluster().failing("patch", &PODS, "ns/a", &answer(404, "NotFound"), 1);
    assert!(gone.attempt_to_orphan("set").ends_with(finalizer_removed), "a deleted dependent is orphaned");
    let mut refused = cluster().failing("patch", &PODS, "ns/a", &answer(500, "InternalError"), 1);
    let transcript = refused.attempt_to_orphan("set");
    assert!(transcript.starts_with(&(patch("a", " FAILED: HTTP 500") + &patch("b", body))), "{transcript}");
    assert!(
        transcript.contains("retry: patch pods ns/a") && !transcript.contains("patch replicasets"),
        "{transcript}"
    );
    assert!(refused.attempt_to_orphan("set").ends_with(finalizer_removed), "the retry succeeds");
    let retired = Resource::namespaced("apps", "v1alpha1", "replicasets", "ReplicaSet");
    let mut unserved = cluster().has(&retired, object(&retired, "ns/old").owned(&SETS, "set"));
    let retry = "retry: unable to get REST mapping for apps/v1alpha1/ReplicaSet.\n";
    assert_eq!(
        unserved.attempt_to_orphan("set"),
        format!("{}{}{retry}", patch("a", body), patch("b", body)),
        "the others are orphaned, and the finalizer stays"
    );
    let mut failed = cluster().failing("patch", &SETS, "ns/set", &answer(500, "InternalError"), 1);
    assert!(is_retried_because(&failed.attempt_to_orphan("set"), "HTTP 500"));
    assert_eq!(cluster().attempt_to_orphan("unknown"), "");
}

/// Proves GC-93.
#[test]
fn resources_without_strategic_merge_get_the_whole_list() {
    let widget = object(&WIDGETS, "ns/widget")
        .owned(&SETS, "set")
        .owned(&NODES, "n")
        .with("/metadata/ownerReferences/1/controller", json!(false))
        .with("/metadata/ownerReferences/1/unheardOf", json!(1));
    let mut cluster = TestCluster::default()
        .has(&SETS, object(&SETS, "ns/set").terminating(&["orphan"]))
        .has(&WIDGETS, widget)
        .has(&WIDGETS, object(&WIDGETS, "ns/last").owned(&SETS, "set"));
    for name in ["widget", "last"] {
        cluster = cluster.failing("patch", &WIDGETS, &format!("ns/{name}"), &unsupported(), 1);
    }
    let transcript = cluster.attempt_to_orphan("set");
    let whole_lists: Vec<&str> = transcript
        .lines()
        .filter(|line| line.starts_with("patch widgets") && !line.contains("FAILED"))
        .collect();
    assert_eq!(
        whole_lists,
        [
            "patch widgets.example.org ns/widget because its owner is deleted with propagationPolicy Orphan: {\"ownerReferences\":[{\"apiVersion\":\
         \"v1\",\"controller\":false,\"kind\":\"Node\",\"name\":\"n\",\"uid\":\"n\",\"unheardOf\":1}]}",
            "patch widgets.example.org ns/last because its owner is deleted with propagationPolicy Orphan: {\"ownerReferences\":null}",
        ]
    );
    assert!(transcript.ends_with("{\"finalizers\":null}\n"));
}

/// Proves GC-91, GC-139.
#[test]
fn delete_conflict_is_retried_only_if_owner_references_are_unchanged() {
    let conflict = answer(409, "Conflict");
    let pod = || object(&PODS, "ns/pod").owned(&SETS, "gone");
    let cluster =
        || TestCluster::default().has(&PODS, pod()).failing("delete", &PODS, "ns/pod", &conflict, 1);
    let refused = "delete pods ns/pod because it has no solid owner FAILED: HTTP 409\nget pods ns/pod\n";
    let again = "retry: delete pods ns/pod because it has no solid owner: HTTP 409\n";
    assert!(
        cluster().attempt_to_delete("pod").ends_with(&format!("{refused}{again}")),
        "the resourceVersion is unchanged: the conflict has another cause"
    );
    let after = |now: Option<Value>| {
        let mut cluster = cluster();
        cluster.rehearsal =
            cluster.rehearsal.changing_on_failure(&PODS.object_path(&Key::namespaced("ns", "pod")), now);
        cluster.attempt_to_delete("pod")
    };
    let moved = pod().with("/metadata/resourceVersion", json!("8"));
    let transcript = after(Some(moved.clone()));
    let deleted = "delete pods ns/pod because it has no solid owner (Background) at 8\n";
    assert!(
        transcript.ends_with(&format!("{refused}{deleted}")),
        "with the resourceVersion that was read: {transcript}"
    );
    let adopted = after(Some(moved.clone().owned(&SETS, "new")));
    assert!(adopted.ends_with(&format!("{refused}{again}")), "{adopted}");
    let another = after(Some(moved.with("/metadata/uid", json!("another"))));
    assert!(another.ends_with(&format!("{refused}{again}")), "{another}");
    assert!(after(None).ends_with(refused), "deleted in the meantime");
}

/// Proves GC-121, GC-122.
#[test]
fn reference_is_judged_by_live_read_not_by_the_graph() {
    let set = object(&SETS, "ns/set");
    let in_old_version = object(&OLD_SETS, "ns/set");
    let typo =
        object(&PODS, "ns/typo").owned(&SETS, "set").with("/metadata/ownerReferences/0/name", json!("sett"));
    let mut cluster = TestCluster::default()
        .has(&SETS, set)
        .live(&OLD_SETS, in_old_version)
        .has(&PODS, object(&PODS, "ns/old").owned(&OLD_SETS, "set"))
        .has(&PODS, object(&PODS, "ns/good").owned(&SETS, "set"))
        .has(&PODS, typo);
    assert!(
        cluster
            .attempt_to_delete("typo")
            .ends_with("delete pods ns/typo because it has no solid owner (Background) at 7\n")
    );
    assert!(
        !cluster.attempt_to_delete("good").contains("delete"),
        "its sibling's wrong reference does not affect it"
    );
    assert!(!cluster.attempt_to_delete("old").contains("delete"));
}

/// Proves GC-105, GC-106, GC-111, SRV-85.
#[test]
fn debug_page_serves_the_graph() {
    let cluster = TestCluster::default()
        .has(&PODS, object(&PODS, "ns/a").owned(&NODES, "n"))
        .has(&PODS, object(&PODS, "ns/b").owned(&NODES, "m"));
    let page = cluster.controller.debug_handler.clone().unwrap();
    let all = page("graph", &[]).unwrap();
    assert_eq!(all.content_type, "text/vnd.graphviz");
    assert!(all.body.starts_with("strict digraph full {\n") && all.body.ends_with("}\n"));
    assert!(all.body.contains("\"a\" -> \"n\"") && all.body.contains("\"b\" -> \"m\""));
    let query = |name: &str, uid: &str| (name.to_owned(), uid.to_owned());
    let some = page("graph", &[query("uid", "m"), query("other", "a")]).unwrap().body;
    assert!(!some.contains("\"a\"") && some.contains("\"b\" -> \"m\""), "{some}");
    assert_eq!([page("", &[]), page("graph/", &[]), page("other", &[])], [None, None, None]);
}

/// Proves GC-1, GC-2, GC-8, GC-10, GC-11, GC-101, GC-103, GC-104, RUN-32, RUN-47.
#[test]
fn controller_has_upstreams_names_and_its_options() {
    let controller = controller(&GarbageCollectorOptions {
        workers: 3,
        hash_key: 1,
        ..GarbageCollectorOptions::default()
    });
    let queues: Vec<_> =
        controller.loops.iter().map(|one| (one.queue, one.workers, one.rate_limiter)).collect();
    let limiter = keleustes_plan::RateLimiter::DEFAULT;
    assert_eq!(
        queues,
        [
            ("garbage_collector_attempt_to_delete", 3, limiter),
            ("garbage_collector_attempt_to_orphan", 3, limiter),
        ]
    );
    assert!(controller.loops.iter().all(|one| one.max_retries.is_none()));
    assert_eq!(
        (GarbageCollectorOptions::default().workers, GarbageCollectorOptions::default().enabled),
        (20, true)
    );
    assert!(
        controller_if_enabled(&GarbageCollectorOptions {
            enabled: false,
            ..GarbageCollectorOptions::default()
        })
        .is_none()
    );
    let uid = Uid::from("u");
    let [real, virtual_one] =
        [false, true].map(|is_virtual| Item::from(NodeItem { uid: uid.clone(), is_virtual }));
    assert_ne!(real, virtual_one, "a virtual item is another item");
    assert_eq!(controller.observer.as_ref().unwrap().queue(), Some("garbage_collector_graph_changes"));
    assert_eq!(controller.event_component, Some("garbage-collector-controller"));
    assert_eq!(controller.service_account, Some("generic-garbage-collector"));
    assert_eq!((controller.qps_multiplier.qps, controller.qps_multiplier.burst), (2, 1));
    assert_eq!(SYNC_ERRORS.name, "garbagecollector_controller_resources_sync_error_total");
    assert_eq!((SYNC_ERRORS.labels.len(), SYNC_ERRORS.stability), (0, "ALPHA"));
}

/// Proves GC-3.
#[test]
fn events_are_not_observed() {
    let observer = TestCluster::default().observer();
    let ignores = |group: &'static str, plural: &'static str| {
        observer.ignores(&ApiResource {
            resource: Resource::namespaced(group, "v1", plural, "Kind"),
            preferred: true,
            singular: String::new(),
            verbs: ["delete", "list", "watch"].map(str::to_owned).to_vec(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        })
    };
    assert!(ignores("", "events") && ignores("events.k8s.io", "events"));
    assert!(!ignores("example.org", "events") && !ignores("", "pods"));
}
