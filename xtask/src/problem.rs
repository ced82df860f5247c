//! One broken rule and where it was seen, worded so that the reader knows what to do next.

use std::fmt;

/// A failed house check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// File (relative to the root) or crate in which the rule is broken.
    pub place: String,
    /// Line in that file, counted from one, where a line makes sense.
    pub line: Option<usize>,
    /// What is wrong and what to do about it.
    pub what: String,
}

impl Problem {
    /// A problem of a whole file or crate.
    pub fn of(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), line: None, what: what.into() }
    }

    /// A problem at one line.
    pub fn at(place: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self { place: place.into(), line: Some(line), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.what),
            None => write!(f, "{}: {}", self.place, self.what),
        }
    }
}
