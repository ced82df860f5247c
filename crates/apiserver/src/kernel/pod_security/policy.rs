//! Pod security levels and their versions, as the labels of a namespace state them.

use std::fmt;

use serde_json::{Value, json};

use crate::kernel::status::FieldError;

/// The newest minor version that changed a check; later versions are the same.
pub(super) const NEWEST_MINOR: u32 = 37;
const LABEL_PREFIX: &str = "pod-security.kubernetes.io/";

/// How much a namespace forbids, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The version of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyVersion {
    Latest,
    /// `v1.MINOR`
    Minor(u32),
}

/// A level in a version of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: PolicyVersion,
}

/// What a namespace refuses, and what it warns about. Audit annotations are not kept, so their level is only validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) warn: LevelVersion,
}

impl Level {
    /// An unknown level is an error, and counts as restricted.
    fn parse(text: &str) -> (Level, Option<&'static str>) {
        match text {
            "privileged" => (Level::Privileged, None),
            "baseline" => (Level::Baseline, None),
            "restricted" => (Level::Restricted, None),
            _ => (Level::Restricted, Some("must be one of privileged, baseline, restricted")),
        }
    }
}

impl PolicyVersion {
    /// An unknown version is an error, and counts as the latest.
    fn parse(text: &str) -> (PolicyVersion, Option<&'static str>) {
        let number = text.strip_prefix("v1.").filter(|number| {
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            is_number && (!number.starts_with('0') || number.len() == 1)
        });
        match (text, number.and_then(|number| number.parse().ok())) {
            ("latest", _) => (PolicyVersion::Latest, None),
            (_, Some(minor)) => (PolicyVersion::Minor(minor), None),
            _ => (PolicyVersion::Latest, Some("must be \"latest\" or \"v1.x\"")),
        }
    }

    /// The version whose checks are used.
    pub(super) fn minor(self) -> u32 {
        match self {
            PolicyVersion::Latest => NEWEST_MINOR,
            PolicyVersion::Minor(minor) => minor.min(NEWEST_MINOR),
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.version {
            PolicyVersion::Latest => f.write_str(":latest"),
            PolicyVersion::Minor(minor) => write!(f, ":v1.{minor}"),
        }
    }
}

impl Policy {
    /// Nothing is forbidden.
    const PRIVILEGED: Policy = {
        let all = LevelVersion { level: Level::Privileged, version: PolicyVersion::Latest };
        Policy { enforce: all, warn: all }
    };

    /// The policy of a namespace with these labels. A policy is returned even if labels are invalid.
    pub(super) fn of_labels(labels: &Value) -> (Policy, Vec<FieldError>) {
        let mut policy = Policy::PRIVILEGED;
        let mut errors = Vec::new();
        let text = |name: &str| labels.get(format!("{LABEL_PREFIX}{name}")).and_then(Value::as_str);
        let mut refuse = |name: &str, value: &str, error: Option<&str>| {
            let field = format!("metadata.labels[{LABEL_PREFIX}{name}]");
            errors.extend(error.map(|why| FieldError::invalid(&field, &json!(value), why)));
            error.is_none()
        };
        let mut enforces = false;
        if let Some(value) = text("enforce") {
            let (level, error) = Level::parse(value);
            policy.enforce.level = level;
            enforces = refuse("enforce", value, error);
        }
        if let Some(value) = text("enforce-version") {
            let (version, error) = PolicyVersion::parse(value);
            policy.enforce.version = version;
            refuse("enforce-version", value, error);
        }
        if let Some(value) = text("audit") {
            refuse("audit", value, Level::parse(value).1);
        }
        if let Some(value) = text("audit-version") {
            refuse("audit-version", value, PolicyVersion::parse(value).1);
        }
        if let Some(value) = text("warn") {
            let (level, error) = Level::parse(value);
            let valid = refuse("warn", value, error);
            policy.warn.level = if valid { level } else { Level::Privileged };
        }
        if let Some(value) = text("warn-version") {
            let (version, error) = PolicyVersion::parse(value);
            policy.warn.version = version;
            refuse("warn-version", value, error);
        }
        // What is refused is also warned about, where pods are only described.
        if text("warn").is_none() && enforces && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if text("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}
