//! What single kinds need beyond the common rules: defaults, fields only the server sets, validation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::metadata::{finalizers, is_terminating, meta, meta_mut, meta_str, set_meta};
use super::resources::{Resource, StatusField, Strategy};
use super::status::{FieldError, Outcome, Status};

/// The label every namespace carries with its own name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The type of Secrets that hold the token of a service account.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// The annotation that ties such a Secret to its account.
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// Sets what the server itself decides about a new object.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    if resource.status == StatusField::ResetOnCreate {
        remove_field(object, "status");
    }
    if resource.generation {
        set_meta(object, "generation", Some(json!(1)));
    } else {
        set_meta(object, "generation", None);
    }
    match resource.strategy {
        Strategy::Namespace => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        Strategy::Pod => {
            let class = quality_of_service(object);
            object["status"] = json!({"phase": "Pending", "qosClass": class});
        }
        Strategy::ReplicaSet => object["status"] = json!({"replicas": 0}),
        Strategy::Deployment => object["status"] = json!({}),
        _ => {}
    }
    default(resource, object);
}

/// Keeps an update within its part of the object: the main resource, its status, or a namespace's finalizers.
pub(crate) fn prepare_update(resource: &Resource, subresource: Option<&str>, old: &Value, new: &mut Value) {
    match subresource {
        None => {
            if resource.has_status() {
                keep(old, new, "status");
            }
            if resource.strategy == Strategy::Namespace {
                keep(old, new, "spec");
            }
        }
        Some("finalize") => {
            keep(old, new, "status");
            if new.pointer("/spec/finalizers") == Some(&json!([])) {
                new["spec"] = json!({});
            }
        }
        Some(_) => {
            for field in resource.fields.iter().filter(|f| **f != "status") {
                keep(old, new, field);
            }
            if resource.strategy == Strategy::Pod {
                set_meta(new, "ownerReferences", meta(old, "ownerReferences").cloned());
            }
            if resource.strategy == Strategy::Deployment {
                set_meta(new, "labels", meta(old, "labels").cloned());
            }
        }
    }
    default(resource, new);
    if resource.generation {
        let generation = meta(old, "generation").and_then(Value::as_i64).unwrap_or(0);
        let changed = specification(resource, old) != specification(resource, new);
        set_meta(new, "generation", Some(json!(generation + i64::from(changed))));
    }
}

/// What the generation counts changes of.
fn specification<'a>(resource: &Resource, object: &'a Value) -> (Option<&'a Value>, Option<&'a Value>) {
    let annotations = meta(object, "annotations").filter(|_| resource.strategy == Strategy::Deployment);
    (object.get("spec"), annotations)
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => remove_field(new, field),
    }
}

fn remove_field(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}

/// Values the server fills in when the client leaves them out.
fn default(resource: &Resource, object: &mut Value) {
    match resource.strategy {
        Strategy::Namespace => {
            let name = meta_str(object, "name").to_owned();
            let labels = meta_mut(object).entry("labels").or_insert_with(|| json!({}));
            if !name.is_empty() && labels.is_object() {
                labels[NAMESPACE_NAME_LABEL] = json!(name);
            }
        }
        Strategy::Secret => {
            set_default(object, "type", json!("Opaque"));
            fold_string_data(object);
        }
        Strategy::Pod => {
            default_pod_spec(&mut object["spec"]);
            set_default(&mut object["spec"], "enableServiceLinks", json!(true));
        }
        // Fields the real server always writes, even when they say nothing.
        Strategy::ClusterRole => set_default(object, "rules", Value::Null),
        Strategy::Event => {
            set_default(object, "source", json!({}));
            for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                set_default(object, field, Value::Null);
            }
            for field in ["reportingComponent", "reportingInstance"] {
                set_default(object, field, json!(""));
            }
        }
        Strategy::ReplicaSet => {
            set_default(&mut object["spec"], "replicas", json!(1));
            default_pod_spec_of_template(object);
        }
        Strategy::Deployment => {
            let spec = &mut object["spec"];
            set_default(spec, "replicas", json!(1));
            set_default(spec, "revisionHistoryLimit", json!(10));
            set_default(spec, "progressDeadlineSeconds", json!(600));
            set_default(spec, "strategy", json!({"type": "RollingUpdate"}));
            if spec["strategy"]["type"] == "RollingUpdate" {
                let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
                set_default(&mut spec["strategy"], "rollingUpdate", rolling);
            }
            default_pod_spec_of_template(object);
        }
        _ => {}
    }
}

fn default_pod_spec_of_template(object: &mut Value) {
    if let Some(spec) = object.pointer_mut("/spec/template/spec") {
        default_pod_spec(spec);
    }
}

fn default_pod_spec(spec: &mut Value) {
    set_default(spec, "restartPolicy", json!("Always"));
    set_default(spec, "terminationGracePeriodSeconds", json!(30));
    set_default(spec, "dnsPolicy", json!("ClusterFirst"));
    set_default(spec, "schedulerName", json!("default-scheduler"));
    set_default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_container(container);
        }
    }
}

fn default_container(container: &mut Value) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    // The tag follows the last colon, unless that colon belongs to the port of a registry.
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    let floating = matches!(tag, "" | "latest") || tag.contains('/');
    set_default(container, "imagePullPolicy", json!(if floating { "Always" } else { "IfNotPresent" }));
    set_default(container, "resources", json!({}));
    set_default(container, "terminationMessagePath", json!("/dev/termination-log"));
    set_default(container, "terminationMessagePolicy", json!("File"));
}

/// How firmly a pod's resources are promised to it.
fn quality_of_service(pod: &Value) -> &'static str {
    let lists = ["/spec/containers", "/spec/initContainers"];
    let containers = lists.iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    let (mut any, mut all) = (false, true);
    for container in containers {
        let amount = |kind: &str, what: &str| container.pointer(&format!("/resources/{kind}/{what}"));
        for what in ["cpu", "memory"] {
            let (limit, request) = (amount("limits", what), amount("requests", what));
            any |= limit.is_some() || request.is_some();
            all &= limit.is_some() && request.is_none_or(|request| limit == Some(request));
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn set_default(object: &mut Value, field: &str, value: Value) {
    if object.is_null() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        map.entry(field).or_insert(value);
    }
}

fn fold_string_data(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = map.remove("stringData") else {
        return;
    };
    let data = map.entry("data").or_insert_with(|| json!({}));
    for (key, value) in plain {
        data[key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

/// Refuses bodies whose fields have types the real server could not decode.
pub(crate) fn check_types(resource: &Resource, object: &Value) -> Outcome<()> {
    let map_of = |field: &str, fits: fn(&Value) -> bool| match object.get(field) {
        None => Ok(()),
        Some(Value::Object(map)) if map.values().all(fits) => Ok(()),
        Some(_) => Err(undecodable(resource, field)),
    };
    let list = |field: &str| match object.get(field) {
        None => Ok(()),
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(()),
        Some(_) => Err(undecodable(resource, field)),
    };
    for field in ["spec", "status", "aggregationRule", "roleRef", "involvedObject", "source"] {
        map_of(field, |_| true)?;
    }
    for field in ["rules", "subjects", "secrets", "imagePullSecrets"] {
        list(field)?;
    }
    for field in ["type", "reason", "message"] {
        if object.get(field).is_some_and(|v| !v.is_string()) {
            return Err(undecodable(resource, field));
        }
    }
    map_of("stringData", Value::is_string)?;
    match resource.strategy {
        Strategy::Secret => map_of("data", is_base64)?,
        Strategy::ConfigMap => {
            map_of("data", Value::is_string)?;
            map_of("binaryData", is_base64)?;
        }
        Strategy::Deployment | Strategy::ReplicaSet | Strategy::Lease => {
            for field in ["replicas", "leaseDurationSeconds", "leaseTransitions"] {
                if object.pointer(&format!("/spec/{field}")).is_some_and(|v| !v.is_i64()) {
                    return Err(undecodable(resource, &format!("spec.{field}")));
                }
            }
            for pointer in ["strategy", "selector", "template", "template/metadata", "template/spec"] {
                if object.pointer(&format!("/spec/{pointer}")).is_some_and(|v| !v.is_object()) {
                    return Err(undecodable(resource, &format!("spec.{}", pointer.replace('/', "."))));
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn is_base64(value: &Value) -> bool {
    value.as_str().is_some_and(|text| STANDARD.decode(text).is_ok())
}

fn undecodable(resource: &Resource, field: &str) -> Box<Status> {
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: json: field {field} has a wrong type",
        kind = resource.kind,
        version = resource.version,
    ))
}

/// Rules of the kind; `old` is there for an update.
pub(crate) fn validate(resource: &Resource, old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    if let Some(old) = old {
        validate_no_new_finalizers(old, new, errors);
    }
    match resource.strategy {
        Strategy::Secret => validate_secret(old, new, errors),
        Strategy::ConfigMap => validate_immutable_data(old, new, errors),
        Strategy::Event => validate_event(new, errors),
        Strategy::Pod => validate_pod(old, new, errors),
        Strategy::Lease => validate_lease(new, errors),
        Strategy::ClusterRole => validate_rules(new, errors),
        Strategy::ClusterRoleBinding => validate_binding(old, new, errors),
        Strategy::ReplicaSet | Strategy::Deployment => validate_workload(old, new, errors),
        Strategy::Plain | Strategy::Namespace => {}
    }
}

fn validate_no_new_finalizers(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if !is_terminating(old) {
        return;
    }
    let before = finalizers(old);
    let added: Vec<&str> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
    if !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
    }
}

fn immutable(old: Option<&Value>, new: &Value, pointer: &str, errors: &mut Vec<FieldError>) {
    let Some(old) = old else { return };
    if old.pointer(pointer) != new.pointer(pointer) {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        let value = new.pointer(pointer).unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(&field, value, "field is immutable"));
    }
}

fn validate_secret(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    immutable(old, new, "/type", errors);
    validate_immutable_data(old, new, errors);
    if new["type"] == SERVICE_ACCOUNT_TOKEN {
        let account = meta(new, "annotations").and_then(|a| a.get(SERVICE_ACCOUNT_NAME));
        if account.and_then(Value::as_str).unwrap_or_default().is_empty() {
            let field = format!("metadata.annotations[{SERVICE_ACCOUNT_NAME}]");
            errors.push(FieldError::required(&field, ""));
        }
    }
}

fn validate_immutable_data(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
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

fn validate_event(new: &Value, errors: &mut Vec<FieldError>) {
    let involved = new.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = meta_str(new, "namespace");
    let fits = if involved.is_empty() { matches!(namespace, "default" | "") } else { involved == namespace };
    if !fits {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &json!(involved), why));
    }
}

fn validate_pod(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    let containers = new.pointer("/spec/containers").and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.containers", ""));
    }
    // A pod that has a node stays on it.
    let node = |pod: &Value| pod.pointer("/spec/nodeName").cloned();
    if let Some(old) = old
        && node(old).is_some()
        && node(old) != node(new)
    {
        errors.push(FieldError::forbidden("spec", "pod updates may not change the node of a bound pod"));
    }
}

fn validate_lease(new: &Value, errors: &mut Vec<FieldError>) {
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

fn validate_rules(new: &Value, errors: &mut Vec<FieldError>) {
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

fn validate_binding(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    if new.pointer("/roleRef/name").and_then(Value::as_str).unwrap_or_default().is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    immutable(old, new, "/roleRef", errors);
}

fn validate_workload(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    let selector = new.pointer("/spec/selector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty()));
    let Some(selector) = selector else {
        errors.push(FieldError::required("spec.selector", ""));
        return;
    };
    immutable(old, new, "/spec/selector", errors);
    let labels = new.pointer("/spec/template/metadata/labels").unwrap_or(&Value::Null);
    let wanted = selector.get("matchLabels").and_then(Value::as_object);
    if !wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value)) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
    }
    let replicas = new.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", &json!(replicas), why));
    }
}
