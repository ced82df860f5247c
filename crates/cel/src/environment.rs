//! What an expression can name: functions, macros, variables and types.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::checker::{Checked, check};
use crate::issues::Issues;
use crate::libraries::Library;
use crate::macros::MacroDeclaration;
use crate::parser::parse;
use crate::source::Source;
use crate::stack::on_a_large_stack;
use crate::types::Type;
use crate::validators::validate;
use crate::well_known;

/// One signature of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Overload {
    /// Whether it is called on a receiver, which is then the first argument.
    pub is_member: bool,
    /// The types of the arguments.
    pub arguments: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// The names of the type parameters.
    pub(crate) parameters: Vec<Arc<str>>,
}

/// The fields of a type.
pub type Fields = BTreeMap<Arc<str>, Type>;

/// Types with fields, by name.
pub type StructTypes = BTreeMap<Arc<str>, Arc<Fields>>;

/// A line that is no declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclarationError(String);

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a declaration: {}", self.0)
    }
}

impl std::error::Error for DeclarationError {}

/// What an expression can name. Clones share their functions and types.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    functions: Arc<BTreeMap<String, Vec<Overload>>>,
    macros: Arc<Vec<MacroDeclaration>>,
    variables: BTreeMap<String, Type>,
    /// Names that stand for types.
    type_names: Arc<BTreeMap<String, Type>>,
    /// Later ones hide earlier ones.
    structs: Vec<Arc<StructTypes>>,
}

impl Environment {
    /// Adds a library.
    ///
    /// # Panics
    /// If a declaration cannot be read. The libraries of this crate can.
    pub fn add_library(&mut self, library: &Library) {
        let added = self.add_declarations(library.declarations);
        assert!(added.is_ok(), "a library has a line that is no declaration: {added:?}");
        Arc::make_mut(&mut self.macros).extend_from_slice(library.macros);
    }

    /// Adds declarations of functions and types, one per line, in the form of the libraries.
    ///
    /// # Errors
    /// If a line is no declaration.
    pub fn add_declarations(&mut self, text: &str) -> Result<(), DeclarationError> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || DeclarationError(line.to_owned());
            if let Some(written) = line.strip_prefix("type ") {
                let (name, parameters) = self.name_and_parameters(written);
                let opaque = Type::Opaque(name.into(), parameters.into());
                Arc::make_mut(&mut self.type_names).insert(name.to_owned(), opaque);
                continue;
            }
            let (name, overload) = self.signature(line).ok_or_else(wrong)?;
            let overloads = Arc::make_mut(&mut self.functions).entry(name).or_default();
            if !overloads.contains(&overload) {
                overloads.push(overload);
            }
        }
        Ok(())
    }

    /// Declares a variable.
    pub fn add_variable(&mut self, name: &str, of: Type) {
        self.variables.insert(name.to_owned(), of);
    }

    /// Adds types with fields. Values of these types are declared as [`Type::Struct`] with the type's name.
    pub fn add_structs(&mut self, structs: Arc<StructTypes>) {
        self.structs.push(structs);
    }

    /// Lets a name stand for a type.
    pub fn add_type_name(&mut self, name: &str, of: Type) {
        Arc::make_mut(&mut self.type_names).insert(name.to_owned(), of);
    }

    /// Parses, checks and validates an expression.
    ///
    /// # Errors
    /// The errors, see [`Issues::display`].
    pub fn compile(&self, source: &Source) -> Result<Checked, Issues> {
        on_a_large_stack(|| {
            let parsed = parse(source, &self.macros)?;
            let checked = check(parsed, self)?;
            let issues = validate(&checked);
            if issues.is_empty() { Ok(checked) } else { Err(issues) }
        })
    }

    /// All functions, as declarations that are sorted by name.
    #[must_use]
    pub fn declarations(&self) -> Vec<String> {
        let written = |(name, overloads): (&String, &Vec<Overload>)| {
            overloads.iter().map(|overload| write_signature(name, overload)).collect::<Vec<_>>()
        };
        self.functions.iter().flat_map(written).collect()
    }

    pub(crate) fn function(&self, name: &str) -> Option<(&str, &[Overload])> {
        let name = name.strip_prefix('.').unwrap_or(name);
        self.functions.get_key_value(name).map(|(name, overloads)| (name.as_str(), overloads.as_slice()))
    }

    /// The type of a variable, or of a name that stands for a type.
    pub(crate) fn global(&self, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(variable) = self.variables.get(name) {
            return Some(variable.clone());
        }
        self.named_type(name).map(Type::of_type).or_else(|| well_known::constant(name))
    }

    /// The type that a name stands for.
    pub(crate) fn named_type(&self, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(named) = well_known::type_name(name).or_else(|| self.type_names.get(name).cloned()) {
            return Some(named);
        }
        self.struct_fields(name).map(|_| Type::Struct(name.into()))
    }

    pub(crate) fn struct_fields(&self, name: &str) -> Option<&Fields> {
        self.structs.iter().rev().find_map(|layer| layer.get(name)).map(|fields| &**fields)
    }

    fn signature(&self, line: &str) -> Option<(String, Overload)> {
        let (call, result) = line.rsplit_once(" -> ")?;
        let open = opening_of_last(call)?;
        let (receiver, name) = match call[..open].rsplit_once(' ') {
            Some((receiver, name)) => (Some(receiver), name),
            None => (None, &call[..open]),
        };
        let written = call[open + 1..call.len() - 1].trim();
        let mut arguments: Vec<Type> =
            receiver.map(|receiver| self.read_type(receiver)).into_iter().collect();
        if !written.is_empty() {
            arguments.extend(split_top_level(written).into_iter().map(|one| self.read_type(one)));
        }
        let result = self.read_type(result);
        let mut parameters = Vec::new();
        arguments.iter().chain([&result]).for_each(|one| collect_parameters(one, &mut parameters));
        let overload = Overload { is_member: receiver.is_some(), arguments, result, parameters };
        Some((name.to_owned(), overload))
    }

    fn name_and_parameters<'t>(&self, text: &'t str) -> (&'t str, Vec<Type>) {
        let text = text.trim();
        match text.split_once('(') {
            Some((name, rest)) => {
                let parameters = split_top_level(rest.strip_suffix(')').unwrap_or(rest));
                (name, parameters.into_iter().map(|one| self.read_type(one)).collect())
            }
            None => (text, Vec::new()),
        }
    }

    pub(crate) fn read_type(&self, text: &str) -> Type {
        let (name, parameters) = self.name_and_parameters(text);
        match (name, parameters.as_slice()) {
            ("list", [element]) => Type::list(element.clone()),
            ("map", [key, value]) => Type::map(key.clone(), value.clone()),
            ("type", [named]) => Type::of_type(named.clone()),
            ("type", []) => Type::Type(None),
            ("any", []) => Type::Any,
            ("bool", []) => Type::Bool,
            ("bytes", []) => Type::Bytes,
            ("double", []) => Type::Double,
            ("duration", []) => Type::Duration,
            ("dyn", []) => Type::Dyn,
            ("int", []) => Type::Int,
            ("null", []) => Type::Null,
            ("string", []) => Type::String,
            ("timestamp", []) => Type::Timestamp,
            ("uint", []) => Type::Uint,
            (letter, []) if letter.len() == 1 => Type::Parameter(letter.into()),
            (name, []) if !self.type_names.contains_key(name) => Type::Struct(name.into()),
            _ => Type::Opaque(name.into(), parameters.into()),
        }
    }
}

fn collect_parameters(within: &Type, names: &mut Vec<Arc<str>>) {
    if let Type::Parameter(name) = within
        && !names.contains(name)
    {
        names.push(Arc::clone(name));
    }
    within.parameters().into_iter().for_each(|parameter| collect_parameters(parameter, names));
}

/// Where the parenthesis that ends a text is opened.
fn opening_of_last(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, one) in text.char_indices().rev() {
        match one {
            ')' => depth += 1,
            '(' if depth == 1 => return Some(at),
            '(' => depth -= 1,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Splits at commas that are in no parentheses.
fn split_top_level(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, one) in text.char_indices() {
        match one {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn write_signature(name: &str, overload: &Overload) -> String {
    let mut arguments: Vec<String> = overload.arguments.iter().map(ToString::to_string).collect();
    let receiver = if overload.is_member { format!("{} ", arguments.remove(0)) } else { String::new() };
    format!("{receiver}{name}({}) -> {}", arguments.join(", "), overload.result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read_as_they_are_written() {
        let mut environment = Environment::default();
        let text =
            "map(A, B) size() -> int\n_[?_](optional_type(map(K, V)), K) -> optional_type(V)\nf() -> a.B";
        environment.add_declarations(text).unwrap();
        let mut sorted: Vec<&str> = text.lines().collect();
        sorted.sort_by_key(|line| line.contains("size"));
        assert_eq!(environment.declarations(), sorted);
        let (_, overloads) = environment.function("size").unwrap();
        assert!(overloads[0].is_member);
        assert_eq!(overloads[0].parameters.len(), 2);
    }

    #[test]
    fn other_lines_are_refused() {
        let wrong = Environment::default().add_declarations("size -> int");
        assert_eq!(wrong.unwrap_err().to_string(), "not a declaration: size -> int");
    }
}
