//! Owners and dependents are deleted, kept or orphaned, seen from the server.

pub(crate) mod failover;
mod invalid_references;
mod requests;

use std::time::Duration;

use keleustes_apiserver::{ApiServer, LoggedRequest};
use keleustes_client::{Call, DeleteOptions, PatchType, PropagationPolicy, RestMapper};
use keleustes_controllers::garbage_collector::{GarbageCollectorOptions, controller};
use keleustes_objects::{Key, Resource};
use keleustes_runtime::loops::RunningController;
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, settle, wait};

/// Longer than any collection that is not blocked takes.
const LONG: Duration = Duration::from_secs(20);

const MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
const CLUSTER_ROLES: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
const WIDGETS: Resource = Resource::namespaced("example.org", "v1", "widgets", "Widget");

/// An object to create: its resource and its JSON.
struct NewObject {
    resource: Resource,
    json: Value,
}

fn object(resource: &Resource, key: &str) -> NewObject {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let mut json = json!({"apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {"name": name, "ownerReferences": []}});
    if !namespace.is_empty() {
        json["metadata"]["namespace"] = json!(namespace);
    }
    NewObject { resource: resource.clone(), json }
}

impl NewObject {
    fn owned_by(self, owner: &Value) -> Self {
        self.with_reference(json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}))
    }

    fn blocking_owner(self, owner: &Value) -> Self {
        self.owned_by(owner).with_in_last_reference("blockOwnerDeletion", json!(true))
    }

    fn with_reference(mut self, reference: Value) -> Self {
        self.json["metadata"]["ownerReferences"].as_array_mut().unwrap().push(reference);
        self
    }

    /// Changes the last owner reference.
    fn with_in_last_reference(mut self, field: &str, value: Value) -> Self {
        self.json["metadata"]["ownerReferences"].as_array_mut().unwrap().last_mut().unwrap()[field] = value;
        self
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.json["metadata"][field] = value;
        self
    }

    async fn create(self, cluster: &TestCluster) -> Value {
        let namespace = self.json["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let mut created =
            Call::create(&self.resource, &namespace, &self.json).send(&cluster.client()).await.unwrap();
        created["apiVersion"] = self.json["apiVersion"].clone();
        created["kind"] = self.json["kind"].clone();
        created
    }
}

/// A cluster with the namespaces `a` and `b`.
fn cluster_with_namespaces() -> TestCluster {
    let cluster = TestCluster::new();
    seed_namespaces(&cluster.server);
    cluster
}

fn seed_namespaces(server: &ApiServer) {
    for name in ["a", "b"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        server.seed(namespace).unwrap();
    }
}

/// A reference to an owner that does not exist.
fn absent_owner(kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": "absent", "uid": "00000000-0000-0000-0000-00000000000b"})
}

async fn start(cluster: &TestCluster) -> RunningController {
    let running = cluster.start(controller(&GarbageCollectorOptions::default())).await;
    settle().await;
    running
}

async fn delete(cluster: &TestCluster, resource: &Resource, key: &str, propagation: PropagationPolicy) {
    let deletion = DeleteOptions { propagation_policy: Some(propagation), ..DeleteOptions::default() };
    Call::delete(resource, &key.parse().unwrap(), &deletion).send(&cluster.client()).await.unwrap();
}

/// The objects in the namespaces `a` and `b` and the cluster-scoped ones, with the names of their owners.
pub(crate) fn remaining(server: &ApiServer) -> Vec<String> {
    let mut lines = Vec::new();
    for plural in ["configmaps", "secrets", "clusterroles.rbac.authorization.k8s.io", "widgets.example.org"] {
        for one in server.objects(plural) {
            let metadata = &one["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
            let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
            let owners: Vec<_> =
                owners.iter().map(|owner| format!(" <{}", owner["name"].as_str().unwrap())).collect();
            let terminating_mark = if metadata["deletionTimestamp"].is_null() { "" } else { " terminating" };
            let plural = plural.split('.').next().unwrap();
            lines.push(format!(
                "{plural} {}/{}{}{terminating_mark}",
                text("namespace"),
                text("name"),
                owners.concat()
            ));
        }
    }
    lines.retain(|line| !line.contains(" kube-") && !line.contains(" default/"));
    lines.sort();
    lines
}

/// Proves GC-128.
#[tokio::test(start_paused = true)]
async fn objects_without_existing_owners_are_deleted_in_the_background() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let middle = object(&SECRETS, "a/middle").owned_by(&owner).create(&cluster).await;
    object(&SECRETS, "a/last").owned_by(&middle).create(&cluster).await;
    object(&SECRETS, "a/shared").owned_by(&owner).owned_by(&middle).create(&cluster).await;
    let keeper = object(&MAPS, "a/keeper").create(&cluster).await;
    object(&SECRETS, "a/kept").owned_by(&owner).owned_by(&keeper).create(&cluster).await;
    object(&SECRETS, "a/orphan").with_reference(absent_owner("ConfigMap")).create(&cluster).await;
    object(&SECRETS, "a/half")
        .with_reference(absent_owner("ConfigMap"))
        .owned_by(&keeper)
        .create(&cluster)
        .await;
    let _running = start(&cluster).await;
    wait(LONG).await;
    assert_eq!(
        remaining(&cluster.server),
        [
            "configmaps a/keeper",
            "configmaps a/owner",
            "secrets a/half <keeper",
            "secrets a/kept <owner <keeper",
            "secrets a/last <middle",
            "secrets a/middle <owner",
            "secrets a/shared <owner <middle",
        ],
        "an owner that never existed does not count"
    );
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Background).await;
    wait(LONG).await;
    assert_eq!(
        remaining(&cluster.server),
        ["configmaps a/keeper", "secrets a/half <keeper", "secrets a/kept <keeper"]
    );
}

/// Proves GC-38, GC-41, GC-70, GC-129.
#[tokio::test(start_paused = true)]
async fn foreground_deletion_deletes_dependents_first() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let other = object(&MAPS, "a/other").create(&cluster).await;
    let middle = object(&SECRETS, "a/middle").blocking_owner(&owner).create(&cluster).await;
    let held =
        object(&SECRETS, "a/last").blocking_owner(&middle).with("finalizers", json!(["example.org/hold"]));
    let held = held.create(&cluster).await;
    object(&SECRETS, "a/shared").blocking_owner(&owner).owned_by(&other).create(&cluster).await;
    let _running = start(&cluster).await;
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(
        remaining(&cluster.server),
        [
            "configmaps a/other",
            "configmaps a/owner terminating",
            "secrets a/last <middle terminating",
            "secrets a/middle <owner terminating",
            "secrets a/shared <other",
        ],
        "owners wait for the last dependent, and a dependent with another owner is kept"
    );
    let body = json!({"metadata": {"finalizers": null, "uid": held["metadata"]["uid"]}});
    let call = Call::patch(&SECRETS, &Key::namespaced("a", "last"), PatchType::Merge, &body);
    call.send(&cluster.client()).await.unwrap();
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), ["configmaps a/other", "secrets a/shared <other"]);
    let position_of_patch = |name: &str| {
        let is_patch =
            |request: &LoggedRequest| request.method == http::Method::PATCH && request.target.ends_with(name);
        cluster.server.requests().iter().position(is_patch).unwrap()
    };
    assert!(position_of_patch("/middle") < position_of_patch("/owner"), "dependents before owners");
}

/// Proves GC-72.
#[tokio::test(start_paused = true)]
async fn nonblocking_dependent_does_not_delay_foreground_deletion() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    object(&SECRETS, "a/slow")
        .owned_by(&owner)
        .with("finalizers", json!(["example.org/hold"]))
        .create(&cluster)
        .await;
    let _running = start(&cluster).await;
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), ["secrets a/slow <owner terminating"]);
}

/// Proves GC-73, GC-74.
#[tokio::test(start_paused = true)]
async fn orphan_policy_releases_the_dependents() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let other = object(&MAPS, "a/other").create(&cluster).await;
    for n in 0..20 {
        object(&SECRETS, &format!("a/free{n:02}")).blocking_owner(&owner).create(&cluster).await;
    }
    object(&SECRETS, "a/shared").owned_by(&owner).owned_by(&other).create(&cluster).await;
    let _running = start(&cluster).await;
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Orphan).await;
    wait(LONG).await;
    let mut expected = vec!["configmaps a/other".to_owned()];
    expected.extend((0..20).map(|n| format!("secrets a/free{n:02}")));
    expected.push("secrets a/shared <other".to_owned());
    assert_eq!(remaining(&cluster.server), expected);
}

/// Proves GC-130.
#[tokio::test(start_paused = true)]
async fn foreground_deletion_twice_removes_the_finalizer_twice() {
    let cluster = cluster_with_namespaces();
    object(&MAPS, "a/owner").with("finalizers", json!(["example.org/hold"])).create(&cluster).await;
    let _running = start(&cluster).await;
    for _ in 0..2 {
        delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
        wait(LONG).await;
        let owner = cluster.server.object("configmaps", "a", "owner").unwrap();
        assert_eq!(owner["metadata"]["finalizers"], json!(["example.org/hold"]));
    }
}

/// Proves GC-141.
#[tokio::test(start_paused = true)]
async fn cycle_of_owners_is_deleted() {
    let cluster = cluster_with_namespaces();
    let first = object(&MAPS, "a/first").create(&cluster).await;
    let second = object(&MAPS, "a/second").blocking_owner(&first).create(&cluster).await;
    let third = object(&MAPS, "a/third").blocking_owner(&second).create(&cluster).await;
    let reference =
        object(&MAPS, "a/first").blocking_owner(&third).json["metadata"]["ownerReferences"].clone();
    let body = json!({"metadata": {"ownerReferences": reference}});
    let call = Call::patch(&MAPS, &Key::namespaced("a", "first"), PatchType::Merge, &body);
    call.send(&cluster.client()).await.unwrap();
    let _running = start(&cluster).await;
    delete(&cluster, &MAPS, "a/first", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), [""; 0]);
}

/// Proves GC-14, GC-137.
#[tokio::test(start_paused = true)]
async fn resources_served_later_are_collected() {
    let cluster = cluster_with_namespaces();
    let _running = start(&cluster).await;
    let reference = json!({"apiVersion": "example.org/v1", "kind": "Widget", "name": "owner",
        "uid": "00000000-0000-0000-0000-00000000000c"});
    object(&SECRETS, "a/waits").with_reference(reference).create(&cluster).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), ["secrets a/waits <owner"], "the kind is not served");
    super::monitors::define_widgets(&cluster).await;
    let owner = object(&WIDGETS, "a/root").create(&cluster).await;
    object(&WIDGETS, "a/custom").blocking_owner(&owner).create(&cluster).await;
    object(&SECRETS, "a/builtin").owned_by(&owner).create(&cluster).await;
    wait(Duration::from_secs(100)).await;
    assert_eq!(
        remaining(&cluster.server),
        ["secrets a/builtin <root", "widgets a/custom <root", "widgets a/root"],
        "the kind is served now, and the owner does not exist"
    );
    delete(&cluster, &WIDGETS, "a/root", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), [""; 0]);
}

/// Proves GC-14.
#[tokio::test(start_paused = true)]
async fn rest_mapping_is_discovered_again_when_old_or_unknown() {
    let cluster = cluster_with_namespaces();
    let mapping: RestMapper = cluster.caches.rest_mapping().clone();
    let widget = || mapping.mapping_for_kind("example.org", Some("v1"), "Widget");
    assert!(widget().await.unwrap().is_none());
    super::monitors::define_widgets(&cluster).await;
    wait(Duration::from_secs(6)).await;
    assert_eq!(
        widget().await.unwrap().unwrap().resource,
        WIDGETS,
        "not found, and older than 5 s: discovered again"
    );
    let discoveries = || cluster.server.requests().iter().filter(|request| request.target == "/apis").count();
    let before = discoveries();
    widget().await.unwrap();
    assert_eq!(discoveries(), before);
    wait(Duration::from_secs(31)).await;
    widget().await.unwrap();
    assert_eq!(discoveries(), before + 1, "older than 30 s");
    let _running = start(&cluster).await;
    widget().await.unwrap();
    assert_eq!(
        discoveries(),
        before + 3,
        "the observed resources have changed: discovered by the monitors, and again here"
    );
}
