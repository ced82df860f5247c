//! Requests every page of the original and of this server with every kind of credentials: responses are
//! equal, or the difference is listed with a reason.
//!
//! Run with `cargo test -p keleustes-serving --test original -- --ignored`; needs Go for its first build.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

#[path = "original/client.rs"]
mod client;
#[path = "original/normalize.rs"]
mod normalize;

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

use self::client::{ClientIdentity, Pair, TestRequest, TestResponse, request, send};
use self::normalize::normalize;

const DIFFERENCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences/serving.md");
/// Identifies this server's requests in the audit log.
const AGENT: &str = "serving-under-test";
/// The `Accept` header of Prometheus when it scrapes native histograms.
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

/// Requests with other methods.
const METHODS: [(Method, &str); 7] = [
    (Method::POST, "/healthz"),
    (Method::HEAD, "/healthz"),
    (Method::HEAD, "/nothing"),
    (Method::DELETE, "/metrics"),
    (Method::OPTIONS, "/configz"),
    (Method::POST, "/debug/pprof"),
    (Method::PATCH, "/statusz"),
];

/// Requests with headers that change the media type.
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

/// Log verbosity levels, valid and invalid.
const LEVELS: [&str; 7] = ["3", "abc", "", "-1", "99999999999", "3000000000", "0"];

fn test_requests() -> Vec<TestRequest> {
    let new_request = |method, target, headers, body| TestRequest { method, target, headers, body };
    let mut test_requests: Vec<_> = PAGES.map(TestRequest::get).into();
    test_requests.extend(METHODS.map(|(method, target)| new_request(method, target, &[], "")));
    test_requests.extend(HEADERS.map(|(target, headers)| new_request(Method::GET, target, headers, "")));
    test_requests.extend(LEVELS.map(|level| new_request(Method::PUT, "/debug/flags/v", &[], level)));
    // Last, because it resets the metrics of the requests before.
    test_requests.push(new_request(Method::DELETE, "/metrics/slis", &[], ""));
    test_requests.push(TestRequest::get("/metrics/slis?again"));
    test_requests
}

/// A control plane with the original, and this server beside it.
struct TestCluster {
    plane: ControlPlane,
    _original: Process,
    original: SocketAddr,
}

impl TestCluster {
    async fn start() -> Self {
        let plane = ControlPlane::builder().with_program(Program::KubeControllerManager).start().unwrap();
        let kubectl = |args: &str| {
            let done = plane.kubectl(User::Admin).unwrap().args(args.split(' ')).output().unwrap();
            assert!(done.status.success(), "{args}: {}", String::from_utf8_lossy(&done.stderr));
        };
        kubectl("create serviceaccount powerless -n default");
        kubectl("create serviceaccount reader -n default");
        kubectl(
            "create clusterrole pages --verb=get,post,put,delete,head,patch,options --non-resource-url=*",
        );
        kubectl("create clusterrolebinding pages --clusterrole=pages --serviceaccount=default:reader");
        let original = plane.start_go_manager::<&str>(&[]).unwrap();
        let address = address_in(original.log_path()).await;
        let cluster = Self { plane, _original: original, original: address };
        cluster.wait_until_leader().await;
        cluster
    }

    async fn wait_until_leader(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.checks().await.len() < 10 {
            assert!(Instant::now() < deadline, "the original is not the leader");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The original's health checks.
    async fn checks(&self) -> Vec<String> {
        let response = request(self.original, &anonymous(), &TestRequest::get("/healthz?verbose")).await;
        let checks = response.body.lines().filter_map(|line| line.strip_prefix("[+]")?.strip_suffix(" ok"));
        checks.map(str::to_owned).collect()
    }

    fn token(&self, account: &str) -> String {
        let mut kubectl = self.plane.kubectl(User::Admin).unwrap();
        let output = kubectl.args(["create", "token", account, "-n", "default"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Every kind of client.
    fn identities(&self) -> Vec<ClientIdentity> {
        let bearer = |name, token: &str| ClientIdentity {
            name,
            headers: vec![("Authorization", format!("Bearer {token}"))],
            pair: None,
        };
        let proxied = |name, user: &str, pair| ClientIdentity {
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
        let certified = |name, pair| ClientIdentity { name, headers: Vec::new(), pair: Some(pair) };
        vec![
            anonymous(),
            bearer("an invalid token", "bad"),
            bearer("a token without permission", &self.token("powerless")),
            bearer("a token with permission", &self.token("reader")),
            ClientIdentity {
                name: "basic",
                headers: vec![("Authorization", "Basic YTpi".to_owned())],
                pair: None,
            },
            certified("a certificate without permission", self.pair("jane", None)),
            certified("a certificate with permission", self.pair("root", Some("system:masters"))),
            certified("a certificate of another CA", self_signed()),
            proxied("a proxy", "ann", front_proxy()),
            proxied("no proxy", "ann", self.pair("jane", None)),
        ]
    }

    fn pair(&self, user: &str, group: Option<&str>) -> Pair {
        pair_in(&self.plane.kubeconfig_for(user, group).unwrap())
    }

    /// The API server, with the controller manager's credentials.
    fn api(&self) -> ApiServerClient {
        let pair = pair_in(&self.plane.kubeconfig(User::ControllerManager));
        let manager = Arc::new(ClientIdentity { name: "the manager", headers: Vec::new(), pair: Some(pair) });
        let address = self.plane.api_server_url().strip_prefix("https://").unwrap().parse().unwrap();
        ApiServerClient::from_service(tower::service_fn(move |request: Request<Bytes>| {
            let manager = Arc::clone(&manager);
            let mut request = request.map(Full::new);
            request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
            async move { Ok::<_, std::io::Error>(send(address, &manager, request).await) }
        }))
    }

    /// Starts this server with the original's health checks and these options.
    async fn our_server(
        &self,
        authentication: &AuthenticationOptions,
        page_options: PageOptions,
    ) -> SocketAddr {
        let api = self.api();
        let delegates = DelegatingClients { authentication: Some(api.clone()), authorization: Some(api) };
        let registry = prometheus::Registry::new();
        let rng = fastrand::Rng::with_seed(1);
        let options = AuthorizationOptions::default();
        let access = Access::open(authentication, &options, delegates, &registry, rng).await.unwrap();
        let health = HealthChecks::new();
        health.add_pings(self.checks().await);
        let pages = Pages::new(health, registry, SystemTime::now(), page_options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServingOptions { bind_address: [127, 0, 0, 1].into(), ..ServingOptions::default() };
        let server = Server::from_listener(listener, &options, pages, access).unwrap();
        let address = server.address();
        tokio::spawn(server.run(std::future::pending()));
        address
    }
}

/// The serving address in a log; the socket is open before the line is logged.
async fn address_in(log: &Path) -> SocketAddr {
    for _ in 0..100 {
        let text = std::fs::read_to_string(log).unwrap();
        let after = text.split_once("Serving securely on ").and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((address, _)) = after {
            return address.trim_end_matches('"').parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the original does not log its serving address");
}

/// The client certificate in a kubeconfig.
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

fn anonymous() -> ClientIdentity {
    ClientIdentity { name: "anonymous", headers: Vec::new(), pair: None }
}

fn self_signed() -> Pair {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "root");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    let leaf = params.self_signed(&key).unwrap();
    (vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

/// The known differences: the request, and the parts of the response that may differ.
fn known_differences() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(DIFFERENCES).unwrap();
    let rows =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    rows.map(|(request_name, rest)| {
        let (parts, reason) = rest.split_once(" | ").unwrap();
        assert!(reason.len() > 10, "{request_name} has no reason");
        (request_name.to_owned(), parts.split(", ").map(str::to_owned).collect())
    })
    .collect()
}

/// The parts in which two responses differ.
fn different(original: &TestResponse, our_server: &TestResponse) -> BTreeSet<&'static str> {
    let mut parts = BTreeSet::new();
    for (part, differs) in [
        ("status", original.status != our_server.status),
        ("type", original.content_type != our_server.content_type),
        ("headers", original.headers != our_server.headers),
        ("body", original.body != our_server.body),
    ] {
        if differs {
            parts.insert(part);
        }
    }
    parts
}

/// Page options with the original's flags and configuration.
async fn page_options(cluster: &TestCluster, reader: &ClientIdentity) -> PageOptions {
    let flagz = TestRequest { headers: &[("Accept", FLAGZ)], ..TestRequest::get("/flagz") };
    let flags: serde_json::Value =
        serde_json::from_str(&request(cluster.original, reader, &flagz).await.body).unwrap();
    let configz = request(cluster.original, reader, &TestRequest::get("/configz")).await.body;
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
async fn responses_match_the_original() {
    let cluster = TestCluster::start().await;
    let identities = cluster.identities();
    let page_options = page_options(&cluster, &identities[3]).await;
    let flags = page_options.flags.clone().unwrap();
    let request_header = RequestHeaderOptions {
        client_ca_file: Some(cluster.plane.front_proxy_ca_file()),
        ..RequestHeaderOptions::default()
    };
    let client_ca_file = Some(cluster.plane.ca_file());
    let by_flags =
        AuthenticationOptions { client_ca_file, request_header, ..AuthenticationOptions::default() };
    let our_server = cluster.our_server(&by_flags, page_options.clone()).await;
    let mut known_differences = known_differences();
    let mut unlisted = Vec::new();
    for test_request in test_requests() {
        let mut seen = BTreeSet::new();
        for identity in &identities {
            let original =
                normalize(&test_request, request(cluster.original, identity, &test_request).await, &flags);
            let our_server =
                normalize(&test_request, request(our_server, identity, &test_request).await, &flags);
            let parts = different(&original, &our_server);
            let may = known_differences.get(&test_request.name());
            if parts.iter().any(|part| may.is_none_or(|may| !may.contains(*part))) {
                unlisted.push(format!(
                    "{} by {}: {parts:?}\noriginal: {original:#?}\nours: {our_server:#?}",
                    test_request.name(),
                    identity.name
                ));
            }
            seen.extend(parts.into_iter().map(str::to_owned));
        }
        if let Some(listed) = known_differences.remove(&test_request.name()) {
            let stale: Vec<_> = listed.difference(&seen).collect();
            assert!(stale.is_empty(), "{} no longer differs in {stale:?}", test_request.name());
        }
    }
    assert!(unlisted.is_empty(), "{} differences\n{}", unlisted.len(), unlisted.join("\n"));
    assert!(known_differences.is_empty(), "listed and never requested: {known_differences:?}");
    assert_eq!(other_requests(&cluster.plane), Vec::<String>::new());
}

/// This server's requests to the API server that are neither reviews nor reads of the ConfigMap.
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
async fn config_map_of_a_real_cluster_authenticates_like_the_original() {
    let cluster = TestCluster::start().await;
    let identities = cluster.identities();
    let our_server = cluster.our_server(&AuthenticationOptions::default(), PageOptions::default()).await;
    for identity in &identities {
        let test_request = TestRequest::get("/metrics");
        let original = request(cluster.original, identity, &test_request).await.status;
        assert_eq!(request(our_server, identity, &test_request).await.status, original, "{}", identity.name);
    }
}
