//! Options of a kernel; they do not change while it runs.

use std::time::Duration;

use super::clusterip::Range;
use super::jwt::TokenSigner;
use super::metrics::MetricsSource;
use super::random::EntropySource;
use super::users::{TokenVerifier, User};

/// Options of a kernel.
#[derive(Debug, Clone)]
pub struct KernelOptions {
    /// Seed of UIDs, generated names, addresses and tokens.
    pub seed: u64,
    /// Where they come from instead of the seed.
    pub entropy: Option<EntropySource>,
    /// How many changes are kept for watches and lists at older revisions.
    pub history_limit: usize,
    /// How many bytes of earlier object states are kept for watches and lists at older revisions.
    pub history_bytes_max: usize,
    /// Whether RBAC is enforced; otherwise every user may do everything.
    pub rbac: bool,
    /// Whether the objects that kube-apiserver creates at startup exist: roles and bindings, priority classes, the
    /// `kubernetes` Service. Namespaces always exist.
    pub bootstrap: bool,
    /// Whether kinds behind feature gates that are off by default are served, as with kube-apiserver's
    /// `--runtime-config`: Workloads, PodGroups, ResourcePoolStatusRequests and StorageVersions. Their controllers then have
    /// their bootstrapped roles, too.
    pub gated_kinds: bool,
    /// Whether pods need their ServiceAccount to exist and get its token mounted.
    pub service_accounts: bool,
    /// How long events are kept after their last write.
    pub event_ttl: Option<Duration>,
    /// Warnings about a stored object, besides those of kube-apiserver.
    pub warn_about: Option<fn(&serde_json::Value) -> Vec<String>>,
    /// The log of a container of a pod; without it `pods/log` is not implemented.
    pub container_log: Option<fn(&serde_json::Value, &str) -> String>,
    /// Where the metrics APIs take their values from; without it they are not served.
    pub metrics: Option<MetricsSource>,
    /// The service CIDR.
    pub service_range: Range,
    /// Lowest and highest node port.
    pub node_ports: (u16, u16),
    /// How many watches may be open at once; more are refused with 429.
    pub watches_max: usize,
    /// How many changes may be queued for a slow watch before it is ended.
    pub frames_max: usize,
    /// How many bytes may be queued for all watches together before the slowest is ended.
    pub backlog_bytes_max: usize,
    /// Minimum duration of a watch without timeoutSeconds; the maximum is twice as long.
    pub watch_timeout_min: Duration,
    /// Bearer tokens and their users.
    pub tokens: Vec<(String, User)>,
    /// Signs the tokens of service accounts; without it they are random, and valid until the kernel ends.
    pub signer: Option<TokenSigner>,
    /// Authenticates tokens that the kernel did not issue.
    pub verifier: Option<TokenVerifier>,
    /// Whether objects stay parsed: reads that bypass the HTTP service are ten times as fast, for ten times the
    /// memory.
    pub keep_parsed: bool,
    /// Whether changes are recorded for [`super::Kernel::take_journal`].
    pub journal: bool,
}

impl Default for KernelOptions {
    fn default() -> KernelOptions {
        KernelOptions {
            seed: 0,
            entropy: None,
            history_limit: 100_000,
            history_bytes_max: 512 * 1024 * 1024,
            rbac: false,
            bootstrap: false,
            gated_kinds: false,
            service_accounts: false,
            event_ttl: None,
            warn_about: None,
            container_log: None,
            metrics: None,
            // The text is a constant that a test parses.
            service_range: Range::parse("10.96.0.0/16")
                .unwrap_or_else(|| unreachable!("10.96.0.0/16 is a range")),
            node_ports: (30_000, 32_767),
            watches_max: 20_000,
            frames_max: 100_000,
            backlog_bytes_max: 256 * 1024 * 1024,
            watch_timeout_min: Duration::from_secs(30 * 60),
            tokens: Vec::new(),
            signer: None,
            verifier: None,
            keep_parsed: false,
            journal: false,
        }
    }
}
