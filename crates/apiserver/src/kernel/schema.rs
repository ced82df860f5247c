//! Validates an applied configuration against the schema of its kind, with kube-apiserver's messages.

use serde_json::Value;

use super::types::{ListKind, Node, Scalar};

/// All schema violations of the value.
pub(crate) fn violations(node: Node, value: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    check(node, "", value, &mut violations);
    violations
}

fn check(node: Node, path: &str, value: &Value, violations: &mut Vec<String>) {
    if let Some(violation) = type_error(node, value) {
        violations.push(format!("{path}: {violation}"));
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = format!("{path}.{name}");
                if node.allows_field(name) {
                    check(node.field(name), &path, value, violations);
                } else {
                    violations.push(format!("{path}: field not declared in schema"));
                }
            }
        }
        Value::Array(items) => check_list(node, path, items, violations),
        _ => {}
    }
}

fn check_list(node: Node, path: &str, items: &[Value], violations: &mut Vec<String>) {
    let mut seen: Vec<String> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let key = match node.list_kind() {
            ListKind::Atomic => format!("[{at}]"),
            ListKind::Set => format!("[={item}]"),
            ListKind::Keyed(keys) => match node.item_key(keys, item) {
                Some(key) => {
                    let parts = key.as_object().into_iter().flatten();
                    let parts: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
                    format!("[{}]", parts.join(","))
                }
                None => {
                    let keys = keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" ");
                    violations.push(format!(
                        "{path}: element {at}: associative list with keys has an element that omits all key fields \
                         [{keys}] (and doesn't have default values for any key fields)"
                    ));
                    continue;
                }
            },
        };
        if node.list_kind() != ListKind::Atomic && seen.contains(&key) {
            violations.push(format!("{path}: duplicate entries for key {key}"));
        }
        check(node.item(), &format!("{path}{key}"), item, violations);
        seen.push(key);
    }
}

/// Why a value of this type is not allowed at the node.
fn type_error(node: Node, value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let printed = || match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match (node.scalar(), value) {
        (Scalar::Number, Value::Number(_))
        | (Scalar::Text, Value::String(_))
        | (Scalar::Flag, Value::Bool(_))
        | (Scalar::Any, _) => None,
        (Scalar::Number, value) => {
            let found = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            Some(format!("expected numeric (int or float), got {found}"))
        }
        (Scalar::Text, _) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", printed()))
        }
        (Scalar::Flag, _) => Some(format!("expected boolean, got &{{{}}}", printed())),
        (Scalar::Map, Value::Object(_)) | (Scalar::List, Value::Array(_)) => None,
        (Scalar::Map, _) => Some(format!("expected map, got &{{{}}}", printed())),
        (Scalar::List, _) => Some(format!("expected list, got &{{{}}}", printed())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::types::of_kind;
    use super::*;

    #[test]
    fn apply_schema_violations_have_the_field_path() {
        let pod = Node::Struct(of_kind("", "v1", "Pod").unwrap());
        let container = |name: &str| json!({"name": name, "image": "i", "odd": 1});
        let value = json!({"metadata": {"labels": {"a": "b"}}, "strange": {},
            "spec": {"containers": [container("a"), container("a"), {"image": "x"}], "priority": "high"}});
        assert_eq!(
            violations(pod, &value),
            [
                ".spec.containers[name=\"a\"].odd: field not declared in schema",
                ".spec.containers: duplicate entries for key [name=\"a\"]",
                ".spec.containers[name=\"a\"].odd: field not declared in schema",
                ".spec.priority: expected numeric (int or float), got string",
                ".strange: field not declared in schema",
            ]
        );
        assert!(
            violations(pod, &json!({"spec": {"containers": [{"name": "a"}]}, "metadata": {"name": "p"}}))
                .is_empty()
        );
    }
}
