//! The five conditions of a terminating namespace, with upstream's reasons and messages.

use std::collections::BTreeMap;
use std::fmt::Display;

use keleustes_objects::Time;
use serde_json::{Value, json};

use super::content::DeletionResult;

/// A wanted condition.
struct WantedCondition {
    r#type: &'static str,
    /// `false` is good: each condition is named after a failure.
    status: bool,
    reason: &'static str,
    message: String,
}

/// Updates the conditions of a namespace from a deletion result. Other conditions and the order of all are
/// kept. Returns whether anything changed.
pub(super) fn update(conditions: &mut Vec<Value>, result: &DeletionResult, now: Time) -> bool {
    let mut changed = false;
    for wanted in wanted(result) {
        let WantedCondition { r#type, status, reason, message } = wanted;
        let status = if status { "True" } else { "False" };
        let Some(old) = conditions.iter_mut().find(|condition| condition["type"] == r#type) else {
            conditions.push(json!({"type": r#type, "status": status, "lastTransitionTime": now,
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

fn wanted(result: &DeletionResult) -> [WantedCondition; 5] {
    let condition = |r#type, good: (&'static str, &str), bad: (&'static str, Option<String>)| match bad {
        (reason, Some(message)) => WantedCondition { r#type, status: true, reason, message },
        (_, None) => WantedCondition { r#type, status: false, reason: good.0, message: good.1.to_owned() },
    };
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            ("ResourcesDiscovered", "All resources successfully discovered"),
            ("DiscoveryFailed", result.discovery_failure.clone()),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ("GroupVersionParsingFailed", result.parsing_failure.clone()),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ("ContentDeletionFailed", content_failure(&result.content_failures)),
        ),
        condition(
            "NamespaceContentRemaining",
            ("ContentRemoved", "All content successfully removed"),
            (
                "SomeResourcesRemain",
                counts_message(&result.remaining, "Some resources are remaining: ", "has", |resource| {
                    format!("{}.{}", resource.plural, resource.group)
                }),
            ),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            (
                "SomeFinalizersRemain",
                counts_message(
                    &result.finalizers,
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
fn counts_message<K>(
    counts: &BTreeMap<K, usize>,
    begin: &str,
    verb: &str,
    name: impl Fn(&K) -> String,
) -> Option<String> {
    let line = |(key, count): (&K, &usize)| format!("{} {verb} {count} resource instances", name(key));
    let mut lines: Vec<_> = counts.iter().map(line).collect();
    lines.sort();
    (!lines.is_empty()).then(|| format!("{begin}{}", lines.join(", ")))
}

/// One message for all groups whose discovery failed.
pub(super) fn discovery_failure_message(failed: &BTreeMap<String, impl Display>) -> String {
    let mut lines: Vec<_> = failed.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    lines.sort();
    let (count, all) = (failed.len(), lines.join(", "));
    format!(
        "Discovery failed for some groups, {count} failing: \
         unable to retrieve the complete list of server APIs: {all}"
    )
}
