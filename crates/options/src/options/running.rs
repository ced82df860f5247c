//! The API connection, leader election, and options of all controllers.

use crate::CommandLineContext;
use crate::controllers::EnabledControllers;
use crate::go_text::GoDuration;
use crate::parser::Values;

/// The connection to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// The kubeconfig file; empty if unset.
    pub kubeconfig: String,
    /// The address of the API server, which overrides the kubeconfig; empty if unset.
    pub master: String,
    /// The preferred content type.
    pub content_type: String,
    /// QPS as the flag says.
    pub qps: f32,
    /// Burst as the flag says.
    pub burst: i32,
    /// The client-side rate limit, if a flag sets one. Otherwise requests are not throttled: a busy API server throttles
    /// them itself (API priority and fairness), and a fixed limit slows large clusters down.
    pub throttle: Option<Throttle>,
}

/// A client-side rate limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Requests per second.
    pub qps: f32,
    /// Burst.
    pub burst: i32,
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// client-go's `DefaultQPS`, which QPS 0 selects.
const QPS_FOR_ZERO: f32 = 5.0;
/// client-go's `DefaultBurst`.
const BURST_FOR_ZERO: i32 = 10;

impl ClientConnection {
    pub(super) fn read(values: &Values) -> Self {
        let (qps, burst) = (values.float32("kube-api-qps"), values.int32("kube-api-burst"));
        let is_set = values.given("kube-api-qps") || values.given("kube-api-burst");
        Self {
            kubeconfig: values.text("kubeconfig"),
            master: values.text("master"),
            content_type: values.text("kube-api-content-type"),
            qps,
            burst,
            throttle: if is_set { throttle(qps, burst) } else { None },
        }
    }

    /// Whether responses are JSON throughout. The default prefers protobuf where it is cheaper.
    #[must_use]
    pub fn json_only(&self) -> bool {
        self.content_type == JSON
    }

    /// QPS as `/configz` reports it: negative, which means no limit, unless a flag sets one.
    pub(super) fn effective_qps(&self) -> f32 {
        if self.throttle.is_none() && self.qps >= 0.0 { -1.0 } else { self.qps }
    }

    /// The warning about a content type that is neither of the two.
    pub(super) fn warning(&self) -> Option<String> {
        let content_type = self.content_type.as_str();
        (![JSON, PROTOBUF].contains(&content_type)).then(|| {
            format!("--kube-api-content-type={content_type} has no effect in this manager: it speaks JSON and protobuf")
        })
    }

    /// A rate limit without a burst would block all requests.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.qps > 0.0 && self.burst <= 0 {
            let text = "burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0";
            return Err(text.to_owned());
        }
        Ok(())
    }
}

fn throttle(qps: f32, burst: i32) -> Option<Throttle> {
    if qps == 0.0 {
        let burst = if burst == 0 { BURST_FOR_ZERO } else { burst };
        return Some(Throttle { qps: QPS_FOR_ZERO, burst });
    }
    (qps > 0.0).then_some(Throttle { qps, burst })
}

/// Options of all controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generic {
    /// The enabled controllers.
    pub controllers: EnabledControllers,
    /// Whether to lead although enabled controllers are missing or cannot start.
    pub allow_missing_controllers: bool,
    /// The interval between controller starts.
    pub controller_start_interval: GoDuration,
    /// How long to wait for controllers to stop.
    pub controller_shutdown_timeout: GoDuration,
    /// The minimum resync period; zero disables resyncs.
    pub min_resync_period: GoDuration,
}

impl Generic {
    pub(super) fn read(values: &Values, known: &CommandLineContext<'_>) -> Self {
        Self {
            controllers: EnabledControllers::new(&values.list("controllers"), known.controllers),
            allow_missing_controllers: values.bool("allow-missing-controllers"),
            controller_start_interval: values.duration("controller-start-interval"),
            controller_shutdown_timeout: values.duration("controller-shutdown-timeout"),
            min_resync_period: values.duration("min-resync-period"),
        }
    }
}

/// Leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether leader election is enabled.
    pub leader_elect: bool,
    /// How long a candidate waits after the last renewal before it acquires the Lease.
    pub lease_duration: GoDuration,
    /// How long the leader retries a renewal before it stops leading.
    pub renew_deadline: GoDuration,
    /// The interval between attempts.
    pub retry_period: GoDuration,
    /// The kind of the lock.
    pub resource_lock: String,
    /// Its name.
    pub resource_name: String,
    /// Its namespace.
    pub resource_namespace: String,
    /// The file whose lock proves that the previous process on this machine has ended; empty for none.
    pub lock_file: String,
}

impl LeaderElection {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            leader_elect: values.bool("leader-elect"),
            lease_duration: values.duration("leader-elect-lease-duration"),
            renew_deadline: values.duration("leader-elect-renew-deadline"),
            retry_period: values.duration("leader-elect-retry-period"),
            resource_lock: values.text("leader-elect-resource-lock"),
            resource_name: values.text("leader-elect-resource-name"),
            resource_namespace: values.text("leader-elect-resource-namespace"),
            lock_file: values.text("lease-lock-file"),
        }
    }
}

/// Profiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugging {
    /// Whether profiles are served.
    pub profiling: bool,
    /// Whether lock contention is profiled.
    pub contention_profiling: bool,
    /// The size of the journal of decisions.
    pub decision_journal_bytes: usize,
    /// Whether this process writes nothing and compares its decisions with the leader's.
    pub shadow: bool,
    /// How long the leader may take to make a write that this process wants.
    pub shadow_window: GoDuration,
}

impl Debugging {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            profiling: values.bool("profiling"),
            contention_profiling: values.bool("contention-profiling"),
            decision_journal_bytes: usize::try_from(values.int32("decision-journal-bytes")).unwrap_or(0),
            shadow: values.bool("shadow"),
            shadow_window: values.duration("shadow-window"),
        }
    }
}
