//! The text of the annotations: what Go's `encoding/json` reads and writes for the types in them.

use keleustes_objects::Quantity;
use serde_json::{Map, Value, json};

/// The type of a value.
pub(super) enum Shape {
    Text,
    Integer,
    Quantity,
    Time,
    Struct(&'static [Field]),
    List(&'static Shape),
    Map(&'static Shape),
}

/// A field, by its name in the text.
pub(super) struct Field {
    name: &'static str,
    shape: &'static Shape,
    missing: Missing,
}

/// How the text shows a field that is not set.
#[derive(Clone, Copy)]
enum Missing {
    Zero,
    Null,
    Omitted,
}

const fn zero(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, shape, missing: Missing::Zero }
}

const fn null(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, shape, missing: Missing::Null }
}

const fn omitted(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, shape, missing: Missing::Omitted }
}

const TEXT: Shape = Shape::Text;
const INTEGER: Shape = Shape::Integer;
const QUANTITY: Shape = Shape::Quantity;

const REFERENCE: Shape =
    Shape::Struct(&[zero("kind", &TEXT), zero("name", &TEXT), omitted("apiVersion", &TEXT)]);
const EXPRESSION: Shape =
    Shape::Struct(&[zero("key", &TEXT), zero("operator", &TEXT), omitted("values", &Shape::List(&TEXT))]);
const SELECTOR: Shape = Shape::Struct(&[
    omitted("matchLabels", &Shape::Map(&TEXT)),
    omitted("matchExpressions", &Shape::List(&EXPRESSION)),
]);

/// Metrics of the spec.
pub(super) const METRICS: Shape = Shape::List(&Shape::Struct(&[
    zero("type", &TEXT),
    omitted(
        "object",
        &Shape::Struct(&[
            zero("target", &REFERENCE),
            zero("metricName", &TEXT),
            zero("targetValue", &QUANTITY),
            omitted("selector", &SELECTOR),
            omitted("averageValue", &QUANTITY),
        ]),
    ),
    omitted(
        "pods",
        &Shape::Struct(&[
            zero("metricName", &TEXT),
            zero("targetAverageValue", &QUANTITY),
            omitted("selector", &SELECTOR),
        ]),
    ),
    omitted(
        "resource",
        &Shape::Struct(&[
            zero("name", &TEXT),
            omitted("targetAverageUtilization", &INTEGER),
            omitted("targetAverageValue", &QUANTITY),
        ]),
    ),
    omitted(
        "containerResource",
        &Shape::Struct(&[
            zero("name", &TEXT),
            omitted("targetAverageUtilization", &INTEGER),
            omitted("targetAverageValue", &QUANTITY),
            zero("container", &TEXT),
        ]),
    ),
    omitted(
        "external",
        &Shape::Struct(&[
            zero("metricName", &TEXT),
            omitted("metricSelector", &SELECTOR),
            omitted("targetValue", &QUANTITY),
            omitted("targetAverageValue", &QUANTITY),
        ]),
    ),
]));

/// Metrics of the status.
pub(super) const METRIC_STATUSES: Shape = Shape::List(&Shape::Struct(&[
    zero("type", &TEXT),
    omitted(
        "object",
        &Shape::Struct(&[
            zero("target", &REFERENCE),
            zero("metricName", &TEXT),
            zero("currentValue", &QUANTITY),
            omitted("selector", &SELECTOR),
            omitted("averageValue", &QUANTITY),
        ]),
    ),
    omitted(
        "pods",
        &Shape::Struct(&[
            zero("metricName", &TEXT),
            zero("currentAverageValue", &QUANTITY),
            omitted("selector", &SELECTOR),
        ]),
    ),
    omitted(
        "resource",
        &Shape::Struct(&[
            zero("name", &TEXT),
            omitted("currentAverageUtilization", &INTEGER),
            zero("currentAverageValue", &QUANTITY),
        ]),
    ),
    omitted(
        "containerResource",
        &Shape::Struct(&[
            zero("name", &TEXT),
            omitted("currentAverageUtilization", &INTEGER),
            zero("currentAverageValue", &QUANTITY),
            zero("container", &TEXT),
        ]),
    ),
    omitted(
        "external",
        &Shape::Struct(&[
            zero("metricName", &TEXT),
            omitted("metricSelector", &SELECTOR),
            zero("currentValue", &QUANTITY),
            omitted("currentAverageValue", &QUANTITY),
        ]),
    ),
]));

/// Conditions of the status.
pub(super) const CONDITIONS: Shape = Shape::List(&Shape::Struct(&[
    zero("type", &TEXT),
    zero("status", &TEXT),
    zero("lastTransitionTime", &Shape::Time),
    omitted("reason", &TEXT),
    omitted("message", &TEXT),
    omitted("observedGeneration", &INTEGER),
]));

const RULES: Shape = Shape::Struct(&[
    null("StabilizationWindowSeconds", &INTEGER),
    null("SelectPolicy", &TEXT),
    null(
        "Policies",
        &Shape::List(&Shape::Struct(&[
            zero("Type", &TEXT),
            zero("Value", &INTEGER),
            zero("PeriodSeconds", &INTEGER),
        ])),
    ),
    null("Tolerance", &QUANTITY),
]);

/// The behavior.
pub(super) const BEHAVIOR: Shape = Shape::Struct(&[null("ScaleUp", &RULES), null("ScaleDown", &RULES)]);

impl Field {
    /// The name of the field in objects, which begins with a small letter.
    fn key(&self) -> String {
        let (first, rest) = self.name.split_at(1);
        format!("{}{rest}", first.to_ascii_lowercase())
    }
}

impl Shape {
    /// The value with its known fields; `None` if something has another type. Go ignores the case of field names, unknown
    /// fields and null.
    pub(super) fn read(&self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::List(_), Value::Null) => Some(json!([])),
            (Self::Text | Self::Time, Value::String(_)) => Some(value.clone()),
            (Self::Integer, Value::Number(number)) => number.as_i64().map(Value::from),
            (Self::Quantity, Value::String(text)) => quantity(text).map(|_| value.clone()),
            (Self::Quantity, Value::Number(number)) => Some(json!(number.to_string())),
            (Self::List(item), Value::Array(items)) => items.iter().map(|one| item.read(one)).collect(),
            (Self::Map(item), Value::Object(map)) => {
                let read = map.iter().map(|(key, value)| Some((key.clone(), item.read(value)?)));
                read.collect::<Option<Map<_, _>>>().map(Value::Object)
            }
            (Self::Struct(fields), Value::Object(map)) => {
                let mut read = Map::new();
                for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                    if let Some(field) = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)) {
                        read.insert(field.key(), field.shape.read(value)?);
                    }
                }
                Some(Value::Object(read))
            }
            (Self::Struct(_), Value::Null) => Some(json!({})),
            (Self::Text, Value::Null) => Some(json!("")),
            _ => None,
        }
    }

    /// The text of a value.
    pub(super) fn text(&self, value: &Value) -> String {
        match (self, value) {
            (Self::List(item), Value::Array(items)) => {
                let items: Vec<String> = items.iter().map(|one| item.text(one)).collect();
                format!("[{}]", items.join(","))
            }
            (Self::Map(item), Value::Object(map)) => {
                let items: Vec<String> =
                    map.iter().map(|(key, value)| format!("{}:{}", escaped(key), item.text(value))).collect();
                format!("{{{}}}", items.join(","))
            }
            (Self::Struct(fields), value) => {
                let shown: Vec<String> = fields.iter().filter_map(|field| field.text(value)).collect();
                format!("{{{}}}", shown.join(","))
            }
            (Self::Text, Value::Null) => "\"\"".to_owned(),
            (Self::Integer, Value::Null) => "0".to_owned(),
            (Self::Quantity, Value::Null) => "\"0\"".to_owned(),
            (_, Value::String(text)) => escaped(text),
            (_, value) => value.to_string(),
        }
    }
}

impl Field {
    fn text(&self, object: &Value) -> Option<String> {
        let value = &object[self.key()];
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty() && matches!(self.shape, Shape::Map(_)),
            _ => false,
        };
        let text = match self.missing {
            Missing::Omitted if is_empty => return None,
            Missing::Null if value.is_null() => "null".to_owned(),
            _ => self.shape.text(value),
        };
        Some(format!("{}:{text}", escaped(self.name)))
    }
}

/// A string as Go writes it, safe for HTML.
fn escaped(text: &str) -> String {
    let mut escaped = json!(text).to_string();
    for (found, replacement) in [
        ("&", "\\u0026"),
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        escaped = escaped.replace(found, replacement);
    }
    escaped
}

/// A quantity; `None` if it is malformed.
pub(super) fn quantity(text: &str) -> Option<Quantity> {
    Quantity::parse(text)
}
