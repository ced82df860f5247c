//! Values take the shape the table gives them, as if they had been read into typed structs and written again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Field, Presence, Quantity, Shape, Struct};

/// A value that does not have the shape of its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Where, such as `spec.containers[0].image`.
    pub(crate) path: String,
    /// What stands there, or why it cannot be read.
    pub(crate) problem: String,
}

/// What a reading finds on its way.
struct Reading {
    path: Vec<String>,
    /// Fields nobody knows; they are left out.
    unknown: Vec<String>,
    /// Whether fields that are always written appear even when the value leaves them out.
    complete: bool,
}

/// Gives `value` the shape of `kind`: unknown fields go (their names are pushed to `unknown`), values are written in
/// their one canonical form, and, if `complete`, fields that are always written appear.
pub(crate) fn decode(
    kind: &'static Struct,
    value: Value,
    complete: bool,
    unknown: &mut Vec<String>,
) -> Result<Value, Mismatch> {
    let mut reading = Reading { path: Vec::new(), unknown: Vec::new(), complete };
    let decoded = reading.object(kind, value)?;
    unknown.append(&mut reading.unknown);
    Ok(decoded)
}

/// Whether the text is a time with exactly six digits of fraction, the only form the real server reads.
pub(crate) fn is_micro_time(text: &str) -> bool {
    let fraction = text.split_once('.').map(|(_, rest)| rest);
    let digits = fraction.map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    digits == 6 && text.parse::<Timestamp>().is_ok()
}

impl Reading {
    fn mismatch(&self, problem: String) -> Mismatch {
        Mismatch { path: self.path.concat().trim_start_matches('.').to_owned(), problem }
    }

    fn wrong(&self, found: &Value, wanted: &str) -> Mismatch {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        self.mismatch(format!("json: cannot unmarshal {found} into a field of type {wanted}"))
    }

    fn object(&mut self, kind: &'static Struct, value: Value) -> Result<Value, Mismatch> {
        let mut given = match value {
            Value::Null => Map::new(),
            Value::Object(map) => map,
            other => return Err(self.wrong(&other, kind.name)),
        };
        let mut object = Map::new();
        for (name, field) in &kind.fields {
            let value = given.remove(*name);
            if value.is_none() && !self.complete {
                continue;
            }
            self.path.push(format!(".{name}"));
            let value = self.value(&field.shape, value.unwrap_or(Value::Null))?;
            self.path.pop();
            if let Some(value) = self.written(field, value) {
                object.insert((*name).to_owned(), value);
            }
        }
        if kind.open {
            object.append(&mut given);
        } else {
            let place = self.path.concat();
            let unknown = given.into_iter().filter(|(_, value)| !value.is_null());
            self.unknown.extend(
                unknown.map(|(name, _)| format!("{place}.{name}").trim_start_matches('.').to_owned()),
            );
        }
        Ok(Value::Object(object))
    }

    /// The value as it is written, or `None` if the field is left out.
    fn written(&self, field: &Field, value: Value) -> Option<Value> {
        let says_something = match (&field.shape, &value) {
            (Shape::Pointer(_), value) => !value.is_null(),
            (shape, value) if shape.is_struct() => match field.presence {
                Presence::IfNotZero => !is_zero(value),
                // Without pointers or a word on zero, structs are always written, times among them.
                _ if value.is_null() => return self.complete.then(|| zero(shape)),
                _ => true,
            },
            (_, value) => !is_empty(value),
        };
        if says_something {
            return Some(value);
        }
        (field.presence == Presence::Always && self.complete).then(|| zero(&field.shape))
    }

    fn value(&mut self, shape: &'static Shape, value: Value) -> Result<Value, Mismatch> {
        if let Shape::Pointer(inner) = shape {
            return if value.is_null() { Ok(Value::Null) } else { self.value(inner, value) };
        }
        match shape {
            Shape::Struct(_) => match shape.as_struct() {
                Some(kind) => self.object(kind, value),
                None => Ok(value),
            },
            Shape::List(items) => self.list(items, value),
            Shape::Map(values) => self.map(values, value),
            Shape::Any | Shape::Pointer(_) => Ok(value),
            _ if value.is_null() => Ok(Value::Null),
            scalar => self.scalar(scalar, value),
        }
    }

    fn list(&mut self, items: &'static Shape, value: Value) -> Result<Value, Mismatch> {
        let list = match value {
            Value::Null => return Ok(Value::Null),
            Value::Array(list) => list,
            other => return Err(self.wrong(&other, "a list")),
        };
        let mut decoded = Vec::with_capacity(list.len());
        for (at, item) in list.into_iter().enumerate() {
            self.path.push(format!("[{at}]"));
            let item = self.value(items, item)?;
            decoded.push(if item.is_null() { zero(items) } else { item });
            self.path.pop();
        }
        Ok(Value::Array(decoded))
    }

    fn map(&mut self, values: &'static Shape, value: Value) -> Result<Value, Mismatch> {
        let map = match value {
            Value::Null => return Ok(Value::Null),
            Value::Object(map) => map,
            other => return Err(self.wrong(&other, "a map")),
        };
        let mut decoded = Map::new();
        for (key, value) in map {
            self.path.push(format!(".{key}"));
            let value = self.value(values, value)?;
            decoded.insert(key, if value.is_null() { zero(values) } else { value });
            self.path.pop();
        }
        Ok(Value::Object(decoded))
    }

    fn scalar(&self, shape: &Shape, value: Value) -> Result<Value, Mismatch> {
        let unreadable = |what: &str, text: &str| self.mismatch(format!("{text:?} is not a {what}"));
        match (shape, &value) {
            (Shape::Text | Shape::Duration, Value::String(_)) | (Shape::Flag, Value::Bool(_)) => Ok(value),
            (Shape::Int64, Value::Number(n)) if n.is_i64() => Ok(value),
            (Shape::Int32 | Shape::IntOrString, Value::Number(n))
                if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) =>
            {
                Ok(value)
            }
            (Shape::IntOrString, Value::String(_)) | (Shape::Float, Value::Number(_)) => Ok(value),
            (Shape::Bytes, Value::String(text)) => match STANDARD.decode(text) {
                Ok(_) => Ok(value),
                Err(_) => Err(unreadable("base64 text", text)),
            },
            (Shape::Time, Value::String(text)) => match text.parse::<Timestamp>() {
                Ok(time) => Ok(json!(crate::kernel::seconds(time))),
                Err(_) => Err(unreadable("time", text)),
            },
            (Shape::MicroTime, Value::String(text)) => {
                let time = text.parse::<Timestamp>().ok().filter(|_| is_micro_time(text));
                let time = time.ok_or_else(|| unreadable("time with six digits of fraction", text))?;
                Ok(json!(format!("{time:.6}")))
            }
            (Shape::Quantity, Value::String(_) | Value::Number(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let quantity = Quantity::parse(&text).ok_or_else(|| unreadable("quantity", &text))?;
                Ok(json!(quantity.to_string()))
            }
            (shape, found) => Err(self.wrong(found, word(shape))),
        }
    }
}

fn word(shape: &Shape) -> &'static str {
    match shape {
        Shape::Text => "string",
        Shape::Flag => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Float => "float64",
        Shape::Bytes => "[]uint8",
        Shape::Time | Shape::MicroTime => "Time",
        Shape::Duration => "Duration",
        Shape::Quantity => "Quantity",
        Shape::IntOrString => "IntOrString",
        _ => "value",
    }
}

/// What a field that is always written holds when nothing was said.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Duration => json!(""),
        Shape::Flag => json!(false),
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => json!(0),
        Shape::Quantity => json!("0"),
        Shape::Struct(_) => json!({}),
        _ => Value::Null,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().all(is_zero),
        other => is_empty(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::of_kind;
    use super::*;

    fn read(kind: &str, value: Value) -> Result<(Value, Vec<String>), Mismatch> {
        let mut unknown = Vec::new();
        let decoded = decode(of_kind("", "v1", kind).unwrap(), value, true, &mut unknown)?;
        Ok((decoded, unknown))
    }

    #[test]
    fn typed_servers_write_what_they_read() {
        let (event, _) = read("Event", json!({"metadata": {"name": "a", "labels": {}}, "count": 0})).unwrap();
        assert_eq!(
            event,
            json!({"metadata": {"name": "a"}, "involvedObject": {}, "source": {}, "firstTimestamp": null,
                "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""})
        );
        let (node, unknown) = read(
            "Node",
            json!({"status": {"capacity": {"cpu": "2000m"}, "strange": 1}, "spec": {"taints": [], "odd": null}}),
        )
        .unwrap();
        assert_eq!(node["status"]["capacity"], json!({"cpu": "2"}));
        assert_eq!(unknown, ["status.strange"]);
        assert!(node["spec"].get("taints").is_none());
    }

    #[test]
    fn pointers_keep_zeros_and_plain_values_do_not() {
        let (controller, _) =
            read("ReplicationController", json!({"spec": {"replicas": 0, "minReadySeconds": 0}})).unwrap();
        assert_eq!(controller["spec"], json!({"replicas": 0}));
    }

    #[test]
    fn wrong_shapes_are_told_with_their_place() {
        let wrong = json!({"spec": {"containers": [{"name": "a"}, {"name": 3}]}});
        assert_eq!(read("Pod", wrong).unwrap_err().path, "spec.containers[1].name");
        for wrong in [
            json!({"metadata": {"creationTimestamp": "yesterday"}}),
            json!({"metadata": {"labels": {"a": 1}}}),
            json!({"spec": {"activeDeadlineSeconds": 1.5}}),
            json!({"spec": {"priority": 3_000_000_000_i64}}),
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "much"}}}]}}),
            json!([]),
        ] {
            assert!(read("Pod", wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_one_form() {
        let (pod, _) =
            read("Pod", json!({"metadata": {"creationTimestamp": "2026-01-01T02:00:00.7+02:00"}})).unwrap();
        assert_eq!(pod["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        assert!(is_micro_time("2026-01-01T00:00:00.500000Z"));
        assert!(!is_micro_time("2026-01-01T00:00:00.5Z"));
    }
}
