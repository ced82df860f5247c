//! The command line of the manager: what it accepts, what it refuses and in which words, and what it means.
//!
//! One list of flags ([`flags`]) feeds the parser, the help text, shell completion, the man page and the page in
//! the documentation. Parsing follows the original's flag library to the letter ([`parse`]), because a manifest that starts the
//! original must start this manager. Nothing here reads the environment or a clock; files come through the reader
//! that the caller hands in.

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
pub use controllers::{Chosen, Controller};
pub use gates::{FeatureGates, FeatureStage, GateState};
pub use go_text::{Quantity, Span};
pub use help::usage;
pub use leader_migration::{ControllerLeader, LeaderMigration};
pub use options::*;
pub use pages::{Shell, completion, flags_page, gates_page, man_page};
pub use value::{ModuleLevel, SniCertKey};
pub use versions::{Version, Versions};

use parser::Values;
use value::VersionWish;

/// What the command line depends on besides its arguments.
#[derive(Clone, Copy)]
pub struct CommandLineContext<'a> {
    /// All controllers the original has, whether they have landed here or not.
    pub controllers: &'a [Controller<'a>],
    /// Canonical names of the controllers that have landed.
    pub implemented: &'a [&'a str],
    /// The program's own version.
    pub build: Build<'a>,
    /// Columns of the terminal that help is wrapped to; `None` leaves lines as long as they are.
    pub width: Option<usize>,
    /// Reads a file that a flag names.
    pub read_file: &'a dyn Fn(&str) -> io::Result<String>,
}

/// What to do after the command line has been read.
#[derive(Debug)]
pub enum ParseOutcome {
    /// Run with these options.
    Run(Box<Options>),
    /// Print this on stdout and end with success.
    Print(String),
    /// ReturnOutcome this and end.
    Refuse {
        /// What is wrong, in one line.
        message: String,
        /// How to end.
        exit_code: u8,
        /// How to tell.
        manner: RefusalOutput,
    },
}

/// How a refusal is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalOutput {
    /// [`usage`] and then `Error: message`, on stderr: the arguments cannot be read.
    Usage,
    /// `Error: message` on stderr: there are arguments that are no flags.
    Plain,
    /// An error in the log, `command failed` with the message: the flags can be read and cannot be used.
    Logged,
}

/// Reads the arguments, without the program's name.
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
    if values.left_over.iter().any(|arg| !arg.is_empty()) {
        let got = go_text::quote_list(&values.left_over);
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

/// Versions and gates come first, so that a wrong one is told even beside `--version`.
fn resolve(values: Values, known: &CommandLineContext<'_>) -> Result<ParseOutcome, String> {
    let (emulated, oldest) = (values.list("emulated-version"), values.list("min-compatibility-version"));
    let versions = Versions::read(&emulated, &oldest, &known.build)?;
    let read = FeatureGates::read(&values.gates("feature-gates"), versions)?;
    match values.version("version") {
        VersionWish::Line => return Ok(ParseOutcome::Print(known.build.line())),
        VersionWish::Raw => return Ok(ParseOutcome::Print(known.build.raw())),
        VersionWish::Run | VersionWish::Report(_) => {}
    }
    let mut options = Options::read(values, read.gates, versions, known)?;
    options.warnings.splice(0..0, read.warnings);
    Ok(ParseOutcome::Run(Box::new(options)))
}

/// Refuses in one line, whatever was typed.
fn refuse(message: String, manner: RefusalOutput) -> ParseOutcome {
    let message = if message.contains(['\n', '\r']) {
        message.replace('\n', "\\n").replace('\r', "\\r")
    } else {
        message
    };
    ParseOutcome::Refuse { message, exit_code: 1, manner }
}

/// Puts all problems into one line: a single one as it is, several in brackets and none twice.
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

/// Why a file could not be read, in the words of the original.
fn file_problem(path: &str, error: &io::Error) -> String {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => return format!("read {path}: is a directory"),
        _ => leader_migration::one_line(error),
    };
    format!("open {path}: {reason}")
}
