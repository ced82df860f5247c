//! Explanations of objects that are stuck. Each text is a golden file, and its first five lines name the cause.
//!
//! `UPDATE_GOLDEN=1 cargo test -p keleustes-runtime --test flow explain` writes the files.

mod attachments;
mod delays;
mod journal;
mod situations;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keleustes_client::Call;
use keleustes_controllers::{ControllersOptions, enabled_controllers};
use keleustes_objects::Resource;
use keleustes_runtime::explain::{ExplainRequest, Explainer, Explanation};
use keleustes_runtime::loops::{self, RunningController};
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, wait};

/// A cluster with some controllers, all of which lead.
pub(crate) struct Stuck {
    pub(crate) cluster: TestCluster,
    pub(crate) explainer: Explainer,
    _running: Vec<RunningController>,
}

impl Stuck {
    /// Stores objects, then starts controllers by name.
    pub(crate) async fn new(controllers: &[&str], objects: &[Value]) -> Self {
        Self::on(TestCluster::new(), controllers, objects).await
    }

    pub(crate) async fn on(cluster: TestCluster, controllers: &[&str], objects: &[Value]) -> Self {
        let client = cluster.client();
        Self::with_client(cluster, client, controllers, objects).await
    }

    /// The controllers use this client.
    pub(crate) async fn with_client(
        cluster: TestCluster,
        client: kube::Client,
        controllers: &[&str],
        objects: &[Value],
    ) -> Self {
        cluster
            .server
            .seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
            .unwrap();
        for object in objects {
            if object["kind"] == "Deployment" {
                // Through the API, which sets the defaults: its ReplicaSets are compared with it.
                let deployments = Resource::namespaced("apps", "v1", "deployments", "Deployment");
                Call::create(&deployments, "shop", object).send(&cluster.client()).await.unwrap();
            } else {
                cluster.server.seed(object.clone()).unwrap();
            }
        }
        let chosen =
            enabled_controllers(&ControllersOptions::default(), &|name| controllers.contains(&name)).unwrap();
        assert_eq!(chosen.len(), controllers.len(), "an unknown controller is named");
        let inspection = cluster.context.inspection.clone();
        inspection.register(&chosen);
        inspection.start_leading();
        loops::prepare(&chosen, &cluster.caches);
        let mut running = Vec::new();
        for controller in chosen {
            let started = loops::start(controller, &cluster.context, client.clone(), Arc::new(|_| {}));
            running.push(started.await.unwrap());
        }
        let explainer = cluster.explainer();
        Self { cluster, explainer, _running: running }
    }

    pub(crate) fn put(&self, object: Value) {
        self.cluster.server.seed(object).unwrap();
    }

    /// Changes a stored object.
    pub(crate) fn change(&self, plural: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = Value::clone(&self.cluster.server.object(plural, "shop", name).unwrap());
        change(&mut object);
        self.put(object);
    }

    pub(crate) async fn explain(&self, resource: &str, name: &str) -> Explanation {
        let request = ExplainRequest {
            resource: resource.to_owned(),
            name: name.to_owned(),
            namespace: "shop".to_owned(),
        };
        self.explainer.explain(&request).await.unwrap()
    }

    /// Waits, explains an object, compares the text with a golden file, and looks for the cause in the first five lines.
    pub(crate) async fn names_cause(&self, golden: &str, object: &str, cause: &str) {
        wait(Duration::from_secs(5)).await;
        let (resource, name) = object.split_once('/').unwrap();
        let text = self.explain(resource, name).await.text();
        let first: String = text.lines().take(5).collect::<Vec<_>>().join("\n");
        assert!(first.contains(cause), "{golden}: the first five lines do not name {cause:?}:\n{text}");
        compare_with_golden(golden, &text);
    }
}

fn compare_with_golden(name: &str, text: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flow/explain/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name}: UPDATE_GOLDEN=1 writes the golden file");
}

/// What all pods of these tests are made from.
pub(crate) fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "any:1"}],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30}})
}

pub(crate) fn deployment(strategy: &str, replicas: i32) -> Value {
    let strategy = match strategy {
        "Recreate" => json!({"type": "Recreate"}),
        _ => json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
    };
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(),
            "strategy": strategy, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10}})
}

/// A pod without an owner.
pub(crate) fn pod(name: &str, status: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": name, "labels": {"app": "web"},
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "image": "any:1"}]}, "status": status})
}
