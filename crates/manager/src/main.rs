//! The drop-in kube-controller-manager: reads flags, then keeps everything running until it must stop.

mod choice;
mod files;
mod flags;
mod life;
mod logging;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let flags = flags::Flags::parse_from(flags::normalised(std::env::args()));
    if let Some(command) = &flags.command {
        return command.run();
    }
    let form = if flags.logging.logging_format == "json" { logging::Form::Json } else { logging::Form::Text };
    logging::start(form, logging::Verbosity::new(flags.logging.v.into(), flags.logging.vmodule.clone()));
    match life::run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line on stderr whatever the log format, for whoever looks at a crash loop.
            eprintln!("kube-controller-manager: {error:#}");
            ExitCode::FAILURE
        }
    }
}
