//! ClusterRoles: rules and aggregation.

use serde::{Deserialize, Serialize};

use crate::meta::null_is_empty;
use crate::{InternedStr, Kind, LabelSelector, Object, ObjectMeta, Resource, WireMeta};

/// A ClusterRole.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ClusterRole {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The rules, in order.
    pub rules: Box<[PolicyRule]>,
    /// The selectors of an aggregated ClusterRole; `None` if it is not aggregated.
    pub aggregation: Option<Box<[LabelSelector]>>,
}

/// A rule. Absent and empty lists are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// `verbs`.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub verbs: Box<[InternedStr]>,
    /// `apiGroups`.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub api_groups: Box<[InternedStr]>,
    /// `resources`.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub resources: Box<[InternedStr]>,
    /// `resourceNames`; empty means all.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub resource_names: Box<[InternedStr]>,
    /// `nonResourceURLs`.
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
    const RESOURCE: Resource = Resource::built_in("rbac.authorization.k8s.io", "ClusterRole");
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
