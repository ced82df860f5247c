//! Keeps an APIService for each group and version that the API server serves, as kube-apiserver does for its own.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use keleustes_client::{Call, DeleteOptions};
use keleustes_objects::{ErrorReason, Key, Resource};
use kube::Client;
use serde_json::{Value, json};

static API_SERVICES: Resource =
    Resource::cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");
static DEFINITIONS: Resource =
    Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition");
/// Says that the API server created an APIService, and not a user.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// How soon a new CustomResourceDefinition has its APIService.
const INTERVAL: Duration = Duration::from_secs(1);

/// Follows the CustomResourceDefinitions until it is aborted.
pub(super) async fn keep(client: Client) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Err(error) = register(&client).await {
            tracing::debug!(%error, "APIServices are not up to date");
        }
    }
}

/// Creates the missing ones, and deletes those of groups that are no longer served.
pub(super) async fn register(client: &Client) -> anyhow::Result<()> {
    let groups = Call::raw(Method::GET, "/apis").send(client).await?;
    let definitions = Call::list(&DEFINITIONS, "").send(client).await?;
    let listed = Call::list(&API_SERVICES, "").send(client).await?;
    let listed: Vec<&Value> = listed["items"].as_array().into_iter().flatten().collect();
    let known: BTreeSet<&str> = listed.iter().map(|service| name(service)).collect();
    let wanted = services(&groups, &definitions);
    for service in wanted.iter().filter(|service| !known.contains(name(service))) {
        create(client, service).await?;
    }
    let wanted: BTreeSet<&str> = wanted.iter().map(name).collect();
    let is_stale = |service: &&&Value| {
        service["metadata"]["labels"].get(AUTOMANAGED).is_some() && !wanted.contains(name(service))
    };
    for service in listed.iter().filter(is_stale) {
        Call::delete(&API_SERVICES, &Key::cluster(name(service)), &DeleteOptions::default())
            .send(client)
            .await?;
    }
    Ok(())
}

fn name(service: &Value) -> &str {
    service["metadata"]["name"].as_str().unwrap_or_default()
}

async fn create(client: &Client, service: &Value) -> anyhow::Result<()> {
    let mut stored = match Call::create(&API_SERVICES, "", service).send(client).await {
        Ok(stored) => stored,
        Err(error) if error.reason == ErrorReason::AlreadyExists => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let time = stored["metadata"]["creationTimestamp"].clone();
    stored["status"] = json!({"conditions": [{
        "type": "Available", "status": "True", "reason": "Local", "lastTransitionTime": time,
        "message": "Local APIServices are always available",
    }]});
    let status = Call::replace(&API_SERVICES, &Key::cluster(name(service)), &stored).subresource("status");
    status.send(client).await?;
    Ok(())
}

/// An APIService for the core group and for each version of the others.
fn services(groups: &Value, definitions: &Value) -> Vec<Value> {
    let definitions = definitions["items"].as_array().into_iter().flatten();
    let custom: BTreeSet<&str> =
        definitions.filter_map(|definition| definition["spec"]["group"].as_str()).collect();
    let named = groups["groups"].as_array().into_iter().flatten().flat_map(|group| {
        let name = group["name"].as_str().unwrap_or_default();
        // As kube-apiserver, which has none for the group of APIServices itself.
        let versions = group["versions"].as_array().filter(|_| name != API_SERVICES.group);
        let versions = versions.into_iter().flatten();
        versions.filter_map(move |version| Some((name, version["version"].as_str()?)))
    });
    std::iter::once(("", "v1"))
        .chain(named)
        .map(|(group, version)| {
            let (managed, priority, version_priority) = match group {
                "" => ("onstart", 18_000, 1),
                group if custom.contains(group) => ("true", 1_000, 100),
                _ => ("onstart", 17_000, 15),
            };
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": format!("{version}.{group}"), "labels": {AUTOMANAGED: managed}},
                "spec": {"group": group, "version": version, "groupPriorityMinimum": priority, "versionPriority": version_priority},
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_and_version_has_an_api_service() {
        let groups = json!({"groups": [
            {"name": "apps", "versions": [{"version": "v1"}]},
            {"name": "apiregistration.k8s.io", "versions": [{"version": "v1"}]},
            {"name": "coordination.k8s.io", "versions": [{"version": "v1"}, {"version": "v1beta1"}]},
            {"name": "sea.example", "versions": [{"version": "v1"}]},
        ]});
        let definitions = json!({"items": [{"spec": {"group": "sea.example"}}]});
        let services = services(&groups, &definitions);
        let names: Vec<_> = services.iter().map(|service| &service["metadata"]["name"]).collect();
        assert_eq!(
            names,
            ["v1.", "v1.apps", "v1.coordination.k8s.io", "v1beta1.coordination.k8s.io", "v1.sea.example"]
        );
        assert_eq!(services[4]["metadata"]["labels"][AUTOMANAGED], "true");
    }
}
