//! The table of checks: which level needs which check since which version.

use serde_json::Value;

use super::policy::{Level, LevelVersion};
use super::{baseline, restricted};

/// A pod, or the template of one.
#[derive(Clone, Copy)]
pub(super) struct PodView<'a> {
    pub(super) annotations: &'a Value,
    pub(super) spec: &'a Value,
}

/// Why a check forbids a pod: a short reason, and what in the pod is the matter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

pub(super) type CheckFn = fn(PodView<'_>) -> Option<Violation>;

/// A check with its revisions: the minor version from which each holds, oldest first.
pub(super) struct Check {
    pub(super) revisions: &'static [(u32, CheckFn)],
    /// Checks of the baseline that this one replaces where it holds.
    pub(super) overrides: &'static [&'static str],
    pub(super) id: &'static str,
}

impl Check {
    fn revision(&self, minor: u32) -> Option<CheckFn> {
        self.revisions.iter().rev().find(|(since, _)| *since <= minor).map(|(_, check)| *check)
    }
}

/// What a level forbids about a pod, in the order of upstream's messages.
pub(super) fn violations(of: LevelVersion, pod: PodView<'_>) -> Vec<Violation> {
    let minor = of.version.minor();
    let restricted: &[Check] = if of.level == Level::Restricted { restricted::CHECKS } else { &[] };
    let baseline: &[Check] = if of.level == Level::Privileged { &[] } else { baseline::CHECKS };
    let held = restricted.iter().filter(|check| check.revision(minor).is_some());
    let overridden: Vec<&str> = held.flat_map(|check| check.overrides).copied().collect();
    let baseline = baseline.iter().filter(|check| !overridden.contains(&check.id));
    let checks = baseline.chain(restricted).filter_map(|check| check.revision(minor));
    checks.filter_map(|check| check(pod)).collect()
}

/// The reasons with their details.
pub(super) fn details(violations: &[Violation]) -> String {
    let one = |violation: &Violation| match violation.detail.as_str() {
        "" => violation.reason.to_owned(),
        detail => format!("{} ({detail})", violation.reason),
    };
    violations.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The reasons alone.
pub(super) fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

impl<'a> PodView<'a> {
    /// Init containers, containers and ephemeral containers.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| self.list(list))
    }

    /// A list of the spec.
    pub(super) fn list(self, field: &str) -> &'a [Value] {
        self.spec[field].as_array().map_or(&[], Vec::as_slice)
    }

    /// The names of the containers that match.
    pub(super) fn containers_where(self, matches: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| matches(container)).map(name).collect()
    }

    /// Whether root in the pod is not root on the node.
    pub(super) fn has_user_namespace(self) -> bool {
        self.spec["hostUsers"] == false
    }

    pub(super) fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

/// The name of a container or volume.
pub(super) fn name(item: &Value) -> &str {
    item["name"].as_str().unwrap_or_default()
}

/// `"a", "b"`
pub(super) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

/// `container "a"`, `containers "a", "b"`
pub(super) fn counted<T: AsRef<str>>(noun: &str, names: &[T]) -> String {
    format!("{noun}{} {}", plural(names.len()), quoted(names))
}

/// The ending of a noun.
pub(super) fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The ending of a verb.
pub(super) fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

/// The pod and its containers as the subject of a sentence; `None` if neither is the matter.
pub(super) fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let containers = (!containers.is_empty()).then(|| counted("container", containers));
    match (pod, containers) {
        (false, None) => None,
        (true, None) => Some("pod".to_owned()),
        (false, Some(containers)) => Some(containers),
        (true, Some(containers)) => Some(format!("pod and {containers}")),
    }
}
