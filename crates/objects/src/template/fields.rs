//! The fields of a pod template, as the Go types of v1.37 declare them.
//!
//! The table is data: `cargo xtask templates --write` prints it from those types, and the same command without the flag
//! compares it with them.

use std::sync::LazyLock;

/// All structs of a pod template.
#[derive(Debug)]
pub struct Fields {
    structs: Vec<Struct>,
}

/// A Go struct.
#[derive(Debug)]
pub struct Struct {
    /// The Go type, such as `v1.PodSpec`.
    pub go_type: &'static str,
    /// Its fields in the order of their declaration.
    pub fields: Vec<Field>,
}

/// A field of a Go struct.
#[derive(Debug)]
pub struct Field {
    /// The number in protobuf.
    pub number: u32,
    /// The name in JSON; `None` if JSON inlines the struct.
    pub json: Option<&'static str>,
    /// When JSON omits the field.
    pub omit: Omit,
    /// The Go name.
    pub go_name: &'static str,
    /// The Go type, such as `*int64`.
    pub go_type: &'static str,
    /// How its values are built.
    pub shape: Shape,
}

/// When JSON omits a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Never.
    Never,
    /// If it is an empty string, list or map, zero, false or a nil pointer. Structs are never empty.
    Empty,
    /// If it is the zero value of its type.
    Zero,
}

/// How the values of a type are built.
#[derive(Debug)]
pub enum Shape {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A `resource.Quantity`.
    Quantity,
    /// A `metav1.Time`.
    Time,
    /// An `intstr.IntOrString`.
    IntOrString,
    /// A `metav1.FieldsV1`: any JSON.
    FieldsV1,
    /// A struct, by its index in [`Fields`].
    Struct(usize),
    /// A pointer: absent and zero differ.
    Pointer(Box<Self>),
    /// A slice.
    List(Box<Self>),
    /// A map with strings as keys.
    Map(Box<Self>),
}

/// The fields of a pod template.
pub fn pod_template_fields() -> &'static Fields {
    static FIELDS: LazyLock<Fields> = LazyLock::new(|| Fields::parse(TABLE));
    &FIELDS
}

/// The table as the program that reads the Go types prints it.
pub const TABLE: &str = include_str!("fields.txt");

impl Fields {
    /// The pod template itself.
    #[must_use]
    pub fn root(&self) -> &Struct {
        self.part(0)
    }

    /// The struct with this index.
    #[must_use]
    pub fn part(&self, index: usize) -> &Struct {
        &self.structs[index]
    }

    /// All structs.
    #[must_use]
    pub fn structs(&self) -> &[Struct] {
        &self.structs
    }

    /// Parses the table, in which every struct is a line and every field an indented one.
    ///
    /// # Panics
    /// If the table is malformed; a test reads the one that is compiled in.
    fn parse(table: &'static str) -> Self {
        let names: Vec<&str> = table.lines().filter(|line| !line.starts_with(' ')).collect();
        let mut structs: Vec<Struct> = Vec::with_capacity(names.len());
        for line in table.lines() {
            match line.strip_prefix("  ") {
                None => structs.push(Struct { go_type: line, fields: Vec::new() }),
                Some(field) => {
                    let parsed = Field::parse(field, &names);
                    let parsed = parsed.unwrap_or_else(|| panic!("malformed field: {field}"));
                    structs.last_mut().expect("a field follows its struct").fields.push(parsed);
                }
            }
        }
        Self { structs }
    }
}

impl Field {
    fn parse(line: &'static str, structs: &[&str]) -> Option<Self> {
        let mut words = line.split(' ');
        let number = words.next()?.parse().ok()?;
        let json = words.next()?;
        let omit = match words.next()? {
            "always" => Omit::Never,
            "omitempty" => Omit::Empty,
            "omitempty+omitzero" => Omit::Zero,
            _ => return None,
        };
        let (go_name, go_type) = (words.next()?, words.next()?);
        let shape = Shape::parse(words.next()?, structs)?;
        let json = (json != "-").then_some(json);
        words.next().is_none().then_some(Self { number, json, omit, go_name, go_type, shape })
    }
}

impl Shape {
    fn parse(text: &str, structs: &[&str]) -> Option<Self> {
        let within = |text| Self::parse(text, structs).map(Box::new);
        Some(match text {
            "string" => Self::Text,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "quantity" => Self::Quantity,
            "time" => Self::Time,
            "int-or-string" => Self::IntOrString,
            "fields" => Self::FieldsV1,
            _ => {
                if let Some(pointee) = text.strip_prefix('*') {
                    Self::Pointer(within(pointee)?)
                } else if let Some(element) = text.strip_prefix("[]") {
                    Self::List(within(element)?)
                } else if let Some(value) = text.strip_prefix("map:") {
                    Self::Map(within(value)?)
                } else {
                    Self::Struct(structs.iter().position(|name| *name == text)?)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{self, Presence};

    #[test]
    fn the_table_has_every_struct_and_field_of_a_pod_template() {
        let fields = pod_template_fields();
        let root = fields.root();
        assert_eq!((root.go_type, root.fields[1].go_name), ("v1.PodTemplateSpec", "Spec"));
        assert_eq!(fields.structs().len(), 114);
        assert_eq!(fields.structs().iter().map(|part| part.fields.len()).sum::<usize>(), 535);
        let spec = fields.structs().iter().find(|part| part.go_type == "v1.PodSpec").unwrap();
        let grace =
            spec.fields.iter().find(|field| field.go_name == "TerminationGracePeriodSeconds").unwrap();
        assert_eq!(
            (grace.number, grace.json, grace.omit),
            (4, Some("terminationGracePeriodSeconds"), Omit::Empty)
        );
        assert!(
            grace.go_type == "*int64"
                && matches!(&grace.shape, Shape::Pointer(to) if matches!(**to, Shape::Int))
        );
        let volume = fields.structs().iter().find(|part| part.go_type == "v1.Volume").unwrap();
        assert!(volume.fields[1].json.is_none());
    }

    /// Whether a type of this table is the same in the table of all types.
    fn is_same(shape: &Shape, other: &types::Shape) -> bool {
        use types::Shape as Type;
        match (shape, other) {
            (Shape::Text, Type::Text)
            | (Shape::Bool, Type::Flag)
            | (Shape::Int, Type::Int32 | Type::Int64)
            | (Shape::Quantity, Type::Quantity)
            | (Shape::Time, Type::Time)
            | (Shape::IntOrString, Type::IntOrString)
            | (Shape::FieldsV1, Type::Any) => true,
            (Shape::Struct(index), other) => {
                let part = pod_template_fields().part(*index);
                other.as_struct().is_some_and(|of| of.go_type() == part.go_type)
            }
            (Shape::Pointer(one), Type::Pointer(other))
            | (Shape::List(one), Type::List(other))
            | (Shape::Map(one), Type::Map(other)) => is_same(one, other),
            _ => false,
        }
    }

    /// Compares a struct, which the other table may have flattened into the one that inlines it.
    fn compare(part: &Struct, of: &types::Struct, outer: &[u32], names: &mut Vec<&'static str>) {
        for field in &part.fields {
            let numbers = [outer, &[field.number]].concat();
            match (field.json, &field.shape) {
                (None, Shape::Struct(index)) => {
                    compare(pod_template_fields().part(*index), of, &numbers, names);
                }
                (None, other) => panic!("{} inlines {other:?}", part.go_type),
                (Some(name), shape) => {
                    let other = &of.fields[name];
                    let presence = match field.omit {
                        Omit::Never => Presence::Always,
                        Omit::Empty => Presence::IfSet,
                        Omit::Zero => Presence::IfNotZero,
                    };
                    assert_eq!((&other.numbers, other.presence), (&numbers, presence), "{}.{name}", of.name);
                    assert!(is_same(shape, &other.shape), "{}.{name}: {:?}", of.name, other.shape);
                    names.push(name);
                }
            }
        }
    }

    /// The two tables have the same fields with the same numbers. Only this one has the names and types of Go, from which
    /// hashes are computed.
    #[test]
    fn the_table_agrees_with_that_of_all_types() {
        let mut compared = 0;
        for part in pod_template_fields().structs() {
            let name = part.go_type.trim_start_matches("v1.");
            let of = ["core", "meta"].iter().find_map(|group| types::named(&format!("{group}.v1.{name}")));
            // One that exists only within another, such as `v1.VolumeSource`, is compared with that one.
            let Some(of) = of else { continue };
            let mut names = Vec::new();
            compare(part, of, &[], &mut names);
            names.sort_unstable();
            assert!(names.iter().eq(of.fields.keys()), "{}: {names:?}", of.name);
            compared += names.len();
        }
        assert!(compared > 500, "{compared}");
    }
}
