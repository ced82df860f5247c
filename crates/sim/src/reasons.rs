//! Why things are written: what a manager says about its writes goes into the transcript beside them.

use std::io::Write;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::witness::Witness;

/// Listens on this thread until it is dropped.
#[must_use]
pub fn listen(witness: &Arc<Witness>) -> DefaultGuard {
    let text = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_level(false)
        .with_writer(Pen(witness.clone()));
    let heard = Targets::new()
        .with_target("keleustes_runtime::executor", LevelFilter::DEBUG)
        .with_target("keleustes_runtime", LevelFilter::WARN);
    tracing::subscriber::set_default(tracing_subscriber::registry().with(text).with(heard))
}

struct Pen(Arc<Witness>);

/// One line, while it is written.
struct Line {
    witness: Arc<Witness>,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Pen {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { witness: self.0.clone(), bytes: Vec::new() }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.witness.note(format_args!("    {}", String::from_utf8_lossy(&self.bytes).trim_end()));
    }
}
