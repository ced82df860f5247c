//! What no two clusters have in common, such as times and random names, is replaced by words.

use regex::Regex;

/// A pattern, and by what it is replaced.
pub(crate) type Rule = (&'static str, &'static str);

/// Times as the API writes them, and as `diff` does.
pub(crate) const TIME: Rule = (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4})", "TIME");
/// Uids of objects.
pub(crate) const UID: Rule = (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID");
/// Random ends of names.
pub(crate) const RANDOM: Rule = (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-RANDOM");
/// The name of a template's hash; a template may have the time in it.
pub(crate) const HASH: Rule = (r"\b[bcdfghjklmnpqrstvwxz2456789]{6,10}\b", "HASH");

/// Rules, of which earlier ones come first.
pub(crate) struct Rules(Vec<(Regex, &'static str)>);

impl Rules {
    /// Rules that are part of the program.
    ///
    /// # Panics
    /// If a pattern is none.
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let compile = |pattern| Regex::new(pattern).unwrap_or_else(|error| panic!("{error}"));
        Self(rules.iter().map(|(pattern, by)| (compile(pattern), *by)).collect())
    }

    /// The text with everything replaced.
    pub(crate) fn plain(&self, text: &str) -> String {
        let replace =
            |text: String, (pattern, by): &(Regex, &str)| pattern.replace_all(&text, *by).into_owned();
        self.0.iter().fold(text.to_owned(), replace)
    }
}
