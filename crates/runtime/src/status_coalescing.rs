//! Lets what an item tells gather: the first telling after a quiet time is sent at once, those that follow are
//! spaced, ever more widely while there is no end to them.
//!
//! A write that only tells (see [`StatusUrgency`]) is made anew from the caches by every turn of its item. So one that is
//! not sent is not lost: the item is looked at again when the time has come, and tells what holds then. Of a
//! thousand pods that become ready in three seconds, people and other controllers hear in a few writes instead of
//! hundreds.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::Key;
use keleustes_plan::StatusUrgency;

/// How long tellings gather after the first of a row.
pub const INTERVAL_FIRST: Duration = Duration::from_millis(200);

/// How long they gather at most, however long the row is.
pub const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// With fewer records than this, nobody looks for those that are no longer needed.
const RECORDS_MIN: usize = 64;

/// What the items of one loop have told lately. It knows no clock: time is handed in with every call.
#[derive(Default)]
pub struct StatusCoalescer {
    records: BTreeMap<Key, Record>,
    /// How many records there were after the last search for those no longer needed.
    kept: usize,
}

#[derive(Default)]
struct Record {
    /// When it last told something.
    told_at: Option<Duration>,
    /// How long what comes after that gathers.
    gap: Duration,
    /// Until when tellings gather.
    gathers_until: Duration,
    /// Since when it has had something to tell.
    owes_since: Option<Duration>,
    /// Whether the turn under way, or the last one, had to keep something to itself.
    owes: bool,
}

impl StatusCoalescer {
    /// Notes that a turn of an item begins. It will find out anew whether there is anything to tell.
    pub fn begin_reconcile(&mut self, key: &Key) {
        if let Some(record) = self.records.get_mut(key) {
            record.owes = false;
        }
    }

    /// Whether an item may tell something now.
    pub fn may_write_now(&mut self, key: &Key, telling: StatusUrgency, now: Duration) -> bool {
        if telling == StatusUrgency::Immediate {
            return true;
        }
        let record = self.records.entry(key.clone()).or_default();
        let mut from = record.gathers_until;
        if telling == StatusUrgency::Superseded {
            from = record.owes_since.unwrap_or(now) + INTERVAL_MAX;
            // What the next turn tells may still be on its way to what this one was about.
            record.gathers_until = record.gathers_until.max((now + INTERVAL_FIRST).min(from));
        }
        if now < from {
            record.owes_since.get_or_insert(now);
            record.owes = true;
        }
        now >= from
    }

    /// Notes that an item has told something.
    pub fn record_write(&mut self, key: &Key, now: Duration) {
        let record = self.records.entry(key.clone()).or_default();
        let in_a_row = record.told_at.is_some_and(|told_at| now.saturating_sub(told_at) < 2 * record.gap);
        record.gap = if in_a_row { (2 * record.gap).min(INTERVAL_MAX) } else { INTERVAL_FIRST };
        record.told_at = Some(now);
        record.gathers_until = now + record.gap;
        (record.owes_since, record.owes) = (None, false);
        self.forget_the_calm(now);
    }

    /// Notes that a turn has ended, and says in how long there must be another because something was not told.
    pub fn end_reconcile(&mut self, key: &Key, now: Duration) -> Option<Duration> {
        let record = self.records.get_mut(key)?;
        if !record.owes {
            record.owes_since = None;
            return None;
        }
        Some(record.gathers_until.saturating_sub(now))
    }

    /// Items that nobody asks about again would otherwise stay for ever.
    fn forget_the_calm(&mut self, now: Duration) {
        if self.records.len() > (2 * self.kept).max(RECORDS_MIN) {
            let is_in_a_row = |record: &Record| now < record.gathers_until + INTERVAL_MAX;
            self.records.retain(|_, record| record.owes || is_in_a_row(record));
            self.kept = self.records.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One item at a time that moves on by hand.
    struct Item {
        pace: StatusCoalescer,
        key: Key,
        now: Duration,
    }

    impl Item {
        fn new() -> Self {
            // Some time after the start, as a rule.
            Self {
                pace: StatusCoalescer::default(),
                key: Key::namespaced("shop", "web"),
                now: 1000 * INTERVAL_MAX,
            }
        }

        /// A turn that wants to tell something, so long after the one before: when there must be another, if it may
        /// not.
        fn turn(&mut self, after: Duration, telling: Option<StatusUrgency>) -> Option<Duration> {
            self.now += after;
            self.pace.begin_reconcile(&self.key);
            let told = telling.is_some_and(|telling| self.pace.may_write_now(&self.key, telling, self.now));
            if told {
                self.pace.record_write(&self.key, self.now);
            }
            let again = self.pace.end_reconcile(&self.key, self.now);
            assert!(!told || again.is_none(), "what has been told is not owed");
            again
        }

        /// Wants to tell something new every ten milliseconds for so long; how long after each other it may.
        fn chatter(&mut self, how_long: Duration, telling: StatusUrgency) -> Vec<u128> {
            let (mut gaps, end, mut last) = (Vec::new(), self.now + how_long, self.now);
            while self.now < end {
                if self.turn(10 * MS, Some(telling)).is_none() {
                    gaps.push((self.now - last).as_millis());
                    last = self.now;
                }
            }
            gaps
        }
    }

    #[test]
    fn the_first_telling_is_free_and_those_after_it_are_spaced_ever_more_widely() {
        let gaps = Item::new().chatter(Duration::from_secs(5), StatusUrgency::Coalesce);
        assert_eq!(gaps, [10, 200, 400, 800, 1000, 1000, 1000]);
    }

    #[test]
    fn what_must_be_known_at_once_waits_for_nobody() {
        let gaps = Item::new().chatter(50 * MS, StatusUrgency::Immediate);
        assert_eq!(gaps, [10; 5]);
    }

    #[test]
    fn whoever_has_been_quiet_is_heard_at_once_again() {
        let mut item = Item::new();
        item.chatter(Duration::from_secs(5), StatusUrgency::Coalesce);
        assert_eq!(item.turn(2 * INTERVAL_MAX, Some(StatusUrgency::Coalesce)), None);
        assert_eq!(item.turn(10 * MS, Some(StatusUrgency::Coalesce)), Some(INTERVAL_FIRST - 10 * MS));
    }

    #[test]
    fn what_changes_now_and_then_is_told_each_time() {
        let mut item = Item::new();
        for _ in 0..10 {
            assert_eq!(item.turn(2 * INTERVAL_FIRST, Some(StatusUrgency::Coalesce)), None);
        }
    }

    #[test]
    fn what_was_not_told_is_told_when_the_time_has_come() {
        let mut item = Item::new();
        assert_eq!(item.turn(MS, Some(StatusUrgency::Coalesce)), None);
        let wait = item.turn(MS, Some(StatusUrgency::Coalesce)).unwrap();
        // Other turns in between neither put it off nor bring it on.
        assert_eq!(item.turn(MS, Some(StatusUrgency::Coalesce)), Some(wait - MS));
        assert_eq!(item.turn(wait - MS, Some(StatusUrgency::Coalesce)), None);
    }

    #[test]
    fn what_turns_out_not_to_be_news_is_not_owed() {
        let mut item = Item::new();
        item.turn(MS, Some(StatusUrgency::Coalesce));
        assert!(item.turn(MS, Some(StatusUrgency::Coalesce)).is_some());
        assert_eq!(item.turn(MS, None), None);
        // Nor is it remembered as something that has been waiting.
        item.turn(INTERVAL_MAX, Some(StatusUrgency::Superseded));
        assert!(item.turn(INTERVAL_MAX - MS, Some(StatusUrgency::Superseded)).is_some());
    }

    #[test]
    fn what_is_outdated_waits_for_news_but_not_for_ever() {
        let mut item = Item::new();
        assert_eq!(item.turn(MS, Some(StatusUrgency::Superseded)), Some(INTERVAL_FIRST));
        assert_eq!(
            item.turn(MS, Some(StatusUrgency::Coalesce)),
            Some(INTERVAL_FIRST - MS),
            "what follows gathers"
        );
        assert_eq!(item.turn(INTERVAL_FIRST - MS, Some(StatusUrgency::Coalesce)), None);
        let gaps = Item::new().chatter(Duration::from_secs(5), StatusUrgency::Superseded);
        assert_eq!(gaps, [1010, 1010, 1010, 1010], "one that is never done tells how far it is");
    }

    #[test]
    fn items_that_have_become_quiet_do_not_pile_up() {
        let mut pace = StatusCoalescer::default();
        for n in 0..10_000_u32 {
            pace.record_write(&Key::cluster(format!("n{n}")), n * INTERVAL_MAX);
        }
        assert!(pace.records.len() <= RECORDS_MIN + 1, "{}", pace.records.len());
    }
}
