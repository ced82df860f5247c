//! Adds the managers' log lines to the transcript, beside the writes that they explain.
//!
//! One global subscriber serves all threads. With one per storm, a storm on another thread that reaches a
//! log line first could disable that callsite for all, and the transcript would depend on timing.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Once};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::recorder::Recorder;

thread_local! {
    /// The recorder of the storm on this thread, if its log is captured.
    static RECORDER: RefCell<Option<Arc<Recorder>>> = const { RefCell::new(None) };
}

/// Captures the log of this thread until it is dropped.
pub struct LogCapture(());

/// Records the log lines of this thread.
#[must_use]
pub fn capture(recorder: &Arc<Recorder>) -> LogCapture {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let text = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_level(false)
            .with_writer(LineWriters);
        let targets = Targets::new()
            .with_target("keleustes_runtime::executor", LevelFilter::DEBUG)
            .with_target("keleustes_runtime", LevelFilter::WARN);
        // If another subscriber is installed, the log goes there.
        let _ =
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(text).with(targets));
    });
    RECORDER.set(Some(recorder.clone()));
    LogCapture(())
}

impl Drop for LogCapture {
    fn drop(&mut self) {
        RECORDER.set(None);
    }
}

struct LineWriters;

/// One log line while it is written.
#[derive(Default)]
struct Line(Vec<u8>);

impl MakeWriter<'_> for LineWriters {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line::default()
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = String::from_utf8_lossy(&self.0);
        RECORDER.with_borrow(|recorder| {
            if let Some(recorder) = recorder {
                recorder.record(format_args!("    {}", line.trim_end()));
            }
        });
    }
}
