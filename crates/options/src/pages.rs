//! Shell completion, the man page and the reference pages, generated from the list of flags.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use crate::flag::{Flag, FlagDefault, FlagScope};
use crate::gates::GateEffect;
use crate::{CommandLineContext, flags, gates, help};

/// A shell with completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

const PROGRAM: &str = "kube-controller-manager";

/// The completion script of a shell.
#[must_use]
pub fn completion(shell: Shell, known: &CommandLineContext<'_>) -> String {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(known), PROGRAM, &mut script);
    // For bash, clap writes the hyphens of the program's name in two ways: where it detects a subcommand as the first, and
    // where it completes its arguments as the second.
    let (detected, completed) = (PROGRAM.replace('-', "__"), PROGRAM.replace('-', "__subcmd__"));
    String::from_utf8_lossy(&script).replace(&completed, &detected)
}

/// The man page, in roff.
#[must_use]
pub fn man_page(known: &CommandLineContext<'_>) -> String {
    let man = clap_mangen::Man::new(command(known)).section("8");
    let mut page = Vec::new();
    // Writing into memory does not fail. The synopsis is written here because clap would list all flags in it.
    let _ = man.render_title(&mut page);
    let _ = man.render_name_section(&mut page);
    page.extend_from_slice(b".SH SYNOPSIS\n\\fBkube\\-controller\\-manager\\fR [\\fIflags\\fR]\n.br\n\\fBkube\\-controller\\-manager\\fR \\fICOMMAND\\fR [\\fIarguments\\fR]\n");
    let _ = man.render_description_section(&mut page);
    page.extend_from_slice(b".SH COMMANDS\n");
    for command in known.commands {
        let (name, arguments) = (roff(command.name), roff(command.arguments));
        let entry = format!(".TP\n\\fB{name}\\fR {arguments}\n{}\n", roff(command.about));
        page.extend_from_slice(entry.as_bytes());
    }
    let _ = man.render_options_section(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}

/// Text as roff shows it literally.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// The flags as a clap command, to generate pages only. clap cannot parse as pflag does: treat a word after a boolean as
/// positional, replace a list's default on first use only, or read underscores as hyphens.
fn command(known: &CommandLineContext<'_>) -> Command {
    let mut command = Command::new(PROGRAM)
        .about("Keeps a Kubernetes cluster in the state its objects ask for")
        .version(known.build.git_version.trim_start_matches('v').to_owned())
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true);
    for subcommand_help in known.commands {
        command = command.subcommand(subcommand(subcommand_help, known));
    }
    with_flags(command, known)
}

fn with_flags(mut command: Command, known: &CommandLineContext<'_>) -> Command {
    for group in flags::groups() {
        command = command.next_help_heading(format!("{} flags", group.title));
        for flag in group.flags.iter().filter(|flag| flag.deprecated.is_none()) {
            command = command.arg(argument(flag, known));
        }
    }
    command
}

fn subcommand(known: &help::CommandHelp<'_>, context: &CommandLineContext<'_>) -> Command {
    let command = Command::new(known.name.to_owned()).about(known.about.to_owned()).disable_help_flag(true);
    let values = match known.name {
        "completion" => vec!["bash".to_owned(), "zsh".to_owned(), "fish".to_owned()],
        "help" => help::group_names(),
        // It takes the flags of the manager.
        "check" => return with_flags(command, context),
        _ => return command,
    };
    command.arg(Arg::new("argument").value_parser(PossibleValuesParser::new(values)))
}

fn argument(flag: &Flag, known: &CommandLineContext<'_>) -> Arg {
    // Shells show the first line, the man page all of them.
    let mut argument = Arg::new(flag.name)
        .long(flag.name)
        .help(flag.help)
        .long_help(help::description(flag, known).join("\n"));
    if let Some(short) = flag.short {
        argument = argument.short(short);
    }
    match flag.default {
        FlagDefault::Bool(_) | FlagDefault::Version => return argument.action(ArgAction::SetTrue),
        kind => argument = argument.value_name(kind.type_name()).action(ArgAction::Append),
    }
    if flag.name.ends_with("-file") || flag.name.ends_with("kubeconfig") {
        argument = argument.value_hint(ValueHint::FilePath);
    }
    match possible_values(flag, known) {
        values if values.is_empty() => argument,
        values => argument.value_parser(PossibleValuesParser::new(values)).hide_possible_values(true),
    }
}

fn possible_values(flag: &Flag, known: &CommandLineContext<'_>) -> Vec<String> {
    match flag.name {
        // Not `*`: bash would complete it to the files of the directory.
        "controllers" => known.controllers.iter().map(|controller| controller.name.to_owned()).collect(),
        "feature-gates" => {
            gates::names().flat_map(|name| [format!("{name}=true"), format!("{name}=false")]).collect()
        }
        "logging-format" => vec!["text".to_owned(), "json".to_owned()],
        "tls-min-version" => ["10", "11", "12", "13"].map(|version| format!("VersionTLS{version}")).to_vec(),
        _ => Vec::new(),
    }
}

/// The reference page of flags, in Markdown. It does not depend on which controllers are implemented.
#[must_use]
pub fn flags_page() -> String {
    let mut page = String::from(
        "# Flags\n\n\
         Generated from the list of flags in `crates/options`; a test keeps it up to date.\n\n\
         Flags are written `--name=value` or `--name value`, booleans `--name` or `--name=false`, and `_` in a name is\n\
         `-`. Lists are separated by commas and may be given repeatedly: the first use replaces the default, later ones\n\
         append.\n",
    );
    for group in flags::groups() {
        page.push_str(&format!(
            "\n## {}\n\n| flag | type | default | |\n| --- | --- | --- | --- |\n",
            group.title
        ));
        for flag in group.flags {
            page.push_str(&flag_row(flag));
        }
    }
    page
}

fn flag_row(flag: &Flag) -> String {
    let kind = match flag.default {
        FlagDefault::Bool(_) => "bool",
        kind => kind.type_name(),
    };
    let default = help::default_text(flag).map_or(String::new(), |default| format!("`{default}`"));
    let mut text = flag.help.to_owned();
    match (flag.deprecated, flag.scope) {
        (Some(reason), _) => text.push_str(&format!(" Deprecated: {reason}")),
        (None, FlagScope::Nothing) => text.push_str(" Accepted and without effect."),
        (None, FlagScope::Unsupported(reason)) => {
            text.push_str(&format!(" Without effect here, with a warning at the start: {reason}."));
        }
        (None, FlagScope::NoCounterpart(reason)) => {
            text.push_str(&format!(" Without effect here: {reason}."));
        }
        _ => {}
    }
    let short = flag.short.map_or(String::new(), |short| format!(", `-{short}`"));
    format!("| `--{}`{short} | {kind} | {default} | {text} |\n", flag.name)
}

/// The reference page of feature gates, in Markdown.
#[must_use]
pub fn gates_page() -> String {
    let mut page = String::from(
        "# Feature gates\n\n\
         Generated from the list of gates in `crates/options`; a test keeps it up to date. All gates of the original are\n\
         known, so that its command lines are accepted. `--emulated-version` picks the column. The last column says what a\n\
         gate does here; it is empty for gates that the original's manager does not read either.\n\n\
         | gate | 1.34 | 1.35 | 1.36 | 1.37 | needs | here |\n| --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (name, columns, needs, effect) in gates::table() {
        let here = match effect {
            GateEffect::Obeyed => "obeyed".to_owned(),
            GateEffect::OtherComponent => String::new(),
            GateEffect::Controller(name) => format!("comes with the {name}"),
            GateEffect::Fixed(true, reason) => format!("always on: {reason}"),
            GateEffect::Fixed(false, reason) => format!("always off: {reason}"),
        };
        page.push_str(&format!("| {name} | {} | {} | {here} |\n", columns.join(" | "), needs.join(", ")));
    }
    page
}
