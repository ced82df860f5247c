//! How the manager runs: its connection, its lease, its controllers.

use crate::CommandLineContext;
use crate::controllers::Chosen;
use crate::go_text::Span;
use crate::parser::Values;

/// How to reach the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// The kubeconfig file; empty if none is named.
    pub kubeconfig: String,
    /// The server's address, which goes before the kubeconfig's; empty if none is named.
    pub master: String,
    /// The content type to prefer.
    pub content_type: String,
    /// Requests a second, as `/configz` shows it whether it was given or not.
    pub qps: f32,
    /// Requests at once, as `/configz` shows it whether it was given or not.
    pub burst: i32,
    /// The throttle that was asked for. Without one requests are not held back: a server that is too busy says so,
    /// and a fixed guess would only make a large cluster slow.
    pub throttle: Option<Throttle>,
}

/// A limit on requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Requests a second.
    pub qps: f32,
    /// Requests at once.
    pub burst: i32,
}

/// What QPS 0 stands for in the original.
const QPS_FOR_ZERO: f32 = 5.0;
/// What goes with it.
const BURST_FOR_ZERO: i32 = 10;

impl ClientConnection {
    pub(super) fn read(values: &Values) -> Self {
        let (qps, burst) = (values.float32("kube-api-qps"), values.int32("kube-api-burst"));
        let asked = values.given("kube-api-qps") || values.given("kube-api-burst");
        Self {
            kubeconfig: values.text("kubeconfig"),
            master: values.text("master"),
            content_type: values.text("kube-api-content-type"),
            qps,
            burst,
            throttle: if asked { throttle(qps, burst) } else { None },
        }
    }

    /// A throttle without a burst would never let anything pass.
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

/// What holds for all controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generic {
    /// Which controllers run.
    pub controllers: Chosen,
    /// The pause between the starts of two controllers.
    pub controller_start_interval: Span,
    /// How long to wait for controllers to stop.
    pub controller_shutdown_timeout: Span,
    /// The shortest time between two looks at everything; zero for never.
    pub min_resync_period: Span,
}

impl Generic {
    pub(super) fn read(values: &Values, known: &CommandLineContext<'_>) -> Self {
        Self {
            controllers: Chosen::new(&values.list("controllers"), known.controllers),
            controller_start_interval: values.span("controller-start-interval"),
            controller_shutdown_timeout: values.span("controller-shutdown-timeout"),
            min_resync_period: values.span("min-resync-period"),
        }
    }
}

/// The lease that decides which manager works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether there is one.
    pub leader_elect: bool,
    /// How long others wait after the last renewal.
    pub lease_duration: Span,
    /// How long the leader tries to renew.
    pub renew_deadline: Span,
    /// The pause between two attempts.
    pub retry_period: Span,
    /// The kind of the lock.
    pub resource_lock: String,
    /// Its name.
    pub resource_name: String,
    /// Its namespace.
    pub resource_namespace: String,
}

impl LeaderElection {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            leader_elect: values.bool("leader-elect"),
            lease_duration: values.span("leader-elect-lease-duration"),
            renew_deadline: values.span("leader-elect-renew-deadline"),
            retry_period: values.span("leader-elect-retry-period"),
            resource_lock: values.text("leader-elect-resource-lock"),
            resource_name: values.text("leader-elect-resource-name"),
            resource_namespace: values.text("leader-elect-resource-namespace"),
        }
    }
}

/// Profiles of the running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugging {
    /// Whether they are served.
    pub profiling: bool,
    /// Whether waiting is profiled too.
    pub contention_profiling: bool,
}

impl Debugging {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            profiling: values.bool("profiling"),
            contention_profiling: values.bool("contention-profiling"),
        }
    }
}
