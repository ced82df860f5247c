//! Hollow nodes in the embedded API server, with time that passes only when everybody waits.

#![allow(clippy::unwrap_used)] // A test that cannot go on is to fail.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault, clock};
use keleustes_client::{Call, DeleteOptions};
use keleustes_hollow::{Builder, Hollow, HollowHandle};
use keleustes_objects::{Key, Resource};
use kube::Client;
use serde_json::{Value, json};
use tower::Layer as _;

const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
const NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");

struct World {
    server: ApiServer,
    client: Client,
    faults: Faults,
    wall: Timestamp,
}

impl World {
    fn new() -> Self {
        let wall: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::builder().seed(7).clock(clock::following_tokio(wall)).build();
        let faults = Faults::new();
        let client = Client::new(faults.layer(server.clone()), "default");
        Self { server, client, faults, wall }
    }

    fn hollow(&self, nodes: usize) -> Builder {
        Hollow::builder(self.client.clone())
            .nodes(nodes)
            .zones(2)
            .seed(7)
            .scheduler(true)
            .untaint(true)
            .wall_time(self.wall)
    }

    async fn create(&self, name: &str, annotations: &[(&str, &str)], spec: &Value) {
        let annotations: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(name, value)| (format!("hollow.keleustes.io/{name}"), json!(value)))
            .collect();
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "i"}]},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        Call::create(&PODS, "default", &pod).send(&self.client).await.unwrap();
    }

    fn pod(&self, name: &str) -> Option<Arc<Value>> {
        self.server.object("pods", "default", name)
    }

    fn node(&self, name: &str) -> Option<Arc<Value>> {
        self.server.object("nodes", "", name)
    }

    fn renewed(&self, name: &str) -> String {
        let lease = self.server.object("leases.coordination.k8s.io", "kube-node-lease", name).unwrap();
        lease["spec"]["renewTime"].as_str().unwrap().to_owned()
    }
}

/// Waits in simulated time.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not come to be within two minutes");
}

fn condition(object: &Value, name: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|one| one["type"] == name);
    found.map_or_else(String::new, |one| one["status"].as_str().unwrap_or_default().to_owned())
}

fn is_ready(object: Option<Arc<Value>>) -> bool {
    object.is_some_and(|object| condition(&object, "Ready") == "True")
}

async fn registered(world: &World, hollow: &HollowHandle, nodes: usize) {
    for _ in 0..1000 {
        if hollow.tally().await.nodes == nodes {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.server.objects("nodes").len(), nodes);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_becomes_ready_and_ends_gracefully() {
    let world = World::new();
    let hollow = world.hollow(3).start();
    world.create("p", &[], &json!({})).await;
    until("readiness", || is_ready(world.pod("p"))).await;
    let pod = world.pod("p").unwrap();
    assert_eq!(pod["status"]["phase"], "Running");
    assert!(pod["spec"]["nodeName"].as_str().unwrap().starts_with("hollow-"));
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);

    Call::delete(&PODS, &Key::namespaced("default", "p"), &DeleteOptions::default())
        .send(&world.client)
        .await
        .unwrap();
    assert!(world.pod("p").unwrap()["metadata"]["deletionTimestamp"].is_string());
    until("the end", || world.pod("p").is_none()).await;
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_placed_says_why_and_is_placed_when_it_can_be() {
    let world = World::new();
    let hollow = world.hollow(2).start();
    world.create("p", &[], &json!({"nodeSelector": {"disk": "ssd"}})).await;
    until("a verdict", || condition(&world.pod("p").unwrap(), "PodScheduled") == "False").await;
    let pod = world.pod("p").unwrap();
    let why = &pod["status"]["conditions"][0];
    assert_eq!(why["reason"], "Unschedulable");
    assert_eq!(
        why["message"],
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    );
    let patch = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let node = Key::cluster("hollow-1");
    Call::patch(&NODES, &node, keleustes_client::PatchType::Merge, &patch).send(&world.client).await.unwrap();
    until("readiness", || is_ready(world.pod("p"))).await;
    assert_eq!(world.pod("p").unwrap()["spec"]["nodeName"], "hollow-1");
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn batch_pods_complete_and_crashing_ones_come_back() {
    let world = World::new();
    let hollow = world.hollow(1).start();
    world.create("good", &[], &json!({"restartPolicy": "Never"})).await;
    world.create("bad", &[("run-for", "1s"), ("exit-code", "3")], &json!({"restartPolicy": "Never"})).await;
    world.create("loops", &[("crash-after", "1s"), ("crash-times", "2")], &json!({})).await;
    let phase = |name: &str| world.pod(name).unwrap()["status"]["phase"].as_str().map(str::to_owned);
    until("success", || phase("good").as_deref() == Some("Succeeded")).await;
    until("failure", || phase("bad").as_deref() == Some("Failed")).await;
    assert_eq!(
        world.pod("bad").unwrap()["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        3
    );
    let container = || world.pod("loops").unwrap()["status"]["containerStatuses"][0].clone();
    until("the back-off", || container()["state"]["waiting"]["reason"] == "CrashLoopBackOff").await;
    until("two restarts", || container()["restartCount"] == 2 && is_ready(world.pod("loops"))).await;
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_node_lets_its_lease_run_out_and_recovers() {
    let world = World::new();
    let hollow = world.hollow(2).start();
    registered(&world, &hollow, 2).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(hollow.fail_node("hollow-0").await);
    assert!(!hollow.fail_node("unknown").await);
    let (dead, alive) = (world.renewed("hollow-0"), world.renewed("hollow-1"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.renewed("hollow-0"), dead);
    assert_ne!(world.renewed("hollow-1"), alive);

    // A node lifecycle controller would write this.
    let unknown = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let call =
        Call::patch(&NODES, &Key::cluster("hollow-0"), keleustes_client::PatchType::Strategic, &unknown);
    call.subresource("status").send(&world.client).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(condition(&world.node("hollow-0").unwrap(), "Ready"), "Unknown");
    assert!(hollow.recover_node("hollow-0").await);
    until("recovery", || is_ready(world.node("hollow-0"))).await;
    assert_ne!(world.renewed("hollow-0"), dead);
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_process_left_is_taken_over_without_a_write() {
    let world = World::new();
    let hollow = world.hollow(1).start();
    world.create("p", &[], &json!({})).await;
    until("readiness", || is_ready(world.pod("p"))).await;
    hollow.stop().await;
    let before = world.pod("p").unwrap();
    let hollow = world.hollow(1).start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(hollow.tally().await.running, 1);
    assert_eq!(world.pod("p").unwrap(), before);
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failing_writes_and_cut_watches_delay_and_do_not_lose() {
    let world = World::new();
    let refuse = |method: http::Method, target: &'static str| {
        let verdict = InjectedFault::status(500, "InternalError", "try again");
        world.faults.add(FaultRule::new(verdict).method(method).target(target).times(3));
    };
    refuse(http::Method::POST, "/api/v1/nodes");
    refuse(http::Method::POST, "/leases");
    refuse(http::Method::POST, "/binding");
    refuse(http::Method::PATCH, "/status");
    refuse(http::Method::DELETE, "/pods/");
    let hollow = world.hollow(2).start();
    world.create("p", &[], &json!({})).await;
    world.create("q", &[], &json!({})).await;
    until("readiness", || is_ready(world.pod("p")) && is_ready(world.pod("q"))).await;
    world.server.compact();
    world.server.expire_watches();
    let delete =
        |name: &str| Call::delete(&PODS, &Key::namespaced("default", name), &DeleteOptions::default());
    world.faults.disable_all();
    delete("p").send(&world.client).await.unwrap();
    until("the end", || world.pod("p").is_none()).await;
    assert!(is_ready(world.pod("q")));
    hollow.stop().await;
}

/// All writes of a little cluster, in order.
async fn transcript(seed: u64) -> Vec<String> {
    let world = World::new();
    let hollow = world.hollow(5).seed(seed).start();
    registered(&world, &hollow, 5).await;
    for index in 0..20 {
        world.create(&format!("p{index}"), &[], &json!({"restartPolicy": "Never"})).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    hollow.stop().await;
    let writes = world.server.requests().into_iter().filter(|request| request.method != http::Method::GET);
    writes.map(|request| format!("{} {} {:?}", request.method, request.target, request.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_writes_the_same() {
    let first = transcript(1).await;
    assert!(first.len() > 100, "{}", first.len());
    assert_eq!(first, transcript(1).await);
    assert_ne!(first, transcript(2).await);
}

#[tokio::test(start_paused = true)]
async fn nodes_at_rest_write_leases_and_little_else() {
    let world = World::new();
    let hollow = world.hollow(50).start();
    registered(&world, &hollow, 50).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = hollow.tally().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let after = hollow.tally().await;
    let (writes, failures) = (after.writes - before.writes, after.failures - before.failures);
    // Ten renewals of each, and a third of them may report a status.
    assert!((470..=530).contains(&writes) && failures == 0, "{writes} {failures}");
    hollow.stop().await;
}
