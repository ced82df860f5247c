//! Captures what a test's own thread logs, completely and independently of other tests.
//!
//! `tracing` disables a callsite permanently if no subscriber is interested when it is first reached. If that
//! happens while another thread is installing its subscriber, that subscriber misses the line. So there is
//! one global subscriber that keeps every callsite enabled and records nothing.

use std::io::Write;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

/// The log of a test's thread, line by line, without times and targets.
#[derive(Clone, Default)]
pub struct TestLog(Arc<Mutex<Vec<u8>>>);

impl TestLog {
    /// Captures lines of this level and above on this thread, until the guard is dropped.
    #[must_use]
    pub fn capture(level: Level) -> (Self, DefaultGuard) {
        static KEEP_CALLSITES_ENABLED: Once = Once::new();
        KEEP_CALLSITES_ENABLED.call_once(|| {
            let subscriber_without_output =
                tracing_subscriber::registry().with(dynamic_filter_fn(|_, _| false));
            // A global subscriber that was set before serves the same purpose.
            let _ = tracing::subscriber::set_global_default(subscriber_without_output);
        });
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(log.clone());
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    /// Everything captured so far.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    /// The lines that contain all these words.
    #[must_use]
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let text = self.text();
        let matches = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().filter(matches).map(str::to_owned).collect()
    }

    /// How many lines contain all these words.
    #[must_use]
    pub fn count(&self, words: &[&str]) -> usize {
        self.lines(words).len()
    }
}

impl Write for TestLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for TestLog {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_thread_and_these_levels_are_captured() {
        let (log, _guard) = TestLog::capture(Level::INFO);
        tracing::info!(oars = 2, "rowing");
        tracing::debug!("resting");
        std::thread::scope(|scope| {
            scope.spawn(|| tracing::info!("rowing on another thread"));
        });
        assert_eq!(log.lines(&["rowing", "oars=2"]), [" INFO rowing oars=2"]);
        assert_eq!(log.count(&[]), 1);
    }
}
