//! Metrics of API requests.

use std::time::Duration;

use keleustes_client::{ObservedRequest, RequestObserver};
use prometheus::{HistogramVec, IntCounterVec, Registry};

use super::{Metrics, counters, histograms};

const LATENCY_BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const SIZE_BUCKETS: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

pub(super) struct Families {
    requests: IntCounterVec,
    retries: IntCounterVec,
    duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    throttled: HistogramVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let verb_host = &["verb", "host"];
        let by_verb = |name, help, buckets: &[f64]| histograms(registry, (name, help), verb_host, buckets);
        Self {
            requests: counters(
                registry,
                "rest_client_requests_total",
                "Requests by method, host and response code.",
                &["code", "method", "host"],
            ),
            retries: counters(
                registry,
                "rest_client_request_retries_total",
                "Requests retried because the response had a Retry-After.",
                &["code", "verb", "host"],
            ),
            duration: by_verb(
                "rest_client_request_duration_seconds",
                "How long the API server took to respond.",
                &LATENCY_BUCKETS,
            ),
            request_size: by_verb("rest_client_request_size_bytes", "Size of requests.", &SIZE_BUCKETS),
            response_size: by_verb("rest_client_response_size_bytes", "Size of responses.", &SIZE_BUCKETS),
            throttled: by_verb(
                "rest_client_rate_limiter_duration_seconds",
                "How long requests were delayed by the client-side rate limiter.",
                &LATENCY_BUCKETS,
            ),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of requests are far below 2^52")]
impl RequestObserver for Metrics {
    fn observed(&self, request: &ObservedRequest) {
        let (method, host) = (request.method.as_str(), &*request.host);
        let code = request.code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let families = &self.0.requests;
        families.requests.with_label_values(&[code.as_str(), method, host]).inc();
        families.duration.with_label_values(&[method, host]).observe(request.duration.as_secs_f64());
        families.request_size.with_label_values(&[method, host]).observe(request.request_bytes as f64);
        if let Some(bytes) = request.response_bytes {
            families.response_size.with_label_values(&[method, host]).observe(bytes as f64);
        }
    }

    fn throttled(&self, method: &http::Method, host: &str, waited: Duration) {
        let labels = [method.as_str(), host];
        self.0.requests.throttled.with_label_values(&labels).observe(waited.as_secs_f64());
    }

    fn retried(&self, method: &http::Method, host: &str, code: u16) {
        let code = code.to_string();
        self.0.requests.retries.with_label_values(&[code.as_str(), method.as_str(), host]).inc();
    }
}
