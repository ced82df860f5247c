//! Cluster roles: their rules and which other roles they gather.

use serde::{Deserialize, Serialize};

use crate::meta::null_is_empty;
use crate::{InternedStr, Kind, LabelSelector, Object, ObjectMeta, Resource, WireMeta};

/// A cluster role.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ClusterRole {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// What it grants, in order.
    pub rules: Box<[PolicyRule]>,
    /// Which roles it gathers its rules from, if it is an aggregated role.
    pub aggregation: Option<Box<[LabelSelector]>>,
}

/// One rule of a role. Absent and empty lists are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// What may be done.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub verbs: Box<[InternedStr]>,
    /// In which API groups.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub api_groups: Box<[InternedStr]>,
    /// To which resources.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub resources: Box<[InternedStr]>,
    /// To which objects; empty means all.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub resource_names: Box<[InternedStr]>,
    /// On which paths that are no resources.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "<[InternedStr]>::is_empty"
    )]
    pub non_resource_urls: Box<[InternedStr]>,
}

impl Object for ClusterRole {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ClusterRole {
    const RESOURCE: Resource =
        Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_empty")]
    rules: Box<[PolicyRule]>,
    #[serde(default)]
    aggregation_rule: Option<AggregationRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregationRule {
    #[serde(default, deserialize_with = "null_is_empty")]
    cluster_role_selectors: Box<[LabelSelector]>,
}

impl From<Wire> for ClusterRole {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            rules: wire.rules,
            aggregation: wire.aggregation_rule.map(|rule| rule.cluster_role_selectors),
        }
    }
}
