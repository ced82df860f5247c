//! The exponential backoff before a Job replaces failed pods.

use std::time::Duration;

use keleustes_objects::{ConditionStatus, Pod, Time};

/// The delay after the first failure.
const FIRST_SECONDS: i64 = 10;

/// The longest delay.
const SECONDS_MAX: i64 = 600;

/// The shortest delay after which a Job in backoff is requeued.
pub(super) const REQUEUE_DELAY_MIN: Duration = Duration::from_secs(1);

/// The failures of a Job's pods since the last success.
///
/// The record is lost with the process. A new leader only backs off for failures that it observes itself, so
/// it may replace a pod up to ten minutes early, once. The backoff per index does not use this record: its
/// counts are annotations on the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackoffRecord {
    pub(super) failures: i32,
    pub(super) last_failure: Option<Time>,
}

impl BackoffRecord {
    /// The record after these pods have finished as well.
    pub(super) fn with_finished_pods<'a>(
        self,
        succeeded: impl Iterator<Item = &'a Pod>,
        failed: impl Iterator<Item = &'a Pod>,
    ) -> Self {
        let last_success = succeeded.map(finished_at).max();
        let failed = failed.map(finished_at);
        let (previous, since): (Self, Vec<_>) = match last_success {
            None => (self, failed.collect()),
            Some(success) => (Self::default(), failed.filter(|failure| *failure > success).collect()),
        };
        let Some(last_failure) = since.iter().copied().max() else { return previous };
        let more = i32::try_from(since.len()).unwrap_or(i32::MAX);
        Self { failures: previous.failures.saturating_add(more), last_failure }
    }

    /// The remaining backoff.
    pub(super) fn remaining(self, now: Time) -> Duration {
        remaining(self.failures, self.last_failure, now)
    }
}

/// The remaining backoff after this many failures. A failure time in the future makes it longer.
pub(super) fn remaining(failures: i32, last_failure: Option<Time>, now: Time) -> Duration {
    let Some(last_failure) = last_failure.filter(|_| failures > 0) else { return Duration::ZERO };
    // Six doublings exceed the longest delay.
    let delay = (FIRST_SECONDS << (failures - 1).min(6)).min(SECONDS_MAX);
    let left = delay.saturating_sub(now.seconds_since(last_failure));
    Duration::from_secs(u64::try_from(left).unwrap_or(0))
}

/// When a pod finished, from the best source available. `None`, an unknown time, sorts before every known
/// time.
pub(super) fn finished_at(pod: &Pod) -> Option<Time> {
    let unready = || {
        let is_unready = pod.condition("Ready") == Some(ConditionStatus::False);
        pod.ready_changed_at().filter(|_| is_unready)
    };
    pod.containers_finished_at()
        .or_else(unready)
        .or_else(|| pod.deletion_requested_at())
        .or(pod.meta.creation_timestamp)
}
