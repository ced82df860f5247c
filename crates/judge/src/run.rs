//! Many sequences are tried, several at once, and what came of them is told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;

use crate::accepted::Accepted;
use crate::compare::Difference;
use crate::generate::Generator;
use crate::sequence::{Place, Sequence, Step};
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
    /// The numbers of sequences with differences that were not there when they were played again, and the first of these.
    pub once: Vec<(u64, Difference)>,
    /// Sequences with a difference that is not listed, each time they were played.
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
    let court = Court { servers, accepted, mark: &plan.mark, trials: AtomicU16::new(0) };
    let mut report = Report::default();
    let total = plan.numbers.end - plan.numbers.start;
    let hearings =
        futures::stream::iter(plan.numbers.clone()).map(|number| court.hear(generator.sequence(number)));
    let mut hearings = std::pin::pin!(hearings.buffer_unordered(plan.at_once));
    let mut told = Instant::now();
    while let Some(heard) = hearings.next().await {
        report.add(heard?);
        if told.elapsed() > Duration::from_secs(2) {
            told = Instant::now();
            progress(&report, total, began.elapsed());
        }
    }
    report.took = began.elapsed();
    report.failures.sort_by_key(|failure| failure.sequence.number);
    report.once.sort_by_key(|(number, _)| *number);
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

/// What came of one sequence.
struct Heard {
    number: u64,
    verdict: Verdict,
    /// How many differences are listed.
    listed: u64,
    finding: Finding,
}

enum Finding {
    Agreed,
    /// The servers differed, and not again when they were asked again.
    DifferedOnce(Difference),
    Differ(Failure),
}

/// Puts sequences to the servers, each trial in a place of its own.
struct Court<'a> {
    servers: &'a Servers,
    accepted: &'a Mutex<Accepted>,
    mark: &'a str,
    trials: AtomicU16,
}

impl Court<'_> {
    async fn hear(&self, sequence: Sequence) -> anyhow::Result<Heard> {
        let (verdict, unlisted) = self.judge(&sequence).await?;
        let number = sequence.number;
        let listed = (verdict.differences.len() - unlisted.len()) as u64;
        let finding =
            if unlisted.is_empty() { Finding::Agreed } else { self.again(sequence, unlisted).await? };
        Ok(Heard { number, verdict, listed, finding })
    }

    /// Plays a sequence that differed once more: what was chance does not come back.
    async fn again(&self, sequence: Sequence, mut differences: Vec<Difference>) -> anyhow::Result<Finding> {
        let (_, unlisted) = self.judge(&sequence).await?;
        let differs_again =
            |difference: &Difference| unlisted.iter().any(|again| again.item == difference.item);
        if !differences.iter().any(differs_again) {
            return Ok(differences.into_iter().next().map_or(Finding::Agreed, Finding::DifferedOnce));
        }
        differences.retain(differs_again);
        self.shrunk(Failure { sequence, differences }).await.map(Finding::Differ)
    }

    /// What came of the sequence, and the differences that are not listed.
    async fn judge(&self, sequence: &Sequence) -> anyhow::Result<(Verdict, Vec<Difference>)> {
        let trial = self.trials.fetch_add(1, Ordering::Relaxed);
        let place = Place::new(format!("j{}-{}-{trial}", self.mark, sequence.number), trial);
        let mut listed = |difference: &Difference| self.is_listed(difference);
        let verdict = self.servers.try_sequence(sequence, &place, &mut listed).await?;
        let unlisted = verdict.differences.iter().filter(|difference| !self.is_listed(difference));
        let unlisted = unlisted.cloned().collect();
        Ok((verdict, unlisted))
    }

    fn is_listed(&self, difference: &Difference) -> bool {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).covers(difference)
    }

    /// Takes steps out for as long as the servers differ in the same place.
    async fn shrunk(&self, mut failure: Failure) -> anyhow::Result<Failure> {
        let Some(Difference { item, step: last, .. }) = failure.differences.first().cloned() else {
            return Ok(failure);
        };
        if !item.starts_with("watch ") {
            failure.sequence.steps.retain(|step| step.id <= last);
        }
        let ids: Vec<usize> = failure.sequence.steps.iter().map(|step| step.id).rev().collect();
        for id in ids.into_iter().filter(|id| *id != last && *id != 0).take(SHRINKS_MAX) {
            let mut fewer = failure.sequence.clone();
            fewer.steps.retain(|step| step.id != id);
            let (_, unlisted) = self.judge(&fewer).await?;
            if unlisted.first().is_some_and(|difference| difference.item == item) {
                failure = Failure { sequence: fewer, differences: unlisted };
            }
        }
        Ok(failure)
    }
}

impl Report {
    fn add(&mut self, heard: Heard) {
        self.sequences += 1;
        self.requests += heard.verdict.requests;
        self.events += heard.verdict.events;
        self.accepted += heard.listed;
        self.panicked += u64::from(heard.verdict.panicked);
        match heard.finding {
            Finding::Agreed => {}
            Finding::DifferedOnce(difference) => self.once.push((heard.number, difference)),
            Finding::Differ(failure) => self.failures.push(failure),
        }
    }

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
