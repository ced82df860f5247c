//! The help text, generated from the list of flags.

use crate::flag::{Flag, FlagDefault, Group};
use crate::value::Value;
use crate::versions::EffectiveVersion;
use crate::{CommandLineContext, flags, gates};

const ABOUT: &str = "Keleustes is a kube-controller-manager: it watches a cluster through its API server and keeps \
                     changing it until it is in the state that its objects ask for.";

/// A subcommand as help shows it.
#[derive(Clone, Copy, Debug)]
pub struct CommandHelp<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its arguments; empty if it takes none.
    pub arguments: &'a str,
    /// What it does, in one sentence.
    pub about: &'a str,
}

const USAGE: &str =
    "Usage:\n  kube-controller-manager [flags]\n  kube-controller-manager COMMAND [arguments]\n";

/// The usage that precedes an error about arguments.
#[must_use]
pub fn usage() -> &'static str {
    "Usage:\n  kube-controller-manager [flags]\n  kube-controller-manager COMMAND [arguments]\n\n\
     Use \"kube-controller-manager --help\" for all commands and flags.\n"
}

/// The subcommands, one per line.
#[must_use]
pub fn commands_text(known: &CommandLineContext<'_>) -> String {
    let spelling = |command: &CommandHelp<'_>| format!("{} {}", command.name, command.arguments);
    let indent = known.commands.iter().map(|command| spelling(command).len()).max().unwrap_or(0) + 4;
    let width = known.width.unwrap_or(usize::MAX);
    let line = |command: &CommandHelp<'_>| {
        format!("  {:1$}{2}\n", spelling(command), indent - 2, wrap(command.about, indent, width))
    };
    known.commands.iter().map(line).collect()
}

/// The names of the groups of flags, as [`group_help`] takes them.
#[must_use]
pub fn group_names() -> Vec<String> {
    flags::groups().map(|group| group.title.to_lowercase().replace(' ', "-")).collect()
}

/// The flags of one group; `None` if there is no group of that name.
#[must_use]
pub fn group_help(name: &str, known: &CommandLineContext<'_>) -> Option<String> {
    let position =
        group_names().iter().position(|group| *group == name.to_lowercase().replace([' ', '_'], "-"))?;
    let group = flags::groups().nth(position)?;
    Some(section(group, known, known.width.unwrap_or(usize::MAX)).trim_start().to_owned())
}

/// The subcommands, and all flags by group.
pub(crate) fn text(known: &CommandLineContext<'_>) -> String {
    let width = known.width.unwrap_or(usize::MAX);
    let mut text = wrap(ABOUT, 0, width);
    text.push_str(&format!("\n\n{USAGE}\nCommands:\n\n{}", commands_text(known)));
    let groups = wrap(&group_names().join(", "), 2, width.min(100));
    text.push_str(&format!(
        "\nGroups of flags; \"kube-controller-manager help GROUP\" shows one of them:\n\n  {groups}\n"
    ));
    for group in flags::groups() {
        text.push_str(&section(group, known, width));
    }
    text
}

fn section(group: &Group, known: &CommandLineContext<'_>, width: usize) -> String {
    let shown: Vec<_> = group.flags.iter().filter(|flag| flag.deprecated.is_none()).collect();
    let names: Vec<_> = shown.iter().map(|flag| spelling(flag)).collect();
    let indent = names.iter().map(String::len).max().unwrap_or(0) + 3;
    let mut text = format!("\n{} flags:\n\n", group.title);
    for (flag, name) in shown.iter().zip(names) {
        text.push_str(&format!("{name:indent$}"));
        let paragraphs: Vec<_> =
            description(flag, known).iter().map(|line| wrap(line, indent, width)).collect();
        text.push_str(&paragraphs.join(&format!("\n{:indent$}", "")));
        text.push('\n');
    }
    text
}

fn spelling(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    let kind = flag.default.type_name();
    let space = if kind.is_empty() || flag.default == FlagDefault::Version { "" } else { " " };
    let kind = if flag.default == FlagDefault::Version { "[=true]" } else { kind };
    format!("  {short}--{}{space}{kind}", flag.name)
}

/// The help of a flag: its purpose, its default, its possible values, and whether it has an effect.
pub(crate) fn description(flag: &Flag, known: &CommandLineContext<'_>) -> Vec<String> {
    let mut first = flag.help.to_owned();
    if let Some(default) = default_text(flag) {
        first.push_str(&format!(" (default {default})"));
    }
    if let Some(remark) = flag.remark(known.implemented) {
        first.push(' ');
        first.push_str(remark);
    }
    let mut lines = vec![first];
    match flag.name {
        "controllers" => lines.extend(controller_lines(known)),
        "emulated-version" => {
            let versions = EffectiveVersion::of(&known.build);
            lines.push(format!("From {} to {}.", versions.floor(), versions.binary));
        }
        "feature-gates" => {
            lines.push("Gates that are not done yet:".to_owned());
            lines.extend(gates::help_lines(EffectiveVersion::of(&known.build)));
        }
        _ => {}
    }
    lines
}

fn controller_lines(known: &CommandLineContext<'_>) -> [String; 2] {
    let list = |wanted: &dyn Fn(&str, bool) -> bool| {
        let matching = known.controllers.iter().filter(|known| wanted(known.name, known.on_by_default));
        let mut names: Vec<_> = matching.map(|controller| controller.name).collect();
        names.sort_unstable();
        names.join(", ")
    };
    [
        format!("All controllers: {}", list(&|_, _| true)),
        format!("Off by default: {}", list(&|_, on_by_default| !on_by_default)),
    ]
}

/// The default, unless it is the zero value of its type.
pub(crate) fn default_text(flag: &Flag) -> Option<String> {
    let value = Value::from(flag.default).to_string();
    let plain = matches!(value.as_str(), "" | "0" | "0s" | "false" | "[]");
    let quoted = matches!(flag.default, FlagDefault::Text(_));
    (!plain).then(|| if quoted { format!("\"{value}\"") } else { value })
}

/// Wraps a paragraph at the width.
fn wrap(text: &str, indent: usize, width: usize) -> String {
    let columns = width.saturating_sub(indent).max(24);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}
