//! What a kernel is built with; nothing here changes while it runs.

use std::time::Duration;

use super::clusterip::Range;
use super::users::{TokenVerifier, User};

/// Settings of a kernel.
#[derive(Debug, Clone)]
pub struct KernelOptions {
    /// Seed of uids, generated names, addresses and tokens.
    pub seed: u64,
    /// How many changes are kept for watches and old lists.
    pub history_limit: usize,
    /// How many bytes of objects as they were are kept for watches and old lists.
    pub history_bytes_max: usize,
    /// Whether roles decide what a user may do; without, everybody may do everything.
    pub rbac: bool,
    /// Whether the objects a real server makes when it starts are made: roles and bindings, priority classes, the
    /// `kubernetes` Service. Namespaces are always made.
    pub bootstrap: bool,
    /// Whether pods need their ServiceAccount to exist and get its token mounted.
    pub service_accounts: bool,
    /// How long events live after they were last written.
    pub event_ttl: Option<Duration>,
    /// Where Services get their addresses from.
    pub service_range: Range,
    /// Lowest and highest node port.
    pub node_ports: (u16, u16),
    /// How many watches may be open at once; more are refused with 429.
    pub watches_max: usize,
    /// How many changes may wait for a slow watcher before its watch is ended.
    pub frames_max: usize,
    /// How many bytes may wait for all watchers together before the slowest is ended.
    pub backlog_bytes_max: usize,
    /// How long a watch lasts at least whose client names no end, and half of how long it lasts at most.
    pub watch_timeout_min: Duration,
    /// Tokens known from the start, and whose they are.
    pub tokens: Vec<(String, User)>,
    /// Tells whose token it is when the kernel does not know it.
    pub verifier: Option<TokenVerifier>,
    /// Whether objects stay parsed: who reads them past the HTTP face all the time is served ten times as fast, for
    /// ten times the memory.
    pub keep_parsed: bool,
    /// Whether changes are recorded for [`super::Kernel::take_journal`].
    pub journal: bool,
}

impl Default for KernelOptions {
    fn default() -> KernelOptions {
        KernelOptions {
            seed: 0,
            history_limit: 100_000,
            history_bytes_max: 512 * 1024 * 1024,
            rbac: false,
            bootstrap: false,
            service_accounts: false,
            event_ttl: None,
            // The range is written here and a test reads it.
            service_range: Range::parse("10.96.0.0/16")
                .unwrap_or_else(|| unreachable!("10.96.0.0/16 is a range")),
            node_ports: (30_000, 32_767),
            watches_max: 20_000,
            frames_max: 100_000,
            backlog_bytes_max: 256 * 1024 * 1024,
            watch_timeout_min: Duration::from_secs(30 * 60),
            tokens: Vec::new(),
            verifier: None,
            keep_parsed: false,
            journal: false,
        }
    }
}
