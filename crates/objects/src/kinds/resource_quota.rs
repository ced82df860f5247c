//! ResourceQuotas.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::spec_status_kind;
use crate::meta::null_is_empty;
use crate::protobuf::FullMessage;
use crate::{InternedStr, Kind, Resource, ResourceList};

spec_status_kind! {
    /// A ResourceQuota.
    ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus,
    Resource::built_in("", "ResourceQuota"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&ResourceQuota::RESOURCE, ""));

/// The spec of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuotaSpec {
    /// The limits by resource name.
    pub hard: Option<ResourceList>,
    /// The scopes, all of which an object must be in to be counted.
    #[serde(deserialize_with = "null_is_empty")]
    pub scopes: Box<[InternedStr]>,
    /// Further scopes with operators.
    pub scope_selector: Option<ScopeSelector>,
}

/// A selector of scopes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScopeSelector {
    /// The requirements, all of which must match.
    #[serde(deserialize_with = "null_is_empty")]
    pub match_expressions: Box<[ScopeRequirement]>,
}

/// A requirement on a scope, not yet validated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScopeRequirement {
    /// The scope.
    pub scope_name: InternedStr,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: InternedStr,
    /// The values of `In` and `NotIn`.
    #[serde(deserialize_with = "null_is_empty")]
    pub values: Box<[InternedStr]>,
}

/// The status of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ResourceQuotaStatus {
    /// The enforced limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard: Option<ResourceList>,
    /// The usage in the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<ResourceList>,
}

impl ResourceQuotaSpec {
    /// All scopes as requirements: an entry of `scopes` is one with the operator `Exists`.
    pub fn scope_requirements(&self) -> impl Iterator<Item = ScopeRequirement> {
        let exists = |scope: &InternedStr| ScopeRequirement {
            scope_name: scope.clone(),
            operator: "Exists".into(),
            values: Box::default(),
        };
        let selected = self.scope_selector.iter().flat_map(|selector| &selector.match_expressions);
        self.scopes.iter().map(exists).chain(selected.cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_quota_is_decoded() {
        let quota: ResourceQuota = serde_json::from_str(
            r#"{"metadata":{"name":"q","namespace":"a"},
                "spec":{"hard":{"pods":"2","memory":"1Gi"},"scopes":["BestEffort"],
                        "scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["x"]}]}},
                "status":{"hard":{"pods":"2"},"used":{}}}"#,
        )
        .unwrap();
        assert_eq!(quota.spec.hard.as_ref().unwrap().to_string(), "memory=1Gi,pods=2");
        let scopes: Vec<_> = quota.spec.scope_requirements().collect();
        assert_eq!((scopes[0].operator.as_str(), scopes[1].scope_name.as_str()), ("Exists", "PriorityClass"));
        assert_eq!(quota.status.used, Some(ResourceList::default()));
        let bare: ResourceQuota = serde_json::from_str(
            r#"{"metadata":{"name":"q"},"spec":{"hard":null,"scopes":null,"scopeSelector":{"matchExpressions":null}}}"#,
        )
        .unwrap();
        assert_eq!((bare.spec.hard.as_ref(), bare.status.hard.as_ref()), (None, None));
        assert_eq!(bare.spec.scope_requirements().count(), 0);
    }
}
