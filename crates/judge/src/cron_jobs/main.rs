//! `cargo xtask judge-cron-jobs`: compares a month of CronJobs with the original.

use std::process::ExitCode;

use clap::Parser;
use keleustes_control_plane::build::BinaryCache;
use keleustes_judge::cron_jobs::{compare, generate::lives};

/// Lets generated CronJobs run through a month and compares every reconcile with the original's.
#[derive(Parser)]
#[command(name = "cargo xtask judge-cron-jobs", bin_name = "cargo xtask judge-cron-jobs")]
struct Args {
    /// How many CronJobs to compare; each third allows, forbids and replaces concurrent Jobs
    #[arg(long, default_value_t = 60)]
    cron_jobs: usize,
    /// The seed of the CronJobs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to print
    #[arg(long, default_value_t = 3)]
    shown: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let program = BinaryCache::from_env().provide_cron_jobs()?;
    let report = compare(&program, lives(args.seed, args.cron_jobs))?;
    report.differences.iter().take(args.shown).for_each(|difference| println!("{difference}"));
    for (event, count) in &report.events {
        println!("  {count:>7} {event}");
    }
    println!(
        "judge-cron-jobs: {} CronJobs, {} reconciles, {} Jobs created and {} deleted; {} differ",
        report.cron_jobs,
        report.reconciles,
        report.created,
        report.deleted,
        report.differences.len()
    );
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
