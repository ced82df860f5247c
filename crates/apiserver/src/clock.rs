//! Clocks for the service: the system clock, a constant, or the (possibly paused) clock of the tokio runtime.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// A source of wall-clock readings.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The system clock.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}

/// A clock that always returns `at`.
pub fn fixed(at: Timestamp) -> Clock {
    Arc::new(move || at)
}

/// A clock that reads `start` now and advances with tokio's clock, so that a paused runtime controls the time.
///
/// Must be called inside a tokio runtime.
pub fn following_tokio(start: Timestamp) -> Clock {
    let origin = tokio::time::Instant::now();
    Arc::new(move || {
        let elapsed = SignedDuration::try_from(origin.elapsed()).unwrap_or_default();
        start.checked_add(elapsed).unwrap_or(start)
    })
}
