//! `cargo xtask storm`: runs storms from seeds, and shrinks the first one that fails.

use std::hash::{BuildHasher as _, RandomState};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser;
use keleustes_sim::actions::Schedule;
use keleustes_sim::generate::generate_schedule;
use keleustes_sim::mutants;
use keleustes_sim::shrink::{minimal_failing, with_only};
use keleustes_sim::soak::{Soak, Tally};
use keleustes_sim::storm::{Report, StormOptions, play};
use parking_lot::Mutex;

/// A storm spends a fifth of its time on allocations, most of them small; jemalloc is faster with those.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Runs storms: whole clusters with faults under virtual time, each from one seed.
#[derive(Parser)]
#[command(name = "cargo xtask storm", bin_name = "cargo xtask storm")]
struct Cli {
    /// How many seeds to run, from the first on
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; by default a random one, which is printed
    #[arg(long)]
    first: Option<u64>,
    /// How many storms to run in parallel; by default one per core
    #[arg(long)]
    threads: Option<usize>,
    /// Run each seed twice and compare
    #[arg(long)]
    twice: bool,
    /// Run all seeds, and list those that fail
    #[arg(long)]
    all: bool,
    /// Write the digest of each seed's requests (method, path, query, body, in order) to this file
    #[arg(long)]
    digests: Option<std::path::PathBuf>,
    /// Run this one seed and print the transcript
    #[arg(long)]
    seed: Option<u64>,
    /// Run only these actions of the seed's schedule, by their indexes
    #[arg(long, value_delimiter = ',', requires = "seed")]
    only: Option<Vec<usize>>,
    /// Run a schedule from a file and print the transcript
    #[arg(long)]
    replay: Option<std::path::PathBuf>,
    /// Remove one watch or one safeguard from one controller at a time, and list the mutants that no seed
    /// catches
    #[arg(long)]
    mutants: bool,
    /// Only mutants whose description contains this
    #[arg(long, default_value = "", requires = "mutants")]
    only_mutants: String,
    /// Save the schedule of the seed in a file
    #[arg(long, requires = "seed")]
    save: Option<std::path::PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let schedule = match (&cli.seed, &cli.replay) {
        (Some(seed), _) => Some(generate_schedule(*seed)),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            Some(serde_json::from_str(&text).with_context(|| file.display().to_string())?)
        }
        (None, None) => None,
    };
    let Some(mut schedule) = schedule else {
        return if cli.mutants { Ok(run_mutants(&cli)) } else { soak(&cli) };
    };
    if let Some(indexes) = &cli.only {
        schedule = with_only(&schedule, indexes);
    }
    if let Some(file) = &cli.save {
        std::fs::write(file, serde_json::to_string_pretty(&schedule)? + "\n")?;
    }
    let report = play_with_transcript(&schedule);
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("{:.0} s simulated, {} requests", report.simulated.as_secs_f64(), report.requests);
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play_with_transcript(schedule: &Schedule) -> Report {
    play(schedule, &StormOptions { transcript: true, ..StormOptions::default() })
}

/// Random first seeds are below this: short enough to type.
const RANDOM_SEEDS_BELOW: u64 = 1_000_000_000;

/// The first seed, printed if it is random.
fn first_seed(cli: &Cli) -> u64 {
    cli.first.unwrap_or_else(|| {
        let first = RandomState::new().hash_one(()) % RANDOM_SEEDS_BELOW;
        println!("first seed: {first} (--first {first} runs the same seeds)");
        first
    })
}

fn soak_options(cli: &Cli) -> Soak {
    let threads = cli.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    Soak { first: first_seed(cli), seeds: cli.seeds, threads, twice: cli.twice, all: cli.all }
}

/// Runs every mutant until a seed catches it.
fn run_mutants(cli: &Cli) -> ExitCode {
    let (soak, options) = (soak_options(cli), StormOptions::default());
    let mutants = mutants::all(&options);
    let (mut survivors, mut unused) = (0, 0);
    for mutant in mutants.iter().filter(|mutant| mutant.to_string().contains(&cli.only_mutants)) {
        let tally = soak.run(&mutant.apply_to(&options), |_| {});
        match tally.failed.first_key_value() {
            Some((seed, violations)) => {
                println!(
                    "caught    {mutant}: seed {seed}: {}",
                    violations.first().map_or("", String::as_str)
                );
            }
            None if !mutant.is_effective() => unused += 1,
            None => {
                survivors += 1;
                println!("SURVIVES  {mutant}");
            }
        }
    }
    println!("{survivors} of {} mutants survive {} seeds", mutants.len() - unused, cli.seeds);
    if survivors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn soak(cli: &Cli) -> anyhow::Result<ExitCode> {
    let soak = soak_options(cli);
    let began = Instant::now();
    let last = Mutex::new(began);
    // A terminal gets a line every second, a log every 30 seconds.
    let every = if std::io::stderr().is_terminal() { 1 } else { 30 };
    let tally = soak.run(&StormOptions::default(), |tally| {
        let mut last = last.lock();
        if last.elapsed().as_secs() >= every {
            *last = Instant::now();
            eprintln!("{}", progress(tally, began));
        }
    });
    println!("{}", progress(&tally, began));
    if let Some(file) = &cli.digests {
        let line = |(seed, digest): (&u64, &u64)| format!("{seed}\t{digest:016x}\n");
        std::fs::write(file, tally.request_digests.iter().map(line).collect::<String>())
            .with_context(|| file.display().to_string())?;
    }
    for (seed, violations) in &tally.failed {
        println!("seed {seed} fails: {}", violations.join("\n  "));
    }
    let Some((seed, _)) = tally.failed.first_key_value() else { return Ok(ExitCode::SUCCESS) };
    if cli.all {
        return Ok(ExitCode::FAILURE);
    }
    let schedule = generate_schedule(*seed);
    println!("shrinking a schedule of {} actions ...", schedule.actions.len());
    let indexes =
        minimal_failing(&schedule, |fewer| !play(fewer, &StormOptions::default()).violations.is_empty());
    let report = play_with_transcript(&with_only(&schedule, &indexes));
    report.lines.iter().for_each(|line| println!("{line}"));
    let indexes: Vec<_> = indexes.iter().map(ToString::to_string).collect();
    let indexes = if indexes.is_empty() { String::new() } else { format!(" --only {}", indexes.join(",")) };
    println!("replay with: cargo xtask storm --seed {seed}{indexes}");
    Ok(ExitCode::FAILURE)
}

fn progress(tally: &Tally, began: Instant) -> String {
    let (seconds, hours) = (began.elapsed().as_secs_f64(), tally.simulated.as_secs_f64() / 3600.0);
    format!(
        "{} storms, {hours:.1} simulated hours, {} requests in {seconds:.0} s ({:.2} simulated hours a second)",
        tally.storms,
        tally.requests,
        hours / seconds
    )
}
