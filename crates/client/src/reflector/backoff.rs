//! How long a reflector waits after a failure: longer each time, never in step with others.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
const FORGET_AFTER: Duration = Duration::from_secs(120);

/// Parity: the reflector's delay function in `client-go/tools/cache`.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    last_at: Option<Instant>,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST, last_at: None }
    }

    /// The next wait. Jitter comes on top of the longest wait too, so a wait takes up to a minute.
    pub(super) fn wait(&mut self, now: Instant, chance: &mut fastrand::Rng) -> Duration {
        if self.last_at.is_some_and(|last| now.duration_since(last) > FORGET_AFTER) {
            self.next = FIRST;
        }
        self.last_at = Some(now);
        let base = self.next;
        self.next = (base * 2).min(LONGEST);
        base.mul_f64(1.0 + chance.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves INF-27.
    #[test]
    fn waits_double_to_thirty_seconds_with_jitter_and_start_over_after_two_minutes() {
        let mut chance = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new();
        let mut now = Instant::now();
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let wait = backoff.wait(now, &mut chance);
            assert!((base..base * 2.0).contains(&wait.as_secs_f64()), "{base}: {wait:?}");
            now += wait;
        }
        now += Duration::from_secs(121);
        let wait = backoff.wait(now, &mut chance);
        assert!((0.8..1.6).contains(&wait.as_secs_f64()), "{wait:?}");
    }

    #[test]
    fn two_reflectors_do_not_wait_in_step() {
        let now = Instant::now();
        let one = Backoff::new().wait(now, &mut fastrand::Rng::with_seed(1));
        let two = Backoff::new().wait(now, &mut fastrand::Rng::with_seed(2));
        assert_ne!(one, two);
    }
}
