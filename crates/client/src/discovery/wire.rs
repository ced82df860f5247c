//! Wire types of aggregated and unaggregated discovery documents.

use keleustes_objects::{ApiError, Resource};
use serde::{Deserialize, Deserializer};

use super::{ApiResource, GroupVersion, Subresource};
use crate::call::unreadable_response;

/// The content of a discovery root.
pub(super) enum Groups {
    /// Aggregated discovery: groups with all their resources.
    Aggregated(Vec<AggregatedGroup>),
    /// Unaggregated discovery: only the group versions.
    Plain(Vec<PlainVersion>),
}

/// A group version whose resources have not been fetched yet.
#[derive(Debug)]
pub(super) struct PlainVersion {
    pub(super) group: String,
    pub(super) version: String,
    preferred: bool,
}

impl From<&PlainVersion> for GroupVersion {
    fn from(version: &PlainVersion) -> Self {
        let PlainVersion { group, version, preferred } = version;
        Self { group: group.clone(), version: version.clone(), preferred: *preferred }
    }
}

/// The document at `/api` or `/apis`: APIGroupDiscoveryList, APIVersions or APIGroupList.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(super) struct Root {
    kind: String,
    #[serde(deserialize_with = "null_is_default")]
    items: Vec<AggregatedGroup>,
    #[serde(deserialize_with = "null_is_default")]
    groups: Vec<PlainGroup>,
    #[serde(deserialize_with = "null_is_default")]
    versions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainGroup {
    name: String,
    versions: Vec<PlainGroupVersion>,
    #[serde(default)]
    preferred_version: Option<PlainGroupVersion>,
}

#[derive(Deserialize)]
struct PlainGroupVersion {
    version: String,
}

#[derive(Deserialize)]
pub(super) struct PlainResources {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) resources: Vec<PlainResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlainResource {
    pub(super) name: String,
    #[serde(default)]
    singular_name: String,
    #[serde(default)]
    namespaced: bool,
    /// Group and version of `kind`, if they are not those of the resource.
    #[serde(default)]
    pub(super) group: String,
    #[serde(default)]
    pub(super) version: String,
    pub(super) kind: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) verbs: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    short_names: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    categories: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct AggregatedGroup {
    #[serde(default)]
    pub(super) metadata: GroupMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct GroupMeta {
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct AggregatedVersion {
    pub(super) version: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) resources: Vec<AggregatedResource>,
    #[serde(default)]
    pub(super) freshness: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AggregatedResource {
    resource: String,
    response_kind: Option<ResponseKind>,
    scope: String,
    singular_resource: String,
    #[serde(deserialize_with = "null_is_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    categories: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    subresources: Vec<AggregatedSubresource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AggregatedSubresource {
    subresource: String,
    response_kind: Option<ResponseKind>,
    #[serde(deserialize_with = "null_is_default")]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Root {
    pub(super) fn groups(self) -> Result<Groups, ApiError> {
        match self.kind.as_str() {
            "APIGroupDiscoveryList" => Ok(Groups::Aggregated(self.items)),
            "APIVersions" => Ok(Groups::Plain(core_versions(self.versions))),
            "APIGroupList" => {
                Ok(Groups::Plain(self.groups.into_iter().flat_map(PlainGroup::versions).collect()))
            }
            other => Err(unreadable_response(&format!("{other:?} is not a discovery document"))),
        }
    }
}

fn core_versions(versions: Vec<String>) -> Vec<PlainVersion> {
    let versions = versions.into_iter().enumerate();
    versions
        .map(|(index, version)| PlainVersion { group: String::new(), version, preferred: index == 0 })
        .collect()
}

impl PlainGroup {
    fn versions(self) -> impl Iterator<Item = PlainVersion> {
        let first = self.versions.first().map(|version| version.version.clone());
        let preferred = self.preferred_version.map(|version| version.version).or(first);
        self.versions.into_iter().map(move |version| PlainVersion {
            group: self.name.clone(),
            preferred: preferred.as_ref() == Some(&version.version),
            version: version.version,
        })
    }
}

impl PlainResource {
    pub(super) fn into_api_resource(
        self,
        version: &PlainVersion,
        subresources: Vec<Subresource>,
    ) -> ApiResource {
        ApiResource {
            resource: resource(&version.group, &version.version, self.name, self.kind, self.namespaced),
            preferred: version.preferred,
            singular: self.singular_name,
            verbs: self.verbs,
            short_names: self.short_names,
            categories: self.categories,
            subresources,
        }
    }
}

impl AggregatedResource {
    /// `None` if the document has no response kind, as for a broken CustomResourceDefinition.
    pub(super) fn into_api_resource(
        self,
        group: &str,
        version: &str,
        preferred: bool,
    ) -> Option<ApiResource> {
        let kind = self.response_kind?.kind;
        if kind.is_empty() {
            return None;
        }
        let subresources = self.subresources.into_iter().map(|subresource| {
            let ResponseKind { group, version, kind } = subresource.response_kind.unwrap_or_default();
            Subresource { name: subresource.subresource, group, version, kind, verbs: subresource.verbs }
        });
        Some(ApiResource {
            subresources: subresources.collect(),
            resource: resource(group, version, self.resource, kind, self.scope == "Namespaced"),
            preferred,
            singular: self.singular_resource,
            verbs: self.verbs,
            short_names: self.short_names,
            categories: self.categories,
        })
    }
}

fn resource(group: &str, version: &str, plural: String, kind: String, namespaced: bool) -> Resource {
    Resource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        plural: plural.into(),
        kind: kind.into(),
        namespaced,
    }
}
