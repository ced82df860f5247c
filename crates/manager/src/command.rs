//! The command line: the manager's own flags, and the subcommands beside them.

mod subcommands;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use keleustes_controllers::names::{DefaultState, UPSTREAM_CONTROLLERS};
use keleustes_options::{
    Build, CommandHelp, CommandLineContext, Controller, Options, ParseOutcome, RefusalOutput,
};

use self::subcommands::SUBCOMMANDS;
use crate::identity;

/// Parses the arguments into options to run with, or into an exit code.
///
/// # Errors
/// The exit code, if there is nothing to run; messages have been printed already.
pub(crate) fn read(args: impl Iterator<Item = OsString>) -> Result<Box<Options>, ExitCode> {
    with_context(|known| {
        let args: Vec<OsString> = args.collect();
        match subcommands::run(&args, known) {
            Some(end) => Err(end),
            None => read_flags(args, known),
        }
    })
}

/// Parses the flags of the manager.
///
/// # Errors
/// The exit code, if there is nothing to run; messages have been printed already.
fn read_flags(args: Vec<OsString>, known: &CommandLineContext<'_>) -> Result<Box<Options>, ExitCode> {
    let first = args.first().map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default();
    match keleustes_options::parse(args, known) {
        ParseOutcome::Run(options) => Ok(options),
        ParseOutcome::Print(text) => {
            say(&text);
            Err(ExitCode::SUCCESS)
        }
        ParseOutcome::Refuse { message, exit_code, manner } => {
            match manner {
                RefusalOutput::Usage => eprintln!("{}\nError: {message}", keleustes_options::usage()),
                RefusalOutput::Plain => eprintln!("Error: {message}{}", subcommands::hint(&first)),
                RefusalOutput::Logged => crate::logging::command_failed(&message),
            }
            Err(ExitCode::from(exit_code))
        }
    }
}

/// Calls a function with what parsing needs besides the arguments.
fn with_context<T>(use_context: impl FnOnce(&CommandLineContext<'_>) -> T) -> T {
    let controllers: Vec<_> = UPSTREAM_CONTROLLERS
        .iter()
        .map(|known| Controller {
            name: known.name,
            alias: known.alias,
            on_by_default: known.default != DefaultState::Disabled,
        })
        .collect();
    let landed = crate::controller_selection::implemented_controllers();
    let (program, platform) = (identity::program(), keleustes_client::platform());
    let commands: Vec<CommandHelp<'_>> = SUBCOMMANDS.iter().map(|command| command.help).collect();
    use_context(&CommandLineContext {
        controllers: &controllers,
        implemented: &landed,
        commands: &commands,
        build: Build {
            git_version: identity::KUBERNETES_VERSION,
            program: &program,
            git_commit: identity::COMMIT,
            git_tree_state: "",
            build_date: option_env!("KELEUSTES_BUILD_DATE").unwrap_or_default(),
            language_version: concat!("rust", env!("CARGO_PKG_RUST_VERSION")),
            compiler: "rustc",
            platform: &platform,
        },
        width: terminal_width(),
        read_file: &|path| std::fs::read_to_string(path),
    })
}

/// Writes to stdout. A reader that closes the pipe early, such as `head`, is not an error.
pub(crate) fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// What `COLUMNS` says, which shells seldom export, or the width of the terminal that stdout is.
fn terminal_width() -> Option<usize> {
    let exported = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || Some(rustix::termios::tcgetwinsize(std::io::stdout()).ok()?.ws_col.into());
    exported.or_else(terminal).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests;
