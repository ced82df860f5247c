//! Parses the table of types.

use std::collections::BTreeMap;

use super::{Field, List, Merge, Presence, Shape, Struct, Table};

/// Parses the whole table. An invalid line panics: the table is part of this crate, and every test parses it.
pub(super) fn table(text: &'static str) -> Table {
    let lines = || text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let heads = lines().filter(|line| !line.starts_with(' '));
    let by_name: BTreeMap<&'static str, usize> =
        heads.enumerate().map(|(at, line)| (line.split(' ').next().unwrap_or_default(), at)).collect();
    let mut structs: Vec<Struct> = Vec::with_capacity(by_name.len());
    for line in lines() {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let name = words.next().unwrap_or_default();
        if !line.starts_with(' ') {
            let words: Vec<&str> = words.collect();
            let (atomic, open) = (words.contains(&"atomic"), words.contains(&"open"));
            structs.push(Struct { name, atomic, preserves_unknown_fields: open, fields: BTreeMap::new() });
        } else if let Some(last) = structs.last_mut() {
            last.fields.insert(name, field(&by_name, line, words));
        }
    }
    Table { structs, by_name }
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
