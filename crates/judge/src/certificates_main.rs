//! `cargo xtask judge-certificates`: compares signed certificates with those of the original's authority.

use std::process::ExitCode;

use clap::Parser;
use keleustes_control_plane::build::BinaryCache;
use keleustes_judge::certificates;

/// Signs generated requests here and with the original's authority, and compares the certificates.
#[derive(Parser)]
#[command(name = "cargo xtask judge-certificates", bin_name = "cargo xtask judge-certificates")]
struct Args {
    /// How many requests to compare
    #[arg(long, default_value_t = 4000)]
    requests: usize,
    /// The seed of the requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to print
    #[arg(long, default_value_t = 20)]
    shown: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let program = BinaryCache::from_env().provide_certificates()?;
    let report = certificates::run(&program, args.seed, args.requests)?;
    report.differences.iter().take(args.shown).for_each(|difference| println!("{difference}"));
    println!(
        "judge-certificates: {} requests, {} certificates are equal, {} refused by both, {} with an \
         algorithm that only the original has, {} differ",
        args.requests,
        report.equal,
        report.refused,
        report.unsupported,
        report.differences.len()
    );
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
