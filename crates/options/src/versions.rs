//! The binary version, the emulation version and the minimum compatibility version.

use std::fmt;

use crate::build::{Build, parse_version};
use crate::go_text::quote;

/// How many minor releases back can be emulated.
const RELEASES_BACK: u64 = 3;

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version.
    pub major: u64,
    /// The minor version.
    pub minor: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    fn back(self, releases: u64) -> Self {
        Self { minor: self.minor.saturating_sub(releases), ..self }
    }
}

/// The versions that decide which feature gates exist and their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveVersion {
    /// The Kubernetes release that the program replaces.
    pub binary: Version,
    /// The release whose feature gates and defaults apply.
    pub emulation: Version,
    /// The oldest release of other control plane components that must interoperate.
    pub min_compatibility: Version,
}

impl EffectiveVersion {
    /// The versions without flags.
    pub(crate) fn of(build: &Build<'_>) -> Self {
        let (major, minor) = build.major_minor();
        let binary = Version { major, minor };
        Self { binary, emulation: binary, min_compatibility: binary.back(1) }
    }

    /// The versions after `--emulated-version` and `--min-compatibility-version`.
    pub(crate) fn read(
        emulated: &[String],
        min_compatibility: &[String],
        build: &Build<'_>,
    ) -> Result<Self, String> {
        let mut versions = Self::of(build);
        if let Some(emulation) = version_of_kube(emulated)? {
            versions.emulation = emulation;
            versions.min_compatibility = emulation.back(1).max(versions.floor());
        }
        if let Some(min_compatibility) = version_of_kube(min_compatibility)? {
            versions.min_compatibility = min_compatibility;
        }
        Ok(versions)
    }

    /// The oldest release that can be emulated.
    pub(crate) fn floor(&self) -> Version {
        self.binary.back(RELEASES_BACK)
    }

    /// Validation errors.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let (floor, binary, emulation) = (self.floor(), self.binary, self.emulation);
        if emulation > binary || emulation < floor {
            problems.push(format!("emulation version {emulation} is not between [{floor}, {binary}.0]"));
        }
        let oldest = self.min_compatibility;
        if oldest > emulation || oldest < floor {
            problems.push(format!(
                "minCompatibilityVersion version {oldest} is not between [{floor}, {emulation}]"
            ));
        }
        problems
    }
}

/// Parses the entries of a version flag. `kube` is the only component and its prefix is optional.
fn version_of_kube(entries: &[String]) -> Result<Option<Version>, String> {
    let mut read: Vec<(&str, Version)> = Vec::new();
    for entry in entries {
        let (component, text) = match entry.split_once('=') {
            Some((component, text)) => (component.trim(), text.trim()),
            None => ("kube", entry.as_str()),
        };
        let numbers = parse_version(text, false)?.numbers;
        // At least two numbers were read.
        let version = Version { major: numbers[0], minor: numbers[1] };
        if numbers.get(2).is_some_and(|patch| *patch != 0) {
            let shown: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            return Err(format!("patch version not allowed, got: {component}={}", shown.join(".")));
        }
        if let Some((_, earlier)) = read.iter().find(|(other, _)| *other == component) {
            return Err(format!("duplicate version flag, {component}={earlier} and {component}={version}"));
        }
        read.push((component, version));
    }
    match read.iter().find(|(component, _)| *component != "kube") {
        Some((unknown, _)) => Err(format!("component not registered: {unknown}")),
        None => Ok(read.first().map(|(_, version)| *version)),
    }
}

/// Checks `--show-hidden-metrics-for-version`: only the previous minor release is allowed.
pub(crate) fn hidden_metrics_problem(wanted: &str, binary: Version) -> Option<String> {
    let previous = binary.back(1).to_string();
    let is_valid = wanted.is_empty() || wanted == previous;
    (!is_valid).then(|| {
        let reason = format!(
            "must be omitted or have the value '{previous}'; only the previous minor version is allowed"
        );
        format!("metrics.showHiddenMetricsForVersion: Invalid value: {}: {reason}", quote(wanted))
    })
}
