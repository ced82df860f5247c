//! The log: to stderr, in the original's two formats, filtered by `--v` and `--vmodule`.
//!
//! The original's verbosity is a number, our crates log with levels. Warnings and errors are always logged;
//! `info` is verbosity 0, `debug` 4, `trace` 6; where the original has another number, the line's target ends with it
//! (`::v3`). No crate logs bodies of requests or responses, so no verbosity
//! shows a secret.

mod fields;
mod formats;
mod verbosity;

use std::io::Write as _;

use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

pub(crate) use self::formats::LogFormat;
pub(crate) use self::verbosity::Verbosity;

/// The format and the verbosity that the flags set.
pub(crate) fn from_options(logs: &keleustes_options::Logs) -> (LogFormat, Verbosity) {
    let form = match logs.format {
        keleustes_options::LogFormat::Text => LogFormat::Text,
        keleustes_options::LogFormat::Json => LogFormat::Json,
    };
    (form, Verbosity::new(logs.verbosity, logs.vmodule.clone()))
}

/// Starts logging, including panics.
pub(crate) fn start(form: LogFormat, verbosity: Verbosity) {
    let log = Log { form, verbosity };
    tracing_subscriber::registry().with(log).init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let panicked = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, panicked, "Observed a panic");
    }));
}

/// Logs why the process ends before [`start`], because its flags fail validation.
pub(crate) fn command_failed(message: &str) {
    let log = Log { form: LogFormat::Text, verbosity: Verbosity::new(0, Vec::new()) };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
        tracing::error!(err = message, "command failed");
    });
}

struct Log {
    form: LogFormat,
    verbosity: Verbosity,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        self.verbosity.enables(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = self.form.line(event, jiff::Timestamp::now());
        // A log that cannot be written must not end the manager.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}
