//! `cargo xtask judge-jws`: compares bootstrap tokens and the signatures of cluster-info with the original's.

use std::process::ExitCode;

use clap::Parser;
use keleustes_control_plane::build::BinaryCache;
use keleustes_judge::jws;

/// Signs generated kubeconfigs with generated bootstrap tokens, lets kubeadm's own code verify the signatures, and compares
/// which tokens sign and when they expire with the original.
#[derive(Parser)]
#[command(name = "cargo xtask judge-jws", bin_name = "cargo xtask judge-jws")]
struct Args {
    /// How many kubeconfigs to sign, each with up to five tokens
    #[arg(long, default_value_t = 4000)]
    kubeconfigs: usize,
    /// The seed of tokens and kubeconfigs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to print
    #[arg(long, default_value_t = 20)]
    shown: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let program = BinaryCache::from_env().provide_jws_check()?;
    let report = jws::run(&program, args.seed, args.kubeconfigs)?;
    report.differences.iter().take(args.shown).for_each(|difference| println!("{difference}"));
    println!(
        "judge-jws: {} kubeconfigs, {} signatures verified by kubeadm's code, {} tokens sign nothing, {} tokens have expired, \
         {} times equal, {} times refused by both, {} differ",
        args.kubeconfigs,
        report.signatures,
        report.silent,
        report.expired,
        report.times,
        report.unparsable,
        report.differences.len()
    );
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
