//! Metrics and behavior of HorizontalPodAutoscalers.
//!
//! Parity: pkg/apis/autoscaling/validation.

use serde_json::Value;

use super::{Errors, is_set, list, refuse_text, text};
use crate::kernel::naming;
use crate::kernel::status::FieldError;

/// The sources of metrics, in the order in which they are looked at, and their types.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
const WINDOW_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;

pub(super) fn metrics(metrics: &[Value], errors: &mut Errors) {
    for (at, metric) in metrics.iter().enumerate() {
        let path = format!("spec.metrics[{at}]");
        let kind = text(metric, "/type");
        if kind.is_empty() {
            errors.push(FieldError::required(&format!("{path}.type"), "must specify a metric source type"));
        }
        let present: Vec<&str> = SOURCES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| is_set(metric, &format!("/{name}")))
            .collect();
        if let Some(first) = present.first() {
            source(first, &format!("{path}.{first}"), &metric[*first], errors);
        }
        let expected = SOURCES.iter().find(|(_, of)| *of == kind).map(|(name, _)| *name);
        if let Some(expected) = expected.filter(|name| !present.contains(name)) {
            let why = "must populate information for the given metric source";
            errors.push(FieldError::required(&format!("{path}.{expected}"), why));
        }
        if present.len() > 1 {
            for other in present.iter().filter(|name| Some(**name) != expected) {
                let why = "must populate the given metric source only";
                errors.push(FieldError::forbidden(&format!("{path}.{other}"), why));
            }
        }
    }
}

fn source(name: &str, path: &str, source: &Value, errors: &mut Errors) {
    if name == "object" {
        described_object(&format!("{path}.describedObject"), &source["describedObject"], errors);
    }
    if matches!(name, "resource" | "containerResource") {
        if text(source, "/name").is_empty() {
            errors.push(FieldError::required(&format!("{path}.name"), "must specify a resource name"));
        } else if name == "containerResource" {
            super::refuse_resource_name(&format!("{path}.name"), text(source, "/name"), true, errors);
        }
    } else {
        metric_name(&format!("{path}.metric.name"), text(source, "/metric/name"), errors);
    }
    if name == "containerResource" {
        let (field, container) = (format!("{path}.container"), text(source, "/container"));
        match container.is_empty() {
            true => errors.push(FieldError::required(&field, "must specify a container")),
            false => refuse_text(&field, container, &naming::label(container), errors),
        }
    }
    target(&format!("{path}.target"), &source["target"], errors);
    let has = |field: &str| is_set(source, &format!("/target/{field}"));
    let mut required = |field: &str, why: &str| {
        errors.push(FieldError::required(&format!("{path}.target.{field}"), why));
    };
    match name {
        "object" if !has("value") && !has("averageValue") => {
            required("averageValue", "must set either a target value or averageValue");
        }
        "external" if !has("value") && !has("averageValue") => {
            required("averageValue", "must set either a target value for metric or a per-pod target");
        }
        "external" if has("value") && has("averageValue") => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.push(FieldError::forbidden(&format!("{path}.target.value"), why));
        }
        "pods" if !has("averageValue") => {
            required("averageValue", "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            required("averageUtilization", "must set either a target raw value or a target utilization");
        }
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => {
            let why = "may not set both a target raw value and a target utilization";
            errors.push(FieldError::forbidden(&format!("{path}.target.averageValue"), why));
        }
        _ => {}
    }
}

fn described_object(path: &str, reference: &Value, errors: &mut Errors) {
    for field in ["kind", "name"] {
        let value = text(reference, &format!("/{field}"));
        match value.is_empty() {
            true => errors.push(FieldError::required(&format!("{path}.{field}"), "")),
            false => refuse_text(&format!("{path}.{field}"), value, &naming::path_segment(value), errors),
        }
    }
}

fn metric_name(field: &str, name: &str, errors: &mut Errors) {
    match name.is_empty() {
        true => errors.push(FieldError::required(field, "must specify a metric name")),
        false => refuse_text(field, name, &naming::path_segment(name), errors),
    }
}

fn target(path: &str, target: &Value, errors: &mut Errors) {
    let kind = text(target, "/type");
    let field = format!("{path}.type");
    if kind.is_empty() {
        errors.push(FieldError::required(&field, "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        refuse_text(&field, kind, &["must be either Utilization, Value, or AverageValue".to_owned()], errors);
    }
    for amount in ["value", "averageValue"] {
        let value = text(target, &format!("/{amount}"));
        let quantity = keleustes_objects::Quantity::parse(value);
        if quantity.is_some_and(|quantity| !quantity.is_positive()) {
            errors.push(FieldError::invalid(
                &format!("{path}.{amount}"),
                &target[amount],
                "must be positive",
            ));
        }
    }
    if target["averageUtilization"].as_i64().is_some_and(|percentage| percentage < 1) {
        let field = format!("{path}.averageUtilization");
        errors.push(FieldError::invalid(&field, &target["averageUtilization"], "must be greater than 0"));
    }
}

pub(super) fn behavior(behavior: &Value, errors: &mut Errors) {
    for direction in ["scaleUp", "scaleDown"] {
        if is_set(behavior, &format!("/{direction}")) {
            rules(&format!("spec.behavior.{direction}"), &behavior[direction], errors);
        }
    }
}

fn rules(path: &str, rules: &Value, errors: &mut Errors) {
    let window = &rules["stabilizationWindowSeconds"];
    if window.as_i64().is_some_and(|seconds| seconds > WINDOW_SECONDS_MAX) {
        let why = format!("must be less than or equal to {WINDOW_SECONDS_MAX}");
        errors.push(FieldError::invalid(&format!("{path}.stabilizationWindowSeconds"), window, &why));
    }
    let select = text(rules, "/selectPolicy");
    if is_set(rules, "/selectPolicy") && !matches!(select, "Max" | "Min" | "Disabled") {
        let field = format!("{path}.selectPolicy");
        errors.push(FieldError::not_supported(&field, select, "\"Disabled\", \"Max\", \"Min\""));
    }
    let policies = list(rules, "/policies");
    if policies.is_empty() {
        errors.push(FieldError::required(&format!("{path}.policies"), "must specify at least one Policy"));
    }
    for (at, policy) in policies.iter().enumerate() {
        let path = format!("{path}.policies[{at}]");
        let kind = text(policy, "/type");
        if !matches!(kind, "Pods" | "Percent") {
            errors.push(FieldError::not_supported(&format!("{path}.type"), kind, "\"Percent\", \"Pods\""));
        }
        for field in ["value", "periodSeconds"] {
            let number = policy[field].as_i64().unwrap_or(0);
            if number <= 0 {
                let field = format!("{path}.{field}");
                errors.push(FieldError::invalid(&field, &number.into(), "must be greater than zero"));
            }
        }
        let period = &policy["periodSeconds"];
        if period.as_i64().is_some_and(|seconds| seconds > PERIOD_SECONDS_MAX) {
            let why = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
            errors.push(FieldError::invalid(&format!("{path}.periodSeconds"), period, &why));
        }
    }
    if keleustes_objects::Quantity::parse(text(rules, "/tolerance"))
        .is_some_and(|tolerance| tolerance.is_negative())
    {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&format!("{path}.tolerance"), &rules["tolerance"], why));
    }
}
