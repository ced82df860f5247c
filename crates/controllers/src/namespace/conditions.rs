//! What people can read about a namespace that goes: five conditions, in the original's words.

use std::collections::BTreeMap;
use std::fmt::Display;

use keleustes_objects::Time;
use serde_json::{Value, json};

use super::content::Pass;

/// A condition, as it should be.
struct Wanted {
    r#type: &'static str,
    /// False is good: each condition is named after what can be bad.
    status: bool,
    reason: &'static str,
    message: String,
}

/// Brings the conditions of a namespace up to date with a pass. Conditions of others, and the places of all,
/// stay as they are. Tells whether anything changed.
pub(super) fn refresh(there: &mut Vec<Value>, pass: &Pass, now: Time) -> bool {
    let mut changed = false;
    for wanted in wanted(pass) {
        let Wanted { r#type, status, reason, message } = wanted;
        let status = if status { "True" } else { "False" };
        let Some(old) = there.iter_mut().find(|condition| condition["type"] == r#type) else {
            there.push(json!({"type": r#type, "status": status, "lastTransitionTime": now,
                "reason": reason, "message": message}));
            changed = true;
            continue;
        };
        if old["status"] != status {
            old["lastTransitionTime"] = json!(now);
        }
        for (field, value) in [("status", status), ("reason", reason), ("message", &*message)] {
            if old[field] != value {
                old[field] = json!(value);
                changed = true;
            }
        }
    }
    changed
}

fn wanted(pass: &Pass) -> [Wanted; 5] {
    let condition = |r#type, good: (&'static str, &str), bad: (&'static str, Option<String>)| match bad {
        (reason, Some(message)) => Wanted { r#type, status: true, reason, message },
        (_, None) => Wanted { r#type, status: false, reason: good.0, message: good.1.to_owned() },
    };
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            ("ResourcesDiscovered", "All resources successfully discovered"),
            ("DiscoveryFailed", pass.discovery_failure.clone()),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ("GroupVersionParsingFailed", pass.parsing_failure.clone()),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ("ContentDeletionFailed", content_failure(&pass.content_failures)),
        ),
        condition(
            "NamespaceContentRemaining",
            ("ContentRemoved", "All content successfully removed"),
            (
                "SomeResourcesRemain",
                listed(&pass.remaining, "Some resources are remaining: ", "has", |resource| {
                    format!("{}.{}", resource.plural, resource.group)
                }),
            ),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            (
                "SomeFinalizersRemain",
                listed(
                    &pass.finalizers,
                    "Some content in the namespace has finalizers remaining: ",
                    "in",
                    ToString::to_string,
                ),
            ),
        ),
    ]
}

fn content_failure(failures: &[String]) -> Option<String> {
    let mut sorted = failures.to_vec();
    sorted.sort();
    let (count, all) = (failures.len(), sorted.join(", "));
    (count > 0).then(|| format!("Failed to delete all resource types, {count} remaining: {all}"))
}

/// `X has N resource instances, …`, sorted; nothing if there are none.
fn listed<K>(
    counts: &BTreeMap<K, usize>,
    begin: &str,
    joint: &str,
    name: impl Fn(&K) -> String,
) -> Option<String> {
    let line = |(key, count): (&K, &usize)| format!("{} {joint} {count} resource instances", name(key));
    let mut lines: Vec<_> = counts.iter().map(line).collect();
    lines.sort();
    (!lines.is_empty()).then(|| format!("{begin}{}", lines.join(", ")))
}

/// The names and reasons of what could not be discovered, in one sentence.
pub(super) fn undiscovered(failed: &BTreeMap<String, impl Display>) -> String {
    let mut lines: Vec<_> = failed.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    lines.sort();
    let (count, all) = (failed.len(), lines.join(", "));
    format!(
        "Discovery failed for some groups, {count} failing: \
         unable to retrieve the complete list of server APIs: {all}"
    )
}
