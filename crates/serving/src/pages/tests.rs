//! Every page, requested without a socket.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, LOCATION, WARNING};
use prometheus::IntCounter;

use super::responses::TEXT;
use super::*;
use crate::access::User;

const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
const NOTICE: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                      guarantees and is for debugging purposes only.";

/// The pages of a process and the verbosity that was set.
struct TestPages {
    pages: Pages,
    verbosity: Arc<AtomicU32>,
}

struct TestRequest<'a> {
    method: Method,
    target: &'a str,
    headers: &'a [(HeaderName, &'a str)],
    body: &'a str,
}

fn test_pages_with(change: impl FnOnce(&mut PageOptions)) -> TestPages {
    let registry = Registry::new();
    let counter = IntCounter::new("oars_total", "[ALPHA] Oars in time.").unwrap();
    counter.inc_by(170);
    registry.register(Box::new(counter)).unwrap();
    let health = HealthChecks::new();
    health.add_ping("a");
    let verbosity = Arc::new(AtomicU32::new(0));
    let set = Arc::clone(&verbosity);
    let flags = [("v", "0"), ("bind-address", "0.0.0.0")];
    let mut options = PageOptions {
        flags: Some(flags.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
        configuration: Some("{\"kind\":\"KubeControllerManagerConfiguration\"}".to_owned()),
        set_verbosity: Some(Arc::new(move |level| {
            set.store(level, Ordering::SeqCst);
            Ok(())
        })),
        ..PageOptions::default()
    };
    change(&mut options);
    let started_at = UNIX_EPOCH + Duration::from_millis(1_794_733_201_900);
    TestPages { pages: Pages::new(health, registry, started_at, options), verbosity }
}

fn test_pages() -> TestPages {
    test_pages_with(|_| {})
}

impl TestPages {
    fn send(&self, test_request: &TestRequest<'_>) -> Response<Bytes> {
        self.request(test_request, |pages, request| pages.response(request))
    }

    fn request<T>(
        &self,
        test_request: &TestRequest<'_>,
        then: impl FnOnce(&Pages, &PageRequest<'_>) -> T,
    ) -> T {
        let uri: Uri = test_request.target.parse().unwrap();
        let headers: HeaderMap =
            test_request.headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let request = PageRequest {
            method: &test_request.method,
            uri: &uri,
            path: uri.path(),
            headers: &headers,
            body: Some(test_request.body.as_bytes()),
        };
        then(&self.pages, &request)
    }

    fn get(&self, target: &str) -> Response<Bytes> {
        self.send(&TestRequest { method: Method::GET, target, headers: &[], body: "" })
    }

    fn with(&self, method: Method, target: &str) -> Response<Bytes> {
        self.send(&TestRequest { method, target, headers: &[], body: "" })
    }

    fn accepting(&self, target: &str, accept: &str) -> Response<Bytes> {
        self.send(&TestRequest { method: Method::GET, target, headers: &[(ACCEPT, accept)], body: "" })
    }
}

fn content_type(response: &Response<Bytes>) -> &str {
    response.headers()[CONTENT_TYPE].to_str().unwrap()
}

fn text(response: &Response<Bytes>) -> &str {
    std::str::from_utf8(response.body()).unwrap()
}

/// Proves SRV-18, SRV-24, SRV-27.
#[test]
fn healthz_responds_to_any_method() {
    let test_pages = test_pages();
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let response = test_pages.with(method, "/healthz");
        assert_eq!((response.status(), text(&response)), (StatusCode::OK, "ok"));
        assert_eq!(response.headers()[CONTENT_TYPE], TEXT);
        assert_eq!(response.headers()[CACHE_CONTROL], "no-cache, private");
    }
    let verbose = "[+]a ok\nhealthz check passed\n";
    assert_eq!(text(&test_pages.get("/healthz?verbose")), verbose);
    assert_eq!(text(&test_pages.get("/healthz?verbose=0&x=y")), verbose);
    assert_eq!(
        text(&test_pages.get("/healthz?exclude=%61&verbose")),
        "[+]a excluded: ok\nhealthz check passed\n"
    );
}

/// Proves SRV-20, SRV-54.
#[test]
fn paths_match_exactly() {
    let test_pages = test_pages();
    for path in [
        "/livez",
        "/readyz",
        "/healthz/a",
        "/healthz/",
        "/",
        "/metrics/",
        "/metrics/slis/",
        "/configz/x",
        "/debug",
        "/debug/",
        "/debug/flagsx",
        "/debug/controllers/a",
        "/debug/controllers/",
    ] {
        let response = test_pages.get(path);
        let got = (response.status(), text(&response));
        assert_eq!(got, (StatusCode::NOT_FOUND, "404 page not found\n"), "{path}");
    }
}

/// Proves SRV-30, SRV-31.
#[test]
fn metrics_are_prometheus_text() {
    let test_pages = test_pages();
    for method in [Method::GET, Method::DELETE, Method::GET] {
        let response = test_pages.with(method, "/metrics");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], METRICS_TEXT);
        assert_eq!(response.headers()["Process-Start-Time-Unix"], "1794733201");
        let wanted = "# HELP oars_total [ALPHA] Oars in time.\n# TYPE oars_total counter\noars_total 170\n";
        assert!(text(&response).contains(wanted), "{}", text(&response));
    }
    assert_eq!(test_pages.get("/metrics/slis").headers()["Process-Start-Time-Unix"], "1794733201");
}

/// Proves SRV-32, SRV-36, OPT-85, OPT-101.
#[test]
fn metrics_include_process_version_and_registry_metrics() {
    let features = vec![
        FeatureGate { name: "Oars".to_owned(), stage: "BETA".to_owned(), enabled: true },
        FeatureGate { name: "Sails".to_owned(), stage: "ALPHA".to_owned(), enabled: false },
    ];
    let test_pages = test_pages_with(|options| {
        options.features = features;
        options.missing_controllers = vec!["job-controller".to_owned()];
        options.disabled_metrics = BTreeSet::from(["oars_total".to_owned()]);
    });
    let metrics = test_pages.get("/metrics");
    for line in [
        "version_info{binary=\"1.37.1\",component=\"kube\",emulation=\"1.37\",min_compat=\"1.36\"} 1",
        "kubernetes_feature_enabled{name=\"Oars\",stage=\"BETA\"} 1",
        "kubernetes_feature_enabled{name=\"Sails\",stage=\"ALPHA\"} 0",
        "keleustes_missing_controllers{name=\"job-controller\"} 1",
        "disabled_metrics_total 1",
        "hidden_metrics_total 0",
        "registered_metrics_total{deprecated_version=\"\",stability_level=\"ALPHA\"} 2",
        "registered_metrics_total{deprecated_version=\"\",stability_level=\"BETA\"} 2",
        "git_version=\"v1.37.1\",go_version=\"rust",
        "process_start_time_seconds 1794733201.9",
        "process_resident_memory_bytes ",
    ] {
        assert!(text(&metrics).contains(line), "{line} is not in\n{}", text(&metrics));
    }
    assert!(!text(&metrics).contains("oars_total"), "the metric is disabled");
}

/// Proves SRV-28, SRV-35.
#[test]
fn slis_count_health_checks_until_reset() {
    let test_pages = test_pages();
    test_pages.pages.0.health.add("b", || Err("no".to_owned()));
    test_pages.get("/healthz");
    test_pages.get("/healthz?exclude=a");
    let encoded = test_pages.get("/metrics/slis");
    for line in [
        "kubernetes_healthcheck{name=\"a\",type=\"healthz\"} 1",
        "kubernetes_healthcheck{name=\"b\",type=\"healthz\"} 0",
        "kubernetes_healthchecks_total{name=\"a\",status=\"success\",type=\"healthz\"} 1",
        "kubernetes_healthchecks_total{name=\"b\",status=\"error\",type=\"healthz\"} 2",
        "process_start_time_seconds 1794733201.9",
    ] {
        assert!(text(&encoded).contains(line), "{line} is not in\n{}", text(&encoded));
    }
    assert!(
        !text(&test_pages.get("/metrics")).contains("kubernetes_healthcheck"),
        "they are only in /metrics/slis"
    );
    let reset = test_pages.with(Method::DELETE, "/metrics/slis");
    assert_eq!((reset.status(), text(&reset)), (StatusCode::OK, "metrics reset\n"));
    assert_eq!(text(&test_pages.get("/metrics/slis")), "");
}

/// Proves SRV-38, SRV-39.
#[test]
fn configz_returns_the_configuration() {
    let response = test_pages().get("/configz");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let wanted =
        "{\"kubecontrollermanager.config.k8s.io\":{\"kind\":\"KubeControllerManagerConfiguration\"}}";
    assert_eq!(text(&response), wanted, "unchanged");
    assert_eq!(text(&test_pages_with(|options| options.configuration = None).get("/configz")), "{}");
}

/// Proves SRV-40, SRV-41.
#[test]
fn flagz_lists_flags_with_a_random_separator() {
    let mut separators = BTreeSet::new();
    for seed in 0..40 {
        let test_pages = test_pages_with(|options| options.rng = fastrand::Rng::with_seed(seed));
        let response = test_pages.get("/flagz");
        assert_eq!(response.headers()[CONTENT_TYPE], TEXT);
        let lines: Vec<_> = text(&response).split('\n').collect();
        assert_eq!(lines[..3], ["", "kube-controller-manager flagz", NOTICE]);
        let separator = lines[3].strip_prefix("bind-address").unwrap().strip_suffix("0.0.0.0").unwrap();
        assert_eq!(lines[4..], [&format!("v{separator}0"), ""]);
        assert_eq!(test_pages.get("/flagz").body(), response.body(), "chosen once per process");
        separators.insert(separator.to_owned());
    }
    assert_eq!(separators, [":", ": ", "=", " "].map(str::to_owned).into());
}

/// Proves SRV-42, SRV-43.
#[test]
fn flagz_returns_an_object_on_request() {
    let test_pages = test_pages();
    let response = test_pages.accepting("/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json;g=config.k8s.io;v=v1beta1;as=Flagz");
    assert_eq!(
        text(&response),
        "{\"kind\":\"Flagz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"kube-controller-manager\"},\
         \"flags\":{\"bind-address\":\"0.0.0.0\",\"v\":\"0\"}}\n"
    );
    assert!(!response.headers().contains_key(WARNING));
    let yaml = test_pages.accepting("/flagz", "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz");
    assert_eq!(yaml.headers()[CONTENT_TYPE], "application/yaml;g=config.k8s.io;v=v1beta1;as=Flagz");
    assert_eq!(
        text(&yaml),
        "apiVersion: config.k8s.io/v1beta1\nflags:\n  bind-address: 0.0.0.0\n  v: \"0\"\nkind: Flagz\nmetadata:\n  \
         name: kube-controller-manager\n"
    );
    let old = test_pages.accepting("/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz");
    assert_eq!(
        old.headers()[WARNING],
        "299 - \"This version of the flagz endpoint is deprecated. Please use a newer version.\""
    );
    assert!(text(&old).contains("config.k8s.io/v1alpha1"));
}

/// Proves SRV-44.
#[test]
fn unsupported_media_type_is_not_acceptable() {
    let test_pages = test_pages();
    let message =
        "only the following media types are accepted: application/json, application/yaml, text/plain";
    for page in ["/flagz", "/statusz"] {
        for accept in [
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "text/html",
            "application/cbor;v=v1beta1;g=config.k8s.io;as=Flagz",
            "application/json;v=v1;g=config.k8s.io;as=Flagz",
            "application/json;as=Flagz",
            "text/plain;as=Flagz",
        ] {
            let response = test_pages.accepting(page, accept);
            assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE, "{page} {accept}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
            let status: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!((&status["message"], &status["reason"]), (&message.into(), &"NotAcceptable".into()));
        }
        for accept in ["*/*", "text/html,*/*;q=0.8", "application/json, text/plain"] {
            assert_eq!(test_pages.accepting(page, accept).headers()[CONTENT_TYPE], TEXT, "{page} {accept}");
        }
    }
}

/// Proves SRV-45, SRV-46.
#[test]
fn statusz_returns_text_or_an_object() {
    let test_pages = test_pages_with(|options| {
        options.rng = fastrand::Rng::with_seed(3);
        options.missing_controllers = vec!["job-controller".to_owned(), "ttl-controller".to_owned()];
    });
    let zpages = &test_pages.pages.0.zpages;
    let now = zpages.started_at + Duration::from_secs(3600 * 30 + 60 * 4 + 5);
    let get_statusz = |accept: &str| {
        let headers = [(ACCEPT, accept)];
        let test_request =
            TestRequest { method: Method::GET, target: "/statusz", headers: &headers, body: "" };
        test_pages.request(&test_request, |_, request| zpages.statusz(request, now)).unwrap()
    };
    let encoded = get_statusz("text/plain");
    let lines: Vec<_> = text(&encoded).lines().collect();
    assert_eq!(lines[..4], ["", "kube-controller-manager statusz", NOTICE, ""]);
    let language = concat!("rust", env!("CARGO_PKG_RUST_VERSION"));
    let wanted = [
        ("Started", "Sun Nov 15 09:00:01 UTC 2026"),
        ("Up", "30 hr 04 min 05 sec"),
        ("Go version", language),
        ("Binary version", "1.37.1"),
        ("Emulation version", "1.37"),
        ("Paths", "/configz /flagz /healthz /metrics"),
        ("Controllers not implemented", "job-controller ttl-controller"),
    ];
    for (line, (name, value)) in lines[4..].iter().zip(wanted) {
        let rest = line.strip_prefix(name).and_then(|rest| rest.strip_suffix(value));
        assert!(rest.is_some_and(|rest| [": ", ":  ", "= ", "  "].contains(&rest)), "{line:?}");
    }
    assert_eq!(lines.len(), 4 + wanted.len());
    let object = get_statusz("application/json;v=v1beta1;g=config.k8s.io;as=Statusz");
    assert_eq!(object.headers()[CONTENT_TYPE], "application/json;g=config.k8s.io;v=v1beta1;as=Statusz");
    assert_eq!(
        text(&object),
        format!(
            "{{\"kind\":\"Statusz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\
             \"metadata\":{{\"name\":\"kube-controller-manager\"}},\"startTime\":\"2026-11-15T09:00:01Z\",\
             \"uptimeSeconds\":108245,\"goVersion\":\"{language}\",\"binaryVersion\":\"1.37.1\",\
             \"emulationVersion\":\"1.37\",\"paths\":[\"/configz\",\"/flagz\",\"/healthz\",\"/metrics\"]}}\n"
        )
    );
}

/// Proves SRV-47.
#[test]
fn disabled_pages_are_not_found() {
    let test_pages = test_pages_with(|options| (options.flags, options.statusz) = (None, false));
    for page in ["/flagz", "/statusz"] {
        assert_eq!(test_pages.get(page).status(), StatusCode::NOT_FOUND, "{page}");
    }
    let test_pages = test_pages_with(|options| options.flags = None);
    assert!(text(&test_pages.get("/statusz")).contains(" /configz /healthz /metrics\n"));
}

/// Proves SRV-50.
#[test]
fn profiles_are_listed_and_not_implemented() {
    let test_pages = test_pages();
    let moved = test_pages.get("/debug/pprof");
    assert_eq!(
        (moved.status(), text(&moved)),
        (StatusCode::FOUND, "<a href=\"/debug/pprof/\">Found</a>.\n\n")
    );
    assert_eq!(moved.headers()[LOCATION], "/debug/pprof/");
    assert_eq!(text(&test_pages.with(Method::POST, "/debug/pprof")), "");
    let index = test_pages.get("/debug/pprof/");
    assert_eq!((index.status(), content_type(&index)), (StatusCode::OK, "text/html; charset=utf-8"));
    for name in ["profile", "symbol", "trace", "heap", "goroutine"] {
        let response = test_pages.get(&format!("/debug/pprof/{name}"));
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED, "{name}");
        assert!(text(&response).contains(name) && text(&index).contains(name), "{name}");
    }
    let unknown = test_pages.get("/debug/pprof/nosuch");
    assert_eq!((unknown.status(), text(&unknown)), (StatusCode::NOT_FOUND, "Unknown profile\n"));
    let off = test_pages_with(|options| options.profiling = false);
    for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags", "/debug/flags/v"] {
        assert_eq!(text(&off.get(path)), "404 page not found\n", "{path}");
    }
}

/// Proves SRV-52.
#[test]
fn log_verbosity_can_be_set() {
    let test_pages = test_pages();
    let put = |body: &str| {
        let test_request = TestRequest { method: Method::PUT, target: "/debug/flags/v", headers: &[], body };
        let response = test_pages.send(&test_request);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain");
        (response.status().as_u16(), text(&response).to_owned())
    };
    assert_eq!(put("3"), (200, "successfully set klog.logging.verbosity to 3\n".to_owned()));
    assert_eq!(test_pages.verbosity.load(Ordering::SeqCst), 3);
    for (body, error_text) in [
        ("abc", "strconv.ParseUint: parsing \"abc\": invalid syntax"),
        ("", "strconv.ParseUint: parsing \"\": invalid syntax"),
        ("-1", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
        ("3\n", "strconv.ParseUint: parsing \"3\\n\": invalid syntax"),
        ("99999999999", "strconv.ParseUint: parsing \"99999999999\": value out of range"),
        (
            "3000000000",
            "failed set klog.logging.verbosity 3000000000: strconv.ParseInt: parsing \"3000000000\": value out of range",
        ),
    ] {
        assert_eq!(put(body), (400, format!("{error_text}\n")), "{body:?}");
    }
    assert_eq!(test_pages.verbosity.load(Ordering::SeqCst), 3, "a refused value changes nothing");
    let get = test_pages.get("/debug/flags/v");
    assert_eq!((get.status().as_u16(), text(&get)), (406, "unsupported http method\n"));
}

/// Proves SRV-53.
#[test]
fn settable_flags_are_listed() {
    let test_pages = test_pages();
    for path in ["/debug/flags", "/debug/flags/", "/debug/flags/x"] {
        let response = test_pages.get(path);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(text(&response).contains("<tr>v<br>"), "{path}");
    }
}

/// Proves SRV-54, SRV-85, RUN-55.
#[test]
fn controllers_can_add_debug_pages() {
    let test_pages = test_pages();
    test_pages.pages.add_debug("gc", |rest, query| Response::new(format!("{rest}?{query}").into()));
    for (path, wanted) in [
        ("/debug/controllers/gc", "?"),
        ("/debug/controllers/gc/", "?"),
        ("/debug/controllers/gc/graph", "graph?"),
        ("/debug/controllers/gc/a/b?uid=1&uid=2", "a/b?uid=1&uid=2"),
        ("/debug/controllers/gcx/graph", "404 page not found\n"),
    ] {
        assert_eq!(text(&test_pages.get(path)), wanted, "{path}");
    }
    assert!(!text(&test_pages.get("/statusz")).contains("/debug"), "debug pages are not listed");
}

fn refusal(admission: &AuthResult, headers: &[(HeaderName, &str)]) -> Response<Bytes> {
    let test_request = TestRequest { method: Method::POST, target: "/metrics?a=&b", headers, body: "" };
    test_pages().request(&test_request, |pages, request| pages.refuse(admission, request))
}

/// Proves SRV-72.
#[test]
fn unauthorized_response_is_a_status_object() {
    let response = refusal(&AuthResult::Unauthenticated, &[]);
    assert_eq!((response.status(), content_type(&response)), (StatusCode::UNAUTHORIZED, "application/json"));
    assert_eq!(
        text(&response),
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"Unauthorized\",\
         \"reason\":\"Unauthorized\",\"code\":401}\n"
    );
}

/// Proves SRV-79.
#[test]
fn forbidden_response_is_a_status_object() {
    let forbidden = |name: &str, reason: &str| AuthResult::Forbidden {
        user: User { name: name.to_owned(), ..User::default() },
        reason: reason.to_owned(),
    };
    let response = refusal(&forbidden("system:anonymous", ""), &[]);
    assert_eq!((response.status(), content_type(&response)), (StatusCode::FORBIDDEN, "application/json"));
    assert_eq!(
        text(&response),
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\
         \"forbidden: User \\\"system:anonymous\\\" cannot post path \\\"/metrics\\\"\",\"reason\":\"Forbidden\",\
         \"details\":{},\"code\":403}\n"
    );
    let reasoned: serde_json::Value =
        serde_json::from_slice(refusal(&forbidden("<a>", "no"), &[]).body()).unwrap();
    assert_eq!(reasoned["message"], "forbidden: User \"&lt;a&gt;\" cannot post path \"/metrics\": no");
    let yaml = refusal(&forbidden("a", ""), &[(ACCEPT, "application/yaml")]);
    assert_eq!(yaml.headers()[CONTENT_TYPE], "application/yaml");
    assert_eq!(
        text(&yaml),
        "apiVersion: v1\ncode: 403\ndetails: {}\nkind: Status\nmessage: 'forbidden: User \"a\" cannot post path \
         \"/metrics\"'\nmetadata: {}\nreason: Forbidden\nstatus: Failure\n"
    );
    let person = refusal(&forbidden("a", ""), &[(USER_AGENT, "curl/8.0")]);
    assert!(text(&person).starts_with("{\n  \"kind\": \"Status\",\n") && text(&person).ends_with('}'));
}

/// Proves SRV-80.
#[test]
fn authorizer_error_is_an_internal_server_error() {
    let admission = AuthResult::AuthorizerError { user: User::anonymous(), error: "no <answer>".to_owned() };
    let response = refusal(&admission, &[]);
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(text(&response), "Internal Server Error: \"/metrics?a=&amp;b\": no &lt;answer&gt;\n");
}

/// Proves SRV-103.
#[test]
fn panic_response_matches_the_originals() {
    let response = Pages::panicked();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let wanted = "This request caused apiserver to panic. Look in the logs for details.\n";
    assert_eq!(text(&response), wanted);
}

#[test]
fn readiness_page_shows_the_reason_and_exists_only_with_checks() {
    let checks = HealthChecks::new();
    checks.add("controllers", || Err("job-controller: not implemented".to_owned()));
    let readiness = checks.clone();
    let blocked = test_pages_with(|options| options.readiness = Some(readiness));
    let response = blocked.get("/readyz");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let reason = "[-]controllers failed: job-controller: not implemented\nreadyz check failed\n";
    assert_eq!(text(&response), reason);
    assert!(text(&blocked.get("/metrics")).contains("\nkeleustes_ready 0\n"));
    checks.add_ping("controllers");
    let response = blocked.get("/readyz");
    assert_eq!((response.status(), text(&response)), (StatusCode::OK, "ok"));
    assert!(text(&blocked.get("/metrics")).contains("\nkeleustes_ready 1\n"));
    assert_eq!(test_pages().get("/readyz").status(), StatusCode::NOT_FOUND);
}

#[test]
fn status_and_metrics_name_the_program() {
    let pages = test_pages_with(|options| {
        options.version_info.program = "Keleustes 0.1.0 (commit abc)".to_owned();
        options.version_info.program_version = "0.1.0".to_owned();
        options.version_info.git_commit = "abcdef".to_owned();
        options.version_info.language = "rust1.95".to_owned();
    });
    let statusz = pages.get("/statusz");
    let line = text(&statusz).lines().find(|line| line.starts_with("Program")).unwrap();
    assert!(line.ends_with(" Keleustes 0.1.0 (commit abc)"), "{line}");
    let info = "keleustes_build_info{git_commit=\"abcdef\",kubernetes_version=\"v1.37.1\",\
                rust_version=\"1.95\",version=\"0.1.0\"} 1";
    let metrics = pages.get("/metrics");
    assert!(text(&metrics).lines().any(|line| line == info), "{}", text(&metrics));
}
