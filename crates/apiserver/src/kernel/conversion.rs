//! Conversion between the storage version and the served versions of a kind.
//!
//! Events are served in two groups and autoscalers in two versions, with different field names. The versions of a
//! custom resource differ in nothing but apiVersion.

use std::sync::Arc;

use serde_json::{Value, json};

use super::resources::{Resource, Strategy};
use super::stored_object::SharedObject;
use super::{autoscalers, events};

/// The object in its storage version.
pub(crate) fn to_storage_version(resource: &Resource, mut object: Value) -> Value {
    match resource.strategy {
        Strategy::HorizontalPodAutoscaler if resource.stored_as.is_none() => {
            autoscalers::drop_annotations(&mut object);
            object
        }
        _ if resource.stored_as.is_none() => object,
        Strategy::HorizontalPodAutoscaler => autoscalers::to_storage_version(object),
        _ => events::to_storage_version(object),
    }
}

/// A custom object as it is stored: its versions differ in nothing but apiVersion. An object that is stored in an older
/// storage version is stored again by the next write, even if that changes nothing else.
pub(crate) fn name_storage_version(resource: &Resource, object: &mut Value) {
    if !resource.storage_version.is_empty() {
        object["apiVersion"] = json!(format!("{}/{}", resource.group, resource.storage_version));
    }
}

/// The object in the version of `resource`.
pub(crate) fn to_served_version(resource: &Resource, object: &SharedObject) -> SharedObject {
    // An object built for this version, such as a bookmark, needs no conversion.
    if names_version(resource, object) {
        return Arc::clone(object);
    }
    let shown = match resource.strategy {
        Strategy::HorizontalPodAutoscaler if resource.stored_as.is_some() => {
            autoscalers::to_served_version(object)
        }
        Strategy::Event if resource.stored_as.is_some() => events::to_served_version(Value::clone(object)),
        _ if resource.is_custom() => {
            let mut shown = Value::clone(object);
            shown["apiVersion"] = json!(resource.api_version());
            shown
        }
        _ => return Arc::clone(object),
    };
    Arc::new(shown)
}

fn names_version(resource: &Resource, object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version == resource.api_version())
}
