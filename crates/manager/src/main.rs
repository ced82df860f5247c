//! The drop-in kube-controller-manager: reads options, then keeps everything running until it must stop.

mod certificates;
mod check;
mod command;
mod controller_selection;
mod core_dumps;
mod explain_command;
mod identity;
mod inspect;
mod lead_gate;
mod lease_lock;
mod logging;
mod options_from_files;
#[cfg(feature = "playground")]
mod playground;
mod process_context;
mod run;
mod serving;
mod shadow_report;
#[cfg(test)]
mod table_of_effects;
mod time_zones;
mod volume_binder_options;

use std::process::ExitCode;

/// Returns memory after bursts: caches consist of many small allocations, and the system's allocator keeps the pages
/// between them that a list or a rollout once needed.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Before anything secret is read.
    let forbidden = core_dumps::forbid();
    let called: Vec<String> =
        std::env::args_os().take(2).map(|arg| arg.to_string_lossy().into_owned()).collect();
    if let Some(end) = called
        .first()
        .and_then(|program| explain_command::refuse_as_plugin(program, called.get(1).map(String::as_str)))
    {
        return end;
    }
    let options = match command::read(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(end) => return end,
    };
    for notice in &options.notices {
        eprintln!("{notice}");
    }
    let (form, verbosity) = logging::from_options(&options.logs);
    logging::start(form, verbosity.clone());
    let program = identity::program();
    tracing::info!(version = identity::KUBERNETES_VERSION, %program, "Starting");
    keleustes_client::set_commit(identity::COMMIT);
    options.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if let Err(error) = forbidden {
        tracing::warn!(%error, "core dumps cannot be forbidden, and would contain private keys");
    }
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
