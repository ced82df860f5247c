//! The objects of the loads, with sizes as in real clusters.

use keleustes_client::{Call, DeleteOptions, PatchType, PropagationPolicy};
use keleustes_objects::{Key, Resource};
use kube::Client;
use serde_json::{Value, json};

use crate::requests::{NAMESPACES, items, send_all, with_type};

pub(super) const NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
pub(super) const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
pub(super) const SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
pub(super) const ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount");
pub(super) const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
pub(super) const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
pub(super) const EVENTS: Resource = Resource::namespaced("", "v1", "events", "Event");
pub(super) const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");
pub(super) const JOBS: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");

/// Creates objects concurrently. The namespace is empty for cluster-scoped objects.
pub(super) async fn create_all(
    client: &Client,
    resource: &Resource,
    objects: impl IntoIterator<Item = (String, Value)>,
) -> anyhow::Result<()> {
    let objects = objects.into_iter();
    let calls =
        objects.map(|(namespace, object)| Call::create(resource, &namespace, &with_type(resource, object)));
    send_all(client, &format!("creating {resource}"), calls).await
}

/// Patches objects concurrently.
pub(super) async fn patch_all(
    client: &Client,
    resource: &Resource,
    keys: &[Key],
    change: &Value,
) -> anyhow::Result<()> {
    let calls = keys.iter().map(|key| Call::patch(resource, key, PatchType::Merge, change));
    send_all(client, &format!("changing {resource}"), calls).await
}

/// Deletes objects concurrently, with background propagation.
pub(super) async fn delete_all(
    client: &Client,
    resource: &Resource,
    keys: impl IntoIterator<Item = Key>,
) -> anyhow::Result<()> {
    let deletion =
        DeleteOptions { propagation_policy: Some(PropagationPolicy::Background), ..DeleteOptions::default() };
    let calls = keys.into_iter().map(|key| Call::delete(resource, &key, &deletion));
    send_all(client, &format!("deleting {resource}"), calls).await
}

/// The objects of a kind, in one namespace or in all.
pub(super) async fn list(
    client: &Client,
    resource: &Resource,
    namespace: &str,
) -> anyhow::Result<Vec<Value>> {
    items(client, &Call::list(resource, namespace).from_cache()).await
}

/// Creates namespaces and waits for their default ServiceAccounts, without which pods are rejected.
pub(super) async fn create_namespaces(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let bodies = names.iter().map(|name| (String::new(), json!({"metadata": {"name": name}})));
    create_all(client, &NAMESPACES, bodies).await?;
    super::BenchCluster::until("ServiceAccounts of the namespaces", async || {
        let accounts = list(client, &ACCOUNTS, "").await?;
        Ok(names.iter().all(|name| accounts.iter().any(|account| account["metadata"]["namespace"] == **name)))
    })
    .await
}

/// A Deployment with a typical chart's template: two containers, twenty variables, probes, volumes.
pub(super) fn deployment(name: &str, replicas: usize) -> Value {
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm"});
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels, "annotations": {"checksum/config": "0".repeat(64)}},
                         "spec": pod_spec()},
        },
    })
}

/// A Service for the pods of a Deployment.
pub(super) fn service(name: &str) -> Value {
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    json!({"metadata": {"name": name},
           "spec": {"selector": {"app.kubernetes.io/name": name}, "ports": ports}})
}

/// A Job of one pod.
pub(super) fn job(name: &str) -> Value {
    let mut spec = pod_spec();
    spec["restartPolicy"] = json!("Never");
    json!({"metadata": {"name": name}, "spec": {"template": {"spec": spec}}})
}

fn pod_spec() -> Value {
    let variables: Vec<_> = (0..20)
        .map(|n| json!({"name": format!("SETTING_{n:02}"), "value": format!("the value of setting {n}")}))
        .collect();
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 10});
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("images.example.com/team/{name}:1.2.3"), "env": variables,
            "ports": [{"containerPort": 8080, "name": "http"}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
            "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "cache", "mountPath": "/cache"}],
        })
    };
    json!({
        "containers": [container("app"), container("proxy")],
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "config", "configMap": {"name": "config", "optional": true}},
                    {"name": "cache", "emptyDir": {}}],
    })
}
