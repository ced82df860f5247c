//! `cargo xtask judge`: do the embedded API server and the real one give the same answers?

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use clap::Parser;
use keleustes_judge::accepted::Accepted;
use keleustes_judge::run::{Plan, run};
use keleustes_judge::world::World;

/// Asks the embedded API server and a real kube-apiserver the same and compares the answers.
#[derive(Parser)]
#[command(name = "cargo xtask judge", bin_name = "cargo xtask judge")]
struct Args {
    /// How many sequences to try
    #[arg(long, default_value_t = 2000)]
    sequences: u64,
    /// Where they grow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Try only the sequence of this number
    #[arg(long, value_name = "NUMBER")]
    replay: Option<u64>,
    /// Only kinds whose `resource.group` contains this; may be repeated
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// How many sequences to try at once
    #[arg(long, default_value_t = 12)]
    at_once: usize,
    /// How many differing sequences to show in full
    #[arg(long, default_value_t = 5)]
    shown: usize,
    /// A kube-apiserver that runs already, instead of one that is started; it is left with what was stored in it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// From this many sequences on, a listed difference that did not come up is told.
const FULL_RUN: u64 = 2000;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let accepted = Mutex::new(Accepted::read()?);
    let world = World::start(args.kubeconfig.as_deref()).await?;
    let plan = Plan {
        seed: args.seed,
        numbers: args.replay.map_or(0..args.sequences, |number| number..number + 1),
        only: args.only.clone(),
        at_once: args.at_once.max(1),
        mark: mark(),
    };
    let report = run(&world.servers, &plan, &accepted).await?;
    report.print_failures(plan.seed, args.shown);
    for (number, difference) in &report.once {
        println!("\nsequence {number} differed, and not when it was played again:\n  {difference}");
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
        report.once.len(),
    );
    if report.panicked > 0 {
        println!("judge: the real server panicked in {} of them, which end there", report.panicked);
    }
    if report.sequences >= FULL_RUN && args.only.is_empty() {
        accepted.stale().into_iter().for_each(|item| println!("judge: accepted and not seen: {item}"));
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Namespaces of another run on the same server must not be met again.
fn mark() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:05x}", since.as_secs() & 0xf_ffff)
}
