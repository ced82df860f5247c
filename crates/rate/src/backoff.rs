//! Exponential backoff after failures.

use std::time::Duration;

/// The delay after so many earlier failures: `base`, doubled for each of them, up to `max`.
#[must_use]
pub fn exponential_delay(base: Duration, max: Duration, earlier_failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(earlier_failures).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(max)
}

/// The backoff of one operation, like upstream's `goroutinemap/exponentialbackoff`. It begins without a delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    delay: Duration,
    until: Duration,
}

impl Backoff {
    /// Records a failure: the next attempt waits for `base`, or for twice the last delay, up to `max`.
    pub fn record_failure(&mut self, now: Duration, base: Duration, max: Duration) {
        self.delay = self.delay.saturating_mul(2).clamp(base, max);
        self.until = now.saturating_add(self.delay);
    }

    /// The delay after the last failure; zero if there was none.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// When the last failure was recorded.
    #[must_use]
    pub fn failed_at(&self) -> Duration {
        self.until.saturating_sub(self.delay)
    }

    /// When the next attempt may start.
    #[must_use]
    pub fn until(&self) -> Duration {
        self.until
    }

    /// Whether the next attempt must wait.
    #[must_use]
    pub fn is_waiting(&self, now: Duration) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(122);

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let delays = [0, 1, 2, 7, 8, 31, 32, u32::MAX].map(|failures| exponential_delay(BASE, MAX, failures));
        assert_eq!(
            delays.map(|delay| delay.as_millis()),
            [500, 1000, 2000, 64_000, 122_000, 122_000, 122_000, 122_000]
        );
        assert_eq!(exponential_delay(Duration::MAX, Duration::MAX, 3), Duration::MAX);
    }

    #[test]
    fn each_failure_doubles_the_wait_from_its_own_time() {
        let (mut backoff, mut now) = (Backoff::default(), Duration::from_secs(1000));
        assert!(!backoff.is_waiting(Duration::ZERO));
        for failures in 0..12 {
            backoff.record_failure(now, BASE, MAX);
            assert_eq!(backoff.delay(), exponential_delay(BASE, MAX, failures));
            assert_eq!(backoff.failed_at(), now);
            assert!(backoff.is_waiting(backoff.until() - Duration::from_nanos(1)));
            now = backoff.until();
            assert!(!backoff.is_waiting(now));
        }
    }
}
