//! Structural schemas of custom resources: defaulting, pruning and validation.
//!
//! CEL rules are not evaluated.

use serde_json::{Map, Value, json};

use super::status::FieldError;
use super::types::{self, Node, Struct};

/// The schema of one version of a custom resource.
#[derive(Debug)]
pub(crate) struct Schema {
    rules: &'static Value,
    shape: &'static Struct,
}

impl Schema {
    /// Leaks the schema: resources live as long as the process.
    pub(crate) fn new(rules: Value) -> &'static Schema {
        let rules: &'static Value = Box::leak(Box::new(rules));
        Box::leak(Box::new(Schema { rules, shape: types::of_schema(rules) }))
    }

    /// The root of the type.
    pub(crate) fn node(&self) -> Node {
        Node::Struct(self.shape)
    }

    /// The schema as OpenAPI publishes it, without what every object has.
    pub(crate) fn published(&self) -> Value {
        self.rules.clone()
    }

    /// Sets defaults and prunes unknown fields; returns the paths of the pruned fields.
    pub(crate) fn default_and_prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        fill(self.rules, object);
        let metadata = ["apiVersion", "kind", "metadata"];
        prune(self.rules, &metadata, "", object, &mut unknown);
        unknown
    }

    /// Validates the object; unchanged invalid values are accepted (ratcheting).
    pub(crate) fn validate(&self, old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
        check(self.rules, "", old, new, errors);
    }
}

/// Whether the schema preserves unknown fields here.
fn preserves_unknown_fields(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true
}

/// The schema of the field of that name.
fn below<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let property = schema["properties"].get(name);
    property.or_else(|| schema.get("additionalProperties").filter(|values| values.is_object()))
}

fn prune(schema: &Value, preserved: &[&str], path: &str, value: &mut Value, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            if preserved.contains(&name.as_str()) {
                return true;
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let known = below(schema, name);
            match known {
                Some(schema) => prune(schema, &[], &path, value, unknown),
                None if !preserves_unknown_fields(schema) => unknown.push(path),
                None => {}
            }
            known.is_some() || preserves_unknown_fields(schema)
        }),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                prune(&schema["items"], &[], &format!("{path}[{at}]"), item, unknown);
            }
        }
        _ => {}
    }
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let Some(default) = property.get("default") else { continue };
                let absent =
                    map.get(name).is_none_or(|value| value.is_null() && property["nullable"] != true);
                if absent {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map {
                below(schema, name).into_iter().for_each(|schema| fill(schema, value));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}

fn check(schema: &Value, path: &str, old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    // Ratcheting: an unchanged value is not validated.
    if old == Some(new) || (new.is_null() && schema["nullable"] == true) {
        return;
    }
    if let Some(wanted) = type_error(schema, new) {
        let found = type_of(new);
        let why = format!("{path} in body must be of type {wanted}: {found:?}");
        errors.push(FieldError::wrong_type(path, found, &why));
        return;
    }
    check_value(schema, path, new, errors);
    match new {
        Value::Object(map) => check_map(schema, path, old, map, errors),
        Value::Array(items) => check_list(schema, path, old, items, errors),
        _ => {}
    }
}

fn check_value(schema: &Value, path: &str, new: &Value, errors: &mut Vec<FieldError>) {
    let mut invalid = |why: String| {
        errors.push(FieldError::invalid(path, new, &format!("{path} in body {why}")));
    };
    for (rule, broken, words) in [
        ("minimum", new.as_f64() < schema["minimum"].as_f64(), "should be greater than or equal to"),
        (
            "maximum",
            schema["maximum"].is_number() && new.as_f64() > schema["maximum"].as_f64(),
            "should be less than or equal to",
        ),
    ] {
        if new.is_number() && schema[rule].is_number() && broken {
            invalid(format!("{words} {}", schema[rule]));
        }
    }
    let length = new.as_str().map(|text| text.chars().count() as u64);
    if let (Some(length), Some(least)) = (length, schema["minLength"].as_u64())
        && length < least
    {
        invalid(format!("should be at least {least} chars long"));
    }
    if let (Some(length), Some(most)) = (length, schema["maxLength"].as_u64())
        && length > most
    {
        errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
    }
    let allowed = schema["enum"].as_array();
    if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(new)) {
        let listed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        let detail = format!("supported values: {}", listed.join(", "));
        errors.push(FieldError::not_supported_value(path, new, &detail));
    }
}

fn check_map(
    schema: &Value,
    path: &str,
    old: Option<&Value>,
    new: &Map<String, Value>,
    errors: &mut Vec<FieldError>,
) {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !new.contains_key(name) {
            errors.push(FieldError::required(&at(name), ""));
        }
    }
    for (name, value) in new {
        if let Some(schema) = below(schema, name) {
            check(schema, &at(name), old.and_then(|old| old.get(name)), value, errors);
        }
    }
}

fn check_list(schema: &Value, path: &str, old: Option<&Value>, new: &[Value], errors: &mut Vec<FieldError>) {
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let key = |item: &Value| -> Value {
        keys.iter()
            .filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone())))
            .collect::<Map<_, _>>()
            .into()
    };
    let before = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (at, item) in new.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let (identity, twice) = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => (item.clone(), new[..at].contains(item)),
            Some("map") => (key(item), new[..at].iter().any(|other| key(other) == key(item))),
            _ => (Value::Null, false),
        };
        if twice {
            errors.push(FieldError::duplicate(&path, &identity));
        }
        let known = before.iter().find(|known| !keys.is_empty() && key(known) == identity);
        check(&schema["items"], &path, known, item, errors);
    }
    if let Some(most) = schema["maxItems"].as_u64().filter(|most| new.len() as u64 > *most) {
        let why = format!("{path} in body should have at most {most} items");
        errors.push(FieldError::invalid(path, &json!(new.len()), &why));
    }
}

/// The expected type, if the value has another.
fn type_error<'a>(schema: &'a Value, value: &Value) -> Option<&'a str> {
    if schema["x-kubernetes-int-or-string"] == true {
        return (!value.is_string() && !value.is_i64() && !value.is_u64()).then_some("integer,string");
    }
    let wanted = schema["type"].as_str()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        _ => true,
    };
    (!fits).then_some(wanted)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> &'static Schema {
        Schema::new(json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 9},
            "colour": {"type": "string", "enum": ["blue", "red"], "default": "blue"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        }}}}))
    }

    fn violations(old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        schema().validate(old, new, &mut errors);
        errors.iter().map(FieldError::message).collect()
    }

    #[test]
    fn schema_sets_defaults_and_prunes_unknown_fields() {
        let mut object = json!({"kind": "Widget", "metadata": {"name": "w", "odd": 1}, "odd": 1,
            "spec": {"size": 1, "odd": 1, "free": {"odd": 1}, "counts": {"odd": 1}}});
        let unknown = schema().default_and_prune(&mut object);
        assert_eq!(unknown, ["odd", "spec.odd"]);
        assert_eq!(
            object,
            json!({"kind": "Widget", "metadata": {"name": "w", "odd": 1},
                "spec": {"size": 1, "colour": "blue", "free": {"odd": 1}, "counts": {"odd": 1}}})
        );
    }

    #[test]
    fn schema_violations_have_the_field_path() {
        let spec = |spec: Value| json!({ "spec": spec });
        assert!(violations(None, &spec(json!({"size": 3, "tags": ["a", "b"]}))).is_empty());
        for (wrong, why) in [
            (
                json!({"size": "big"}),
                "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
            ),
            (
                json!({"size": -1}),
                "spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
            ),
            (
                json!({"size": 10}),
                "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9",
            ),
            (json!({}), "spec.size: Required value"),
            (
                json!({"size": 1, "colour": "odd"}),
                "spec.colour: Unsupported value: \"odd\": supported values: \"blue\", \"red\"",
            ),
            (
                json!({"size": 1, "counts": {"a": "x"}}),
                "spec.counts.a: Invalid value: \"string\": spec.counts.a in body must be of type integer: \"string\"",
            ),
            (json!({"size": 1, "tags": ["a", "a"]}), "spec.tags[1]: Duplicate value: \"a\""),
        ] {
            assert_eq!(violations(None, &spec(wrong)), [why]);
        }
        // Ratcheting: a value from before the rule stays valid.
        let old = spec(json!({"size": 10, "colour": "blue"}));
        assert!(violations(Some(&old), &spec(json!({"size": 10, "colour": "red"}))).is_empty());
    }
}
