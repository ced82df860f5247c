//! The event component of the manager, and the level at which each component's events are logged.

use tracing::Level;

/// The manager itself, for events about leader election. Controllers declare their component themselves
/// ([`keleustes_plan::Controller::event_component`]).
pub const MANAGER_COMPONENT: &str = "kube-controller-manager";

/// Components whose events are logged at the default verbosity.
const LOGGED_BY_DEFAULT: [&str; 5] = [
    MANAGER_COMPONENT,
    "endpoint-slice-controller",
    "endpoint-slice-mirroring-controller",
    "ephemeral_volume",
    "resource_claim",
];

/// The level at which the events of a component are logged. It is verbosity 0 or, through the target, 3.
pub(super) fn log_level(component: &str) -> Level {
    if LOGGED_BY_DEFAULT.contains(&component) { Level::INFO } else { Level::DEBUG }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_few_components_log_events_by_default() {
        assert_eq!(log_level(MANAGER_COMPONENT), Level::INFO);
        assert_eq!(log_level("endpoint-slice-controller"), Level::INFO);
        assert_eq!(log_level("endpoint-slice-mirroring-controller"), Level::INFO);
        assert_eq!(log_level("ephemeral_volume"), Level::INFO);
        assert_eq!(log_level("resource_claim"), Level::INFO);
        assert_eq!(log_level("endpoint-controller"), Level::DEBUG);
        assert_eq!(log_level("job-controller"), Level::DEBUG);
    }
}
