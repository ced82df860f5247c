//! Basic rules of the kinds behind feature gates that are off by default.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::status::FieldError;
use super::{Errors, text};

/// How many PodGroupTemplates a Workload may have.
const TEMPLATES_MAX: usize = 8;
/// How many pools a ResourcePoolStatusRequest may ask for.
const POOLS_MAX: i64 = 1000;

const IMMUTABLE: &str = "field is immutable";

/// A Workload has one to eight templates; only the size of a gang may change.
pub(super) fn workload(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let templates = new.pointer("/spec/podGroupTemplates").and_then(Value::as_array);
    let templates = templates.map(Vec::as_slice).unwrap_or_default();
    if templates.is_empty() {
        errors.push(FieldError::required("spec.podGroupTemplates", "must have at least one item"));
    }
    if templates.len() > TEMPLATES_MAX {
        let why = format!("must have at most {TEMPLATES_MAX} items");
        errors.push(FieldError::invalid("spec.podGroupTemplates", &json!(templates.len()), &why));
    }
    let mut names = BTreeSet::new();
    for (index, template) in templates.iter().enumerate() {
        let field = format!("spec.podGroupTemplates[{index}]");
        let name = text(template, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(&format!("{field}.name"), ""));
        } else if !names.insert(name) {
            errors.push(FieldError::invalid(&format!("{field}.name"), &json!(name), "must be unique"));
        }
        policy(&format!("{field}.schedulingPolicy"), &template["schedulingPolicy"], errors);
    }
    let fixed = |workload: &Value| {
        let mut spec = workload["spec"].clone();
        for template in spec["podGroupTemplates"].as_array_mut().into_iter().flatten() {
            without_gang_size(template);
        }
        spec
    };
    if old.is_some_and(|old| fixed(old) != fixed(new)) {
        errors.push(FieldError::invalid("spec", &new["spec"], IMMUTABLE));
    }
}

/// A PodGroup has one policy; only the size of a gang may change.
pub(super) fn pod_group(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    policy("spec.schedulingPolicy", &new["spec"]["schedulingPolicy"], errors);
    let fixed = |group: &Value| {
        let mut spec = group["spec"].clone();
        without_gang_size(&mut spec);
        spec
    };
    if old.is_some_and(|old| fixed(old) != fixed(new)) {
        errors.push(FieldError::invalid("spec", &new["spec"], IMMUTABLE));
    }
}

/// A request names a driver and never changes.
pub(super) fn pool_status_request(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if text(new, "/spec/driver").is_empty() {
        errors.push(FieldError::required("spec.driver", ""));
    }
    let limit = new.pointer("/spec/limit").and_then(Value::as_i64);
    if let Some(limit) = limit.filter(|limit| !(1..=POOLS_MAX).contains(limit)) {
        let why = format!("must be between 1 and {POOLS_MAX}");
        errors.push(FieldError::invalid("spec.limit", &json!(limit), &why));
    }
    if old.is_some_and(|old| old["spec"] != new["spec"]) {
        errors.push(FieldError::invalid("spec", &new["spec"], IMMUTABLE));
    }
}

fn policy(field: &str, policy: &Value, errors: &mut Errors) {
    let set = ["basic", "gang"].into_iter().filter(|name| policy.get(name).is_some_and(Value::is_object));
    if set.count() != 1 {
        errors.push(FieldError::invalid(field, policy, "must specify exactly one of: `basic`, `gang`"));
    }
    let size = policy.pointer("/gang/minCount").and_then(Value::as_i64);
    if let Some(size) = size.filter(|size| *size < 1) {
        let why = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(&format!("{field}.gang.minCount"), &json!(size), why));
    }
}

fn without_gang_size(spec: &mut Value) {
    if let Some(gang) = spec.pointer_mut("/schedulingPolicy/gang").and_then(Value::as_object_mut) {
        gang.remove("minCount");
    }
}
