//! Remembers how often pods of a DaemonSet had to be killed on a node, so that a node which refuses them is
//! not flooded.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{InternedStr, Uid};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// After so long without a kill everything is forgiven.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 60);

/// Which kills belong together: those of one DaemonSet, as its wish was last seen, on one node.
pub(super) type BackoffKey = (Uid, i64, InternedStr);

/// What is lost with the process: a node that refuses pods gets a few of them quicker than before.
#[derive(Default)]
pub(super) struct FailedPodBackoff(BTreeMap<BackoffKey, Kill>);

struct Kill {
    pause: Duration,
    at: Duration,
}

impl FailedPodBackoff {
    /// How long to wait before the next kill; nothing if it may be now.
    pub(super) fn pause(&self, place: &BackoffKey, now: Duration) -> Option<Duration> {
        let last = self.0.get(place)?;
        (now.saturating_sub(last.at) < last.pause).then_some(last.pause)
    }

    /// Notes a kill.
    pub(super) fn note(&mut self, place: BackoffKey, now: Duration) {
        self.0.retain(|_, kill| now.saturating_sub(kill.at) <= FORGOTTEN_AFTER);
        let pause = self.0.get(&place).map_or(FIRST, |last| (last.pause * 2).min(LONGEST));
        self.0.insert(place, Kill { pause, at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves DS-51.
    #[test]
    fn pauses_double_and_are_forgotten() {
        let (mut kills, place) = (FailedPodBackoff::default(), (Uid::from("u"), 1, InternedStr::from("n")));
        let mut now = Duration::from_secs(1000);
        assert_eq!(kills.pause(&place, now), None);
        for seconds in [1, 2, 4, 8] {
            kills.note(place.clone(), now);
            assert_eq!(kills.pause(&place, now), Some(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert_eq!(kills.pause(&place, now), None);
        }
        for _ in 0..20 {
            kills.note(place.clone(), now);
        }
        assert_eq!(kills.pause(&place, now), Some(LONGEST));
        now += FORGOTTEN_AFTER + Duration::from_secs(1);
        kills.note(place.clone(), now);
        assert_eq!(kills.pause(&place, now), Some(FIRST));
        assert_eq!(kills.pause(&(Uid::from("u"), 2, InternedStr::from("n")), now), None);
    }
}
