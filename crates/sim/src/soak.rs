//! Runs many seeds on all cores, until one fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::generate::generate_schedule;
use crate::storm::{Report, StormOptions, play};

/// The results of many storms.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many storms were run.
    pub storms: u64,
    /// The sum of simulated time.
    pub simulated: Duration,
    /// How many requests reached an API server.
    pub requests: u64,
    /// The seeds that failed, with their violations.
    pub failed: BTreeMap<u64, Vec<String>>,
    /// The digest of the requests of each seed.
    pub request_digests: BTreeMap<u64, u64>,
}

/// Seeds to run, and how.
pub struct Soak {
    /// The first seed.
    pub first: u64,
    /// How many seeds.
    pub seeds: u64,
    /// How many threads.
    pub threads: usize,
    /// Whether each seed is run twice and compared.
    pub twice: bool,
    /// Whether to go on after a failure.
    pub all: bool,
}

impl Soak {
    /// Runs until all seeds have run or one fails, and reports progress after each storm.
    pub fn run(&self, options: &StormOptions, on_progress: impl Fn(&Tally) + Sync) -> Tally {
        let (next, tally) = (AtomicU64::new(self.first), Mutex::new(Tally::default()));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.first + self.seeds || (!self.all && !tally.lock().failed.is_empty()) {
                            return;
                        }
                        let report = self.play_seed(seed, options);
                        let mut tally = tally.lock();
                        tally.storms += 1;
                        tally.simulated += report.simulated;
                        tally.requests += report.requests;
                        tally.request_digests.insert(seed, report.request_digest);
                        if !report.violations.is_empty() {
                            tally.failed.insert(seed, report.violations);
                        }
                        on_progress(&tally);
                    }
                });
            }
        });
        tally.into_inner()
    }

    fn play_seed(&self, seed: u64, options: &StormOptions) -> Report {
        let schedule = generate_schedule(seed);
        let mut report = play(&schedule, options);
        if self.twice {
            let again = play(&schedule, options);
            let same = (report.digest, report.request_digest, report.simulated, &report.lines)
                == (again.digest, again.request_digest, again.simulated, &again.lines);
            if !same {
                report.violations.push("two runs of one seed differ".to_owned());
            }
        }
        report
    }
}
