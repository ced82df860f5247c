//! Coalesces repetitions: each waits up to a second for further ones, so that a burst is one write.
//!
//! A ReplicaSet that creates a hundred pods records one event for each, and from the tenth on they are all
//! the same aggregated event with a higher count. The counts in between need not be written.

use std::time::Duration;

use lru::LruCache;

use super::correlate::{CorrelatedEvent, CountKey};

/// How long a repetition waits.
const COALESCE_FOR: Duration = Duration::from_secs(1);

/// The waiting repetitions, each with its due time, in order of arrival. A later repetition of the same event
/// replaces the waiting one, but does not change its due time. No bound is needed: only what the correlator
/// has counted before is a repetition, and no event is taken from the queue while a due one is being written.
pub(super) struct RepetitionCoalescer {
    waiting: LruCache<CountKey, (Duration, CorrelatedEvent)>,
}

impl RepetitionCoalescer {
    /// Without repetitions.
    pub(super) fn new() -> Self {
        Self { waiting: LruCache::unbounded() }
    }

    /// Adds a repetition, in place of a waiting one of the same event.
    pub(super) fn add(&mut self, repetition: CorrelatedEvent, now: Duration) {
        match self.waiting.peek_mut(repetition.counted_as()) {
            Some((_, earlier)) => *earlier = repetition,
            None => {
                self.waiting.put(repetition.counted_as().clone(), (now + COALESCE_FOR, repetition));
            }
        }
    }

    /// When the next one is due.
    pub(super) fn due_at(&self) -> Option<Duration> {
        self.waiting.peek_lru().map(|(_, (due_at, _))| *due_at)
    }

    /// The next one, whether it is due or not.
    pub(super) fn next(&mut self) -> Option<CorrelatedEvent> {
        self.waiting.pop_lru().map(|(_, (_, repetition))| repetition)
    }
}
