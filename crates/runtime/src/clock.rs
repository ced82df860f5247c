//! The two clocks and the one source of randomness, which are always passed in.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::Time;
use keleustes_plan::Now;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The clocks of a process. Monotonic time is tokio's, so pausing or advancing tokio's time in a test moves
/// every clock here with it.
#[derive(Clone)]
pub struct Clocks {
    wall: Arc<dyn Fn() -> i64 + Send + Sync>,
    started: Instant,
}

impl Clocks {
    /// Clocks whose wall time, in nanoseconds since 1970, is read from a function.
    pub fn new(wall_nanoseconds: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self { wall: Arc::new(wall_nanoseconds), started: Instant::now() }
    }

    /// Both clocks, read now.
    #[must_use]
    pub fn now(&self) -> Now {
        let nanoseconds = self.wall_nanoseconds();
        Now {
            wall: Time::from_unix_seconds(nanoseconds.div_euclid(1_000_000_000)),
            wall_subsecond_nanoseconds: u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).unwrap_or(0),
            monotonic: self.monotonic(),
        }
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn wall_nanoseconds(&self) -> i64 {
        (self.wall)()
    }

    /// Time since the clocks were created.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    /// The instant at which monotonic time reaches this value. A time that no instant can represent, such as a deadline in
    /// the API of 2^63 seconds, is decades away.
    #[must_use]
    pub fn instant(&self, monotonic: Duration) -> Instant {
        const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
        self.started.checked_add(monotonic).unwrap_or_else(|| Instant::now() + FAR)
    }
}

/// The source of randomness: everything random in a process derives from one seed.
#[derive(Clone)]
pub struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    /// A source that gives the same sequence for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// An independent generator for one part, so that parts do not disturb each other's sequences.
    #[must_use]
    pub fn fork(&self) -> fastrand::Rng {
        self.0.lock().fork()
    }
}
