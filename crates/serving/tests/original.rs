//! Every page of the original and of ours, asked by everybody: answers are the same, or listed with a reason.
//!
//! Run with `cargo test -p keleustes-serving --test original -- --ignored`; needs Go for its first build.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

#[path = "original/client.rs"]
mod client;
#[path = "original/normal.rs"]
mod normal;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, Process, User};
use keleustes_serving::{
    Access, ApiServerClient, AuthenticationOptions, AuthorizationOptions, DelegatingClients, HealthChecks,
    PageOptions, Pages, RequestHeaderOptions, Server, ServingOptions,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use self::client::{Answer, Asker, Pair, Question, ask, send};
use self::normal::normal;

const DIFFERENCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences/serving.md");
/// Tells our requests in the audit log.
const AGENT: &str = "serving-under-test";
/// What Prometheus asks for when it scrapes native histograms.
const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
const FLAGZ: &str = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz";

/// Every page.
const PAGES: [&str; 33] = [
    "/",
    "/nothing",
    "/healthz",
    "/healthz?verbose",
    "/healthz?exclude=leaderElection&verbose",
    "/healthz?exclude=x&exclude=y&verbose",
    "/healthz/leaderElection",
    "/livez",
    "/readyz",
    "/metrics",
    "/metrics/",
    "/metrics/slis",
    "/configz",
    "/flagz",
    "/statusz",
    "/statusz?pretty=true",
    "/api/v1/pods",
    "/a%3Cb%22c",
    "/debug/pprof",
    "/debug/pprof/",
    "/debug/pprof/heap",
    "/debug/pprof/goroutine",
    "/debug/pprof/symbol",
    "/debug/pprof/cmdline",
    "/debug/pprof/nosuch",
    "/debug/flags",
    "/debug/flags/",
    "/debug/flags/x",
    "/debug/flags/v",
    "/debug/controllers",
    "/debug/controllers/nosuch/graph",
    "/debug/controllers/garbage-collector-controller",
    "/debug/controllers/garbage-collector-controller/graph",
];

/// Methods that pages might care about.
const METHODS: [(Method, &str); 7] = [
    (Method::POST, "/healthz"),
    (Method::HEAD, "/healthz"),
    (Method::HEAD, "/nothing"),
    (Method::DELETE, "/metrics"),
    (Method::OPTIONS, "/configz"),
    (Method::POST, "/debug/pprof"),
    (Method::PATCH, "/statusz"),
];

/// Headers that change the form of an answer.
const HEADERS: [(&str, &[(&str, &str)]); 19] = [
    ("/metrics", &[("Accept", "application/yaml")]),
    ("/metrics", &[("Accept", "text/html")]),
    ("/metrics", &[("User-Agent", "curl/8.0")]),
    ("/metrics", &[("Accept", "application/vnd.kubernetes.protobuf")]),
    ("/metrics", &[("Accept", "application/json;pretty=1")]),
    ("/metrics", &[("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")]),
    ("/metrics", &[("Accept", PROTOBUF)]),
    ("/metrics", &[("Accept-Encoding", "gzip")]),
    ("/flagz", &[("Accept", FLAGZ)]),
    ("/flagz", &[("Accept", "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz")]),
    ("/flagz", &[("Accept", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz")]),
    ("/flagz", &[("Accept", "application/cbor;v=v1beta1;g=config.k8s.io;as=Flagz")]),
    ("/flagz", &[("Accept", "application/json;as=Flagz")]),
    ("/flagz", &[("Accept", "application/json")]),
    ("/flagz", &[("Accept", "text/html,*/*;q=0.8")]),
    ("/flagz", &[("Accept", "garbage")]),
    ("/statusz", &[("Accept", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz")]),
    ("/statusz", &[("Accept", "application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz")]),
    ("/statusz", &[("Accept", "application/json")]),
];

/// Levels of verbosity, good and bad.
const LEVELS: [&str; 7] = ["3", "abc", "", "-1", "99999999999", "3000000000", "0"];

fn questions() -> Vec<Question> {
    let asked = |method, target, headers, body| Question { method, target, headers, body };
    let mut questions: Vec<_> = PAGES.map(Question::get).into();
    questions.extend(METHODS.map(|(method, target)| asked(method, target, &[], "")));
    questions.extend(HEADERS.map(|(target, headers)| asked(Method::GET, target, headers, "")));
    questions.extend(LEVELS.map(|level| asked(Method::PUT, "/debug/flags/v", &[], level)));
    // Last, since it forgets what others look at.
    questions.push(asked(Method::DELETE, "/metrics/slis", &[], ""));
    questions.push(Question::get("/metrics/slis?again"));
    questions
}

/// A plane with the original on it, and ours beside it.
struct World {
    plane: ControlPlane,
    _original: Process,
    original: SocketAddr,
}

impl World {
    async fn start() -> Self {
        let plane = ControlPlane::builder().with_program(Program::KubeControllerManager).start().unwrap();
        let kubectl = |args: &str| {
            let done = plane.kubectl(User::Admin).unwrap().args(args.split(' ')).output().unwrap();
            assert!(done.status.success(), "{args}: {}", String::from_utf8_lossy(&done.stderr));
        };
        kubectl("create serviceaccount nobody -n default");
        kubectl("create serviceaccount reader -n default");
        kubectl(
            "create clusterrole pages --verb=get,post,put,delete,head,patch,options --non-resource-url=*",
        );
        kubectl("create clusterrolebinding pages --clusterrole=pages --serviceaccount=default:reader");
        let original = plane.start_go_manager::<&str>(&[]).unwrap();
        let address = address_in(original.log_path()).await;
        let world = Self { plane, _original: original, original: address };
        world.until_it_leads().await;
        world
    }

    async fn until_it_leads(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.checks().await.len() < 10 {
            assert!(Instant::now() < deadline, "the original does not lead");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The original's health checks.
    async fn checks(&self) -> Vec<String> {
        let answer = ask(self.original, &stranger(), &Question::get("/healthz?verbose")).await;
        let checks = answer.body.lines().filter_map(|line| line.strip_prefix("[+]")?.strip_suffix(" ok"));
        checks.map(str::to_owned).collect()
    }

    fn token(&self, account: &str) -> String {
        let mut kubectl = self.plane.kubectl(User::Admin).unwrap();
        let made = kubectl.args(["create", "token", account, "-n", "default"]).output().unwrap();
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    /// Everybody who might ask.
    fn askers(&self) -> Vec<Asker> {
        let bearer = |name, token: &str| Asker {
            name,
            headers: vec![("Authorization", format!("Bearer {token}"))],
            pair: None,
        };
        let proxied = |name, user: &str, pair| Asker {
            name,
            headers: vec![
                ("X-Remote-User", user.to_owned()),
                ("X-Remote-Group", "system:masters".to_owned()),
            ],
            pair: Some(pair),
        };
        let ca = self.plane.front_proxy_ca_file();
        let front_proxy = || {
            let key = PrivateKeyDer::from_pem_file(ca.with_file_name("front-proxy-client.key")).unwrap();
            let file = ca.with_file_name("front-proxy-client.crt");
            (CertificateDer::pem_file_iter(file).unwrap().collect::<Result<_, _>>().unwrap(), key)
        };
        let certified = |name, pair| Asker { name, headers: Vec::new(), pair: Some(pair) };
        vec![
            stranger(),
            bearer("a bad token", "bad"),
            bearer("a token without permission", &self.token("nobody")),
            bearer("a token with permission", &self.token("reader")),
            Asker { name: "basic", headers: vec![("Authorization", "Basic YTpi".to_owned())], pair: None },
            certified("a certificate without permission", self.pair("jane", None)),
            certified("a certificate with permission", self.pair("root", Some("system:masters"))),
            certified("a certificate of strangers", self_made()),
            proxied("a proxy", "ann", front_proxy()),
            proxied("no proxy", "ann", self.pair("jane", None)),
        ]
    }

    fn pair(&self, user: &str, group: Option<&str>) -> Pair {
        pair_in(&self.plane.kubeconfig_for(user, group).unwrap())
    }

    /// The API server, asked as the controller manager.
    fn api(&self) -> ApiServerClient {
        let pair = pair_in(&self.plane.kubeconfig(User::ControllerManager));
        let manager = Arc::new(Asker { name: "the manager", headers: Vec::new(), pair: Some(pair) });
        let address = self.plane.api_server_url().strip_prefix("https://").unwrap().parse().unwrap();
        ApiServerClient::from_service(tower::service_fn(move |request: Request<Bytes>| {
            let manager = Arc::clone(&manager);
            let mut request = request.map(Full::new);
            request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
            async move { Ok::<_, std::io::Error>(send(address, &manager, request).await) }
        }))
    }

    /// Ours, told what the original tells, with these ways of knowing people.
    async fn ours(&self, authentication: &AuthenticationOptions, told: PageOptions) -> SocketAddr {
        let api = self.api();
        let delegates = DelegatingClients { authentication: Some(api.clone()), authorization: Some(api) };
        let registry = prometheus::Registry::new();
        let rng = fastrand::Rng::with_seed(1);
        let options = AuthorizationOptions::default();
        let access = Access::open(authentication, &options, delegates, &registry, rng).await.unwrap();
        let health = HealthChecks::new();
        health.add_pings(self.checks().await);
        let pages = Pages::new(health, registry, SystemTime::now(), told);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServingOptions { bind_address: [127, 0, 0, 1].into(), ..ServingOptions::default() };
        let server = Server::from_listener(listener, &options, pages, access).unwrap();
        let address = server.address();
        tokio::spawn(server.run(std::future::pending()));
        address
    }
}

/// The address that a log says is served on; its socket is open before that is said.
async fn address_in(log: &Path) -> SocketAddr {
    for _ in 0..100 {
        let text = std::fs::read_to_string(log).unwrap();
        let after = text.split_once("Serving securely on ").and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((address, _)) = after {
            return address.trim_end_matches('"').parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the original does not say where it serves");
}

/// The certificate in a kubeconfig.
fn pair_in(kubeconfig: &Path) -> Pair {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let data = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
        STANDARD.decode(line.trim()).unwrap()
    };
    let chain = data("client-certificate-data:");
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().unwrap();
    (chain, PrivateKeyDer::from_pem_slice(&data("client-key-data:")).unwrap())
}

fn stranger() -> Asker {
    Asker { name: "nobody", headers: Vec::new(), pair: None }
}

fn self_made() -> Pair {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "root");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    let leaf = params.self_signed(&key).unwrap();
    (vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

/// The differences that are known: what is asked, and which parts of the answer may differ.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(DIFFERENCES).unwrap();
    let rows =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    rows.map(|(asked, rest)| {
        let (parts, reason) = rest.split_once(" | ").unwrap();
        assert!(reason.len() > 10, "{asked} has no reason");
        (asked.to_owned(), parts.split(", ").map(str::to_owned).collect())
    })
    .collect()
}

/// The parts in which two answers differ.
fn different(original: &Answer, ours: &Answer) -> BTreeSet<&'static str> {
    let mut parts = BTreeSet::new();
    for (part, differs) in [
        ("status", original.status != ours.status),
        ("type", original.content_type != ours.content_type),
        ("headers", original.headers != ours.headers),
        ("body", original.body != ours.body),
    ] {
        if differs {
            parts.insert(part);
        }
    }
    parts
}

/// What the original tells of its flags and configuration, to be told by ours.
async fn told(world: &World, reader: &Asker) -> PageOptions {
    let flagz = Question { headers: &[("Accept", FLAGZ)], ..Question::get("/flagz") };
    let flags: serde_json::Value =
        serde_json::from_str(&ask(world.original, reader, &flagz).await.body).unwrap();
    let configz = ask(world.original, reader, &Question::get("/configz")).await.body;
    let configz: BTreeMap<String, serde_json::Value> = serde_json::from_str(&configz).unwrap();
    PageOptions {
        flags: Some(serde_json::from_value(flags["flags"].clone()).unwrap()),
        configuration: Some(configz["kubecontrollermanager.config.k8s.io"].to_string()),
        set_verbosity: Some(Arc::new(|_| Ok(()))),
        ..PageOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go, or KUBEBUILDER_ASSETS"]
async fn everybody_gets_the_answers_of_the_original() {
    let world = World::start().await;
    let askers = world.askers();
    let told = told(&world, &askers[3]).await;
    let flags = told.flags.clone().unwrap();
    let request_header = RequestHeaderOptions {
        client_ca_file: Some(world.plane.front_proxy_ca_file()),
        ..RequestHeaderOptions::default()
    };
    let client_ca_file = Some(world.plane.ca_file());
    let by_flags =
        AuthenticationOptions { client_ca_file, request_header, ..AuthenticationOptions::default() };
    let ours = world.ours(&by_flags, told.clone()).await;
    let mut known = known();
    let mut unlisted = Vec::new();
    for question in questions() {
        let mut seen = BTreeSet::new();
        for asker in &askers {
            let original = normal(&question, ask(world.original, asker, &question).await, &flags);
            let ours = normal(&question, ask(ours, asker, &question).await, &flags);
            let parts = different(&original, &ours);
            let may = known.get(&question.name());
            if parts.iter().any(|part| may.is_none_or(|may| !may.contains(*part))) {
                unlisted.push(format!(
                    "{} by {}: {parts:?}\noriginal: {original:#?}\nours: {ours:#?}",
                    question.name(),
                    asker.name
                ));
            }
            seen.extend(parts.into_iter().map(str::to_owned));
        }
        if let Some(listed) = known.remove(&question.name()) {
            let stale: Vec<_> = listed.difference(&seen).collect();
            assert!(stale.is_empty(), "{} no longer differs in {stale:?}", question.name());
        }
    }
    assert!(unlisted.is_empty(), "{} differences\n{}", unlisted.len(), unlisted.join("\n"));
    assert!(known.is_empty(), "listed and never asked: {known:?}");
    assert_eq!(other_requests(&world.plane), Vec::<String>::new());
}

/// Requests of ours to the API server that are neither reviews nor reads of the ConfigMap.
fn other_requests(plane: &ControlPlane) -> Vec<String> {
    let entries = plane.audit_entries().unwrap().into_iter().filter(|entry| entry.user_agent == AGENT);
    let other = entries.filter(|entry| {
        let resource = entry.object.as_ref().map(|object| object.resource.as_str()).unwrap_or_default();
        !["tokenreviews", "subjectaccessreviews", "configmaps"].contains(&resource)
    });
    other.map(|entry| format!("{} {}", entry.verb, entry.uri)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go, or KUBEBUILDER_ASSETS"]
async fn a_real_cluster_says_whom_to_believe() {
    let world = World::start().await;
    let askers = world.askers();
    let ours = world.ours(&AuthenticationOptions::default(), PageOptions::default()).await;
    for asker in &askers {
        let question = Question::get("/metrics");
        let original = ask(world.original, asker, &question).await.status;
        assert_eq!(ask(ours, asker, &question).await.status, original, "{}", asker.name);
    }
}
