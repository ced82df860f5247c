//! A shadow beside a leader: it agrees with an equal one, reports one that differs, and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request};
use keleustes_client::{Call, DeleteOptions};
use keleustes_controllers::{ControllersOptions, enabled_controllers};
use keleustes_objects::{Key, Resource};
use keleustes_runtime::loops::{self, RunningController};
use keleustes_runtime::shadow::comparison::DifferenceKind;
use keleustes_runtime::shadow::{Shadow, ShadowReport, WINDOW_DEFAULT};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::util::MapRequest;

use crate::explain::deployment;
use crate::test_cluster::{TestCluster, wait};

const LEADER: &str = "kube-controller-manager/v1.37.1 (linux/amd64)";
const USER: &str = "kubectl/v1.37.1";

const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");
const REPLICA_SETS: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");
const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");

const SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
const SLICES: Resource = Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");

const CONTROLLERS: &[&str] = &["deployment-controller", "replicaset-controller", "endpointslice-controller"];

/// A leader, which may be missing, and a shadow in one cluster.
struct Beside {
    leader: TestCluster,
    cluster: TestCluster,
    shadow: Shadow,
    of_leader: Vec<RunningController>,
    _running: Vec<RunningController>,
    _stop: DropGuard,
}

impl Beside {
    async fn new(has_leader: bool) -> Self {
        Self::with_leader(if has_leader { CONTROLLERS } else { &[] }).await
    }

    /// A leader with these controllers.
    async fn with_leader(controllers: &[&str]) -> Self {
        let leader = TestCluster::new();
        let seed = |object: Value| leader.server.seed(object).unwrap();
        seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
        let mut cluster = TestCluster::on_server(leader.server.clone(), None);
        let shadow = Shadow::new(cluster.context.clocks.clone(), &cluster.metrics, WINDOW_DEFAULT);
        cluster.context.shadow = Some(shadow.clone());
        cluster.context.is_leader = Arc::new(|| false);
        let enabled = |names: &[&str]| {
            enabled_controllers(&ControllersOptions::default(), &|name| names.contains(&name)).unwrap()
        };
        let (mut of_leader, mut running) = (Vec::new(), Vec::new());
        for controller in enabled(controllers) {
            let client = client_of(&leader, LEADER);
            of_leader
                .push(loops::start(controller, &leader.context, client, Arc::new(|_| {})).await.unwrap());
        }
        let inspection = cluster.context.inspection.clone();
        inspection.register(&enabled(CONTROLLERS));
        for controller in enabled(CONTROLLERS) {
            inspection.register(std::slice::from_ref(&controller));
            running.push(cluster.start(controller).await);
        }
        let explainer = cluster.explainer();
        let stop = CancellationToken::new();
        let (observing, stopped) = (shadow.clone(), stop.clone());
        tokio::spawn(async move { observing.run(explainer, stopped).await });
        wait(Duration::from_secs(1)).await;
        Self { leader, cluster, shadow, of_leader, _running: running, _stop: stop.drop_guard() }
    }

    async fn stop_leader(&mut self) {
        for running in self.of_leader.drain(..) {
            running.stop().await;
        }
    }

    fn user(&self) -> kube::Client {
        client_of(&self.leader, USER)
    }

    async fn create(&self, resource: &Resource, object: &Value) {
        Call::create(resource, "shop", object).send(&self.user()).await.unwrap();
    }

    async fn patch(&self, resource: &Resource, name: &str, patch: &Value) {
        let form = keleustes_client::PatchType::Merge;
        let call = Call::patch(resource, &Key::namespaced("shop", name), form, patch);
        call.send(&self.user()).await.unwrap();
    }

    async fn delete(&self, resource: &Resource, name: &str) {
        let call = Call::delete(resource, &Key::namespaced("shop", name), &DeleteOptions::default());
        call.send(&self.user()).await.unwrap();
    }

    async fn names(&self, resource: &Resource) -> Vec<String> {
        let listed = Call::list(resource, "shop").send(&self.user()).await.unwrap();
        let items = listed["items"].as_array().into_iter().flatten();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Lets everything settle, with pods that become ready, and terminating ones that go.
    async fn settle(&self) {
        for _ in 0..10 {
            wait(Duration::from_secs(1)).await;
            let listed = Call::list(&PODS, "shop").send(&self.user()).await.unwrap();
            for mut pod in listed["items"].as_array().cloned().unwrap_or_default() {
                let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
                if pod["metadata"]["deletionTimestamp"].is_string() {
                    self.leader.server.remove("pods", "shop", &name);
                } else if pod["status"]["phase"] != "Running" {
                    pod["apiVersion"] = "v1".into();
                    pod["kind"] = "Pod".into();
                    pod["status"] = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
                    self.leader.server.seed(pod).unwrap();
                }
            }
        }
    }

    fn report(&self) -> ShadowReport {
        self.shadow.report(None)
    }

    /// The writes that neither the leader nor the user nor the test itself sent.
    fn writes_of_the_shadow(&self) -> Vec<String> {
        let requests = self.leader.server.requests().into_iter();
        let others = requests.filter(|request| ![LEADER, USER].contains(&request.user_agent.as_str()));
        others
            .filter(|request| request.method != Method::GET)
            .map(|request| format!("{} {}", request.method, request.target))
            .collect()
    }
}

fn service() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})
}

/// A client with this user agent, and so with this field manager.
fn client_of(cluster: &TestCluster, user_agent: &'static str) -> kube::Client {
    let named = MapRequest::new(cluster.server.clone(), move |mut request: Request<kube::client::Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(user_agent));
        request
    });
    kube::Client::new(named, "default")
}

#[tokio::test(start_paused = true)]
async fn shadow_agrees_with_an_equal_leader_and_writes_nothing() {
    let beside = Beside::new(true).await;
    beside.create(&SERVICES, &service()).await;
    beside.create(&DEPLOYMENTS, &deployment("RollingUpdate", 3)).await;
    beside.settle().await;
    let template = json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}});
    beside.patch(&DEPLOYMENTS, "web", &template).await;
    beside.settle().await;
    beside.settle().await;
    beside.patch(&DEPLOYMENTS, "web", &json!({"spec": {"replicas": 1}})).await;
    beside.settle().await;
    wait(Duration::from_secs(120)).await;
    let report = beside.report();
    assert_eq!(report.differences, [], "{}", report.text());
    assert_eq!(report.known_differences, [], "{}", report.text());
    let agreements = |name: &str| {
        let found = report.controllers.iter().find(|controller| controller.name == name);
        found.map_or(0, |controller| controller.counts.agreements)
    };
    // Two ReplicaSets and their scaling; six pods created, five deleted; the slice; all the statuses.
    for (name, least) in
        [("deployment-controller", 8), ("replicaset-controller", 11), ("endpointslice-controller", 1)]
    {
        assert!(agreements(name) >= least, "{name}:\n{}", report.text());
    }
    assert!(report.controllers.iter().all(|controller| controller.pending == 0), "{}", report.text());
    assert_eq!(beside.names(&PODS).await.len(), 1);
    assert_eq!(beside.writes_of_the_shadow(), [""; 0]);
    let line = format!(
        "keleustes_shadow_agreements_total{{controller=\"deployment-controller\"}} {}",
        agreements("deployment-controller")
    );
    assert!(beside.cluster.metric(&line), "{}", beside.cluster.metrics.text());
}

#[tokio::test(start_paused = true)]
async fn write_that_no_leader_makes_is_only_ours() {
    let beside = Beside::new(false).await;
    beside.create(&DEPLOYMENTS, &deployment("RollingUpdate", 3)).await;
    wait(Duration::from_secs(20)).await;
    assert_eq!(beside.report().differences, [], "the window has not passed");
    assert_eq!(beside.report().controllers[0].pending, 1);
    wait(Duration::from_secs(20)).await;
    let report = beside.report();
    let found = &report.differences[0];
    assert_eq!((report.differences.len(), found.kind), (1, DifferenceKind::OnlyOurs), "{}", report.text());
    assert_eq!((found.controller.as_str(), found.verb.as_str()), ("deployment-controller", "create"));
    assert_eq!((found.resource.as_str(), found.namespace.as_str()), ("replicasets.apps", "shop"));
    assert!(found.reason.starts_with("wanted because"), "{}", found.reason);
    assert!(report.text().contains("only ours: deployment-controller: create replicasets.apps shop/web-"));
    assert_eq!(beside.writes_of_the_shadow(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn leader_that_creates_no_slices_differs() {
    let beside = Beside::with_leader(&["deployment-controller", "replicaset-controller"]).await;
    beside.create(&SERVICES, &service()).await;
    wait(Duration::from_secs(40)).await;
    let report = beside.report();
    let found: Vec<_> = report.differences.iter().map(|found| (found.kind, &*found.resource)).collect();
    let expected = (DifferenceKind::OnlyOurs, "endpointslices.discovery.k8s.io");
    assert_eq!(found, [expected], "{}", report.text());
    assert_eq!(report.known_differences, [], "{}", report.text());
    let line = "keleustes_shadow_differences_total{controller=\"endpointslice-controller\",kind=\"only_ours\",\
                known=\"false\"} 1";
    assert!(beside.cluster.metric(line), "{}", beside.cluster.metrics.text());
}

/// The original does not recreate a slice that it did not write itself, as after a restart.
#[tokio::test(start_paused = true)]
async fn deleted_slice_that_the_leader_does_not_recreate_is_a_known_difference() {
    let mut beside = Beside::new(true).await;
    beside.create(&SERVICES, &service()).await;
    beside.settle().await;
    beside.stop_leader().await;
    let slice = beside.names(&SLICES).await.remove(0);
    beside.delete(&SLICES, &slice).await;
    wait(Duration::from_secs(40)).await;
    let report = beside.report();
    assert_eq!(report.differences, [], "{}", report.text());
    let found: Vec<_> = report.known_differences.iter().map(|found| (found.kind, &*found.resource)).collect();
    assert_eq!(found, [(DifferenceKind::OnlyOurs, "endpointslices.discovery.k8s.io")], "{}", report.text());
    // Now the original would create it.
    beside.patch(&SERVICES, "web", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    wait(Duration::from_secs(40)).await;
    let report = beside.report();
    assert_eq!((report.differences.len(), report.known_differences.len()), (1, 1), "{}", report.text());
    assert_eq!(beside.writes_of_the_shadow(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn write_that_only_the_leader_makes_is_reported() {
    let beside = Beside::new(true).await;
    beside.create(&DEPLOYMENTS, &deployment("RollingUpdate", 1)).await;
    beside.settle().await;
    let sets = Call::list(&REPLICA_SETS, "shop").send(&beside.user()).await.unwrap();
    let set = sets["items"][0]["metadata"]["name"].as_str().unwrap();
    let labelled = json!({"metadata": {"labels": {"example.com/by": "leader"}}});
    let form = keleustes_client::PatchType::Merge;
    let call = Call::patch(&REPLICA_SETS, &Key::namespaced("shop", set), form, &labelled);
    call.send(&client_of(&beside.leader, LEADER)).await.unwrap();
    beside.settle().await;
    let report = beside.report();
    let kinds: Vec<_> = report.differences.iter().map(|found| (found.kind, found.verb.as_str())).collect();
    assert_eq!(kinds, [(DifferenceKind::OnlyLeader, "update")], "{}", report.text());
    let found = &report.differences[0];
    assert_eq!((found.resource.as_str(), found.name.as_str()), ("replicasets.apps", set));
    assert!(found.reason.contains("it wants no write"), "{}", found.reason);
}

#[tokio::test(start_paused = true)]
async fn interference_is_reported_with_what_was_expected() {
    let beside = Beside::new(true).await;
    beside.create(&SERVICES, &service()).await;
    beside.create(&DEPLOYMENTS, &deployment("RollingUpdate", 2)).await;
    beside.settle().await;
    let pod = beside.names(&PODS).await.remove(0);
    beside.delete(&PODS, &pod).await;
    beside.settle().await;
    let set = beside.names(&REPLICA_SETS).await.remove(0);
    beside.patch(&REPLICA_SETS, &set, &json!({"spec": {"replicas": 5}})).await;
    beside.settle().await;
    let slice = beside.names(&SLICES).await.remove(0);
    beside.patch(&SLICES, &slice, &json!({"ports": [{"name": "", "port": 81, "protocol": "TCP"}]})).await;
    beside.settle().await;
    wait(Duration::from_secs(60)).await;

    let report = beside.report();
    let found: Vec<_> = report.foreign_changes.iter().rev().collect();
    let what: Vec<_> =
        found.iter().map(|change| (change.verb, change.name.as_str(), change.by.as_str())).collect();
    let expected =
        [("delete", pod.as_str(), ""), ("update", set.as_str(), ""), ("update", &slice, "kubectl")];
    assert_eq!(what, expected, "{}", report.text());
    for (change, wants) in found.iter().zip([
        "replicaset-controller: create pods shop/web-",
        "deployment-controller: update replicasets.apps shop/web-",
        "endpointslice-controller: update endpointslices.discovery.k8s.io shop/web-",
    ]) {
        assert!(change.expected.iter().any(|line| line.starts_with(wants)), "{wants}:\n{}", report.text());
    }
    assert_eq!(report.differences, [], "the leader repairs it as the shadow would:\n{}", report.text());
    assert_eq!(beside.writes_of_the_shadow(), [""; 0]);
}
