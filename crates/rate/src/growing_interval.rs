//! The interval between two writes of the same thing, which grows while they follow each other closely.

use std::time::Duration;

/// A pause after an action. If the next action follows within the same time again, its pause is twice as long, up to a
/// limit; after a quiet time the first pause is short again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrowingInterval {
    ends_at: Duration,
    length: Duration,
}

impl GrowingInterval {
    /// Starts the pause after an action: at least `first`, and twice the previous one, up to `longest`, if that ended
    /// less than its own length ago.
    pub fn start(&mut self, now: Duration, first: Duration, longest: Duration) {
        let in_series = now < self.ends_at.saturating_add(self.length);
        let doubled = if in_series { (2 * self.length).min(longest) } else { Duration::ZERO };
        self.restart(now, first.max(doubled));
    }

    /// Starts the pause again, for a further action of the same series: at least `first`, and as long as before.
    pub fn extend(&mut self, now: Duration, first: Duration) {
        self.restart(now, first.max(self.length));
    }

    fn restart(&mut self, now: Duration, length: Duration) {
        *self = Self { ends_at: now.saturating_add(length), length };
    }

    /// Ends the pause and the series.
    pub fn cancel(&mut self) {
        self.ends_at = Duration::ZERO;
    }

    /// When the pause ends; zero if there was none.
    #[must_use]
    pub fn ends_at(&self) -> Duration {
        self.ends_at
    }

    /// How long the pause still lasts.
    #[must_use]
    pub fn remaining(&self, now: Duration) -> Duration {
        self.ends_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(1);
    const BEGIN: Duration = Duration::from_secs(1000);

    #[test]
    fn interval_doubles_while_actions_follow_each_other_and_shrinks_after_a_quiet_time() {
        let (mut interval, mut now) = (GrowingInterval::default(), BEGIN);
        let mut lengths = Vec::new();
        for _ in 0..5 {
            interval.start(now, FIRST, LONGEST);
            lengths.push(interval.remaining(now).as_millis());
            now = interval.ends_at();
        }
        assert_eq!(lengths, [200, 400, 800, 1000, 1000]);
        now += LONGEST - Duration::from_millis(1);
        interval.start(now, FIRST, LONGEST);
        assert_eq!(interval.remaining(now), LONGEST, "still in the series");
        now = interval.ends_at() + LONGEST;
        interval.start(now, FIRST, LONGEST);
        assert_eq!(interval.remaining(now), FIRST);
    }

    #[test]
    fn extended_interval_keeps_its_length() {
        let mut interval = GrowingInterval::default();
        interval.start(BEGIN, FIRST, LONGEST);
        interval.extend(BEGIN + FIRST / 2, FIRST);
        assert_eq!(interval.ends_at(), BEGIN + FIRST + FIRST / 2);
        interval.extend(BEGIN + FIRST / 2, LONGEST);
        assert_eq!(interval.ends_at(), BEGIN + LONGEST + FIRST / 2);
    }

    #[test]
    fn cancelled_interval_ends_the_series() {
        let mut interval = GrowingInterval::default();
        interval.start(BEGIN, FIRST, LONGEST);
        interval.cancel();
        assert_eq!(interval.remaining(BEGIN), Duration::ZERO);
        interval.start(BEGIN, FIRST, LONGEST);
        assert_eq!(interval.remaining(BEGIN), FIRST);
    }
}
