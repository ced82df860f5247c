//! Builds a server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::log::RequestLog;
use super::{ApiServer, Shared, State};
use crate::clock::{self, Clock};
use crate::kernel::{
    EntropySource, JournalEntry, Kernel, KernelOptions, MetricsSource, Range, TokenSigner, TokenVerifier,
    User,
};

/// Options of a new server.
pub struct Builder {
    options: KernelOptions,
    log_limit: usize,
    bookmark_interval: Duration,
    clock: Clock,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            options: KernelOptions::default(),
            log_limit: 100_000,
            bookmark_interval: Duration::from_secs(60),
            clock: clock::system(),
        }
    }
}

impl Builder {
    /// Seed of UIDs, generated names and tokens, for tests and simulations: who knows the seed knows the tokens.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.options.seed = seed;
        self
    }

    /// Takes UIDs, generated names and tokens from a source instead of a seed.
    pub fn entropy(mut self, source: EntropySource) -> Builder {
        self.options.entropy = Some(source);
        self
    }

    /// How many changes are kept for watches and lists at older revisions.
    pub fn history_limit(mut self, events: usize) -> Builder {
        self.options.history_limit = events;
        self
    }

    /// How many bytes of earlier object states are kept for watches and lists at older revisions.
    pub fn history_bytes_max(mut self, bytes: usize) -> Builder {
        self.options.history_bytes_max = bytes;
        self
    }

    /// How many requests [`ApiServer::requests`] returns; 0 disables the log.
    pub fn request_log_limit(mut self, requests: usize) -> Builder {
        self.log_limit = requests;
        self
    }

    /// The server's clock.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Whether RBAC is enforced. Also enables [`Builder::bootstrap`].
    pub fn rbac(mut self, on: bool) -> Builder {
        self.options.rbac = on;
        self.options.bootstrap |= on;
        self
    }

    /// Whether the objects that kube-apiserver creates at startup exist: roles, bindings, priority classes, the
    /// `kubernetes` Service.
    pub fn bootstrap(mut self, on: bool) -> Builder {
        self.options.bootstrap = on;
        self
    }

    /// Whether Workloads, PodGroups and ResourcePoolStatusRequests are served, as kube-apiserver does with feature gates
    /// that are off by default.
    pub fn gated_kinds(mut self, on: bool) -> Builder {
        self.options.gated_kinds = on;
        self
    }

    /// Whether pods need their ServiceAccount to exist and get its token mounted, as the ServiceAccount admission
    /// plugin does.
    pub fn service_accounts(mut self, on: bool) -> Builder {
        self.options.service_accounts = on;
        self
    }

    /// Adds warnings to responses to writes, from a function of the stored object: for what the programs around this
    /// server will not understand.
    pub fn warn_about(mut self, problems: fn(&serde_json::Value) -> Vec<String>) -> Builder {
        self.options.warn_about = Some(problems);
        self
    }

    /// Serves `pods/log` with what this function returns for a pod and one of its containers.
    pub fn container_log(mut self, log: fn(&serde_json::Value, &str) -> String) -> Builder {
        self.options.container_log = Some(log);
        self
    }

    /// Serves `metrics.k8s.io` and `external.metrics.k8s.io` with what the source computes from stored objects, as a cluster
    /// with metrics-server and an adapter does.
    pub fn metrics(mut self, source: MetricsSource) -> Builder {
        self.options.metrics = Some(source);
        self
    }

    /// How long events are kept after their last write; for ever if this is not called.
    pub fn event_ttl(mut self, ttl: Duration) -> Builder {
        self.options.event_ttl = Some(ttl);
        self
    }

    /// The service CIDR.
    pub fn service_range(mut self, range: Range) -> Builder {
        self.options.service_range = range;
        self
    }

    /// How many watches may be open at once.
    pub fn watches_max(mut self, watches: usize) -> Builder {
        self.options.watches_max = watches;
        self
    }

    /// Interval of bookmarks for watches that allow them; one minute by default.
    pub fn bookmark_interval(mut self, time: Duration) -> Builder {
        self.bookmark_interval = time;
        self
    }

    /// Minimum duration of a watch without timeoutSeconds, 30 minutes by default; the maximum is twice as long.
    pub fn watch_timeout_min(mut self, time: Duration) -> Builder {
        self.options.watch_timeout_min = time;
        self
    }

    /// How many bytes may be queued for all watches together before the slowest is ended.
    pub fn backlog_bytes_max(mut self, bytes: usize) -> Builder {
        self.options.backlog_bytes_max = bytes;
        self
    }

    /// How many changes may be queued for a watch that is not read before it is ended.
    pub fn frames_max(mut self, frames: usize) -> Builder {
        self.options.frames_max = frames;
        self
    }

    /// A bearer token and its user.
    pub fn token(mut self, token: &str, user: User) -> Builder {
        self.options.tokens.push((token.to_owned(), user));
        self
    }

    /// Signs the tokens of service accounts, so that they stay valid when the server is started again.
    pub fn signer(mut self, signer: TokenSigner) -> Builder {
        self.options.signer = Some(signer);
        self
    }

    /// Authenticates tokens that this server did not issue.
    pub fn verifier(mut self, verifier: TokenVerifier) -> Builder {
        self.options.verifier = Some(verifier);
        self
    }

    /// Whether objects stay parsed, for callers that read them often without HTTP.
    pub fn keep_parsed(mut self, on: bool) -> Builder {
        self.options.keep_parsed = on;
        self
    }

    /// Whether changes are recorded for [`ApiServer::take_journal`].
    pub fn journal(mut self, on: bool) -> Builder {
        self.options.journal = on;
        self
    }

    /// A server with the bootstrap namespaces and the configured objects.
    pub fn build(self) -> ApiServer {
        let kernel = Kernel::with_options(self.options.clone(), (self.clock)());
        self.with_kernel(kernel)
    }

    /// A server with the state of the entries, and the number of entries skipped.
    pub fn restore(self, entries: impl IntoIterator<Item = JournalEntry>) -> (ApiServer, usize) {
        let (kernel, skipped) = Kernel::restore(self.options.clone(), entries, (self.clock)());
        (self.with_kernel(kernel), skipped)
    }

    fn with_kernel(self, kernel: Kernel) -> ApiServer {
        let state = State { kernel, wakers: BTreeMap::new(), log: RequestLog::new(self.log_limit) };
        let shared =
            Shared { state: Mutex::new(state), clock: self.clock, bookmark_interval: self.bookmark_interval };
        ApiServer { shared: Arc::new(shared), user: None }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.options).finish_non_exhaustive()
    }
}
