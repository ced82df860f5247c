//! Owners and dependents go, stay or are set free, seen from the server.

mod corners;
mod requests;
pub(crate) mod trouble;

use std::time::Duration;

use keleustes_apiserver::{ApiServer, LoggedRequest};
use keleustes_client::{Call, DeleteOptions, PatchType, PropagationPolicy, RestMapper};
use keleustes_controllers::garbage_collector::{GarbageCollectorOptions, controller};
use keleustes_objects::{Key, Resource};
use keleustes_runtime::loops::RunningController;
use serde_json::{Value, json};

use crate::world::{World, settle, wait};

/// Longer than anything takes that is not in the way of something.
const LONG: Duration = Duration::from_secs(20);

const MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
const CLUSTER_ROLES: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
const WIDGETS: Resource = Resource::namespaced("example.org", "v1", "widgets", "Widget");

/// An object on the wire: its resource, its key, and its owners by resource, name and uid.
struct Made {
    resource: Resource,
    json: Value,
}

fn object(resource: &Resource, key: &str) -> Made {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let mut json = json!({"apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {"name": name, "ownerReferences": []}});
    if !namespace.is_empty() {
        json["metadata"]["namespace"] = json!(namespace);
    }
    Made { resource: resource.clone(), json }
}

impl Made {
    fn owned(self, owner: &Value) -> Self {
        self.referring(json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}))
    }

    fn blocking(self, owner: &Value) -> Self {
        self.owned(owner).last("blockOwnerDeletion", json!(true))
    }

    fn referring(mut self, reference: Value) -> Self {
        self.json["metadata"]["ownerReferences"].as_array_mut().unwrap().push(reference);
        self
    }

    /// Changes the last reference.
    fn last(mut self, field: &str, value: Value) -> Self {
        self.json["metadata"]["ownerReferences"].as_array_mut().unwrap().last_mut().unwrap()[field] = value;
        self
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.json["metadata"][field] = value;
        self
    }

    async fn make(self, world: &World) -> Value {
        let namespace = self.json["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let mut made =
            Call::create(&self.resource, &namespace, &self.json).send(&world.client()).await.unwrap();
        made["apiVersion"] = self.json["apiVersion"].clone();
        made["kind"] = self.json["kind"].clone();
        made
    }
}

/// A world with the namespaces `a` and `b`.
fn yard() -> World {
    let world = World::new();
    seed_namespaces(&world.server);
    world
}

fn seed_namespaces(server: &ApiServer) {
    for name in ["a", "b"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        server.seed(namespace).unwrap();
    }
}

/// A reference to something that does not exist.
fn nobody(kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": "nobody", "uid": "00000000-0000-0000-0000-00000000000b"})
}

async fn start(world: &World) -> RunningController {
    let running = world.start(controller(&GarbageCollectorOptions::default())).await;
    settle().await;
    running
}

async fn delete(world: &World, resource: &Resource, key: &str, propagation: PropagationPolicy) {
    let deletion = DeleteOptions { propagation_policy: Some(propagation), ..DeleteOptions::default() };
    Call::delete(resource, &key.parse().unwrap(), &deletion).send(&world.client()).await.unwrap();
}

/// What is there of the namespaces `a` and `b` and beside them, with the names of owners.
pub(crate) fn there(server: &ApiServer) -> Vec<String> {
    let mut lines = Vec::new();
    for plural in ["configmaps", "secrets", "clusterroles.rbac.authorization.k8s.io", "widgets.example.org"] {
        for one in server.objects(plural) {
            let metadata = &one["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
            let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
            let owners: Vec<_> =
                owners.iter().map(|owner| format!(" <{}", owner["name"].as_str().unwrap())).collect();
            let going = if metadata["deletionTimestamp"].is_null() { "" } else { " going" };
            let plural = plural.split('.').next().unwrap();
            lines.push(format!("{plural} {}/{}{}{going}", text("namespace"), text("name"), owners.concat()));
        }
    }
    lines.retain(|line| !line.contains(" kube-") && !line.contains(" default/"));
    lines.sort();
    lines
}

/// Proves GC-128.
#[tokio::test(start_paused = true)]
async fn what_nobody_owns_any_more_goes_in_the_background() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    let middle = object(&SECRETS, "a/middle").owned(&owner).make(&world).await;
    object(&SECRETS, "a/last").owned(&middle).make(&world).await;
    object(&SECRETS, "a/shared").owned(&owner).owned(&middle).make(&world).await;
    let keeper = object(&MAPS, "a/keeper").make(&world).await;
    object(&SECRETS, "a/kept").owned(&owner).owned(&keeper).make(&world).await;
    object(&SECRETS, "a/orphan").referring(nobody("ConfigMap")).make(&world).await;
    object(&SECRETS, "a/half").referring(nobody("ConfigMap")).owned(&keeper).make(&world).await;
    let _running = start(&world).await;
    wait(LONG).await;
    assert_eq!(
        there(&world.server),
        [
            "configmaps a/keeper",
            "configmaps a/owner",
            "secrets a/half <keeper",
            "secrets a/kept <owner <keeper",
            "secrets a/last <middle",
            "secrets a/middle <owner",
            "secrets a/shared <owner <middle",
        ],
        "who never existed owns nothing"
    );
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Background).await;
    wait(LONG).await;
    assert_eq!(
        there(&world.server),
        ["configmaps a/keeper", "secrets a/half <keeper", "secrets a/kept <keeper"]
    );
}

/// Proves GC-38, GC-41, GC-70, GC-129.
#[tokio::test(start_paused = true)]
async fn in_the_foreground_dependents_go_first() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    let other = object(&MAPS, "a/other").make(&world).await;
    let middle = object(&SECRETS, "a/middle").blocking(&owner).make(&world).await;
    let held = object(&SECRETS, "a/last").blocking(&middle).with("finalizers", json!(["example.org/hold"]));
    let held = held.make(&world).await;
    object(&SECRETS, "a/shared").blocking(&owner).owned(&other).make(&world).await;
    let _running = start(&world).await;
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(
        there(&world.server),
        [
            "configmaps a/other",
            "configmaps a/owner going",
            "secrets a/last <middle going",
            "secrets a/middle <owner going",
            "secrets a/shared <other",
        ],
        "everybody waits for the last, and who has another owner is let go"
    );
    let body = json!({"metadata": {"finalizers": null, "uid": held["metadata"]["uid"]}});
    let call = Call::patch(&SECRETS, &Key::namespaced("a", "last"), PatchType::Merge, &body);
    call.send(&world.client()).await.unwrap();
    wait(LONG).await;
    assert_eq!(there(&world.server), ["configmaps a/other", "secrets a/shared <other"]);
    let gone = |name: &str| {
        let freed =
            |request: &LoggedRequest| request.method == http::Method::PATCH && request.target.ends_with(name);
        world.server.requests().iter().position(freed).unwrap()
    };
    assert!(gone("/middle") < gone("/owner"), "from the leaves to the root");
}

/// Proves GC-72.
#[tokio::test(start_paused = true)]
async fn a_dependent_that_does_not_block_holds_up_nobody() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    object(&SECRETS, "a/slow")
        .owned(&owner)
        .with("finalizers", json!(["example.org/hold"]))
        .make(&world)
        .await;
    let _running = start(&world).await;
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), ["secrets a/slow <owner going"]);
}

/// Proves GC-73, GC-74.
#[tokio::test(start_paused = true)]
async fn who_orphans_leaves_its_dependents_free() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    let other = object(&MAPS, "a/other").make(&world).await;
    for n in 0..20 {
        object(&SECRETS, &format!("a/free{n:02}")).blocking(&owner).make(&world).await;
    }
    object(&SECRETS, "a/shared").owned(&owner).owned(&other).make(&world).await;
    let _running = start(&world).await;
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Orphan).await;
    wait(LONG).await;
    let mut expected = vec!["configmaps a/other".to_owned()];
    expected.extend((0..20).map(|n| format!("secrets a/free{n:02}")));
    expected.push("secrets a/shared <other".to_owned());
    assert_eq!(there(&world.server), expected);
}

/// Proves GC-130.
#[tokio::test(start_paused = true)]
async fn what_is_deleted_in_the_foreground_twice_lets_go_twice() {
    let world = yard();
    object(&MAPS, "a/owner").with("finalizers", json!(["example.org/hold"])).make(&world).await;
    let _running = start(&world).await;
    for _ in 0..2 {
        delete(&world, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
        wait(LONG).await;
        let owner = world.server.object("configmaps", "a", "owner").unwrap();
        assert_eq!(owner["metadata"]["finalizers"], json!(["example.org/hold"]));
    }
}

/// Proves GC-141.
#[tokio::test(start_paused = true)]
async fn a_circle_of_owners_ends() {
    let world = yard();
    let first = object(&MAPS, "a/first").make(&world).await;
    let second = object(&MAPS, "a/second").blocking(&first).make(&world).await;
    let third = object(&MAPS, "a/third").blocking(&second).make(&world).await;
    let reference = object(&MAPS, "a/first").blocking(&third).json["metadata"]["ownerReferences"].clone();
    let body = json!({"metadata": {"ownerReferences": reference}});
    let call = Call::patch(&MAPS, &Key::namespaced("a", "first"), PatchType::Merge, &body);
    call.send(&world.client()).await.unwrap();
    let _running = start(&world).await;
    delete(&world, &MAPS, "a/first", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), [""; 0]);
}

/// Proves GC-14, GC-137.
#[tokio::test(start_paused = true)]
async fn kinds_that_are_served_later_take_part() {
    let world = yard();
    let _running = start(&world).await;
    let reference = json!({"apiVersion": "example.org/v1", "kind": "Widget", "name": "owner",
        "uid": "00000000-0000-0000-0000-00000000000c"});
    object(&SECRETS, "a/waits").referring(reference).make(&world).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), ["secrets a/waits <owner"], "nothing is known of the kind");
    super::monitors::define_widgets(&world).await;
    let owner = object(&WIDGETS, "a/root").make(&world).await;
    object(&WIDGETS, "a/custom").blocking(&owner).make(&world).await;
    object(&SECRETS, "a/builtin").owned(&owner).make(&world).await;
    wait(Duration::from_secs(100)).await;
    assert_eq!(
        there(&world.server),
        ["secrets a/builtin <root", "widgets a/custom <root", "widgets a/root"],
        "now it is known that there is no such owner"
    );
    delete(&world, &WIDGETS, "a/root", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), [""; 0]);
}

/// Proves GC-14.
#[tokio::test(start_paused = true)]
async fn what_kinds_are_served_as_is_asked_again_when_it_is_old_or_unknown() {
    let world = yard();
    let mapping: RestMapper = world.caches.rest_mapping().clone();
    let widget = || mapping.mapping_for_kind("example.org", Some("v1"), "Widget");
    assert!(widget().await.unwrap().is_none());
    super::monitors::define_widgets(&world).await;
    wait(Duration::from_secs(6)).await;
    assert_eq!(widget().await.unwrap().unwrap().resource, WIDGETS, "not found, and not fresh: asked again");
    let asked = || world.server.requests().iter().filter(|request| request.target == "/apis").count();
    let before = asked();
    widget().await.unwrap();
    assert_eq!(asked(), before);
    wait(Duration::from_secs(31)).await;
    widget().await.unwrap();
    assert_eq!(asked(), before + 1, "too old");
    let _running = start(&world).await;
    widget().await.unwrap();
    assert_eq!(asked(), before + 3, "what is observed has changed: asked for by the survey, and again here");
}
