//! Nodes that wait for a `NoExecute` taint, let through one by one at the pace of their zone.
//!
//! Every pod that does not tolerate the taint goes away with it, so the pace of tainting is the pace of
//! evictions.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::ArcStr;

/// The waiting nodes of one zone.
#[derive(Debug)]
pub(super) struct TaintQueue {
    /// When each node is due, and its place among those due at one moment.
    waiting: BTreeMap<ArcStr, (Duration, u64)>,
    /// Places that were given out.
    places: u64,
    pace: Pace,
}

impl TaintQueue {
    /// Nobody waits, and the first one need not.
    pub(super) fn new(per_second: f32, now: Duration) -> Self {
        Self { waiting: BTreeMap::new(), places: 0, pace: Pace::new(per_second, now, true) }
    }

    /// Lets a node wait from now on. One that waits keeps its place.
    pub(super) fn add(&mut self, node: &ArcStr, now: Duration) {
        if !self.waiting.contains_key(node) {
            self.wait_until(node, now);
        }
    }

    /// Lets a node wait no longer.
    pub(super) fn remove(&mut self, node: &str) {
        self.waiting.remove(node);
    }

    /// Lets a node wait until a moment, behind all that are due by then.
    pub(super) fn wait_until(&mut self, node: &ArcStr, due: Duration) {
        self.places += 1;
        self.waiting.insert(node.clone(), (due, self.places));
    }

    /// Whose turn it is. The turn is used up whatever comes of it; who is not removed has another one.
    pub(super) fn next(&mut self, now: Duration) -> Option<ArcStr> {
        let (node, (due, _)) = self.first()?;
        if due > now || !self.pace.take(now) {
            return None;
        }
        Some(node)
    }

    /// When there can be a turn again, if ever.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        let (_, (due, _)) = self.first()?;
        Some(due.max(self.pace.next_at(now)?))
    }

    /// Sets another pace. Who had to wait for a turn before has to wait for one of the new pace.
    pub(super) fn set_pace(&mut self, per_second: f32, now: Duration) {
        if !same(self.pace.per_second, per_second) {
            let may_start = self.pace.take(now);
            self.pace = Pace::new(per_second, now, may_start);
        }
    }

    fn first(&self) -> Option<(ArcStr, (Duration, u64))> {
        let first = self.waiting.iter().min_by_key(|(_, place)| **place)?;
        Some((first.0.clone(), *first.1))
    }
}

/// Turns that come at a constant pace and do not pile up.
#[derive(Debug)]
struct Pace {
    /// Zero or less: never.
    per_second: f32,
    /// From when on there is a turn.
    free_at: Duration,
}

impl Pace {
    fn new(per_second: f32, now: Duration, may_start: bool) -> Self {
        let mut pace = Self { per_second, free_at: now };
        if !may_start {
            pace.take(now);
        }
        pace
    }

    fn take(&mut self, now: Duration) -> bool {
        let Some(free_at) = self.next_at(now) else { return false };
        if free_at > now {
            return false;
        }
        // A pace so slow that the next turn lies beyond all time is as good as none.
        let pause = Duration::try_from_secs_f32(1.0 / self.per_second);
        self.free_at = now.saturating_add(pause.unwrap_or(Duration::MAX));
        true
    }

    fn next_at(&self, now: Duration) -> Option<Duration> {
        (self.per_second > 0.0).then(|| self.free_at.max(now))
    }
}

/// Whether two eviction_rates are the same. They come from flags, so nothing was rounded on the way.
fn same(one: f32, other: f32) -> bool {
    one.to_bits() == other.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn waiting(nodes: &[&str], per_second: f32) -> TaintQueue {
        let mut tainter = TaintQueue::new(per_second, at(0));
        nodes.iter().for_each(|node| tainter.add(&ArcStr::from(*node), at(0)));
        tainter
    }

    /// The nodes that get a turn in each of these seconds; each is through with it.
    fn turns(tainter: &mut TaintQueue, seconds: std::ops::RangeInclusive<u64>) -> Vec<(u64, ArcStr)> {
        let mut turns = Vec::new();
        for second in seconds {
            while let Some(node) = tainter.next(at(second)) {
                tainter.remove(&node);
                turns.push((second, node));
            }
        }
        turns
    }

    fn list(turns: &[(u64, ArcStr)]) -> Vec<(u64, &str)> {
        turns.iter().map(|(second, node)| (*second, node.as_str())).collect()
    }

    /// Proves NLC-16, NLC-48.
    #[test]
    fn the_first_need_not_wait_and_the_others_come_in_order_at_the_pace() {
        let mut tainter = waiting(&["z", "a", "m"], 0.1);
        assert_eq!(list(&turns(&mut tainter, 0..=30)), [(0, "z"), (10, "a"), (20, "m")]);
        // Quiet time does not pile up turns.
        ["b", "c"].iter().for_each(|node| tainter.add(&ArcStr::from(*node), at(1000)));
        assert_eq!(list(&turns(&mut tainter, 1000..=1010)), [(1000, "b"), (1010, "c")]);
    }

    #[test]
    fn who_waits_keeps_its_place_and_who_is_removed_loses_it() {
        let mut tainter = waiting(&["a", "b"], 0.1);
        tainter.add(&ArcStr::from("a"), at(0));
        tainter.remove("b");
        assert_eq!(list(&turns(&mut tainter, 0..=30)), [(0, "a")]);
        tainter.add(&ArcStr::from("b"), at(31));
        assert_eq!(tainter.next_at(at(31)), Some(at(31)));
        assert_eq!(list(&turns(&mut tainter, 31..=31)), [(31, "b")]);
    }

    /// Proves NLC-93.
    #[test]
    fn a_turn_is_used_up_by_whoever_takes_it() {
        let mut tainter = waiting(&["a"], 0.1);
        assert_eq!(tainter.next(at(0)).as_deref(), Some("a"));
        // It was not removed: its attempt failed, and it needs another turn.
        assert_eq!((tainter.next(at(9)), tainter.next_at(at(9))), (None, Some(at(10))));
        assert_eq!(tainter.next(at(10)).as_deref(), Some("a"));
        tainter.wait_until(&ArcStr::from("a"), at(25));
        assert_eq!((tainter.next(at(20)), tainter.next_at(at(20))), (None, Some(at(25))));
        assert_eq!(tainter.next(at(25)).as_deref(), Some("a"));
    }

    /// Proves NLC-62.
    #[test]
    fn an_exhausted_pace_leaves_its_successor_nothing_to_start_with() {
        let mut tainter = waiting(&["a", "b"], 0.1);
        assert!(tainter.next(at(0)).is_some());
        tainter.set_pace(0.5, at(1));
        assert_eq!(tainter.next_at(at(1)), Some(at(3)));
        // The same pace again changes nothing.
        tainter.set_pace(0.5, at(2));
        assert_eq!(tainter.next_at(at(2)), Some(at(3)));
        let mut rested = waiting(&["a"], 0.1);
        rested.set_pace(0.01, at(1));
        assert_eq!(rested.next_at(at(1)), Some(at(1)));
    }

    /// Proves NLC-62, NLC-96.
    #[test]
    fn no_pace_means_never_and_ends_with_the_next_pace() {
        for none in [0.0, -1.0] {
            let mut tainter = waiting(&["a"], 1.0);
            tainter.set_pace(none, at(0));
            assert_eq!((tainter.next(at(1000)), tainter.next_at(at(1000))), (None, None));
            tainter.set_pace(1.0, at(1000));
            assert_eq!(tainter.next_at(at(1000)), Some(at(1001)));
            assert_eq!(list(&turns(&mut tainter, 1000..=1001)), [(1001, "a")]);
        }
    }

    #[test]
    fn a_pace_beyond_all_time_is_no_panic() {
        let mut tainter = waiting(&["a", "b"], f32::MIN_POSITIVE);
        assert!(tainter.next(at(0)).is_some());
        assert_eq!(tainter.next(at(1_000_000_000)), None);
        let mut odd = waiting(&["a"], f32::NAN);
        assert_eq!((odd.next(at(5)), odd.next_at(at(5))), (None, None));
    }
}
