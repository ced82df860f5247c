//! Defaults of HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::{present, set_default};

pub(super) fn autoscaler(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "minReplicas", json!(1));
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
    set_default(behavior, "scaleUp", json!({}));
    set_default(behavior, "scaleDown", json!({}));
    let up = &mut behavior["scaleUp"];
    set_default(up, "stabilizationWindowSeconds", json!(0));
    set_default(up, "selectPolicy", json!("Max"));
    let policies = json!([
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]);
    set_default(up, "policies", policies);
    let down = &mut behavior["scaleDown"];
    set_default(down, "selectPolicy", json!("Max"));
    set_default(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
}
