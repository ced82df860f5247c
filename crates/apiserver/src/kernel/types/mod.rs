//! Objects seen through the types of their kinds: decoding, merging and ownership.

mod decode;
pub(crate) mod protobuf;
mod structural;

use serde_json::{Map, Value};

pub(crate) use self::decode::{Form, decode};
pub(crate) use self::structural::of_schema;
pub(crate) use keleustes_objects::Quantity;
pub(crate) use keleustes_objects::types::{
    Field, List, Merge, Presence, Shape, Struct, custom, named, object_meta, of_kind,
};

/// The scalar type a schema expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Any,
    Flag,
    List,
    Map,
    Number,
    Text,
}

/// How a list is owned in managedFields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// As a whole.
    Atomic,
    /// Value by value.
    Set,
    /// Item by item, identified by these fields.
    Keyed(&'static [&'static str]),
}

/// A position in an object, seen through its type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    /// Below the known types: maps are granular, lists atomic.
    Free,
    /// The root of an object, or a list item.
    Struct(&'static Struct),
    /// A field with its merge rules.
    Field(&'static Field),
    /// A map value or list item.
    Item(&'static Shape),
}

impl Node {
    fn shape(self) -> Option<&'static Shape> {
        match self {
            Node::Free | Node::Struct(_) => None,
            Node::Field(field) => Some(field.shape.target()),
            Node::Item(shape) => Some(shape.target()),
        }
    }

    /// The struct at this node, if it is one.
    pub(crate) fn structure(self) -> Option<&'static Struct> {
        match self {
            Node::Struct(found) => Some(found),
            node => node.shape()?.as_struct(),
        }
    }

    /// The node of a field below this one.
    pub(crate) fn field(self, name: &str) -> Node {
        if let Some(found) = self.structure() {
            return found.fields.get(name).map_or(Node::Free, Node::Field);
        }
        match self.shape() {
            Some(Shape::Map(values)) => Node::Item(values),
            _ => Node::Free,
        }
    }

    /// Whether a field of that name is allowed below this node.
    pub(crate) fn allows_field(self, name: &str) -> bool {
        self.structure().is_none_or(|found| found.preserves_unknown_fields || found.fields.contains_key(name))
    }

    /// The scalar type at this node.
    pub(crate) fn scalar(self) -> Scalar {
        match self.shape() {
            None if self.structure().is_some() => Scalar::Map,
            None | Some(Shape::Any | Shape::Quantity | Shape::IntOrString) => Scalar::Any,
            Some(Shape::Text | Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Duration) => {
                Scalar::Text
            }
            Some(Shape::Flag) => Scalar::Flag,
            Some(Shape::Int32 | Shape::Int64 | Shape::Float) => Scalar::Number,
            Some(Shape::List(_)) => Scalar::List,
            Some(Shape::Map(_) | Shape::Struct(_) | Shape::Own(_)) => Scalar::Map,
            Some(Shape::Pointer(_)) => Scalar::Any,
        }
    }

    /// The node of the list items.
    pub(crate) fn item(self) -> Node {
        match self.shape() {
            Some(Shape::List(items)) => Node::Item(items),
            _ => Node::Free,
        }
    }

    /// How the list at this node is owned.
    pub(crate) fn list_kind(self) -> ListKind {
        match self {
            Node::Field(Field { list: List::Set, .. }) => ListKind::Set,
            Node::Field(Field { list: List::Keyed(keys), .. }) => ListKind::Keyed(keys),
            _ => ListKind::Atomic,
        }
    }

    /// The patch strategy of the list at this node.
    pub(crate) fn merge(self) -> Merge {
        match self {
            Node::Field(field) => field.merge,
            _ => Merge::Replace,
        }
    }

    /// Whether strategic merge replaces the object at this node.
    pub(crate) fn is_replaced(self) -> bool {
        matches!(self, Node::Field(Field { replace: true, .. }))
    }

    /// Whether the object at this node is atomic.
    pub(crate) fn is_atomic(self) -> bool {
        if matches!(self, Node::Field(Field { granular: true, .. })) {
            return false;
        }
        matches!(self, Node::Field(Field { atomic: true, .. }))
            || self.structure().is_some_and(|found| found.atomic)
            || matches!(self.shape(), Some(Shape::Any | Shape::Quantity | Shape::IntOrString))
    }

    /// Whether any value is allowed at this node.
    pub(crate) fn is_any(self) -> bool {
        matches!(self.shape(), Some(Shape::Any))
    }

    /// Whether the object at this node is a map, not a struct.
    pub(crate) fn is_map(self) -> bool {
        self.structure().is_none()
    }

    /// The key of `item` in a list identified by `keys`; `None` if the item has none of the key fields.
    pub(crate) fn item_key(self, keys: &[&str], item: &Value) -> Option<Value> {
        let below = self.item().structure();
        let mut key = Map::new();
        for name in keys {
            let value = match item.get(name) {
                Some(value) if !value.is_object() && !value.is_array() => value.clone(),
                Some(_) => return None,
                None => below?.fields.get(name)?.key_default()?,
            };
            key.insert((*name).to_owned(), value);
        }
        Some(Value::Object(key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_know_how_their_lists_merge() {
        let spec = Node::Struct(of_kind("", "v1", "Pod").unwrap()).field("spec");
        let containers = spec.field("containers");
        assert_eq!(containers.list_kind(), ListKind::Keyed(&["name"]));
        assert_eq!(containers.merge(), Merge::By("name"));
        let ports = containers.item().field("ports");
        assert_eq!(
            ports.item_key(&["containerPort", "protocol"], &json!({"containerPort": 80})),
            Some(json!({"containerPort": 80, "protocol": "TCP"}))
        );
        assert_eq!(spec.field("tolerations").list_kind(), ListKind::Atomic);
        assert!(spec.field("nodeSelector").is_atomic());
        assert!(!Node::Free.is_atomic());
    }
}
