//! Decodes values into the types of the table, as Go does when it reads into structs and writes them again.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Field, Presence, Quantity, Shape, Struct};

/// A value of the wrong type: kube-apiserver's message when it parses text, and its message when it converts an
/// unstructured value, if that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeMismatch(pub(crate) String, pub(crate) Option<String>);

/// The form of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Only the fields that were sent, zero values included: an apply owns what it sets.
    Applied,
    /// As sent, with all fields that are always written; empty and missing lists stay different.
    Sent,
    /// As stored, where empty and missing lists are the same.
    Stored,
}

/// One step of a path.
enum Step {
    Field(&'static str),
    Key(String),
    Item(usize),
}

/// The state of decoding one object.
struct Decoder {
    /// The path to the current value; formatted only for messages.
    path: Vec<Step>,
    /// The structs on the path, and the field of each.
    fields: Vec<(&'static Struct, &'static str)>,
    /// Unknown fields, which are dropped.
    unknown: Vec<String>,
    /// The first value of a wrong type. Decoding continues, because an unparsable text takes precedence.
    wrong: Option<TypeMismatch>,
    form: Form,
}

/// Decodes `value` as `kind`: drops unknown fields (their paths are pushed to `unknown`) and normalizes values.
pub(crate) fn decode(
    kind: &'static Struct,
    value: Value,
    form: Form,
    unknown: &mut Vec<String>,
) -> Result<Value, TypeMismatch> {
    let mut decoder =
        Decoder { path: Vec::new(), fields: Vec::new(), unknown: Vec::new(), wrong: None, form };
    let decoded = decoder.object(kind, value);
    match (decoded, decoder.wrong.take()) {
        (Ok(decoded), None) => {
            unknown.append(&mut decoder.unknown);
            Ok(decoded)
        }
        (Ok(_), Some(wrong)) => Err(wrong),
        (Err(unparsable), None) => Err(unparsable),
        // When converting an unstructured value kube-apiserver stops at the first error.
        (Err(unparsable), Some(wrong)) => Err(TypeMismatch(unparsable.0, wrong.1.or(Some(wrong.0)))),
    }
}

/// Whether the text is a time with exactly six fraction digits, the only form kube-apiserver parses.
pub(crate) fn is_micro_time(text: &str) -> bool {
    let fraction = text.split_once('.').map(|(_, rest)| rest);
    let digits = fraction.map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    digits == 6 && text.parse::<Timestamp>().is_ok()
}

impl Decoder {
    /// The error for a value that Go cannot unmarshal into the field.
    fn wrong(&self, found: &Value, wanted: &str) -> TypeMismatch {
        let found = match found {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        // Of a custom resource Go knows only the metadata.
        let known = |(kind, _): &&(&'static Struct, _)| !kind.preserves_unknown_fields;
        let place = match self.fields.iter().rfind(known) {
            Some((kind, _)) => {
                let way: Vec<&str> = self.fields.iter().filter(known).map(|(_, field)| *field).collect();
                format!("struct field {}.{} of type", kind.go_name(), way.join("."))
            }
            None => "value of type".to_owned(),
        };
        let message = format!("json: cannot unmarshal {found} into Go {place} {wanted}");
        let found = found.split(' ').next().unwrap_or_default();
        let found = match found {
            "number" => "int64",
            "array" => "slice",
            "object" => "map",
            other => other,
        };
        let restored = if wanted.starts_with("[]") && wanted != "[]uint8" {
            format!("cannot restore slice from {found}")
        } else if wanted.starts_with("map[") {
            format!("cannot restore map from {found}")
        } else if wanted.contains('.') {
            format!("cannot restore struct from: {found}")
        } else if found == "int64" && wanted != "bool" {
            format!("cannot convert {found} to {wanted}")
        } else {
            format!("unrecognized type: {wanted}")
        };
        TypeMismatch(message, Some(restored))
    }

    /// Records an error without ending the decoding.
    fn record_error(&mut self, wrong: TypeMismatch) -> Value {
        self.wrong.get_or_insert(wrong);
        Value::Null
    }

    fn object(&mut self, kind: &'static Struct, value: Value) -> Result<Value, TypeMismatch> {
        let mut given = match value {
            Value::Null => Map::new(),
            Value::Object(map) => map,
            other => return Ok(self.record_error(self.wrong(&other, &kind.go_type()))),
        };
        let mut object = Map::new();
        for (name, field) in &kind.fields {
            let value = given.remove(*name);
            if value.is_none() && self.form == Form::Applied {
                continue;
            }
            self.path.push(Step::Field(name));
            self.fields.push((kind, *name));
            let value = self.value(&field.shape, value.unwrap_or(Value::Null))?;
            self.fields.pop();
            self.path.pop();
            if let Some(value) = self.written(field, value) {
                object.insert((*name).to_owned(), value);
            }
        }
        if kind.preserves_unknown_fields {
            object.append(&mut given);
        } else {
            for (name, _) in given.into_iter().filter(|(_, value)| !value.is_null()) {
                self.unknown.push(format!("{}.{name}", self.place()).trim_start_matches('.').to_owned());
            }
        }
        Ok(Value::Object(object))
    }

    /// The path of the current value.
    fn place(&self) -> String {
        let in_words = |step: &Step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Key(key) => format!(".{key}"),
            Step::Item(at) => format!("[{at}]"),
        };
        self.path.iter().map(in_words).collect()
    }

    /// The value as written, or `None` if the field is omitted.
    fn written(&self, field: &Field, value: Value) -> Option<Value> {
        if self.form == Form::Applied {
            return Some(value).filter(|value| !value.is_null());
        }
        let is_written = match (&field.shape, &value) {
            (Shape::Pointer(_), value) => !value.is_null(),
            (shape, value) if shape.is_struct() => match field.presence {
                Presence::IfNotZero => !is_zero(value),
                // A struct that is neither a pointer nor omitzero is always written, including times.
                _ if value.is_null() => return Some(zero(shape)),
                _ => true,
            },
            (_, value) => !is_empty(value),
        };
        let list_without_items =
            self.form == Form::Sent && value.is_array() && field.presence == Presence::Always;
        if is_written || list_without_items {
            return Some(value);
        }
        (field.presence == Presence::Always).then(|| zero(&field.shape))
    }

    fn value(&mut self, shape: &'static Shape, value: Value) -> Result<Value, TypeMismatch> {
        if let Shape::Pointer(inner) = shape {
            return if value.is_null() { Ok(Value::Null) } else { self.value(inner, value) };
        }
        match shape {
            Shape::Struct(_) | Shape::Own(_) => match shape.as_struct() {
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

    fn list(&mut self, items: &'static Shape, value: Value) -> Result<Value, TypeMismatch> {
        let list = match value {
            Value::Null => return Ok(Value::Null),
            Value::Array(list) => list,
            other => return Ok(self.record_error(self.wrong(&other, &format!("[]{}", go_type(items))))),
        };
        let mut decoded = Vec::with_capacity(list.len());
        for (at, item) in list.into_iter().enumerate() {
            self.path.push(Step::Item(at));
            let item = self.value(items, item)?;
            decoded.push(if item.is_null() { zero(items) } else { item });
            self.path.pop();
        }
        Ok(Value::Array(decoded))
    }

    fn map(&mut self, values: &'static Shape, value: Value) -> Result<Value, TypeMismatch> {
        let map = match value {
            Value::Null => return Ok(Value::Null),
            Value::Object(map) => map,
            other => {
                return Ok(self.record_error(self.wrong(&other, &format!("map[string]{}", go_type(values)))));
            }
        };
        let mut decoded = Map::new();
        for (key, value) in map {
            self.path.push(Step::Key(key.clone()));
            let value = self.value(values, value)?;
            decoded.insert(key, if value.is_null() { zero(values) } else { value });
            self.path.pop();
        }
        Ok(Value::Object(decoded))
    }

    fn scalar(&mut self, shape: &Shape, value: Value) -> Result<Value, TypeMismatch> {
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
                Err(DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _)) => {
                    Ok(self.record_error(unreadable_bytes(at)))
                }
                Err(_) => Ok(self.record_error(unreadable_bytes(text.len() / 4 * 4))),
            },
            (Shape::Time, Value::String(text)) => match text.parse::<Timestamp>() {
                Ok(time) => Ok(json!(crate::kernel::seconds(time))),
                Err(_) => Err(unreadable_time(text, "2006-01-02T15:04:05Z07:00")),
            },
            (Shape::MicroTime, Value::String(text)) => {
                let time = text.parse::<Timestamp>().ok().filter(|_| is_micro_time(text));
                let form = "2006-01-02T15:04:05.000000Z07:00";
                Ok(json!(format!("{:.6}", time.ok_or_else(|| unreadable_time(text, form))?)))
            }
            (Shape::Quantity, Value::String(_) | Value::Number(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let quantity = Quantity::parse(&text).ok_or_else(|| unparsable(QUANTITY_RULE.to_owned()))?;
                Ok(json!(quantity.to_string()))
            }
            (shape, found) => Ok(self.record_error(self.wrong(found, &go_type(shape)))),
        }
    }
}

/// Error message for an invalid quantity.
const QUANTITY_RULE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A string that does not parse.
fn unparsable(why: String) -> TypeMismatch {
    TypeMismatch(why, None)
}

fn unreadable_bytes(at: usize) -> TypeMismatch {
    let why = format!("illegal base64 data at input byte {at}");
    let restored = format!("error decoding from json: {why}");
    TypeMismatch(why, Some(restored))
}

fn unreadable_time(text: &str, form: &str) -> TypeMismatch {
    let (rest, wanted) = match text.find('Z').filter(|_| form.contains('.')) {
        Some(at) => (&text[at..], ".000000"),
        None => (text, "2006"),
    };
    unparsable(format!("parsing time {text:?} as {form:?}: cannot parse {rest:?} as {wanted:?}"))
}

/// The Go name of the type.
fn go_type(shape: &Shape) -> String {
    let name = match shape {
        Shape::Text => "string",
        Shape::Flag => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Float => "float64",
        Shape::Bytes => "[]uint8",
        Shape::Time => "v1.Time",
        Shape::MicroTime => "v1.MicroTime",
        Shape::Duration => "v1.Duration",
        Shape::Quantity => "resource.Quantity",
        Shape::IntOrString => "intstr.IntOrString",
        Shape::Any => "interface {}",
        Shape::Pointer(inner) => return go_type(inner),
        Shape::List(items) => return format!("[]{}", go_type(items)),
        Shape::Map(values) => return format!("map[string]{}", go_type(values)),
        Shape::Struct(_) | Shape::Own(_) => {
            return shape.as_struct().map(Struct::go_type).unwrap_or_default();
        }
    };
    name.to_owned()
}

/// The zero value of a field that is always written.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Duration => json!(""),
        Shape::Flag => json!(false),
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => json!(0),
        Shape::Quantity => json!("0"),
        Shape::Struct(_) | Shape::Own(_) => json!({}),
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

    fn read(kind: &str, value: Value) -> Result<(Value, Vec<String>), TypeMismatch> {
        let mut unknown = Vec::new();
        let decoded = decode(of_kind("", "v1", kind).unwrap(), value, Form::Stored, &mut unknown)?;
        Ok((decoded, unknown))
    }

    #[test]
    fn decoding_normalizes_like_go_structs() {
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
    fn type_errors_have_the_field_path() {
        let wrong = json!({"spec": {"containers": [{"name": "a"}, {"name": 3}]}});
        let message = "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string";
        assert_eq!(read("Pod", wrong).unwrap_err().0, message);
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
    fn unparsable_text_takes_precedence_over_a_type_error() {
        let both = json!({"metadata": {"labels": "text"}, "status": {"startTime": "yesterday"}});
        let message = read("Pod", both).unwrap_err();
        assert!(message.0.starts_with("parsing time"), "{}", message.0);
        assert_eq!(message.1.as_deref(), Some("cannot restore map from string"));
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
