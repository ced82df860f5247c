//! `/metrics` and `/metrics/slis`: all metrics as Prometheus text.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry, TextEncoder};

use super::responses::{TEXT, of, plain};
use super::{PageOptions, VersionInfo};
use crate::health::HealthChecks;
use crate::process::ProcessMetrics;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");
/// Stability levels, the prefix of a help text.
const STABILITIES: [&str; 4] = ["ALPHA", "BETA", "INTERNAL", "STABLE"];

/// One feature gate.
#[derive(Clone, Debug)]
pub struct FeatureGate {
    /// The name.
    pub name: String,
    /// `ALPHA`, `BETA`, `DEPRECATED`, or empty for GA.
    pub stage: String,
    /// Whether it is enabled.
    pub enabled: bool,
}

/// The metrics of a process and those of its health checks.
pub(super) struct MetricsPages {
    registry: Registry,
    disabled: BTreeSet<String>,
    started_at_unix_seconds: u64,
    slis: Registry,
    check: GaugeVec,
    checks: IntCounterVec,
    start: GaugeVec,
    /// The checks of `/readyz` and the metric that repeats them: an alert cannot ask a page.
    ready: Option<(HealthChecks, GaugeVec)>,
}

impl MetricsPages {
    pub(super) fn new(registry: Registry, started_at: SystemTime, options: &PageOptions) -> Self {
        let since_1970 = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        register(&registry, ProcessMetrics::new(since_1970));
        register(&registry, about(&options.version_info));
        register(&registry, build(&options.version_info));
        if !options.version_info.program.is_empty() {
            register(&registry, program(&options.version_info));
        }
        register(&registry, features(&options.features));
        register(&registry, missing(&options.missing_controllers));
        let ready = options.readiness.clone().map(|checks| (checks, ready()));
        if let Some((_, gauge)) = &ready {
            register(&registry, gauge.clone());
        }
        let slis = Registry::new();
        let check = gauges(
            "kubernetes_healthcheck",
            "[STABLE] Whether a health check passed the last time.",
            &["name", "type"],
        );
        let checks = IntCounterVec::new(
            Opts::new("kubernetes_healthchecks_total", "[STABLE] Health checks by result."),
            &["name", "type", "status"],
        )
        .unwrap_or_else(|error| panic!("malformed metric definition: {error}"));
        let start =
            gauges("process_start_time_seconds", "[ALPHA] When this process started, in Unix time.", &[]);
        start.with_label_values::<&str>(&[]).set(since_1970.as_secs_f64());
        register(&slis, check.clone());
        register(&slis, checks.clone());
        register(&slis, start.clone());
        Self {
            registry,
            disabled: options.disabled_metrics.clone(),
            started_at_unix_seconds: since_1970.as_secs(),
            slis,
            check,
            checks,
            start,
            ready,
        }
    }

    /// Counts the results of health checks.
    pub(super) fn checked(&self, outcomes: &[(String, bool)]) {
        for (name, passed) in outcomes {
            self.check.with_label_values(&[name, "healthz"]).set(f64::from(u8::from(*passed)));
            let status = if *passed { "success" } else { "error" };
            self.checks.with_label_values(&[name, "healthz", status]).inc();
        }
    }

    /// The response for `/metrics`.
    pub(super) fn all(&self) -> Response<Bytes> {
        if let Some((checks, gauge)) = &self.ready {
            let passed = checks.readiness(false, &BTreeSet::new()).passed;
            gauge.with_label_values::<&str>(&[]).set(f64::from(u8::from(passed)));
        }
        let (mut families, disabled): (Vec<_>, Vec<_>) =
            self.registry.gather().into_iter().partition(|family| !self.disabled.contains(family.name()));
        families.extend(meta(&families, disabled.len()));
        families.sort_by(|a, b| a.name().cmp(b.name()));
        self.encoded(&families)
    }

    /// The response for `/metrics/slis`; a DELETE resets them.
    pub(super) fn slis(&self, method: &Method) -> Response<Bytes> {
        if *method == Method::DELETE {
            self.check.reset();
            self.checks.reset();
            self.start.reset();
            return of(StatusCode::OK, TEXT, "metrics reset\n");
        }
        self.encoded(&self.slis.gather())
    }

    fn encoded(&self, families: &[MetricFamily]) -> Response<Bytes> {
        match TextEncoder::new().encode_to_string(families) {
            Ok(text) => {
                let mut response = of(StatusCode::OK, CONTENT_TYPE, format_bounds_like_go(&text));
                let start = HeaderValue::from(self.started_at_unix_seconds);
                response.headers_mut().insert(PROCESS_START, start);
                response
            }
            Err(error) => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("An error has occurred while serving metrics:\n\n{error}\n"),
            ),
        }
    }
}

/// Formats bucket bounds like Go: to Prometheus a bound is a label value, which is a string.
fn format_bounds_like_go(text: &str) -> String {
    const BOUND: &str = "le=\"";
    let mut encoded = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let number = line.find(BOUND).map(|at| at + BOUND.len()).and_then(|from| {
            let length = line[from..].find('"')?;
            Some((from, from + length, line[from..from + length].parse::<f64>().ok()?))
        });
        match number {
            Some((from, to, bound)) if !line.starts_with('#') && bound.is_finite() => {
                encoded.push_str(&line[..from]);
                encoded.push_str(&format_like_go(bound));
                encoded.push_str(&line[to..]);
            }
            _ => encoded.push_str(line),
        }
    }
    encoded
}

/// The shortest form of a number, with a two-digit exponent if that is below -4 or above 5.
fn format_like_go(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

/// The number of metrics by stability level.
fn meta(families: &[MetricFamily], disabled: usize) -> Vec<MetricFamily> {
    let registry = Registry::new();
    let mut counted = BTreeMap::<_, u64>::new();
    for family in families {
        let stability = STABILITIES.iter().find(|level| family.help().starts_with(&format!("[{level}]")));
        *counted.entry(stability).or_default() += 1;
    }
    let help = "[BETA] Metrics by stability.";
    let labels = ["deprecated_version", "stability_level"];
    let registered = counters("registered_metrics_total", help, &labels);
    for (stability, count) in counted.into_iter().filter_map(|(level, count)| Some((level?, count))) {
        registered.with_label_values(&["", stability]).inc_by(count);
    }
    register(&registry, registered);
    let disabled_total = counters("disabled_metrics_total", "[BETA] Disabled metrics.", &[]);
    disabled_total.with_label_values::<&str>(&[]).inc_by(disabled as u64);
    register(&registry, disabled_total);
    let hidden = counters("hidden_metrics_total", "[BETA] Hidden metrics.", &[]);
    hidden.with_label_values::<&str>(&[]).inc_by(0);
    register(&registry, hidden);
    registry.gather()
}

fn about(about: &VersionInfo) -> GaugeVec {
    let gauge = gauges(
        "version_info",
        "[ALPHA] Binary, emulation and minimum compatibility version.",
        &["binary", "component", "emulation", "min_compat"],
    );
    let versions = [&about.version, "kube", &about.emulation_version, &about.min_compatibility_version];
    gauge.with_label_values(&versions).set(1.0);
    gauge
}

fn build(about: &VersionInfo) -> GaugeVec {
    let gauge = gauges(
        "kubernetes_build_info",
        "[BETA] Version, commit and platform of the build.",
        &[
            "build_date",
            "compiler",
            "git_commit",
            "git_tree_state",
            "git_version",
            "go_version",
            "major",
            "minor",
            "platform",
        ],
    );
    let git_version = format!("v{}", about.version);
    let mut numbers = about.version.split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    // Go's architecture names, as in images and node labels.
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("{}/{arch}", std::env::consts::OS);
    let values = [
        &about.build_date,
        "rustc",
        &about.git_commit,
        "",
        &git_version,
        &about.language,
        major,
        minor,
        &platform,
    ];
    gauge.with_label_values(&values).set(1.0);
    gauge
}

/// Which program this is; the original has no such metric.
fn program(about: &VersionInfo) -> GaugeVec {
    let gauge = gauges(
        "keleustes_build_info",
        "[ALPHA] Version and commit of this program, and the Kubernetes version that it implements.",
        &["git_commit", "kubernetes_version", "rust_version", "version"],
    );
    let kubernetes_version = format!("v{}", about.version);
    let rust_version = about.language.trim_start_matches("rust");
    gauge
        .with_label_values(&[
            about.git_commit.as_str(),
            &kubernetes_version,
            rust_version,
            &about.program_version,
        ])
        .set(1.0);
    gauge
}

fn features(features: &[FeatureGate]) -> GaugeVec {
    let gauge =
        gauges("kubernetes_feature_enabled", "[BETA] Whether a feature gate is enabled.", &["name", "stage"]);
    for FeatureGate { name, stage, enabled } in features {
        gauge.with_label_values(&[name, stage]).set(f64::from(u8::from(*enabled)));
    }
    gauge
}

fn missing(controllers: &[String]) -> GaugeVec {
    let gauge = gauges(
        "keleustes_missing_controllers",
        "[ALPHA] Enabled controllers that are not implemented.",
        &["name"],
    );
    for name in controllers {
        gauge.with_label_values(&[name]).set(1.0);
    }
    gauge
}

fn ready() -> GaugeVec {
    gauges("keleustes_ready", "[ALPHA] Whether this process may lead: 1 if /readyz passes.", &[])
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    GaugeVec::new(Opts::new(name, help), labels)
        .unwrap_or_else(|error| panic!("malformed metric definition: {error}"))
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels)
        .unwrap_or_else(|error| panic!("malformed metric definition: {error}"))
}

fn register(registry: &Registry, collector: impl Collector + 'static) {
    if let Err(error) = registry.register(Box::new(collector)) {
        tracing::warn!(%error, "metric is already registered; only the first one is exported");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_formatted_like_go() {
        let encoded = |number| format_like_go(number);
        assert_eq!(encoded(0.0), "0");
        assert_eq!(encoded(0.005), "0.005");
        assert_eq!(encoded(0.0001), "0.0001");
        assert_eq!(encoded(0.000_099_999_999_999_999_99), "9.999999999999999e-05");
        assert_eq!(encoded(262_144.0), "262144");
        assert_eq!(encoded(1_048_576.0), "1.048576e+06");
        assert_eq!(encoded(1e-8), "1e-08");
        let text = "# HELP a le=\"1000000\"\na_bucket{x=\"y\",le=\"1000000\"} 1000000\n\
                    a_bucket{le=\"+Inf\"} 1\na_sum 7\n";
        let wanted = "# HELP a le=\"1000000\"\na_bucket{x=\"y\",le=\"1e+06\"} 1000000\n\
                      a_bucket{le=\"+Inf\"} 1\na_sum 7\n";
        assert_eq!(format_bounds_like_go(text), wanted);
    }
}
