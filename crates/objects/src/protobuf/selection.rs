//! A set of fields of a kind, written as `spec { nodeName volumes { name } } status { phase }`.

use std::iter::Peekable;

/// Selects no field.
impl Default for Selection {
    fn default() -> Self {
        Self::Fields(Vec::new())
    }
}

/// The selected part of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Selection {
    /// All fields, to any depth.
    All,
    /// These fields, by their names in JSON.
    Fields(Vec<(&'static str, Selection)>),
}

impl Selection {
    /// Parses a selection. A name without braces stands for the whole field, `a,b { c }` for `a { c } b { c }`, and
    /// `a { }` selects nothing but the presence of the field. Words and braces are separated by white space.
    ///
    /// # Panics
    /// If the braces are not balanced or a field is listed twice: selections are part of the program, and tests parse
    /// each of them.
    pub(super) fn parse(text: &'static str) -> Self {
        let mut words = text.split_whitespace().peekable();
        let fields = fields(&mut words);
        assert_eq!(words.next(), None, "unbalanced braces in {text}");
        Self::Fields(fields)
    }

    /// What is selected of this field.
    pub(super) fn of(&self, field: &str) -> Option<&Self> {
        match self {
            Self::All => Some(self),
            Self::Fields(fields) => fields.iter().find(|(name, _)| *name == field).map(|(_, part)| part),
        }
    }

    /// Selects another field as well.
    pub(super) fn with(mut self, field: &'static str, part: Self) -> Self {
        if let Self::Fields(fields) = &mut self {
            add(fields, field, part);
        }
        self
    }

    /// Selects what another selection selects, as well.
    pub(super) fn merged(self, other: Self) -> Self {
        let (Self::Fields(mut fields), Self::Fields(others)) = (self, other) else { return Self::All };
        for (name, part) in others {
            match fields.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = std::mem::take(known).merged(part),
                None => fields.push((name, part)),
            }
        }
        Self::Fields(fields)
    }

    /// The names of the selected fields; none if all are selected.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let fields = match self {
            Self::All => &[][..],
            Self::Fields(fields) => fields,
        };
        fields.iter().map(|(name, _)| *name)
    }
}

fn fields(words: &mut Peekable<impl Iterator<Item = &'static str>>) -> Vec<(&'static str, Selection)> {
    let mut found = Vec::new();
    while let Some(names) = words.next_if(|word| *word != "}") {
        let part = if words.next_if_eq(&"{").is_some() {
            let part = fields(words);
            assert_eq!(words.next(), Some("}"), "no brace closes {names}");
            Selection::Fields(part)
        } else {
            Selection::All
        };
        names.split(',').for_each(|name| add(&mut found, name, part.clone()));
    }
    found
}

fn add(fields: &mut Vec<(&'static str, Selection)>, name: &'static str, part: Selection) {
    assert!(fields.iter().all(|(known, _)| *known != name), "{name} is selected twice");
    fields.push((name, part));
}

#[cfg(test)]
mod tests {
    use super::Selection::{All, Fields};
    use super::*;

    #[test]
    fn selections_are_nested_names() {
        let parsed = Selection::parse("a b { c } d,e { f { } g }");
        let part = Fields(vec![("f", Fields(Vec::new())), ("g", All)]);
        let wanted =
            Fields(vec![("a", All), ("b", Fields(vec![("c", All)])), ("d", part.clone()), ("e", part)]);
        assert_eq!(parsed, wanted);
        assert_eq!(parsed.of("a"), Some(&All));
        assert_eq!(parsed.of("a").and_then(|a| a.of("anything")), Some(&All));
        assert_eq!(parsed.of("c"), None);
        assert!(parsed.names().eq(["a", "b", "d", "e"]) && All.names().next().is_none());
        assert_eq!(parsed.with("x", All).of("x"), Some(&All));
    }

    #[test]
    fn merged_selections_select_what_either_selects() {
        let merged =
            Selection::parse("a { b } c { d } e").merged(Selection::parse("a { x } c e { f } g { }"));
        assert_eq!(merged, Selection::parse("a { b x } c e g { }"));
    }

    #[test]
    #[should_panic(expected = "selected twice")]
    fn field_is_selected_once() {
        Selection::parse("a b,a { c }");
    }

    #[test]
    #[should_panic(expected = "no brace closes a")]
    fn braces_are_closed() {
        Selection::parse("a { b");
    }

    #[test]
    #[should_panic(expected = "unbalanced braces")]
    fn braces_are_opened() {
        Selection::parse("a } b");
    }
}
