//! Replaces values that differ between any two clusters, such as times and random names, by words.

use regex::Regex;

/// A pattern and its replacement.
pub(crate) type Replacement = (&'static str, &'static str);

/// Times as the API writes them, and as `diff` does.
pub(crate) const TIME: Replacement = (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4})", "TIME");
/// UIDs.
pub(crate) const UID: Replacement = (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID");
/// Random suffixes of names.
pub(crate) const RANDOM: Replacement = (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-RANDOM");
/// Pod template hashes; they differ, as a template may contain the time.
pub(crate) const HASH: Replacement = (r"\b[bcdfghjklmnpqrstvwxz2456789]{6,10}\b", "HASH");

/// Replacements, applied in order.
pub(crate) struct Normalizer(Vec<(Regex, &'static str)>);

impl Normalizer {
    /// Compiles constant patterns.
    ///
    /// # Panics
    /// If a pattern is invalid.
    pub(crate) fn new(rules: &[Replacement]) -> Self {
        let compile = |pattern| Regex::new(pattern).unwrap_or_else(|error| panic!("{error}"));
        Self(rules.iter().map(|(pattern, replacement)| (compile(pattern), *replacement)).collect())
    }

    /// The text with all replacements.
    pub(crate) fn apply(&self, text: &str) -> String {
        let replace = |text: String, (pattern, replacement): &(Regex, &str)| {
            pattern.replace_all(&text, *replacement).into_owned()
        };
        self.0.iter().fold(text.to_owned(), replace)
    }
}
