//! How old a cache can be.

use std::time::Duration;

/// How old a cache may be if there was no fault for some time.
const STALE_MAX: Duration = Duration::from_secs(5);

/// For how long after a fault caches may be older: a fault lasts up to 90 s, then a hanging request may have to time out,
/// and a watch is opened again after a backoff.
const FAULT_MAX: Duration = Duration::from_secs(300);

/// Follows the faults of a storm.
#[derive(Default)]
pub(super) struct Faults {
    last_at: Option<Duration>,
}

impl Faults {
    pub(super) fn observe(&mut self, at: Duration) {
        self.last_at = Some(at);
    }

    /// Whether there was no fault so far.
    pub(super) fn is_calm(&self) -> bool {
        self.last_at.is_none()
    }

    /// Whether every cache has observed by this time what was so since an earlier one.
    pub(super) fn caches_know(&self, since: Duration, at: Duration) -> bool {
        self.last_at.is_none_or(|fault| at > fault + FAULT_MAX) && at > since + STALE_MAX
    }
}
