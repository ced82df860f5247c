//! Feature gates: parsing, validation, dependencies, and their state in the emulated release.

mod list;

use std::collections::BTreeMap;

use list::{BY_COMPATIBILITY, DEPENDENCIES, FIRST_MINOR, GATES, Gate, State};
pub use list::{FeatureStage, GateEffect};

use crate::go_text::parse_bool;
use crate::versions::EffectiveVersion;

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";
const KUBE: &str = "kube";

/// The state of all feature gates.
#[derive(Clone, Debug)]
pub struct FeatureGates {
    versions: EffectiveVersion,
    /// Explicitly set gates, by name or by `AllAlpha` and `AllBeta`.
    set: BTreeMap<&'static str, bool>,
}

/// A feature gate and whether it is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateState {
    /// The name.
    pub name: &'static str,
    /// The stage in the emulated release.
    pub stage: FeatureStage,
    /// Whether it is enabled.
    pub enabled: bool,
}

/// Gates with warnings for the log.
pub(crate) struct ReadGates {
    pub(crate) gates: FeatureGates,
    pub(crate) warnings: Vec<String>,
}

impl FeatureGates {
    /// The gates without flags.
    pub(crate) fn defaults(versions: EffectiveVersion) -> Self {
        Self { versions, set: BTreeMap::new() }
    }

    /// The gates after `--feature-gates`, whose items are grouped by component.
    pub(crate) fn read(
        by_component: &BTreeMap<String, Vec<String>>,
        versions: EffectiveVersion,
    ) -> Result<ReadGates, String> {
        if by_component.contains_key("") && by_component.contains_key(KUBE) {
            let text = "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use";
            return Err(text.to_owned());
        }
        if let Some(unknown) = by_component.keys().find(|name| !name.is_empty() && *name != KUBE) {
            return Err(format!("component not registered: {unknown}"));
        }
        let items: Vec<&str> = by_component.values().flatten().map(String::as_str).collect();
        let settings = parse_settings(&items)?;
        let mut read = ReadGates { gates: Self::defaults(versions), warnings: Vec::new() };
        read.set_all(&settings)?;
        read.gates.check_dependencies()?;
        read.warn_of_emulated_alpha();
        read.warn_without_effect();
        Ok(read)
    }

    /// Whether the feature is enabled.
    ///
    /// # Panics
    /// If there is no such gate; callers pass constants.
    #[must_use]
    pub fn enabled(&self, name: &str) -> bool {
        match find(name) {
            Some(gate) => self.is_enabled(gate),
            None => panic!("there is no feature gate {name}"),
        }
    }

    /// The value set on the command line, if it is set.
    #[must_use]
    pub fn explicit_value(&self, name: &str) -> Option<bool> {
        self.set.get(name).copied()
    }

    /// All gates that exist in the emulated release, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = GateState> {
        GATES.iter().filter_map(|gate| {
            let stage = self.state(gate).stage;
            (stage != FeatureStage::PreAlpha).then(|| GateState {
                name: gate.name,
                stage,
                enabled: self.is_enabled(gate),
            })
        })
    }

    fn is_enabled(&self, gate: &Gate) -> bool {
        self.set.get(gate.name).copied().unwrap_or_else(|| self.state(gate).default)
    }

    fn state(&self, gate: &Gate) -> State {
        let newest = gate.by_release.len() as u64 - 1;
        // A release outside the table fails validation later; until then the nearest one is used.
        let column = self.versions.emulation.minor.saturating_sub(FIRST_MINOR).min(newest);
        let state = gate.by_release[column as usize];
        let (name, minor, default) = BY_COMPATIBILITY;
        let compatible =
            self.versions.min_compatibility.minor >= minor && self.versions.emulation.minor >= minor;
        if gate.name == name && compatible { State { default, ..state } } else { state }
    }

    /// An enabled gate requires that its dependencies are enabled.
    fn check_dependencies(&self) -> Result<(), String> {
        let problem = |(name, needed): &(&str, &[&str])| {
            let missing: Vec<_> = needed.iter().copied().filter(|needed| !self.enabled(needed)).collect();
            let violated = self.enabled(name) && !missing.is_empty();
            violated.then(|| {
                format!(
                    "{name} is enabled, but depends on features that are disabled: [{}]",
                    missing.join(" ")
                )
            })
        };
        crate::aggregate(DEPENDENCIES.iter().filter_map(problem).collect())
    }
}

impl ReadGates {
    fn set_all(&mut self, settings: &BTreeMap<&str, bool>) -> Result<(), String> {
        let mut problems = Vec::new();
        let mut known = Vec::new();
        for (name, enabled) in settings {
            match find(name) {
                Some(gate) => known.push((gate, *enabled)),
                None => return Err(format!("unrecognized feature gate: {name}")),
            }
        }
        for (gate, enabled) in &known {
            match self.check(gate, *enabled) {
                Ok(()) => drop(self.gates.set.insert(gate.name, *enabled)),
                Err(problem) => problems.push(problem),
            }
        }
        crate::aggregate(problems)?;
        for (all_of_stage, stage) in [(ALL_ALPHA, FeatureStage::Alpha), (ALL_BETA, FeatureStage::Beta)] {
            if let Some(enabled) = settings.get(all_of_stage) {
                self.set_stage(stage, *enabled);
            }
        }
        Ok(())
    }

    fn check(&mut self, gate: &Gate, enabled: bool) -> Result<(), String> {
        let state = self.gates.state(gate);
        let (name, versions) = (gate.name, self.gates.versions);
        if state.locked && state.default != enabled {
            return Err(format!(
                "cannot set feature gate {name} to {enabled}, feature is locked to {}",
                state.default
            ));
        }
        match state.stage {
            FeatureStage::PreAlpha => {
                return Err(format!(
                    "cannot set feature gate {name} to {enabled}, feature is PreAlpha at emulated version {}, min compatibility version {}",
                    versions.emulation, versions.min_compatibility
                ));
            }
            FeatureStage::Deprecated => self.warn_of_removal(name, enabled, "deprecated"),
            FeatureStage::Stable => self.warn_of_removal(name, enabled, "GA"),
            FeatureStage::Alpha | FeatureStage::Beta => {}
        }
        Ok(())
    }

    fn warn_of_removal(&mut self, name: &str, enabled: bool, stage: &str) {
        self.warnings.push(format!(
            "feature gate {name}={enabled} is {stage} and will be removed in a future release"
        ));
    }

    fn warn_of_emulated_alpha(&mut self) {
        if self.gates.versions.emulation >= self.gates.versions.binary {
            return;
        }
        let alpha = self.gates.all().filter(|gate| gate.stage == FeatureStage::Alpha && gate.enabled);
        let names: Vec<_> = alpha.map(|gate| gate.name).collect();
        if !names.is_empty() {
            let names = names.join(" ");
            self.warnings.push(format!(
                "alpha features are on in an emulated version, which is not supported: {names}"
            ));
        }
    }

    /// Warns of gates that are set, or that the emulated release has off, and that this manager does not obey.
    fn warn_without_effect(&mut self) {
        let mut always_on = Vec::new();
        for gate in GATES {
            let GateEffect::Fixed(fixed, reason) = gate.effect else { continue };
            match self.gates.set.get(gate.name) {
                Some(enabled) if *enabled != fixed => self.warnings.push(format!(
                    "feature gate {}={enabled} has no effect in this manager: {reason}",
                    gate.name
                )),
                None if fixed && !self.gates.state(gate).default => always_on.push(gate.name),
                _ => {}
            }
        }
        if !always_on.is_empty() {
            self.warnings.push(format!(
                "features that are off in the emulated version and always on in this manager: {}",
                always_on.join(" ")
            ));
        }
    }

    /// Sets every gate of a stage that is not set by name.
    fn set_stage(&mut self, stage: FeatureStage, enabled: bool) {
        for gate in GATES.iter().filter(|gate| gate.name != ALL_ALPHA && gate.name != ALL_BETA) {
            if self.gates.state(gate).stage == stage {
                self.gates.set.entry(gate.name).or_insert(enabled);
            }
        }
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

/// Parses `Name=true` items; the last one for a name counts.
fn parse_settings<'a>(items: &[&'a str]) -> Result<BTreeMap<&'a str, bool>, String> {
    let mut settings = BTreeMap::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        let Some((name, text)) = item.split_once('=') else {
            return Err(format!("missing bool value for {}", item.trim()));
        };
        let (name, text) = (name.trim(), text.trim());
        let refuse = |error| format!("invalid value of {name}={text}, err: {error}");
        settings.insert(name, parse_bool(text).map_err(refuse)?);
    }
    Ok(settings)
}

/// One help line per alpha and beta gate.
pub(crate) fn help_lines(versions: EffectiveVersion) -> Vec<String> {
    let gates = FeatureGates::defaults(versions);
    let shown = gates.all().filter(|gate| matches!(gate.stage, FeatureStage::Alpha | FeatureStage::Beta));
    shown.map(|gate| format!("{} ({}, default {})", gate.name, gate.stage.name(), gate.enabled)).collect()
}

/// Every gate with its state per release, its dependencies and its effect.
pub(crate) fn table() -> impl Iterator<Item = (&'static str, [String; 4], &'static [&'static str], GateEffect)>
{
    let shown = |state: State| match (state.stage, state.locked) {
        (FeatureStage::PreAlpha, _) => String::new(),
        (stage, locked) => {
            let stage =
                if stage == FeatureStage::Stable { "stable".to_owned() } else { stage.name().to_lowercase() };
            let default = if state.default { "on" } else { "off" };
            format!("{stage}, {}{default}", if locked { "always " } else { "" })
        }
    };
    GATES.iter().map(move |gate| {
        let needs =
            DEPENDENCIES.iter().find(|(name, _)| *name == gate.name).map_or(&[][..], |(_, needs)| needs);
        (gate.name, gate.by_release.map(shown), needs, gate.effect)
    })
}

/// Every gate with what it does in this manager, and in which minor versions it can be switched.
pub fn gate_effects() -> impl Iterator<Item = (&'static str, GateEffect, Vec<u64>)> {
    GATES.iter().map(|gate| {
        let states = (FIRST_MINOR..).zip(gate.by_release);
        let switchable = states.filter(|(_, state)| state.stage != FeatureStage::PreAlpha && !state.locked);
        (gate.name, gate.effect, switchable.map(|(minor, _)| minor).collect())
    })
}

/// Gates that make no sense without others, with the others.
pub fn gate_dependencies() -> &'static [(&'static str, &'static [&'static str])] {
    DEPENDENCIES
}

/// All names, for completion.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    GATES.iter().map(|gate| gate.name)
}

#[cfg(test)]
mod tests {
    use keleustes_objects::BUILT_IN_KINDS;

    use super::*;

    #[test]
    fn kinds_that_are_served_by_default_are_behind_no_gate_that_is_off() {
        let versions = BUILT_IN_KINDS.iter().flat_map(|kind| kind.versions);
        let gated: Vec<_> =
            versions.filter_map(|version| Some((version.gate?, version.by_default))).collect();
        assert!(gated.contains(&("ClusterTrustBundle", true)) && gated.contains(&("GenericWorkload", false)));
        for (name, by_default) in gated {
            let gate =
                GATES.iter().find(|gate| gate.name == name).unwrap_or_else(|| panic!("no gate {name}"));
            assert!(gate.by_release[3].default || !by_default, "{name}");
        }
    }
}
