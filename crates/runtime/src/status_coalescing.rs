//! Coalesces status writes per key: the first write after a quiet period is sent immediately, the following
//! ones are spaced at growing intervals of 200 ms to 1 s.
//!
//! A coalesced write (see [`StatusUrgency`]) is computed from the caches by every reconcile of its key. So a
//! write that is not sent is not lost: the key is requeued for the end of the interval, and that reconcile
//! writes the state of then. When a thousand pods become ready in three seconds, this takes a few status
//! writes instead of hundreds.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::Key;
use keleustes_plan::StatusUrgency;
use keleustes_rate::GrowingInterval;

/// How long writes are coalesced after the first of a series.
pub const INTERVAL_FIRST: Duration = Duration::from_millis(200);

/// The longest interval between two writes of a series.
pub const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Below this number of records, no search for obsolete ones is made.
const RECORDS_MIN: usize = 64;

/// The recent status writes of one loop's keys. It has no clock: every call passes the time.
#[derive(Default)]
pub struct StatusCoalescer {
    records: BTreeMap<Key, Record>,
    /// How many records there were after the last search for obsolete ones.
    records_kept: usize,
}

#[derive(Default)]
struct Record {
    /// The interval after the last status write.
    interval: GrowingInterval,
    /// Until when writes are held back: the end of the interval, or longer because of a superseded status.
    held_until: Duration,
    /// Since when a write has been held back.
    held_since: Option<Duration>,
    /// Whether the current reconcile, or the last one, held a write back.
    holds_write: bool,
}

impl StatusCoalescer {
    /// Starts a reconcile of a key, which determines again whether there is a status to write.
    pub fn begin_reconcile(&mut self, key: &Key) {
        if let Some(record) = self.records.get_mut(key) {
            record.holds_write = false;
        }
    }

    /// Whether a status write of this urgency may be sent now.
    pub fn may_write_now(&mut self, key: &Key, urgency: StatusUrgency, now: Duration) -> bool {
        if urgency == StatusUrgency::Immediate {
            return true;
        }
        let record = self.records.entry(key.clone()).or_default();
        let mut from = record.held_until;
        if urgency == StatusUrgency::Superseded {
            from = record.held_since.unwrap_or(now) + INTERVAL_MAX;
            // The next reconcile may compute a status that a further write is about to change.
            record.held_until = record.held_until.max((now + INTERVAL_FIRST).min(from));
        }
        if now < from {
            record.held_since.get_or_insert(now);
            record.holds_write = true;
        }
        now >= from
    }

    /// Records that a status write was sent.
    pub fn record_write(&mut self, key: &Key, now: Duration) {
        let record = self.records.entry(key.clone()).or_default();
        record.interval.start(now, INTERVAL_FIRST, INTERVAL_MAX);
        record.held_until = record.interval.ends_at();
        (record.held_since, record.holds_write) = (None, false);
        self.drop_obsolete(now);
    }

    /// Ends a reconcile and returns after how long the key must be requeued because a write was held back.
    pub fn end_reconcile(&mut self, key: &Key, now: Duration) -> Option<Duration> {
        let record = self.records.get_mut(key)?;
        if !record.holds_write {
            record.held_since = None;
            return None;
        }
        Some(record.held_until.saturating_sub(now))
    }

    /// Until when a status write of a key is held back; `None` if none is.
    #[must_use]
    pub fn held_until(&self, key: &Key) -> Option<Duration> {
        self.records.get(key).filter(|record| record.holds_write).map(|record| record.held_until)
    }

    /// Keys that are never enqueued again would otherwise stay for ever.
    fn drop_obsolete(&mut self, now: Duration) {
        if self.records.len() > (2 * self.records_kept).max(RECORDS_MIN) {
            let is_in_series = |record: &Record| now < record.held_until + INTERVAL_MAX;
            self.records.retain(|_, record| record.holds_write || is_in_series(record));
            self.records_kept = self.records.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One key, with a clock that the test advances.
    struct Item {
        coalescer: StatusCoalescer,
        key: Key,
        now: Duration,
    }

    impl Item {
        fn new() -> Self {
            // Not at time zero, as in a running process.
            Self {
                coalescer: StatusCoalescer::default(),
                key: Key::namespaced("shop", "web"),
                now: 1000 * INTERVAL_MAX,
            }
        }

        /// A reconcile that wants to write its status, this long after the previous one. Returns when the key
        /// must be requeued if the write is held back.
        fn reconcile(&mut self, after: Duration, urgency: Option<StatusUrgency>) -> Option<Duration> {
            self.now += after;
            self.coalescer.begin_reconcile(&self.key);
            let sent =
                urgency.is_some_and(|urgency| self.coalescer.may_write_now(&self.key, urgency, self.now));
            if sent {
                self.coalescer.record_write(&self.key, self.now);
            }
            let requeue_after = self.coalescer.end_reconcile(&self.key, self.now);
            assert!(!sent || requeue_after.is_none(), "a sent write is not held back");
            requeue_after
        }

        /// Wants to write a new status every 10 ms for this long. Returns the times between the writes that
        /// are sent.
        fn reconcile_every_10_ms(&mut self, duration: Duration, urgency: StatusUrgency) -> Vec<u128> {
            let (mut intervals, end, mut last) = (Vec::new(), self.now + duration, self.now);
            while self.now < end {
                if self.reconcile(10 * MS, Some(urgency)).is_none() {
                    intervals.push((self.now - last).as_millis());
                    last = self.now;
                }
            }
            intervals
        }
    }

    #[test]
    fn first_status_write_is_immediate_and_later_ones_are_spaced_at_growing_intervals() {
        let intervals = Item::new().reconcile_every_10_ms(Duration::from_secs(5), StatusUrgency::Coalesce);
        assert_eq!(intervals, [10, 200, 400, 800, 1000, 1000, 1000]);
    }

    #[test]
    fn immediate_writes_are_never_held_back() {
        let intervals = Item::new().reconcile_every_10_ms(50 * MS, StatusUrgency::Immediate);
        assert_eq!(intervals, [10; 5]);
    }

    #[test]
    fn key_that_was_quiet_writes_immediately_again() {
        let mut item = Item::new();
        item.reconcile_every_10_ms(Duration::from_secs(5), StatusUrgency::Coalesce);
        assert_eq!(item.reconcile(2 * INTERVAL_MAX, Some(StatusUrgency::Coalesce)), None);
        assert_eq!(item.reconcile(10 * MS, Some(StatusUrgency::Coalesce)), Some(INTERVAL_FIRST - 10 * MS));
    }

    #[test]
    fn status_that_changes_rarely_is_written_each_time() {
        let mut item = Item::new();
        for _ in 0..10 {
            assert_eq!(item.reconcile(2 * INTERVAL_FIRST, Some(StatusUrgency::Coalesce)), None);
        }
    }

    #[test]
    fn held_back_write_is_sent_at_the_end_of_the_interval() {
        let mut item = Item::new();
        assert_eq!(item.reconcile(MS, Some(StatusUrgency::Coalesce)), None);
        let wait = item.reconcile(MS, Some(StatusUrgency::Coalesce)).unwrap();
        // Other reconciles in between change nothing about that time.
        assert_eq!(item.reconcile(MS, Some(StatusUrgency::Coalesce)), Some(wait - MS));
        assert_eq!(item.reconcile(wait - MS, Some(StatusUrgency::Coalesce)), None);
    }

    #[test]
    fn write_that_is_no_longer_needed_is_not_held_back() {
        let mut item = Item::new();
        item.reconcile(MS, Some(StatusUrgency::Coalesce));
        assert!(item.reconcile(MS, Some(StatusUrgency::Coalesce)).is_some());
        assert_eq!(item.reconcile(MS, None), None);
        // Nor does it count as held back since then.
        item.reconcile(INTERVAL_MAX, Some(StatusUrgency::Superseded));
        assert!(item.reconcile(INTERVAL_MAX - MS, Some(StatusUrgency::Superseded)).is_some());
    }

    #[test]
    fn superseded_status_is_held_back_for_at_most_a_second() {
        let mut item = Item::new();
        assert_eq!(item.reconcile(MS, Some(StatusUrgency::Superseded)), Some(INTERVAL_FIRST));
        assert_eq!(
            item.reconcile(MS, Some(StatusUrgency::Coalesce)),
            Some(INTERVAL_FIRST - MS),
            "the next write is held back, too"
        );
        assert_eq!(item.reconcile(INTERVAL_FIRST - MS, Some(StatusUrgency::Coalesce)), None);
        let intervals = Item::new().reconcile_every_10_ms(Duration::from_secs(5), StatusUrgency::Superseded);
        assert_eq!(
            intervals,
            [1010, 1010, 1010, 1010],
            "a status that is always superseded is written every second"
        );
    }

    #[test]
    fn records_of_quiet_keys_are_dropped() {
        let mut coalescer = StatusCoalescer::default();
        for n in 0..10_000_u32 {
            coalescer.record_write(&Key::cluster(format!("n{n}")), n * INTERVAL_MAX);
        }
        assert!(coalescer.records.len() <= RECORDS_MIN + 1, "{}", coalescer.records.len());
    }
}
