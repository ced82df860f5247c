//! One clock for stamps and for waiting: it starts at a wall time and moves with the async runtime's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keleustes_objects::Time;
use tokio::time::Instant;

/// Wall time that moves with tokio's clock, so that a paused runtime decides the time.
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

    /// When the runtime's clock will have come to a wall time.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        self.started + since(at, self.wall)
    }
}

/// The time this long after another.
pub(crate) fn after(at: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// How long after another a time is; nothing if it is before.
pub(crate) fn since(at: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(earlier)).unwrap_or_default()
}

/// A time as most fields of the API write it.
pub(crate) fn stamp(at: Timestamp) -> Time {
    Time::from_unix_seconds(at.as_second())
}
