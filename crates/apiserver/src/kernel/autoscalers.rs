//! HorizontalPodAutoscalers are stored as autoscaling/v2. In v1 the CPU target is one field and the rest is in
//! annotations.
//!
//! kube-apiserver writes metrics and behavior into those annotations in v1-specific types; here they have the v2
//! types and round-trip without loss.

use serde_json::{Map, Value, json};

use super::metadata::meta_mut;

/// Annotations of v1, and the v2 section and field with the same content.
const ANNOTATION_FIELDS: [(&str, &str, &str); 4] = [
    ("autoscaling.alpha.kubernetes.io/metrics", "spec", "metrics"),
    ("autoscaling.alpha.kubernetes.io/behavior", "spec", "behavior"),
    ("autoscaling.alpha.kubernetes.io/current-metrics", "status", "currentMetrics"),
    ("autoscaling.alpha.kubernetes.io/conditions", "status", "conditions"),
];
const TARGET: &str = "targetCPUUtilizationPercentage";
const CURRENT: &str = "currentCPUUtilizationPercentage";

/// Converts v1 to v2.
pub(crate) fn to_storage_version(mut object: Value) -> Value {
    let target = object.get_mut("spec").and_then(Value::as_object_mut).and_then(|spec| spec.remove(TARGET));
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // The current-metrics annotation is more detailed.
        status.remove(CURRENT);
    }
    for (annotation, part, field) in ANNOTATION_FIELDS {
        if let Some(value) = take_annotation(&mut object, annotation) {
            object[part][field] = value;
        }
    }
    if let Some(target) = target.filter(|target| !target.is_null()) {
        let metrics = &mut object["spec"]["metrics"];
        if !metrics.is_array() {
            *metrics = json!([]);
        }
        if let Some(metrics) = metrics.as_array_mut() {
            metrics.push(json!({"type": "Resource", "resource":
                {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}}));
        }
    }
    object["apiVersion"] = json!("autoscaling/v2");
    object
}

/// Removes an annotation and parses it; kube-apiserver also drops one that does not parse.
fn take_annotation(object: &mut Value, annotation: &str) -> Option<Value> {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)?;
    let text = annotations.remove(annotation)?;
    if annotations.is_empty() {
        meta_mut(object).remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok().filter(|value: &Value| !value.is_null())
}

/// Converts v2 to v1.
pub(crate) fn to_served_version(object: &Value) -> Value {
    let mut converted = object.clone();
    converted["apiVersion"] = json!("autoscaling/v1");
    let mut part = |name: &str| match converted.get_mut(name).map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let (mut spec, mut status) = (part("spec"), part("status"));
    let cpu = |metrics: Option<&Value>, pointer: &str| {
        let metrics = metrics.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let of_cpu = |metric: &&Value| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
        metrics.iter().filter(of_cpu).find_map(|metric| metric.pointer(pointer).cloned())
    };
    let target = cpu(spec.get("metrics"), UTILIZATION);
    let current = cpu(status.get("currentMetrics"), "/resource/current/averageUtilization");
    if let Some(Value::Array(metrics)) = spec.get_mut("metrics") {
        metrics.retain(|metric| metric["resource"]["name"] != "cpu" || metric.pointer(UTILIZATION).is_none());
    }
    for (annotation, part, field) in ANNOTATION_FIELDS {
        let value = if part == "spec" { spec.remove(field) } else { status.remove(field) };
        let is_set = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        if let Some(value) = value.filter(is_set) {
            let annotations = meta_mut(&mut converted).entry("annotations").or_insert_with(|| json!({}));
            let text = if field == "conditions" { conditions_text(&value) } else { value.to_string() };
            annotations[annotation] = json!(text);
        }
    }
    spec.extend(target.map(|target| (TARGET.to_owned(), target)));
    status.extend(current.map(|current| (CURRENT.to_owned(), current)));
    for field in ["currentReplicas", "desiredReplicas"] {
        status.entry(field).or_insert_with(|| json!(0));
    }
    converted["spec"] = Value::Object(spec);
    converted["status"] = Value::Object(status);
    converted
}

/// Conditions with their fields in kube-apiserver's order, which clients print.
fn conditions_text(conditions: &Value) -> String {
    let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
    let one = |condition: &Value| {
        let set = fields.iter().filter_map(|field| Some(format!("\"{field}\":{}", condition.get(field)?)));
        format!("{{{}}}", set.collect::<Vec<_>>().join(","))
    };
    let all: Vec<_> = conditions.as_array().into_iter().flatten().map(one).collect();
    format!("[{}]", all.join(","))
}

/// Pointer to the target utilization in a v2 metric.
const UTILIZATION: &str = "/resource/target/averageUtilization";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_written_in_the_order_of_their_fields() {
        let stored = json!({"metadata": {"name": "a"}, "status": {"conditions": [{"lastTransitionTime": null,
            "message": "say \"no\"", "reason": "Off", "status": "False", "type": "ScalingActive"}, {"type": "B"}]}});
        let served = to_served_version(&stored);
        assert_eq!(
            served["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/conditions"],
            r#"[{"type":"ScalingActive","status":"False","lastTransitionTime":null,"reason":"Off","message":"say \"no\""},{"type":"B"}]"#
        );
    }

    #[test]
    fn fields_missing_in_v1_survive_in_annotations() {
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "oars"},
            "target": {"type": "AverageValue", "averageValue": "3"}}});
        let cpu = json!({"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}});
        let stored = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a", "annotations": {"mine": "x"}},
            "spec": {"maxReplicas": 3, "metrics": [pods, cpu], "behavior": {"scaleUp": {"selectPolicy": "Min"}}},
            "status": {"desiredReplicas": 2, "currentReplicas": 1, "currentMetrics": [{"type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": 60, "averageValue": "6m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}]},
        });
        let converted = to_served_version(&stored);
        assert_eq!(converted["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}));
        let status =
            json!({"desiredReplicas": 2, "currentReplicas": 1, "currentCPUUtilizationPercentage": 60});
        assert_eq!(converted["status"], status);
        assert_eq!(converted["metadata"]["annotations"].as_object().unwrap().len(), 5);
        assert_eq!(to_storage_version(converted), stored);
    }

    #[test]
    fn unparsable_annotation_is_dropped() {
        let sent = json!({"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "{"}},
            "spec": {"maxReplicas": 3}});
        let stored = to_storage_version(sent);
        assert_eq!(stored["metadata"], json!({}));
        assert_eq!(stored["spec"], json!({"maxReplicas": 3}));
    }
}
