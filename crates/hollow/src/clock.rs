//! One clock for timestamps and timers: it starts at a wall-clock time and follows tokio's clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keleustes_objects::Time;
use tokio::time::Instant;

/// Wall-clock time that follows tokio's clock, so that a paused runtime controls the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    wall: Timestamp,
}

impl Clock {
    /// A clock that reads `wall` now.
    pub(crate) fn starting_at(wall: Timestamp) -> Self {
        Self { started: Instant::now(), wall }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Timestamp {
        after(self.wall, self.started.elapsed())
    }

    /// The tokio instant of a wall-clock time.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        self.started + since(at, self.wall)
    }
}

/// The time `wait` after `at`.
pub(crate) fn after(at: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// The duration from `earlier` to `at`; zero if `at` is before.
pub(crate) fn since(at: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(earlier)).unwrap_or_default()
}

/// A time in the API's second resolution.
pub(crate) fn stamp(at: Timestamp) -> Time {
    Time::from_unix_seconds(at.as_second())
}
