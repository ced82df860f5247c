//! A behaviour sheet: one line per id, in our own words, with an excuse where we prove nothing.

use std::collections::BTreeSet;

use super::id::Id;
use crate::problem::Problem;

/// A parsed sheet.
#[derive(Debug)]
pub struct Sheet {
    /// Its file, relative to the root.
    pub file: String,
    /// Its file name without the ending.
    pub name: String,
    /// The letters all its ids begin with.
    pub prefix: String,
    /// Whether every id must be proved or excused by now.
    pub status: Status,
    /// Its ids in the order of the file.
    pub entries: Vec<Entry>,
}

/// How far a sheet has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every id is proved or excused; the house test insists.
    Landed,
    /// Some ids may still lack a proof.
    InProgress,
}

/// One line of a sheet.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id.
    pub id: Id,
    /// The line in the file.
    pub line: usize,
    /// What the line says, without the excuse.
    pub text: String,
    /// Why no test is asked for.
    pub excuse: Option<Excuse>,
}

/// Why an id has no test.
#[derive(Debug, PartialEq, Eq)]
pub enum Excuse {
    /// We do not do this, for the reason given.
    LeftOut(String),
    /// It comes with the part of the program named.
    Later(String),
}

impl Sheet {
    /// Reads the text of a sheet and what is wrong with it.
    pub fn parse(file: &str, text: &str) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".md").to_owned();
        let status = match text.lines().find_map(|line| line.strip_prefix("status: ")) {
            Some("landed") => Status::Landed,
            Some("in progress") => Status::InProgress,
            _ => {
                problems.push(Problem::of(file, "needs a line `status: landed` or `status: in progress`"));
                Status::InProgress
            }
        };
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = BTreeSet::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("- **")) {
            match Entry::parse(index + 1, line) {
                Ok(entry) => {
                    if !seen.insert(entry.id.clone()) {
                        problems.push(Problem::at(file, index + 1, format!("{} is here twice", entry.id)));
                    }
                    entries.push(entry);
                }
                Err(what) => problems.push(Problem::at(file, index + 1, what)),
            }
        }
        let prefix = entries.first().map(|entry| entry.id.prefix.clone()).unwrap_or_default();
        if prefix.is_empty() {
            problems.push(Problem::of(file, "has no ids; write `- **ABC-1** what holds`"));
        }
        for entry in entries.iter().filter(|entry| entry.id.prefix != prefix) {
            problems.push(Problem::at(
                file,
                entry.line,
                format!("{} does not belong to sheet {prefix}", entry.id),
            ));
        }
        (Self { file: file.to_owned(), name, prefix, status, entries }, problems)
    }

    /// Whether the sheet goes by this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.prefix == name
    }
}

impl Entry {
    fn parse(line_number: usize, line: &str) -> Result<Self, String> {
        let (id, text) = line
            .strip_prefix("- **")
            .and_then(|rest| rest.split_once("** "))
            .ok_or("write `- **ABC-1** what holds`")?;
        let id = id.parse().map_err(|_| format!("`{id}` is no id"))?;
        let (text, excuse) = split_excuse(text.trim())?;
        if text.is_empty() {
            return Err(format!("{id} says nothing"));
        }
        Ok(Self { id, line: line_number, text, excuse })
    }
}

/// An excuse is the last thing on the line, in parentheses.
fn split_excuse(text: &str) -> Result<(String, Option<Excuse>), String> {
    for (opening, make) in
        [("(left out:", Excuse::LeftOut as fn(String) -> Excuse), ("(later:", Excuse::Later)]
    {
        let Some((text, reason)) = text.rsplit_once(opening) else {
            continue;
        };
        let reason = reason.strip_suffix(')').ok_or("an excuse ends the line with `)`")?.trim();
        if reason.is_empty() {
            return Err("an excuse needs a reason".to_owned());
        }
        return Ok((text.trim().to_owned(), Some(make(reason.to_owned()))));
    }
    Ok((text.to_owned(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(lines: &str) -> Vec<String> {
        let text = format!("# a\nstatus: in progress\n\n{lines}\n");
        Sheet::parse("docs/behaviour/a.md", &text).1.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_sheet_has_a_name_a_prefix_a_status_and_entries() {
        let text = "# a\nstatus: landed\n\n- **A-1** is `so`\n- **A-2** is not (left out: nobody can see (it))\n\
            - **A-10** will be (later: pods)\n";
        let (sheet, problems) = Sheet::parse("docs/behaviour/some-name.md", text);
        assert_eq!(problems, []);
        assert!(sheet.is_called("some-name") && sheet.is_called("A") && !sheet.is_called("a"));
        assert_eq!(sheet.status, Status::Landed);
        let shown: Vec<_> =
            sheet.entries.iter().map(|entry| (entry.text.as_str(), entry.excuse.as_ref())).collect();
        assert_eq!(
            shown,
            [
                ("is `so`", None),
                ("is not", Some(&Excuse::LeftOut("nobody can see (it)".to_owned()))),
                ("will be", Some(&Excuse::Later("pods".to_owned()))),
            ]
        );
    }

    #[test]
    fn malformed_lines_are_problems() {
        assert_eq!(faults("- **A-1** is"), [""; 0]);
        assert!(faults("- **A-1** is\n- **A-1** is")[0].ends_with(":5: A-1 is here twice"));
        assert!(faults("- **A-1** is\n- **B-1** is")[0].contains("does not belong to sheet A"));
        assert!(faults("- **A-1** is\n- **A-x** is")[0].contains("`A-x` is no id"));
        assert!(faults("- **A-1** is\n- **A-2**")[0].contains("write `- **ABC-1**"));
        assert!(faults("- **A-1** is (later: )")[0].contains("needs a reason"));
        assert!(faults("- **A-1** is (later: pods) soon")[0].contains("ends the line"));
        assert!(faults("nothing")[0].contains("has no ids"));
    }

    #[test]
    fn a_sheet_without_a_status_is_a_problem() {
        let (_, problems) = Sheet::parse("docs/behaviour/a.md", "- **A-1** is\n");
        assert!(problems[0].what.contains("status:"));
    }
}
