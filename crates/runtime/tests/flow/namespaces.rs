//! Namespaces that go, seen from the server: when passes come, what they send, what people can read.

use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_client::{Call, DeleteOptions};
use keleustes_controllers::namespace::{self, NamespaceOptions};
use keleustes_objects::{Key, Kind as _, Namespace};
use keleustes_runtime::loops::RunningController;
use serde_json::{Value, json};

use crate::world::{World, wait};

const GOING: &str = "/api/v1/namespaces/a";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn seed(world: &World, api_version: &str, kind: &str, mut rest: Value) {
    rest["apiVersion"] = json!(api_version);
    rest["kind"] = json!(kind);
    world.server.seed(rest).unwrap();
}

fn seed_namespace(world: &World, name: &str) {
    let spec = json!({"finalizers": ["kubernetes"]});
    seed(
        world,
        "v1",
        "Namespace",
        json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Active"}}),
    );
}

fn seed_map(world: &World, namespace: &str, name: &str, finalizers: &[&str]) {
    let metadata = json!({"namespace": namespace, "name": name, "finalizers": finalizers});
    seed(world, "v1", "ConfigMap", json!({"metadata": metadata}));
}

async fn delete(world: &World, namespace: &str) {
    let call = Call::delete(&Namespace::RESOURCE, &Key::cluster(namespace), &DeleteOptions::default());
    call.send(&world.client()).await.unwrap();
}

async fn start(world: &World) -> RunningController {
    world.start(namespace::controller(&NamespaceOptions::default())).await
}

/// How many passes there were over namespace `a`.
fn passes(world: &World) -> usize {
    let requests = world.server.requests();
    requests.iter().filter(|request| request.method == Method::GET && request.target == GOING).count()
}

/// Status, reason and message of one condition.
fn condition(world: &World, name: &str) -> [String; 3] {
    let namespace = world.server.object("namespaces", "", "a").unwrap();
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.iter().find(|condition| condition["type"] == name).unwrap();
    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default().to_owned())
}

/// Proves NS-1, NS-27, NS-72, NS-74.
#[tokio::test(start_paused = true)]
async fn passes_come_after_five_seconds_and_when_pods_should_have_ended() {
    let world = World::new();
    seed_namespace(&world, "a");
    let spec = json!({"terminationGracePeriodSeconds": 30, "nodeName": "n", "containers": [{"name": "c"}]});
    seed(&world, "v1", "Pod", json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec}));
    seed_map(&world, "a", "m", &[]);
    let running = start(&world).await;
    wait(seconds(60)).await;
    assert_eq!(passes(&world), 0, "nothing goes");
    delete(&world, "a").await;
    let mut times = Vec::new();
    for second in 0..42 {
        let before = passes(&world);
        wait(seconds(1)).await;
        times.extend((passes(&world) > before).then_some(second));
    }
    // After five seconds; five seconds after the conditions were written; then each after 16 s.
    assert_eq!(times, [5, 10, 26]);
    assert_eq!(condition(&world, "NamespaceContentRemaining")[0], "False");
    assert!(world.server.object("configmaps", "a", "m").is_some(), "it waits for the pod");
    // The pod is past its time, which is an error that is tried again at least every minute.
    wait(seconds(600)).await;
    let told = condition(&world, "NamespaceDeletionContentFailure");
    assert_eq!(told[..2], ["True", "ContentDeletionFailed"]);
    let before = passes(&world);
    wait(seconds(61)).await;
    assert!(passes(&world) > before);
    assert!(world.server.remove("pods", "a", "p"));
    wait(seconds(61)).await;
    assert!(world.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-19, NS-41, NS-42, NS-43, NS-45, NS-85.
#[tokio::test(start_paused = true)]
async fn few_requests_empty_a_namespace_and_each_says_what_it_should() {
    let world = World::new();
    seed_namespace(&world, "a");
    (0..700).for_each(|n| seed_map(&world, "a", &format!("m{n}"), &[]));
    let running = start(&world).await;
    delete(&world, "a").await;
    wait(seconds(6)).await;
    let writes = world.writes();
    let sent: Vec<_> =
        writes.iter().map(|write| format!("{} {} {}", write.code, write.method, write.target)).collect();
    let wanted = [
        format!("200 DELETE {GOING}"),
        format!("200 DELETE {GOING}/configmaps"),
        format!("200 PUT {GOING}/status"),
        format!("200 PUT {GOING}/finalize"),
    ];
    assert_eq!(sent, wanted, "and no conflict between conditions and finalizer");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    assert_eq!(writes[1].json(), options);
    assert_eq!(writes[2].json()["status"]["conditions"].as_array().unwrap().len(), 5);
    assert_eq!(
        (&writes[3].json()["spec"], &writes[3].json()["status"]),
        (&json!({"finalizers": []}), &Value::Null)
    );
    assert!(world.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-51, NS-52, NS-81.
#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_keeps_the_namespace_until_it_is_back() {
    let world = World::new();
    seed_namespace(&world, "a");
    seed_map(&world, "a", "m", &[]);
    let running = start(&world).await;
    world.server.set_group_version_failing("apps", "v1", true);
    delete(&world, "a").await;
    wait(seconds(60)).await;
    assert!(world.server.object("configmaps", "a", "m").is_none(), "what is known is deleted");
    let message = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server \
        APIs: apps/v1: stale GroupVersion discovery: apps/v1";
    assert_eq!(condition(&world, "NamespaceDeletionDiscoveryFailure"), ["True", "DiscoveryFailed", message]);
    world.server.set_group_version_failing("apps", "v1", false);
    wait(seconds(61)).await;
    assert!(world.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-23, NS-58, NS-61, NS-77, NS-79.
#[tokio::test(start_paused = true)]
async fn finalizers_and_resources_that_come_and_go_are_waited_for() {
    let world = World::new();
    let names = json!({"plural": "wishes", "singular": "wish", "kind": "Wish", "listKind": "WishList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let running = start(&world).await;
    seed_namespace(&world, "a");
    let definition = json!({"metadata": {"name": "wishes.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}});
    let mut definition = definition;
    definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
    definition["kind"] = json!("CustomResourceDefinition");
    let create = Call::raw(Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    create.with_body(&definition).send(&world.client()).await.unwrap();
    wait(seconds(5)).await;
    let wish = json!({"apiVersion": "example.com/v1", "kind": "Wish", "metadata": {"name": "w", "finalizers": ["hold.it/now"]}});
    let create = Call::raw(Method::POST, "/apis/example.com/v1/namespaces/a/wishes");
    create.with_body(&wish).send(&world.client()).await.unwrap();
    delete(&world, "a").await;
    wait(seconds(6)).await;
    let remaining = "Some resources are remaining: wishes.example.com has 1 resource instances";
    assert_eq!(condition(&world, "NamespaceContentRemaining")[2], remaining);
    let finalizers =
        "Some content in the namespace has finalizers remaining: hold.it/now in 1 resource instances";
    assert_eq!(condition(&world, "NamespaceFinalizersRemaining")[2], finalizers);
    // The hand lets go.
    assert!(world.server.remove("wishes.example.com", "a", "w"));
    wait(seconds(9)).await;
    assert!(world.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-3, NS-83.
#[tokio::test(start_paused = true)]
async fn one_that_takes_long_holds_up_no_other_and_is_not_begun_twice() {
    let world = World::new();
    for name in ["a", "b"] {
        seed_namespace(&world, name);
        seed_map(&world, name, "m", &[]);
    }
    let slow = InjectedFault::DelayThen(seconds(80), Box::new(InjectedFault::Pass));
    world.faults.add(FaultRule::new(slow).method(Method::DELETE).target("/namespaces/a/configmaps"));
    let running = start(&world).await;
    delete(&world, "a").await;
    delete(&world, "b").await;
    wait(seconds(6)).await;
    assert!(world.server.object("namespaces", "", "b").is_none());
    let mut touched = (*world.server.object("namespaces", "", "a").unwrap()).clone();
    touched["metadata"]["labels"] = json!({"touched": "yes"});
    world.server.seed(touched).unwrap();
    wait(seconds(60)).await;
    assert_eq!(passes(&world), 1, "one pass, although it was woken again");
    wait(seconds(60)).await;
    assert!(world.server.object("namespaces", "", "a").is_none());
    running.stop().await;
}

/// Proves NS-2, NS-78.
#[tokio::test(start_paused = true)]
async fn namespaces_that_others_hold_are_looked_at_again_after_every_period() {
    let world = World::new();
    let (metadata, spec) = (json!({"name": "a"}), json!({"finalizers": ["kubernetes", "others/one"]}));
    seed(
        &world,
        "v1",
        "Namespace",
        json!({"metadata": metadata, "spec": spec, "status": {"phase": "Active"}}),
    );
    let running = start(&world).await;
    delete(&world, "a").await;
    wait(seconds(30)).await;
    let namespace = world.server.object("namespaces", "", "a").unwrap();
    assert_eq!(namespace["spec"]["finalizers"], json!(["others/one"]));
    let before = passes(&world);
    seed_map(&world, "a", "late", &[]);
    wait(seconds(300)).await;
    assert_eq!(passes(&world), before + 1);
    assert!(world.server.object("configmaps", "a", "late").is_none());
    running.stop().await;
}
