//! `cargo xtask judge-hpa`: compares what autoscalers do here and in the original.

use std::process::ExitCode;

use clap::Parser;
use keleustes_control_plane::build::BinaryCache;
use keleustes_judge::autoscaler::{compare, generate::situations};

/// Reconciles generated autoscalers here and in the original, and compares requests, events, sizes and status.
#[derive(Parser)]
#[command(name = "cargo xtask judge-hpa", bin_name = "cargo xtask judge-hpa")]
struct Args {
    /// How many situations to compare, each of one to five reconciles
    #[arg(long, default_value_t = 4000)]
    situations: usize,
    /// The seed of the situations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to print
    #[arg(long, default_value_t = 5)]
    shown: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let program = BinaryCache::from_env().provide_horizontal_pod_autoscaler()?;
    let report = compare(&program, &situations(args.seed, args.situations))?;
    report.differences.iter().take(args.shown).for_each(|difference| println!("{difference}"));
    println!(
        "judge-hpa: {} situations, {} reconciles, of which {} change a size and {} fail; {} differ",
        report.situations,
        report.steps,
        report.rescales,
        report.errors,
        report.differences.len()
    );
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
