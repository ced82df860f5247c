//! The events of the controller.

use keleustes_objects::{LabelSelector, Pod, PodDisruptionBudget};
use keleustes_plan::{InvolvedObject, PlannedEvent};

/// On a pod that several budgets select.
pub(super) fn multiple_budgets(pod: &Pod, chosen: &PodDisruptionBudget) -> PlannedEvent {
    let (namespace, name, budget) = (&pod.meta.key.namespace, &pod.meta.key.name, &chosen.meta.key.name);
    PlannedEvent::warning(
        InvolvedObject::of(pod),
        "MultiplePodDisruptionBudgets",
        // The two spaces are the original's.
        format!(
            "Pod \"{namespace}\"/\"{name}\" matches multiple PodDisruptionBudgets.  Chose \"{budget}\" arbitrarily."
        ),
    )
}

/// On a budget that selects no pods.
pub(super) fn no_pods(budget: &PodDisruptionBudget) -> PlannedEvent {
    PlannedEvent::normal(InvolvedObject::of(budget), "NoPods", "No matching pods found")
}

/// On a budget whose selector is invalid.
pub(super) fn invalid_selector(budget: &PodDisruptionBudget, error: &str) -> PlannedEvent {
    PlannedEvent::warning(InvolvedObject::of(budget), "NoPods", format!("Failed to get pods: {error}"))
}

/// On a budget whose number of expected pods is unknown.
pub(super) fn calculation_failed(budget: &PodDisruptionBudget, error: &str) -> PlannedEvent {
    PlannedEvent::warning(
        InvolvedObject::of(budget),
        "CalculateExpectedPodCountFailed",
        format!("Failed to calculate the number of expected pods: {error}"),
    )
}

/// On a budget some of whose pods have no controller.
pub(super) fn unmanaged_pods(budget: &PodDisruptionBudget) -> PlannedEvent {
    let selector = budget.spec.selector.selector().map_or_else(|| "nil".to_owned(), LabelSelector::go_string);
    let message = format!(
        "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the \
         status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
         pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    );
    PlannedEvent::warning(InvolvedObject::of(budget), "UnmanagedPods", message)
}

/// On a pod whose eviction was granted two minutes ago and that is not terminating.
pub(super) fn not_deleted(pod: &Pod, budget: &PodDisruptionBudget) -> PlannedEvent {
    // The original prints the namespace twice, not the name of the budget.
    let namespace = &budget.meta.key.namespace;
    PlannedEvent::warning(
        InvolvedObject::of(pod),
        "NotDeleted",
        format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"),
    )
}
