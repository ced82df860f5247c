//! Users who never rest: they scale, roll, delete and create until the time is over.

use std::time::{Duration, Instant};

use fastrand::Rng;
use keleustes_client::{Call, DeleteOptions, PatchType, PropagationPolicy};
use keleustes_objects::{Key, Resource};
use kube::Client;
use serde_json::{Value, json};

use crate::requests::{NAMESPACES, with_type};

const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
const SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
const QUOTAS: Resource = Resource::namespaced("", "v1", "resourcequotas", "ResourceQuota");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");
const STATEFUL_SETS: Resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");
const DAEMON_SETS: Resource = Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet");
const JOBS: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");
const BUDGETS: Resource = Resource::namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");

/// Between two actions.
const PAUSE: Duration = Duration::from_millis(300);
/// A request that takes longer is given up; the next action follows.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pods of a namespace, on average: of its Deployment, its StatefulSet and its Jobs.
const PODS_A_NAMESPACE: usize = 25;
const REPLICAS: usize = 20;
const STATEFUL_REPLICAS: usize = 3;

/// The users of one cluster.
pub(super) struct Users {
    client: Client,
    rng: Rng,
    namespaces: usize,
    /// Jobs and short-lived namespaces so far, for their names.
    created: usize,
    /// Actions and requests that failed, most of them while the API server was away.
    pub(super) actions: usize,
    pub(super) failed: usize,
}

impl Users {
    /// Users who keep about this many pods.
    pub(super) fn new(client: Client, pods: usize, seed: u64) -> Self {
        let namespaces = (pods / PODS_A_NAMESPACE).max(1);
        Self { client, rng: Rng::with_seed(seed), namespaces, created: 0, actions: 0, failed: 0 }
    }

    /// Creates the namespaces and what stays in them. What exists already is left alone.
    pub(super) async fn create_all(&mut self) {
        for number in 0..self.namespaces {
            let namespace = format!("soak-{number}");
            self.create(&NAMESPACES, "", json!({"metadata": {"name": namespace}})).await;
            for (resource, object) in contents() {
                self.create(&resource, &namespace, object).await;
            }
        }
        self.create(&DAEMON_SETS, "soak-0", workload("agent", None)).await;
    }

    /// Acts until then.
    pub(super) async fn act_until(&mut self, end: Instant) {
        while Instant::now() < end {
            self.act().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn act(&mut self) {
        let namespace = format!("soak-{}", self.rng.usize(..self.namespaces));
        let web = Key::namespaced(&*namespace, "web");
        match self.rng.u8(..12) {
            0..3 => {
                let replicas = REPLICAS / 2 + self.rng.usize(..REPLICAS);
                self.scale(&DEPLOYMENTS, &web, replicas).await;
            }
            3 => {
                let stateful = Key::namespaced(&*namespace, "db");
                let replicas = 1 + self.rng.usize(..STATEFUL_REPLICAS * 2);
                self.scale(&STATEFUL_SETS, &stateful, replicas).await;
            }
            4..6 => self.roll(&DEPLOYMENTS, &web).await,
            6..8 => self.delete_some_pod(&namespace).await,
            8..10 => {
                self.created += 1;
                let name = format!("job-{}", self.created);
                self.create(&JOBS, &namespace, job(&name)).await;
            }
            10 => {
                // The garbage collector deletes its ReplicaSets and pods, and what comes back has a new UID.
                self.delete(&DEPLOYMENTS, &web).await;
                self.create(&DEPLOYMENTS, &namespace, workload("web", Some(REPLICAS))).await;
            }
            _ => self.pass_through_namespace().await,
        }
    }

    /// A namespace that is filled and deleted at once.
    async fn pass_through_namespace(&mut self) {
        self.created += 1;
        let name = format!("brief-{}", self.created);
        self.create(&NAMESPACES, "", json!({"metadata": {"name": name}})).await;
        self.create(&CONFIG_MAPS, &name, json!({"metadata": {"name": "a"}, "data": {"a": "b"}})).await;
        self.create(&DEPLOYMENTS, &name, workload("web", Some(2))).await;
        self.delete(&NAMESPACES, &Key::cluster(&*name)).await;
    }

    async fn delete_some_pod(&mut self, namespace: &str) {
        let list = Call::list(&PODS, namespace).from_cache().query("limit", "50");
        let Ok(Ok(list)) = tokio::time::timeout(TIMEOUT, list.send(&self.client)).await else { return };
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(name) = self.rng.choice(items).and_then(|pod| pod["metadata"]["name"].as_str()) else {
            return;
        };
        let key = Key::namespaced(namespace, name);
        self.delete(&PODS, &key).await;
    }

    async fn scale(&mut self, resource: &Resource, key: &Key, replicas: usize) {
        self.patch(resource, key, &json!({"spec": {"replicas": replicas}})).await;
    }

    async fn roll(&mut self, resource: &Resource, key: &Key) {
        let version = self.rng.u32(..).to_string();
        let change = json!({"spec": {"template": {"metadata": {"annotations": {"version": version}}}}});
        self.patch(resource, key, &change).await;
    }

    async fn patch(&mut self, resource: &Resource, key: &Key, change: &Value) {
        self.send(Call::patch(resource, key, PatchType::Merge, change)).await;
    }

    async fn create(&mut self, resource: &Resource, namespace: &str, object: Value) {
        self.send(Call::create(resource, namespace, &with_type(resource, object))).await;
    }

    async fn delete(&mut self, resource: &Resource, key: &Key) {
        let policy = Some(PropagationPolicy::Background);
        let options = DeleteOptions { propagation_policy: policy, ..DeleteOptions::default() };
        self.send(Call::delete(resource, key, &options)).await;
    }

    async fn send(&mut self, call: Call) {
        self.actions += 1;
        let sent = tokio::time::timeout(TIMEOUT, call.send_discarding_body(&self.client)).await;
        self.failed += usize::from(!matches!(sent, Ok(Ok(()))));
    }
}

/// What every namespace has all the time.
fn contents() -> [(Resource, Value); 5] {
    let hard = json!({"pods": "200", "services": "5", "count/configmaps": "20"});
    let selector = json!({"matchLabels": {"app": "web"}});
    [
        (QUOTAS, json!({"metadata": {"name": "quota"}, "spec": {"hard": hard}})),
        (DEPLOYMENTS, workload("web", Some(REPLICAS))),
        (STATEFUL_SETS, workload("db", Some(STATEFUL_REPLICAS))),
        (
            SERVICES,
            json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        ),
        (BUDGETS, json!({"metadata": {"name": "web"}, "spec": {"selector": selector, "minAvailable": 1}})),
    ]
}

fn workload(name: &str, replicas: Option<usize>) -> Value {
    let labels = json!({"app": name});
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    if name == "db" {
        spec["serviceName"] = json!("db");
        spec["podManagementPolicy"] = json!("Parallel");
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A Job that is deleted a minute after it has finished.
fn job(name: &str) -> Value {
    let mut spec = pod_spec();
    spec["restartPolicy"] = json!("Never");
    json!({"metadata": {"name": name}, "spec": {"completions": 3, "parallelism": 2,
        "ttlSecondsAfterFinished": 60, "template": {"spec": spec}}})
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "main", "image": "images.example.com/main:1"}],
        "terminationGracePeriodSeconds": 1})
}
