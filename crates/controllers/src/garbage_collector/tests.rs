//! What is asked of the API, and what is done, about one object at a time.

use std::sync::Arc;

use keleustes_objects::{ApiError, ApiResource, DiscoveredResources, Key, PartialObjectMeta, Resource, Uid};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Controller, Effects, Observer};
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

/// A controller, what it has seen, and what the API has.
struct Yard {
    controller: Controller,
    world: RehearsalCluster,
}

impl Default for Yard {
    fn default() -> Self {
        let resources = [PODS, MAPS, NODES, SETS, OLD_SETS, WIDGETS].map(served).to_vec();
        let discovered = DiscoveredResources { resources, ..DiscoveredResources::default() };
        Self {
            controller: controller(&GarbageCollectorOptions::default()),
            world: RehearsalCluster::default().with_discovery(Ok(discovered)),
        }
    }
}

/// An object on the wire; its uid is its name, its version 7.
fn object(resource: &Resource, key: &str) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {
        "namespace": namespace, "name": name, "uid": name, "resourceVersion": "7", "ownerReferences": []}})
}

trait Told: Sized {
    fn owned(self, owner: &Resource, name: &str) -> Self;
    fn with(self, pointer: &str, value: Value) -> Self;

    fn blocking(self, owner: &Resource, name: &str) -> Self {
        self.owned(owner, name).with("/metadata/ownerReferences/0/blockOwnerDeletion", json!(true))
    }

    fn deleted(self, finalizers: &[&str]) -> Self {
        self.with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))
            .with("/metadata/finalizers", json!(finalizers))
    }
}

impl Told for Value {
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

impl Yard {
    fn observer(&self) -> Arc<dyn Observer> {
        self.controller.observer.clone().unwrap()
    }

    /// Has seen an object that need not be there any more.
    fn saw(self, resource: &Resource, json: Value) -> Self {
        let seen: PartialObjectMeta = serde_json::from_value(json).unwrap();
        self.observer().on_update(resource, &seen.meta, &mut Effects::default());
        self
    }

    /// The API has an object that need not have been seen yet.
    fn live(mut self, resource: &Resource, json: Value) -> Self {
        self.world = self.world.with_live_resource(resource, json);
        self
    }

    fn has(self, resource: &Resource, json: Value) -> Self {
        self.saw(resource, json.clone()).live(resource, json)
    }

    fn refusing(
        mut self,
        verb: &str,
        resource: &Resource,
        key: &str,
        failure: &ApiError,
        times: u32,
    ) -> Self {
        let path = resource.object_path(&key.parse::<Key>().unwrap());
        self.world = self.world.failing_at(verb, &path, failure.clone(), Some(times));
        self
    }

    fn check(&mut self, uid: &str) -> String {
        self.world.reconcile(&self.controller.loops[0], item_of(&Uid::from(uid), false))
    }

    fn check_virtual(&mut self, uid: &str) -> String {
        self.world.reconcile(&self.controller.loops[0], item_of(&Uid::from(uid), true))
    }

    fn orphan(&mut self, uid: &str) -> String {
        self.world.reconcile(&self.controller.loops[1], item_of(&Uid::from(uid), false))
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
fn what_was_virtual_and_is_gone_or_seen_is_not_asked_about() {
    let mut yard = Yard::default().has(&SETS, object(&SETS, "ns/set"));
    assert_eq!(yard.check_virtual("nobody"), "");
    assert_eq!(yard.check_virtual("set"), "", "seen meanwhile");
    assert_eq!(yard.check("set"), "get replicasets.apps ns/set\n");
}

/// Proves GC-51.
#[test]
fn what_is_on_its_way_out_is_left_alone() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "gone").deleted(&["other"]);
    assert_eq!(Yard::default().has(&PODS, pod).check("pod"), "");
}

/// Proves GC-52, GC-132.
#[test]
fn what_the_api_does_not_have_leaves_the_graph() {
    let owner = object(&SETS, "ns/set");
    let pod = object(&PODS, "ns/pod").owned(&SETS, "set");
    let mut yard = Yard::default().saw(&SETS, owner.clone()).has(&PODS, pod.clone());
    assert_eq!(
        yard.check("set"),
        "get replicasets.apps ns/set\nwake pod of garbage_collector_attempt_to_delete\n"
    );
    assert_eq!(yard.check("set"), "", "it is not in the graph any more");

    let successor = owner.clone().with("/metadata/uid", json!("another"));
    let mut yard = Yard::default().saw(&SETS, owner).live(&SETS, successor).has(&PODS, pod);
    assert_eq!(
        yard.check("set"),
        "get replicasets.apps ns/set\nwake pod of garbage_collector_attempt_to_delete\n",
        "another life of the same name is another object"
    );
    assert_eq!(yard.check("set"), "");
}

/// Proves GC-53, GC-126.
#[test]
fn a_namespaced_owner_without_a_namespace_is_not_asked_for() {
    let node = object(&NODES, "node").owned(&SETS, "set");
    let mut yard = Yard::default().has(&NODES, node);
    assert_eq!(yard.check_virtual("set"), "", "no question, no retry");
}

/// Proves GC-54.
#[test]
fn a_question_without_an_answer_is_asked_again() {
    let failure = answer(500, "InternalError");
    let mut yard =
        Yard::default().has(&SETS, object(&SETS, "ns/set")).refusing("get", &SETS, "ns/set", &failure, 1);
    assert_eq!(
        yard.check("set"),
        "get replicasets.apps ns/set\nretry: reading replicasets.apps ns/set: HTTP 500\n"
    );
    let unknown = Resource::namespaced("example.org", "v1", "unknowns", "Unknown");
    let mut yard = Yard::default().has(&unknown, object(&unknown, "ns/one"));
    assert_eq!(yard.check("one"), "retry: unable to get REST mapping for example.org/v1/Unknown.\n");
}

/// Proves GC-56.
#[test]
fn the_owners_that_count_are_those_the_object_has_now() {
    let seen = object(&PODS, "ns/pod").owned(&SETS, "gone");
    let mut yard = Yard::default().saw(&PODS, seen).live(&PODS, object(&PODS, "ns/pod"));
    assert_eq!(yard.check("pod"), "get pods ns/pod\n", "it has none");
}

/// Proves GC-57, GC-62, GC-92, GC-128, GC-129.
#[test]
fn one_owner_that_is_there_keeps_an_object_and_the_others_are_struck_off() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "solid").owned(&SETS, "gone").owned(&MAPS, "waiting");
    let yard = Yard::default()
        .has(&PODS, pod)
        .has(&SETS, object(&SETS, "ns/solid").deleted(&["other"]))
        .has(&MAPS, object(&MAPS, "ns/waiting").deleted(&["foregroundDeletion"]));
    let mut yard = yard;
    assert_eq!(
        yard.check("pod"),
        "get pods ns/pod\nget replicasets.apps ns/solid\nget replicasets.apps ns/gone\nget configmaps ns/waiting\n\
         patch pods ns/pod because these owners are gone, and it has others: {\"metadata\":{\"ownerReferences\":\
         [{\"$patch\":\"delete\",\"uid\":\"gone\"},{\"$patch\":\"delete\",\"uid\":\"waiting\"}]}}\n"
    );
    let pod = object(&PODS, "ns/pod").owned(&SETS, "solid");
    let mut yard = Yard::default().has(&PODS, pod).has(&SETS, object(&SETS, "ns/solid"));
    assert_eq!(
        yard.check("pod"),
        "get pods ns/pod\nget replicasets.apps ns/solid\n",
        "nothing to strike off"
    );
}

/// Proves GC-57, GC-65, GC-66.
#[test]
fn an_object_without_owners_that_are_there_is_deleted_in_the_way_it_asks_for() {
    for (finalizers, policy) in [
        (vec!["orphan", "foregroundDeletion"], "Orphan"),
        (vec!["foregroundDeletion"], "Foreground"),
        (vec!["other"], "Background"),
        (vec![], "Background"),
    ] {
        let pod =
            object(&PODS, "ns/pod").owned(&SETS, "gone").with("/metadata/finalizers", json!(finalizers));
        let mut yard = Yard::default().has(&PODS, pod);
        assert_eq!(
            yard.check("pod"),
            format!(
                "get pods ns/pod\nget replicasets.apps ns/gone\n\
                 delete pods ns/pod because its owners are gone ({policy}) at 7\n"
            )
        );
    }
    let successor = object(&SETS, "ns/set").with("/metadata/uid", json!("another"));
    let pod = object(&PODS, "ns/pod").owned(&SETS, "set");
    let mut yard = Yard::default().has(&PODS, pod).has(&SETS, successor);
    assert!(yard.check("pod").contains("delete pods"), "another life is another owner");
}

#[test]
fn what_is_going_already_is_not_deleted_again() {
    let seen = object(&PODS, "ns/pod").owned(&SETS, "gone");
    let asked = "get pods ns/pod\nget replicasets.apps ns/gone\n";
    for finalizers in [&["other"][..], &["foregroundDeletion"], &["orphan"]] {
        let live = seen.clone().deleted(finalizers);
        assert_eq!(Yard::default().saw(&PODS, seen.clone()).live(&PODS, live).check("pod"), asked);
    }
    let set = object(&SETS, "ns/set").blocking(&MAPS, "owner");
    let mut yard = Yard::default()
        .has(&MAPS, object(&MAPS, "ns/owner").deleted(&["foregroundDeletion"]))
        .saw(&SETS, set.clone())
        .live(&SETS, set.deleted(&["other"]))
        .has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "set"));
    assert!(yard.check("set").contains("(Foreground)"), "which is another way than the one it is going");
}

/// Proves GC-58, GC-59.
#[test]
fn an_owner_known_to_be_absent_is_not_asked_for_again() {
    let mut yard = Yard::default();
    for name in ["a", "b"] {
        yard = yard.has(&PODS, object(&PODS, &format!("ns/{name}")).owned(&SETS, "gone"));
        yard = yard.has(&MAPS, object(&MAPS, &format!("ns/{name}{name}")).owned(&NODES, "node"));
    }
    yard = yard.has(&PODS, object(&PODS, "else/c").owned(&SETS, "gone"));
    yard = yard.has(&PODS, object(&PODS, "else/d").owned(&NODES, "node"));
    let asks = |transcript: &str| transcript.lines().filter(|line| line.starts_with("get ")).count();
    assert_eq!(asks(&yard.check("a")), 2);
    assert_eq!(asks(&yard.check("b")), 1, "the owner is known to be absent from this namespace");
    assert_eq!(asks(&yard.check("c")), 2, "and may be in another");
    assert_eq!(asks(&yard.check("aa")), 2);
    assert_eq!(asks(&yard.check("bb")), 1, "what has no namespace is absent everywhere");
    assert_eq!(asks(&yard.check("d")), 1);
}

/// Proves GC-60, GC-126.
#[test]
fn a_cluster_scoped_object_with_a_namespaced_owner_is_kept_and_not_tried_again() {
    let node = object(&NODES, "node").owned(&NODES, "gone").owned(&SETS, "set");
    let mut yard = Yard::default().has(&NODES, node);
    assert_eq!(yard.check("node"), "get nodes node\nget nodes gone\n");
}

/// Proves GC-61, GC-123.
#[test]
fn one_owner_that_cannot_be_asked_about_stops_the_check() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "gone").owned(&MAPS, "map");
    let failure = answer(503, "ServiceUnavailable");
    let mut yard = Yard::default().has(&PODS, pod).refusing("get", &MAPS, "ns/map", &failure, 1);
    assert!(yard.check("pod").ends_with("retry: reading configmaps ns/map: HTTP 503\n"));
    let retired = Resource::namespaced("apps", "v1alpha1", "replicasets", "ReplicaSet");
    let mut yard = Yard::default().has(&PODS, object(&PODS, "ns/pod").owned(&retired, "set"));
    for _ in 0..3 {
        assert_eq!(
            yard.check("pod"),
            "get pods ns/pod\nretry: unable to get REST mapping for apps/v1alpha1/ReplicaSet.\n"
        );
    }
}

/// Proves GC-63, GC-65.
#[test]
fn what_its_owner_waits_for_goes_in_the_foreground_if_it_has_dependents_itself() {
    let yard = || {
        Yard::default()
            .has(&MAPS, object(&MAPS, "ns/owner").deleted(&["foregroundDeletion"]))
            .has(&SETS, object(&SETS, "ns/set").blocking(&MAPS, "owner"))
    };
    assert_eq!(
        yard().check("set"),
        "get replicasets.apps ns/set\nget configmaps ns/owner\n\
         delete replicasets.apps ns/set because its owners are gone (Background) at 7\n"
    );
    let mut yard = yard().has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "set"));
    assert_eq!(
        yard.check("set"),
        "get replicasets.apps ns/set\nget configmaps ns/owner\n\
         delete replicasets.apps ns/set because its owner waits for it, and it has dependents (Foreground) at 7\n"
    );
}

/// Proves GC-64, GC-95, GC-141.
#[test]
fn a_circle_of_waiting_owners_is_opened() {
    let yard = || {
        let both = object(&SETS, "ns/set").blocking(&MAPS, "owner").owned(&MAPS, "other");
        Yard::default()
            .has(&MAPS, object(&MAPS, "ns/owner").blocking(&SETS, "set").deleted(&["foregroundDeletion"]))
            .has(&MAPS, object(&MAPS, "ns/other").deleted(&["foregroundDeletion"]))
            .has(&SETS, both)
    };
    let asked = "get replicasets.apps ns/set\nget configmaps ns/owner\nget configmaps ns/other\n";
    let opened = "patch replicasets.apps ns/set because its owner and its dependent wait for each other: \
        {\"metadata\":{\"ownerReferences\":[{\"blockOwnerDeletion\":false,\"uid\":\"owner\"}]}}\n";
    let deleted = "delete replicasets.apps ns/set because its owner waits for it, and it has dependents \
        (Foreground) at 7\n";
    assert_eq!(yard().check("set"), format!("{asked}{opened}{deleted}"));
    let refused = yard().refusing("patch", &SETS, "ns/set", &answer(500, "InternalError"), 1).check("set");
    assert!(refused.contains("FAILED: HTTP 500\nretry: patch replicasets.apps ns/set"), "{refused}");
    assert!(!refused.contains("delete "), "{refused}");
    let mut yard = yard();
    yard.world =
        yard.world.failing_at("patch", "/apis/apps/v1/namespaces/ns/replicasets/set", unsupported(), Some(1));
    let transcript = yard.check("set");
    assert!(
        transcript.contains(
            "amend replicasets.apps ns/set because its owner and its dependent wait for each other: \
             {\"ownerReferences\":[{\"apiVersion\":\"v1\",\"blockOwnerDeletion\":false,\"kind\":\"ConfigMap\",\
             \"name\":\"owner\",\"uid\":\"owner\"},{\"apiVersion\":\"v1\",\"blockOwnerDeletion\":false,\"kind\":\
             \"ConfigMap\",\"name\":\"other\",\"uid\":\"other\"}]}\n"
        ),
        "where lists cannot be merged, all are sent: {transcript}"
    );
    assert!(transcript.ends_with(deleted));
}

/// Proves GC-66.
#[test]
fn a_delete_that_finds_nothing_clears_the_graph_and_any_other_refusal_is_tried_again() {
    let yard = |failure: &ApiError| {
        Yard::default()
            .has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "gone"))
            .has(&MAPS, object(&MAPS, "ns/map").owned(&PODS, "pod"))
            .refusing("delete", &PODS, "ns/pod", failure, 1)
    };
    let gone = yard(&answer(404, "NotFound")).check("pod");
    assert!(gone.ends_with("FAILED: HTTP 404\nwake map of garbage_collector_attempt_to_delete\n"), "{gone}");
    let refused = yard(&answer(403, "Forbidden")).check("pod");
    assert!(
        refused.ends_with("retry: delete pods ns/pod because its owners are gone: HTTP 403\n"),
        "{refused}"
    );
}

/// Proves GC-67, GC-134, GC-138.
#[test]
fn what_is_there_and_was_not_seen_yet_is_asked_about_again() {
    let pod = object(&PODS, "ns/pod").owned(&SETS, "set");
    let mut yard = Yard::default().has(&PODS, pod).live(&SETS, object(&SETS, "ns/set"));
    for _ in 0..2 {
        assert_eq!(
            yard.check_virtual("set"),
            "get replicasets.apps ns/set\n\
             retry: [apps/v1/ReplicaSet, namespace: ns, name: set, uid: set] was not seen yet\n"
        );
    }
    assert_eq!(yard.check("pod"), "get pods ns/pod\nget replicasets.apps ns/set\n", "the owner is solid");
    let mut yard = yard.saw(&SETS, object(&SETS, "ns/set"));
    assert_eq!(yard.check_virtual("set"), "");
}

/// Proves GC-55, GC-70, GC-71, GC-72, GC-96, GC-97.
#[test]
fn an_owner_goes_when_no_dependent_holds_it() {
    let owner =
        object(&SETS, "ns/set").owned(&MAPS, "gone").deleted(&["first", "foregroundDeletion", "last"]);
    let yard = || Yard::default().has(&SETS, owner.clone());
    let freed = "get replicasets.apps ns/set\namend replicasets.apps ns/set because no dependent blocks its deletion: \
        {\"finalizers\":[\"first\",\"last\"]}\n";
    assert_eq!(yard().check("set"), freed, "its own owners are of no concern");
    let mut unblocked = yard().has(&PODS, object(&PODS, "ns/pod").owned(&SETS, "set"));
    assert_eq!(unblocked.check("set"), freed);
    let mut blocked = yard()
        .has(&PODS, object(&PODS, "ns/pod").blocking(&SETS, "set"))
        .has(&SETS, object(&SETS, "ns/busy").blocking(&SETS, "set").deleted(&["foregroundDeletion"]));
    assert_eq!(
        blocked.check("set"),
        "get replicasets.apps ns/set\nwake pod of garbage_collector_attempt_to_delete\n",
        "one who waits for its own dependents needs no reminder"
    );
    let last = object(&SETS, "ns/set").deleted(&["foregroundDeletion"]);
    let transcript = Yard::default().has(&SETS, last.clone()).check("set");
    assert!(transcript.ends_with("{\"finalizers\":null}\n"), "{transcript}");
    let mut released = Yard::default().saw(&SETS, last).live(&SETS, object(&SETS, "ns/set").deleted(&["x"]));
    assert!(released.check("set").ends_with("(unneeded)\n"));
}

/// Proves GC-73, GC-74, GC-75, GC-92.
#[test]
fn an_owner_that_orphans_lets_go_of_all_dependents_first() {
    let yard = || {
        Yard::default()
            .has(&SETS, object(&SETS, "ns/set").deleted(&["orphan"]))
            .has(&PODS, object(&PODS, "ns/a").owned(&SETS, "set").owned(&NODES, "n"))
            .has(&PODS, object(&PODS, "ns/b").blocking(&SETS, "set"))
            .live(&PODS, object(&PODS, "ns/unseen").owned(&SETS, "set"))
    };
    let patch =
        |name: &str, result: &str| format!("patch pods ns/{name} because its owner sets it free{result}\n");
    let body = ": {\"metadata\":{\"ownerReferences\":[{\"$patch\":\"delete\",\"uid\":\"set\"}]}}";
    let freed = "amend replicasets.apps ns/set because all dependents are free: {\"finalizers\":null}\n";
    assert_eq!(yard().orphan("set"), format!("{}{}{freed}", patch("a", body), patch("b", body)));
    let mut gone = yard().refusing("patch", &PODS, "ns/a", &answer(404, "NotFound"), 1);
    assert!(gone.orphan("set").ends_with(freed), "who is gone is free");
    let mut refused = yard().refusing("patch", &PODS, "ns/a", &answer(500, "InternalError"), 1);
    let transcript = refused.orphan("set");
    assert!(transcript.starts_with(&(patch("a", " FAILED: HTTP 500") + &patch("b", body))), "{transcript}");
    assert!(transcript.contains("retry: patch pods ns/a") && !transcript.contains("amend"), "{transcript}");
    assert!(refused.orphan("set").ends_with(freed), "the next time it works");
    let mut stuck = yard().refusing("patch", &SETS, "ns/set", &answer(500, "InternalError"), 1);
    assert!(stuck.orphan("set").ends_with("retry: HTTP 500\n"));
    assert_eq!(yard().orphan("nobody"), "");
}

/// Proves GC-93.
#[test]
fn where_lists_cannot_be_merged_the_whole_list_is_sent() {
    let widget = object(&WIDGETS, "ns/widget")
        .owned(&SETS, "set")
        .owned(&NODES, "n")
        .with("/metadata/ownerReferences/1/controller", json!(false))
        .with("/metadata/ownerReferences/1/unheardOf", json!(1));
    let mut yard = Yard::default()
        .has(&SETS, object(&SETS, "ns/set").deleted(&["orphan"]))
        .has(&WIDGETS, widget)
        .has(&WIDGETS, object(&WIDGETS, "ns/last").owned(&SETS, "set"));
    for name in ["widget", "last"] {
        yard = yard.refusing("patch", &WIDGETS, &format!("ns/{name}"), &unsupported(), 1);
    }
    let transcript = yard.orphan("set");
    let amended: Vec<&str> = transcript.lines().filter(|line| line.starts_with("amend widgets")).collect();
    assert_eq!(
        amended,
        [
            "amend widgets.example.org ns/widget because its owner sets it free: {\"ownerReferences\":[{\"apiVersion\":\
         \"v1\",\"controller\":false,\"kind\":\"Node\",\"name\":\"n\",\"uid\":\"n\",\"unheardOf\":1}]}",
            "amend widgets.example.org ns/last because its owner sets it free: {\"ownerReferences\":null}",
        ]
    );
    assert!(transcript.ends_with("{\"finalizers\":null}\n"));
}

/// Proves GC-91, GC-139.
#[test]
fn a_conflict_is_looked_into_before_the_object_is_deleted_after_all() {
    let conflict = answer(409, "Conflict");
    let pod = || object(&PODS, "ns/pod").owned(&SETS, "gone");
    let yard = || Yard::default().has(&PODS, pod()).refusing("delete", &PODS, "ns/pod", &conflict, 1);
    let refused = "delete pods ns/pod because its owners are gone FAILED: HTTP 409\nget pods ns/pod\n";
    let again = "retry: delete pods ns/pod because its owners are gone: HTTP 409\n";
    assert!(
        yard().check("pod").ends_with(&format!("{refused}{again}")),
        "nothing has changed: who refused, and why?"
    );
    let after = |now: Option<Value>| {
        let mut yard = yard();
        yard.world = yard.world.changing_on_failure(&PODS.object_path(&Key::namespaced("ns", "pod")), now);
        yard.check("pod")
    };
    let moved = pod().with("/metadata/resourceVersion", json!("8"));
    let transcript = after(Some(moved.clone()));
    let deleted = "delete pods ns/pod because its owners are gone (Background) at 8\n";
    assert!(
        transcript.ends_with(&format!("{refused}{deleted}")),
        "in the state that was looked at: {transcript}"
    );
    let adopted = after(Some(moved.clone().owned(&SETS, "new")));
    assert!(adopted.ends_with(&format!("{refused}{again}")), "{adopted}");
    let another = after(Some(moved.with("/metadata/uid", json!("another"))));
    assert!(another.ends_with(&format!("{refused}{again}")), "{another}");
    assert!(after(None).ends_with(refused), "gone, and there is nothing more to do");
}

/// Proves GC-121, GC-122.
#[test]
fn what_the_api_says_of_a_reference_counts_not_what_the_graph_knows_of_the_owner() {
    let set = object(&SETS, "ns/set");
    let in_old_version = object(&OLD_SETS, "ns/set");
    let typo =
        object(&PODS, "ns/typo").owned(&SETS, "set").with("/metadata/ownerReferences/0/name", json!("sett"));
    let mut yard = Yard::default()
        .has(&SETS, set)
        .live(&OLD_SETS, in_old_version)
        .has(&PODS, object(&PODS, "ns/old").owned(&OLD_SETS, "set"))
        .has(&PODS, object(&PODS, "ns/good").owned(&SETS, "set"))
        .has(&PODS, typo);
    assert!(
        yard.check("typo").ends_with("delete pods ns/typo because its owners are gone (Background) at 7\n")
    );
    assert!(!yard.check("good").contains("delete"), "its sibling's mistake is not its own");
    assert!(!yard.check("old").contains("delete"));
}

/// Proves GC-105, GC-106, GC-111.
#[test]
fn the_graph_can_be_looked_at() {
    let yard = Yard::default()
        .has(&PODS, object(&PODS, "ns/a").owned(&NODES, "n"))
        .has(&PODS, object(&PODS, "ns/b").owned(&NODES, "m"));
    let page = yard.controller.debug_handler.clone().unwrap();
    let all = page("graph", &[]).unwrap();
    assert_eq!(all.content_type, "text/vnd.graphviz");
    assert!(all.body.starts_with("strict digraph full {\n") && all.body.ends_with("}\n"));
    assert!(all.body.contains("\"a\" -> \"n\"") && all.body.contains("\"b\" -> \"m\""));
    let query = |name: &str, uid: &str| (name.to_owned(), uid.to_owned());
    let some = page("graph", &[query("uid", "m"), query("other", "a")]).unwrap().body;
    assert!(!some.contains("\"a\"") && some.contains("\"b\" -> \"m\""), "{some}");
    assert_eq!([page("", &[]), page("graph/", &[]), page("other", &[])], [None, None, None]);
}

/// Proves GC-1, GC-2, GC-8, GC-10, GC-11, GC-101, GC-103, GC-104.
#[test]
fn the_controller_is_as_its_settings_say() {
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
    assert_ne!(item_of(&uid, true), item_of(&uid, false), "what was seen meanwhile is another item");
    assert_eq!(controller.observer.as_ref().unwrap().queue(), "garbage_collector_graph_changes");
    assert_eq!(controller.event_component, Some("garbage-collector-controller"));
    assert_eq!(controller.service_account, Some("generic-garbage-collector"));
    assert_eq!((controller.qps_multiplier.qps, controller.qps_multiplier.burst), (2, 1));
    assert_eq!(SYNC_ERRORS.name, "garbagecollector_controller_resources_sync_error_total");
    assert_eq!((SYNC_ERRORS.labels.len(), SYNC_ERRORS.stability), (0, "ALPHA"));
}

/// Proves GC-3.
#[test]
fn events_are_not_observed() {
    let observer = Yard::default().observer();
    assert!(observer.ignores(&Resource::namespaced("", "v1", "events", "Event")));
    assert!(observer.ignores(&Resource::namespaced("events.k8s.io", "v1", "events", "Event")));
    assert!(!observer.ignores(&Resource::namespaced("example.org", "v1", "events", "Event")));
    assert!(!observer.ignores(&PODS));
}
