//! HorizontalPodAutoscalers are stored as autoscaling/v2. In v1 the CPU target is one field and the rest is in
//! annotations.
//!
//! Parity: pkg/apis/autoscaling/v1/conversion.go. Metrics and conditions have types of v1 in their annotations; the
//! behavior has upstream's internal type, whose fields are capitalized.

mod metrics;
mod text;

use serde_json::{Map, Value, json};

use self::text::{BEHAVIOR, CONDITIONS, METRIC_STATUSES, METRICS, Shape};
use super::metadata::meta_mut;

const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/conditions";
/// No version stores annotations of these names.
const ROUND_TRIP_ANNOTATIONS: [&str; 6] = [
    METRICS_ANNOTATION,
    BEHAVIOR_ANNOTATION,
    CURRENT_METRICS_ANNOTATION,
    CONDITIONS_ANNOTATION,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];
const TARGET: &str = "targetCPUUtilizationPercentage";
const CURRENT: &str = "currentCPUUtilizationPercentage";
/// Pointer to the target utilization in a v2 metric.
const UTILIZATION: &str = "/resource/target/averageUtilization";

/// Converts v1 to v2. kube-apiserver drops an annotation that does not have the type it expects.
pub(crate) fn to_storage_version(mut object: Value) -> Value {
    let annotation = |name: &str, shape: &Shape| {
        let text = object.pointer("/metadata/annotations")?.get(name)?.as_str()?;
        shape.read(&serde_json::from_str(text).ok()?)
    };
    let (metrics, behavior) =
        (annotation(METRICS_ANNOTATION, &METRICS), annotation(BEHAVIOR_ANNOTATION, &BEHAVIOR));
    let statuses = annotation(CURRENT_METRICS_ANNOTATION, &METRIC_STATUSES);
    let conditions = annotation(CONDITIONS_ANNOTATION, &CONDITIONS);
    drop_annotations(&mut object);
    let mut all = converted(metrics, metrics::spec_to_v2).unwrap_or_default();
    if let Some(target) = take(&mut object, "spec", TARGET) {
        all.push(json!({"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}}));
    }
    let current = take(&mut object, "status", CURRENT).map(|current| {
        vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": current}}})]
    });
    if !all.is_empty() {
        object["spec"]["metrics"] = json!(all);
    }
    let is_set = |behavior: &Value| behavior.as_object().is_some_and(|behavior| !behavior.is_empty());
    if let Some(mut behavior) = behavior.filter(is_set) {
        // Policies have a default in v2 only.
        for rules in behavior.as_object_mut().into_iter().flat_map(|behavior| behavior.values_mut()) {
            if rules["policies"].is_null() {
                rules["policies"] = json!([]);
            }
        }
        object["spec"]["behavior"] = behavior;
    }
    if let Some(current) = converted(statuses, metrics::status_to_v2).or(current) {
        object["status"]["currentMetrics"] = json!(current);
    }
    if let Some(conditions) = conditions {
        object["status"]["conditions"] = conditions;
    }
    object["apiVersion"] = json!("autoscaling/v2");
    object
}

/// Removes the annotations that only the conversion to v1 writes.
pub(crate) fn drop_annotations(object: &mut Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    let count = annotations.len();
    annotations.retain(|name, _| !ROUND_TRIP_ANNOTATIONS.contains(&name.as_str()));
    if annotations.is_empty() && count > 0 {
        meta_mut(object).remove("annotations");
    }
}

/// The converted items of a list that was read from an annotation.
fn converted(list: Option<Value>, convert: fn(&Value) -> Value) -> Option<Vec<Value>> {
    Some(list?.as_array()?.iter().map(convert).collect())
}

fn take(object: &mut Value, part: &str, field: &str) -> Option<Value> {
    let value = object.get_mut(part)?.as_object_mut()?.remove(field)?;
    Some(value).filter(|value| !value.is_null())
}

/// Converts v2 to v1.
pub(crate) fn to_served_version(object: &Value) -> Value {
    let mut served = object.clone();
    drop_annotations(&mut served);
    served["apiVersion"] = json!("autoscaling/v1");
    let mut part = |name: &str| match served.get_mut(name).map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let (mut spec, mut status) = (part("spec"), part("status"));
    let list = |value: Option<Value>| match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let of_cpu = |metric: &Value| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    let (targets, others): (Vec<Value>, Vec<Value>) = list(spec.remove("metrics"))
        .into_iter()
        .partition(|metric| of_cpu(metric) && metric.pointer(UTILIZATION).is_some());
    let current = list(status.remove("currentMetrics"));
    let utilization = |metric: &Value| metric.pointer("/resource/current/averageUtilization").cloned();
    if let Some(target) = targets.first().and_then(|metric| metric.pointer(UTILIZATION)) {
        spec.insert(TARGET.to_owned(), target.clone());
    }
    if let Some(percentage) =
        current.iter().filter(|metric| of_cpu(metric)).filter_map(utilization).next_back()
    {
        status.insert(CURRENT.to_owned(), percentage);
    }
    let metrics: Vec<Value> = others.iter().map(metrics::spec_to_v1).collect();
    let statuses: Vec<Value> = current.iter().map(metrics::status_to_v1).collect();
    let behavior = spec.remove("behavior").filter(Value::is_object).unwrap_or_default();
    let conditions = list(status.remove("conditions"));
    for (annotation, shape, value) in [
        (METRICS_ANNOTATION, &METRICS, json!(metrics)),
        (BEHAVIOR_ANNOTATION, &BEHAVIOR, behavior),
        (CURRENT_METRICS_ANNOTATION, &METRIC_STATUSES, json!(statuses)),
        (CONDITIONS_ANNOTATION, &CONDITIONS, json!(conditions)),
    ] {
        if value.is_object() || value.as_array().is_some_and(|list| !list.is_empty()) {
            let annotations = meta_mut(&mut served).entry("annotations").or_insert_with(|| json!({}));
            annotations[annotation] = json!(shape.text(&value));
        }
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        status.entry(field).or_insert_with(|| json!(0));
    }
    served["spec"] = Value::Object(spec);
    served["status"] = Value::Object(status);
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_annotation(name: &str, text: &str) -> Value {
        to_storage_version(
            json!({"metadata": {"name": "a", "annotations": {name: text}}, "spec": {"maxReplicas": 3}}),
        )
    }

    #[test]
    fn conditions_are_written_in_the_order_of_their_fields() {
        let stored = json!({"metadata": {"name": "a"}, "status": {"conditions": [{"lastTransitionTime": null,
            "message": "say \"no\" & <yes>", "reason": "Off", "status": "False", "type": "ScalingActive"}, {"type": "B"}]}});
        let served = to_served_version(&stored);
        assert_eq!(
            served["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/conditions"],
            concat!(
                r#"[{"type":"ScalingActive","status":"False","lastTransitionTime":null,"reason":"Off","#,
                r#""message":"say \"no\" \u0026 \u003cyes\u003e"},{"type":"B","status":"","lastTransitionTime":null}]"#
            )
        );
    }

    #[test]
    fn fields_missing_in_v1_survive_in_annotations() {
        let memory = json!({"type": "Resource", "resource":
            {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}}});
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "oars", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "3"}}});
        let object = json!({"type": "Object", "object": {"metric": {"name": "hits"},
            "describedObject": {"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
            "target": {"type": "Value", "value": "2k"}}});
        let external = json!({"type": "External", "external": {"metric": {"name": "queue"},
            "target": {"type": "AverageValue", "averageValue": "30"}}});
        let container = json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "AverageValue", "averageValue": "100m"}}});
        let cpu = json!({"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}});
        let stored = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a", "annotations": {"mine": "x"}},
            "spec": {"maxReplicas": 3, "metrics": [memory, pods, object, external, container, cpu],
                "behavior": {"scaleUp": {"selectPolicy": "Min", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 9}]}}},
            "status": {"desiredReplicas": 2, "currentReplicas": 1, "currentMetrics": [{"type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": 60, "averageValue": "6m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}]},
        });
        let served = to_served_version(&stored);
        assert_eq!(served["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}));
        let status =
            json!({"desiredReplicas": 2, "currentReplicas": 1, "currentCPUUtilizationPercentage": 60});
        assert_eq!(served["status"], status);
        let annotation = |name: &str| served["metadata"]["annotations"][name].as_str().unwrap().to_owned();
        assert_eq!(
            annotation(METRICS_ANNOTATION),
            concat!(
                r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":50}},"#,
                r#"{"type":"Pods","pods":{"metricName":"oars","targetAverageValue":"3","selector":{"matchLabels":{"a":"b"}}}},"#,
                r#"{"type":"Object","object":{"target":{"kind":"Ingress","name":"i","apiVersion":"networking.k8s.io/v1"},"#,
                r#""metricName":"hits","targetValue":"2k"}},"#,
                r#"{"type":"External","external":{"metricName":"queue","targetAverageValue":"30"}},"#,
                r#"{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageValue":"100m","container":"c"}}]"#
            )
        );
        assert_eq!(
            annotation(BEHAVIOR_ANNOTATION),
            concat!(
                r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Min","#,
                r#""Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":9}],"Tolerance":null},"ScaleDown":null}"#
            )
        );
        assert_eq!(
            annotation(CURRENT_METRICS_ANNOTATION),
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":60,"currentAverageValue":"6m"}}]"#
        );
        assert_eq!(to_storage_version(served), stored);
    }

    #[test]
    fn annotation_of_another_type_is_dropped() {
        for text in ["{", "{}", "[5]", "[{\"type\": 5}]", "[{\"pods\": {\"targetAverageValue\": \"x\"}}]"] {
            let stored = with_annotation(METRICS_ANNOTATION, text);
            assert_eq!(
                (&stored["metadata"], &stored["spec"]),
                (&json!({"name": "a"}), &json!({"maxReplicas": 3}))
            );
        }
    }

    #[test]
    fn annotations_are_read_like_go_reads_them() {
        let stored =
            with_annotation(BEHAVIOR_ANNOTATION, r#"{"scaleup": {"selectPolicy": "Max", "odd": 1}}"#);
        assert_eq!(stored["spec"]["behavior"], json!({"scaleUp": {"selectPolicy": "Max", "policies": []}}));
        assert_eq!(with_annotation(BEHAVIOR_ANNOTATION, "{}")["spec"], json!({"maxReplicas": 3}));
        let stored = with_annotation(METRICS_ANNOTATION, r#"[{"Type":"Pods","pods":{"METRICNAME":"m"}}]"#);
        let pods = json!({"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "0"}});
        assert_eq!(stored["spec"]["metrics"], json!([{"type": "Pods", "pods": pods}]));
    }

    #[test]
    fn current_utilization_of_v1_is_a_metric() {
        let sent = json!({"metadata": {}, "spec": {}, "status": {"currentCPUUtilizationPercentage": 5}});
        let metric =
            json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5}}});
        assert_eq!(to_storage_version(sent)["status"], json!({"currentMetrics": [metric]}));
    }
}
