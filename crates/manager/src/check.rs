//! Checks before the first start, or when something is wrong, whether the manager can run with its flags: files, the API
//! server, the Lease, every permission of every enabled controller. Nothing is written.

mod cluster;
mod files;
mod permissions;
mod report;

use std::process::ExitCode;

use keleustes_client::{ClientFactory, Connection};
use keleustes_controllers::ControllersOptions;
use keleustes_options::Options;

use self::report::{Category, Check, OutputFormat, Report};
use crate::certificates::LateStart;
use crate::controller_selection::ControllerSelection;
use crate::{options_from_files, process_context, run};

const HELP: &str = "\
Checks whether the manager can run with these flags, and says what to do about each failure. It writes nothing.

Usage: kube-controller-manager check [-o json] [flags of the manager]

  -o, --output text|json   how to print the result, text by default

Give it the flags of your manifest, on the machine and as the user that runs the manager. It checks

  files         kubeconfigs, CA files, key pairs and their expiry, the lease lock file
  API server    reachable, version and skew, clock skew
  controllers   all that --controllers asks for are implemented and can be constructed
  permissions   of the manager, and of every enabled controller: with --use-service-account-credentials
                each asks with the token of its own service account (SelfSubjectAccessReview)
  lease         who holds it, and which program that is; the durations of the leader election
  ports         --secure-port is free

Exit code 0: no failure, warnings at most; 1: failures, or flags that cannot be parsed.
";

/// Runs the subcommand. `read_flags` parses the flags of the manager and prints their errors.
pub(crate) fn run(
    args: &[&str],
    read_flags: impl FnOnce(Vec<&str>) -> Result<Box<Options>, ExitCode>,
) -> ExitCode {
    if args.iter().any(|arg| matches!(*arg, "--help" | "-h")) {
        crate::command::say(HELP);
        return ExitCode::SUCCESS;
    }
    let (format, flags) = match OutputFormat::read(args) {
        Ok(read) => read,
        Err(message) => {
            eprintln!("Error: {message}\n\n{HELP}");
            return ExitCode::FAILURE;
        }
    };
    let options = match read_flags(flags) {
        Ok(options) => options,
        Err(end) => return end,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("Error: starting the async runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let report = runtime.block_on(checked(&options));
    crate::command::say(&report.text(format));
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Makes all checks. One that needs the result of a failed one is left out.
async fn checked(options: &Options) -> Report {
    let mut report = Report::default();
    files::check(options, &mut report);
    cluster::check_delegates(options, &mut report).await;
    cluster::check_election(options, &mut report);
    let (kubeconfig, master) = run::api_server(options);
    let connection = match Connection::open(kubeconfig, master, None) {
        Ok(connection) => connection,
        Err(error) => {
            report.add(
                Check::new(Category::ApiServer, "connection")
                    .failed(format!("{:#}", anyhow::Error::from(error)))
                    .advise("give --kubeconfig a readable kubeconfig, or run in a pod"),
            );
            cluster::check_port(options, None, &mut report).await;
            return report;
        }
    };
    if let Err(error) = connection.prefetch_credentials().await {
        report.add(
            Check::new(Category::ApiServer, "credentials")
                .failed(format!("{:#}", anyhow::Error::from(error)))
                .advise("the credential plugin of the kubeconfig must succeed without a terminal"),
        );
    }
    let selection = selection(options, &connection, &mut report);
    let factory = ClientFactory::new(connection, process_context::client_options(options));
    let is_reachable = cluster::check_server(&factory, &mut report).await;
    let mut holder = None;
    if is_reachable {
        holder = cluster::check_lease(&factory, options, &mut report).await;
        if let Some(selection) = &selection {
            permissions::check(&factory, options, selection, &mut report).await;
        }
    }
    cluster::check_port(options, holder.as_deref(), &mut report).await;
    report
}

/// The controllers that would run.
fn selection(options: &Options, connection: &Connection, report: &mut Report) -> Option<ControllerSelection> {
    let files = Check::new(Category::Files, "files of controllers");
    let read = options_from_files::settings_and_late_start(options, connection);
    let (settings, late_start): (ControllersOptions, LateStart) = match read {
        Ok(read) => read,
        Err(error) => {
            report
                .add(files.failed(format!("{error:#}")).advise("correct the flag or the file that it names"));
            return None;
        }
    };
    let selection = match ControllerSelection::choose(options, &settings) {
        Ok(selection) => selection,
        Err(error) => {
            let text = format!("{}: {error}", error.controller);
            let check = Check::new(Category::Controllers, "construction").failed(text);
            report
                .add(check.advise("correct the flags of this controller, or disable it with --controllers"));
            return None;
        }
    };
    report.add(match late_start.check_files(selection.members.iter().map(|member| member.name)) {
        Ok(()) => files.ok("can be used"),
        Err(reason) => files.failed(reason).advise("give the signing controller a certificate and its key"),
    });
    let enabled = Check::new(Category::Controllers, "implemented");
    report.add(match &selection.missing[..] {
        [] => enabled.ok(format!("all {} enabled controllers", selection.members.len())),
        missing => {
            let missing = format!("not implemented: {}", missing.join(", "));
            let advice = "disable them with --controllers and run them in another manager; \
                          --allow-missing-controllers leads without them";
            match options.generic.allow_missing_controllers {
                true => enabled.warning(missing).advise(advice),
                false => enabled.failed(missing).advise(advice),
            }
        }
    });
    Some(selection)
}
