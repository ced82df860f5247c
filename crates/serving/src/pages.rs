//! A request in, an answer out: the pages of the endpoint, without any IO.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use prometheus::{Registry, TextEncoder};

use crate::access;
use crate::health::HealthChecks;

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");

/// What the endpoint has to tell.
#[derive(Clone)]
pub struct Pages {
    health: HealthChecks,
    metrics: Registry,
    started_at_unix_seconds: u64,
}

impl Pages {
    /// Pages that tell these checks and these metrics of a process that started then.
    #[must_use]
    pub fn new(health: HealthChecks, metrics: Registry, started_at: SystemTime) -> Self {
        let since_1970 = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { health, metrics, started_at_unix_seconds: since_1970.as_secs() }
    }

    /// The answer to one request of one peer.
    pub(crate) fn answer(&self, method: &Method, uri: &Uri, peer: IpAddr) -> Response<Bytes> {
        let path = uri.path();
        let mut answer = if !access::is_allowed(path, peer) {
            forbidden(method, path)
        } else {
            // Paths match exactly: `/healthz/<check>` and `/livez` do not exist in the original either.
            match path {
                "/healthz" => self.healthz(uri.query().unwrap_or_default()),
                "/metrics" => self.metrics(),
                _ => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
            }
        };
        answer.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        answer
    }

    fn healthz(&self, query: &str) -> Response<Bytes> {
        let asked = |wanted: &str| {
            form_urlencoded::parse(query.as_bytes())
                .filter(move |(name, _)| name == wanted)
                .map(|(_, value)| value.into_owned())
                .collect::<BTreeSet<_>>()
        };
        let report = self.health.report(!asked("verbose").is_empty(), &asked("exclude"));
        let status = if report.passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        plain(status, report.text)
    }

    fn metrics(&self) -> Response<Bytes> {
        match TextEncoder::new().encode_to_string(&self.metrics.gather()) {
            Ok(text) => {
                let mut answer = of(StatusCode::OK, METRICS_TEXT, text);
                let headers = answer.headers_mut();
                headers.insert(PROCESS_START, self.started_at_unix_seconds.into());
                answer
            }
            Err(error) => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("An error has occurred while serving metrics:\n\n{error}\n"),
            ),
        }
    }
}

/// The refusal in the form the original gives it: a `Status` object.
fn forbidden(method: &Method, path: &str) -> Response<Bytes> {
    let verb = method.as_str().to_lowercase();
    let message =
        format!("forbidden: User \"system:anonymous\" cannot {verb} path \"{path}\": {}", access::REFUSAL);
    let status = format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":{},\
         \"reason\":\"Forbidden\",\"details\":{{}},\"code\":403}}\n",
        serde_json::Value::from(message)
    );
    nosniff(of(StatusCode::FORBIDDEN, "application/json", status))
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Bytes> {
    nosniff(of(status, TEXT, text))
}

fn nosniff(mut answer: Response<Bytes>) -> Response<Bytes> {
    let headers = answer.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn of(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::IntCounter;

    use super::*;

    fn pages() -> Pages {
        let registry = Registry::new();
        let counter = IntCounter::new("oars_total", "[ALPHA] Oars in time.").unwrap();
        counter.inc_by(170);
        registry.register(Box::new(counter)).unwrap();
        let health = HealthChecks::new();
        health.add_ping("a");
        Pages::new(health, registry, UNIX_EPOCH + Duration::from_millis(1_794_733_201_900))
    }

    fn ask(method: &Method, uri: &str, peer: [u8; 4]) -> Response<Bytes> {
        pages().answer(method, &uri.parse().unwrap(), IpAddr::from(peer))
    }

    fn near(uri: &str) -> Response<Bytes> {
        ask(&Method::GET, uri, [127, 0, 0, 1])
    }

    fn text(answer: &Response<Bytes>) -> &str {
        std::str::from_utf8(answer.body()).unwrap()
    }

    /// Parity: SRV-18, SRV-24, SRV-27.
    #[test]
    fn health_is_told_to_anybody_with_any_method() {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = ask(&method, "/healthz", [192, 0, 2, 1]);
            assert_eq!((answer.status(), text(&answer)), (StatusCode::OK, "ok"));
            assert_eq!(answer.headers()[CONTENT_TYPE], TEXT);
            assert_eq!(answer.headers()[CACHE_CONTROL], "no-cache, private");
        }
        let verbose = "[+]a ok\nhealthz check passed\n";
        assert_eq!(text(&near("/healthz?verbose")), verbose);
        assert_eq!(text(&near("/healthz?verbose=0&x=y")), verbose);
        assert_eq!(text(&near("/healthz?exclude=%61&verbose")), "[+]a excluded: ok\nhealthz check passed\n");
    }

    /// Parity: SRV-20, SRV-54.
    #[test]
    fn there_is_nothing_else() {
        for path in
            ["/livez", "/readyz", "/healthz/a", "/healthz/", "/", "/metrics/", "/debug/pprof", "/configz"]
        {
            let answer = near(path);
            assert_eq!(
                (answer.status(), text(&answer)),
                (StatusCode::NOT_FOUND, "404 page not found\n"),
                "{path}"
            );
        }
        // Health paths that do not exist are no secret either.
        assert_eq!(ask(&Method::GET, "/livez", [192, 0, 2, 1]).status(), StatusCode::NOT_FOUND);
    }

    /// Parity: SRV-30, SRV-31.
    #[test]
    fn metrics_are_told_as_prometheus_text() {
        for method in [Method::GET, Method::DELETE, Method::GET] {
            let answer = ask(&method, "/metrics", [127, 0, 0, 1]);
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()[CONTENT_TYPE], METRICS_TEXT);
            assert_eq!(answer.headers()["Process-Start-Time-Unix"], "1794733201");
            assert_eq!(
                text(&answer),
                "# HELP oars_total [ALPHA] Oars in time.\n# TYPE oars_total counter\noars_total 170\n"
            );
        }
    }

    /// Parity: SRV-77, SRV-79.
    #[test]
    fn strangers_are_refused_with_a_status_object() {
        let answer = ask(&Method::POST, "/metrics?a=b", [192, 0, 2, 1]);
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
        let status: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!((&status["reason"], &status["code"]), (&"Forbidden".into(), &403.into()));
        let message = status["message"].as_str().unwrap();
        assert!(
            message.starts_with("forbidden: User \"system:anonymous\" cannot post path \"/metrics\": "),
            "{message}"
        );
        assert_eq!(ask(&Method::GET, "/no-such-page", [192, 0, 2, 1]).status(), StatusCode::FORBIDDEN);
    }
}
