//! Where the log goes and how much of it: stderr, as text or JSON.

use tracing_subscriber::EnvFilter;

use crate::flags::LoggingFlags;

/// Starts logging, and has panics logged too.
pub(crate) fn start(flags: &LoggingFlags) {
    let level = match flags.v {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    };
    // Our own crates follow --v; what the libraries below us have to say starts being of interest later.
    let libraries = if flags.v >= 8 { "debug" } else { "warn" };
    let ours = ["manager", "runtime", "client", "serving", "controllers"];
    let ours = ours.map(|room| format!("keleustes_{room}={level}")).join(",");
    let filter = EnvFilter::new(format!("{libraries},kube_controller_manager={level},{ours}"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    if flags.logging_format == "json" {
        log.json().init()
    } else {
        log.init()
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, message, "panic");
    }));
}
