//! The scopes of a quota: which pods and PersistentVolumeClaims it counts.

use super::PodUsageOptions;
use crate::selector::{Expression, Matcher};
use crate::{
    InternedStr, InvalidSelector, Labels, PersistentVolumeClaim, Pod, QosClass, Quantity, ResourceList,
    ScopeRequirement,
};

/// Whether a pod is in a scope.
///
/// # Errors
/// If the requirement has an unknown operator or a value that is no label value.
pub fn pod_matches_scope(
    pod: &Pod,
    scope: &ScopeRequirement,
    options: PodUsageOptions,
) -> Result<bool, InvalidSelector> {
    Ok(match scope.scope_name.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod, options),
        "NotBestEffort" => !is_best_effort(pod, options),
        "PriorityClass" if scope.operator == "Exists" => !pod.spec.priority_class_name().is_empty(),
        "PriorityClass" => {
            let class = pod.spec.priority_class_name();
            return matches_value(scope, Some(class).filter(|class| !class.is_empty()));
        }
        "CrossNamespacePodAffinity" => pod.spec.has_cross_namespace_affinity(),
        _ => false,
    })
}

/// Whether a PersistentVolumeClaim is in a scope: at least one of the VolumeAttributesClasses that it refers to
/// satisfies the requirement. A claim that refers to none is evaluated without a label.
///
/// # Errors
/// If the requirement has an unknown operator or a value that is no label value.
pub fn persistent_volume_claim_matches_scope(
    claim: &PersistentVolumeClaim,
    scope: &ScopeRequirement,
) -> Result<bool, InvalidSelector> {
    let classes: Vec<&InternedStr> = claim.volume_attributes_classes().collect();
    match scope.scope_name.as_str() {
        "VolumeAttributesClass" if scope.operator == "Exists" => Ok(!classes.is_empty()),
        "VolumeAttributesClass" if classes.is_empty() => matches_value(scope, None),
        "VolumeAttributesClass" => {
            classes.into_iter().try_fold(false, |any, class| Ok(any | matches_value(scope, Some(class))?))
        }
        _ => Ok(false),
    }
}

/// Evaluates a requirement as a label selector on a label with the name of the scope.
fn matches_value(scope: &ScopeRequirement, value: Option<&InternedStr>) -> Result<bool, InvalidSelector> {
    let expression = Expression {
        key: scope.scope_name.clone(),
        operator: scope.operator.clone(),
        values: scope.values.clone(),
    };
    let labels: Labels = value.map(|value| (scope.scope_name.clone(), value.clone())).into_iter().collect();
    Ok(Matcher::of_expression(&expression)?.matches(&labels))
}

/// Whether the run time of a pod is limited. It has nothing to do with its deletion.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    pod.spec.active_deadline_seconds().is_some_and(|seconds| seconds >= 0)
}

/// Whether no container has a request or limit of CPU or memory, or the status says so.
fn is_best_effort(pod: &Pod, options: PodUsageOptions) -> bool {
    match pod.qos_class() {
        QosClass::BestEffort => return true,
        QosClass::Other => return false,
        QosClass::Unset => {}
    }
    let is_set = |list: &ResourceList| {
        ["cpu", "memory"].iter().any(|name| list.amount(name).is_some_and(Quantity::is_positive))
    };
    let pod_level = pod.spec.pod_level_resources().filter(|_| options.pod_level_resources);
    if let Some(resources) = pod_level {
        return !is_set(&resources.requests) && !is_set(&resources.limits);
    }
    let mut containers = pod.spec.containers().iter().chain(pod.spec.init_containers());
    !containers.any(|container| is_set(container.requests()) || is_set(container.limits()))
}
