//! `cargo xtask judge-volumes`: compares the choice of volumes for generated claims with the original's.

use std::process::ExitCode;

use clap::Parser;
use keleustes_control_plane::build::BinaryCache;
use keleustes_judge::volumes;

/// Asks the original which volume each generated claim gets, and compares.
#[derive(Parser)]
#[command(name = "cargo xtask judge-volumes", bin_name = "cargo xtask judge-volumes")]
struct Args {
    /// How many sets of volumes to compare, each with one claim
    #[arg(long, default_value_t = 20_000)]
    sets: usize,
    /// The seed of the sets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to print
    #[arg(long, default_value_t = 20)]
    shown: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let questions = volumes::generate(args.seed, args.sets);
    let answers = volumes::ask_original(&BinaryCache::from_env().provide_volumes()?, &questions)?;
    let report = volumes::compare(&questions, &answers)?;
    report.differences.iter().take(args.shown).for_each(|difference| println!("{difference}"));
    println!(
        "judge-volumes: {} sets, {} got a volume, {} refused, {} differ",
        questions.len(),
        report.chosen,
        report.refused,
        report.differences.len()
    );
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
