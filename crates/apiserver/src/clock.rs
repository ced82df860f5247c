//! Where the face reads the time: the machine, a constant, or the (possibly paused) clock of the async runtime.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// A source of wall-clock readings.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of the machine.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}

/// A clock that stands still.
pub fn fixed(at: Timestamp) -> Clock {
    Arc::new(move || at)
}

/// A clock that reads `start` now and moves with tokio's clock, so that a paused runtime decides the time.
///
/// Must be called inside a tokio runtime.
pub fn following_tokio(start: Timestamp) -> Clock {
    let origin = tokio::time::Instant::now();
    Arc::new(move || {
        let elapsed = SignedDuration::try_from(origin.elapsed()).unwrap_or_default();
        start.checked_add(elapsed).unwrap_or(start)
    })
}
