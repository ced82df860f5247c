//! Keeps an APIService for each group and version that the API server serves, as kube-apiserver does for its own.

use http::Method;
use keleustes_client::Call;
use keleustes_objects::{ErrorReason, Key, Resource};
use kube::Client;
use serde_json::{Value, json};

static API_SERVICES: Resource =
    Resource::cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");

/// Creates the missing ones.
pub(super) async fn register(client: &Client) -> anyhow::Result<()> {
    let groups = Call::raw(Method::GET, "/apis").send(client).await?;
    for service in services(&groups) {
        let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut stored = match Call::create(&API_SERVICES, "", &service).send(client).await {
            Ok(stored) => stored,
            Err(error) if error.reason == ErrorReason::AlreadyExists => continue,
            Err(error) => return Err(error.into()),
        };
        let time = stored["metadata"]["creationTimestamp"].clone();
        stored["status"] = json!({"conditions": [{
            "type": "Available", "status": "True", "reason": "Local", "lastTransitionTime": time,
            "message": "Local APIServices are always available",
        }]});
        let status =
            Call::replace(&API_SERVICES, &Key::cluster(name.as_str()), &stored).subresource("status");
        status.send(client).await?;
    }
    Ok(())
}

/// An APIService for the core group and for each version of the others.
fn services(groups: &Value) -> Vec<Value> {
    let named = groups["groups"].as_array().into_iter().flatten().flat_map(|group| {
        let name = group["name"].as_str().unwrap_or_default();
        let versions = group["versions"].as_array().into_iter().flatten();
        versions.filter_map(move |version| Some((name, version["version"].as_str()?)))
    });
    std::iter::once(("", "v1"))
        .chain(named)
        .map(|(group, version)| {
            let priority = if group.is_empty() { 18_000 } else { 17_000 };
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": format!("{version}.{group}"), "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
                "spec": {"group": group, "version": version, "groupPriorityMinimum": priority, "versionPriority": 15},
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
            {"name": "coordination.k8s.io", "versions": [{"version": "v1"}, {"version": "v1beta1"}]},
        ]});
        let services = services(&groups);
        let names: Vec<_> = services.iter().map(|service| &service["metadata"]["name"]).collect();
        assert_eq!(names, ["v1.", "v1.apps", "v1.coordination.k8s.io", "v1beta1.coordination.k8s.io"]);
    }
}
