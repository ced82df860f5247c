//! `cargo xtask judge-cron`: compares the next times of generated cron schedules with those of robfig/cron.

use std::process::ExitCode;

use clap::Parser;
use keleustes_judge::cron::{self, Question};

/// Asks robfig/cron, the library of the original, for the next times of generated schedules, and compares them.
#[derive(Parser)]
#[command(name = "cargo xtask judge-cron", bin_name = "cargo xtask judge-cron")]
struct Args {
    /// How many schedules to compare, each at ten instants
    #[arg(long, default_value_t = 4000)]
    schedules: usize,
    /// The seed of the schedules
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to print
    #[arg(long, default_value_t = 20)]
    shown: usize,
    /// Print the answers of robfig/cron as test vectors instead
    #[arg(long)]
    vectors: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let questions = cron::generate(args.seed, args.schedules);
    let original = cron::ask_original(&questions)?;
    if args.vectors {
        questions.iter().zip(&original).flat_map(vectors).for_each(|line| println!("{line}"));
        return Ok(ExitCode::SUCCESS);
    }
    let report = cron::compare(&questions, &original);
    report.differences.iter().take(args.shown).for_each(|difference| println!("{difference}"));
    println!(
        "judge-cron: {} schedules, {} refused by both, {} times compared, {} differ",
        questions.len(),
        report.refused,
        report.compared,
        report.differences.len()
    );
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line per instant: the schedule as JSON, the instant, and the answer.
fn vectors((question, answer): (&Question, &cron::Answer)) -> Vec<String> {
    let schedule = serde_json::Value::from(question.schedule.as_str());
    let line = |after: i64, answer: String| format!("{schedule}\t{after}\t{answer}");
    match answer {
        Err(error) => vec![line(0, serde_json::Value::from(error.as_str()).to_string())],
        Ok(next) => {
            let text = |next: &Option<i64>| next.map_or("never".to_owned(), |next| next.to_string());
            question.after.iter().zip(next).take(2).map(|(after, next)| line(*after, text(next))).collect()
        }
    }
}
