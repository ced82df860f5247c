//! Repetitions wait a moment for more of their kind, so that a burst of them is one write.
//!
//! A ReplicaSet that makes a hundred pods says so once for each, and from the tenth on it is always the same
//! combined event with a higher count. Nobody reads the counts in between.

use std::time::Duration;

use lru::LruCache;

use super::correlate::{CorrelatedEvent, CountKey};

/// How long a repetition waits.
const GATHERING: Duration = Duration::from_secs(1);

/// The repetitions that wait, each with when its waiting ends. The first to come is the first to go: a later one
/// of its kind takes its place, but makes nobody wait longer. They need no bound: only what the correlator has counted
/// before is a repetition, and no note is taken while one that is due is being written.
pub(super) struct RepetitionCoalescer {
    waiting: LruCache<CountKey, (Duration, CorrelatedEvent)>,
}

impl RepetitionCoalescer {
    /// With nothing that waits.
    pub(super) fn new() -> Self {
        Self { waiting: LruCache::unbounded() }
    }

    /// Lets a repetition wait, in place of an earlier one of its kind.
    pub(super) fn add(&mut self, repetition: CorrelatedEvent, now: Duration) {
        match self.waiting.peek_mut(repetition.counted_as()) {
            Some((_, earlier)) => *earlier = repetition,
            None => {
                self.waiting.put(repetition.counted_as().clone(), (now + GATHERING, repetition));
            }
        }
    }

    /// When the next one has waited long enough.
    pub(super) fn due_at(&self) -> Option<Duration> {
        self.waiting.peek_lru().map(|(_, (due_at, _))| *due_at)
    }

    /// The next one, whether it has waited long enough or not.
    pub(super) fn next(&mut self) -> Option<CorrelatedEvent> {
        self.waiting.pop_lru().map(|(_, (_, repetition))| repetition)
    }
}
