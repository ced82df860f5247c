//! A pod template as the original encodes it after decoding it: with the fields of v1.37 only.
//!
//! A newer API server sends fields that the types of v1.37 lack. The original loses them when it decodes, so they are in
//! no revision data.

use serde_json::{Map, Value};

use super::fields::{Field, Omit, Shape, Struct, pod_template_fields};

type Object = Map<String, Value>;

/// The template with the fields of v1.37 only; those that JSON always shows are present.
pub(super) fn typed(mut template: Object) -> Object {
    let mut encoded = Object::new();
    encode_struct(pod_template_fields().root(), &mut template, &mut encoded);
    encoded
}

/// Removes the fields that the types of v1.37 lack, and changes nothing else.
pub(super) fn drop_unknown(template: &mut Object) {
    drop_unknown_of(pod_template_fields().root(), template);
}

/// Moves the fields of a struct from one object to another.
fn encode_struct(part: &Struct, from: &mut Object, to: &mut Object) {
    for field in &part.fields {
        match (field.json, &field.shape) {
            (None, Shape::Struct(index)) => encode_struct(pod_template_fields().part(*index), from, to),
            (Some(name), _) => {
                if let Some(value) = encode_field(field, from.remove(name).filter(|value| !value.is_null())) {
                    to.insert(name.to_owned(), value);
                }
            }
            (None, _) => {}
        }
    }
}

fn encode_field(field: &Field, value: Option<Value>) -> Option<Value> {
    let is_unset = match (&field.shape, &value) {
        (Shape::Struct(_) | Shape::Quantity | Shape::IntOrString, _) => false,
        (Shape::Pointer(_), value) => value.is_none(),
        (_, None) => true,
        (_, Some(value)) => is_empty(value),
    };
    (!is_unset || field.omit == Omit::Never).then(|| encode(&field.shape, value))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn encode(shape: &Shape, value: Option<Value>) -> Value {
    let value = value.filter(|value| !value.is_null());
    match (shape, value) {
        (Shape::Struct(index), value) => {
            let mut from = match value {
                Some(Value::Object(from)) => from,
                _ => Object::new(),
            };
            let mut to = Object::new();
            encode_struct(pod_template_fields().part(*index), &mut from, &mut to);
            Value::Object(to)
        }
        (Shape::Pointer(pointee), Some(value)) => encode(pointee, Some(value)),
        (Shape::List(element), Some(Value::Array(list))) if !list.is_empty() => {
            list.into_iter().map(|value| encode(element, Some(value))).collect()
        }
        (Shape::Map(element), Some(Value::Object(map))) if !map.is_empty() => {
            map.into_iter().map(|(key, value)| (key, encode(element, Some(value)))).collect()
        }
        (Shape::Pointer(_) | Shape::List(_) | Shape::Map(_) | Shape::Time, None)
        | (Shape::List(_) | Shape::Map(_), Some(_)) => Value::Null,
        (Shape::Text, None) => "".into(),
        (Shape::Bool, None) => false.into(),
        (Shape::Int | Shape::IntOrString, None) => 0.into(),
        (Shape::Quantity, None) => "0".into(),
        (Shape::FieldsV1, None) => Value::Null,
        (_, Some(value)) => value,
    }
}

fn drop_unknown_of(part: &'static Struct, object: &mut Object) {
    object.retain(|name, value| match find(part, name) {
        Some(field) => {
            drop_unknown_in(&field.shape, value);
            true
        }
        None => false,
    });
}

fn drop_unknown_in(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(index), Value::Object(object)) => {
            drop_unknown_of(pod_template_fields().part(*index), object);
        }
        (Shape::Pointer(pointee), value) => drop_unknown_in(pointee, value),
        (Shape::List(element), Value::Array(list)) => {
            list.iter_mut().for_each(|value| drop_unknown_in(element, value));
        }
        (Shape::Map(element), Value::Object(map)) => {
            map.values_mut().for_each(|value| drop_unknown_in(element, value));
        }
        _ => {}
    }
}

/// The field with this name, in the struct or in one that JSON inlines.
fn find(part: &'static Struct, name: &str) -> Option<&'static Field> {
    part.fields.iter().find_map(|field| match (field.json, &field.shape) {
        (Some(known), _) => (known == name).then_some(field),
        (None, Shape::Struct(index)) => find(pod_template_fields().part(*index), name),
        (None, _) => None,
    })
}
