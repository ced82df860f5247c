//! Which of many equal failures are logged: the first one, and then one at rising intervals with the number of the others.
//!
//! An API server that is away fails every list, watch and renewal of the process many times a minute, and for the same reason.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clocks;

/// The interval after the first line doubles with each further one.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// A failure that did not happen for this long is new when it happens again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Failures whose text never repeats must not fill the memory.
const FAILURES_MAX: usize = 256;

/// The failures of one process, or of one of its parts.
pub(crate) struct FailureLog {
    clocks: Clocks,
    failures: Mutex<BTreeMap<String, Repeated>>,
}

struct Repeated {
    logged_at: Duration,
    last_at: Duration,
    interval: Duration,
    unlogged: u64,
}

impl FailureLog {
    pub(crate) fn new(clocks: Clocks) -> Self {
        Self { clocks, failures: Mutex::default() }
    }

    /// Notes a failure. Returns how many equal ones were not logged since the last line; `None` if this one is not to be
    /// logged either.
    pub(crate) fn note(&self, failure: &str) -> Option<u64> {
        let now = self.clocks.monotonic();
        let mut failures = self.failures.lock();
        if let Some(known) = failures.get_mut(failure)
            && now.saturating_sub(known.last_at) < FORGOTTEN_AFTER
        {
            known.last_at = now;
            if now.saturating_sub(known.logged_at) < known.interval {
                known.unlogged += 1;
                return None;
            }
            known.logged_at = now;
            known.interval = (known.interval * 2).min(INTERVAL_MAX);
            return Some(std::mem::take(&mut known.unlogged));
        }
        if failures.len() >= FAILURES_MAX {
            failures.retain(|_, known| now.saturating_sub(known.last_at) < INTERVAL_MAX);
        }
        if failures.len() < FAILURES_MAX {
            let first = Repeated { logged_at: now, last_at: now, interval: INTERVAL_MIN, unlogged: 0 };
            failures.insert(failure.to_owned(), first);
        }
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn equal_failures_are_logged_at_rising_intervals_with_the_number_of_the_others() {
        let log = FailureLog::new(Clocks::new(|| 0));
        let mut logged = Vec::new();
        for second in 0..200 {
            if let Some(others) = log.note("refused") {
                logged.push((second, others));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [(0, 0), (10, 9), (30, 19), (70, 39), (150, 79)]);
        assert_eq!(log.note("another"), Some(0), "another failure is logged at once");
        tokio::time::advance(FORGOTTEN_AFTER).await;
        assert_eq!(log.note("refused"), Some(0), "a failure after a long time is new");
        assert_eq!(log.note("refused"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_without_end_do_not_fill_the_memory() {
        let log = FailureLog::new(Clocks::new(|| 0));
        for number in 0..10_000 {
            assert_eq!(log.note(&number.to_string()), Some(0));
        }
        assert_eq!(log.failures.lock().len(), FAILURES_MAX);
        tokio::time::advance(INTERVAL_MAX).await;
        log.note("new");
        assert_eq!(log.failures.lock().len(), 1);
    }
}
