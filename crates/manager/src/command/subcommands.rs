//! The one table of subcommands. The original takes no arguments, so they conflict with none of its.
//!
//! Help, completion and the man page derive from it. A new subcommand is a row and a function.

use std::ffi::OsString;
use std::process::ExitCode;

use keleustes_options::{CommandHelp, CommandLineContext, Shell};

use super::say;

/// A subcommand.
pub(super) struct Subcommand {
    pub(super) help: CommandHelp<'static>,
    /// Runs it with the arguments after its name.
    run: fn(&[&str], &CommandLineContext<'_>) -> ExitCode,
}

/// In the order of help.
pub(super) const SUBCOMMANDS: &[Subcommand] = &[
    #[cfg(feature = "playground")]
    row("playground", "[flags]", "Start a whole cluster to play with, in this one process.", playground),
    row("check", "[-o json] [flags]", "Check whether the manager can run with these flags.", check),
    row(
        "explain",
        "KIND/NAME [-n NAMESPACE] [flags]",
        "Say what the controllers of a running manager want of an object, and what they wait for.",
        explain,
    ),
    row(
        "shadow-report",
        "[-o json|yaml] [flags]",
        "Report what a manager with --shadow would have done differently from the leader.",
        shadow_report,
    ),
    row("completion", "bash|zsh|fish", "Print a script that completes commands and flags.", completion),
    row("man-page", "", "Print the man page, in roff.", man_page),
    row("version", "", "Print the version, as --version does.", version),
    row("help", "[COMMAND|GROUP]", "Print this text, the help of a command, or one group of flags.", help),
];

const fn row(
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[&str], &CommandLineContext<'_>) -> ExitCode,
) -> Subcommand {
    Subcommand { help: CommandHelp { name, arguments, about }, run }
}

/// Runs the subcommand that the first argument names; `None` if it names none.
pub(super) fn run(args: &[OsString], known: &CommandLineContext<'_>) -> Option<ExitCode> {
    let words: Vec<_> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
    let (name, args) = words.split_first()?;
    let command = find(name)?;
    if !takes_help_flag(name) && args.iter().any(|arg| matches!(*arg, "--help" | "-h")) {
        say(&usage_of(command));
        return Some(ExitCode::SUCCESS);
    }
    Some((command.run)(args, known))
}

fn usage_of(command: &Subcommand) -> String {
    let CommandHelp { name, arguments, about } = command.help;
    format!("{about}\n\nUsage: {}\n", format!("kube-controller-manager {name} {arguments}").trim_end())
}

fn find(name: &str) -> Option<&'static Subcommand> {
    SUBCOMMANDS.iter().find(|command| command.help.name == name)
}

/// What to add to the error about a word that is no subcommand.
pub(super) fn hint(word: &str) -> String {
    if word.starts_with('-') || word.is_empty() {
        return String::new();
    }
    if word == "playground" && !cfg!(feature = "playground") {
        return "\nThis program was packaged without the playground; use `cargo run --release -- playground`.".to_owned();
    }
    let names: Vec<_> = SUBCOMMANDS.iter().map(|command| command.help.name).collect();
    let guess = match closest(word, &names) {
        Some(name) => format!("\nDid you mean \"kube-controller-manager {name}\"?"),
        None => format!("\nCommands: {}", names.join(", ")),
    };
    format!("{guess}\nUse \"kube-controller-manager help\" for all commands and flags.")
}

/// The name that a mistyped word most likely stands for.
fn closest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let begins = |name: &&&str| word.len() >= 3 && name.starts_with(word.as_str());
    let near = names.iter().map(|name| (edits(&word, name), *name)).min().filter(|(edits, _)| *edits <= 2);
    names.iter().find(begins).copied().or(near.map(|(_, name)| name))
}

/// How many characters must be inserted, removed or replaced to get from one word to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, removed) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, inserted) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(removed != *inserted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(feature = "playground")]
fn playground(args: &[&str], _: &CommandLineContext<'_>) -> ExitCode {
    crate::playground::run(args)
}

fn check(args: &[&str], known: &CommandLineContext<'_>) -> ExitCode {
    crate::check::run(args, |flags| super::read_flags(flags.into_iter().map(Into::into).collect(), known))
}

fn explain(args: &[&str], _: &CommandLineContext<'_>) -> ExitCode {
    crate::explain_command::run(args)
}

fn shadow_report(args: &[&str], _: &CommandLineContext<'_>) -> ExitCode {
    crate::shadow_report::run(args)
}

fn completion(args: &[&str], known: &CommandLineContext<'_>) -> ExitCode {
    let shell = match args {
        ["bash"] => Shell::Bash,
        ["zsh"] => Shell::Zsh,
        ["fish"] => Shell::Fish,
        [] => return refuse("which shell? Usage: kube-controller-manager completion bash|zsh|fish"),
        other => {
            let other = other.join(" ");
            return refuse(&format!(
                "there is no completion for {other:?}; supported shells: bash, zsh, fish"
            ));
        }
    };
    say(&keleustes_options::completion(shell, known));
    ExitCode::SUCCESS
}

fn man_page(_: &[&str], known: &CommandLineContext<'_>) -> ExitCode {
    say(&keleustes_options::man_page(known));
    ExitCode::SUCCESS
}

fn version(_: &[&str], known: &CommandLineContext<'_>) -> ExitCode {
    super::read_flags(vec!["--version".into()], known).map_or_else(|end| end, |_| ExitCode::SUCCESS)
}

/// The help of the whole program, of a subcommand, or of a group of flags.
fn help(args: &[&str], known: &CommandLineContext<'_>) -> ExitCode {
    let all =
        || super::read_flags(vec!["--help".into()], known).map_or_else(|end| end, |_| ExitCode::SUCCESS);
    match args {
        [] | ["help"] => all(),
        [name, ..] => match find(name) {
            Some(command) if takes_help_flag(name) => (command.run)(&["--help"], known),
            found => match found.map(usage_of).or_else(|| keleustes_options::group_help(name, known)) {
                Some(text) => {
                    say(&text);
                    ExitCode::SUCCESS
                }
                None => {
                    let groups = keleustes_options::group_names().join(", ");
                    let commands = keleustes_options::commands_text(known);
                    refuse(&format!(
                        "there is no command and no group of flags {name:?}\n\nCommands:\n{commands}\nGroups: {groups}"
                    ))
                }
            },
        },
    }
}

/// Whether a subcommand has a help of its own.
fn takes_help_flag(name: &str) -> bool {
    matches!(name, "playground" | "check" | "explain" | "shadow-report")
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("Error: {message}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_subcommand_is_answered_with_the_one_that_was_meant() {
        for (word, meant) in [
            ("chek", "check"),
            ("shadow", "shadow-report"),
            ("Version", "version"),
            ("completions", "completion"),
            ("halp", "help"),
            ("manpage", "man-page"),
        ] {
            let hint = hint(word);
            let wanted = format!("\nDid you mean \"kube-controller-manager {meant}\"?");
            assert!(hint.starts_with(&wanted), "{word}: {hint}");
        }
        let first = SUBCOMMANDS[0].help.name;
        assert!(hint("trireme").starts_with(&format!("\nCommands: {first}, ")), "{}", hint("trireme"));
        assert_eq!(hint("--kubeconfi"), "");
    }

    #[test]
    fn playground_is_offered_only_by_a_program_that_has_it() {
        let is_offered = find("playground").is_some();
        assert_eq!(is_offered, cfg!(feature = "playground"));
        super::super::with_context(|known| {
            let completions = [Shell::Bash, Shell::Zsh, Shell::Fish]
                .map(|shell| keleustes_options::completion(shell, known));
            let pages = [keleustes_options::man_page(known), keleustes_options::commands_text(known)];
            for text in completions.iter().chain(&pages) {
                assert_eq!(text.contains("playground"), is_offered, "{text}");
            }
        });
        assert_eq!(hint("playground").contains("packaged without the playground"), !is_offered);
    }

    #[test]
    fn subcommands_are_unique_and_described_in_one_sentence() {
        for (position, command) in SUBCOMMANDS.iter().enumerate() {
            let CommandHelp { name, about, .. } = command.help;
            assert!(SUBCOMMANDS[..position].iter().all(|earlier| earlier.help.name != name), "{name}");
            assert!(about.ends_with('.') && about.len() < 90, "{name}: {about}");
        }
    }

    #[test]
    fn every_subcommand_explains_itself() {
        super::super::with_context(|known| {
            for command in SUBCOMMANDS {
                let usage = usage_of(command);
                assert!(usage.contains(&format!("Usage: kube-controller-manager {}", command.help.name)));
                assert!(!usage.lines().any(|line| line.ends_with(' ')), "{usage:?}");
                let end = run(&[command.help.name.into(), "--help".into()], known);
                assert_eq!(end, Some(ExitCode::SUCCESS), "{}", command.help.name);
            }
        });
    }

    #[test]
    fn words_that_are_no_subcommand_are_left_to_the_flags() {
        super::super::with_context(|known| {
            assert!(run(&["--version".into()], known).is_none());
            assert!(run(&["playgroud".into()], known).is_none());
            assert!(run(&[], known).is_none());
        });
    }
}
