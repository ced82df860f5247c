//! Accepted differences: lines in which two outputs may differ are listed with a reason. An unlisted
//! difference fails, and so does an unused row.

use std::cell::Cell;

use keleustes_objects::matches_wildcard;

use crate::differences::rows;

/// A list of accepted differences.
pub(crate) struct Accepted {
    rows: Vec<Row>,
}

struct Row {
    /// The command or scenario whose output it concerns; `*` matches anything.
    subject: String,
    /// The lines that may differ: `-` if only the first output has them, `+` if only the second has them,
    /// `?` for either.
    line: String,
    /// Whether the difference does not occur in every run.
    sometimes: bool,
    /// How many lines it has matched.
    used: Cell<usize>,
}

/// The prefix of the reason of such a difference.
const SOMETIMES: &str = "at times: ";

impl Accepted {
    /// Reads the list from a file.
    pub(crate) fn read(file: &str) -> anyhow::Result<Self> {
        let row = |row: crate::differences::Row| Row {
            subject: row.what,
            line: row.how.trim_matches('`').to_owned(),
            sometimes: row.why.starts_with(SOMETIMES),
            used: Cell::default(),
        };
        Ok(Self { rows: rows(file)?.into_iter().map(row).collect() })
    }

    /// Whether all these lines are listed.
    pub(crate) fn allows(&self, subject: &str, lines: &[String]) -> bool {
        lines.iter().all(|line| self.row(subject, line).is_some())
    }

    /// The lines that are not listed.
    pub(crate) fn unlisted<'l>(&self, subject: &str, lines: &'l [String]) -> Vec<&'l str> {
        let mut unlisted = Vec::new();
        for line in lines {
            match self.row(subject, line) {
                Some(row) => row.used.update(|used| used + 1),
                None => unlisted.push(line.as_str()),
            }
        }
        unlisted
    }

    fn row(&self, subject: &str, line: &str) -> Option<&Row> {
        self.rows.iter().find(|row| matches_wildcard(&row.subject, subject) && line_matches(&row.line, line))
    }

    /// Rows about these subjects for which no difference occurred.
    pub(crate) fn stale(&self, about: impl Fn(&str) -> bool) -> Vec<String> {
        let stale = |row: &&Row| row.used.get() == 0 && !row.sometimes && about(&row.subject);
        let problem = |row: &Row| format!("listed but not seen: {} {}", row.subject, row.line);
        self.rows.iter().filter(stale).map(problem).collect()
    }

    /// The number of rows, and of lines they matched.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.rows.len(), self.rows.iter().map(|row| row.used.get()).sum())
    }
}

/// Whether a row matches a differing line; a leading `?` matches either side.
fn line_matches(pattern: &str, line: &str) -> bool {
    match pattern.strip_prefix('?') {
        Some(pattern) => line.get(1..).is_some_and(|line| matches_wildcard(pattern, line)),
        None => matches_wildcard(pattern, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<const N: usize>(lines: [&str; N]) -> [String; N] {
        lines.map(str::to_owned)
    }

    #[test]
    fn unlisted_differences_and_unused_rows_are_reported() {
        let row = |subject: &str, line: &str, sometimes| {
            let (subject, line) = (subject.to_owned(), line.to_owned());
            Row { subject, line, sometimes, used: Cell::default() }
        };
        let rows = vec![row("get *", "? b*", false), row("get x", "+ z", false), row("get y", "+ z", true)];
        let accepted = Accepted { rows };
        assert!(accepted.allows("get x", &lines(["- bb", "+ b", "+ z"])));
        assert!(!accepted.allows("get x", &lines(["- z"])));
        assert_eq!(accepted.unlisted("get x", &lines(["- bb"])), [""; 0]);
        assert_eq!(accepted.unlisted("put x", &lines(["- bb"])), ["- bb"]);
        assert_eq!(accepted.stale(|_| true), ["listed but not seen: get x + z"]);
        assert_eq!(accepted.stale(|subject| subject == "get y"), [""; 0]);
        assert_eq!(accepted.counts(), (3, 1));
    }
}
