//! What the door counts, under the names that the original's dashboards know.

use http::StatusCode;
use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry,
    exponential_buckets,
};
use tokio::time::Instant;

/// Remaining lifetimes, from nothing to a year.
const LIFETIMES: [f64; 14] = [
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21600.0,
    43200.0,
    86400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];
const CALLS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// Who asked, whether they might, and what it cost to find out.
pub(crate) struct AccessMetrics {
    users: IntCounterVec,
    authentications: IntCounterVec,
    authentication_seconds: HistogramVec,
    authorizations: IntCounterVec,
    authorization_seconds: HistogramVec,
    certificate_seconds: Histogram,
    token_requests: IntCounterVec,
    token_request_seconds: HistogramVec,
    token_fetches: IntCounterVec,
    token_fetches_active: GaugeVec,
    pub(crate) token_reviews: CallMetrics,
    pub(crate) access_reviews: CallMetrics,
}

/// Calls of one kind to the API server.
pub(crate) struct CallMetrics {
    calls: IntCounterVec,
    seconds: HistogramVec,
}

impl AccessMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let milliseconds = exponential_buckets(0.001, 2.0, 15).unwrap_or_default();
        let usual = prometheus::DEFAULT_BUCKETS.to_vec();
        let counter = |name, help, label| counters(registry, name, help, label);
        let seconds = |name, help, label, buckets: &[f64]| histograms(registry, name, help, label, buckets);
        Self {
            users: counter("authenticated_user_requests", "Requests by category of user.", "username"),
            authentications: counter(
                "authentication_attempts",
                "Requests by whether it was found who asks.",
                "result",
            ),
            authentication_seconds: seconds(
                "authentication_duration_seconds",
                "Time to find out who asks.",
                "result",
                &milliseconds,
            ),
            authorizations: counter(
                "authorization_attempts_total",
                "Requests by whether they were allowed: allowed, denied, no-opinion or error.",
                "result",
            ),
            authorization_seconds: seconds(
                "authorization_duration_seconds",
                "Time to find out whether they may.",
                "result",
                &milliseconds,
            ),
            certificate_seconds: lifetimes(registry),
            token_requests: counter(
                "authentication_token_cache_request_total",
                "Tokens by whether the cache knew them.",
                "status",
            ),
            token_request_seconds: seconds(
                "authentication_token_cache_request_duration_seconds",
                "Time to learn whose a token is.",
                "status",
                &usual,
            ),
            token_fetches: counter(
                "authentication_token_cache_fetch_total",
                "Tokens the API server was asked about.",
                "status",
            ),
            token_fetches_active: gauges(registry),
            token_reviews: CallMetrics::new(registry, "authn"),
            access_reviews: CallMetrics::new(registry, "authz"),
        }
    }

    /// Counts one attempt to find out who asks; no category if it failed.
    pub(crate) fn authenticated(&self, category: Option<&str>, began: Instant) {
        if let Some(category) = category {
            self.users.with_label_values(&[category]).inc();
        }
        let result = if category.is_some() { "success" } else { "error" };
        self.authentications.with_label_values(&[result]).inc();
        observe(&self.authentication_seconds, result, began);
    }

    /// Counts one decision.
    pub(crate) fn authorized(&self, result: &str, began: Instant) {
        self.authorizations.with_label_values(&[result]).inc();
        observe(&self.authorization_seconds, result, began);
    }

    /// Notes how long the certificate of a request will last.
    pub(crate) fn certificate_expires_in(&self, seconds: f64) {
        self.certificate_seconds.observe(seconds);
    }

    /// Counts a token that the cache knew (`hit`) or not (`miss`).
    pub(crate) fn token_cache_answered(&self, status: &str, began: Instant) {
        self.token_requests.with_label_values(&[status]).inc();
        observe(&self.token_request_seconds, status, began);
    }

    /// Counts a lookup of a token.
    pub(crate) fn token_fetched(&self, well: bool) {
        self.token_fetches.with_label_values(&[if well { "ok" } else { "error" }]).inc();
    }

    /// Counts as waiting until dropped.
    pub(crate) fn token_fetch_waits(&self, status: &str) -> Waiting {
        let gauge = self.token_fetches_active.with_label_values(&[status]);
        gauge.inc();
        Waiting(gauge)
    }
}

/// Counted as waiting while it lives.
pub(crate) struct Waiting(Gauge);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl CallMetrics {
    fn new(registry: &Registry, kind: &str) -> Self {
        let name = |what: &str| format!("apiserver_delegated_{kind}_request_{what}");
        Self {
            calls: counters(registry, name("total"), "Reviews by status code.", "code"),
            seconds: histograms(registry, name("duration_seconds"), "Time reviews took.", "code", &CALLS),
        }
    }

    /// Counts one request and its answer, if there was one.
    pub(crate) fn called(&self, code: Option<StatusCode>, began: Instant) {
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.calls.with_label_values(&[code]).inc();
        observe(&self.seconds, code, began);
    }
}

fn observe(histogram: &HistogramVec, label: &str, began: Instant) {
    histogram.with_label_values(&[label]).observe(began.elapsed().as_secs_f64());
}

fn counters(registry: &Registry, name: impl Into<String>, help: &str, label: &str) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, alpha(help)), &[label]))
}

fn histograms(
    registry: &Registry,
    name: impl Into<String>,
    help: &str,
    label: &str,
    buckets: &[f64],
) -> HistogramVec {
    let options = HistogramOpts::new(name, alpha(help)).buckets(buckets.to_vec());
    register(registry, HistogramVec::new(options, &[label]))
}

fn gauges(registry: &Registry) -> GaugeVec {
    let help = alpha("Requests that wait for a token to be looked up, and lookups under way.");
    register(
        registry,
        GaugeVec::new(Opts::new("authentication_token_cache_active_fetch_count", help), &["status"]),
    )
}

fn lifetimes(registry: &Registry) -> Histogram {
    let help = alpha("How long the certificates of clients will last.");
    let options = HistogramOpts::new("apiserver_client_certificate_expiration_seconds", help);
    register(registry, Histogram::with_opts(options.buckets(LIFETIMES.to_vec())))
}

fn alpha(help: &str) -> String {
    format!("[ALPHA] {help}")
}

/// Names are constants of this file, so that they are good and registered once can be seen here.
fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.unwrap_or_else(|error| panic!("a metric of this file is malformed: {error}"));
    if let Err(error) = registry.register(Box::new(collector.clone())) {
        tracing::warn!(%error, "two doors share one registry; only the first one's counts are shown");
    }
    collector
}
