//! Events have two views: they are stored in the form of the core group and shown in that of events.k8s.io as well.
//!
//! The versions of a custom resource are views too; they differ in nothing but their name.

use std::sync::Arc;

use serde_json::{Value, json};

use super::resources::Resource;
use super::store::Stored;

/// Fields by their names in the core group and in events.k8s.io.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The object as it is stored.
pub(crate) fn stored_form(resource: &Resource, object: Value) -> Value {
    if resource.stored_as.is_none() {
        return object;
    }
    renamed(object, "v1", |(core, events)| (events, core))
}

/// The object as this view shows it.
pub(crate) fn shown_form(resource: &Resource, object: &Stored) -> Stored {
    if resource.stored_as.is_some() && object["apiVersion"] == "v1" {
        return Arc::new(renamed(Value::clone(object), "events.k8s.io/v1", |names| names));
    }
    if resource.is_custom() && !names_version(resource, object) {
        let mut shown = Value::clone(object);
        shown["apiVersion"] = json!(resource.api_version());
        return Arc::new(shown);
    }
    Arc::clone(object)
}

fn names_version(resource: &Resource, object: &Value) -> bool {
    let version = object["apiVersion"].as_str().and_then(|text| text.rsplit_once('/'));
    version.is_some_and(|(_, version)| version == resource.version)
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
