//! Access to and validation of object metadata.

use serde_json::{Map, Value, json};

use super::naming;
use super::resources::{NameRule, Resource};
use super::status::FieldError;

/// Finalizers that need no domain prefix.
pub(crate) const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Maximum total size of annotation keys and values, in bytes.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

/// Error message for a negative number.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// A string of `metadata`, or the empty string.
pub(crate) fn meta_str<'a>(object: &'a Value, field: &str) -> &'a str {
    object.pointer("/metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// A value of `metadata`.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// The metadata map, created if the object has none.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    match metadata {
        Value::Object(map) => map,
        // The match above has made the value an object.
        _ => unreachable!("metadata is an object"),
    }
}

/// Sets a metadata field, or removes it.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    let map = meta_mut(object);
    match value {
        Some(value) => map.insert(field.to_owned(), value),
        None => map.remove(field),
    };
}

/// The finalizers of the object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = meta(object, "finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the object has a deletionTimestamp.
pub(crate) fn is_terminating(object: &Value) -> bool {
    !meta_str(object, "deletionTimestamp").is_empty()
}

/// Validates the metadata of a new object.
pub(crate) fn validate(resource: &Resource, object: &Value, errors: &mut Vec<FieldError>) {
    let (name, prefix) = (meta_str(object, "name"), meta_str(object, "generateName"));
    if !prefix.is_empty() {
        push_errors("metadata.generateName", prefix, name_errors(resource.names, prefix, true), errors);
    }
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        push_errors("metadata.name", name, name_errors(resource.names, name, false), errors);
    }
    validate_content(resource, object, errors);
}

/// Validates the metadata of an updated object.
pub(crate) fn validate_update(resource: &Resource, old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if is_terminating(old) {
        let before = finalizers(old);
        let mut added: Vec<&str> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            added.sort_unstable();
            let listed: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                listed.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &why));
        }
    }
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = meta(new, field).unwrap_or(&Value::Null);
        if value != meta(old, field).unwrap_or(&Value::Null) {
            errors.push(FieldError::invalid(&format!("metadata.{field}"), value, "field is immutable"));
        }
    }
    let prefix = meta_str(new, "generateName");
    push_errors("metadata.generateName", prefix, naming::path_segment_prefix(prefix), errors);
    validate_content(resource, new, errors);
}

fn push_errors(field: &str, value: &str, messages: naming::NameErrors, errors: &mut Vec<FieldError>) {
    errors.extend(messages.into_iter().map(|message| FieldError::invalid(field, &json!(value), &message)));
}

fn validate_content(resource: &Resource, object: &Value, errors: &mut Vec<FieldError>) {
    if meta(object, "generation").and_then(Value::as_i64).is_some_and(|generation| generation < 0) {
        let value = meta(object, "generation").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("metadata.generation", value, NOT_NEGATIVE));
    }
    validate_labels("metadata.labels", meta(object, "labels"), errors);
    let annotations = meta(object, "annotations").and_then(Value::as_object);
    for key in annotations.into_iter().flat_map(Map::keys) {
        push_errors("metadata.annotations", key, naming::qualified(&key.to_lowercase()), errors);
    }
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if annotations.into_iter().flatten().map(size).sum::<usize>() > ANNOTATION_BYTES_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATION_BYTES_MAX));
    }
    validate_owners(object, errors);
    validate_finalizers(resource, object, errors);
}

/// Validates a map of labels at any field.
pub(crate) fn validate_labels(field: &str, labels: Option<&Value>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        push_errors(field, key, naming::qualified(key), errors);
        let value = value.as_str().unwrap_or_default();
        push_errors(field, value, naming::label_value(value), errors);
    }
}

/// Groups whose finalizers need no domain prefix.
const LENIENT_GROUPS: &[&str] =
    &["admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "node.k8s.io", "policy"];

fn validate_finalizers(resource: &Resource, object: &Value, errors: &mut Vec<FieldError>) {
    let all = finalizers(object);
    for (at, finalizer) in all.iter().enumerate() {
        push_errors("metadata.finalizers", finalizer, naming::qualified(finalizer), errors);
        let lenient = resource.is_custom() || LENIENT_GROUPS.contains(&resource.group);
        if !lenient && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&format!("metadata.finalizers[{at}]"), &json!(finalizer), why));
        }
    }
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", &json!(all), why));
    }
}

fn validate_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let owners = meta(object, "ownerReferences").and_then(Value::as_array);
    let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    let mut controller: Option<String> = None;
    for (at, owner) in owners.into_iter().flatten().enumerate() {
        let path = format!("metadata.ownerReferences[{at}]");
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                errors.push(FieldError::required(&format!("{path}.{field}"), "must not be empty"));
            }
        }
        let version = text(owner, "apiVersion");
        if version.matches('/').count() > 1 || version.ends_with('/') {
            let why = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(&format!("{path}.apiVersion"), &json!(version), why));
        }
        if version == "v1" && text(owner, "kind") == "Event" {
            errors.push(FieldError::invalid(
                &path,
                owner,
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            if let Some(first) = &controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                let all = meta(object, "ownerReferences").unwrap_or(&Value::Null);
                errors.push(FieldError::invalid("metadata.ownerReferences", all, &why));
            } else {
                controller = Some(name);
            }
        }
    }
}

/// Why `name` violates the rule; with `prefix`, a suffix is still appended to it.
pub(crate) fn name_errors(rule: NameRule, name: &str, prefix: bool) -> naming::NameErrors {
    let masked = name.strip_suffix('-').filter(|rest| prefix && !rest.is_empty());
    // The appended suffix makes a trailing dash valid.
    let masked = masked.map(|rest| format!("{rest}a"));
    let text = masked.as_deref().unwrap_or(name);
    match rule {
        NameRule::Subdomain => naming::subdomain(text),
        NameRule::Label => naming::label(text),
        NameRule::PathSegment if prefix => naming::path_segment_prefix(name),
        NameRule::PathSegment => naming::path_segment(name),
        NameRule::IpAddress => naming::canonical_ip(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resources::by_name;
    use super::*;

    fn problems(metadata: &Value) -> usize {
        let mut errors = Vec::new();
        validate(by_name("configmaps").unwrap(), &json!({"metadata": metadata}), &mut errors);
        errors.len()
    }

    #[test]
    fn naming_rules_are_enforced() {
        assert_eq!(problems(&json!({"name": "a.b-c"})), 0);
        for name in ["", "A", "a_b", "-a", "a.", "a..b"] {
            assert_eq!(problems(&json!({"name": name})), 1, "{name}");
        }
        assert!(name_errors(NameRule::PathSegment, "system:controller:x", false).is_empty());
        assert!(!name_errors(NameRule::Label, "a.b", false).is_empty());
        assert!(name_errors(NameRule::Label, "a-", true).is_empty());
    }

    #[test]
    fn labels_owners_and_finalizers_are_checked() {
        assert_eq!(problems(&json!({"name": "a", "labels": {"example.com/x": "v", "y": ""}})), 0);
        assert_eq!(problems(&json!({"name": "a", "labels": {"a b": "v", "y": "-"}})), 2);
        assert_eq!(problems(&json!({"name": "a", "finalizers": ["plain"]})), 1);
        assert_eq!(problems(&json!({"name": "a", "finalizers": ["example.com/f", "orphan"]})), 0);
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
        assert_eq!(problems(&json!({"name": "a", "ownerReferences": [owner("1")]})), 0);
        assert_eq!(problems(&json!({"name": "a", "ownerReferences": [owner("1"), owner("")]})), 2);
    }
}
