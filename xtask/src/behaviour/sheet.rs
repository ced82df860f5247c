//! A behaviour sheet: one line per fact, with a `*Here:*` line below it where this program differs or proves nothing.

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

/// The progress of a sheet.
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
    /// The fact, exactly as the line states it.
    pub text: String,
    /// Why no test is required.
    pub excuse: Option<Excuse>,
    /// The text of every `*Here:*` line, excuses included.
    pub notes: Vec<String>,
    /// Whether a `*Corrected:*` line below quotes the running original, so that the fact may differ from its source.
    pub corrected: bool,
}

/// Why an id has no test.
#[derive(Debug, PartialEq, Eq)]
pub enum Excuse {
    /// This program deliberately does not do it, for the reason given.
    LeftOut(String),
    /// It arrives with the part of the program named.
    Later(String),
}

/// Starts the line below a fact that states how this program differs from it.
const HERE: &str = "  *Here:* ";
/// Starts the line below a fact that quotes what the running original did where the source sheet was wrong.
const CORRECTED: &str = "  *Corrected:* ";
/// How a note begins that excuses a missing test, and the excuse of the reason that follows.
type Opening = (&'static str, fn(String) -> Excuse);
const OPENINGS: [Opening; 2] = [("left out:", Excuse::LeftOut), ("later:", Excuse::Later)];

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
        // Whether the line above is a fact or a mark of one, so that another mark can follow.
        let mut mark_allowed = false;
        for (index, line) in text.lines().enumerate() {
            let is_mark = line.starts_with(HERE) || line.starts_with(CORRECTED);
            if is_mark {
                let entry = entries.last_mut().filter(|_| mark_allowed);
                let marked = entry.map(|entry| entry.mark(line));
                let marked = marked.unwrap_or(Err("a mark belongs directly below a fact".to_owned()));
                problems.extend(marked.err().map(|what| Problem::at(file, index + 1, what)));
            }
            // A fact may continue on indented lines.
            let continues = line.starts_with("  ") && mark_allowed;
            mark_allowed = line.starts_with("- **") || continues;
            if !line.starts_with("- **") {
                continue;
            }
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
        let text = text.trim().to_owned();
        if text.is_empty() {
            return Err(format!("{id} has no text"));
        }
        Ok(Self { id, line: line_number, text, excuse: None, notes: Vec::new(), corrected: false })
    }

    /// The notes that say how this program differs, without those that only excuse a missing test.
    pub fn deviations(&self) -> impl Iterator<Item = &str> {
        let is_excuse = |note: &&str| OPENINGS.iter().any(|(opening, _)| note.starts_with(opening));
        self.notes.iter().map(String::as_str).filter(move |note| !is_excuse(note))
    }

    /// Reads a mark below the fact. After `*Here:*` comes `left out: REASON`, `later: PART`, or a deviation in free
    /// words, which still needs a test.
    fn mark(&mut self, line: &str) -> Result<(), String> {
        let Some(note) = line.strip_prefix(HERE) else {
            self.corrected = true;
            return Ok(());
        };
        self.notes.push(note.trim().to_owned());
        for (opening, make) in OPENINGS {
            if let Some(reason) = note.strip_prefix(opening) {
                let reason = reason.trim();
                if reason.is_empty() {
                    return Err("an excuse needs a reason".to_owned());
                }
                self.excuse = Some(make(reason.to_owned()));
            }
        }
        Ok(())
    }
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
        let text = "# a\nstatus: landed\n\n- **A-1** is `so`\n- **A-2** is not\n  *Here:* left out: no client can see (it)\n\
            - **A-10** will be\n  *Here:* later: pods\n- **A-11** differs\n  *Here:* it is otherwise\n";
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
                ("is not", Some(&Excuse::LeftOut("no client can see (it)".to_owned()))),
                ("will be", Some(&Excuse::Later("pods".to_owned()))),
                ("differs", None),
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
        assert!(faults("- **A-1** is\n  *Here:* later: ")[0].contains("needs a reason"));
        assert!(faults("- **A-1** is\n\n  *Here:* later: pods")[0].contains("directly below a fact"));
        assert!(faults("nothing")[0].contains("has no ids"));
    }

    #[test]
    fn a_sheet_without_a_status_is_a_problem() {
        let (_, problems) = Sheet::parse("docs/behaviour/a.md", "- **A-1** is\n");
        assert!(problems[0].what.contains("status:"));
    }
}
