//! The names of types that every environment has, and the messages of protocol buffers among them.

use std::sync::Arc;

use crate::types::Type;

fn wrapper(wrapped: Type) -> Type {
    Type::Wrapper(Arc::new(wrapped))
}

/// The type that a name stands for in every environment.
pub(crate) fn type_name(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        message => message_type(message)?,
    })
}

/// The type of a message of protocol buffers.
fn message_type(name: &str) -> Option<Type> {
    Some(match name.strip_prefix("google.protobuf.")? {
        "Any" => Type::Any,
        "Duration" => Type::Duration,
        "Timestamp" => Type::Timestamp,
        "Empty" => Type::Struct(name.into()),
        "Struct" => Type::map(Type::String, Type::Dyn),
        "ListValue" => Type::list(Type::Dyn),
        "Value" => Type::Dyn,
        "BoolValue" => wrapper(Type::Bool),
        "BytesValue" => wrapper(Type::Bytes),
        "DoubleValue" | "FloatValue" => wrapper(Type::Double),
        "Int32Value" | "Int64Value" => wrapper(Type::Int),
        "UInt32Value" | "UInt64Value" => wrapper(Type::Uint),
        "StringValue" => wrapper(Type::String),
        _ => return None,
    })
}

/// Constants of protocol buffers.
pub(crate) fn constant(name: &str) -> Option<Type> {
    (name == "google.protobuf.NullValue.NULL_VALUE").then_some(Type::Int)
}

/// The message whose fields a literal of this type sets.
pub(crate) fn message_of(built: &Type) -> Option<&'static str> {
    Some(match built {
        Type::Any => "google.protobuf.Any",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::Duration => "google.protobuf.Duration",
        Type::Dyn => "google.protobuf.Value",
        Type::Null => "google.protobuf.NullValue",
        Type::List(element) if matches!(**element, Type::Dyn) => "google.protobuf.ListValue",
        Type::Map(key, value) if matches!((&**key, &**value), (Type::String, Type::Dyn)) => {
            "google.protobuf.Struct"
        }
        Type::Wrapper(wrapped) => match **wrapped {
            Type::Bool => "google.protobuf.BoolValue",
            Type::Bytes => "google.protobuf.BytesValue",
            Type::Double => "google.protobuf.DoubleValue",
            Type::Int => "google.protobuf.Int64Value",
            Type::Uint => "google.protobuf.UInt64Value",
            _ => "google.protobuf.StringValue",
        },
        _ => return None,
    })
}

/// The type of a field of a message: `None` if there is no such message, `Some(None)` if it has no such field.
pub(crate) fn message_field(message: &str, field: &str) -> Option<Option<Type>> {
    message_type(message)?;
    let short = message.strip_prefix("google.protobuf.")?;
    Some(match (short, field) {
        ("Any", "type_url") | ("StringValue", "value") | ("Value", "string_value") => Some(Type::String),
        ("Any" | "BytesValue", "value") => Some(Type::Bytes),
        ("Duration" | "Timestamp", "seconds" | "nanos") | ("Int32Value" | "Int64Value", "value") => {
            Some(Type::Int)
        }
        ("Struct", "fields") | ("Value", "struct_value") => Some(Type::map(Type::String, Type::Dyn)),
        ("ListValue", "values") | ("Value", "list_value") => Some(Type::list(Type::Dyn)),
        ("Value", "null_value") => Some(Type::Null),
        ("Value", "number_value") | ("DoubleValue" | "FloatValue", "value") => Some(Type::Double),
        ("Value", "bool_value") | ("BoolValue", "value") => Some(Type::Bool),
        ("UInt32Value" | "UInt64Value", "value") => Some(Type::Uint),
        _ => None,
    })
}
