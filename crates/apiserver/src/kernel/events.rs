//! Events are stored as core/v1; events.k8s.io has other names for the same fields.

use serde_json::{Value, json};

/// Field names in core/v1 and in events.k8s.io.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

const MAY_BE_MISSING: [&str; 2] = ["reportingController", "reportingInstance"];

/// Converts events.k8s.io to core/v1.
pub(crate) fn to_storage_version(object: Value) -> Value {
    renamed(object, "v1", |(core, events)| (events, core))
}

/// Converts core/v1 to events.k8s.io.
pub(crate) fn to_served_version(object: Value) -> Value {
    let mut converted = renamed(object, "events.k8s.io/v1", |names| names);
    // events.k8s.io omits these fields when they are empty.
    if let Some(map) = converted.as_object_mut() {
        map.retain(|name, value| !MAY_BE_MISSING.contains(&name.as_str()) || *value != "");
    }
    converted
}

fn renamed(
    mut object: Value,
    api_version: &str,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    if let Some(map) = object.as_object_mut() {
        for names in NAMES {
            let (from, to) = direction(*names);
            if let Some(value) = map.remove(from) {
                map.insert(to.to_owned(), value);
            }
        }
        map.insert("apiVersion".to_owned(), json!(api_version));
    }
    object
}
