//! What a test's own thread logs, heard in full whatever other tests do meanwhile.
//!
//! A line of the log is switched off for good where nobody is interested in it at the moment it is first reached.
//! When that moment and the start of a listener on another thread coincide, the listener goes without the line. So
//! there is one listener for the whole process that is never quite uninterested, and hears nothing.

use std::io::Write;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

/// What was logged on the thread of a test, line by line, without times and targets.
#[derive(Clone, Default)]
pub struct TestLog(Arc<Mutex<Vec<u8>>>);

impl TestLog {
    /// Listens on this thread, to this level and all above it, until the guard is dropped.
    #[must_use]
    pub fn capture(level: Level) -> (Self, DefaultGuard) {
        static NEVER_UNINTERESTED: Once = Once::new();
        NEVER_UNINTERESTED.call_once(|| {
            let nothing = tracing_subscriber::registry().with(dynamic_filter_fn(|_, _| false));
            // Whoever has set another one before has an interest of their own.
            let _ = tracing::subscriber::set_global_default(nothing);
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

    /// Everything so far.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    /// The lines in which all these words stand.
    #[must_use]
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let text = self.text();
        let fits = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().filter(fits).map(str::to_owned).collect()
    }

    /// How many lines have all these words.
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
    fn only_this_thread_and_these_levels_are_heard() {
        let (log, _listening) = TestLog::at(Level::INFO);
        tracing::info!(oars = 2, "rowing");
        tracing::debug!("resting");
        std::thread::scope(|scope| {
            scope.spawn(|| tracing::info!("somebody else rowing"));
        });
        assert_eq!(log.lines(&["rowing", "oars=2"]), [" INFO rowing oars=2"]);
        assert_eq!(log.count(&[]), 1);
    }
}
