//! The session as it is written down: commands, what they are given, and whether they are meant to succeed.

use anyhow::{Context as _, bail, ensure};

/// What is typed, in order.
const TEXT: &str = include_str!("session.txt");

/// One step of the session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A file is put where the commands run.
    File {
        /// Its name.
        name: String,
        /// What is in it.
        text: String,
    },
    /// A command is typed.
    Command(Command),
}

/// A command line for a shell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) line: String,
    pub(super) input: String,
    pub(super) succeeds: bool,
    /// Whether the order of its lines means something.
    pub(super) ordered: bool,
}

/// Words of kubectl that change nothing.
const READS: [&str; 5] = ["get", "describe", "events", "api-resources", "explain"];

impl Command {
    /// Whether typing it twice is as good as once.
    pub(super) fn only_reads(&self) -> bool {
        let mut words = self.line.split(' ');
        words.next() == Some("kubectl") && words.next().is_some_and(|word| READS.contains(&word))
    }
}

/// The session.
pub(super) fn steps() -> anyhow::Result<Vec<Step>> {
    read(TEXT)
}

fn read(text: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (mark, rest) = line.split_at(1);
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match mark {
            "#" => {}
            "$" | "!" | "~" => steps.push(Step::Command(Command {
                line: rest.to_owned(),
                input: String::new(),
                succeeds: mark != "!",
                ordered: mark != "~",
            })),
            "@" => steps.push(Step::File { name: rest.to_owned(), text: String::new() }),
            ">" => {
                let last = steps.last_mut().with_context(|| format!("line {}: no command", at + 1))?;
                let (Step::File { text, .. } | Step::Command(Command { input: text, .. })) = last;
                text.push_str(rest);
                text.push('\n');
            }
            _ => bail!("line {}: {line:?} is no step", at + 1),
        }
    }
    ensure!(!steps.is_empty(), "the session is empty");
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str, input: &str, succeeds: bool, ordered: bool) -> Step {
        Step::Command(Command { line: line.to_owned(), input: input.to_owned(), succeeds, ordered })
    }

    #[test]
    fn steps_are_read_with_what_belongs_to_them() {
        let text = "# remark\n\n$ a 'b  c'\n> one\n>   two\n! d\n~ e\n@ f\n> g\n";
        let expected = [
            command("a 'b  c'", "one\n  two\n", true, true),
            command("d", "", false, true),
            command("e", "", true, false),
            Step::File { name: "f".to_owned(), text: "g\n".to_owned() },
        ];
        assert_eq!(read(text).unwrap(), expected);
        for bad in ["", "> x", "x"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_session_is_long() {
        let commands = steps().unwrap().into_iter().filter(|step| matches!(step, Step::Command(_)));
        assert!(commands.count() >= 150);
    }
}
