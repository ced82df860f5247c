//! Learns what the API server serves; what cannot be learnt is told apart from what is not there.

mod mapping;
mod wire;

use http::Method;
use keleustes_objects::ApiError;
use kube::Client;

use self::wire::{AggregatedGroup, Groups, PlainResource, PlainResources};
use crate::writes::Call;

pub use keleustes_objects::{ApiResource, DiscoveredResources, Subresource};
pub use mapping::RestMapper;

/// Servers that know it answer with everything in one document, others with a list of groups.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Asks the server what it serves.
///
/// # Errors
/// If nothing at all could be learnt. Lesser failures are part of what is returned.
pub async fn discover(client: &Client) -> Result<DiscoveredResources, ApiError> {
    let mut found = DiscoveredResources::default();
    let (core, named) = futures::join!(root(client, "/api"), root(client, "/apis"));
    if let (Err(failure), Err(_)) = (&core, &named) {
        return Err(failure.clone());
    }
    for (path, groups) in [("/api", core), ("/apis", named)] {
        match groups {
            Ok(Groups::Aggregated(groups)) => {
                groups.into_iter().for_each(|group| add_group(&mut found, group));
            }
            Ok(Groups::Plain(versions)) => {
                for version in versions {
                    add_version(&mut found, client, path, &version).await;
                }
            }
            Err(failure) => {
                found.failed.insert(path.trim_start_matches('/').to_owned(), failure.to_string());
            }
        }
    }
    Ok(found)
}

async fn root(client: &Client, path: &str) -> Result<Groups, ApiError> {
    let mut call = Call::raw(Method::GET, path);
    call.accept = ACCEPT;
    call.send_as::<wire::Root>(client).await?.groups()
}

fn add_group(found: &mut DiscoveredResources, group: AggregatedGroup) {
    let name = group.metadata.name;
    for (at, version) in group.versions.into_iter().enumerate() {
        let group_version = group_version(&name, &version.version);
        // What an aggregated server said some time ago may have changed since.
        if version.freshness == "Stale" {
            let why = format!("stale GroupVersion discovery: {group_version}");
            found.failed.insert(group_version, why);
            continue;
        }
        let resources = version.resources.into_iter();
        found.resources.extend(
            resources.filter_map(|resource| resource.into_api_resource(&name, &version.version, at == 0)),
        );
    }
}

async fn add_version(
    found: &mut DiscoveredResources,
    client: &Client,
    root: &str,
    version: &wire::PlainVersion,
) {
    let group_version = group_version(&version.group, &version.version);
    let call = Call::raw(Method::GET, format!("{root}/{group_version}"));
    match call.send_as::<PlainResources>(client).await {
        Ok(list) => add_plain(found, version, list.resources),
        Err(failure) => {
            found.failed.insert(group_version, failure.to_string());
        }
    }
}

/// In the plain form subresources are entries of their own, named `resource/subresource`.
fn add_plain(found: &mut DiscoveredResources, version: &wire::PlainVersion, resources: Vec<PlainResource>) {
    let (parts, wholes): (Vec<_>, Vec<_>) = resources.into_iter().partition(|one| one.name.contains('/'));
    for whole in wholes {
        let prefix = format!("{}/", whole.name);
        let subresources = parts
            .iter()
            .filter_map(|part| {
                Some(Subresource {
                    name: part.name.strip_prefix(&prefix)?.to_owned(),
                    kind: part.kind.clone(),
                    verbs: part.verbs.clone(),
                })
            })
            .collect();
        found.resources.push(whole.into_api_resource(version, subresources));
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests;
