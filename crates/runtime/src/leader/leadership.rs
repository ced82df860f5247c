//! The guard that writers ask: true only while nobody else can believe to lead.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::config::LeaderElectionConfig;
use crate::clock::Clocks;

/// How long past its lease a leader may look well without having renewed.
const HEALTH_TOLERANCE: Duration = Duration::from_secs(20);

/// Whether this process leads. Clones share one state; asking costs two clock readings.
#[derive(Clone)]
pub struct Leadership(Arc<Guard>);

enum Guard {
    /// Nobody is elected here: this process is the only one by the operator's word.
    Unelected,
    /// Held by renewing a Lease.
    Elected(Elected),
}

struct Elected {
    clocks: Clocks,
    lease_name: String,
    trusted_for: Duration,
    /// How old the last renewal may be before the health check fails.
    healthy_for: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The end of what the last renewal gave, by both clocks; none while the lease is not ours.
    until: Option<Until>,
    /// When this process last saw itself as the holder.
    seen_holding_at: Option<Duration>,
}

struct Until {
    monotonic: Duration,
    wall_nanoseconds: i64,
}

/// Both clocks, read before a renewal was sent: that is when others may have begun to count.
#[derive(Clone, Copy)]
pub(super) struct SentAt {
    pub(super) monotonic: Duration,
    pub(super) wall_nanoseconds: i64,
}

impl Leadership {
    /// For a process without election (`--leader-elect=false`): always held.
    #[must_use]
    pub fn without_election() -> Self {
        Self(Arc::new(Guard::Unelected))
    }

    pub(super) fn elected(settings: &LeaderElectionConfig, clocks: Clocks) -> Self {
        Self(Arc::new(Guard::Elected(Elected {
            clocks,
            lease_name: settings.lease.name.to_string(),
            trusted_for: settings.trusted_for(),
            healthy_for: settings.lease_duration + HEALTH_TOLERANCE,
            state: Mutex::default(),
        })))
    }

    /// Whether a write may leave now. Ask right before each one.
    ///
    /// False does not mean that the lease is lost for good: a renewal that is only late may still succeed. If it
    /// does not, [`Leading::hold`](super::Leading::hold) says so within seconds.
    #[must_use]
    pub fn still_held(&self) -> bool {
        let Guard::Elected(elected) = &*self.0 else { return true };
        let state = elected.state.lock();
        state.until.as_ref().is_some_and(|until| {
            elected.clocks.monotonic() < until.monotonic
                && elected.clocks.wall_nanoseconds() < until.wall_nanoseconds
        })
    }

    /// The health check `leaderElection`: a leader that has not renewed for long after its lease ran out
    /// should have ended itself, and is better restarted.
    ///
    /// # Errors
    /// If that is so.
    pub fn check(&self) -> Result<(), String> {
        let Guard::Elected(elected) = &*self.0 else { return Ok(()) };
        let seen_holding_at = elected.state.lock().seen_holding_at;
        match seen_holding_at {
            Some(at) if elected.clocks.monotonic() > at + elected.healthy_for => {
                Err(format!("failed election to renew leadership on lease {}", elected.lease_name))
            }
            _ => Ok(()),
        }
    }

    /// A write of our name into the lease, sent then, succeeded.
    pub(super) fn renewed(&self, sent: SentAt) {
        let Guard::Elected(elected) = &*self.0 else { return };
        let trusted_nanoseconds = i64::try_from(elected.trusted_for.as_nanos()).unwrap_or(i64::MAX);
        let mut state = elected.state.lock();
        state.until = Some(Until {
            monotonic: sent.monotonic + elected.trusted_for,
            wall_nanoseconds: sent.wall_nanoseconds.saturating_add(trusted_nanoseconds),
        });
        state.seen_holding_at = Some(elected.clocks.monotonic());
    }

    /// The lease is not ours, or must not be used any more.
    pub(super) fn revoke(&self) {
        if let Guard::Elected(elected) = &*self.0 {
            *elected.state.lock() = State::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    struct World {
        leadership: Leadership,
        wall: Arc<AtomicI64>,
        clocks: Clocks,
    }

    fn world() -> World {
        let wall = Arc::new(AtomicI64::new(1_000_000_000_000));
        let clocks = Clocks::new({
            let wall = Arc::clone(&wall);
            move || wall.load(Ordering::Relaxed)
        });
        let leadership = Leadership::elected(&LeaderElectionConfig::new("me".to_owned()), clocks.clone());
        World { leadership, wall, clocks }
    }

    impl World {
        fn sent(&self) -> SentAt {
            let monotonic = self.clocks.monotonic();
            SentAt { monotonic, wall_nanoseconds: self.clocks.wall_nanoseconds() }
        }

        /// Both clocks move, as they do when nothing but this process stands still.
        async fn pass(&self, time: Duration) {
            self.wall.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
            tokio::time::advance(time).await;
        }
    }

    /// A process stopped by a signal wakes to a guard that is already false: no task had to run for that.
    #[tokio::test(start_paused = true)]
    async fn a_pause_beyond_the_deadline_ends_the_trust_without_anybody_acting() {
        let world = world();
        assert!(!world.leadership.still_held(), "held before it was won");
        world.leadership.renewed(world.sent());
        world.pass(Duration::from_millis(9_999)).await;
        assert!(world.leadership.still_held());
        world.pass(Duration::from_millis(1)).await;
        assert!(!world.leadership.still_held());
        world.leadership.renewed(world.sent());
        assert!(world.leadership.still_held());
        world.leadership.revoke();
        assert!(!world.leadership.still_held());
    }

    /// The monotonic clock does not count the time a machine was suspended; the wall clock does.
    #[tokio::test(start_paused = true)]
    async fn a_suspended_machine_wakes_without_trust() {
        let world = world();
        world.leadership.renewed(world.sent());
        world.wall.fetch_add(60_000_000_000, Ordering::Relaxed);
        assert!(!world.leadership.still_held());
        // A wall clock that is set back must not make a lease last longer.
        world.wall.fetch_sub(3_600_000_000_000, Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!world.leadership.still_held());
    }

    #[tokio::test(start_paused = true)]
    async fn trust_counts_from_sending_and_not_from_the_answer() {
        let world = world();
        let sent = world.sent();
        world.pass(Duration::from_secs(4)).await;
        world.leadership.renewed(sent);
        world.pass(Duration::from_secs(6)).await;
        assert!(!world.leadership.still_held());
    }

    /// Proves LE-92, LE-93.
    #[tokio::test(start_paused = true)]
    async fn health_fails_only_for_a_leader_long_past_its_lease() {
        let world = world();
        world.pass(Duration::from_secs(100)).await;
        assert_eq!(world.leadership.check(), Ok(()), "a standby is well");
        world.leadership.renewed(world.sent());
        world.pass(Duration::from_secs(35)).await;
        assert_eq!(world.leadership.check(), Ok(()));
        world.pass(Duration::from_millis(1)).await;
        let error = "failed election to renew leadership on lease kube-controller-manager";
        assert_eq!(world.leadership.check(), Err(error.to_owned()));
        world.leadership.revoke();
        assert_eq!(world.leadership.check(), Ok(()));
    }

    #[test]
    fn without_election_the_lease_is_always_held() {
        let leadership = Leadership::without_election();
        assert!(leadership.still_held());
        assert_eq!(leadership.check(), Ok(()));
    }
}
