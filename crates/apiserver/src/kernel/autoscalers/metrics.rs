//! Single metrics in the types of v1 and v2.

use serde_json::{Map, Value, json};

/// An object of the fields that are set.
fn object<const N: usize>(fields: [(&str, &Value); N]) -> Value {
    let set = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(set.map(|(name, value)| (name.to_owned(), value.clone())).collect::<Map<_, _>>())
}

type Convert = fn(&Value) -> Value;

/// Converts the sources of a metric, whatever its type is.
fn sources<const N: usize>(metric: &Value, sources: [(&str, Convert); N]) -> Value {
    let mut result = json!({"type": or(&metric["type"], "")});
    for (name, convert) in sources {
        if metric[name].is_object() {
            result[name] = convert(&metric[name]);
        }
    }
    result
}

fn or(value: &Value, default: &str) -> Value {
    if value.is_null() { json!(default) } else { value.clone() }
}

/// A metric of the spec in v2.
pub(super) fn spec_to_v2(metric: &Value) -> Value {
    sources(
        metric,
        [
            ("object", object_source_to_v2),
            ("pods", pods_source_to_v2),
            ("resource", resource_source_to_v2),
            ("containerResource", resource_source_to_v2),
            ("external", external_source_to_v2),
        ],
    )
}

/// A metric of the spec in v1.
pub(super) fn spec_to_v1(metric: &Value) -> Value {
    sources(
        metric,
        [
            ("object", object_source_to_v1),
            ("pods", pods_source_to_v1),
            ("resource", resource_source_to_v1),
            ("containerResource", resource_source_to_v1),
            ("external", external_source_to_v1),
        ],
    )
}

/// A metric of the status in v2.
pub(super) fn status_to_v2(metric: &Value) -> Value {
    sources(
        metric,
        [
            ("object", object_status_to_v2),
            ("pods", pods_status_to_v2),
            ("resource", resource_status_to_v2),
            ("containerResource", resource_status_to_v2),
            ("external", external_status_to_v2),
        ],
    )
}

/// A metric of the status in v1.
pub(super) fn status_to_v1(metric: &Value) -> Value {
    sources(
        metric,
        [
            ("object", object_status_to_v1),
            ("pods", pods_status_to_v1),
            ("resource", resource_status_to_v1),
            ("containerResource", resource_status_to_v1),
            ("external", external_status_to_v1),
        ],
    )
}

fn identifier(source: &Value, selector: &str) -> Value {
    object([("name", &or(&source["metricName"], "")), ("selector", &source[selector])])
}

fn described_object(reference: &Value) -> Value {
    object([
        ("kind", &or(&reference["kind"], "")),
        ("name", &or(&reference["name"], "")),
        ("apiVersion", &reference["apiVersion"]),
    ])
}

fn object_source_to_v2(source: &Value) -> Value {
    let average = &source["averageValue"];
    let value = or(&source["targetValue"], "0");
    // v1 cannot omit the value, and validation would refuse the zero that stands for none.
    let is_zero = value.as_str().and_then(super::text::quantity).is_some_and(|value| value.is_zero());
    let value = if average.is_null() || !is_zero { value } else { Value::Null };
    let kind = json!(if average.is_null() { "Value" } else { "AverageValue" });
    json!({
        "describedObject": described_object(&source["target"]),
        "metric": identifier(source, "selector"),
        "target": object([("type", &kind), ("value", &value), ("averageValue", average)]),
    })
}

fn object_source_to_v1(source: &Value) -> Value {
    object([
        ("target", &source["describedObject"]),
        ("metricName", &source["metric"]["name"]),
        ("targetValue", &source["target"]["value"]),
        ("selector", &source["metric"]["selector"]),
        ("averageValue", &source["target"]["averageValue"]),
    ])
}

fn pods_source_to_v2(source: &Value) -> Value {
    let value = or(&source["targetAverageValue"], "0");
    json!({"metric": identifier(source, "selector"), "target": {"type": "AverageValue", "averageValue": value}})
}

fn pods_source_to_v1(source: &Value) -> Value {
    object([
        ("metricName", &source["metric"]["name"]),
        ("targetAverageValue", &source["target"]["averageValue"]),
        ("selector", &source["metric"]["selector"]),
    ])
}

fn resource_source_to_v2(source: &Value) -> Value {
    let utilization = &source["targetAverageUtilization"];
    let kind = json!(if utilization.is_null() { "AverageValue" } else { "Utilization" });
    let target = object([
        ("type", &kind),
        ("averageValue", &source["targetAverageValue"]),
        ("averageUtilization", utilization),
    ]);
    object([("name", &or(&source["name"], "")), ("container", &source["container"]), ("target", &target)])
}

fn resource_source_to_v1(source: &Value) -> Value {
    object([
        ("name", &source["name"]),
        ("targetAverageUtilization", &source["target"]["averageUtilization"]),
        ("targetAverageValue", &source["target"]["averageValue"]),
        ("container", &source["container"]),
    ])
}

fn external_source_to_v2(source: &Value) -> Value {
    let kind = json!(if source["targetValue"].is_null() { "AverageValue" } else { "Value" });
    let target = object([
        ("type", &kind),
        ("value", &source["targetValue"]),
        ("averageValue", &source["targetAverageValue"]),
    ]);
    json!({"metric": identifier(source, "metricSelector"), "target": target})
}

fn external_source_to_v1(source: &Value) -> Value {
    object([
        ("metricName", &source["metric"]["name"]),
        ("metricSelector", &source["metric"]["selector"]),
        ("targetValue", &source["target"]["value"]),
        ("targetAverageValue", &source["target"]["averageValue"]),
    ])
}

fn object_status_to_v2(status: &Value) -> Value {
    let value = or(&status["currentValue"], "0");
    json!({
        "describedObject": described_object(&status["target"]),
        "metric": identifier(status, "selector"),
        "current": object([("value", &value), ("averageValue", &status["averageValue"])]),
    })
}

fn object_status_to_v1(status: &Value) -> Value {
    object([
        ("target", &status["describedObject"]),
        ("metricName", &status["metric"]["name"]),
        ("currentValue", &status["current"]["value"]),
        ("selector", &status["metric"]["selector"]),
        ("averageValue", &status["current"]["averageValue"]),
    ])
}

fn pods_status_to_v2(status: &Value) -> Value {
    let value = or(&status["currentAverageValue"], "0");
    json!({"metric": identifier(status, "selector"), "current": {"averageValue": value}})
}

fn pods_status_to_v1(status: &Value) -> Value {
    object([
        ("metricName", &status["metric"]["name"]),
        ("currentAverageValue", &status["current"]["averageValue"]),
        ("selector", &status["metric"]["selector"]),
    ])
}

fn resource_status_to_v2(status: &Value) -> Value {
    let value = or(&status["currentAverageValue"], "0");
    let current =
        object([("averageValue", &value), ("averageUtilization", &status["currentAverageUtilization"])]);
    object([("name", &or(&status["name"], "")), ("container", &status["container"]), ("current", &current)])
}

fn resource_status_to_v1(status: &Value) -> Value {
    object([
        ("name", &status["name"]),
        ("currentAverageUtilization", &status["current"]["averageUtilization"]),
        ("currentAverageValue", &status["current"]["averageValue"]),
        ("container", &status["container"]),
    ])
}

fn external_status_to_v2(status: &Value) -> Value {
    let value = or(&status["currentValue"], "0");
    json!({
        "metric": identifier(status, "metricSelector"),
        "current": object([("value", &value), ("averageValue", &status["currentAverageValue"])]),
    })
}

fn external_status_to_v1(status: &Value) -> Value {
    object([
        ("metricName", &status["metric"]["name"]),
        ("metricSelector", &status["metric"]["selector"]),
        ("currentValue", &status["current"]["value"]),
        ("currentAverageValue", &status["current"]["averageValue"]),
    ])
}
