//! `cargo xtask storm`: plays storms from seeds, and cuts down the first that fails.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser;
use keleustes_sim::deeds::Schedule;
use keleustes_sim::mutants;
use keleustes_sim::script::drawn;
use keleustes_sim::shrink::{needed, only};
use keleustes_sim::soak::{Soak, Tally};
use keleustes_sim::storm::{Report, Stage, play};
use parking_lot::Mutex;

/// A fifth of a storm is spent on memory, most of it on small pieces: this one is quicker with those.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Plays storms: whole clusters with faults under virtual time, each from one seed.
#[derive(Parser)]
#[command(name = "cargo xtask storm", bin_name = "cargo xtask storm")]
struct Cli {
    /// How many seeds to play, from the first on
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many to play at once; one on each core if not said
    #[arg(long)]
    threads: Option<usize>,
    /// Play each seed twice and compare
    #[arg(long)]
    twice: bool,
    /// Play all seeds, and list those that fail
    #[arg(long)]
    all: bool,
    /// Write the digest of each seed's requests (method, path, query, body, in order) to this file
    #[arg(long)]
    digests: Option<std::path::PathBuf>,
    /// Play this one seed and print what happens
    #[arg(long)]
    seed: Option<u64>,
    /// Play only these deeds of the seed's schedule, by their numbers
    #[arg(long, value_delimiter = ',', requires = "seed")]
    only: Option<Vec<usize>>,
    /// Play a schedule that was kept in a file, and print what happens
    #[arg(long)]
    replay: Option<std::path::PathBuf>,
    /// Take one watch or one kind of caution away from one controller at a time, and list what no seed notices
    #[arg(long)]
    mutants: bool,
    /// Only mutants whose description contains this
    #[arg(long, default_value = "", requires = "mutants")]
    only_mutants: String,
    /// Keep the schedule of the seed in a file
    #[arg(long, requires = "seed")]
    save: Option<std::path::PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let schedule = match (&cli.seed, &cli.replay) {
        (Some(seed), _) => Some(drawn(*seed)),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            Some(serde_json::from_str(&text).with_context(|| file.display().to_string())?)
        }
        (None, None) => None,
    };
    let Some(mut schedule) = schedule else {
        return if cli.mutants { Ok(survivors(&cli)) } else { soak(&cli) };
    };
    if let Some(places) = &cli.only {
        schedule = only(&schedule, places);
    }
    if let Some(file) = &cli.save {
        std::fs::write(file, serde_json::to_string_pretty(&schedule)? + "\n")?;
    }
    let report = told(&schedule);
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("{:.0} s simulated, {} requests", report.simulated.as_secs_f64(), report.requests);
    Ok(if report.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn told(schedule: &Schedule) -> Report {
    play(schedule, &Stage { transcript: true, ..Stage::default() })
}

fn many(cli: &Cli) -> Soak {
    let threads = cli.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    Soak { first: cli.first, seeds: cli.seeds, threads, twice: cli.twice, all: cli.all }
}

/// Plays every mutant until a seed notices it.
fn survivors(cli: &Cli) -> ExitCode {
    let (soak, stage) = (many(cli), Stage::default());
    let mutants = mutants::all(&stage);
    let (mut survive, mut unused) = (0, 0);
    for mutant in mutants.iter().filter(|mutant| mutant.to_string().contains(&cli.only_mutants)) {
        let tally = soak.run(&mutant.on(&stage), |_| {});
        match tally.failed.first_key_value() {
            Some((seed, broken)) => {
                println!("caught    {mutant}: seed {seed}: {}", broken.first().map_or("", String::as_str));
            }
            None if !mutant.is_used() => unused += 1,
            None => {
                survive += 1;
                println!("SURVIVES  {mutant}");
            }
        }
    }
    println!("{survive} of {} survive {} seeds", mutants.len() - unused, cli.seeds);
    if survive == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn soak(cli: &Cli) -> anyhow::Result<ExitCode> {
    let soak = many(cli);
    let began = Instant::now();
    let last = Mutex::new(began);
    // A terminal sees it move; a log gets a line from time to time.
    let every = if std::io::stderr().is_terminal() { 1 } else { 30 };
    let tally = soak.run(&Stage::default(), |tally| {
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
    for (seed, broken) in &tally.failed {
        println!("seed {seed} fails: {}", broken.join("\n  "));
    }
    let Some((seed, _)) = tally.failed.first_key_value() else { return Ok(ExitCode::SUCCESS) };
    if cli.all {
        return Ok(ExitCode::FAILURE);
    }
    let schedule = drawn(*seed);
    println!("leaving out what is not needed of {} deeds ...", schedule.deeds.len());
    let places = needed(&schedule, |fewer| !play(fewer, &Stage::default()).broken.is_empty());
    let report = told(&only(&schedule, &places));
    report.lines.iter().for_each(|line| println!("{line}"));
    let places: Vec<_> = places.iter().map(ToString::to_string).collect();
    let places = if places.is_empty() { String::new() } else { format!(" --only {}", places.join(",")) };
    println!("replay with: cargo xtask storm --seed {seed}{places}");
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
