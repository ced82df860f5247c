//! The reflector's exponential backoff with jitter.

use std::time::Duration;

use tokio::time::Instant;

const INITIAL: Duration = Duration::from_millis(800);
const MAX: Duration = Duration::from_secs(30);
const RESET_AFTER: Duration = Duration::from_secs(120);

/// Parity: the reflector's delay function in `client-go/tools/cache`.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    last_at: Option<Instant>,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: INITIAL, last_at: None }
    }

    /// The next delay. Jitter is added to the maximum of 30 seconds too, so a delay can be up to a minute.
    pub(super) fn delay(&mut self, now: Instant, rng: &mut fastrand::Rng) -> Duration {
        if self.last_at.is_some_and(|last| now.duration_since(last) > RESET_AFTER) {
            self.next = INITIAL;
        }
        self.last_at = Some(now);
        let base = self.next;
        self.next = (base * 2).min(MAX);
        base.mul_f64(1.0 + rng.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves INF-27.
    #[test]
    fn backoff_doubles_to_thirty_seconds_with_jitter_and_resets_after_two_minutes() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff::new();
        let mut now = Instant::now();
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let delay = backoff.delay(now, &mut rng);
            assert!((base..base * 2.0).contains(&delay.as_secs_f64()), "{base}: {delay:?}");
            now += delay;
        }
        now += Duration::from_secs(121);
        let delay = backoff.delay(now, &mut rng);
        assert!((0.8..1.6).contains(&delay.as_secs_f64()), "{delay:?}");
    }

    #[test]
    fn reflectors_with_different_seeds_have_different_jitter() {
        let now = Instant::now();
        let one = Backoff::new().delay(now, &mut fastrand::Rng::with_seed(1));
        let two = Backoff::new().delay(now, &mut fastrand::Rng::with_seed(2));
        assert_ne!(one, two);
    }
}
