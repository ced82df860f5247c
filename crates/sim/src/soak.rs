//! Many seeds on all cores, until one fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::script::drawn;
use crate::storm::{Report, Stage, play};

/// What came of many storms.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many storms were played.
    pub storms: u64,
    /// How much time passed in all simulated worlds.
    pub simulated: Duration,
    /// How many requests reached a server.
    pub requests: u64,
    /// The seeds that failed, and what did not hold, in order.
    pub failed: BTreeMap<u64, Vec<String>>,
    /// The digest of the requests of each seed.
    pub request_digests: BTreeMap<u64, u64>,
}

/// Seeds to play, and how.
pub struct Soak {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// On so many threads.
    pub threads: usize,
    /// Whether each is played twice, to compare.
    pub twice: bool,
    /// Whether all are played, although one has failed.
    pub all: bool,
}

impl Soak {
    /// Plays until all are played or one fails. Whoever wants to know hears how far it has come.
    pub fn run(&self, stage: &Stage, heard: impl Fn(&Tally) + Sync) -> Tally {
        let (next, tally) = (AtomicU64::new(self.first), Mutex::new(Tally::default()));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.first + self.seeds || (!self.all && !tally.lock().failed.is_empty()) {
                            return;
                        }
                        let report = self.one(seed, stage);
                        let mut tally = tally.lock();
                        tally.storms += 1;
                        tally.simulated += report.simulated;
                        tally.requests += report.requests;
                        tally.request_digests.insert(seed, report.request_digest);
                        if !report.broken.is_empty() {
                            tally.failed.insert(seed, report.broken);
                        }
                        heard(&tally);
                    }
                });
            }
        });
        tally.into_inner()
    }

    fn one(&self, seed: u64, stage: &Stage) -> Report {
        let schedule = drawn(seed);
        let mut report = play(&schedule, stage);
        if self.twice {
            let again = play(&schedule, stage);
            let same = (report.digest, report.request_digest, report.simulated, &report.lines)
                == (again.digest, again.request_digest, again.simulated, &again.lines);
            if !same {
                report.broken.push("two runs of one seed differ".to_owned());
            }
        }
        report
    }
}
