//! PodDisruptionBudgets.

use std::collections::BTreeMap;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::spec_status_kind;
use crate::meta::null_is_default;
use crate::protobuf::FullMessage;
use crate::{
    ArcStr, Condition, IntOrString, InvalidSelector, Kind, LabelSelector, Labels, Matcher, Resource, Time,
    UnknownFields,
};

spec_status_kind! {
    /// A PodDisruptionBudget.
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
    Resource::built_in("policy", "PodDisruptionBudget"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&PodDisruptionBudget::RESOURCE, ""));

/// The spec of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// How many pods must stay healthy.
    pub min_available: Option<IntOrString>,
    /// How many pods may be unhealthy.
    pub max_unavailable: Option<IntOrString>,
    /// The pods that the budget protects.
    pub selector: BudgetSelector,
}

/// The selector of a budget, validated once, because every change of a pod is matched with all budgets of its
/// namespace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Option<LabelSelector>")]
pub struct BudgetSelector {
    selector: Option<LabelSelector>,
    matcher: Result<Option<Matcher>, InvalidSelector>,
}

impl Default for BudgetSelector {
    fn default() -> Self {
        None.into()
    }
}

impl From<Option<LabelSelector>> for BudgetSelector {
    fn from(selector: Option<LabelSelector>) -> Self {
        let matcher = selector.as_ref().map(LabelSelector::matcher).transpose();
        Self { selector, matcher }
    }
}

impl BudgetSelector {
    /// The selector; `None` if unset.
    #[must_use]
    pub fn selector(&self) -> Option<&LabelSelector> {
        self.selector.as_ref()
    }

    /// Whether it selects pods with these labels. A selector that is unset selects none, an empty one all.
    ///
    /// # Errors
    /// If the selector is invalid.
    pub fn selects(&self, labels: &Labels) -> Result<bool, &InvalidSelector> {
        let matcher = self.matcher.as_ref()?;
        Ok(matcher.as_ref().is_some_and(|matcher| matcher.matches(labels)))
    }
}

/// The status of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// The generation that the status is based on.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When the API server granted the eviction of a pod, by the pod's name. The server writes a zero time as `null`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub disrupted_pods: BTreeMap<ArcStr, Option<Time>>,
    /// How many evictions are allowed now.
    #[serde(deserialize_with = "null_is_default")]
    pub disruptions_allowed: i32,
    /// How many pods are healthy.
    #[serde(deserialize_with = "null_is_default")]
    pub current_healthy: i32,
    /// How many pods must be healthy.
    #[serde(deserialize_with = "null_is_default")]
    pub desired_healthy: i32,
    /// How many pods there should be.
    #[serde(deserialize_with = "null_is_default")]
    pub expected_pods: i32,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature.
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn a_budget_is_decoded_and_its_status_written_back() {
        let status = json!({
            "observedGeneration": 3, "disruptedPods": {"web-1": "2026-01-01T00:00:00Z", "web-2": null},
            "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
            "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
                            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3}],
            "comes": "later",
        });
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "a"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}},
            "status": status,
        }))
        .unwrap();
        assert_eq!(budget.spec.min_available, Some(IntOrString::from("50%")));
        assert_eq!(budget.spec.max_unavailable, None);
        assert_eq!(budget.spec.selector.selects(&labels(&[("app", "web")])), Ok(true));
        assert_eq!(budget.spec.selector.selects(&labels(&[])), Ok(false));
        assert_eq!(serde_json::to_value(&budget.status).unwrap(), status);
    }

    #[test]
    fn selectors_that_are_unset_empty_or_invalid_differ() {
        let of = |spec: serde_json::Value| {
            let budget = json!({"metadata": {"name": "b"}, "spec": spec, "status": {"disruptedPods": null}});
            serde_json::from_value::<PodDisruptionBudget>(budget).unwrap().spec.selector
        };
        let bare = labels(&[]);
        assert_eq!(of(json!({})).selects(&bare), Ok(false));
        assert_eq!(of(json!({"selector": null})).selects(&bare), Ok(false));
        assert_eq!(of(json!({"selector": {}})).selects(&bare), Ok(true));
        assert!(of(json!({"selector": {"matchLabels": {"a b": "c"}}})).selects(&bare).is_err());
    }
}
