//! Runs many sequences in parallel and reports the results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;

use crate::accepted::Accepted;
use crate::compare::Difference;
use crate::generate::Generator;
use crate::sequence::{Sequence, Step, TrialContext};
use crate::trial::{Servers, TrialOutcome};

/// How many trials the shrinking of a failing sequence may take.
const SHRINK_TRIALS_MAX: usize = 40;

/// What to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The seed of the sequences.
    pub seed: u64,
    /// The numbers of the sequences.
    pub numbers: std::ops::Range<u64>,
    /// Only kinds whose name contains one of these.
    pub only: Vec<String>,
    /// How many sequences run in parallel.
    pub parallel: usize,
    /// Distinguishes the namespaces of this run from those of others.
    pub run_id: String,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of sequences.
    pub sequences: u64,
    /// The number of requests to each server.
    pub requests: u64,
    /// The number of compared watch events.
    pub events: u64,
    /// The number of accepted differences.
    pub accepted: u64,
    /// The number of sequences in which the real server panicked.
    pub panicked: u64,
    /// Sequences with differences that did not occur when they were repeated, each with its first
    /// difference.
    pub differed_once: Vec<(u64, Difference)>,
    /// Sequences with unlisted differences in both trials.
    pub failures: Vec<Failure>,
    /// How long it took.
    pub took: Duration,
}

/// A sequence with unlisted differences.
#[derive(Debug)]
pub struct Failure {
    /// The shrunk sequence.
    pub sequence: Sequence,
    /// The first unlisted differences.
    pub differences: Vec<Difference>,
}

/// Runs all sequences.
///
/// # Errors
/// If a server does not answer.
pub async fn run(
    servers: &Servers,
    options: &RunOptions,
    accepted: &Mutex<Accepted>,
) -> anyhow::Result<Report> {
    let began = Instant::now();
    let generator = Generator::new(options.seed, &options.only);
    let judge = Judge { servers, accepted, run_id: &options.run_id, trials: AtomicU16::new(0) };
    let mut report = Report::default();
    let total = options.numbers.end - options.numbers.start;
    let results = futures::stream::iter(options.numbers.clone())
        .map(|number| judge.run_sequence(generator.sequence(number)));
    let mut results = std::pin::pin!(results.buffer_unordered(options.parallel));
    let mut reported_at = Instant::now();
    while let Some(result) = results.next().await {
        report.add(result?);
        if reported_at.elapsed() > Duration::from_secs(2) {
            reported_at = Instant::now();
            progress(&report, total, began.elapsed());
        }
    }
    report.took = began.elapsed();
    report.failures.sort_by_key(|failure| failure.sequence.number);
    report.differed_once.sort_by_key(|(number, _)| *number);
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

/// The result of one sequence.
struct SequenceResult {
    number: u64,
    outcome: TrialOutcome,
    /// How many differences are accepted.
    listed: u64,
    finding: Finding,
}

enum Finding {
    Agreed,
    /// The servers differed, but not when the sequence was repeated.
    DifferedOnce(Difference),
    Differ(Failure),
}

/// Runs sequences on the servers, each trial in its own namespace.
struct Judge<'a> {
    servers: &'a Servers,
    accepted: &'a Mutex<Accepted>,
    run_id: &'a str,
    trials: AtomicU16,
}

impl Judge<'_> {
    async fn run_sequence(&self, sequence: Sequence) -> anyhow::Result<SequenceResult> {
        let (outcome, unlisted) = self.trial(&sequence).await?;
        let number = sequence.number;
        let listed = (outcome.differences.len() - unlisted.len()) as u64;
        let finding =
            if unlisted.is_empty() { Finding::Agreed } else { self.repeat(sequence, unlisted).await? };
        Ok(SequenceResult { number, outcome, listed, finding })
    }

    /// Repeats a sequence that differed: a random difference does not occur again.
    async fn repeat(&self, sequence: Sequence, mut differences: Vec<Difference>) -> anyhow::Result<Finding> {
        let (_, unlisted) = self.trial(&sequence).await?;
        let differs_again =
            |difference: &Difference| unlisted.iter().any(|second| second.item == difference.item);
        if !differences.iter().any(differs_again) {
            return Ok(differences.into_iter().next().map_or(Finding::Agreed, Finding::DifferedOnce));
        }
        differences.retain(differs_again);
        self.shrunk(Failure { sequence, differences }).await.map(Finding::Differ)
    }

    /// The outcome of the sequence, and the unlisted differences.
    async fn trial(&self, sequence: &Sequence) -> anyhow::Result<(TrialOutcome, Vec<Difference>)> {
        let number = self.trials.fetch_add(1, Ordering::Relaxed);
        let place = TrialContext::new(format!("j{}-{}-{number}", self.run_id, sequence.number), number);
        let mut listed = |difference: &Difference| self.is_listed(difference);
        let outcome = self.servers.try_sequence(sequence, &place, &mut listed).await?;
        let unlisted = outcome.differences.iter().filter(|difference| !self.is_listed(difference));
        let unlisted = unlisted.cloned().collect();
        Ok((outcome, unlisted))
    }

    fn is_listed(&self, difference: &Difference) -> bool {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).covers(difference)
    }

    /// Removes steps as long as the servers differ in the same place.
    async fn shrunk(&self, mut failure: Failure) -> anyhow::Result<Failure> {
        let Some(Difference { item, step: last, .. }) = failure.differences.first().cloned() else {
            return Ok(failure);
        };
        if !item.starts_with("watch ") {
            failure.sequence.steps.retain(|step| step.id <= last);
        }
        let ids: Vec<usize> = failure.sequence.steps.iter().map(|step| step.id).rev().collect();
        for id in ids.into_iter().filter(|id| *id != last && *id != 0).take(SHRINK_TRIALS_MAX) {
            let mut shorter = failure.sequence.clone();
            shorter.steps.retain(|step| step.id != id);
            let (_, unlisted) = self.trial(&shorter).await?;
            if unlisted.first().is_some_and(|difference| difference.item == item) {
                failure = Failure { sequence: shorter, differences: unlisted };
            }
        }
        Ok(failure)
    }
}

impl Report {
    fn add(&mut self, result: SequenceResult) {
        self.sequences += 1;
        self.requests += result.outcome.requests;
        self.events += result.outcome.events;
        self.accepted += result.listed;
        self.panicked += u64::from(result.outcome.panicked);
        match result.finding {
            Finding::Agreed => {}
            Finding::DifferedOnce(difference) => self.differed_once.push((result.number, difference)),
            Finding::Differ(failure) => self.failures.push(failure),
        }
    }

    /// Prints the unlisted differences, and this number of sequences in full.
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
            println!("\nsequence {number}; repeat with: cargo xtask judge --seed {seed} --replay {number}");
            failure.sequence.steps.iter().map(Step::to_string).for_each(|step| println!("  {step}"));
            failure.differences.iter().for_each(|difference| println!("  {difference}"));
        }
        if !places.is_empty() {
            println!("\nunlisted differences (count, place, first sequence):");
        }
        for (place, (count, number)) in places {
            println!("  {count:>4}  {place}  ({number})");
        }
    }
}
