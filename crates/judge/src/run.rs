//! Many sequences are tried, several at once, and what came of them is told.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;

use crate::accepted::Accepted;
use crate::compare::Difference;
use crate::generate::Generator;
use crate::sequence::{Sequence, Step};
use crate::trial::{Servers, Verdict};

/// How often a failing sequence is tried with a step less.
const SHRINKS_MAX: usize = 40;

/// What to try.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where sequences grow from.
    pub seed: u64,
    /// Their numbers.
    pub numbers: std::ops::Range<u64>,
    /// Only kinds whose name contains one of these.
    pub only: Vec<String>,
    /// How many at once.
    pub at_once: usize,
    /// Tells the namespaces of this run from those of others.
    pub mark: String,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Sequences tried.
    pub sequences: u64,
    /// Requests made of each server.
    pub requests: u64,
    /// Watch events compared.
    pub events: u64,
    /// Differences that are listed.
    pub accepted: u64,
    /// Sequences that the real server did not survive whole: it panicked over a request.
    pub panicked: u64,
    /// Sequences with a difference that is not.
    pub failures: Vec<Failure>,
    /// How long it took.
    pub took: Duration,
}

/// A sequence that the servers do not agree on.
#[derive(Debug)]
pub struct Failure {
    /// The sequence, as short as it could be made.
    pub sequence: Sequence,
    /// The first differences that are not listed.
    pub differences: Vec<Difference>,
}

/// Tries all sequences of a plan.
///
/// # Errors
/// If a server does not answer.
pub async fn run(servers: &Servers, plan: &Plan, accepted: &Mutex<Accepted>) -> anyhow::Result<Report> {
    let began = Instant::now();
    let generator = Generator::new(plan.seed, &plan.only);
    let mut report = Report::default();
    let total = plan.numbers.end - plan.numbers.start;
    let trials = futures::stream::iter(plan.numbers.clone()).map(|number| {
        let sequence = generator.sequence(number);
        let namespace = format!("j{}-{number}", plan.mark);
        async move {
            let verdict = judge(servers, &sequence, &namespace, accepted).await?;
            let (listed, unlisted) = sorted(&verdict, accepted);
            let failure = match unlisted.is_empty() {
                true => None,
                false => Some(shrunk(servers, sequence, unlisted, &namespace, accepted).await?),
            };
            anyhow::Ok((verdict, listed, failure))
        }
    });
    let mut trials = std::pin::pin!(trials.buffer_unordered(plan.at_once));
    let mut told = Instant::now();
    while let Some(trial) = trials.next().await {
        let (verdict, listed, failure) = trial?;
        report.sequences += 1;
        report.requests += verdict.requests;
        report.events += verdict.events;
        report.accepted += listed;
        report.panicked += u64::from(verdict.panicked);
        report.failures.extend(failure);
        if told.elapsed() > Duration::from_secs(2) {
            told = Instant::now();
            progress(&report, total, began.elapsed());
        }
    }
    report.took = began.elapsed();
    report.failures.sort_by_key(|failure| failure.sequence.number);
    Ok(report)
}

fn progress(report: &Report, total: u64, took: Duration) {
    eprintln!(
        "judge: {} of {total} sequences, {} requests, {} differing, {} s",
        report.sequences,
        report.requests,
        report.failures.len(),
        took.as_secs()
    );
}

async fn judge(
    servers: &Servers,
    sequence: &Sequence,
    namespace: &str,
    accepted: &Mutex<Accepted>,
) -> anyhow::Result<Verdict> {
    let mut listed = |difference: &Difference| is_listed(accepted, difference);
    servers.try_sequence(sequence, namespace, &mut listed).await
}

fn is_listed(accepted: &Mutex<Accepted>, difference: &Difference) -> bool {
    accepted.lock().unwrap_or_else(PoisonError::into_inner).covers(difference)
}

/// How many differences are listed, and those that are not.
fn sorted(verdict: &Verdict, accepted: &Mutex<Accepted>) -> (u64, Vec<Difference>) {
    let (listed, unlisted): (Vec<&Difference>, Vec<&Difference>) =
        verdict.differences.iter().partition(|difference| is_listed(accepted, difference));
    (listed.len() as u64, unlisted.into_iter().cloned().collect())
}

/// Takes steps out for as long as the servers differ in the same place.
async fn shrunk(
    servers: &Servers,
    sequence: Sequence,
    differences: Vec<Difference>,
    namespace: &str,
    accepted: &Mutex<Accepted>,
) -> anyhow::Result<Failure> {
    let mut failure = Failure { sequence, differences };
    let Some(item) = failure.differences.first().map(|difference| difference.item.clone()) else {
        return Ok(failure);
    };
    let last = failure.differences[0].step;
    if failure.differences[0].item.split(' ').nth(2) != Some("events") && !item.starts_with("watch ") {
        failure.sequence.steps.retain(|step| step.id <= last);
    }
    let ids: Vec<usize> = failure.sequence.steps.iter().map(|step| step.id).rev().collect();
    for (attempt, id) in ids.into_iter().filter(|id| *id != last && *id != 0).take(SHRINKS_MAX).enumerate() {
        let mut fewer = failure.sequence.clone();
        fewer.steps.retain(|step| step.id != id);
        let verdict = judge(servers, &fewer, &format!("{namespace}-{attempt}"), accepted).await?;
        let (_, unlisted) = sorted(&verdict, accepted);
        if unlisted.first().is_some_and(|difference| difference.item == item) {
            failure = Failure { sequence: fewer, differences: unlisted };
        }
    }
    Ok(failure)
}

impl Report {
    /// Prints what the servers do not agree on; so many sequences in full.
    pub fn print_failures(&self, seed: u64, shown_max: usize) {
        let mut places: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for failure in &self.failures {
            for difference in &failure.differences {
                let place = places.entry(&difference.item).or_insert((0, failure.sequence.number));
                place.0 += 1;
            }
        }
        for failure in self.failures.iter().take(shown_max) {
            let number = failure.sequence.number;
            println!("\nsequence {number}; again: cargo xtask judge --seed {seed} --replay {number}");
            failure.sequence.steps.iter().map(Step::to_string).for_each(|step| println!("  {step}"));
            failure.differences.iter().for_each(|difference| println!("  {difference}"));
        }
        if !places.is_empty() {
            println!("\nunlisted differences (how often, where, and in which sequence first):");
        }
        for (place, (count, number)) in places {
            println!("  {count:>4}  {place}  ({number})");
        }
    }
}
