//! Rules of pods and of the kinds that run them.

use serde_json::{Value, json};

use super::super::status::FieldError;

pub(super) fn pod(subresource: Option<&str>, old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    let containers = new.pointer("/spec/containers").and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.containers", ""));
    }
    match old {
        None => names_of_containers("spec", new.pointer("/spec/containers"), errors),
        // The other subresources let only their own part through.
        Some(old) if subresource.is_none() => pod_update(old, new, errors),
        Some(_) => {}
    }
}

/// Almost nothing of a pod can be changed once it is there.
fn pod_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
            spec.as_object_mut().and_then(|map| map.remove(field));
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container.as_object_mut().and_then(|map| map.remove("image"));
            }
        }
        // Gates may be removed, and a gated pod may still be given a node selector or affinity.
        let gated = |pod: &Value| pod.pointer("/spec/schedulingGates").is_some();
        if let Some(map) = spec.as_object_mut().filter(|_| gated(old)) {
            for field in ["schedulingGates", "nodeSelector", "affinity"] {
                map.remove(field);
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                   to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

fn names_of_containers(path: &str, containers: Option<&Value>, errors: &mut Vec<FieldError>) {
    let containers = containers.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (at, container) in containers.iter().enumerate() {
        let name = container["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(&format!("{path}.containers[{at}].name"), ""));
        } else if containers[..at].iter().any(|other| other["name"] == name) {
            errors.push(FieldError::duplicate(&format!("{path}.containers[{at}].name"), &json!(name)));
        }
    }
}

/// What Deployments, ReplicaSets, StatefulSets and DaemonSets have in common.
pub(super) fn workload(new: &Value, errors: &mut Vec<FieldError>) {
    let selector = new.pointer("/spec/selector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty()));
    match selector {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            let wanted = selector.get("matchLabels").cloned().unwrap_or_default();
            select_template(&wanted, new, errors);
        }
    }
    template(new, errors);
    replicas(new, errors);
}

pub(super) fn replication_controller(new: &Value, errors: &mut Vec<FieldError>) {
    let selector = new.pointer("/spec/selector").cloned().unwrap_or_default();
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    select_template(&selector, new, errors);
    template(new, errors);
    replicas(new, errors);
}

fn select_template(wanted: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let labels = new.pointer("/spec/template/metadata/labels").unwrap_or(&Value::Null);
    let wanted = wanted.as_object();
    if !wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value)) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
    }
}

fn template(new: &Value, errors: &mut Vec<FieldError>) {
    let containers = new.pointer("/spec/template/spec/containers");
    if containers.and_then(Value::as_array).is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.template.spec.containers", ""));
    }
    names_of_containers("spec.template.spec", containers, errors);
}

fn replicas(new: &Value, errors: &mut Vec<FieldError>) {
    let replicas = new.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", &json!(replicas), why));
    }
}

pub(super) fn job(new: &Value, errors: &mut Vec<FieldError>) {
    for field in
        ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"]
    {
        let number = new.pointer(&format!("/spec/{field}")).and_then(Value::as_i64);
        if let Some(number) = number.filter(|number| *number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&format!("spec.{field}"), &json!(number), why));
        }
    }
    template(new, errors);
    let policy = new.pointer("/spec/template/spec/restartPolicy").and_then(Value::as_str).unwrap_or_default();
    if !matches!(policy, "OnFailure" | "Never") {
        let field = "spec.template.spec.restartPolicy";
        if policy == "Always" {
            let why = "\"OnFailure\", \"Never\"";
            errors.push(FieldError::not_supported(field, policy, why));
        } else {
            errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\""));
        }
    }
}
