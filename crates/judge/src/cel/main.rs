//! `cargo xtask judge-cel`: compares the warnings of policies with those of the original's type checker.

use std::process::ExitCode;

use clap::Parser;
use keleustes_control_plane::build::BinaryCache;
use keleustes_judge::cel;

/// Checks policies here and with the original's type checker, and compares the warnings and the declared functions.
#[derive(Parser)]
#[command(name = "cargo xtask judge-cel", bin_name = "cargo xtask judge-cel")]
struct Args {
    /// How many policies to compare
    #[arg(long, default_value_t = 4000)]
    policies: usize,
    /// The seed of the policies
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to print
    #[arg(long, default_value_t = 20)]
    shown: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let program = BinaryCache::from_env().provide_cel()?;
    let report = cel::run(&program, args.seed, args.policies)?;
    report.differences.iter().take(args.shown).for_each(|difference| println!("{difference}\n"));
    println!(
        "judge-cel: {} policies ({} expressions from tests of the original), {} with warnings, {} warnings are equal, \
         {} are syntax errors for both at the same place, {} differ",
        report.policies,
        report.collected,
        report.with_warnings,
        report.equal,
        report.syntax_errors,
        report.differences.len()
    );
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
