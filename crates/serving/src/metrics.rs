//! Metrics of authentication and authorization, with upstream's names.

use http::StatusCode;
use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry,
    exponential_buckets,
};
use tokio::time::Instant;

/// Buckets of remaining certificate lifetimes, from zero to a year.
const LIFETIME_BUCKETS: [f64; 14] = [
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
const REVIEW_BUCKETS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// Metrics of authentication and authorization.
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

/// Metrics of one kind of review requests.
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
            users: counter(
                "authenticated_user_requests",
                "Authenticated requests by user category.",
                "username",
            ),
            authentications: counter(
                "authentication_attempts",
                "Authentication attempts by result.",
                "result",
            ),
            authentication_seconds: seconds(
                "authentication_duration_seconds",
                "Duration of authentication.",
                "result",
                &milliseconds,
            ),
            authorizations: counter(
                "authorization_attempts_total",
                "Authorization attempts by result: allowed, denied, no-opinion or error.",
                "result",
            ),
            authorization_seconds: seconds(
                "authorization_duration_seconds",
                "Duration of authorization.",
                "result",
                &milliseconds,
            ),
            certificate_seconds: lifetimes(registry),
            token_requests: counter(
                "authentication_token_cache_request_total",
                "Token cache requests by hit or miss.",
                "status",
            ),
            token_request_seconds: seconds(
                "authentication_token_cache_request_duration_seconds",
                "Duration of token cache requests.",
                "status",
                &usual,
            ),
            token_fetches: counter(
                "authentication_token_cache_fetch_total",
                "TokenReviews sent to the API server.",
                "status",
            ),
            token_fetches_active: gauges(registry),
            token_reviews: CallMetrics::new(registry, "authn"),
            access_reviews: CallMetrics::new(registry, "authz"),
        }
    }

    /// Counts one authentication attempt; no category if it failed.
    pub(crate) fn authenticated(&self, category: Option<&str>, started_at: Instant) {
        if let Some(category) = category {
            self.users.with_label_values(&[category]).inc();
        }
        let result = if category.is_some() { "success" } else { "error" };
        self.authentications.with_label_values(&[result]).inc();
        observe(&self.authentication_seconds, result, started_at);
    }

    /// Counts one authorization decision.
    pub(crate) fn authorized(&self, result: &str, started_at: Instant) {
        self.authorizations.with_label_values(&[result]).inc();
        observe(&self.authorization_seconds, result, started_at);
    }

    /// Observes the remaining lifetime of a client certificate.
    pub(crate) fn certificate_expires_in(&self, seconds: f64) {
        self.certificate_seconds.observe(seconds);
    }

    /// Counts a token cache `hit` or `miss`.
    pub(crate) fn token_cache_answered(&self, status: &str, started_at: Instant) {
        self.token_requests.with_label_values(&[status]).inc();
        observe(&self.token_request_seconds, status, started_at);
    }

    /// Counts a TokenReview.
    pub(crate) fn token_fetched(&self, ok: bool) {
        self.token_fetches.with_label_values(&[if ok { "ok" } else { "error" }]).inc();
    }

    /// Counts an active fetch until the guard is dropped.
    pub(crate) fn token_fetch_waits(&self, status: &str) -> ActiveFetch {
        let gauge = self.token_fetches_active.with_label_values(&[status]);
        gauge.inc();
        ActiveFetch(gauge)
    }
}

/// Decrements the gauge when dropped.
pub(crate) struct ActiveFetch(Gauge);

impl Drop for ActiveFetch {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl CallMetrics {
    fn new(registry: &Registry, kind: &str) -> Self {
        let name = |what: &str| format!("apiserver_delegated_{kind}_request_{what}");
        Self {
            calls: counters(registry, name("total"), "Review requests by status code.", "code"),
            seconds: histograms(
                registry,
                name("duration_seconds"),
                "Duration of review requests.",
                "code",
                &REVIEW_BUCKETS,
            ),
        }
    }

    /// Counts one request and its status code; `None` without a response.
    pub(crate) fn called(&self, code: Option<StatusCode>, started_at: Instant) {
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.calls.with_label_values(&[code]).inc();
        observe(&self.seconds, code, started_at);
    }
}

fn observe(histogram: &HistogramVec, label: &str, started_at: Instant) {
    histogram.with_label_values(&[label]).observe(started_at.elapsed().as_secs_f64());
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
    let help = alpha("Requests that wait for a TokenReview, and TokenReviews in flight.");
    register(
        registry,
        GaugeVec::new(Opts::new("authentication_token_cache_active_fetch_count", help), &["status"]),
    )
}

fn lifetimes(registry: &Registry) -> Histogram {
    let help = alpha("Remaining lifetime of client certificates.");
    let options = HistogramOpts::new("apiserver_client_certificate_expiration_seconds", help);
    register(registry, Histogram::with_opts(options.buckets(LIFETIME_BUCKETS.to_vec())))
}

fn alpha(help: &str) -> String {
    format!("[ALPHA] {help}")
}

/// The names are constants of this file, so a malformed or duplicate one is a programming error.
fn register<C: Collector + Clone + 'static>(registry: &Registry, result: prometheus::Result<C>) -> C {
    let collector = result.unwrap_or_else(|error| panic!("malformed metric definition: {error}"));
    if let Err(error) = registry.register(Box::new(collector.clone())) {
        tracing::warn!(%error, "metric is already registered; only the first one is exported");
    }
    collector
}
