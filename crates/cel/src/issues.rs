//! Errors of parser and checker, and the text that cel-go shows for them.

use std::fmt::Write as _;

use crate::source::{Location, Source};

/// More errors are only counted.
const SHOWN_MAX: usize = 100;
/// Longer source lines are not shown.
const SNIPPET_BYTES_MAX: usize = 16384;

/// An error at a place of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The offset in code points; `None` if the error belongs to no place.
    pub offset: Option<usize>,
    /// What is wrong.
    pub message: String,
}

/// The errors of one expression, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issues {
    list: Vec<Issue>,
    /// How many there are, with those that are not in the list.
    count: usize,
}

impl Issues {
    /// Adds an error at an offset.
    pub fn report(&mut self, offset: usize, message: impl Into<String>) {
        self.add(Some(offset), message.into());
    }

    /// Adds an error that belongs to no place.
    pub fn report_nowhere(&mut self, message: impl Into<String>) {
        self.add(None, message.into());
    }

    fn add(&mut self, offset: Option<usize>, message: String) {
        self.count += 1;
        if self.count <= SHOWN_MAX {
            self.list.push(Issue { offset, message });
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first hundred errors.
    #[must_use]
    pub fn list(&self) -> &[Issue] {
        &self.list
    }

    /// The text that cel-go shows: errors sorted by place, each with its source line and a mark below it.
    #[must_use]
    pub fn display(&self, source: &Source) -> String {
        let located = |issue: &Issue| issue.offset.map(|offset| source.location(offset));
        let mut sorted: Vec<(Option<Location>, &Issue)> =
            self.list.iter().map(|issue| (located(issue), issue)).collect();
        sorted.sort_by_key(|(location, _)| *location);
        let mut texts: Vec<String> =
            sorted.iter().map(|(location, issue)| display(*location, &issue.message, source)).collect();
        if self.count > SHOWN_MAX {
            texts.push(format!("{} more errors were truncated", self.count - SHOWN_MAX));
        }
        texts.join("\n")
    }
}

fn display(location: Option<Location>, message: &str, source: &Source) -> String {
    let Some(Location { line, column }) = location else {
        return format!("ERROR: <input>:-1:0: {message}");
    };
    let mut text = format!("ERROR: <input>:{line}:{}: {message}", column + 1);
    let Some(snippet) = source.line(line).filter(|snippet| snippet.len() <= SNIPPET_BYTES_MAX) else {
        return text;
    };
    let snippet = snippet.replace('\t', " ");
    let mut marked = snippet.chars();
    let dots: String =
        marked.by_ref().take(column).map(|one| if one.len_utf8() > 1 { '\u{ff0e}' } else { '.' }).collect();
    let mark = if marked.next().is_some_and(|one| one.len_utf8() > 1) { '\u{ff3e}' } else { '^' };
    // Writing to a String cannot fail.
    let _ = write!(text, "\n | {snippet}\n | {dots}{mark}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves VAPS-46.
    #[test]
    fn errors_are_sorted_and_marked() {
        let source = Source::new("a\t+ b\n  && é + c");
        let mut issues = Issues::default();
        issues.report(11, "third");
        issues.report(8, "second");
        issues.report(2, "first");
        let text = "ERROR: <input>:1:3: first\n | a + b\n | ..^\n\
            ERROR: <input>:2:3: second\n |   && é + c\n | ..^\n\
            ERROR: <input>:2:6: third\n |   && é + c\n | .....＾";
        assert_eq!(issues.display(&source), text);
    }

    /// Proves VAPS-47.
    #[test]
    fn errors_without_a_place_and_long_lines_have_no_snippet() {
        let source = Source::new(&"x".repeat(SNIPPET_BYTES_MAX + 1));
        let mut issues = Issues::default();
        issues.report(0, "here");
        issues.report_nowhere("nowhere");
        assert_eq!(issues.display(&source), "ERROR: <input>:-1:0: nowhere\nERROR: <input>:1:1: here");
    }

    #[test]
    fn errors_beyond_a_hundred_are_counted() {
        let mut issues = Issues::default();
        (0..103).for_each(|_| issues.report(0, "bad"));
        let text = issues.display(&Source::new("x"));
        assert!(text.ends_with("\n3 more errors were truncated"));
        assert_eq!(text.matches("ERROR").count(), 100);
    }
}
