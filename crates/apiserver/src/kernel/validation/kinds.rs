//! Rules of the kinds that run no pods.

use serde_json::{Map, Value, json};

use super::super::metadata::{meta, meta_str};
use super::super::status::FieldError;

/// The type of Secrets that hold the token of a service account.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// The annotation that ties such a Secret to its account.
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

pub(super) fn secret(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    immutable_data(old, new, errors);
    if new["type"] == SERVICE_ACCOUNT_TOKEN {
        let account = meta(new, "annotations").and_then(|a| a.get(SERVICE_ACCOUNT_NAME));
        if account.and_then(Value::as_str).unwrap_or_default().is_empty() {
            let field = format!("metadata.annotations[{SERVICE_ACCOUNT_NAME}]");
            errors.push(FieldError::required(&field, ""));
        }
    }
}

pub(super) fn immutable_data(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    for key in ["data", "binaryData"].iter().filter_map(|f| new.get(*f)?.as_object()).flat_map(Map::keys) {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if key.is_empty() || key.len() > 253 || key == "." || key.starts_with("..") || !key.bytes().all(plain)
        {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
            errors.push(FieldError::invalid(&format!("data[{key}]"), &json!(key), why));
        }
    }
    let Some(old) = old.filter(|o| o["immutable"] == json!(true)) else {
        return;
    };
    for field in ["immutable", "data", "binaryData"] {
        if old.get(field) != new.get(field) {
            errors.push(FieldError::forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
}

pub(super) fn event(new: &Value, errors: &mut Vec<FieldError>) {
    let involved = new.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = meta_str(new, "namespace");
    let fits = if involved.is_empty() { matches!(namespace, "default" | "") } else { involved == namespace };
    if !fits {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &json!(involved), why));
    }
}

pub(super) fn lease(new: &Value, errors: &mut Vec<FieldError>) {
    let number = |field: &str| new.pointer(&format!("/spec/{field}")).and_then(Value::as_i64);
    if let Some(seconds) = number("leaseDurationSeconds").filter(|s| *s <= 0) {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            &json!(seconds),
            "must be greater than 0",
        ));
    }
    if let Some(transitions) = number("leaseTransitions").filter(|t| *t < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", &json!(transitions), why));
    }
}

pub(super) fn rules(new: &Value, errors: &mut Vec<FieldError>) {
    let rules = new.get("rules").and_then(Value::as_array);
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        let filled = |field: &str| rule.get(field).and_then(Value::as_array).is_some_and(|l| !l.is_empty());
        if !filled("verbs") {
            let why = "verbs must contain at least one value";
            errors.push(FieldError::required(&format!("rules[{at}].verbs"), why));
        }
        if filled("nonResourceURLs") {
            continue;
        }
        for (field, why) in [
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ] {
            if !filled(field) {
                errors.push(FieldError::required(&format!("rules[{at}].{field}"), why));
            }
        }
    }
}

pub(super) fn binding(new: &Value, errors: &mut Vec<FieldError>) {
    if new.pointer("/roleRef/name").and_then(Value::as_str).unwrap_or_default().is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
}

pub(super) fn service(new: &Value, errors: &mut Vec<FieldError>) {
    let text = |pointer: &str| new.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/spec/type");
    if !matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName") {
        let supported = "\"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"";
        errors.push(FieldError::not_supported("spec.type", kind, supported));
    }
    let ports = new.pointer("/spec/ports").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if ports.is_empty() && kind != "ExternalName" && text("/spec/clusterIP") != "None" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text("/spec/externalName").is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    for (at, port) in ports.iter().enumerate() {
        if ports.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(&format!("spec.ports[{at}].name"), ""));
        }
        let number = port["port"].as_i64().unwrap_or(0);
        if !(1..=65_535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(&format!("spec.ports[{at}].port"), &json!(number), why));
        }
    }
}

pub(super) fn ingress(new: &Value, errors: &mut Vec<FieldError>) {
    let rules = new.pointer("/spec/rules").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    if !rules && new.pointer("/spec/defaultBackend").is_none_or(Value::is_null) {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &new["spec"], why));
    }
}

/// The addresses of a node's pods are given once.
pub(super) fn node(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    let given = |node: &Value| node.pointer("/spec/podCIDRs").cloned();
    if let Some(old) = old.and_then(given)
        && given(new) != Some(old)
    {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", why));
    }
}

pub(super) fn definition(new: &Value, errors: &mut Vec<FieldError>) {
    let text = |pointer: &str| new.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    for (field, pointer) in [
        ("spec.group", "/spec/group"),
        ("spec.names.plural", "/spec/names/plural"),
        ("spec.names.kind", "/spec/names/kind"),
    ] {
        if text(pointer).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    let expected = format!("{}.{}", text("/spec/names/plural"), text("/spec/group"));
    if meta_str(new, "name") != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &json!(meta_str(new, "name")), why));
    }
    if !matches!(text("/spec/scope"), "Namespaced" | "Cluster") {
        errors.push(FieldError::not_supported(
            "spec.scope",
            text("/spec/scope"),
            "\"Cluster\", \"Namespaced\"",
        ));
    }
    let versions = new.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &json!(versions), why));
    }
    for (at, version) in versions.iter().enumerate() {
        if !version.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object) {
            let field = format!("spec.versions[{at}].schema.openAPIV3Schema");
            errors.push(FieldError::required(&field, "schemas are required"));
        }
    }
}

pub(super) fn claim(new: &Value, errors: &mut Vec<FieldError>) {
    if new.pointer("/spec/accessModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if new.pointer("/spec/resources/requests/storage").is_none() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
}

pub(super) fn autoscaler(new: &Value, errors: &mut Vec<FieldError>) {
    let number = |field: &str| new.pointer(&format!("/spec/{field}")).and_then(Value::as_i64).unwrap_or(0);
    let (min, max) = (number("minReplicas"), number("maxReplicas"));
    if max < 1 {
        errors.push(FieldError::invalid("spec.maxReplicas", &json!(max), "must be greater than 0"));
    }
    if max < min {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &json!(max), why));
    }
    for field in ["kind", "name"] {
        let pointer = format!("/spec/scaleTargetRef/{field}");
        if new.pointer(&pointer).and_then(Value::as_str).unwrap_or_default().is_empty() {
            errors.push(FieldError::required(&format!("spec.scaleTargetRef.{field}"), ""));
        }
    }
}

pub(super) fn cron_job(new: &Value, errors: &mut Vec<FieldError>) {
    if new.pointer("/spec/schedule").and_then(Value::as_str).unwrap_or_default().is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    }
    let name = meta_str(new, "name");
    if name.len() > 52 {
        let why = "must be no more than 52 characters";
        errors.push(FieldError::invalid("metadata.name", &json!(name), why));
    }
}
