//! The command line: the manager's own flags, and the few commands beside them.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use keleustes_controllers::names::{DefaultState, UPSTREAM_CONTROLLERS};
use keleustes_options::{Build, CommandLineContext, Controller, Options, ParseOutcome, RefusalOutput, Shell};

/// The Kubernetes version that this program implements and reports.
pub(crate) const VERSION: &str = "v1.37.1";

/// Parses the arguments into options to run with, or into an exit code.
///
/// # Errors
/// The exit code, if there is nothing to run; messages have been printed already.
pub(crate) fn read(args: impl Iterator<Item = OsString>) -> Result<Box<Options>, ExitCode> {
    let controllers: Vec<_> = UPSTREAM_CONTROLLERS
        .iter()
        .map(|known| Controller {
            name: known.name,
            alias: known.alias,
            on_by_default: known.default != DefaultState::Disabled,
        })
        .collect();
    let landed = crate::controller_selection::implemented_controllers();
    let known = CommandLineContext {
        controllers: &controllers,
        implemented: &landed,
        build: Build {
            git_version: VERSION,
            git_commit: option_env!("KELEUSTES_COMMIT").unwrap_or_default(),
            git_tree_state: "",
            build_date: option_env!("KELEUSTES_BUILD_DATE").unwrap_or_default(),
            language_version: concat!("rust", env!("CARGO_PKG_RUST_VERSION")),
            compiler: "rustc",
            platform: "linux/amd64",
        },
        width: terminal_width(),
        read_file: &|path| std::fs::read_to_string(path),
    };
    let args: Vec<OsString> = args.collect();
    if let Some(end) = beside(&args, &known) {
        return Err(end);
    }
    match keleustes_options::parse(args, &known) {
        ParseOutcome::Run(options) => Ok(options),
        ParseOutcome::Print(text) => {
            say(&text);
            Err(ExitCode::SUCCESS)
        }
        ParseOutcome::Refuse { message, exit_code, manner } => {
            match manner {
                RefusalOutput::Usage => eprintln!("{}\nError: {message}", keleustes_options::usage()),
                RefusalOutput::Plain => eprintln!("Error: {message}"),
                RefusalOutput::Logged => eprintln!("kube-controller-manager: {message}"),
            }
            Err(ExitCode::from(exit_code))
        }
    }
}

/// Subcommands beside the manager itself; the original takes no arguments, so they conflict with none of its.
fn beside(args: &[OsString], known: &CommandLineContext<'_>) -> Option<ExitCode> {
    let words: Vec<_> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
    let shell = |name| match name {
        "bash" => Some(Shell::Bash),
        "zsh" => Some(Shell::Zsh),
        "fish" => Some(Shell::Fish),
        _ => None,
    };
    match words[..] {
        #[cfg(feature = "playground")]
        ["playground", ref args_after @ ..] => Some(crate::playground::run(args_after)),
        #[cfg(not(feature = "playground"))]
        ["playground", ..] => {
            eprintln!(
                "Error: this program was packaged without the playground; use `cargo run -- playground`"
            );
            Some(ExitCode::FAILURE)
        }
        ["completion", name] => {
            let Some(shell) = shell(name) else {
                eprintln!("Error: there is no completion for {name:?}; supported shells: bash, zsh, fish");
                return Some(ExitCode::FAILURE);
            };
            say(&keleustes_options::completion(shell, known));
            Some(ExitCode::SUCCESS)
        }
        ["man-page"] => {
            say(&keleustes_options::man_page(known));
            Some(ExitCode::SUCCESS)
        }
        _ => None,
    }
}

/// Writes to stdout. A reader that closes the pipe early, such as `head`, is not an error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn terminal_width() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
