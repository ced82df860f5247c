//! Metrics of connections to API servers: transports, and exec credential plugins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{ConnectionObserver, ExecPluginStatus};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Histogram, IntCounterVec, Opts, Registry};

use super::{Metrics, counters, gauges, histograms, registered, stability};

/// From 10 minutes, which is too short a lifetime, to 4 years, which is too long.
const AGE_BUCKETS: [f64; 11] = [
    600.0,
    1_800.0,
    3_600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

pub(super) struct Families {
    plugin_calls: IntCounterVec,
    certificates: Certificates,
    certificate_age: Histogram,
    transports: Gauge,
    transport_calls: IntCounterVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let (age, age_help) = (
            "rest_client_exec_plugin_certificate_rotation_age",
            "Age in seconds of exec plugin certificates when they were rotated.",
        );
        Self {
            plugin_calls: counters(
                registry,
                "rest_client_exec_plugin_call_total",
                "Calls of exec credential plugins, by exit code and call status.",
                &["code", "call_status"],
            ),
            certificates: registered(registry, Certificates::new()),
            certificate_age: histograms(registry, (age, age_help), &[], &AGE_BUCKETS)
                .with_label_values::<&str>(&[]),
            transports: gauges(
                registry,
                "rest_client_transport_cache_entries",
                "Cached transports to API servers, each with its own connections.",
                &[],
            )
            .with_label_values::<&str>(&[]),
            transport_calls: counters(
                registry,
                "rest_client_transport_create_calls_total",
                "Transports that were created (miss), and clients that share an existing one (hit).",
                &["result"],
            ),
        }
    }
}

/// When the certificates of plugins expire, as the seconds left until the first expiry.
#[derive(Clone)]
struct Certificates {
    expire_at: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    seconds_left: Gauge,
}

impl Certificates {
    fn new() -> Self {
        let name = "rest_client_exec_plugin_ttl_seconds";
        let help = "Seconds until the first exec plugin certificate expires; +Inf without any.";
        let seconds_left = Gauge::with_opts(Opts::new(name, stability(name, help)));
        Self { expire_at: Arc::default(), seconds_left: seconds_left.expect("metric names are valid") }
    }
}

impl Collector for Certificates {
    fn desc(&self) -> Vec<&Desc> {
        self.seconds_left.desc()
    }

    /// Certificates expire by wall time, so this is the clock that is read.
    fn collect(&self) -> Vec<MetricFamily> {
        let first = self.expire_at.lock().values().min().copied();
        let left = first.map(|end| end.duration_since(Timestamp::now()).as_secs_f64());
        self.seconds_left.set(left.unwrap_or(f64::INFINITY));
        self.seconds_left.collect()
    }
}

impl ConnectionObserver for Metrics {
    fn exec_plugin_called(&self, end: ExecPluginStatus) {
        let (code, status) = match end {
            ExecPluginStatus::NoError => (0, "no_error"),
            ExecPluginStatus::ExecutionError(code) => (code, "plugin_execution_error"),
            ExecPluginStatus::PluginNotFound => (1, "plugin_not_found_error"),
            ExecPluginStatus::ClientInternalError => (1, "client_internal_error"),
        };
        self.0.connections.plugin_calls.with_label_values(&[code.to_string().as_str(), status]).inc();
    }

    fn exec_plugin_certificate_expires(&self, origin: &str, at: Option<Timestamp>) {
        let mut expire_at = self.0.connections.certificates.expire_at.lock();
        match at {
            Some(at) => expire_at.insert(origin.to_owned(), at),
            None => expire_at.remove(origin),
        };
    }

    fn exec_plugin_certificate_rotated(&self, age: Duration) {
        self.0.connections.certificate_age.observe(age.as_secs_f64());
    }

    fn transport_created(&self) {
        self.0.connections.transports.inc();
        self.0.connections.transport_calls.with_label_values(&["miss"]).inc();
    }

    fn transport_reused(&self) {
        self.0.connections.transport_calls.with_label_values(&["hit"]).inc();
    }

    fn transport_dropped(&self) {
        self.0.connections.transports.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves RUN-106.
    #[test]
    fn plugin_and_transport_metrics_match_the_original() {
        let metrics = Metrics::new();
        let assert_line = |line: &str| {
            let text = metrics.text();
            assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
        };
        assert_line("rest_client_exec_plugin_ttl_seconds inf");
        assert_line("rest_client_exec_plugin_certificate_rotation_age_count 0");
        assert_line("rest_client_transport_cache_entries 0");
        metrics.exec_plugin_called(ExecPluginStatus::NoError);
        metrics.exec_plugin_called(ExecPluginStatus::ExecutionError(7));
        metrics.exec_plugin_called(ExecPluginStatus::PluginNotFound);
        metrics.exec_plugin_called(ExecPluginStatus::ClientInternalError);
        let calls = |labels: &str| assert_line(&format!("rest_client_exec_plugin_call_total{{{labels}}} 1"));
        calls("call_status=\"no_error\",code=\"0\"");
        calls("call_status=\"plugin_execution_error\",code=\"7\"");
        calls("call_status=\"plugin_not_found_error\",code=\"1\"");
        calls("call_status=\"client_internal_error\",code=\"1\"");
        for _ in 0..2 {
            metrics.transport_created();
        }
        metrics.transport_reused();
        metrics.transport_dropped();
        assert_line("rest_client_transport_cache_entries 1");
        assert_line("rest_client_transport_create_calls_total{result=\"hit\"} 1");
        assert_line("rest_client_transport_create_calls_total{result=\"miss\"} 2");
        metrics.exec_plugin_certificate_rotated(Duration::from_secs(3_600));
        assert_line("rest_client_exec_plugin_certificate_rotation_age_bucket{le=\"1800\"} 0");
        assert_line("rest_client_exec_plugin_certificate_rotation_age_bucket{le=\"3600\"} 1");
    }

    /// Proves RUN-106.
    #[test]
    fn ttl_metric_shows_the_certificate_that_expires_first() {
        let metrics = Metrics::new();
        let left = || {
            let text = metrics.text();
            let line =
                text.lines().find_map(|line| line.strip_prefix("rest_client_exec_plugin_ttl_seconds "));
            line.unwrap().parse::<f64>().unwrap()
        };
        let hours = |hours: i64| Some(Timestamp::now() + jiff::SignedDuration::from_hours(hours));
        metrics.exec_plugin_certificate_expires("kubeconfig a", hours(2));
        metrics.exec_plugin_certificate_expires("kubeconfig b", hours(1));
        assert!((3_500.0..=3_600.0).contains(&left()), "{}", left());
        metrics.exec_plugin_certificate_expires("kubeconfig b", hours(3));
        assert!((7_100.0..=7_200.0).contains(&left()), "{}", left());
        metrics.exec_plugin_certificate_expires("kubeconfig a", None);
        metrics.exec_plugin_certificate_expires("kubeconfig b", hours(-1));
        assert!(left() < -3_599.0, "{}", left());
    }
}
