//! Types of custom resources, built from structural schemas.

use serde_json::Value;

use super::{Field, List, Shape, Struct, object_meta};

/// The type of a custom resource, leaked, so that it is `'static` like the built-in ones.
pub(crate) fn of_schema(schema: &'static Value) -> &'static Struct {
    let mut shape = structure(schema);
    let own = [("apiVersion", Some(Shape::Text)), ("kind", Some(Shape::Text)), ("metadata", object_meta())];
    for (name, own) in own {
        shape.fields.extend(own.map(|own| (name, Field::plain(own))));
    }
    Box::leak(Box::new(shape))
}

fn structure(schema: &'static Value) -> Struct {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, property)| (name.as_str(), field(property))).collect();
    let open =
        schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true;
    Struct { name: "custom", atomic: false, preserves_unknown_fields: open, fields }
}

fn field(schema: &'static Value) -> Field {
    let list = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => List::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            List::Keyed(keys.filter_map(Value::as_str).collect())
        }
        _ => List::Atomic,
    };
    Field {
        list,
        atomic: schema["x-kubernetes-map-type"] == "atomic",
        default: schema.get("default").cloned(),
        ..Field::plain(shape(schema))
    }
}

fn shape(schema: &'static Value) -> Shape {
    if schema["x-kubernetes-int-or-string"] == true {
        return Shape::IntOrString;
    }
    match schema["type"].as_str() {
        Some("string") => Shape::Text,
        Some("boolean") => Shape::Flag,
        Some("integer") => Shape::Int64,
        Some("number") => Shape::Float,
        Some("array") => Shape::List(Box::new(shape(&schema["items"]))),
        _ if schema["additionalProperties"].is_object() => {
            Shape::Map(Box::new(shape(&schema["additionalProperties"])))
        }
        _ => Shape::Own(Box::leak(Box::new(structure(schema)))),
    }
}
