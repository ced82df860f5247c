//! Two answers to one command are compared line by line; what differs is listed with a reason, or a problem.

use crate::differences::{matches, rows};

/// The list of accepted differences.
pub(super) struct Accepted {
    rows: Vec<Row>,
}

struct Row {
    /// The commands it is about; a `*` stands for anything.
    command: String,
    /// The lines that may differ, beginning with `-` if only kube-apiserver has them, with `+` if only ours has, or
    /// with `?`.
    line: String,
    used: usize,
}

impl Accepted {
    /// Reads the list.
    pub(super) fn read() -> anyhow::Result<Self> {
        let row = |(command, line): (String, String)| {
            let line = line.trim_matches('`').to_owned();
            Row { command, line, used: 0 }
        };
        Ok(Self { rows: rows("kubectl.md")?.into_iter().map(row).collect() })
    }

    /// Whether nothing differs that is not listed.
    pub(super) fn allows(&self, command: &str, there: &[String], here: &[String]) -> bool {
        difference(there, here).iter().all(|line| self.row(command, line).is_some())
    }

    /// What differs and is not listed: nothing, or one text for the command.
    pub(super) fn unlisted(&mut self, command: &str, there: &[String], here: &[String]) -> Option<String> {
        let mut unlisted = String::new();
        for line in difference(there, here) {
            match self.row(command, &line) {
                Some(at) => self.rows[at].used += 1,
                None => {
                    unlisted.push_str("\n  ");
                    unlisted.push_str(&line);
                }
            }
        }
        (!unlisted.is_empty()).then(|| format!("{command}{unlisted}"))
    }

    fn row(&self, command: &str, line: &str) -> Option<usize> {
        self.rows.iter().position(|row| matches(&row.command, command) && says(&row.line, line))
    }

    /// Rows for which no difference was seen.
    pub(super) fn stale(&self) -> Vec<String> {
        let stale = self.rows.iter().filter(|row| row.used == 0);
        stale.map(|row| format!("listed and not seen: {} {}", row.command, row.line)).collect()
    }

    /// How many rows there are, and for how many lines they were needed.
    pub(super) fn counts(&self) -> (usize, usize) {
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

/// The lines only one of them has, in order: `- ` in front of the first one's, `+ ` in front of the second one's.
fn difference(first: &[String], second: &[String]) -> Vec<String> {
    // How many lines the rests behind two places have in common.
    let width = second.len() + 1;
    let mut common = vec![0_u32; (first.len() + 1) * width];
    for i in (0..first.len()).rev() {
        for j in (0..second.len()).rev() {
            common[i * width + j] = if first[i] == second[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < first.len() || j < second.len() {
        if i < first.len() && j < second.len() && first[i] == second[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == second.len()
            || i < first.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]
        {
            lines.push(format!("- {}", first[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", second[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_lines_that_differ_are_named() {
        assert_eq!(difference(&lines("a b c"), &lines("a b c")), [""; 0]);
        assert_eq!(difference(&lines("a b c d"), &lines("a x c d e")), ["- b", "+ x", "+ e"]);
        assert_eq!(difference(&lines(""), &lines("a")), ["+ a"]);
        assert_eq!(difference(&lines("a b"), &lines("b a")).len(), 2);
    }

    #[test]
    fn a_difference_is_listed_or_told_and_an_unused_row_is_told() {
        let row = |command: &str, line: &str| Row { command: command.into(), line: line.into(), used: 0 };
        let mut accepted = Accepted { rows: vec![row("get *", "? b*"), row("get x", "+ z")] };
        assert_eq!(accepted.unlisted("get x", &lines("a bb"), &lines("a")), None);
        assert_eq!(accepted.unlisted("put x", &lines("a bb"), &lines("a")).unwrap(), "put x\n  - bb");
        assert_eq!(accepted.stale(), ["listed and not seen: get x + z"]);
        assert_eq!(accepted.counts(), (2, 1));
    }
}
