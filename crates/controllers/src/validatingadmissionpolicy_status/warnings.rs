//! The warnings of a policy: what the type checker says about its expressions.

use keleustes_cel::kubernetes::{ObjectType, PolicyEnvironment};
use keleustes_objects::{ParamKind, ValidatingAdmissionPolicy};
use serde::{Deserialize, Serialize};

use super::kinds::GroupVersionKind;

/// A warning in `status.typeChecking`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpressionWarning {
    /// Which field of the policy has the expression.
    pub field_ref: String,
    /// The errors, by kind.
    pub warning: String,
}

/// The type of a kind's objects; `None` if the schema gives none, so that anything goes.
pub type KindType = Option<ObjectType>;

/// The kind of a policy's params; `None` if there is none, or its apiVersion is malformed.
#[must_use]
pub fn params_kind(param_kind: Option<&ParamKind>) -> Option<GroupVersionKind> {
    let ParamKind { api_version, kind } = param_kind?;
    let (group, version) = match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [version] => ("", *version),
        [group, version] => (*group, *version),
        _ => return None,
    };
    let found = GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind: kind.clone() };
    let is_empty = found.group.is_empty() && found.version.is_empty() && found.kind.is_empty();
    (!is_empty).then_some(found)
}

/// Checks the expressions of a policy for each kind, in order.
///
/// `params` is the type of the params: `None` without a kind of params, `Some(None)` if its type is not known.
#[must_use]
pub fn warnings(
    policy: &ValidatingAdmissionPolicy,
    kinds: &[(GroupVersionKind, KindType)],
    params: Option<Option<&ObjectType>>,
) -> Vec<ExpressionWarning> {
    let environments: Vec<(&GroupVersionKind, PolicyEnvironment)> =
        kinds.iter().map(|(kind, object)| (kind, environment(policy, object.as_ref(), params))).collect();
    let check = |field_ref: String, expression: &str| {
        let blocks: Vec<String> = environments
            .iter()
            .filter_map(|(kind, environment)| Some(block(kind, &environment.errors_of(expression)?)))
            .collect();
        (!blocks.is_empty()).then(|| ExpressionWarning { field_ref, warning: blocks.join("\n") })
    };
    let mut found = Vec::new();
    for (index, validation) in policy.validations.iter().enumerate() {
        let field = |name: &str| format!("spec.validations[{index}].{name}");
        found.extend(check(field("expression"), &validation.expression));
        if !validation.message_expression.is_empty() {
            found.extend(check(field("messageExpression"), &validation.message_expression));
        }
    }
    found
}

fn environment(
    policy: &ValidatingAdmissionPolicy,
    object: Option<&ObjectType>,
    params: Option<Option<&ObjectType>>,
) -> PolicyEnvironment {
    let mut environment = PolicyEnvironment::new(object);
    if let Some(params) = params {
        environment = environment.with_params(params);
    }
    for variable in &policy.variables {
        environment.add_policy_variable(&variable.name, &variable.expression);
    }
    environment
}

fn block(GroupVersionKind { group, version, kind }: &GroupVersionKind, errors: &str) -> String {
    format!("{group}/{version}, Kind={kind}: {errors}\n")
}
