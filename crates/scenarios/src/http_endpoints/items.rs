//! Splits responses into comparable items: everything that monitoring could depend on, without values that
//! only distinguish two processes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::Value;

/// Items by name, which begins with the path of its endpoint.
pub(super) type Items = BTreeMap<String, String>;

/// Labels whose values depend on the requests so far.
const TRANSIENT_LABELS: [&str; 6] = ["code", "le", "method", "result", "verb", "username"];

/// Families whose values are compared.
const EXACT_FAMILIES: [&str; 3] =
    ["kubernetes_feature_enabled", "leader_election_master_status", "running_managed_controllers"];

/// Fields that only distinguish two processes.
const TRANSIENT_FIELDS: [&str; 2] = ["startTime", "uptimeSeconds"];

/// Fields that hold a set, which the original prints in random order.
const SETS: [&str; 1] = ["GCIgnoredResources"];

/// Splits metrics: each family with its type, label names and buckets; each series by its stable labels.
pub(super) fn metrics(text: &str, page: &str, items: &mut Items) -> anyhow::Result<()> {
    let mut types = BTreeMap::new();
    let mut families: BTreeMap<&str, Family> = BTreeMap::new();
    let mut stabilities = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            let stability = help.strip_prefix('[').and_then(|help| help.split_once("] "));
            stabilities.insert(name, stability.map_or("no stability", |(stability, _)| stability));
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("a type without a name")?;
            types.insert(name, kind);
            continue;
        }
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').context("a series without a value")?;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let family = ["_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|suffix| {
                name.strip_suffix(suffix)
                    .filter(|name| matches!(types.get(name), Some(&("histogram" | "summary"))))
            })
            .unwrap_or(name);
        families.entry(family).or_default().add(labels, value);
    }
    // Metrics of this program only have their own prefix.
    for (name, family) in families.into_iter().filter(|(name, _)| !name.starts_with("keleustes_")) {
        let kind = types.get(name).copied().unwrap_or("untyped");
        let kind = format!("{}: {kind}", stabilities.get(name).copied().unwrap_or_default());
        family.add_to(&format!("{page} {name}"), &kind, EXACT_FAMILIES.contains(&name), items);
    }
    Ok(())
}

/// All series of one name.
#[derive(Default)]
struct Family {
    labels: BTreeSet<String>,
    buckets: BTreeSet<String>,
    series: BTreeMap<String, String>,
}

impl Family {
    fn add(&mut self, labels: &str, value: &str) {
        let labels = labels.trim_end_matches('}').trim_end_matches(',');
        let mut stable = Vec::new();
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let Some((name, of)) = label.split_once("=\"") else { continue };
            let of = of.trim_end_matches('"');
            if name == "le" {
                self.buckets.insert(of.to_owned());
            } else {
                self.labels.insert(name.to_owned());
            }
            if !TRANSIENT_LABELS.contains(&name) {
                stable.push(format!("{name}={of}"));
            }
        }
        self.series.insert(stable.join(","), value.to_owned());
    }

    fn add_to(self, name: &str, kind: &str, exact: bool, items: &mut Items) {
        let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(",");
        let form = format!("{kind} of ({}), buckets ({})", list(self.labels), list(self.buckets));
        items.insert(name.to_owned(), form);
        for (labels, value) in self.series.into_iter().filter(|(labels, _)| !labels.is_empty()) {
            let value = if exact { value } else { String::new() };
            items.insert(format!("{name}{{{labels}}}"), value);
        }
    }
}

/// Splits the response of the health endpoint: each check, and the result.
pub(super) fn checks(text: &str, items: &mut Items) {
    for line in text.lines() {
        let (name, verdict) = line.rsplit_once(' ').unwrap_or((line, ""));
        items.insert(format!("/healthz?verbose {name}"), verdict.to_owned());
    }
}

/// Splits JSON: each leaf by its path.
pub(super) fn fields(value: &Value, page: &str, items: &mut Items) {
    fn walk(value: &Value, path: &str, items: &mut Items) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (name, value) in map.iter().filter(|(name, _)| !TRANSIENT_FIELDS.contains(&name.as_str()))
                {
                    let dot = if path.ends_with(' ') { "" } else { "." };
                    walk(value, &format!("{path}{dot}{name}"), items);
                }
            }
            Value::Array(list) if !list.is_empty() => {
                let mut list: Vec<_> = list.iter().map(ToString::to_string).collect();
                if SETS.iter().any(|set| path.ends_with(set)) {
                    list.sort_unstable();
                }
                items.insert(path.to_owned(), list.join(", "));
            }
            leaf => {
                items.insert(path.to_owned(), leaf.to_string());
            }
        }
    }
    walk(value, &format!("{page} "), items);
}
