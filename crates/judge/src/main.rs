//! `cargo xtask judge`: compares the responses of the embedded API server and the real one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use clap::Parser;
use keleustes_judge::accepted::Accepted;
use keleustes_judge::run::{RunOptions, run};
use keleustes_judge::setup::TestServers;

/// Sends the same requests to the embedded API server and to a real kube-apiserver and compares the
/// responses.
#[derive(Parser)]
#[command(name = "cargo xtask judge", bin_name = "cargo xtask judge")]
struct Args {
    /// How many sequences to run
    #[arg(long, default_value_t = 2000)]
    sequences: u64,
    /// The seed of the sequences
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the sequence with this number
    #[arg(long, value_name = "NUMBER")]
    replay: Option<u64>,
    /// Only kinds whose `resource.group` contains this; may be repeated
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// How many sequences to run in parallel
    #[arg(long, default_value_t = 12)]
    at_once: usize,
    /// How many differing sequences to print in full
    #[arg(long, default_value_t = 5)]
    shown: usize,
    /// Use a running kube-apiserver instead of starting one; the created objects stay there
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// From this number of sequences on, accepted differences that did not occur are reported.
const FULL_RUN_SEQUENCES: u64 = 2000;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let accepted = Mutex::new(Accepted::read()?);
    let test_servers = TestServers::start(args.kubeconfig.as_deref()).await?;
    let options = RunOptions {
        seed: args.seed,
        numbers: args.replay.map_or(0..args.sequences, |number| number..number + 1),
        only: args.only.clone(),
        parallel: args.at_once.max(1),
        run_id: run_id(),
    };
    let report = run(&test_servers.servers, &options, &accepted).await?;
    report.print_failures(options.seed, args.shown);
    for (number, difference) in &report.differed_once {
        println!("\nsequence {number} differed once, but not when it was repeated:\n  {difference}");
    }
    let accepted = accepted.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "judge: {} sequences, {} requests, {} watch events, {:.0} s; {} differences on {} accepted lines, {} sequences differ, {} differed once",
        report.sequences,
        report.requests,
        report.events,
        report.took.as_secs_f64(),
        report.accepted,
        accepted.count(),
        report.failures.len(),
        report.differed_once.len(),
    );
    if report.panicked > 0 {
        println!("judge: the real server panicked in {} of them, which end there", report.panicked);
    }
    if report.sequences >= FULL_RUN_SEQUENCES && args.only.is_empty() {
        accepted.stale().into_iter().for_each(|item| println!("judge: accepted and not seen: {item}"));
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A name part that distinguishes the namespaces of this run from those of other runs on the same server.
fn run_id() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:05x}", since.as_secs() & 0xf_ffff)
}
