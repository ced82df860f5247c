//! Selects the controllers that run in this process.

use std::collections::BTreeSet;

use keleustes_controllers::names::{self, UPSTREAM_CONTROLLERS};
use keleustes_controllers::{ControllersOptions, all_controllers};
use keleustes_options::Options;
use keleustes_plan::Controller;

/// The controller that others need for their service account credentials.
pub(crate) const FIRST: &str = "serviceaccount-token-controller";

/// The canonical names of all implemented controllers.
pub(crate) fn implemented_controllers() -> Vec<&'static str> {
    let written =
        all_controllers(&ControllersOptions::default()).into_iter().map(|controller| controller.name);
    std::iter::once(FIRST).chain(written).collect()
}

/// The controllers that the options enable.
pub(crate) struct ControllerSelection {
    /// Enabled and implemented.
    pub(crate) members: Vec<Controller>,
    /// Enabled and not implemented yet.
    pub(crate) missing: Vec<&'static str>,
}

impl ControllerSelection {
    /// Selects by `--controllers` and logs which controllers do not run, and why.
    pub(crate) fn choose(options: &Options, settings: &ControllersOptions) -> Self {
        let landed = implemented_controllers();
        let mut wanted = BTreeSet::new();
        for known in &UPSTREAM_CONTROLLERS {
            let by_default = known.default != names::DefaultState::Disabled;
            if known.name == FIRST {
                // Only a missing key disables the token controller.
                wanted.insert(FIRST);
            } else if !options.generic.controllers.enables(known.name, by_default) {
                tracing::info!(controller = known.name, "Warning: controller is disabled");
            } else if let Some(gate) = known.gates.iter().find(|gate| !options.gates.enabled(gate)) {
                tracing::info!(controller = known.name, gate, "Controller is disabled by a feature gate");
            } else {
                wanted.insert(known.name);
            }
        }
        let members: Vec<_> = all_controllers(settings)
            .into_iter()
            .filter(|controller| wanted.contains(controller.name))
            .collect();
        for skipped in landed.iter().filter(|name| wanted.contains(*name)) {
            if !members.iter().any(|controller| controller.name == *skipped) {
                tracing::info!(controller = skipped, "Warning: skipping controller");
            }
        }
        let missing: Vec<_> = UPSTREAM_CONTROLLERS
            .iter()
            .map(|known| known.name)
            .filter(|name| wanted.contains(name) && !landed.contains(name))
            .collect();
        if !missing.is_empty() {
            tracing::warn!(
                controllers = missing.join(","),
                "controllers not implemented yet and not running; run them in another manager"
            );
        }
        Self { members, missing }
    }
}

#[cfg(test)]
mod tests;
