//! How long a Job waits before it replaces pods that failed: longer after every failure.

use std::time::Duration;

use keleustes_objects::{ConditionStatus, Pod, Time};

/// The wait after the first failure.
const FIRST_SECONDS: i64 = 10;

/// The longest wait.
const SECONDS_MAX: i64 = 600;

/// The shortest time after which a waiting Job is looked at again.
pub(super) const REQUEUE_DELAY_MIN: Duration = Duration::from_secs(1);

/// The failures of a Job's pods since one last succeeded.
///
/// It is lost with the process; whoever takes over waits for failures that it sees itself. That may
/// replace a pod a few minutes early, once. Back-off per index does not rest on it: those counts are
/// annotations of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackoffRecord {
    pub(super) failures: i32,
    pub(super) last_failure: Option<Time>,
}

impl BackoffRecord {
    /// The record once these pods have ended, too.
    pub(super) fn after<'a>(
        self,
        succeeded: impl Iterator<Item = &'a Pod>,
        failed: impl Iterator<Item = &'a Pod>,
    ) -> Self {
        let last_success = succeeded.map(finished_at).max();
        let failed = failed.map(finished_at);
        let (before, since): (Self, Vec<_>) = match last_success {
            None => (self, failed.collect()),
            Some(success) => (Self::default(), failed.filter(|failure| *failure > success).collect()),
        };
        let Some(last_failure) = since.iter().copied().max() else { return before };
        let more = i32::try_from(since.len()).unwrap_or(i32::MAX);
        Self { failures: before.failures.saturating_add(more), last_failure }
    }

    /// How much of the wait is left.
    pub(super) fn remaining(self, now: Time) -> Duration {
        remaining(self.failures, self.last_failure, now)
    }
}

/// How much of the wait after so many failures is left. A failure in the future makes it longer.
pub(super) fn remaining(failures: i32, last_failure: Option<Time>, now: Time) -> Duration {
    let Some(last_failure) = last_failure.filter(|_| failures > 0) else { return Duration::ZERO };
    // Six doublings are beyond the longest wait.
    let delay = (FIRST_SECONDS << (failures - 1).min(6)).min(SECONDS_MAX);
    let left = delay.saturating_sub(now.seconds_since(last_failure));
    Duration::from_secs(u64::try_from(left).unwrap_or(0))
}

/// When a pod ended, as well as can be told; that it never says is older than any time.
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
