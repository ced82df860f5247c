//! Every page, asked without a socket.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, LOCATION, WARNING};
use prometheus::IntCounter;

use super::answers::TEXT;
use super::*;
use crate::access::User;

const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
const NOTICE: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                      guarantees and is for debugging purposes only.";

/// A process and what was asked of it.
struct World {
    pages: Pages,
    verbosity: Arc<AtomicU32>,
}

struct Question<'a> {
    method: Method,
    target: &'a str,
    headers: &'a [(HeaderName, &'a str)],
    body: &'a str,
}

fn world_with(change: impl FnOnce(&mut PageOptions)) -> World {
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
    World { pages: Pages::new(health, registry, started_at, options), verbosity }
}

fn world() -> World {
    world_with(|_| {})
}

impl World {
    fn ask(&self, question: &Question<'_>) -> Response<Bytes> {
        self.asked(question, |pages, asked| pages.answer(asked))
    }

    fn asked<T>(&self, question: &Question<'_>, then: impl FnOnce(&Pages, &Asked<'_>) -> T) -> T {
        let uri: Uri = question.target.parse().unwrap();
        let headers: HeaderMap =
            question.headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let asked = Asked {
            method: &question.method,
            uri: &uri,
            path: uri.path(),
            headers: &headers,
            body: Some(question.body.as_bytes()),
        };
        then(&self.pages, &asked)
    }

    fn get(&self, target: &str) -> Response<Bytes> {
        self.ask(&Question { method: Method::GET, target, headers: &[], body: "" })
    }

    fn with(&self, method: Method, target: &str) -> Response<Bytes> {
        self.ask(&Question { method, target, headers: &[], body: "" })
    }

    fn accepting(&self, target: &str, accept: &str) -> Response<Bytes> {
        self.ask(&Question { method: Method::GET, target, headers: &[(ACCEPT, accept)], body: "" })
    }
}

fn content_type(answer: &Response<Bytes>) -> &str {
    answer.headers()[CONTENT_TYPE].to_str().unwrap()
}

fn text(answer: &Response<Bytes>) -> &str {
    std::str::from_utf8(answer.body()).unwrap()
}

/// Proves SRV-18, SRV-24, SRV-27.
#[test]
fn health_is_told_with_any_method() {
    let world = world();
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let answer = world.with(method, "/healthz");
        assert_eq!((answer.status(), text(&answer)), (StatusCode::OK, "ok"));
        assert_eq!(answer.headers()[CONTENT_TYPE], TEXT);
        assert_eq!(answer.headers()[CACHE_CONTROL], "no-cache, private");
    }
    let verbose = "[+]a ok\nhealthz check passed\n";
    assert_eq!(text(&world.get("/healthz?verbose")), verbose);
    assert_eq!(text(&world.get("/healthz?verbose=0&x=y")), verbose);
    assert_eq!(text(&world.get("/healthz?exclude=%61&verbose")), "[+]a excluded: ok\nhealthz check passed\n");
}

/// Proves SRV-20, SRV-54.
#[test]
fn paths_match_exactly() {
    let world = world();
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
        let answer = world.get(path);
        let got = (answer.status(), text(&answer));
        assert_eq!(got, (StatusCode::NOT_FOUND, "404 page not found\n"), "{path}");
    }
}

/// Proves SRV-30, SRV-31.
#[test]
fn metrics_are_told_as_prometheus_text() {
    let world = world();
    for method in [Method::GET, Method::DELETE, Method::GET] {
        let answer = world.with(method, "/metrics");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[CONTENT_TYPE], METRICS_TEXT);
        assert_eq!(answer.headers()["Process-Start-Time-Unix"], "1794733201");
        let wanted = "# HELP oars_total [ALPHA] Oars in time.\n# TYPE oars_total counter\noars_total 170\n";
        assert!(text(&answer).contains(wanted), "{}", text(&answer));
    }
    assert_eq!(world.get("/metrics/slis").headers()["Process-Start-Time-Unix"], "1794733201");
}

/// Proves SRV-32, SRV-36, OPT-85, OPT-101.
#[test]
fn metrics_tell_of_the_process_and_of_themselves() {
    let features = vec![
        FeatureGate { name: "Oars".to_owned(), stage: "BETA".to_owned(), enabled: true },
        FeatureGate { name: "Sails".to_owned(), stage: "ALPHA".to_owned(), enabled: false },
    ];
    let world = world_with(|options| {
        options.features = features;
        options.missing_controllers = vec!["job-controller".to_owned()];
        options.disabled_metrics = BTreeSet::from(["oars_total".to_owned()]);
    });
    let metrics = world.get("/metrics");
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
    assert!(!text(&metrics).contains("oars_total"), "it is turned off");
}

/// Proves SRV-28, SRV-35.
#[test]
fn health_checks_are_counted_until_they_are_reset() {
    let world = world();
    world.pages.0.health.add("b", || Err("no".to_owned()));
    world.get("/healthz");
    world.get("/healthz?exclude=a");
    let told = world.get("/metrics/slis");
    for line in [
        "kubernetes_healthcheck{name=\"a\",type=\"healthz\"} 1",
        "kubernetes_healthcheck{name=\"b\",type=\"healthz\"} 0",
        "kubernetes_healthchecks_total{name=\"a\",status=\"success\",type=\"healthz\"} 1",
        "kubernetes_healthchecks_total{name=\"b\",status=\"error\",type=\"healthz\"} 2",
        "process_start_time_seconds 1794733201.9",
    ] {
        assert!(text(&told).contains(line), "{line} is not in\n{}", text(&told));
    }
    assert!(
        !text(&world.get("/metrics")).contains("kubernetes_healthcheck"),
        "they have a page of their own"
    );
    let reset = world.with(Method::DELETE, "/metrics/slis");
    assert_eq!((reset.status(), text(&reset)), (StatusCode::OK, "metrics reset\n"));
    assert_eq!(text(&world.get("/metrics/slis")), "");
}

/// Proves SRV-38, SRV-39.
#[test]
fn the_configuration_is_told_as_one_object() {
    let answer = world().get("/configz");
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
    let wanted =
        "{\"kubecontrollermanager.config.k8s.io\":{\"kind\":\"KubeControllerManagerConfiguration\"}}";
    assert_eq!(text(&answer), wanted, "as it was handed in, key by key");
    assert_eq!(text(&world_with(|options| options.configuration = None).get("/configz")), "{}");
}

/// Proves SRV-40, SRV-41.
#[test]
fn flags_are_told_by_name_with_a_separator_nobody_can_rely_on() {
    let mut separators = BTreeSet::new();
    for seed in 0..40 {
        let world = world_with(|options| options.rng = fastrand::Rng::with_seed(seed));
        let answer = world.get("/flagz");
        assert_eq!(answer.headers()[CONTENT_TYPE], TEXT);
        let lines: Vec<_> = text(&answer).split('\n').collect();
        assert_eq!(lines[..3], ["", "kube-controller-manager flagz", NOTICE]);
        let separator = lines[3].strip_prefix("bind-address").unwrap().strip_suffix("0.0.0.0").unwrap();
        assert_eq!(lines[4..], [&format!("v{separator}0"), ""]);
        assert_eq!(world.get("/flagz").body(), answer.body(), "chosen once for a process");
        separators.insert(separator.to_owned());
    }
    assert_eq!(separators, [":", ": ", "=", " "].map(str::to_owned).into());
}

/// Proves SRV-42, SRV-43.
#[test]
fn flags_are_told_as_an_object_to_those_who_ask_for_one() {
    let world = world();
    let answer = world.accepting("/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz");
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/json;g=config.k8s.io;v=v1beta1;as=Flagz");
    assert_eq!(
        text(&answer),
        "{\"kind\":\"Flagz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"kube-controller-manager\"},\
         \"flags\":{\"bind-address\":\"0.0.0.0\",\"v\":\"0\"}}\n"
    );
    assert!(!answer.headers().contains_key(WARNING));
    let yaml = world.accepting("/flagz", "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz");
    assert_eq!(yaml.headers()[CONTENT_TYPE], "application/yaml;g=config.k8s.io;v=v1beta1;as=Flagz");
    assert_eq!(
        text(&yaml),
        "apiVersion: config.k8s.io/v1beta1\nflags:\n  bind-address: 0.0.0.0\n  v: \"0\"\nkind: Flagz\nmetadata:\n  \
         name: kube-controller-manager\n"
    );
    let old = world.accepting("/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz");
    assert_eq!(
        old.headers()[WARNING],
        "299 - \"This version of the flagz endpoint is deprecated. Please use a newer version.\""
    );
    assert!(text(&old).contains("config.k8s.io/v1alpha1"));
}

/// Proves SRV-44.
#[test]
fn who_takes_no_form_there_is_is_told_which_there_are() {
    let world = world();
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
            let answer = world.accepting(page, accept);
            assert_eq!(answer.status(), StatusCode::NOT_ACCEPTABLE, "{page} {accept}");
            assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
            let status: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
            assert_eq!((&status["message"], &status["reason"]), (&message.into(), &"NotAcceptable".into()));
        }
        for accept in ["*/*", "text/html,*/*;q=0.8", "application/json, text/plain"] {
            assert_eq!(world.accepting(page, accept).headers()[CONTENT_TYPE], TEXT, "{page} {accept}");
        }
    }
}

/// Proves SRV-45, SRV-46.
#[test]
fn the_process_is_told_as_text_and_as_an_object() {
    let world = world_with(|options| {
        options.rng = fastrand::Rng::with_seed(3);
        options.missing_controllers = vec!["job-controller".to_owned(), "ttl-controller".to_owned()];
    });
    let zpages = &world.pages.0.zpages;
    let now = zpages.started_at + Duration::from_secs(3600 * 30 + 60 * 4 + 5);
    let ask = |accept: &str| {
        let headers = [(ACCEPT, accept)];
        let question = Question { method: Method::GET, target: "/statusz", headers: &headers, body: "" };
        world.asked(&question, |_, asked| zpages.statusz(asked, now)).unwrap()
    };
    let told = ask("text/plain");
    let lines: Vec<_> = text(&told).lines().collect();
    assert_eq!(lines[..4], ["", "kube-controller-manager statusz", NOTICE, ""]);
    let language = concat!("rust", env!("CARGO_PKG_RUST_VERSION"));
    let wanted = [
        ("Started", "Sun Nov 15 09:00:01 UTC 2026"),
        ("Up", "30 hr 04 min 05 sec"),
        ("Go version", language),
        ("Binary version", "1.37.1"),
        ("Emulation version", "1.37"),
        ("Paths", "/configz /flagz /healthz /metrics"),
        ("Controllers not there yet", "job-controller ttl-controller"),
    ];
    for (line, (name, value)) in lines[4..].iter().zip(wanted) {
        let rest = line.strip_prefix(name).and_then(|rest| rest.strip_suffix(value));
        assert!(rest.is_some_and(|rest| [": ", ":  ", "= ", "  "].contains(&rest)), "{line:?}");
    }
    assert_eq!(lines.len(), 4 + wanted.len());
    let object = ask("application/json;v=v1beta1;g=config.k8s.io;as=Statusz");
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
fn pages_that_are_turned_off_are_not_there() {
    let world = world_with(|options| (options.flags, options.statusz) = (None, false));
    for page in ["/flagz", "/statusz"] {
        assert_eq!(world.get(page).status(), StatusCode::NOT_FOUND, "{page}");
    }
    let world = world_with(|options| options.flags = None);
    assert!(text(&world.get("/statusz")).contains(" /configz /healthz /metrics\n"));
}

/// Proves SRV-50.
#[test]
fn profiles_are_named_and_honestly_not_there() {
    let world = world();
    let moved = world.get("/debug/pprof");
    assert_eq!(
        (moved.status(), text(&moved)),
        (StatusCode::FOUND, "<a href=\"/debug/pprof/\">Found</a>.\n\n")
    );
    assert_eq!(moved.headers()[LOCATION], "/debug/pprof/");
    assert_eq!(text(&world.with(Method::POST, "/debug/pprof")), "");
    let index = world.get("/debug/pprof/");
    assert_eq!((index.status(), content_type(&index)), (StatusCode::OK, "text/html; charset=utf-8"));
    for name in ["profile", "symbol", "trace", "heap", "goroutine"] {
        let answer = world.get(&format!("/debug/pprof/{name}"));
        assert_eq!(answer.status(), StatusCode::NOT_IMPLEMENTED, "{name}");
        assert!(text(&answer).contains(name) && text(&index).contains(name), "{name}");
    }
    let unknown = world.get("/debug/pprof/nosuch");
    assert_eq!((unknown.status(), text(&unknown)), (StatusCode::NOT_FOUND, "Unknown profile\n"));
    let off = world_with(|options| options.profiling = false);
    for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags", "/debug/flags/v"] {
        assert_eq!(text(&off.get(path)), "404 page not found\n", "{path}");
    }
}

/// Proves SRV-52.
#[test]
fn the_verbosity_of_the_log_can_be_set() {
    let world = world();
    let put = |body: &str| {
        let question = Question { method: Method::PUT, target: "/debug/flags/v", headers: &[], body };
        let answer = world.ask(&question);
        assert_eq!(answer.headers()[CONTENT_TYPE], "text/plain");
        (answer.status().as_u16(), text(&answer).to_owned())
    };
    assert_eq!(put("3"), (200, "successfully set klog.logging.verbosity to 3\n".to_owned()));
    assert_eq!(world.verbosity.load(Ordering::SeqCst), 3);
    for (body, fault) in [
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
        assert_eq!(put(body), (400, format!("{fault}\n")), "{body:?}");
    }
    assert_eq!(world.verbosity.load(Ordering::SeqCst), 3, "what was refused changed nothing");
    let get = world.get("/debug/flags/v");
    assert_eq!((get.status().as_u16(), text(&get)), (406, "unsupported http method\n"));
}

/// Proves SRV-53.
#[test]
fn flags_that_can_be_set_are_listed() {
    let world = world();
    for path in ["/debug/flags", "/debug/flags/", "/debug/flags/x"] {
        let answer = world.get(path);
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(text(&answer).contains("<tr>v<br>"), "{path}");
    }
}

/// Proves SRV-54.
#[test]
fn controllers_bring_pages_of_their_own() {
    let world = world();
    world.pages.add_debug("gc", |rest, query| Response::new(format!("{rest}?{query}").into()));
    for (path, wanted) in [
        ("/debug/controllers/gc", "?"),
        ("/debug/controllers/gc/", "?"),
        ("/debug/controllers/gc/graph", "graph?"),
        ("/debug/controllers/gc/a/b?uid=1&uid=2", "a/b?uid=1&uid=2"),
        ("/debug/controllers/gcx/graph", "404 page not found\n"),
    ] {
        assert_eq!(text(&world.get(path)), wanted, "{path}");
    }
    assert!(!text(&world.get("/statusz")).contains("/debug"), "they are not listed");
}

fn refused(admission: &Admission, headers: &[(HeaderName, &str)]) -> Response<Bytes> {
    let question = Question { method: Method::POST, target: "/metrics?a=&b", headers, body: "" };
    world().asked(&question, |pages, asked| pages.refuse(admission, asked))
}

/// Proves SRV-72.
#[test]
fn who_is_not_believed_gets_a_status_object() {
    let answer = refused(&Admission::Unknown, &[]);
    assert_eq!((answer.status(), content_type(&answer)), (StatusCode::UNAUTHORIZED, "application/json"));
    assert_eq!(
        text(&answer),
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"Unauthorized\",\
         \"reason\":\"Unauthorized\",\"code\":401}\n"
    );
}

/// Proves SRV-79.
#[test]
fn who_may_not_gets_a_status_object() {
    let forbidden = |name: &str, reason: &str| Admission::Forbidden {
        user: User { name: name.to_owned(), ..User::default() },
        reason: reason.to_owned(),
    };
    let answer = refused(&forbidden("system:anonymous", ""), &[]);
    assert_eq!((answer.status(), content_type(&answer)), (StatusCode::FORBIDDEN, "application/json"));
    assert_eq!(
        text(&answer),
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\
         \"forbidden: User \\\"system:anonymous\\\" cannot post path \\\"/metrics\\\"\",\"reason\":\"Forbidden\",\
         \"details\":{},\"code\":403}\n"
    );
    let reasoned: serde_json::Value =
        serde_json::from_slice(refused(&forbidden("<a>", "no"), &[]).body()).unwrap();
    assert_eq!(reasoned["message"], "forbidden: User \"&lt;a&gt;\" cannot post path \"/metrics\": no");
    let yaml = refused(&forbidden("a", ""), &[(ACCEPT, "application/yaml")]);
    assert_eq!(yaml.headers()[CONTENT_TYPE], "application/yaml");
    assert_eq!(
        text(&yaml),
        "apiVersion: v1\ncode: 403\ndetails: {}\nkind: Status\nmessage: 'forbidden: User \"a\" cannot post path \
         \"/metrics\"'\nmetadata: {}\nreason: Forbidden\nstatus: Failure\n"
    );
    let person = refused(&forbidden("a", ""), &[(USER_AGENT, "curl/8.0")]);
    assert!(text(&person).starts_with("{\n  \"kind\": \"Status\",\n") && text(&person).ends_with('}'));
}

/// Proves SRV-80.
#[test]
fn what_could_not_be_decided_is_an_error() {
    let admission = Admission::Failed { user: User::anonymous(), error: "no <answer>".to_owned() };
    let answer = refused(&admission, &[]);
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(text(&answer), "Internal Server Error: \"/metrics?a=&amp;b\": no &lt;answer&gt;\n");
}

/// Proves SRV-103.
#[test]
fn a_page_that_fails_is_told() {
    let answer = Pages::panicked();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let wanted = "This request caused apiserver to panic. Look in the logs for details.\n";
    assert_eq!(text(&answer), wanted);
}
