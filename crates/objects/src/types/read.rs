//! Parses the table of types.

use std::collections::BTreeMap;

use super::{Field, List, Merge, Presence, Shape, Struct};

/// The text of the table, divided into its structs, which are parsed one by one.
pub(crate) struct Source {
    /// The line of each struct, and those of its fields.
    texts: Vec<&'static str>,
    by_name: BTreeMap<&'static str, usize>,
}

impl Source {
    /// Divides the table.
    pub(crate) fn new() -> Self {
        let (mut texts, mut by_name) = (Vec::new(), BTreeMap::new());
        let mut rest = include_str!("../../data/types.txt");
        while let Some(line) = rest.split_inclusive('\n').next() {
            let length = if line.trim_end().is_empty() || line.starts_with('#') {
                line.len()
            } else {
                let fields = rest.split_inclusive('\n').skip(1).take_while(|line| line.starts_with(' '));
                let length = line.len() + fields.map(str::len).sum::<usize>();
                by_name.insert(line.split([' ', '\n']).next().unwrap_or_default(), texts.len());
                texts.push(&rest[..length]);
                length
            };
            rest = &rest[length..];
        }
        Self { texts, by_name }
    }

    /// The number of structs.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The index of each struct by its name.
    pub(super) fn into_names(self) -> BTreeMap<&'static str, usize> {
        self.by_name
    }

    /// The struct of that name.
    ///
    /// # Panics
    /// If there is none: names are part of this program, and tests derive every schema.
    pub(crate) fn named(&self, name: &str) -> Struct {
        let at = self.by_name.get(name).unwrap_or_else(|| panic!("types.txt: no struct {name}"));
        self.parse(*at)
    }

    /// The struct with that index. An invalid line panics: the table is part of this crate, and a test parses all of it.
    pub(crate) fn parse(&self, at: usize) -> Struct {
        let mut lines = self.texts[at].lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let name = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        let fields = lines.map(|line| {
            let mut words = line.split(' ').filter(|word| !word.is_empty());
            (words.next().unwrap_or_default(), field(&self.by_name, line, words))
        });
        Struct {
            name,
            atomic: words.contains(&"atomic"),
            preserves_unknown_fields: words.contains(&"open"),
            fields: fields.collect(),
        }
    }
}

fn field(
    structs: &BTreeMap<&'static str, usize>,
    line: &str,
    mut words: impl Iterator<Item = &'static str>,
) -> Field {
    let shape = words.next().and_then(|word| shape(structs, word));
    let mut field = Field::plain(shape.unwrap_or_else(|| panic!("types.txt: no type in {line:?}")));
    for word in words {
        match word.split_once('=') {
            None => match word {
                "!" => field.presence = Presence::Always,
                "z" => field.presence = Presence::IfNotZero,
                "set" => field.list = List::Set,
                "atomic" => field.atomic = true,
                "granular" => field.granular = true,
                "merge" => field.merge = Merge::Values,
                "retain" => {}
                "replace" => field.replace = true,
                _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
                    field.numbers = word.split('.').filter_map(|number| number.parse().ok()).collect();
                }
                _ => panic!("types.txt: unknown word {word:?} in {line:?}"),
            },
            Some(("keys", keys)) => field.list = List::Keyed(keys.split(',').collect()),
            Some(("merge", key)) => field.merge = Merge::By(key),
            Some(("default", json)) => field.default = serde_json::from_str(json).ok(),
            Some(_) => panic!("types.txt: unknown word {word:?} in {line:?}"),
        }
    }
    field
}

fn shape(structs: &BTreeMap<&'static str, usize>, word: &'static str) -> Option<Shape> {
    let inner = |word| shape(structs, word).map(Box::new);
    if let Some(word) = word.strip_prefix('*') {
        return inner(word).map(Shape::Pointer);
    }
    if let Some(name) = word.strip_prefix('@') {
        return structs.get(name).copied().map(Shape::Struct);
    }
    if let Some(word) = word.strip_prefix('[').and_then(|w| w.strip_suffix(']')) {
        return inner(word).map(Shape::List);
    }
    if let Some(word) = word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
        return inner(word).map(Shape::Map);
    }
    Some(match word {
        "string" => Shape::Text,
        "bool" => Shape::Flag,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float" => Shape::Float,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "duration" => Shape::Duration,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "any" => Shape::Any,
        _ => return None,
    })
}
