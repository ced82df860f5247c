//! The types of all built-in kinds: fields, their types, their protobuf numbers and how they merge.
//!
//! The table is data, `data/types.txt`; the head of that file describes its syntax. Schemas of projections parse the few
//! structs that they need and free them again. Only the embedded API server keeps all of them.

mod read;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

pub(crate) use read::Source;

/// The whole table, for the embedded API server.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let source = Source::new();
    Table { structs: (0..source.len()).map(|at| source.parse(at)).collect(), by_name: source.into_names() }
});

/// All structs, by name and by index.
#[derive(Debug)]
struct Table {
    structs: Vec<Struct>,
    by_name: BTreeMap<&'static str, usize>,
}

/// A struct: an object with a known set of fields.
#[derive(Debug)]
pub struct Struct {
    /// `GROUP.VERSION.KIND`, with the first word of the group.
    pub name: &'static str,
    /// Owned as a whole in managedFields.
    pub atomic: bool,
    /// Accepts unknown fields, as custom resources do.
    pub preserves_unknown_fields: bool,
    /// The fields by their names in JSON.
    pub fields: BTreeMap<&'static str, Field>,
}

impl Struct {
    /// The Go name of the struct, without its package.
    #[must_use]
    pub fn go_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// The Go name of the struct: `v1.PodSpec`.
    #[must_use]
    pub fn go_type(&self) -> String {
        self.name.split_once('.').map_or(self.name, |(_, rest)| rest).to_owned()
    }
}

/// A field of a struct.
#[derive(Debug)]
pub struct Field {
    /// Its type.
    pub shape: Shape,
    /// When it is written.
    pub presence: Presence,
    /// How a list is owned in managedFields.
    pub list: List,
    /// Owned as a whole in managedFields.
    pub atomic: bool,
    /// Owned field by field although its struct is atomic elsewhere.
    pub granular: bool,
    /// How strategic merge patches change a list.
    pub merge: Merge,
    /// Strategic merge patches replace the object (patchStrategy=replace).
    pub replace: bool,
    /// The default value.
    pub default: Option<Value>,
    /// Protobuf field numbers, outermost first; more than one if JSON flattens several levels.
    pub numbers: Vec<u32>,
}

impl Field {
    /// A field with only a type.
    #[must_use]
    pub fn plain(shape: Shape) -> Self {
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
    #[must_use]
    pub fn key_default(&self) -> Option<Value> {
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
pub enum Presence {
    /// Always, even if empty.
    Always,
    /// If not empty (omitempty); structs always are written.
    IfSet,
    /// If not the zero value (omitzero), structs included.
    IfNotZero,
}

/// The type of a value.
#[derive(Debug)]
pub enum Shape {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A floating-point number.
    Float,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A duration.
    Duration,
    /// A quantity.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// Any JSON value.
    Any,
    /// An optional value: absent and zero differ.
    Pointer(Box<Shape>),
    /// A list.
    List(Box<Shape>),
    /// A map with strings as keys.
    Map(Box<Shape>),
    /// A struct, by its index in the table.
    Struct(usize),
    /// A struct that is not in the table.
    Own(&'static Struct),
}

impl Shape {
    /// The struct of this type, also behind a pointer. The first call parses the whole table.
    #[must_use]
    pub fn as_struct(&self) -> Option<&'static Struct> {
        match self {
            Shape::Struct(at) => TABLE.structs.get(*at),
            Shape::Own(own) => Some(own),
            Shape::Pointer(inner) => inner.as_struct(),
            _ => None,
        }
    }

    /// Whether the type is a Go struct, which omitempty never omits.
    #[must_use]
    pub fn is_struct(&self) -> bool {
        use Shape::{Any, IntOrString, MicroTime, Own, Quantity, Struct, Time};
        matches!(self, Struct(_) | Own(_) | Time | MicroTime | Quantity | IntOrString | Any)
    }

    /// The type itself, or what it points to.
    #[must_use]
    pub fn target(&self) -> &Shape {
        match self {
            Shape::Pointer(inner) => inner.target(),
            shape => shape,
        }
    }
}

/// The list type for server-side apply.
#[derive(Debug)]
pub enum List {
    /// Owned as a whole.
    Atomic,
    /// Owned value by value.
    Set,
    /// Owned item by item, identified by these fields.
    Keyed(Vec<&'static str>),
}

/// The patch strategy for strategic merge patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The patch's list replaces the list.
    Replace,
    /// A list of scalars; values are added.
    Values,
    /// Items are merged by this key.
    By(&'static str),
}

/// The struct of a kind; `None` if the kind is not built in. The first call parses the whole table.
#[must_use]
pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Struct> {
    named(&struct_name(group, version, kind))
}

/// The name of a kind's struct in the table.
pub(crate) fn struct_name(group: &str, version: &str, kind: &str) -> String {
    let word = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    format!("{word}.{version}.{kind}")
}

/// The struct of that name in the table. The first call parses the whole table.
#[must_use]
pub fn named(name: &str) -> Option<&'static Struct> {
    TABLE.structs.get(*TABLE.by_name.get(name)?)
}

/// The common struct of all custom resources.
///
/// # Panics
/// If the table has no structs; a test looks this one up.
#[must_use]
pub fn custom() -> &'static Struct {
    named("custom.v1.Resource").unwrap_or(&TABLE.structs[0])
}

/// The type of the metadata of every kind.
#[must_use]
pub fn object_meta() -> Option<Shape> {
    TABLE.by_name.get("meta.v1.ObjectMeta").map(|at| Shape::Struct(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_table_has_no_dangling_references() {
        assert!(TABLE.structs.len() > 500);
        let pod = of_kind("", "v1", "Pod").unwrap();
        assert_eq!((pod.name, pod.go_type().as_str()), ("core.v1.Pod", "v1.Pod"));
        assert!(of_kind("rbac.authorization.k8s.io", "v1", "ClusterRole").is_some());
        assert!(of_kind("example.com", "v1", "Widget").is_none());
        assert!(custom().preserves_unknown_fields);
        let name = |shape: Shape| shape.as_struct().map(|found| found.name);
        assert_eq!(object_meta().and_then(name), Some("meta.v1.ObjectMeta"));
    }

    #[test]
    fn fields_have_their_words() {
        let ports = &of_kind("", "v1", "Container").unwrap().fields["ports"];
        assert!(matches!(&ports.list, List::Keyed(keys) if *keys == ["containerPort", "protocol"]));
        assert_eq!((ports.merge, ports.numbers.as_slice()), (Merge::By("containerPort"), &[6][..]));
        let port = &of_kind("", "v1", "ContainerPort").unwrap().fields;
        assert_eq!(port["protocol"].key_default(), Some(Value::from("TCP")));
        assert_eq!(port["containerPort"].key_default(), Some(Value::from(0)));
        assert_eq!(port["hostIP"].key_default(), None);
        let volume = &of_kind("", "v1", "Volume").unwrap().fields;
        assert_eq!((volume["name"].presence, &*volume["csi"].numbers), (Presence::Always, &[2, 28][..]));
        assert!(matches!(volume["csi"].shape, Shape::Pointer(_)) && volume["csi"].shape.target().is_struct());
    }

    #[test]
    fn every_number_is_used_once_in_its_message() {
        for one in &TABLE.structs {
            let mut numbers: Vec<_> = one.fields.values().map(|field| &field.numbers).collect();
            numbers.retain(|numbers| !numbers.is_empty());
            let count = numbers.len();
            numbers.sort();
            numbers.dedup();
            assert_eq!(numbers.len(), count, "{}", one.name);
        }
    }
}
