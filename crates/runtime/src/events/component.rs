//! Event components that are no controller's own, and how loudly each component's events are logged.

use tracing::Level;

/// The manager itself, for events about leader election. Controllers name their component in their own
/// introduction ([`keleustes_plan::Controller::event_component`]).
pub const MANAGER_COMPONENT: &str = "kube-controller-manager";

/// Components whose events show in the log of a manager that was not asked to be verbose.
const LOUD: [&str; 5] = [
    MANAGER_COMPONENT,
    "endpoint-slice-controller",
    "endpoint-slice-mirroring-controller",
    "ephemeral_volume",
    "resource_claim",
];

/// The level at which the events of a component are logged: verbosity 0 or 3 of the original.
pub(super) fn log_level(component: &str) -> Level {
    if LOUD.contains(&component) { Level::INFO } else { Level::DEBUG }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_few_components_are_loud() {
        assert_eq!(log_level(MANAGER_COMPONENT), Level::INFO);
        assert_eq!(log_level("endpoint-slice-controller"), Level::INFO);
        assert_eq!(log_level("endpoint-slice-mirroring-controller"), Level::INFO);
        assert_eq!(log_level("ephemeral_volume"), Level::INFO);
        assert_eq!(log_level("resource_claim"), Level::INFO);
        assert_eq!(log_level("endpoint-controller"), Level::DEBUG);
        assert_eq!(log_level("job-controller"), Level::DEBUG);
    }
}
