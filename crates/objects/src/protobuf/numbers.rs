//! The fields of a message in the order of their numbers, from the table of types.

use std::collections::BTreeMap;

use super::selection::Selection;
use crate::types::{Field, Struct};

/// The selected fields of a struct that protobuf has, and what is selected of each.
///
/// # Panics
/// If the struct lacks a selected field.
pub(super) fn select<'a>(
    of: &'a Struct,
    selection: &'a Selection,
) -> impl Iterator<Item = (&'static str, &'a Field, &'a Selection)> {
    for name in selection.names() {
        let found = of.fields.get(name).is_some_and(|field| !field.numbers.is_empty());
        assert!(found, "{} has no field {name} in protobuf", of.name);
    }
    of.fields
        .iter()
        .filter(|(_, field)| !field.numbers.is_empty())
        .filter_map(|(name, field)| Some((*name, field, selection.of(name)?)))
}

/// One field of a message: its number, its name in JSON and what it is.
type Numbered<T> = (u32, &'static str, T);

/// Sorts fields by number. Those that JSON flattens from a message below are put into that message, which `inline` makes a
/// field without a name.
pub(super) fn by_number<T>(
    fields: Vec<(&[u32], &'static str, T)>,
    inline: &dyn Fn(Vec<Numbered<T>>) -> T,
) -> &'static [Numbered<T>] {
    level(fields, inline).leak()
}

fn level<T>(
    fields: Vec<(&[u32], &'static str, T)>,
    inline: &dyn Fn(Vec<Numbered<T>>) -> T,
) -> Vec<Numbered<T>> {
    let (mut own, mut inlined) = (Vec::new(), BTreeMap::<u32, Vec<_>>::new());
    for (numbers, name, field) in fields {
        match numbers {
            [] => {}
            [number] => own.push((*number, name, field)),
            [number, below @ ..] => inlined.entry(*number).or_default().push((below, name, field)),
        }
    }
    own.extend(inlined.into_iter().map(|(number, below)| (number, "", inline(level(below, inline)))));
    own.sort_by_key(|(number, ..)| *number);
    own
}
