//! Parses the session: commands, their input, and whether they must succeed.

use anyhow::{Context as _, bail, ensure};

/// The session file.
const TEXT: &str = include_str!("session.txt");

/// One step of the session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Writes a file into the folder of the commands.
    File {
        /// Its name.
        name: String,
        /// Its content.
        text: String,
    },
    /// Runs a command.
    Command(Command),
}

/// A command line for a shell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) line: String,
    pub(super) input: String,
    pub(super) succeeds: bool,
    /// Whether the order of its output lines matters.
    pub(super) ordered: bool,
}

/// kubectl verbs that change nothing.
const READ_VERBS: [&str; 6] = ["get", "describe", "events", "api-resources", "explain", "top"];

impl Command {
    /// Whether it can be repeated without effect.
    pub(super) fn only_reads(&self) -> bool {
        let mut words = self.line.split(' ');
        words.next() == Some("kubectl") && words.next().is_some_and(|word| READ_VERBS.contains(&word))
    }
}

/// The session.
pub(super) fn steps() -> anyhow::Result<Vec<Step>> {
    read(TEXT)
}

fn read(text: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (mark, content) = line.split_at(1);
        let content = content.strip_prefix(' ').unwrap_or(content);
        match mark {
            "#" => {}
            "$" | "!" | "~" => steps.push(Step::Command(Command {
                line: content.to_owned(),
                input: String::new(),
                succeeds: mark != "!",
                ordered: mark != "~",
            })),
            "@" => steps.push(Step::File { name: content.to_owned(), text: String::new() }),
            ">" => {
                let last = steps.last_mut().with_context(|| format!("line {}: no command", at + 1))?;
                let (Step::File { text, .. } | Step::Command(Command { input: text, .. })) = last;
                text.push_str(content);
                text.push('\n');
            }
            _ => bail!("line {}: {line:?} is not a step", at + 1),
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
    fn steps_are_parsed_with_their_input() {
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
    fn session_has_at_least_150_commands() {
        let commands = steps().unwrap().into_iter().filter(|step| matches!(step, Step::Command(_)));
        assert!(commands.count() >= 150);
    }
}
