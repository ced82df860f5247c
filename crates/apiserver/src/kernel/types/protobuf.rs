//! Parses protobuf bodies, which `kubectl create` sends for built-in kinds.
//!
//! Why not `prost` or `protobuf`: both need message types at compile time, while the types here are a table; the wire
//! format itself takes a page to parse.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Field, Shape, Struct, of_kind};

/// Prefix of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum nesting depth.
const DEPTH_MAX: usize = 100;

/// A body that does not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProtobufError(pub(crate) &'static str);

type Read<T> = Result<T, ProtobufError>;

/// Parses a body into JSON, with `apiVersion` and `kind` set.
pub(crate) fn read(body: &[u8]) -> Read<Value> {
    let rest = body
        .strip_prefix(MAGIC)
        .ok_or(ProtobufError("the body does not begin with the mark of the binary form"))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Entries(rest) {
        match entry? {
            (1, Wire::Bytes(meta)) => {
                for entry in Entries(meta) {
                    match entry? {
                        (1, Wire::Bytes(text)) => api_version = string(text)?,
                        (2, Wire::Bytes(text)) => kind = string(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let shape = if kind == "DeleteOptions" {
        super::named("meta.v1.DeleteOptions")
    } else {
        of_kind(group, version, &kind)
    };
    let shape = shape.ok_or(ProtobufError("the kind in the body has no binary form here"))?;
    let mut object = message(shape, raw, 0)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// One value on the wire.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The entries of a message: field numbers and values.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Read<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

impl<'a> Entries<'a> {
    fn entry(&mut self) -> Read<(u64, Wire<'a>)> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Wire::Number(self.number()?),
            1 => Wire::Fixed(self.fixed(8)?),
            2 => {
                let length =
                    usize::try_from(self.number()?).map_err(|_| ProtobufError("a length is too large"))?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed(self.fixed(4)?),
            _ => return Err(ProtobufError("an entry is of no known form")),
        };
        Ok((tag >> 3, value))
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or(ProtobufError("the body ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Read<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError("a number is too long"))
    }

    fn fixed(&mut self, length: usize) -> Read<u64> {
        Ok(self.take(length)?.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }
}

fn string(bytes: &[u8]) -> Read<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError("a text is not UTF-8"))
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
        return Err(ProtobufError("the object is nested too deeply"));
    }
    for entry in Entries(bytes) {
        let (number, wire) = entry?;
        let here: Vec<(&'static str, &'static Field)> = fields
            .iter()
            .copied()
            .filter(|(_, field)| field.numbers.get(level).is_some_and(|n| u64::from(*n) == number))
            .collect();
        match (here.as_slice(), wire) {
            // A field of a newer version.
            ([], _) => {}
            ([(name, field)], wire) if field.numbers.len() == level + 1 => {
                let slot = object.entry(*name).or_insert(Value::Null);
                value(&field.shape, wire, slot, depth + 1)?;
            }
            (inner, Wire::Bytes(bytes)) => fill(inner, level + 1, bytes, object, depth + 1)?,
            _ => return Err(ProtobufError("a message was expected")),
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
        _ => return Err(ProtobufError("a value has not the form of its field")),
    }
    Ok(())
}

fn map_entry(values: &'static Shape, bytes: &[u8], depth: usize) -> Read<(String, Value)> {
    let (mut key, mut found) = (String::new(), Value::Null);
    for entry in Entries(bytes) {
        match entry? {
            (1, Wire::Bytes(text)) => key = string(text)?,
            // A list as a map value is a message with the items as its only field.
            (2, Wire::Bytes(bytes)) if matches!(values, Shape::List(_)) => {
                found = json!([]);
                for entry in Entries(bytes) {
                    let (_, wire) = entry?;
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
    for entry in Entries(bytes) {
        match entry? {
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
                Timestamp::new(signed(1), nanos).map_err(|_| ProtobufError("a time is out of range"))?;
            json!(if matches!(shape, Shape::Time) { time.to_string() } else { format!("{time:.6}") })
        }
        Shape::Quantity => json!(string(text)?),
        Shape::IntOrString if signed(1) == 1 => json!(string(text)?),
        Shape::IntOrString => json!(signed(2)),
        Shape::Duration => json!(format!("{}s", signed(1) / 1_000_000_000)),
        Shape::Any => serde_json::from_slice(text).map_err(|_| ProtobufError("a free value is not JSON"))?,
        _ => return Err(ProtobufError("a value has not the form of its field")),
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
        [MAGIC, &field(1, &meta), &field(2, raw)].concat()
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
