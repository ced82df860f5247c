//! API discovery. A group version whose discovery fails is reported as failed, never as absent.

mod rest_mapper;
mod wire;

use http::Method;
use keleustes_objects::ApiError;
use kube::Client;

use self::wire::{AggregatedGroup, Groups, PlainResource, PlainResources};
use crate::call::Call;

pub use keleustes_objects::{ApiResource, DiscoveredResources, GroupVersion, Subresource};
pub use rest_mapper::RestMapper;

/// Servers with aggregated discovery return all resources in one document, older ones a list of groups.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Fetches the groups, versions and resources that the API server serves.
///
/// # Errors
/// If both `/api` and `/apis` fail. A group version that fails is listed in `failed` of the result.
pub async fn discover(client: &Client) -> Result<DiscoveredResources, ApiError> {
    let mut discovered = DiscoveredResources::default();
    let (core, named) = futures::join!(root(client, "/api"), root(client, "/apis"));
    if let (Err(failure), Err(_)) = (&core, &named) {
        return Err(failure.clone());
    }
    for (path, groups) in [("/api", core), ("/apis", named)] {
        match groups {
            Ok(Groups::Aggregated(groups)) => {
                groups.into_iter().for_each(|group| add_group(&mut discovered, group));
            }
            Ok(Groups::Plain(versions)) => {
                for version in versions {
                    add_version(&mut discovered, client, &version).await;
                }
            }
            Err(failure) => {
                discovered.failed.insert(path.trim_start_matches('/').to_owned(), failure.to_string());
            }
        }
    }
    Ok(discovered)
}

async fn root(client: &Client, path: &'static str) -> Result<Groups, ApiError> {
    let mut call = Call::raw(Method::GET, path);
    call.accept = ACCEPT;
    call.send_as::<wire::Root>(client).await?.groups()
}

fn add_group(discovered: &mut DiscoveredResources, group: AggregatedGroup) {
    let name = group.metadata.name;
    for (index, version) in group.versions.into_iter().enumerate() {
        let group_version = group_version(&name, &version.version);
        discovered.versions.push(GroupVersion {
            group: name.clone(),
            version: version.version.clone(),
            preferred: index == 0,
        });
        // The aggregator serves a cached document while the extension API server is unavailable.
        if version.freshness == "Stale" {
            let reason = format!("stale GroupVersion discovery: {group_version}");
            discovered.failed.insert(group_version, reason);
            continue;
        }
        let resources = version.resources.into_iter();
        discovered.resources.extend(
            resources.filter_map(|resource| resource.into_api_resource(&name, &version.version, index == 0)),
        );
    }
}

async fn add_version(discovered: &mut DiscoveredResources, client: &Client, version: &wire::PlainVersion) {
    let group_version = group_version(&version.group, &version.version);
    discovered.versions.push(version.into());
    let call = Call::group_version(&version.group, &version.version);
    match call.send_as::<PlainResources>(client).await {
        Ok(list) => add_plain(discovered, version, list.resources),
        Err(failure) => {
            discovered.failed.insert(group_version, failure.to_string());
        }
    }
}

/// Unaggregated discovery lists a subresource as an entry of its own, named `resource/subresource`.
fn add_plain(
    discovered: &mut DiscoveredResources,
    version: &wire::PlainVersion,
    resources: Vec<PlainResource>,
) {
    let (subresource_entries, resource_entries): (Vec<_>, Vec<_>) =
        resources.into_iter().partition(|one| one.name.contains('/'));
    for entry in resource_entries {
        let prefix = format!("{}/", entry.name);
        let subresources = subresource_entries
            .iter()
            .filter_map(|subresource| {
                Some(Subresource {
                    name: subresource.name.strip_prefix(&prefix)?.to_owned(),
                    group: subresource.group.clone(),
                    version: subresource.version.clone(),
                    kind: subresource.kind.clone(),
                    verbs: subresource.verbs.clone(),
                })
            })
            .collect();
        discovered.resources.push(entry.into_api_resource(version, subresources));
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests;
