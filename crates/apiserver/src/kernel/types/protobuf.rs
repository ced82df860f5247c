//! Parses protobuf bodies, which `kubectl create` sends for built-in kinds.
//!
//! Why not `prost` or `protobuf`: both need message types at compile time, while the types here are a table.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keleustes_objects::protobuf::{self, Envelope, Records, WireValue as Wire};
use serde_json::{Map, Value, json};

use super::{Field, Shape, Struct, of_kind};

/// Maximum nesting depth.
const DEPTH_MAX: usize = 100;

/// A body that does not parse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtobufError(pub(crate) Cow<'static, str>);

impl ProtobufError {
    fn new(message: &'static str) -> Self {
        Self(Cow::Borrowed(message))
    }
}

impl From<protobuf::Error> for ProtobufError {
    fn from(error: protobuf::Error) -> Self {
        Self(error.to_string().into())
    }
}

type Read<T> = Result<T, ProtobufError>;

/// Parses a body into JSON, with `apiVersion` and `kind` set.
pub(crate) fn read(body: &[u8]) -> Read<Value> {
    let Envelope { api_version, kind, object } = Envelope::open(body)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let shape = if kind == "DeleteOptions" {
        super::named("meta.v1.DeleteOptions")
    } else {
        of_kind(group, version, kind)
    };
    let shape = shape.ok_or(ProtobufError::new("the kind in the body has no binary form here"))?;
    let mut object = message(shape, object, 0)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn string(bytes: &[u8]) -> Read<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::new("a text is not UTF-8"))
}

fn message(shape: &'static Struct, bytes: &[u8], depth: usize) -> Read<Map<String, Value>> {
    let fields: Vec<(&str, &Field)> = shape.fields.iter().map(|(name, field)| (*name, field)).collect();
    let mut object = Map::new();
    fill(&fields, 0, bytes, &mut object, depth)?;
    Ok(object)
}

/// Parses entries into `object`; `level` is how many enclosing messages JSON flattens into it.
fn fill(
    fields: &[(&'static str, &'static Field)],
    level: usize,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Read<()> {
    if depth > DEPTH_MAX {
        return Err(ProtobufError::new("the object is nested too deeply"));
    }
    let mut records = Records(bytes);
    while let Some((number, wire)) = records.next()? {
        let here: Vec<(&'static str, &'static Field)> = fields
            .iter()
            .copied()
            .filter(|(_, field)| field.numbers.get(level).is_some_and(|n| *n == number))
            .collect();
        match (here.as_slice(), wire) {
            // A field of a newer version.
            ([], _) => {}
            ([(name, field)], wire) if field.numbers.len() == level + 1 => {
                let slot = object.entry(*name).or_insert(Value::Null);
                value(&field.shape, wire, slot, depth + 1)?;
            }
            (inner, Wire::Bytes(bytes)) => fill(inner, level + 1, bytes, object, depth + 1)?,
            _ => return Err(ProtobufError::new("a message was expected")),
        }
    }
    Ok(())
}

/// Parses one value into `slot`; lists and maps grow by one.
fn value(shape: &'static Shape, wire: Wire<'_>, slot: &mut Value, depth: usize) -> Read<()> {
    match (shape, wire) {
        (Shape::Pointer(inner), wire) => return value(inner, wire, slot, depth),
        (Shape::List(items), wire) => {
            let mut item = Value::Null;
            value(items, wire, &mut item, depth)?;
            match slot {
                Value::Array(list) => list.push(item),
                slot => *slot = json!([item]),
            }
        }
        (Shape::Map(values), Wire::Bytes(bytes)) => {
            let (key, value) = map_entry(values, bytes, depth)?;
            if !slot.is_object() {
                *slot = json!({});
            }
            slot[key] = value;
        }
        (Shape::Struct(_) | Shape::Own(_), Wire::Bytes(bytes)) => {
            let Some(kind) = shape.as_struct() else { return Ok(()) };
            *slot = Value::Object(message(kind, bytes, depth)?);
        }
        (Shape::Flag, Wire::Number(number)) => *slot = json!(number != 0),
        (Shape::Int32 | Shape::Int64, Wire::Number(number)) => *slot = json!(number.cast_signed()),
        (Shape::Float, Wire::Fixed(bits)) => *slot = json!(f64::from_bits(bits)),
        (Shape::Text, Wire::Bytes(bytes)) => *slot = json!(string(bytes)?),
        (Shape::Bytes, Wire::Bytes(bytes)) => *slot = json!(STANDARD.encode(bytes)),
        (shape, Wire::Bytes(bytes)) => *slot = special(shape, bytes)?,
        _ => return Err(ProtobufError::new("a value has not the form of its field")),
    }
    Ok(())
}

fn map_entry(values: &'static Shape, bytes: &[u8], depth: usize) -> Read<(String, Value)> {
    let (mut key, mut found) = (String::new(), Value::Null);
    let mut records = Records(bytes);
    while let Some(record) = records.next()? {
        match record {
            (1, Wire::Bytes(text)) => key = string(text)?,
            // A list as a map value is a message with the items as its only field.
            (2, Wire::Bytes(bytes)) if matches!(values, Shape::List(_)) => {
                found = json!([]);
                let mut items = Records(bytes);
                while let Some((_, wire)) = items.next()? {
                    value(values, wire, &mut found, depth + 1)?;
                }
            }
            (2, wire) => value(values, wire, &mut found, depth + 1)?,
            _ => {}
        }
    }
    Ok((key, found))
}

/// Types that are messages in protobuf and scalars in JSON.
fn special(shape: &Shape, bytes: &[u8]) -> Read<Value> {
    let mut numbers = [0_u64; 4];
    let mut text: &[u8] = &[];
    let mut records = Records(bytes);
    while let Some(record) = records.next()? {
        match record {
            (at @ 1..=3, Wire::Number(number)) => numbers[usize::try_from(at).unwrap_or(0)] = number,
            (_, Wire::Bytes(bytes)) => text = bytes,
            _ => {}
        }
    }
    let signed = |at: usize| numbers[at].cast_signed();
    Ok(match shape {
        Shape::Time | Shape::MicroTime if bytes.is_empty() => Value::Null,
        Shape::Time | Shape::MicroTime => {
            let nanos = i32::try_from(signed(2)).unwrap_or(0);
            let time =
                Timestamp::new(signed(1), nanos).map_err(|_| ProtobufError::new("a time is out of range"))?;
            json!(if matches!(shape, Shape::Time) { time.to_string() } else { format!("{time:.6}") })
        }
        Shape::Quantity => json!(string(text)?),
        Shape::IntOrString if signed(1) == 1 => json!(string(text)?),
        Shape::IntOrString => json!(signed(2)),
        Shape::Duration => json!(format!("{}s", signed(1) / 1_000_000_000)),
        Shape::Any => {
            serde_json::from_slice(text).map_err(|_| ProtobufError::new("a free value is not JSON"))?
        }
        _ => return Err(ProtobufError::new("a value has not the form of its field")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut entry = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        entry.extend_from_slice(bytes);
        entry
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [&b"k8s\0"[..], &field(1, &meta), &field(2, raw)].concat()
    }

    #[test]
    fn protobuf_fields_are_decoded_by_number() {
        let metadata = field(1, b"web");
        let port = [field(1, b"http"), vec![3 << 3, 80], field(4, &[vec![2 << 3, 81]].concat())].concat();
        let selector = [field(1, b"app"), field(2, b"web")].concat();
        let spec = [field(1, &port), field(2, &selector)].concat();
        let body = envelope("Service", &[field(1, &metadata), field(2, &spec)].concat());
        assert_eq!(
            read(&body).unwrap(),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 81}], "selector": {"app": "web"}}})
        );
    }

    #[test]
    fn messages_flattened_in_json_are_decoded() {
        let volume = [field(1, b"v"), field(2, &field(2, &[]))].concat();
        let body = envelope("Pod", &field(2, &field(1, &volume)));
        assert_eq!(read(&body).unwrap()["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        for bytes in [
            &b""[..],
            b"k8s",
            b"k8s\0\x0a\xff",
            b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"k8s\0\x07",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(read(&envelope("Nothing", &[])).is_err());
        assert!(read(&envelope("Pod", &[1 << 3, 1])).is_err());
        assert!(read(&envelope("Pod", &field(1, &field(1, b"\xff")))).is_err());
    }
}
