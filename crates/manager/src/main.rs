//! The drop-in kube-controller-manager: reads options, then keeps everything running until it must stop.

mod command;
mod controller_selection;
mod logging;
mod options_from_files;
#[cfg(feature = "playground")]
mod playground;
mod process_context;
mod run;
mod serving;

use std::process::ExitCode;

use keleustes_options::LogFormat;

/// Returns memory after bursts: caches consist of many small allocations, and the system's allocator keeps the pages
/// between them that a list or a rollout once needed.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let options = match command::read(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(end) => return end,
    };
    for notice in &options.notices {
        eprintln!("{notice}");
    }
    let verbosity = logging::Verbosity::new(options.logs.verbosity, options.logs.vmodule.clone());
    let form = match options.logs.format {
        LogFormat::Text => logging::LogFormat::Text,
        LogFormat::Json => logging::LogFormat::Json,
    };
    logging::start(form, verbosity.clone());
    tracing::info!(version = command::VERSION, keleustes = env!("CARGO_PKG_VERSION"), "Starting");
    options.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    for line in options.flag_lines().iter().filter(|_| options.logs.verbosity >= 1) {
        tracing::info!("{line}");
    }
    match run::run(&options, &verbosity) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(err = %format_args!("{error:#}"), "command failed");
            ExitCode::FAILURE
        }
    }
}
