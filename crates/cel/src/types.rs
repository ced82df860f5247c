//! Types of expressions, and how they are written in messages.

use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Clone, Debug)]
pub enum Type {
    /// Any type, known only when the expression is evaluated.
    Dyn,
    /// `google.protobuf.Any`, which behaves like [`Type::Dyn`].
    Any,
    /// `bool`.
    Bool,
    /// `bytes`.
    Bytes,
    /// `double`.
    Double,
    /// `duration`.
    Duration,
    /// The type of an expression with an error.
    Error,
    /// `int`.
    Int,
    /// `list(T)`.
    List(Arc<Type>),
    /// `map(K, V)`.
    Map(Arc<Type>, Arc<Type>),
    /// The type of `null`.
    Null,
    /// A type without fields, known by its name, such as `optional_type(T)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// `string`.
    String,
    /// A type with fields, known by its name.
    Struct(Arc<str>),
    /// `timestamp`.
    Timestamp,
    /// The type of a type, `type(T)`.
    Type(Option<Arc<Type>>),
    /// A type parameter of a declaration.
    Parameter(Arc<str>),
    /// A type parameter of one call, numbered by the checker.
    Variable(usize),
    /// `uint`.
    Uint,
    /// A primitive type or null.
    Wrapper(Arc<Type>),
}

impl Type {
    /// A list.
    #[must_use]
    pub fn list(element: Type) -> Self {
        Self::List(Arc::new(element))
    }

    /// A map.
    #[must_use]
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional value.
    #[must_use]
    pub fn optional(value: Type) -> Self {
        Self::Opaque("optional_type".into(), Arc::new([value]))
    }

    /// The type of a type.
    #[must_use]
    pub fn of_type(named: Type) -> Self {
        Self::Type(Some(Arc::new(named)))
    }

    /// What an optional holds, and whether the type is one.
    pub(crate) fn unwrap_optional(&self) -> (&Type, bool) {
        match self {
            Self::Opaque(name, parameters) if &**name == "optional_type" && !parameters.is_empty() => {
                (&parameters[0], true)
            }
            other => (other, false),
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || matches!(self, Self::Error)
    }

    pub(crate) fn is_parameter(&self) -> bool {
        matches!(self, Self::Parameter(_) | Self::Variable(_))
    }

    /// The type parameters.
    pub(crate) fn parameters(&self) -> Vec<&Type> {
        match self {
            Self::List(element) => vec![element],
            Self::Map(key, value) => vec![key, value],
            Self::Opaque(_, parameters) => parameters.iter().collect(),
            Self::Type(Some(named)) => vec![named],
            _ => Vec::new(),
        }
    }

    /// Whether two types are the same. A wrapper is the same as the type it wraps.
    #[must_use]
    pub fn is_exactly(&self, other: &Type) -> bool {
        self.is_same(other, true)
    }

    /// Whether two types are the same but for the names of type parameters.
    #[must_use]
    pub fn is_equivalent(&self, other: &Type) -> bool {
        self.is_same(other, false)
    }

    fn is_same(&self, other: &Type, named: bool) -> bool {
        let same_names = match (self.unwrapped(), other.unwrapped()) {
            (Self::Opaque(name, _), Self::Opaque(other, _)) | (Self::Struct(name), Self::Struct(other)) => {
                name == other
            }
            (one, other) if one.is_parameter() && other.is_parameter() => {
                !named || one.to_string() == other.to_string()
            }
            (one, other) => one.kind() == other.kind(),
        };
        let (ours, theirs) = (self.parameters(), other.parameters());
        same_names
            && ours.len() == theirs.len()
            && ours.iter().zip(&theirs).all(|(one, other)| one.is_same(other, named))
    }

    fn unwrapped(&self) -> &Type {
        match self {
            Self::Wrapper(wrapped) => wrapped,
            other => other,
        }
    }

    /// Types of the same kind have the same number.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Dyn => 0,
            Self::Any => 1,
            Self::Bool => 2,
            Self::Bytes => 3,
            Self::Double => 4,
            Self::Duration => 5,
            Self::Error => 6,
            Self::Int => 7,
            Self::List(_) => 8,
            Self::Map(..) => 9,
            Self::Null => 10,
            Self::Opaque(..) => 11,
            Self::String => 12,
            Self::Struct(_) => 13,
            Self::Timestamp => 14,
            Self::Type(_) => 15,
            Self::Parameter(_) | Self::Variable(_) => 16,
            Self::Uint => 17,
            Self::Wrapper(wrapped) => wrapped.kind(),
        }
    }

    /// The name at run time, without type parameters.
    #[must_use]
    pub fn runtime_name(&self) -> String {
        match self {
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Any => "google.protobuf.Any".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::Error => "error".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(..) => "map".to_owned(),
            Self::Type(_) => "type".to_owned(),
            Self::Opaque(name, _) => name.to_string(),
            Self::Wrapper(wrapped) => wrapped.runtime_name(),
            other => other.to_string(),
        }
    }

    /// The name that messages about declared types show.
    pub(crate) fn declared_name(&self) -> String {
        match self {
            Self::Wrapper(_) => self.to_string(),
            other => other.runtime_name(),
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        self.is_exactly(other)
    }
}

/// As messages show it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Bool => f.write_str("bool"),
            Self::Bytes => f.write_str("bytes"),
            Self::Double => f.write_str("double"),
            Self::Duration => f.write_str("duration"),
            Self::Error => f.write_str("!error!"),
            Self::Int => f.write_str("int"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Null => f.write_str("null"),
            Self::Opaque(name, parameters) if parameters.is_empty() => f.write_str(name),
            Self::Opaque(name, parameters) => {
                let parameters: Vec<String> = parameters.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", parameters.join(", "))
            }
            Self::String => f.write_str("string"),
            Self::Struct(name) | Self::Parameter(name) => f.write_str(name),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Type(None) => f.write_str("type"),
            Self::Type(Some(named)) => write!(f, "type({named})"),
            Self::Variable(number) => write!(f, "_var{number}"),
            Self::Uint => f.write_str("uint"),
            Self::Wrapper(wrapped) => write!(f, "wrapper({wrapped})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_print_as_messages_show_them() {
        let optional = Type::optional(Type::map(Type::String, Type::list(Type::Dyn)));
        assert_eq!(optional.to_string(), "optional_type(map(string, list(dyn)))");
        assert_eq!(Type::of_type(Type::Timestamp).to_string(), "type(timestamp)");
        assert_eq!(Type::Type(None).to_string(), "type");
        assert_eq!(Type::Opaque("net.IP".into(), Arc::new([])).to_string(), "net.IP");
        assert_eq!(Type::Wrapper(Arc::new(Type::Int)).to_string(), "wrapper(int)");
        assert_eq!(Type::Timestamp.runtime_name(), "google.protobuf.Timestamp");
    }

    #[test]
    fn parameters_are_part_of_a_type() {
        assert_eq!(Type::list(Type::Int), Type::list(Type::Int));
        assert_ne!(Type::list(Type::Int), Type::list(Type::Dyn));
        assert_ne!(Type::Struct("a".into()), Type::Struct("b".into()));
        assert_ne!(Type::Type(None), Type::of_type(Type::Int));
        assert_eq!(Type::Wrapper(Arc::new(Type::Int)), Type::Int);
        assert_ne!(Type::Variable(1), Type::Variable(2));
        assert!(Type::Variable(1).is_equivalent(&Type::Variable(2)));
    }
}
