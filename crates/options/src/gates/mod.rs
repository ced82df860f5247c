//! Feature gates are known by name, have a stage and a default in each release, and depend on each other.

mod list;

use std::collections::BTreeMap;

pub use list::FeatureStage;
use list::{BY_COMPATIBILITY, FIRST_MINOR, GATES, Gate, NEEDS, State};

use crate::go_text::parse_bool;
use crate::versions::Versions;

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";
const KUBE: &str = "kube";

/// Which features are on.
#[derive(Clone, Debug)]
pub struct FeatureGates {
    versions: Versions,
    /// What was set, by name or for a whole stage.
    set: BTreeMap<&'static str, bool>,
}

/// A feature and whether it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateState {
    /// Its name.
    pub name: &'static str,
    /// How far it has come.
    pub stage: FeatureStage,
    /// Whether it is on.
    pub enabled: bool,
}

/// Gates together with what the operator should hear about them.
pub(crate) struct ReadGates {
    pub(crate) gates: FeatureGates,
    pub(crate) warnings: Vec<String>,
}

impl FeatureGates {
    /// The gates without any flag.
    pub(crate) fn defaults(versions: Versions) -> Self {
        Self { versions, set: BTreeMap::new() }
    }

    /// The gates after `--feature-gates`, given as items by component.
    pub(crate) fn read(
        by_component: &BTreeMap<String, Vec<String>>,
        versions: Versions,
    ) -> Result<ReadGates, String> {
        if by_component.contains_key("") && by_component.contains_key(KUBE) {
            let text = "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use";
            return Err(text.to_owned());
        }
        if let Some(stranger) = by_component.keys().find(|name| !name.is_empty() && *name != KUBE) {
            return Err(format!("component not registered: {stranger}"));
        }
        let items: Vec<&str> = by_component.values().flatten().map(String::as_str).collect();
        let wishes = read_wishes(&items)?;
        let mut read = ReadGates { gates: Self::defaults(versions), warnings: Vec::new() };
        read.take(&wishes)?;
        read.gates.check_needs()?;
        read.warn_of_emulated_experiments();
        Ok(read)
    }

    /// Whether the feature is on.
    ///
    /// # Panics
    /// If there is no such gate: names are written in code, and a wrong one is a mistake.
    #[must_use]
    pub fn enabled(&self, name: &str) -> bool {
        match find(name) {
            Some(gate) => self.on(gate),
            None => panic!("there is no feature gate {name}"),
        }
    }

    /// What the operator said of the feature, if anything.
    #[must_use]
    pub fn explicit_value(&self, name: &str) -> Option<bool> {
        self.set.get(name).copied()
    }

    /// All features that there are in the emulated release, by name.
    pub fn all(&self) -> impl Iterator<Item = GateState> {
        GATES.iter().filter_map(|gate| {
            let stage = self.state(gate).stage;
            (stage != FeatureStage::PreAlpha).then(|| GateState {
                name: gate.name,
                stage,
                enabled: self.on(gate),
            })
        })
    }

    fn on(&self, gate: &Gate) -> bool {
        self.set.get(gate.name).copied().unwrap_or_else(|| self.state(gate).default)
    }

    fn state(&self, gate: &Gate) -> State {
        let newest = gate.by_release.len() as u64 - 1;
        // A release outside the table is refused elsewhere; until then the nearest one stands in for it.
        let column = self.versions.emulation.minor.saturating_sub(FIRST_MINOR).min(newest);
        let state = gate.by_release[column as usize];
        let (name, minor, default) = BY_COMPATIBILITY;
        let compatible =
            self.versions.min_compatibility.minor >= minor && self.versions.emulation.minor >= minor;
        if gate.name == name && compatible { State { default, ..state } } else { state }
    }

    /// Every feature that is on needs the features it depends on.
    fn check_needs(&self) -> Result<(), String> {
        let problem = |(name, needed): &(&str, &[&str])| {
            let missing: Vec<_> = needed.iter().copied().filter(|needed| !self.enabled(needed)).collect();
            let broken = self.enabled(name) && !missing.is_empty();
            broken.then(|| {
                format!(
                    "{name} is enabled, but depends on features that are disabled: [{}]",
                    missing.join(" ")
                )
            })
        };
        crate::aggregate(NEEDS.iter().filter_map(problem).collect())
    }
}

impl ReadGates {
    fn take(&mut self, wishes: &BTreeMap<&str, bool>) -> Result<(), String> {
        let mut problems = Vec::new();
        let mut known = Vec::new();
        for (name, wish) in wishes {
            match find(name) {
                Some(gate) => known.push((gate, *wish)),
                None => return Err(format!("unrecognized feature gate: {name}")),
            }
        }
        for (gate, wish) in &known {
            match self.judge(gate, *wish) {
                Ok(()) => drop(self.gates.set.insert(gate.name, *wish)),
                Err(problem) => problems.push(problem),
            }
        }
        crate::aggregate(problems)?;
        for (whole, stage) in [(ALL_ALPHA, FeatureStage::Alpha), (ALL_BETA, FeatureStage::Beta)] {
            if let Some(wish) = wishes.get(whole) {
                self.set_stage(stage, *wish);
            }
        }
        Ok(())
    }

    fn judge(&mut self, gate: &Gate, wish: bool) -> Result<(), String> {
        let state = self.gates.state(gate);
        let (name, versions) = (gate.name, self.gates.versions);
        if state.locked && state.default != wish {
            return Err(format!(
                "cannot set feature gate {name} to {wish}, feature is locked to {}",
                state.default
            ));
        }
        match state.stage {
            FeatureStage::PreAlpha => {
                return Err(format!(
                    "cannot set feature gate {name} to {wish}, feature is PreAlpha at emulated version {}, min compatibility version {}",
                    versions.emulation, versions.min_compatibility
                ));
            }
            FeatureStage::Deprecated => self.warn_of_going(name, wish, "deprecated"),
            FeatureStage::Stable => self.warn_of_going(name, wish, "GA"),
            FeatureStage::Alpha | FeatureStage::Beta => {}
        }
        Ok(())
    }

    fn warn_of_going(&mut self, name: &str, wish: bool, stage: &str) {
        self.warnings
            .push(format!("feature gate {name}={wish} is {stage} and will be removed in a future release"));
    }

    fn warn_of_emulated_experiments(&mut self) {
        if self.gates.versions.emulation >= self.gates.versions.binary {
            return;
        }
        let experiments = self.gates.all().filter(|gate| gate.stage == FeatureStage::Alpha && gate.enabled);
        let names: Vec<_> = experiments.map(|gate| gate.name).collect();
        if !names.is_empty() {
            let names = names.join(" ");
            self.warnings.push(format!(
                "alpha features are on in an emulated version, which is not supported: {names}"
            ));
        }
    }

    /// Sets every gate of a stage that was not set by name.
    fn set_stage(&mut self, stage: FeatureStage, wish: bool) {
        for gate in GATES.iter().filter(|gate| gate.name != ALL_ALPHA && gate.name != ALL_BETA) {
            if self.gates.state(gate).stage == stage {
                self.gates.set.entry(gate.name).or_insert(wish);
            }
        }
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

/// Reads `Name=true` items; the last one for a name counts.
fn read_wishes<'a>(items: &[&'a str]) -> Result<BTreeMap<&'a str, bool>, String> {
    let mut wishes = BTreeMap::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        let Some((name, text)) = item.split_once('=') else {
            return Err(format!("missing bool value for {}", item.trim()));
        };
        let (name, text) = (name.trim(), text.trim());
        let refuse = |error| format!("invalid value of {name}={text}, err: {error}");
        wishes.insert(name, parse_bool(text).map_err(refuse)?);
    }
    Ok(wishes)
}

/// One line for each gate that help shows, those done or going left out.
pub(crate) fn help_lines(versions: Versions) -> Vec<String> {
    let gates = FeatureGates::defaults(versions);
    let shown = gates.all().filter(|gate| matches!(gate.stage, FeatureStage::Alpha | FeatureStage::Beta));
    shown.map(|gate| format!("{} ({}, default {})", gate.name, gate.stage.name(), gate.enabled)).collect()
}

/// Every gate with what it is in each release, and what it needs.
pub(crate) fn table() -> impl Iterator<Item = (&'static str, [String; 4], &'static [&'static str])> {
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
        let needs = NEEDS.iter().find(|(name, _)| *name == gate.name).map_or(&[][..], |(_, needs)| needs);
        (gate.name, gate.by_release.map(shown), needs)
    })
}

/// All names, for completion.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    GATES.iter().map(|gate| gate.name)
}
