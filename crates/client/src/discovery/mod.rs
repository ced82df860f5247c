//! Learns what the API server serves; what cannot be learnt is told apart from what is not there.

mod mapping;
mod wire;

use std::collections::BTreeMap;

use http::Method;
use keleustes_objects::{Failure, Resource};
use kube::Client;

use self::wire::{AggregatedGroup, Groups, PlainResource, PlainResources};
use crate::writes::Call;

pub use mapping::RestMapping;

/// Servers that know it answer with everything in one document, others with a list of groups.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// What a server serves, as far as it could be learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// All resources of all groups and versions, in the server's order.
    pub resources: Vec<ApiResource>,
    /// Groups and versions (`group/version`, or `version` for the core group) whose resources could not
    /// be learnt, and why. While this is not empty, a resource that is missing above may still exist.
    pub failed: BTreeMap<String, String>,
}

/// One resource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// What URLs and objects are made of.
    pub resource: Resource,
    /// Whether this is the version that the server prefers for the group.
    pub preferred: bool,
    /// The name of one.
    pub singular: String,
    /// What may be done with it.
    pub verbs: Vec<String>,
    /// Other names for it.
    pub short_names: Vec<String>,
    /// Groups of resources that it is listed with.
    pub categories: Vec<String>,
    /// Parts of it with a URL of their own.
    pub subresources: Vec<Subresource>,
}

/// A part of a resource with a URL of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresource {
    /// The name in URLs.
    pub name: String,
    /// The kind of what is read and written there; empty if the server does not say.
    pub kind: String,
    /// What may be done with it.
    pub verbs: Vec<String>,
}

impl ApiResource {
    /// Whether something may be done with it.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|candidate| candidate == verb)
    }
}

/// Asks the server what it serves.
///
/// # Errors
/// If nothing at all could be learnt. Lesser failures are part of what is returned.
pub async fn discover(client: &Client) -> Result<Discovered, Failure> {
    let mut found = Discovered::default();
    let core = root(client, "/api").await;
    let named = root(client, "/apis").await;
    if let (Err(failure), Err(_)) = (&core, &named) {
        return Err(failure.clone());
    }
    for (path, groups) in [("/api", core), ("/apis", named)] {
        match groups {
            Ok(Groups::Aggregated(groups)) => groups.into_iter().for_each(|group| found.add_group(group)),
            Ok(Groups::Plain(versions)) => {
                for version in versions {
                    found.add_version(client, path, &version).await;
                }
            }
            Err(failure) => {
                found.failed.insert(path.trim_start_matches('/').to_owned(), failure.to_string());
            }
        }
    }
    Ok(found)
}

async fn root(client: &Client, path: &str) -> Result<Groups, Failure> {
    let mut call = Call::raw(Method::GET, path);
    call.accept = ACCEPT;
    call.send_as::<wire::Root>(client).await?.groups()
}

impl Discovered {
    fn add_group(&mut self, group: AggregatedGroup) {
        let name = group.metadata.name;
        for (at, version) in group.versions.into_iter().enumerate() {
            let group_version = group_version(&name, &version.version);
            // What an aggregated server said some time ago may have changed since.
            if version.freshness == "Stale" {
                let why = format!("stale GroupVersion discovery: {group_version}");
                self.failed.insert(group_version, why);
                continue;
            }
            let resources = version.resources.into_iter();
            self.resources.extend(
                resources.filter_map(|resource| resource.into_api_resource(&name, &version.version, at == 0)),
            );
        }
    }

    async fn add_version(&mut self, client: &Client, root: &str, version: &wire::PlainVersion) {
        let group_version = group_version(&version.group, &version.version);
        let call = Call::raw(Method::GET, format!("{root}/{group_version}"));
        match call.send_as::<PlainResources>(client).await {
            Ok(list) => self.add_plain(version, list.resources),
            Err(failure) => {
                self.failed.insert(group_version, failure.to_string());
            }
        }
    }

    /// In the plain form subresources are entries of their own, named `resource/subresource`.
    fn add_plain(&mut self, version: &wire::PlainVersion, resources: Vec<PlainResource>) {
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
            self.resources.push(whole.into_api_resource(version, subresources));
        }
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests;
