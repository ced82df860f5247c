//! ValidatingAdmissionPolicies: their expressions, and the resources they match.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::{Kind, Object, ObjectMeta, Resource, WireMeta};

/// A ValidatingAdmissionPolicy. A cluster has few of them, so they are decoded from JSON only.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ValidatingAdmissionPolicy {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.paramKind`.
    pub param_kind: Option<ParamKind>,
    /// `spec.matchConstraints.resourceRules`.
    pub resource_rules: Box<[ResourceRule]>,
    /// `spec.variables`.
    pub variables: Box<[PolicyVariable]>,
    /// `spec.validations`.
    pub validations: Box<[Validation]>,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
}

/// The kind of a policy's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ParamKind {
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

/// Resources that a policy matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRule {
    /// API groups, or `*`.
    #[serde(deserialize_with = "null_is_empty")]
    pub api_groups: Box<[String]>,
    /// API versions, or `*`.
    #[serde(deserialize_with = "null_is_empty")]
    pub api_versions: Box<[String]>,
    /// Resources and subresources, with `*` for any.
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: Box<[String]>,
}

/// A named expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PolicyVariable {
    /// The name.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// An expression that an object must satisfy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Validation {
    /// The expression.
    pub expression: String,
    /// The expression of the message; empty for none.
    pub message_expression: String,
}

impl Object for ValidatingAdmissionPolicy {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ValidatingAdmissionPolicy {
    const RESOURCE: Resource =
        Resource::built_in("admissionregistration.k8s.io", "ValidatingAdmissionPolicy");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    param_kind: Option<ParamKind>,
    #[serde(deserialize_with = "null_is_default")]
    match_constraints: MatchConstraints,
    #[serde(deserialize_with = "null_is_empty")]
    variables: Box<[PolicyVariable]>,
    #[serde(deserialize_with = "null_is_empty")]
    validations: Box<[Validation]>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MatchConstraints {
    #[serde(deserialize_with = "null_is_empty")]
    resource_rules: Box<[ResourceRule]>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "null_is_default")]
    observed_generation: i64,
}

impl From<Wire> for ValidatingAdmissionPolicy {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            param_kind: wire.spec.param_kind,
            resource_rules: wire.spec.match_constraints.resource_rules,
            variables: wire.spec.variables,
            validations: wire.spec.validations,
            observed_generation: wire.status.observed_generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_decoded() {
        let policy: ValidatingAdmissionPolicy = serde_json::from_str(
            r#"{"metadata": {"name": "a", "generation": 3}, "spec": {
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"]}]},
                "variables": [{"name": "n", "expression": "1"}],
                "validations": [{"expression": "true", "messageExpression": "'m'", "reason": "Invalid"}]},
                "status": {"observedGeneration": 2}}"#,
        )
        .unwrap();
        assert_eq!((policy.meta.generation, policy.observed_generation), (3, 2));
        assert_eq!(policy.param_kind.unwrap().kind, "ConfigMap");
        assert_eq!(*policy.resource_rules[0].resources, ["deployments"]);
        assert_eq!(policy.variables[0].name, "n");
        assert_eq!(policy.validations[0].message_expression, "'m'");
        let bare: ValidatingAdmissionPolicy = serde_json::from_str(
            r#"{"metadata": {"name": "a"}, "spec": {"matchConstraints": null, "variables": null}, "status": null}"#,
        )
        .unwrap();
        assert!(bare.param_kind.is_none() && bare.resource_rules.is_empty() && bare.validations.is_empty());
    }
}
