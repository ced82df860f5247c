//! TLS versions, cipher suites and certificates, and their reload from files.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use keleustes_serving::{
    Access, ApiServerClient, AuthenticationOptions, AuthorizationOptions, CertificateSource,
    DelegatingClients, HealthChecks, NamedCertificate, PageOptions, Pages, Server, ServingError,
    ServingOptions, TlsOptions,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A CA that issues certificates.
struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(
        &self,
        common_name: &str,
        group: &str,
        names: &[&str],
    ) -> (String, KeyPair, CertificateDer<'static>) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        (leaf.pem(), key, leaf.der().clone())
    }

    /// Writes a serving certificate and its key.
    fn write(&self, directory: &Path, file: &str, names: &[&str]) -> CertificateDer<'static> {
        let (pem, key, der) = self.issue(file, "", names);
        std::fs::write(directory.join(format!("{file}.key")), key.serialize_pem()).unwrap();
        std::fs::write(directory.join(format!("{file}.crt")), pem).unwrap();
        der
    }

    fn client(&self, common_name: &str, group: &str) -> Pair {
        let (_, key, der) = self.issue(common_name, group, &[]);
        (vec![der], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

/// The TLS options of a client.
struct ClientTls {
    versions: &'static [&'static SupportedProtocolVersion],
    provider: CryptoProvider,
    alpn: &'static [u8],
    pair: Option<Pair>,
}

impl Default for ClientTls {
    fn default() -> Self {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        Self { versions: &BOTH, provider: aws_lc_rs::default_provider(), alpn: b"http/1.1", pair: None }
    }
}

async fn connect(
    address: SocketAddr,
    ca: &Ca,
    name: &str,
    client_tls: ClientTls,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.0.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(client_tls.provider))
        .with_protocol_versions(client_tls.versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client_tls.pair {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![client_tls.alpn.to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// The certificate that the server presented.
async fn presented_certificate(address: SocketAddr, ca: &Ca, name: &str) -> CertificateDer<'static> {
    let stream = connect(address, ca, name, ClientTls::default()).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

struct TestServer {
    address: SocketAddr,
    served: JoinHandle<Result<(), ServingError>>,
    pages: Pages,
}

fn start(options: &ServingOptions, access: Access) -> TestServer {
    let health = HealthChecks::new();
    let page_options = PageOptions { set_verbosity: Some(Arc::new(|_| Ok(()))), ..PageOptions::default() };
    let pages = Pages::new(health, prometheus::Registry::new(), SystemTime::now(), page_options);
    let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let server = Server::from_listener(listener, options, pages.clone(), access).unwrap();
    let address = server.address();
    TestServer { address, served: tokio::spawn(server.run(std::future::pending())), pages }
}

fn options(directory: &Path) -> ServingOptions {
    ServingOptions {
        bind_address: LOOPBACK,
        certificate: CertificateSource::Files {
            certificate: directory.join("usual.crt"),
            key: directory.join("usual.key"),
        },
        reload_every: Duration::from_millis(50),
        ..ServingOptions::default()
    }
}

async fn request(
    stream: TlsStream<TcpStream>,
    method: Method,
    path: &str,
    body: &'static str,
) -> Response<Bytes> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("Host", "localhost");
    let answer = sender.send_request(request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap());
    let (head, body) = answer.await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

/// Proves SRV-14.
#[tokio::test]
async fn certificates_are_reloaded_from_files() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    let old = ca.write(directory.path(), "usual", &["localhost"]);
    let old_named = ca.write(directory.path(), "named", &["named.io"]);
    let mut options = options(directory.path());
    options.sni = vec![NamedCertificate {
        certificate: directory.path().join("named.crt"),
        key: directory.path().join("named.key"),
        names: Vec::new(),
    }];
    let server = start(&options, Access::deny_all());
    assert_eq!(presented_certificate(server.address, &ca, "localhost").await, old);
    assert_eq!(presented_certificate(server.address, &ca, "named.io").await, old_named);
    // An invalid file keeps the old certificate in use and does not stop the server.
    std::fs::write(directory.path().join("usual.crt"), "not a certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(presented_certificate(server.address, &ca, "localhost").await, old);
    let new = ca.write(directory.path(), "usual", &["localhost"]);
    let new_named = ca.write(directory.path(), "named", &["named.io"]);
    for (name, wanted) in [("localhost", new), ("named.io", new_named)] {
        let followed = async {
            while presented_certificate(server.address, &ca, name).await != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), followed).await.unwrap();
    }
}

/// Proves SRV-11.
#[tokio::test]
async fn flags_restrict_tls_and_http2() {
    static OLD: [&SupportedProtocolVersion; 1] = [&TLS12];
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let with = |tls: TlsOptions| ServingOptions { tls, ..options(directory.path()) };
    let connects = |tls: TlsOptions, client_tls: ClientTls| {
        let server = start(&with(tls), Access::deny_all());
        let ca = &ca;
        async move { connect(server.address, ca, "localhost", client_tls).await.is_ok() }
    };
    let parse = |version: &str, suites: &[&str], curves: &[i32]| {
        let suites: Vec<_> = suites.iter().map(|name| (*name).to_owned()).collect();
        TlsOptions::parse(version, &suites, curves).unwrap()
    };
    let old = || ClientTls { versions: &OLD, ..ClientTls::default() };
    assert!(connects(parse("", &[], &[]), old()).await);
    assert!(!connects(parse("VersionTLS13", &[], &[]), old()).await, "the TLS version is not allowed");
    assert!(connects(parse("VersionTLS13", &[], &[]), ClientTls::default()).await);

    let suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let mut other_suite = old();
    other_suite.provider.cipher_suites =
        vec![aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384];
    assert!(!connects(parse("", &[suite], &[]), other_suite).await, "the cipher suite is not allowed");
    assert!(connects(parse("", &[suite], &[]), old()).await);

    let mut other_curve = ClientTls::default();
    other_curve.provider.kx_groups = vec![aws_lc_rs::kx_group::SECP256R1];
    assert!(!connects(parse("", &[], &[29]), other_curve).await, "the curve is not allowed");
    assert!(connects(parse("", &[], &[29]), ClientTls::default()).await);

    let options = ServingOptions { http2: false, ..options(directory.path()) };
    let server = start(&options, Access::deny_all());
    let modern = ClientTls { alpn: b"h2", ..ClientTls::default() };
    assert!(connect(server.address, &ca, "localhost", modern).await.is_err(), "HTTP/2 is disabled");
}

/// An API server whose reviews neither allow nor deny.
fn cluster() -> ApiServerClient {
    ApiServerClient::from_service(tower::service_fn(|_: Request<Bytes>| async {
        let body = Bytes::from_static(b"{\"status\":{}}");
        Ok::<_, std::io::Error>(Response::new(Full::new(body)))
    }))
}

async fn access_with_client_ca(ca: &Ca, directory: &Path) -> Access {
    let file = directory.join("clients.crt");
    std::fs::write(&file, ca.0.pem()).unwrap();
    let authentication = AuthenticationOptions {
        client_ca_file: Some(file),
        skip_lookup: true,
        ..AuthenticationOptions::default()
    };
    let delegates = DelegatingClients { authentication: Some(cluster()), authorization: Some(cluster()) };
    let rng = fastrand::Rng::with_seed(1);
    let options = AuthorizationOptions::default();
    Access::open(&authentication, &options, delegates, &prometheus::Registry::new(), rng).await.unwrap()
}

/// Proves SRV-16, SRV-67.
#[tokio::test]
async fn client_certificates_are_requested_and_verified_per_request() {
    let (ca, other_ca, directory) = (Ca::new(), Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let server = start(&options(directory.path()), access_with_client_ca(&ca, directory.path()).await);
    for (pair, metrics, health) in [
        (Some(ca.client("root", "system:masters")), StatusCode::OK, StatusCode::OK),
        (Some(ca.client("jane", "rowers")), StatusCode::FORBIDDEN, StatusCode::OK),
        (Some(other_ca.client("root", "system:masters")), StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED),
        (None, StatusCode::FORBIDDEN, StatusCode::OK),
    ] {
        for (path, wanted) in [("/metrics", metrics), ("/healthz", health)] {
            let pair = pair.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
            // Clients may send a certificate of another CA despite the hint.
            let client_tls = ClientTls { pair, ..ClientTls::default() };
            let stream = connect(server.address, &ca, "localhost", client_tls).await.unwrap();
            assert_eq!(request(stream, Method::GET, path, "").await.status(), wanted, "{path}");
        }
    }
}

/// A client certificate of a member of `system:masters` with changed parameters, and the key.
fn master(issuer: &CertifiedIssuer<'static, KeyPair>, change: impl FnOnce(&mut CertificateParams)) -> Pair {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "root");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, issuer).unwrap();
    (vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

/// Proves SRV-67.
#[tokio::test]
async fn client_certificates_that_expired_or_come_from_no_ca_are_refused() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let server = start(&options(directory.path()), access_with_client_ca(&ca, directory.path()).await);
    // An ordinary client certificate that signs another one.
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    let jane = CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &ca.0).unwrap();
    let (mut by_jane, key_by_jane) = master(&jane, |_| {});
    by_jane.push(jane.der().clone());
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let intermediate = CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &ca.0).unwrap();
    let (mut by_intermediate, key_by_intermediate) = master(&intermediate, |_| {});
    by_intermediate.push(intermediate.der().clone());
    for (name, pair, wanted) in [
        ("valid", master(&ca.0, |_| {}), StatusCode::OK),
        ("of an intermediate CA", (by_intermediate, key_by_intermediate), StatusCode::OK),
        (
            "expired",
            master(&ca.0, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1)),
            StatusCode::UNAUTHORIZED,
        ),
        (
            "not valid yet",
            master(&ca.0, |params| params.not_before = rcgen::date_time_ymd(2090, 1, 1)),
            StatusCode::UNAUTHORIZED,
        ),
        (
            "for servers only",
            master(&ca.0, |params| {
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
            }),
            StatusCode::UNAUTHORIZED,
        ),
        ("signed by a certificate that is no CA", (by_jane, key_by_jane), StatusCode::UNAUTHORIZED),
    ] {
        let client_tls = ClientTls { pair: Some(pair), ..ClientTls::default() };
        let stream = connect(server.address, &ca, "localhost", client_tls).await.unwrap();
        assert_eq!(request(stream, Method::GET, "/metrics", "").await.status(), wanted, "{name}");
    }
}

/// The only page that takes a body waits at most five seconds for it, and others are answered meanwhile.
#[tokio::test]
async fn slow_request_body_is_given_up_after_five_seconds() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let server = start(&options(directory.path()), access_with_client_ca(&ca, directory.path()).await);
    let mut slow = connect_as_master(&server, &ca, b"http/1.1").await;
    let head = "PUT /debug/flags/v HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1";
    slow.write_all(head.as_bytes()).await.unwrap();
    let asked_at = std::time::Instant::now();
    let drip = async {
        // A byte now and then does not extend the deadline.
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            slow.write_all(b"1").await.unwrap();
        }
        let mut answer = vec![0; 4096];
        let read = slow.read(&mut answer).await.unwrap();
        (String::from_utf8_lossy(&answer[..read]).into_owned(), asked_at.elapsed())
    };
    let others = async {
        for _ in 0..10 {
            let stream = connect_as_master(&server, &ca, b"http/1.1").await;
            assert_eq!(request(stream, Method::GET, "/healthz", "").await.status(), StatusCode::OK);
        }
        asked_at.elapsed()
    };
    let ((answer, after), others) = tokio::join!(drip, others);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.trim_end().ends_with("error reading request body: too large or too slow"), "{answer}");
    assert!((Duration::from_secs(5)..Duration::from_secs(15)).contains(&after), "{after:?}");
    assert!(others < after, "ten other requests took {others:?}");
}

async fn connect_as_master(server: &TestServer, ca: &Ca, alpn: &'static [u8]) -> TlsStream<TcpStream> {
    let pair = Some(ca.client("root", "system:masters"));
    connect(server.address, ca, "localhost", ClientTls { pair, alpn, ..ClientTls::default() }).await.unwrap()
}

/// Proves SRV-100.
#[tokio::test]
async fn authenticated_http2_connection_stays_open() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let server = start(&options(directory.path()), access_with_client_ca(&ca, directory.path()).await);
    let stream = connect_as_master(&server, &ca, b"h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let request = Request::get("https://localhost/metrics").body(Full::<Bytes>::default()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_2));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Proves SRV-51, SRV-52, SRV-103.
#[tokio::test]
async fn authorized_requests_get_pages_and_panics_are_contained() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let server = start(&options(directory.path()), access_with_client_ca(&ca, directory.path()).await);
    server.pages.add_debug("bad", |_, _| panic!("on purpose"));
    let http1 = b"http/1.1";
    let failed =
        request(connect_as_master(&server, &ca, http1).await, Method::GET, "/debug/controllers/bad/x", "")
            .await;
    assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(failed.body(), "This request caused apiserver to panic. Look in the logs for details.\n");
    // Contention profiling is not implemented, with any flags.
    let block =
        request(connect_as_master(&server, &ca, http1).await, Method::GET, "/debug/pprof/block", "").await;
    assert_eq!(block.status(), StatusCode::NOT_IMPLEMENTED);
    let set = request(connect_as_master(&server, &ca, http1).await, Method::PUT, "/debug/flags/v", "3").await;
    assert_eq!(
        (set.status(), &set.body()[..]),
        (StatusCode::OK, &b"successfully set klog.logging.verbosity to 3\n"[..])
    );
    let head = request(connect_as_master(&server, &ca, http1).await, Method::HEAD, "/healthz", "").await;
    assert_eq!(
        (head.status(), &head.headers()["content-length"], head.body().len()),
        (StatusCode::OK, &"2".parse().unwrap(), 0)
    );
    let encoded = request(connect_as_master(&server, &ca, http1).await, Method::GET, "/metr%69cs", "").await;
    assert_eq!(encoded.status(), StatusCode::OK, "paths are decoded");
}

/// Proves SRV-106.
#[tokio::test]
async fn failed_socket_stops_the_server() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let handle = socket2::Socket::from(listener.try_clone().unwrap());
    let pages = Pages::new(
        HealthChecks::new(),
        prometheus::Registry::new(),
        SystemTime::now(),
        PageOptions::default(),
    );
    let server =
        Server::from_listener(listener, &options(directory.path()), pages, Access::deny_all()).unwrap();
    let served = tokio::spawn(server.run(std::future::pending()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    handle.shutdown(std::net::Shutdown::Both).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), served).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ServingError::Accept { .. })), "{ended:?}");
}

#[tokio::test]
async fn port_is_shared_if_both_processes_permit_it() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    ca.write(directory.path(), "usual", &["localhost"]);
    let port = TcpListener::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap().port();
    let options = ServingOptions { port, permit_port_sharing: true, ..options(directory.path()) };
    let bind = |options: &ServingOptions| {
        let registry = prometheus::Registry::new();
        let pages = Pages::new(HealthChecks::new(), registry, SystemTime::now(), PageOptions::default());
        Server::bind(options, pages, Access::deny_all())
    };
    let _first = bind(&options).unwrap().unwrap();
    let _second = bind(&options).unwrap().unwrap();
    let alone = ServingOptions { permit_port_sharing: false, ..options };
    assert!(matches!(bind(&alone).err(), Some(ServingError::PortInUse { .. })));
}

/// Proves SRV-12.
#[tokio::test]
async fn without_flags_a_certificate_is_generated() {
    let options = ServingOptions { bind_address: LOOPBACK, ..ServingOptions::default() };
    let server = start(&options, Access::deny_all());
    let error = connect(server.address, &Ca::new(), "localhost", ClientTls::default()).await.err().unwrap();
    assert!(error.to_string().contains("UnknownIssuer"), "the certificate is self-signed: {error}");
    assert!(!server.served.is_finished());
}
