//! Says which objects the playground's API server stores and does not enforce.

use serde_json::Value;

/// Kinds of which nothing is enforced, and what a real API server would do with them.
const KINDS: [(&str, &str); 6] = [
    ("ValidatingWebhookConfiguration", "webhooks are not called"),
    ("MutatingWebhookConfiguration", "webhooks are not called"),
    ("ValidatingAdmissionPolicy", "admission policies are not evaluated"),
    ("ValidatingAdmissionPolicyBinding", "admission policies are not evaluated"),
    ("MutatingAdmissionPolicy", "admission policies are not evaluated"),
    ("MutatingAdmissionPolicyBinding", "admission policies are not evaluated"),
];

/// One sentence for each part of an object that has no effect.
pub(super) fn not_enforced(object: &Value) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let mut found: Vec<String> = KINDS
        .iter()
        .filter(|(known, _)| *known == kind)
        .map(|(_, what)| format!("stored and not enforced by the playground: {what}"))
        .collect();
    if kind == "CustomResourceDefinition" && has_rules(&object["spec"]["versions"]) {
        found.push(
            "stored and not enforced by the playground: x-kubernetes-validations rules are not evaluated"
                .to_owned(),
        );
    }
    found
}

/// Whether a schema has rules anywhere.
fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("x-kubernetes-validations").is_some_and(|rules| !rules.is_null());
            own || fields.values().any(has_rules)
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_without_effect_are_named() {
        for (object, words) in [
            (json!({"kind": "ValidatingWebhookConfiguration"}), "webhooks are not called"),
            (json!({"kind": "ValidatingAdmissionPolicy"}), "policies are not evaluated"),
            (
                json!({"kind": "CustomResourceDefinition", "spec": {"versions": [{"schema": {"openAPIV3Schema":
                    {"properties": {"spec": {"x-kubernetes-validations": [{"rule": "true"}]}}}}}]}}),
                "x-kubernetes-validations",
            ),
        ] {
            let found = not_enforced(&object);
            assert!(found.len() == 1 && found[0].contains(words), "{object}: {found:?}");
        }
        for object in [
            json!({"kind": "Namespace", "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}),
            json!({"kind": "LimitRange"}),
            json!({"kind": "CustomResourceDefinition", "spec": {"versions": [{}]}}),
            json!({"kind": "Pod"}),
        ] {
            assert!(not_enforced(&object).is_empty(), "{object}");
        }
    }
}
