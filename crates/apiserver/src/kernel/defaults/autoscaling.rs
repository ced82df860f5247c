//! Defaults of HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::{present, set};

pub(super) fn autoscaler(object: &mut Value) {
    let spec = &mut object["spec"];
    set(spec, "minReplicas", json!(1));
    let without_metrics = spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if without_metrics {
        spec["metrics"] = json!([{
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]);
    }
    let Some(behavior) = present(spec, "behavior") else {
        return;
    };
    set(behavior, "scaleUp", json!({}));
    set(behavior, "scaleDown", json!({}));
    let up = &mut behavior["scaleUp"];
    set(up, "stabilizationWindowSeconds", json!(0));
    set(up, "selectPolicy", json!("Max"));
    let policies = json!([
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]);
    set(up, "policies", policies);
    let down = &mut behavior["scaleDown"];
    set(down, "selectPolicy", json!("Max"));
    set(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
}
