//! Queue of the nodes of one zone that wait for a `NoExecute` taint, released at the zone's eviction rate.
//! Parity: RateLimitedTimedQueue.
//!
//! Every pod that does not tolerate the taint is evicted, so the rate of tainting is the rate of evictions.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::ArcStr;
use keleustes_rate::TokenBucket;

/// The queued nodes of one zone.
#[derive(Clone, Debug)]
pub(super) struct TaintQueue {
    /// When each node is due, and its sequence number among those due at the same time.
    queued: BTreeMap<ArcStr, (Duration, u64)>,
    /// The last sequence number.
    sequence: u64,
    /// Tokens per second; zero or less means never.
    per_second: f32,
    limiter: TokenBucket,
}

impl TaintQueue {
    /// An empty queue whose first node need not wait.
    pub(super) fn new(per_second: f32) -> Self {
        Self { queued: BTreeMap::new(), sequence: 0, per_second, limiter: limiter_of(per_second) }
    }

    /// Queues a node. A queued node keeps its place.
    pub(super) fn add(&mut self, node: &ArcStr, now: Duration) {
        if !self.queued.contains_key(node) {
            self.add_until(node, now);
        }
    }

    /// Removes a node from the queue.
    pub(super) fn remove(&mut self, node: &str) {
        self.queued.remove(node);
    }

    /// Queues a node until `due`, behind all nodes that are due by then.
    pub(super) fn add_until(&mut self, node: &ArcStr, due: Duration) {
        self.sequence += 1;
        self.queued.insert(node.clone(), (due, self.sequence));
    }

    /// The next node, if one is due and the rate limiter has a token. The token is used up even if tainting
    /// fails; a node that is not removed needs another one.
    pub(super) fn next(&mut self, now: Duration) -> Option<ArcStr> {
        let (node, (due, _)) = self.first()?;
        if due > now || !self.limiter.try_accept(now) {
            return None;
        }
        Some(node)
    }

    /// When the next node can be released, if ever.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        let (_, (due, _)) = self.first()?;
        Some(due.max(self.limiter.next_at(now)?))
    }

    /// Sets another rate. If no token was available before, the new rate limiter starts without one.
    pub(super) fn set_rate(&mut self, per_second: f32, now: Duration) {
        if !same(self.per_second, per_second) {
            let (has_token, limiter) = (self.limiter.try_accept(now), limiter_of(per_second));
            self.limiter = if has_token { limiter } else { limiter.emptied(now) };
            self.per_second = per_second;
        }
    }

    fn first(&self) -> Option<(ArcStr, (Duration, u64))> {
        let first = self.queued.iter().min_by_key(|(_, position)| **position)?;
        Some((first.0.clone(), *first.1))
    }
}

/// A token bucket with burst 1.
fn limiter_of(per_second: f32) -> TokenBucket {
    let interval = || Duration::try_from_secs_f32(1.0 / per_second).unwrap_or(Duration::MAX);
    TokenBucket::every((per_second > 0.0).then(interval), 1)
}

/// Whether two rates are equal. They come from flags without arithmetic, so the bits can be compared.
fn same(one: f32, other: f32) -> bool {
    one.to_bits() == other.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn queue_of(nodes: &[&str], per_second: f32) -> TaintQueue {
        let mut queue = TaintQueue::new(per_second);
        nodes.iter().for_each(|node| queue.add(&ArcStr::from(*node), at(0)));
        queue
    }

    /// The nodes released in each of these seconds; each is removed.
    fn releases(queue: &mut TaintQueue, seconds: std::ops::RangeInclusive<u64>) -> Vec<(u64, ArcStr)> {
        let mut releases = Vec::new();
        for second in seconds {
            while let Some(node) = queue.next(at(second)) {
                queue.remove(&node);
                releases.push((second, node));
            }
        }
        releases
    }

    fn list(releases: &[(u64, ArcStr)]) -> Vec<(u64, &str)> {
        releases.iter().map(|(second, node)| (*second, node.as_str())).collect()
    }

    /// Proves NLC-16, NLC-48.
    #[test]
    fn first_node_is_released_at_once_and_others_in_order_at_the_rate() {
        let mut queue = queue_of(&["z", "a", "m"], 0.1);
        assert_eq!(list(&releases(&mut queue, 0..=30)), [(0, "z"), (10, "a"), (20, "m")]);
        // Tokens do not accumulate while the queue is empty.
        ["b", "c"].iter().for_each(|node| queue.add(&ArcStr::from(*node), at(1000)));
        assert_eq!(list(&releases(&mut queue, 1000..=1010)), [(1000, "b"), (1010, "c")]);
    }

    #[test]
    fn queued_node_keeps_its_place_until_removed() {
        let mut queue = queue_of(&["a", "b"], 0.1);
        queue.add(&ArcStr::from("a"), at(0));
        queue.remove("b");
        assert_eq!(list(&releases(&mut queue, 0..=30)), [(0, "a")]);
        queue.add(&ArcStr::from("b"), at(31));
        assert_eq!(queue.next_at(at(31)), Some(at(31)));
        assert_eq!(list(&releases(&mut queue, 31..=31)), [(31, "b")]);
    }

    /// Proves NLC-93.
    #[test]
    fn token_is_used_up_even_if_tainting_fails() {
        let mut queue = queue_of(&["a"], 0.1);
        assert_eq!(queue.next(at(0)).as_deref(), Some("a"));
        // It was not removed: tainting failed, so it needs another token.
        assert_eq!((queue.next(at(9)), queue.next_at(at(9))), (None, Some(at(10))));
        assert_eq!(queue.next(at(10)).as_deref(), Some("a"));
        queue.add_until(&ArcStr::from("a"), at(25));
        assert_eq!((queue.next(at(20)), queue.next_at(at(20))), (None, Some(at(25))));
        assert_eq!(queue.next(at(25)).as_deref(), Some("a"));
    }

    /// Proves NLC-62.
    #[test]
    fn new_rate_starts_without_token_if_none_was_available() {
        let mut queue = queue_of(&["a", "b"], 0.1);
        assert!(queue.next(at(0)).is_some());
        queue.set_rate(0.5, at(1));
        assert_eq!(queue.next_at(at(1)), Some(at(3)));
        // Setting the same rate again changes nothing.
        queue.set_rate(0.5, at(2));
        assert_eq!(queue.next_at(at(2)), Some(at(3)));
        let mut unused = queue_of(&["a"], 0.1);
        unused.set_rate(0.01, at(1));
        assert_eq!(unused.next_at(at(1)), Some(at(1)));
    }

    /// Proves NLC-62, NLC-96.
    #[test]
    fn zero_rate_releases_nothing_until_the_next_rate() {
        for none in [0.0, -1.0] {
            let mut queue = queue_of(&["a"], 1.0);
            queue.set_rate(none, at(0));
            assert_eq!((queue.next(at(1000)), queue.next_at(at(1000))), (None, None));
            queue.set_rate(1.0, at(1000));
            assert_eq!(queue.next_at(at(1000)), Some(at(1001)));
            assert_eq!(list(&releases(&mut queue, 1000..=1001)), [(1001, "a")]);
        }
    }

    #[test]
    fn extreme_rates_do_not_panic() {
        let mut queue = queue_of(&["a", "b"], f32::MIN_POSITIVE);
        assert!(queue.next(at(0)).is_some());
        assert_eq!(queue.next(at(1_000_000_000)), None);
        let mut odd = queue_of(&["a"], f32::NAN);
        assert_eq!((odd.next(at(5)), odd.next_at(at(5))), (None, None));
    }
}
