//! The types of all built-in kinds, read once from a table: fields, their types and how they merge.

mod decode;
pub(crate) mod protobuf;
mod read;
mod structural;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

pub(crate) use self::decode::{Form, decode};
pub(crate) use self::structural::of_schema;
pub(crate) use keleustes_objects::Quantity;

/// The table of structs; the head of the file describes its syntax.
static TABLE: LazyLock<Table> = LazyLock::new(|| read::table(include_str!("../../../data/types.txt")));

/// All structs, by name and by index.
#[derive(Debug)]
struct Table {
    structs: Vec<Struct>,
    by_name: BTreeMap<&'static str, usize>,
}

/// A struct: an object with a known set of fields.
#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) name: &'static str,
    /// Owned as a whole in managedFields.
    pub(crate) atomic: bool,
    /// Accepts unknown fields, as custom resources do.
    pub(crate) preserves_unknown_fields: bool,
    pub(crate) fields: BTreeMap<&'static str, Field>,
}

impl Struct {
    /// The Go name of the struct, without its package.
    pub(crate) fn go_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// The Go name of the struct: `v1.PodSpec`.
    pub(crate) fn go_type(&self) -> String {
        self.name.split_once('.').map_or(self.name, |(_, rest)| rest).to_owned()
    }
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    pub(crate) presence: Presence,
    list: List,
    pub(crate) atomic: bool,
    /// Owned field by field although its struct is atomic elsewhere.
    granular: bool,
    merge: Merge,
    /// Strategic merge patches replace the object (patchStrategy=replace).
    replace: bool,
    pub(crate) default: Option<Value>,
    /// Protobuf field numbers, outermost first; more than one if JSON flattens several levels.
    pub(crate) numbers: Vec<u32>,
}

impl Field {
    /// A field with only a type.
    fn plain(shape: Shape) -> Self {
        Self {
            shape,
            presence: Presence::IfSet,
            list: List::Atomic,
            atomic: false,
            granular: false,
            merge: Merge::Replace,
            replace: false,
            default: None,
            numbers: Vec::new(),
        }
    }

    /// The default of the field as a list-map key.
    fn key_default(&self) -> Option<Value> {
        let zero = match self.shape {
            _ if self.presence != Presence::Always => None,
            Shape::Text => Some(Value::from("")),
            Shape::Int32 | Shape::Int64 => Some(Value::from(0)),
            _ => None,
        };
        self.default.clone().or(zero)
    }
}

/// When a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Always, even if empty.
    Always,
    /// If not empty (omitempty); structs always are written.
    IfSet,
    /// If not the zero value (omitzero), structs included.
    IfNotZero,
}

/// The type of a value.
#[derive(Debug)]
pub(crate) enum Shape {
    Text,
    Flag,
    Int32,
    Int64,
    Float,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// Any JSON value.
    Any,
    Pointer(Box<Shape>),
    List(Box<Shape>),
    Map(Box<Shape>),
    Struct(usize),
    /// A struct that is not in the table.
    Own(&'static Struct),
}

impl Shape {
    /// The struct of this type, also behind a pointer.
    pub(crate) fn as_struct(&self) -> Option<&'static Struct> {
        match self {
            Shape::Struct(at) => TABLE.structs.get(*at),
            Shape::Own(own) => Some(own),
            Shape::Pointer(inner) => inner.as_struct(),
            _ => None,
        }
    }

    /// Whether the type is a Go struct, which omitempty never omits.
    fn is_struct(&self) -> bool {
        use Shape::{Any, IntOrString, MicroTime, Own, Quantity, Struct, Time};
        matches!(self, Struct(_) | Own(_) | Time | MicroTime | Quantity | IntOrString | Any)
    }

    fn target(&self) -> &Shape {
        match self {
            Shape::Pointer(inner) => inner.target(),
            shape => shape,
        }
    }
}

/// The list type for server-side apply.
#[derive(Debug)]
enum List {
    Atomic,
    Set,
    Keyed(Vec<&'static str>),
}

/// The patch strategy for strategic merge patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The patch's list replaces the list.
    Replace,
    /// A list of scalars; values are added.
    Values,
    /// Items are merged by this key.
    By(&'static str),
}

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

/// The struct of a kind; `None` if the kind is not built in.
pub(crate) fn of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Struct> {
    let word = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    named(&format!("{word}.{version}.{kind}"))
}

/// The struct of that name in the table.
pub(crate) fn named(name: &str) -> Option<&'static Struct> {
    TABLE.structs.get(*TABLE.by_name.get(name)?)
}

/// The common struct of all custom resources.
pub(crate) fn custom() -> &'static Struct {
    // The table is part of the program, and a test looks this name up.
    named("custom.v1.Resource").unwrap_or(&TABLE.structs[0])
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
    fn type_table_has_no_dangling_references() {
        assert!(TABLE.structs.len() > 500);
        let pod = of_kind("", "v1", "Pod").unwrap();
        assert_eq!(pod.name, "core.v1.Pod");
        assert!(of_kind("rbac.authorization.k8s.io", "v1", "ClusterRole").is_some());
        assert!(of_kind("example.com", "v1", "Widget").is_none());
        assert!(custom().preserves_unknown_fields);
    }

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
