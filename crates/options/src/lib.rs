//! The command line of the manager: parsing, validation with the original's messages, and the resulting options.
//!
//! One list of flags ([`flags`]) feeds the parser, the help text, shell completion, the man page and the page in
//! the documentation. Parsing follows the original's flag library exactly ([`parse`]), because a manifest that starts the
//! original must start this manager. This crate reads neither the environment nor a clock; the caller passes a
//! function that reads files.

mod build;
mod controllers;
pub mod flag;
pub mod flags;
mod gates;
mod go_text;
mod help;
mod leader_migration;
mod options;
mod pages;
mod parser;
mod value;
mod versions;

use std::ffi::OsString;
use std::io;

pub use build::Build;
pub use controllers::{Controller, EnabledControllers};
pub use gates::{FeatureGates, FeatureStage, GateEffect, GateState, gate_dependencies, gate_effects};
pub use go_text::GoDuration;
pub use help::{CommandHelp, commands_text, group_help, group_names, usage};
pub use leader_migration::{ControllerLeader, LeaderMigration};
pub use options::*;
pub use pages::{Shell, completion, flags_page, gates_page, man_page};
pub use value::{ModuleLevel, SniCertKey};
pub use versions::{EffectiveVersion, Version};

use parser::Values;
use value::VersionFlag;

/// The inputs of parsing besides the arguments.
#[derive(Clone, Copy)]
pub struct CommandLineContext<'a> {
    /// All controllers of the original, implemented here or not.
    pub controllers: &'a [Controller<'a>],
    /// Canonical names of the implemented controllers.
    pub implemented: &'a [&'a str],
    /// The subcommands beside the manager itself, for help, completion and the man page.
    pub commands: &'a [CommandHelp<'a>],
    /// The program's own version.
    pub build: Build<'a>,
    /// The width of the terminal in columns, to which help is wrapped; `None` does not wrap.
    pub width: Option<usize>,
    /// Reads a file named by a flag.
    pub read_file: &'a dyn Fn(&str) -> io::Result<String>,
}

/// The result of parsing the command line.
#[derive(Debug)]
pub enum ParseOutcome {
    /// Run with these options.
    Run(Box<Options>),
    /// Print this on stdout and exit with 0.
    Print(String),
    /// Print the error and exit.
    Refuse {
        /// The error, in one line.
        message: String,
        /// The exit code.
        exit_code: u8,
        /// Where the error is printed.
        manner: RefusalOutput,
    },
}

/// Where an error of the command line is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalOutput {
    /// [`usage`] and then `Error: message` on stderr: the arguments cannot be parsed.
    Usage,
    /// `Error: message` on stderr: there are positional arguments.
    Plain,
    /// The log line `command failed` with the message: the flags are parsed and fail validation.
    Logged,
}

/// Parses the arguments, without the program's name.
pub fn parse<I, S>(args: I, known: &CommandLineContext<'_>) -> ParseOutcome
where
    I: IntoIterator<Item = S>,
    S: Into<OsString>,
{
    let text = |arg: S| match arg.into().into_string() {
        Ok(arg) => Ok(arg),
        Err(arg) => Err(format!("argument is not valid UTF-8: {}", go_text::quote(&arg.to_string_lossy()))),
    };
    let args = args.into_iter().map(text).collect::<Result<Vec<_>, _>>();
    let values = match args.and_then(|args| Values::read(args, &known.build)) {
        Ok(values) => values,
        Err(message) => return refuse(message, RefusalOutput::Usage),
    };
    if values.bool("help") {
        return ParseOutcome::Print(help::text(known));
    }
    if values.positional.iter().any(|arg| !arg.is_empty()) {
        let got = go_text::quote_list(&values.positional);
        return refuse(
            format!("\"kube-controller-manager\" does not take any arguments, got {got}"),
            RefusalOutput::Plain,
        );
    }
    match resolve(values, known) {
        Ok(outcome) => outcome,
        Err(message) => refuse(message, RefusalOutput::Logged),
    }
}

/// Versions and gates are checked first, so that an invalid one is reported even together with `--version`.
fn resolve(values: Values, known: &CommandLineContext<'_>) -> Result<ParseOutcome, String> {
    let (emulated, oldest) = (values.list("emulated-version"), values.list("min-compatibility-version"));
    let versions = EffectiveVersion::read(&emulated, &oldest, &known.build)?;
    let read = FeatureGates::read(&values.gates("feature-gates"), versions)?;
    match values.version("version") {
        VersionFlag::Line => return Ok(ParseOutcome::Print(known.build.lines())),
        VersionFlag::Raw => return Ok(ParseOutcome::Print(known.build.raw())),
        VersionFlag::Run | VersionFlag::Report(_) => {}
    }
    let mut options = Options::read(values, read.gates, versions, known)?;
    options.warnings.splice(0..0, read.warnings);
    Ok(ParseOutcome::Run(Box::new(options)))
}

/// An error in one line, whatever the arguments contain.
fn refuse(message: String, manner: RefusalOutput) -> ParseOutcome {
    let message = if message.contains(['\n', '\r']) {
        message.replace('\n', "\\n").replace('\r', "\\r")
    } else {
        message
    };
    ParseOutcome::Refuse { message, exit_code: 1, manner }
}

/// Joins errors as `utilerrors.NewAggregate` does: a single one as it is, several in brackets, without duplicates.
fn aggregate(problems: Vec<String>) -> Result<(), String> {
    let mut distinct: Vec<String> = Vec::new();
    for problem in problems {
        if !distinct.contains(&problem) {
            distinct.push(problem);
        }
    }
    match distinct.len() {
        0 => Ok(()),
        1 => Err(distinct.remove(0)),
        _ => Err(format!("[{}]", distinct.join(", "))),
    }
}

/// The error of reading a file, as Go words it.
fn file_problem(path: &str, error: &io::Error) -> String {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => return format!("read {path}: is a directory"),
        _ => leader_migration::one_line(error),
    };
    format!("open {path}: {reason}")
}
