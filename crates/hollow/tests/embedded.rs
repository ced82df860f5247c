//! Hollow nodes against the embedded API server, in paused tokio time.

#![allow(clippy::unwrap_used)] // An unexpected error fails the test.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault, clock};
use keleustes_client::{Call, DeleteOptions, PatchType};
use keleustes_hollow::{Builder, Hollow, HollowHandle};
use keleustes_objects::{Key, Resource};
use kube::Client;
use serde_json::{Value, json};
use tower::Layer as _;

const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
const NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");

struct TestCluster {
    server: ApiServer,
    client: Client,
    faults: Faults,
    wall: Timestamp,
}

impl TestCluster {
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
async fn until(expected: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{expected} did not happen within two minutes");
}

fn condition(object: &Value, name: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|one| one["type"] == name);
    found.map_or_else(String::new, |one| one["status"].as_str().unwrap_or_default().to_owned())
}

fn is_ready(object: Option<Arc<Value>>) -> bool {
    object.is_some_and(|object| condition(&object, "Ready") == "True")
}

async fn registered(cluster: &TestCluster, hollow: &HollowHandle, nodes: usize) {
    for _ in 0..1000 {
        if hollow.stats().await.nodes == nodes {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(cluster.server.objects("nodes").len(), nodes);
}

#[tokio::test(start_paused = true)]
async fn pod_is_bound_becomes_ready_and_terminates_gracefully() {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(3).start();
    cluster.create("p", &[], &json!({})).await;
    until("readiness", || is_ready(cluster.pod("p"))).await;
    let pod = cluster.pod("p").unwrap();
    assert_eq!(pod["status"]["phase"], "Running");
    assert!(pod["spec"]["nodeName"].as_str().unwrap().starts_with("hollow-"));
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);

    Call::delete(&PODS, &Key::namespaced("default", "p"), &DeleteOptions::default())
        .send(&cluster.client)
        .await
        .unwrap();
    assert!(cluster.pod("p").unwrap()["metadata"]["deletionTimestamp"].is_string());
    until("the deletion", || cluster.pod("p").is_none()).await;
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_gets_the_condition_and_is_scheduled_when_possible() {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(2).start();
    cluster.create("p", &[], &json!({"nodeSelector": {"disk": "ssd"}})).await;
    until("a scheduling decision", || condition(&cluster.pod("p").unwrap(), "PodScheduled") == "False").await;
    let pod = cluster.pod("p").unwrap();
    let why = &pod["status"]["conditions"][0];
    assert_eq!(why["reason"], "Unschedulable");
    assert_eq!(
        why["message"],
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    );
    let patch = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let node = Key::cluster("hollow-1");
    Call::patch(&NODES, &node, PatchType::Merge, &patch).send(&cluster.client).await.unwrap();
    until("readiness", || is_ready(cluster.pod("p"))).await;
    assert_eq!(cluster.pod("p").unwrap()["spec"]["nodeName"], "hollow-1");
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_its_claim_and_for_its_config_map() {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(1).volumes(true).mounts(true).start();
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "settings", "configMap": {"name": "settings"}}]);
    let spec = json!({"automountServiceAccountToken": false, "volumes": volumes});
    cluster.create("p", &[], &spec).await;
    let unscheduled = |name: &str| {
        let pod = cluster.pod(name).unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let scheduled = conditions.iter().find(|one| one["type"] == "PodScheduled");
        scheduled.map(|one| one["message"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
    };
    let missing = "0/1 nodes are available: persistentvolumeclaim \"data\" not found.";
    until("a reason", || unscheduled("p") == missing).await;

    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "by-hand", "resources": {"requests": {"storage": "1Gi"}}}});
    Call::create(&CLAIMS, "default", &claim).send(&cluster.client).await.unwrap();
    let unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    until("another reason", || unscheduled("p") == unbound).await;
    let bound = json!({"status": {"phase": "Bound"}});
    let call = Call::patch(&CLAIMS, &Key::namespaced("default", "data"), PatchType::Merge, &bound);
    call.subresource("status").send(&cluster.client).await.unwrap();

    until("an event", || !cluster.server.objects("events").is_empty()).await;
    let pod = cluster.pod("p").unwrap();
    assert_eq!(pod["spec"]["nodeName"], "hollow-0");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    let event = cluster.server.objects("events").remove(0);
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("FailedMount")));
    assert_eq!(
        event["message"],
        "MountVolume.SetUp failed for volume \"settings\" : configmap \"settings\" not found"
    );
    assert_eq!(event["source"], json!({"component": "kubelet", "host": "hollow-0"}));
    until("a second failure", || cluster.server.objects("events")[0]["count"] == 2).await;
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}});
    Call::create(&CONFIG_MAPS, "default", &settings).send(&cluster.client).await.unwrap();
    until("readiness", || is_ready(cluster.pod("p"))).await;
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn batch_pods_complete_and_crashing_pods_restart() {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(1).start();
    cluster.create("good", &[], &json!({"restartPolicy": "Never"})).await;
    cluster.create("bad", &[("run-for", "1s"), ("exit-code", "3")], &json!({"restartPolicy": "Never"})).await;
    cluster.create("loops", &[("crash-after", "1s"), ("crash-times", "2")], &json!({})).await;
    let phase = |name: &str| cluster.pod(name).unwrap()["status"]["phase"].as_str().map(str::to_owned);
    until("success", || phase("good").as_deref() == Some("Succeeded")).await;
    until("failure", || phase("bad").as_deref() == Some("Failed")).await;
    assert_eq!(
        cluster.pod("bad").unwrap()["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        3
    );
    let container = || cluster.pod("loops").unwrap()["status"]["containerStatuses"][0].clone();
    until("the back-off", || container()["state"]["waiting"]["reason"] == "CrashLoopBackOff").await;
    until("two restarts", || container()["restartCount"] == 2 && is_ready(cluster.pod("loops"))).await;
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_node_stops_renewing_its_lease_and_recovers() {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(2).start();
    registered(&cluster, &hollow, 2).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(hollow.fail_node("hollow-0").await);
    assert!(!hollow.fail_node("unknown").await);
    let (dead, alive) = (cluster.renewed("hollow-0"), cluster.renewed("hollow-1"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.renewed("hollow-0"), dead);
    assert_ne!(cluster.renewed("hollow-1"), alive);

    // A node lifecycle controller would write this.
    let unknown = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let call =
        Call::patch(&NODES, &Key::cluster("hollow-0"), keleustes_client::PatchType::Strategic, &unknown);
    call.subresource("status").send(&cluster.client).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(condition(&cluster.node("hollow-0").unwrap(), "Ready"), "Unknown");
    assert!(hollow.recover_node("hollow-0").await);
    until("recovery", || is_ready(cluster.node("hollow-0"))).await;
    assert_ne!(cluster.renewed("hollow-0"), dead);
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_earlier_process_are_adopted_without_a_write() {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(1).start();
    cluster.create("p", &[], &json!({})).await;
    until("readiness", || is_ready(cluster.pod("p"))).await;
    hollow.stop().await;
    let before = cluster.pod("p").unwrap();
    let hollow = cluster.hollow(1).start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(hollow.stats().await.running, 1);
    assert_eq!(cluster.pod("p").unwrap(), before);
    hollow.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failing_writes_and_closed_watches_only_delay() {
    let cluster = TestCluster::new();
    let refuse = |method: http::Method, target: &'static str| {
        let verdict = InjectedFault::status(500, "InternalError", "try again");
        cluster.faults.add(FaultRule::new(verdict).method(method).target(target).times(3));
    };
    refuse(http::Method::POST, "/api/v1/nodes");
    refuse(http::Method::POST, "/leases");
    refuse(http::Method::POST, "/binding");
    refuse(http::Method::PATCH, "/status");
    refuse(http::Method::DELETE, "/pods/");
    let hollow = cluster.hollow(2).start();
    cluster.create("p", &[], &json!({})).await;
    cluster.create("q", &[], &json!({})).await;
    until("readiness", || is_ready(cluster.pod("p")) && is_ready(cluster.pod("q"))).await;
    cluster.server.compact();
    cluster.server.expire_watches();
    let delete =
        |name: &str| Call::delete(&PODS, &Key::namespaced("default", name), &DeleteOptions::default());
    cluster.faults.disable_all();
    delete("p").send(&cluster.client).await.unwrap();
    until("the deletion", || cluster.pod("p").is_none()).await;
    assert!(is_ready(cluster.pod("q")));
    hollow.stop().await;
}

/// All writes of a small cluster, in order.
async fn transcript(seed: u64) -> Vec<String> {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(5).seed(seed).start();
    registered(&cluster, &hollow, 5).await;
    for index in 0..20 {
        cluster.create(&format!("p{index}"), &[], &json!({"restartPolicy": "Never"})).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    hollow.stop().await;
    let writes = cluster.server.requests().into_iter().filter(|request| request.method != http::Method::GET);
    writes.map(|request| format!("{} {} {:?}", request.method, request.target, request.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn same_seed_sends_the_same_requests() {
    let first = transcript(1).await;
    assert!(first.len() > 100, "{}", first.len());
    assert_eq!(first, transcript(1).await);
    assert_ne!(first, transcript(2).await);
}

#[tokio::test(start_paused = true)]
async fn idle_nodes_write_little_more_than_leases() {
    let cluster = TestCluster::new();
    let hollow = cluster.hollow(50).start();
    registered(&cluster, &hollow, 50).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = hollow.stats().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let after = hollow.stats().await;
    let (writes, failures) = (after.writes - before.writes, after.failures - before.failures);
    // Ten renewals per node, and a third of the nodes may report a status.
    assert!((470..=530).contains(&writes) && failures == 0, "{writes} {failures}");
    hollow.stop().await;
}
