//! Revision numbers, and the annotations that a ReplicaSet gets from its Deployment.

use std::collections::BTreeMap;

use keleustes_objects::{Annotations, Deployment, FullMeta as _, ReplicaSet};

use super::annotations::{
    DESIRED_REPLICAS, LAST_APPLIED, MAX_REPLICAS, REVISION, REVISION_HISTORY, ROLLBACK_TO,
};
use super::inputs::{Inputs, number};

/// The maximum length of the revision-history annotation in bytes.
const HISTORY_MAX: usize = 2000;

/// Annotations that are not copied between Deployments and ReplicaSets.
const NOT_COPIED: [&str; 6] =
    [REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, LAST_APPLIED, ROLLBACK_TO];

/// The revision of a ReplicaSet: 0 if the annotation is missing, `None` if it is not a number.
pub(super) fn valid_revision(set: &ReplicaSet) -> Option<i64> {
    set.annotations().value(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// The revision of a ReplicaSet; 0 if the annotation is missing or not a number.
pub(super) fn revision(set: &ReplicaSet) -> i64 {
    number(set.annotations(), REVISION).unwrap_or(0)
}

/// The revision of the new ReplicaSet.
pub(super) fn next_revision(inputs: &Inputs) -> i64 {
    inputs.old.iter().map(|set| revision(set)).max().unwrap_or(0).max(0) + 1
}

/// The annotations that are copied.
pub(super) fn copied_annotations(annotations: &Annotations) -> impl Iterator<Item = (&str, &str)> {
    let all = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    all.filter(|(key, _)| !NOT_COPIED.contains(key))
}

/// The annotations of a ReplicaSet to be created.
pub(super) fn initial_annotations(inputs: &Inputs) -> BTreeMap<String, String> {
    let copied = copied_annotations(inputs.deployment.annotations());
    let mut all: BTreeMap<_, _> = copied.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    all.insert(REVISION.to_owned(), next_revision(inputs).to_string());
    all.extend(size_annotations(inputs));
    all
}

/// The annotations that record for which size a ReplicaSet was resized.
pub(super) fn size_annotations(inputs: &Inputs) -> [(String, String); 2] {
    let (desired, surge) = (inputs.desired(), inputs.bounds().surge);
    [
        (DESIRED_REPLICAS.to_owned(), desired.to_string()),
        (MAX_REPLICAS.to_owned(), desired.saturating_add(surge).to_string()),
    ]
}

/// The annotations of the new ReplicaSet that are missing or differ, and whether its revision is a number. A
/// revision that is not a number stays.
pub(super) fn missing_annotations(
    deployment: &Deployment,
    new_set: &ReplicaSet,
    desired: i64,
) -> (BTreeMap<String, String>, bool) {
    let existing = new_set.annotations();
    let written = existing.value(REVISION).map_or("", |text| text.as_str());
    let before = if written.is_empty() { Some(0) } else { written.parse::<i64>().ok() };
    let copied = copied_annotations(deployment.annotations());
    let copied = copied.filter(|(key, value)| existing.value(key).is_none_or(|existing| *existing != *value));
    let mut missing: BTreeMap<_, _> = copied.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if before.is_some_and(|before| before < desired) {
        missing.insert(REVISION.to_owned(), desired.to_string());
        if existing.value(REVISION).is_some() {
            let history = existing.value(REVISION_HISTORY).map_or("", |text| text.as_str());
            if let Some(history) = longer_history(history, written) {
                missing.insert(REVISION_HISTORY.to_owned(), history);
            }
        }
    }
    (missing, before.is_some())
}

/// The revision history with one more number. The oldest numbers are dropped if it becomes too long; a number
/// that is too long by itself is left out.
fn longer_history(history: &str, number: &str) -> Option<String> {
    let mut rest = Some(history).filter(|history| !history.is_empty());
    while let Some(existing) = rest.filter(|existing| existing.len() + 1 + number.len() > HISTORY_MAX) {
        rest = existing.split_once(',').map(|(_, younger)| younger);
    }
    match rest {
        Some(rest) => Some(format!("{rest},{number}")),
        None => Some(number.to_owned()).filter(|number| number.len() <= HISTORY_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves DEP-27.
    #[test]
    fn revision_history_appends_and_drops_the_oldest() {
        assert_eq!(longer_history("", "1").as_deref(), Some("1"));
        assert_eq!(longer_history("1", "2").as_deref(), Some("1,2"));
        let long = (0..500).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert!(long.len() < HISTORY_MAX);
        let full = format!("{long},{}", "9".repeat(HISTORY_MAX - long.len() - 1));
        assert_eq!(full.len(), HISTORY_MAX);
        let grown = longer_history(&full, "7").unwrap();
        assert!(grown.len() <= HISTORY_MAX && grown.starts_with("1,2,3") && grown.ends_with(",7"));
        assert_eq!(longer_history(&"9".repeat(HISTORY_MAX), "7").as_deref(), Some("7"));
        assert_eq!(longer_history("1", &"0".repeat(HISTORY_MAX + 1)), None);
    }
}
