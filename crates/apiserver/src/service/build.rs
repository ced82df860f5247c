//! How a server is set up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::log::RequestLog;
use super::{ApiServer, Shared, State};
use crate::clock::{self, Clock};
use crate::kernel::{JournalEntry, Kernel, KernelOptions, Range, TokenVerifier, User};

/// Settings of a new server.
pub struct Builder {
    settings: KernelOptions,
    log_limit: usize,
    bookmark_interval: Duration,
    clock: Clock,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            settings: KernelOptions::default(),
            log_limit: 100_000,
            bookmark_interval: Duration::from_secs(60),
            clock: clock::system(),
        }
    }
}

impl Builder {
    /// Seed of uids, generated names and tokens.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.settings.seed = seed;
        self
    }

    /// How many changes are kept for watches and old lists.
    pub fn history_limit(mut self, events: usize) -> Builder {
        self.settings.history_limit = events;
        self
    }

    /// How many bytes of objects as they were are kept for watches and old lists.
    pub fn history_bytes_max(mut self, bytes: usize) -> Builder {
        self.settings.history_bytes_max = bytes;
        self
    }

    /// How many requests [`ApiServer::requests`] remembers; 0 turns the log off.
    pub fn request_log_limit(mut self, requests: usize) -> Builder {
        self.log_limit = requests;
        self
    }

    /// Where the server reads the time.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Whether roles decide what users may do. The roles a real server brings come with it.
    pub fn rbac(mut self, on: bool) -> Builder {
        self.settings.rbac = on;
        self.settings.bootstrap |= on;
        self
    }

    /// Whether the objects a real server makes when it starts are there: roles, bindings, priority classes, the
    /// `kubernetes` Service.
    pub fn bootstrap(mut self, on: bool) -> Builder {
        self.settings.bootstrap = on;
        self
    }

    /// Whether pods need their ServiceAccount and get its token mounted, as by the real admission plug-in.
    pub fn service_accounts(mut self, on: bool) -> Builder {
        self.settings.service_accounts = on;
        self
    }

    /// How long events live after they were last written; for ever if this is not called.
    pub fn event_ttl(mut self, ttl: Duration) -> Builder {
        self.settings.event_ttl = Some(ttl);
        self
    }

    /// Where Services get their addresses from.
    pub fn service_range(mut self, range: Range) -> Builder {
        self.settings.service_range = range;
        self
    }

    /// How many watches may be open at once.
    pub fn watches_max(mut self, watches: usize) -> Builder {
        self.settings.watches_max = watches;
        self
    }

    /// How often watches are told how far the server has come, if they want to know; a minute by default.
    pub fn bookmark_interval(mut self, time: Duration) -> Builder {
        self.bookmark_interval = time;
        self
    }

    /// How long watches last at least whose clients name no end; half an hour by default. They last up to twice as long.
    pub fn watch_timeout_min(mut self, time: Duration) -> Builder {
        self.settings.watch_timeout_min = time;
        self
    }

    /// How many bytes may wait for all watchers together before the slowest is ended.
    pub fn backlog_bytes_max(mut self, bytes: usize) -> Builder {
        self.settings.backlog_bytes_max = bytes;
        self
    }

    /// How many changes may wait for a watcher that does not read before its watch is ended.
    pub fn frames_max(mut self, frames: usize) -> Builder {
        self.settings.frames_max = frames;
        self
    }

    /// A bearer token and whose it is.
    pub fn token(mut self, token: &str, user: User) -> Builder {
        self.settings.tokens.push((token.to_owned(), user));
        self
    }

    /// Who tells whose token it is when the server does not know it: tokens signed by somebody else's keys.
    pub fn verifier(mut self, verifier: TokenVerifier) -> Builder {
        self.settings.verifier = Some(verifier);
        self
    }

    /// Whether objects stay parsed, for whoever reads them past the HTTP face all the time.
    pub fn keep_parsed(mut self, on: bool) -> Builder {
        self.settings.keep_parsed = on;
        self
    }

    /// Whether changes are recorded for [`ApiServer::take_journal`].
    pub fn journal(mut self, on: bool) -> Builder {
        self.settings.journal = on;
        self
    }

    /// A server with the bootstrap namespaces, and what else was asked for.
    pub fn build(self) -> ApiServer {
        let kernel = Kernel::with_options(self.settings.clone(), (self.clock)());
        self.around(kernel)
    }

    /// A server with the state the entries lead to, and how many of them it could not use.
    pub fn restore(self, entries: impl IntoIterator<Item = JournalEntry>) -> (ApiServer, usize) {
        let (kernel, passed_over) = Kernel::restore(self.settings.clone(), entries, (self.clock)());
        (self.around(kernel), passed_over)
    }

    fn around(self, kernel: Kernel) -> ApiServer {
        let state = State { kernel, wakers: BTreeMap::new(), log: RequestLog::new(self.log_limit) };
        let shared =
            Shared { state: Mutex::new(state), clock: self.clock, bookmark_interval: self.bookmark_interval };
        ApiServer { shared: Arc::new(shared), user: None }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
