//! Lines in which two answers may differ are listed with a reason; any other is a problem, and so is a needless row.

use crate::differences::{matches, rows};

/// A list of accepted differences.
pub(crate) struct Accepted {
    rows: Vec<Row>,
}

struct Row {
    /// What was asked or done, of which it is about the answer; a `*` stands for anything.
    subject: String,
    /// The lines that may differ, beginning with `-` if only the first has them, with `+` if only the second has, or
    /// with `?`.
    line: String,
    /// Whether it depends on chance if they differ.
    at_times: bool,
    used: usize,
}

/// How the reason of a difference begins that is not there each time.
const AT_TIMES: &str = "at times: ";

impl Accepted {
    /// Reads the list from a file.
    pub(crate) fn read(file: &str) -> anyhow::Result<Self> {
        let row = |row: crate::differences::Row| Row {
            subject: row.what,
            line: row.how.trim_matches('`').to_owned(),
            at_times: row.why.starts_with(AT_TIMES),
            used: 0,
        };
        Ok(Self { rows: rows(file)?.into_iter().map(row).collect() })
    }

    /// Whether all these lines are listed.
    pub(crate) fn allows(&self, subject: &str, lines: &[String]) -> bool {
        lines.iter().all(|line| self.row(subject, line).is_some())
    }

    /// The lines that are not listed.
    pub(crate) fn unlisted<'l>(&mut self, subject: &str, lines: &'l [String]) -> Vec<&'l str> {
        let mut unlisted = Vec::new();
        for line in lines {
            match self.row(subject, line) {
                Some(at) => self.rows[at].used += 1,
                None => unlisted.push(line.as_str()),
            }
        }
        unlisted
    }

    fn row(&self, subject: &str, line: &str) -> Option<usize> {
        self.rows.iter().position(|row| matches(&row.subject, subject) && says(&row.line, line))
    }

    /// Rows about these subjects for which no difference was seen.
    pub(crate) fn stale(&self, about: impl Fn(&str) -> bool) -> Vec<String> {
        let stale = |row: &&Row| row.used == 0 && !row.at_times && about(&row.subject);
        let told = |row: &Row| format!("listed and not seen: {} {}", row.subject, row.line);
        self.rows.iter().filter(stale).map(told).collect()
    }

    /// How many rows there are, and for how many lines they were needed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.rows.len(), self.rows.iter().map(|row| row.used).sum())
    }
}

/// Whether a line that differs is meant by a row; `?` in front stands for either side.
fn says(pattern: &str, line: &str) -> bool {
    match pattern.strip_prefix('?') {
        Some(pattern) => line.get(1..).is_some_and(|line| matches(pattern, line)),
        None => matches(pattern, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<const N: usize>(lines: [&str; N]) -> [String; N] {
        lines.map(str::to_owned)
    }

    #[test]
    fn a_difference_is_listed_or_told_and_an_unused_row_is_told() {
        let row = |subject: &str, line: &str, at_times| {
            let (subject, line) = (subject.to_owned(), line.to_owned());
            Row { subject, line, at_times, used: 0 }
        };
        let rows = vec![row("get *", "? b*", false), row("get x", "+ z", false), row("get y", "+ z", true)];
        let mut accepted = Accepted { rows };
        assert!(accepted.allows("get x", &lines(["- bb", "+ b", "+ z"])));
        assert!(!accepted.allows("get x", &lines(["- z"])));
        assert_eq!(accepted.unlisted("get x", &lines(["- bb"])), [""; 0]);
        assert_eq!(accepted.unlisted("put x", &lines(["- bb"])), ["- bb"]);
        assert_eq!(accepted.stale(|_| true), ["listed and not seen: get x + z"]);
        assert_eq!(accepted.stale(|subject| subject == "get y"), [""; 0]);
        assert_eq!(accepted.counts(), (3, 1));
    }
}
