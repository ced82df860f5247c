//! The pod-template-hash: FNV-1a of the text that Go's printer makes of the template's struct.
//!
//! The text names every field with its Go type, set or not, so it is built from the table of fields. The original reads
//! templates as protobuf, which knows no empty list or map, so these are nil.
//!
//! Parity: ComputeHash in pkg/controller/controller_utils.go and ForHash in k8s.io/utils/dump.

use std::fmt::{self, Write};

use serde_json::{Map, Value};

use super::fields::{Field, Shape, Struct, pod_template_fields};
use crate::Time;
use crate::quantity::ParsedQuantity;

/// The hash of a template for a collision count, as the original computes it.
pub(super) fn pod_template_hash(template: &Map<String, Value>, collisions: Option<i32>) -> String {
    let mut hash = Fnv1a::default();
    // Hashing cannot fail.
    let _ = go_text(&mut hash, template);
    if let Some(count) = collisions {
        hash.update(&count.to_le_bytes());
        hash.update(&[0; 4]);
    }
    safe_encode(hash.0)
}

/// A number in letters and digits without vowels, so that no offensive word can appear.
#[must_use]
pub fn safe_encode(hash: u32) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

/// The 32-bit FNV-1a hash of what is written.
struct Fnv1a(u32);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(2_166_136_261)
    }
}

impl Fnv1a {
    fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619));
    }
}

impl Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.update(text.as_bytes());
        Ok(())
    }
}

/// Prints a template as Go's printer does with `%#v`.
pub(super) fn go_text(out: &mut impl Write, template: &Map<String, Value>) -> fmt::Result {
    let root = pod_template_fields().root();
    write!(out, "({})", root.go_type)?;
    print_struct(out, root, Some(template))
}

fn print_struct(out: &mut impl Write, part: &Struct, object: Option<&Map<String, Value>>) -> fmt::Result {
    out.write_char('{')?;
    for (index, field) in part.fields.iter().enumerate() {
        if index > 0 {
            out.write_char(' ')?;
        }
        write!(out, "{}:({})", field.go_name, field.go_type)?;
        print_field(out, field, object)?;
    }
    out.write_char('}')
}

fn print_field(out: &mut impl Write, field: &Field, object: Option<&Map<String, Value>>) -> fmt::Result {
    match (field.json, &field.shape) {
        (None, Shape::Struct(index)) => print_struct(out, pod_template_fields().part(*index), object),
        (name, shape) => print(out, shape, name.and_then(|name| object?.get(name))),
    }
}

/// Prints a value without its type, as in lists, maps and behind pointers.
fn print(out: &mut impl Write, shape: &Shape, value: Option<&Value>) -> fmt::Result {
    let value = value.filter(|value| !value.is_null());
    match shape {
        Shape::Text => out.write_str(value.and_then(Value::as_str).unwrap_or_default()),
        Shape::Bool => write!(out, "{}", value.and_then(Value::as_bool).unwrap_or_default()),
        Shape::Int => write!(out, "{}", value.and_then(Value::as_i64).unwrap_or_default()),
        Shape::Quantity => print_quantity(out, value),
        Shape::Time => print_time(out, value),
        Shape::IntOrString => {
            let text = value.and_then(Value::as_str);
            let number = value.and_then(Value::as_i64).unwrap_or_default();
            let (kind, text) = (u8::from(text.is_some()), text.unwrap_or_default());
            write!(out, "{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}")
        }
        Shape::FieldsV1 => print_fields_v1(out, value),
        Shape::Struct(index) => {
            print_struct(out, pod_template_fields().part(*index), value.and_then(Value::as_object))
        }
        Shape::Pointer(pointee) => match value {
            None => out.write_str("<nil>"),
            set => print(out, pointee, set),
        },
        Shape::List(element) => match value.and_then(Value::as_array).filter(|list| !list.is_empty()) {
            None => out.write_str("<nil>"),
            Some(list) => {
                out.write_char('[')?;
                for (index, value) in list.iter().enumerate() {
                    if index > 0 {
                        out.write_char(' ')?;
                    }
                    print(out, element, Some(value))?;
                }
                out.write_char(']')
            }
        },
        Shape::Map(element) => match value.and_then(Value::as_object).filter(|map| !map.is_empty()) {
            None => out.write_str("<nil>"),
            Some(map) => {
                out.write_str("map[")?;
                // `serde_json` maps are sorted, as the printed ones are.
                for (index, (key, value)) in map.iter().enumerate() {
                    write!(out, "{}{key}:", if index > 0 { " " } else { "" })?;
                    print(out, element, Some(value))?;
                }
                out.write_char(']')
            }
        },
    }
}

/// An unset quantity is decoded from protobuf as `0`.
fn print_quantity(out: &mut impl Write, value: Option<&Value>) -> fmt::Result {
    let text = value.map_or("0", |value| value.as_str().unwrap_or_default());
    match ParsedQuantity::parse(text) {
        Some(parsed) => write!(out, "{parsed}"),
        None => out.write_str(text),
    }
}

/// The original decodes a time from protobuf into the local time zone. Its images have no zone, so it is called UTC.
fn print_time(out: &mut impl Write, value: Option<&Value>) -> fmt::Result {
    /// Seconds from the first day of the year 1 to that of 1970.
    const YEAR_ONE: i64 = 62_135_596_800;
    let time = value.and_then(|value| serde::Deserialize::deserialize(value).ok());
    let since = time.map_or(0, |time: Time| time.unix_seconds().saturating_add(YEAR_ONE));
    write!(out, "{{Time:(time.Time){{wall:(uint64)0 ext:(int64){since} loc:(*time.Location)")?;
    out.write_str(if since == 0 {
        "<nil>}}"
    } else {
        "{name:(string)UTC zone:([]time.zone)<nil> tx:([]time.zoneTrans)<nil> extend:(string) \
         cacheStart:(int64)0 cacheEnd:(int64)0 cacheZone:(*time.zone)<nil>}}}"
    })
}

fn print_fields_v1(out: &mut impl Write, value: Option<&Value>) -> fmt::Result {
    let text = value.map(Value::to_string).unwrap_or_default();
    out.write_str("{Raw:([]uint8)[")?;
    for (index, byte) in text.bytes().enumerate() {
        write!(out, "{}{byte}", if index > 0 { " " } else { "" })?;
    }
    out.write_str("]}")
}
