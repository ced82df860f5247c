//! Namespace deletion, seen from the server: when reconciles come, what they send, which conditions they
//! write.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_client::{Call, DeleteOptions};
use keleustes_controllers::namespace::{self, NamespaceOptions};
use keleustes_objects::{Key, Kind as _, Namespace};
use keleustes_runtime::loops::RunningController;
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, wait};

const NAMESPACE_PATH: &str = "/api/v1/namespaces/a";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn seed(cluster: &TestCluster, api_version: &str, kind: &str, mut rest: Value) {
    rest["apiVersion"] = json!(api_version);
    rest["kind"] = json!(kind);
    cluster.server.seed(rest).unwrap();
}

fn seed_namespace(cluster: &TestCluster, name: &str) {
    let spec = json!({"finalizers": ["kubernetes"]});
    seed(
        cluster,
        "v1",
        "Namespace",
        json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Active"}}),
    );
}

fn seed_map(cluster: &TestCluster, namespace: &str, name: &str, finalizers: &[&str]) {
    let metadata = json!({"namespace": namespace, "name": name, "finalizers": finalizers});
    seed(cluster, "v1", "ConfigMap", json!({"metadata": metadata}));
}

async fn delete(cluster: &TestCluster, namespace: &str) {
    let call = Call::delete(&Namespace::RESOURCE, &Key::cluster(namespace), &DeleteOptions::default());
    call.send(&cluster.client()).await.unwrap();
}

async fn start(cluster: &TestCluster) -> RunningController {
    cluster.start(namespace::controller(&NamespaceOptions::default())).await
}

/// How many reconciles there were of namespace `a`.
fn reconcile_count(cluster: &TestCluster) -> usize {
    let requests = cluster.server.requests();
    requests
        .iter()
        .filter(|request| request.method == Method::GET && request.target == NAMESPACE_PATH)
        .count()
}

/// Status, reason and message of one condition.
fn condition(cluster: &TestCluster, name: &str) -> [String; 3] {
    let namespace = cluster.server.object("namespaces", "", "a").unwrap();
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.iter().find(|condition| condition["type"] == name).unwrap();
    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default().to_owned())
}

/// Proves NS-1, NS-27, NS-72, NS-74.
#[tokio::test(start_paused = true)]
async fn reconciles_come_after_five_seconds_and_when_pods_should_have_ended() {
    let cluster = TestCluster::new();
    seed_namespace(&cluster, "a");
    let spec = json!({"terminationGracePeriodSeconds": 30, "nodeName": "n", "containers": [{"name": "c"}]});
    seed(&cluster, "v1", "Pod", json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec}));
    seed_map(&cluster, "a", "m", &[]);
    let running = start(&cluster).await;
    wait(seconds(60)).await;
    assert_eq!(reconcile_count(&cluster), 0, "no namespace is terminating");
    delete(&cluster, "a").await;
    let mut times = Vec::new();
    for second in 0..42 {
        let before = reconcile_count(&cluster);
        wait(seconds(1)).await;
        times.extend((reconcile_count(&cluster) > before).then_some(second));
    }
    // After 5 s; 5 s after the conditions were written; then each after 16 s.
    assert_eq!(times, [5, 10, 26]);
    assert_eq!(condition(&cluster, "NamespaceContentRemaining")[0], "False");
    assert!(cluster.server.object("configmaps", "a", "m").is_some(), "it waits for the pod");
    // The pod has exceeded its grace period, which is an error that is retried at least every minute.
    wait(seconds(600)).await;
    let condition_text = condition(&cluster, "NamespaceDeletionContentFailure");
    assert_eq!(condition_text[..2], ["True", "ContentDeletionFailed"]);
    let before = reconcile_count(&cluster);
    wait(seconds(61)).await;
    assert!(reconcile_count(&cluster) > before);
    assert!(cluster.server.remove("pods", "a", "p"));
    wait(seconds(61)).await;
    assert!(cluster.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-19, NS-41, NS-42, NS-43, NS-45, NS-85.
#[tokio::test(start_paused = true)]
async fn few_requests_empty_a_namespace_with_the_right_bodies() {
    let cluster = TestCluster::new();
    seed_namespace(&cluster, "a");
    (0..700).for_each(|n| seed_map(&cluster, "a", &format!("m{n}"), &[]));
    let running = start(&cluster).await;
    delete(&cluster, "a").await;
    wait(seconds(6)).await;
    let writes = cluster.writes();
    let sent: Vec<_> =
        writes.iter().map(|write| format!("{} {} {}", write.code, write.method, write.target)).collect();
    let wanted = [
        format!("200 DELETE {NAMESPACE_PATH}"),
        format!("200 DELETE {NAMESPACE_PATH}/configmaps"),
        format!("200 PUT {NAMESPACE_PATH}/status"),
        format!("200 PUT {NAMESPACE_PATH}/finalize"),
    ];
    assert_eq!(sent, wanted, "and no conflict between conditions and finalizer");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    assert_eq!(writes[1].json(), options);
    assert_eq!(writes[2].json()["status"]["conditions"].as_array().unwrap().len(), 5);
    assert_eq!(
        (&writes[3].json()["spec"], &writes[3].json()["status"]),
        (&json!({"finalizers": []}), &Value::Null)
    );
    assert!(cluster.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-51, NS-52, NS-81.
#[tokio::test(start_paused = true)]
async fn failed_discovery_keeps_the_namespace_until_it_succeeds() {
    let cluster = TestCluster::new();
    seed_namespace(&cluster, "a");
    seed_map(&cluster, "a", "m", &[]);
    let running = start(&cluster).await;
    cluster.server.set_group_version_failing("apps", "v1", true);
    delete(&cluster, "a").await;
    wait(seconds(60)).await;
    assert!(cluster.server.object("configmaps", "a", "m").is_none(), "discovered resources are deleted");
    let message = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server \
        APIs: apps/v1: stale GroupVersion discovery: apps/v1";
    assert_eq!(
        condition(&cluster, "NamespaceDeletionDiscoveryFailure"),
        ["True", "DiscoveryFailed", message]
    );
    cluster.server.set_group_version_failing("apps", "v1", false);
    wait(seconds(61)).await;
    assert!(cluster.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-23, NS-58, NS-61, NS-77, NS-79.
#[tokio::test(start_paused = true)]
async fn finalizers_and_custom_resources_are_waited_for() {
    let cluster = TestCluster::new();
    let names =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let running = start(&cluster).await;
    seed_namespace(&cluster, "a");
    let definition = json!({"metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}});
    let mut definition = definition;
    definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
    definition["kind"] = json!("CustomResourceDefinition");
    let create = Call::raw(Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    create.with_body(&definition).send(&cluster.client()).await.unwrap();
    wait(seconds(5)).await;
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "w", "finalizers": ["hold.it/now"]}});
    let create = Call::raw(Method::POST, "/apis/example.com/v1/namespaces/a/gadgets");
    create.with_body(&gadget).send(&cluster.client()).await.unwrap();
    delete(&cluster, "a").await;
    wait(seconds(6)).await;
    let remaining = "Some resources are remaining: gadgets.example.com has 1 resource instances";
    assert_eq!(condition(&cluster, "NamespaceContentRemaining")[2], remaining);
    let finalizers =
        "Some content in the namespace has finalizers remaining: hold.it/now in 1 resource instances";
    assert_eq!(condition(&cluster, "NamespaceFinalizersRemaining")[2], finalizers);
    // The finalizer's owner removes the object.
    assert!(cluster.server.remove("gadgets.example.com", "a", "w"));
    wait(seconds(9)).await;
    assert!(cluster.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-3, NS-83.
#[tokio::test(start_paused = true)]
async fn slow_namespace_delays_no_other_and_is_not_reconciled_twice_at_once() {
    let cluster = TestCluster::new();
    for name in ["a", "b"] {
        seed_namespace(&cluster, name);
        seed_map(&cluster, name, "m", &[]);
    }
    let slow = InjectedFault::DelayThen(seconds(80), Box::new(InjectedFault::Pass));
    cluster.faults.add(FaultRule::new(slow).method(Method::DELETE).target("/namespaces/a/configmaps"));
    let running = start(&cluster).await;
    delete(&cluster, "a").await;
    delete(&cluster, "b").await;
    wait(seconds(6)).await;
    assert!(cluster.server.object("namespaces", "", "b").is_none());
    let mut touched = (*cluster.server.object("namespaces", "", "a").unwrap()).clone();
    touched["metadata"]["labels"] = json!({"touched": "yes"});
    cluster.server.seed(touched).unwrap();
    wait(seconds(60)).await;
    assert_eq!(reconcile_count(&cluster), 1, "one reconcile, although it was enqueued again");
    wait(seconds(60)).await;
    assert!(cluster.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-2, NS-78.
#[tokio::test(start_paused = true)]
async fn namespaces_with_other_finalizers_are_reconciled_at_every_resync() {
    let cluster = TestCluster::new();
    let (metadata, spec) = (json!({"name": "a"}), json!({"finalizers": ["kubernetes", "others/one"]}));
    seed(
        &cluster,
        "v1",
        "Namespace",
        json!({"metadata": metadata, "spec": spec, "status": {"phase": "Active"}}),
    );
    let running = start(&cluster).await;
    delete(&cluster, "a").await;
    wait(seconds(30)).await;
    let namespace = cluster.server.object("namespaces", "", "a").unwrap();
    assert_eq!(namespace["spec"]["finalizers"], json!(["others/one"]));
    let before = reconcile_count(&cluster);
    seed_map(&cluster, "a", "late", &[]);
    wait(seconds(300)).await;
    assert_eq!(reconcile_count(&cluster), before + 1);
    assert!(cluster.server.object("configmaps", "a", "late").is_none());
    running.stop().await;
}
