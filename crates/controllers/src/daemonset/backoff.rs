//! Backoff for the deletion of failed daemon pods, so that a node that keeps rejecting them is not flooded
//! (upstream: failedPodsBackoff).

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{InternedStr, Uid};
use keleustes_rate::Backoff;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// An entry is dropped after this time without a deletion.
const EXPIRES_AFTER: Duration = Duration::from_secs(30 * 60);

/// One backoff: of a DaemonSet (by UID), its observed generation, and a node.
pub(super) type BackoffKey = (Uid, i64, InternedStr);

/// The backoffs. They are lost with the process: a node that rejects pods then gets a few of them without
/// delay.
#[derive(Clone, Default)]
pub(super) struct FailedPodBackoff(BTreeMap<BackoffKey, Backoff>);

impl FailedPodBackoff {
    /// The delay before the next deletion; `None` if a pod may be deleted now.
    pub(super) fn delay(&self, key: &BackoffKey, now: Duration) -> Option<Duration> {
        self.0.get(key).filter(|backoff| backoff.is_waiting(now)).map(Backoff::delay)
    }

    /// Forgets the backoffs that have expired, once for all deletions of a reconcile.
    pub(super) fn drop_expired(&mut self, now: Duration) {
        self.0.retain(|_, backoff| now.saturating_sub(backoff.failed_at()) <= EXPIRES_AFTER);
    }

    /// Records a deletion and doubles the delay.
    pub(super) fn record_deletion(&mut self, key: BackoffKey, now: Duration) {
        self.0.entry(key).or_default().record_failure(now, FIRST, LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves DS-51.
    #[test]
    fn delays_double_and_expire() {
        let (mut backoff, key) = (FailedPodBackoff::default(), (Uid::from("u"), 1, InternedStr::from("n")));
        let mut now = Duration::from_secs(1000);
        assert_eq!(backoff.delay(&key, now), None);
        for seconds in [1, 2, 4, 8] {
            backoff.record_deletion(key.clone(), now);
            assert_eq!(backoff.delay(&key, now), Some(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert_eq!(backoff.delay(&key, now), None);
        }
        for _ in 0..20 {
            backoff.record_deletion(key.clone(), now);
        }
        assert_eq!(backoff.delay(&key, now), Some(LONGEST));
        now += EXPIRES_AFTER + Duration::from_secs(1);
        backoff.drop_expired(now);
        backoff.record_deletion(key.clone(), now);
        assert_eq!(backoff.delay(&key, now), Some(FIRST));
        assert_eq!(backoff.delay(&(Uid::from("u"), 2, InternedStr::from("n")), now), None);
    }
}
