//! A token bucket, like the limiter of `golang.org/x/time/rate` that client-go uses.

use std::time::Duration;

/// The longest interval between two tokens. `u32::MAX` times this is less than the largest Duration.
const INTERVAL_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A bucket of tokens that is refilled at a constant rate. It starts full.
///
/// Only the time at which it will be full again is kept: each token that is taken delays that time by one interval, and
/// the tokens in the bucket follow from it. All times are whole nanoseconds, so nothing is lost by rounding over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The time in which one token is added; `None` if none ever is.
    interval: Option<Duration>,
    /// The time in which an empty bucket fills.
    capacity: Duration,
    /// When the bucket is full, if no more tokens are taken.
    full_at: Duration,
}

impl TokenBucket {
    /// A bucket that is refilled with so many tokens per second and holds `burst` tokens. A rate that is zero, negative
    /// or not a number gives no tokens at all, not even the first ones.
    #[must_use]
    pub fn new(per_second: f64, burst: u32) -> Self {
        let interval = || Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(INTERVAL_MAX);
        Self::every((per_second > 0.0).then(interval), burst)
    }

    /// A bucket that is refilled with one token per interval, or never, and holds `burst` tokens. An interval of more
    /// than a century counts as one.
    #[must_use]
    pub fn every(interval: Option<Duration>, burst: u32) -> Self {
        let interval = interval.map(|interval| interval.min(INTERVAL_MAX));
        let capacity = interval.map_or(Duration::ZERO, |interval| interval.saturating_mul(burst));
        Self { interval, capacity, full_at: Duration::ZERO }
    }

    /// The same bucket without its tokens.
    #[must_use]
    pub fn emptied(self, now: Duration) -> Self {
        Self { full_at: now.saturating_add(self.capacity), ..self }
    }

    /// Takes a token, which may be a future one, and returns how long to wait for it.
    pub fn reserve(&mut self, now: Duration) -> Duration {
        self.reserve_within(now, Duration::MAX).unwrap_or(Duration::MAX)
    }

    /// Takes a token and returns how long to wait for it; takes none if that is longer than `wait_max`.
    pub fn reserve_within(&mut self, now: Duration, wait_max: Duration) -> Option<Duration> {
        let full_at = self.full_at.max(now).saturating_add(self.interval?);
        let wait = full_at.saturating_sub(now).saturating_sub(self.capacity);
        (wait <= wait_max).then(|| {
            self.full_at = full_at;
            wait
        })
    }

    /// Takes a token if one is there, like client-go's `TryAccept`.
    pub fn try_accept(&mut self, now: Duration) -> bool {
        self.reserve_within(now, Duration::ZERO).is_some()
    }

    /// When the next token is there; `None` if never.
    #[must_use]
    pub fn next_at(&self, now: Duration) -> Option<Duration> {
        { *self }.reserve_within(now, Duration::MAX).map(|wait| now.saturating_add(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// More than thirty years.
    const LATE: Duration = Duration::from_secs(1_000_000_000);

    #[test]
    fn burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = TokenBucket::new(10.0, 3);
        let now = ms(5000);
        let waits: Vec<_> = (0..5).map(|_| bucket.reserve(now)).collect();
        assert_eq!(waits, [ms(0), ms(0), ms(0), ms(100), ms(200)]);
        // Two tokens are owed, so the third after half a second is there at once, and no earlier one was lost.
        let waits: Vec<_> = (0..4).map(|_| bucket.reserve(now + ms(500))).collect();
        assert_eq!(waits, [ms(0), ms(0), ms(0), ms(100)]);
    }

    #[test]
    fn bucket_never_holds_more_than_the_burst() {
        let mut bucket = TokenBucket::new(1.0, 2);
        let taken = |bucket: &mut TokenBucket, now| (0..9).filter(|_| bucket.try_accept(now)).count();
        assert_eq!(taken(&mut bucket, ms(0)), 2);
        assert_eq!(taken(&mut bucket, ms(999)), 0);
        assert_eq!(taken(&mut bucket, ms(1000)), 1);
        assert_eq!(taken(&mut bucket, LATE), 2);
    }

    #[test]
    fn token_that_would_take_too_long_is_not_taken() {
        let mut bucket = TokenBucket::new(1.0, 1);
        assert_eq!(bucket.reserve_within(ms(0), ms(1500)), Some(ms(0)));
        assert_eq!(bucket.reserve_within(ms(0), ms(1500)), Some(ms(1000)));
        assert_eq!(bucket.reserve_within(ms(0), ms(1500)), None);
        assert_eq!(bucket.reserve_within(ms(500), ms(1500)), Some(ms(1500)), "the refusal took no token");
    }

    #[test]
    fn next_token_is_foretold_without_being_taken() {
        let mut bucket = TokenBucket::new(0.5, 1);
        assert_eq!(bucket.next_at(ms(7000)), Some(ms(7000)));
        assert!(bucket.try_accept(ms(7000)));
        assert_eq!(bucket.next_at(ms(8000)), Some(ms(9000)));
        assert_eq!(bucket.next_at(ms(8000)), Some(ms(9000)));
        assert_eq!(TokenBucket::new(0.5, 1).emptied(ms(7000)).next_at(ms(7000)), Some(ms(9000)));
    }

    #[test]
    fn many_small_refills_add_up_exactly() {
        // 1/3 s is no whole number of nanoseconds; three of them are a second but for one.
        let mut bucket = TokenBucket::new(3.0, 1);
        let accepted = (0..3_000_u64).filter(|at| bucket.try_accept(ms(at * 10))).count();
        assert_eq!(
            accepted, 89,
            "30 s at 3 per second, asked every 10 ms, so each token is taken up to 10 ms late"
        );
    }

    #[test]
    fn extreme_rates_neither_panic_nor_give_tokens_they_should_not() {
        for never in [0.0, -1.0, f64::NAN] {
            let mut bucket = TokenBucket::new(never, 5);
            assert!(!bucket.try_accept(LATE), "{never}");
            assert_eq!((bucket.next_at(LATE), bucket.reserve(LATE)), (None, Duration::MAX), "{never}");
        }
        let mut slow = TokenBucket::new(f64::MIN_POSITIVE, 1);
        assert!(slow.try_accept(ms(1)));
        assert!(!slow.try_accept(LATE));
        let mut fast = TokenBucket::new(f64::INFINITY, u32::MAX);
        assert!((0..1000).all(|_| fast.try_accept(ms(1))));
        let mut none = TokenBucket::new(1.0, 0);
        assert!(!none.try_accept(LATE));
        assert_eq!(none.reserve(LATE), ms(1000), "without a burst, every token is a future one");
    }
}
