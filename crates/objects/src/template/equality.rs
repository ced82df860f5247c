//! Semantic equality of pod templates, as a Deployment compares them.
//!
//! Absent and empty lists, maps, strings, numbers and structs are equal; an absent pointer and one to an empty value are
//! not. Quantities are equal by value and times by instant. Fields that the types of v1.37 lack do not count: the
//! original loses them when it decodes.
//!
//! Parity: EqualIgnoreHash in pkg/controller/deployment/util, pkg/api/equality of apimachinery.

use serde_json::{Map, Value};

use super::fields::{Field, Shape, Struct, pod_template_fields};
use crate::Time;
use crate::quantity::ParsedQuantity;

type Object = Map<String, Value>;

/// Whether two templates are equal.
pub(super) fn semantically_equal(one: &Object, other: &Object) -> bool {
    structs_are_equal(pod_template_fields().root(), Some(one), Some(other))
}

fn structs_are_equal(part: &Struct, one: Option<&Object>, other: Option<&Object>) -> bool {
    part.fields.iter().all(|field| fields_are_equal(field, one, other))
}

fn fields_are_equal(field: &Field, one: Option<&Object>, other: Option<&Object>) -> bool {
    match (field.json, &field.shape) {
        (None, Shape::Struct(index)) => structs_are_equal(pod_template_fields().part(*index), one, other),
        (name, shape) => {
            let [one, other] = [one, other].map(|object| name.and_then(|name| object?.get(name)));
            are_equal(shape, one, other)
        }
    }
}

fn are_equal(shape: &Shape, one: Option<&Value>, other: Option<&Value>) -> bool {
    let [one, other] = [one, other].map(|value| value.filter(|value| !value.is_null()));
    let texts = || [one, other].map(|value| value.and_then(Value::as_str));
    let objects = || [one, other].map(|value| value.and_then(Value::as_object));
    match shape {
        Shape::Text => texts()[0].unwrap_or_default() == texts()[1].unwrap_or_default(),
        Shape::Bool => is_true(one) == is_true(other),
        Shape::Int => number(one) == number(other),
        Shape::Quantity => quantities_are_equal(one, other),
        Shape::Time => time(one) == time(other),
        Shape::IntOrString => texts()[0] == texts()[1] && number(one) == number(other),
        Shape::FieldsV1 => one == other,
        Shape::Struct(index) => {
            structs_are_equal(pod_template_fields().part(*index), objects()[0], objects()[1])
        }
        Shape::Pointer(pointee) => match (one, other) {
            (None, None) => true,
            (Some(_), Some(_)) => are_equal(pointee, one, other),
            _ => false,
        },
        Shape::List(element) => {
            let [one, other] = [one, other].map(|value| value.and_then(Value::as_array));
            let [one, other] = [one, other].map(|list| list.map_or(&[][..], Vec::as_slice));
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| are_equal(element, Some(one), Some(other)))
        }
        Shape::Map(element) => {
            let [one, other] = objects();
            let length = |map: Option<&Object>| map.map_or(0, Map::len);
            length(one) == length(other)
                && one.into_iter().flatten().all(|(key, value)| {
                    let there = other.and_then(|map| map.get(key));
                    there.is_some_and(|there| are_equal(element, Some(value), Some(there)))
                })
        }
    }
}

fn is_true(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool).unwrap_or_default()
}

fn number(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or_default()
}

fn time(value: Option<&Value>) -> Option<Time> {
    value.and_then(|value| serde::Deserialize::deserialize(value).ok())
}

/// An unset quantity is zero. A text that is no quantity, which no API server stores, equals itself only.
fn quantities_are_equal(one: Option<&Value>, other: Option<&Value>) -> bool {
    let [one, other] =
        [one, other].map(|value| value.map_or("0", |value| value.as_str().unwrap_or_default()));
    one == other
        || match (ParsedQuantity::parse(one), ParsedQuantity::parse(other)) {
            (Some(one), Some(other)) => one.equals(&other),
            _ => false,
        }
}
