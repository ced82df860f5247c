//! Why things are written: what a manager says about its writes goes into the transcript beside them.
//!
//! One subscriber serves all threads. With one for each storm, a storm on another thread that meets a line of the log
//! first could switch it off for all: what is heard would depend on speed.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Once};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::witness::Witness;

thread_local! {
    /// Who writes down what is said on this thread, if somebody does.
    static LISTENER: RefCell<Option<Arc<Witness>>> = const { RefCell::new(None) };
}

/// Somebody listens on this thread until this is dropped.
pub struct Listening(());

/// Lets a witness write down what is said on this thread.
#[must_use]
pub fn listen(witness: &Arc<Witness>) -> Listening {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let text = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_level(false)
            .with_writer(Pen);
        let heard = Targets::new()
            .with_target("keleustes_runtime::executor", LevelFilter::DEBUG)
            .with_target("keleustes_runtime", LevelFilter::WARN);
        // Whoever has set another one before wants the log elsewhere.
        let _ =
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(text).with(heard));
    });
    LISTENER.set(Some(witness.clone()));
    Listening(())
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENER.set(None);
    }
}

struct Pen;

/// One line, while it is written.
#[derive(Default)]
struct Line(Vec<u8>);

impl MakeWriter<'_> for Pen {
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
        LISTENER.with_borrow(|listener| {
            if let Some(witness) = listener {
                witness.note(format_args!("    {}", line.trim_end()));
            }
        });
    }
}
