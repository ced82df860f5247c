//! Object metadata is well-typed, normalised and within the naming rules before anything else looks at it.

use serde_json::{Map, Value, json};

use super::resources::{NameRule, Resource};
use super::status::FieldError;

/// Finalizers that need no domain prefix.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Largest total of annotation keys and values, in bytes.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

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
        // Two lines above the value was made an object.
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

/// Whether deletion has begun.
pub(crate) fn is_terminating(object: &Value) -> bool {
    !meta_str(object, "deletionTimestamp").is_empty()
}

/// Rules on metadata that hold for every kind; problems are pushed to `errors`.
pub(crate) fn validate(resource: &Resource, object: &Value, errors: &mut Vec<FieldError>) {
    let name = meta_str(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = name_problem(resource.names, name) {
        errors.push(FieldError::invalid("metadata.name", &json!(name), why));
    }
    validate_labels(object, errors);
    let annotations = meta(object, "annotations").and_then(Value::as_object);
    let bytes: usize = annotations
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if bytes > ANNOTATION_BYTES_MAX {
        errors.push(FieldError::forbidden("metadata.annotations", "must have at most 262144 bytes"));
    }
    for key in annotations.into_iter().flat_map(Map::keys) {
        if !is_qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(
                "metadata.annotations",
                &json!(key),
                "name part must consist of alphanumeric characters, '-', '_' or '.'",
            ));
        }
    }
    validate_owners(object, errors);
    for (at, finalizer) in finalizers(object).into_iter().enumerate() {
        if !is_qualified_name(finalizer)
            || (!finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer))
        {
            errors.push(FieldError::invalid(
                &format!("metadata.finalizers[{at}]"),
                &json!(finalizer),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

fn validate_labels(object: &Value, errors: &mut Vec<FieldError>) {
    let labels = meta(object, "labels").and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        if !is_qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", &json!(key), "not a qualified name"));
        }
        if !is_label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.labels", value, "not a valid label value"));
        }
    }
}

fn validate_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let owners = meta(object, "ownerReferences").and_then(Value::as_array);
    let mut controllers = 0;
    for (at, owner) in owners.into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{at}].{field}");
                errors.push(FieldError::required(&path, "must not be empty"));
            }
        }
        controllers += usize::from(owner.get("controller") == Some(&json!(true)));
    }
    if controllers > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &json!(controllers),
            "Only one reference can have Controller set to true",
        ));
    }
}

/// Why `name` breaks the rule, if it does.
pub(crate) fn name_problem(rule: NameRule, name: &str) -> Option<&'static str> {
    match rule {
        NameRule::Subdomain if name.len() > 253 || !name.split('.').all(is_dns_label) => Some(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'",
        ),
        NameRule::Label if name.len() > 63 || !is_dns_label(name) => {
            Some("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'")
        }
        NameRule::PathSegment if name == "." || name == ".." || name.contains(['/', '%']) => {
            Some("may not be '.' or '..' and may not contain '/' or '%'")
        }
        _ => None,
    }
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            prefix.len() <= 253 && prefix.split('.').all(is_dns_label) && is_name_part(name)
        }
        None => is_name_part(text),
    }
}

fn is_name_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63 && text.bytes().all(inner) && edge(text.bytes().next()) && edge(text.bytes().last())
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
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
    fn naming_rules_are_kept() {
        assert_eq!(problems(&json!({"name": "a.b-c"})), 0);
        for name in ["", "A", "a_b", "-a", "a.", "a..b"] {
            assert_eq!(problems(&json!({"name": name})), 1, "{name}");
        }
        assert_eq!(name_problem(NameRule::PathSegment, "system:controller:x"), None);
        assert!(name_problem(NameRule::Label, "a.b").is_some());
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
