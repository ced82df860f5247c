//! The check before each write: true only while no other process can lead.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::config::LeaderElectionConfig;
use crate::clock::Clocks;

/// How long after its lease has expired a leader without a renewal still passes the health check.
const HEALTH_TOLERANCE: Duration = Duration::from_secs(20);

/// Whether this process leads. Clones share one state; a check costs two clock readings.
#[derive(Clone)]
pub struct Leadership(Arc<Guard>);

enum Guard {
    /// Without leader election: the operator ensures that this process is the only one.
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
    /// Until when the last renewal is trusted, by both clocks; `None` while this process does not hold the
    /// lease.
    until: Option<Until>,
    /// When this process last observed itself as the holder.
    observed_holding_at: Option<Duration>,
}

struct Until {
    monotonic: Duration,
    wall_nanoseconds: i64,
}

/// Both clocks, read before a renewal was sent: that is when other processes may have begun to count.
#[derive(Clone, Copy)]
pub(super) struct SentAt {
    pub(super) monotonic: Duration,
    pub(super) wall_nanoseconds: i64,
}

impl Leadership {
    /// For a process without leader election (`--leader-elect=false`): always held.
    #[must_use]
    pub fn without_election() -> Self {
        Self(Arc::new(Guard::Unelected))
    }

    pub(super) fn elected(config: &LeaderElectionConfig, clocks: Clocks) -> Self {
        Self(Arc::new(Guard::Elected(Elected {
            clocks,
            lease_name: config.lease.name.to_string(),
            trusted_for: config.trusted_for(),
            healthy_for: config.lease_duration + HEALTH_TOLERANCE,
            state: Mutex::default(),
        })))
    }

    /// Whether a write may be sent now. Check right before each one.
    ///
    /// False does not mean that the lease is lost for good: a renewal that is only late may still succeed. If
    /// it does not, [`Leading::hold`](super::Leading::hold) returns within seconds.
    #[must_use]
    pub fn still_held(&self) -> bool {
        let Guard::Elected(elected) = &*self.0 else { return true };
        let state = elected.state.lock();
        state.until.as_ref().is_some_and(|until| {
            elected.clocks.monotonic() < until.monotonic
                && elected.clocks.wall_nanoseconds() < until.wall_nanoseconds
        })
    }

    /// The health check `leaderElection`: a leader that has not renewed for long after its lease expired
    /// should have ended itself, and is better restarted.
    ///
    /// # Errors
    /// If that is so.
    pub fn check(&self) -> Result<(), String> {
        let Guard::Elected(elected) = &*self.0 else { return Ok(()) };
        let observed_holding_at = elected.state.lock().observed_holding_at;
        match observed_holding_at {
            Some(at) if elected.clocks.monotonic() > at + elected.healthy_for => {
                Err(format!("failed election to renew leadership on lease {}", elected.lease_name))
            }
            _ => Ok(()),
        }
    }

    /// A renewal that was sent at this time has succeeded.
    pub(super) fn renewed(&self, sent: SentAt) {
        let Guard::Elected(elected) = &*self.0 else { return };
        let trusted_nanoseconds = i64::try_from(elected.trusted_for.as_nanos()).unwrap_or(i64::MAX);
        let mut state = elected.state.lock();
        state.until = Some(Until {
            monotonic: sent.monotonic + elected.trusted_for,
            wall_nanoseconds: sent.wall_nanoseconds.saturating_add(trusted_nanoseconds),
        });
        state.observed_holding_at = Some(elected.clocks.monotonic());
    }

    /// This process does not hold the lease, or must not use it any more.
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

    struct TestProcess {
        leadership: Leadership,
        wall: Arc<AtomicI64>,
        clocks: Clocks,
    }

    fn process() -> TestProcess {
        let wall = Arc::new(AtomicI64::new(1_000_000_000_000));
        let clocks = Clocks::new({
            let wall = Arc::clone(&wall);
            move || wall.load(Ordering::Relaxed)
        });
        let leadership = Leadership::elected(&LeaderElectionConfig::new("me".to_owned()), clocks.clone());
        TestProcess { leadership, wall, clocks }
    }

    impl TestProcess {
        fn sent(&self) -> SentAt {
            let monotonic = self.clocks.monotonic();
            SentAt { monotonic, wall_nanoseconds: self.clocks.wall_nanoseconds() }
        }

        /// Both clocks advance, as they do when only this process stands still.
        async fn advance(&self, time: Duration) {
            self.wall.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
            tokio::time::advance(time).await;
        }
    }

    /// For a process resumed after SIGSTOP the check is already false: no task had to run for that.
    #[tokio::test(start_paused = true)]
    async fn pause_beyond_the_renew_deadline_ends_leadership_without_any_task_running() {
        let process = process();
        assert!(!process.leadership.still_held(), "held before it was acquired");
        process.leadership.renewed(process.sent());
        process.advance(Duration::from_millis(9_999)).await;
        assert!(process.leadership.still_held());
        process.advance(Duration::from_millis(1)).await;
        assert!(!process.leadership.still_held());
        process.leadership.renewed(process.sent());
        assert!(process.leadership.still_held());
        process.leadership.revoke();
        assert!(!process.leadership.still_held());
    }

    /// The monotonic clock does not count the time a machine was suspended; the wall clock does.
    #[tokio::test(start_paused = true)]
    async fn machine_resumes_from_suspend_without_leadership() {
        let process = process();
        process.leadership.renewed(process.sent());
        process.wall.fetch_add(60_000_000_000, Ordering::Relaxed);
        assert!(!process.leadership.still_held());
        // A wall clock that is set back must not extend a lease.
        process.wall.fetch_sub(3_600_000_000_000, Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!process.leadership.still_held());
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_trusted_from_sending_the_renewal_not_from_its_response() {
        let process = process();
        let sent = process.sent();
        process.advance(Duration::from_secs(4)).await;
        process.leadership.renewed(sent);
        process.advance(Duration::from_secs(6)).await;
        assert!(!process.leadership.still_held());
    }

    /// Proves LE-92, LE-93.
    #[tokio::test(start_paused = true)]
    async fn health_fails_only_for_a_leader_long_past_its_lease() {
        let process = process();
        process.advance(Duration::from_secs(100)).await;
        assert_eq!(process.leadership.check(), Ok(()), "a standby is healthy");
        process.leadership.renewed(process.sent());
        process.advance(Duration::from_secs(35)).await;
        assert_eq!(process.leadership.check(), Ok(()));
        process.advance(Duration::from_millis(1)).await;
        let error = "failed election to renew leadership on lease kube-controller-manager";
        assert_eq!(process.leadership.check(), Err(error.to_owned()));
        process.leadership.revoke();
        assert_eq!(process.leadership.check(), Ok(()));
    }

    #[test]
    fn without_election_the_lease_is_always_held() {
        let leadership = Leadership::without_election();
        assert!(leadership.still_held());
        assert_eq!(leadership.check(), Ok(()));
    }
}
