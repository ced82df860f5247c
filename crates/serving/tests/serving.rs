//! The endpoint over real sockets and real TLS.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use keleustes_serving::{
    Access, ApiServerClient, AuthenticationOptions, AuthorizationOptions, CertificateSource,
    ConnectionLimits, DelegatingClients, HealthChecks, PageOptions, Pages, Server, ServingError,
    ServingOptions,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A running server.
struct TestServer {
    address: SocketAddr,
    health: HealthChecks,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServingError>>,
    directory: tempfile::TempDir,
}

fn pages(health: &HealthChecks) -> Pages {
    Pages::new(health.clone(), prometheus::Registry::new(), SystemTime::now(), PageOptions::default())
}

fn start(limits: ConnectionLimits) -> TestServer {
    start_with(limits, Access::deny_all())
}

fn start_with(limits: ConnectionLimits, access: Access) -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let options = ServingOptions {
        bind_address: LOOPBACK,
        certificate: CertificateSource::Directory(directory.path().to_owned()),
        limits,
        ..ServingOptions::default()
    };
    let health = HealthChecks::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let server = Server::from_listener(listener, &options, pages(&health), access).unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    TestServer { address, health, stop, served, directory }
}

impl TestServer {
    async fn connect(&self, alpn: &[&str]) -> TlsStream<TcpStream> {
        connect(self.address, self.directory.path(), alpn).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response<Bytes> {
        get_http1(self.connect(&["http/1.1"]).await, path).await
    }
}

async fn connect(
    address: SocketAddr,
    directory: &Path,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let chain = std::fs::read(directory.join("kube-controller-manager.crt")).unwrap();
    let issuer = CertificateDer::pem_slice_iter(&chain).last().unwrap().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(issuer).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn request(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).header("Host", "localhost").body(Empty::new()).unwrap()
}

async fn get_http1(stream: TlsStream<TcpStream>, path: &str) -> Response<Bytes> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    collect(sender.send_request(request(path)).await.unwrap()).await
}

async fn collect(answer: Response<hyper::body::Incoming>) -> Response<Bytes> {
    let (head, body) = answer.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

/// Reads until the server closes the connection, cleanly or not; returns how long that took.
async fn closed_after(mut stream: impl tokio::io::AsyncRead + Unpin) -> Duration {
    let started_at = Instant::now();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the server did not close the connection");
    started_at.elapsed()
}

fn short_timeouts() -> ConnectionLimits {
    ConnectionLimits {
        first_request_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(300),
        ..ConnectionLimits::default()
    }
}

/// Proves SRV-17.
#[test]
fn default_limits_are_those_of_the_original_and_256_connections() {
    let expected = ConnectionLimits {
        connections_max: 256,
        header_bytes_max: 1_048_576,
        http2_streams_max: 100,
        first_request_timeout: Duration::from_secs(32),
        idle_timeout: Duration::from_secs(90),
        shutdown_grace: Duration::from_secs(1),
    };
    assert_eq!(ConnectionLimits::default(), expected);
}

/// Proves SRV-11, SRV-15, SRV-100.
#[tokio::test]
async fn http1_and_http2_are_served_over_tls() {
    let server = start(ConnectionLimits::default());
    let old = server.connect(&["http/1.1"]).await;
    assert_eq!(old.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = get_http1(old, "/healthz").await;
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_11));
    assert_eq!(answer.body(), "ok");

    for _ in 0..3 {
        let new = server.connect(&["h2", "http/1.1"]).await;
        assert_eq!(new.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(new)).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer =
            collect(sender.send_request(request("https://localhost/healthz?verbose")).await.unwrap()).await;
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_2));
        assert_eq!(answer.body(), "[+]ping ok\nhealthz check passed\n");
        let ended = tokio::time::timeout(Duration::from_secs(4), connection).await;
        assert!(ended.is_ok(), "an unauthenticated connection stays open");
        assert!(!answer.headers().contains_key("connection"), "no Connection header");
    }
}

/// Proves SRV-20, SRV-102.
#[tokio::test]
async fn checks_added_while_serving_are_reported() {
    let server = start(ConnectionLimits::default());
    assert_eq!(server.get("/healthz").await.status(), StatusCode::OK);
    server.health.add("leaderElection", || Err("late".to_owned()));
    let answer = server.get("/healthz").await;
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.body(), "[-]leaderElection failed: reason withheld\nhealthz check failed\n");
    assert_eq!(server.get("/metrics").await.status(), StatusCode::FORBIDDEN);
    assert_eq!(server.get("/livez").await.status(), StatusCode::NOT_FOUND);
}

/// Proves SRV-10.
#[tokio::test]
async fn one_socket_serves_ipv4_and_ipv6() {
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap().port();
    let options = ServingOptions {
        port,
        certificate: CertificateSource::Directory(directory.path().to_owned()),
        ..ServingOptions::default()
    };
    let server = Server::bind(&options, pages(&HealthChecks::new()), Access::deny_all()).unwrap().unwrap();
    let has_ipv6 = server.address().is_ipv6();
    tokio::spawn(server.run(std::future::pending()));
    let mut hosts = vec![LOOPBACK];
    if has_ipv6 && TcpListener::bind("[::1]:0").is_ok() {
        hosts.push("::1".parse().unwrap());
    }
    for host in hosts {
        let stream = connect(SocketAddr::new(host, port), directory.path(), &["http/1.1"]).await.unwrap();
        assert_eq!(get_http1(stream, "/healthz").await.status(), StatusCode::OK, "{host}");
    }
}

#[tokio::test]
async fn port_in_use_is_reported_with_address_and_flag() {
    let taken = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let options =
        ServingOptions { bind_address: LOOPBACK, port: address.port(), ..ServingOptions::default() };
    let error = Server::bind(&options, pages(&HealthChecks::new()), Access::deny_all()).err().unwrap();
    assert!(matches!(error, ServingError::PortInUse { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot serve on {address}: the port is in use")), "{text}");
    assert!(text.contains("--secure-port"), "{text}");
}

#[tokio::test]
async fn non_local_address_is_reported_with_its_flag() {
    let options = ServingOptions {
        bind_address: "192.0.2.1".parse().unwrap(),
        port: 10257,
        ..ServingOptions::default()
    };
    let error =
        Server::bind(&options, pages(&HealthChecks::new()), Access::deny_all()).err().unwrap().to_string();
    assert!(
        error.starts_with("cannot serve on 192.0.2.1:10257 (--bind-address, --secure-port): "),
        "{error}"
    );
}

/// Proves SRV-10.
#[tokio::test]
async fn port_zero_serves_nothing() {
    let options = ServingOptions { port: 0, ..ServingOptions::default() };
    assert!(Server::bind(&options, pages(&HealthChecks::new()), Access::deny_all()).unwrap().is_none());
}

/// Proves SRV-17.
#[tokio::test]
async fn too_large_headers_are_refused() {
    let limits = ConnectionLimits { header_bytes_max: 16 << 10, ..ConnectionLimits::default() };
    let server = start(limits);
    let mut stream = server.connect(&["http/1.1"]).await;
    let head =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(20 << 10));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server does not read the rest, so the connection may end with a reset.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 431 "), "{:?}", String::from_utf8_lossy(&answer));
}

/// Proves SRV-17.
#[tokio::test]
async fn clients_without_a_complete_request_are_disconnected() {
    let server = start(short_timeouts());
    // No TLS handshake.
    closed_after(TcpStream::connect(server.address).await.unwrap()).await;
    // A TLS handshake and no request, with each protocol.
    closed_after(server.connect(&["http/1.1"]).await).await;
    closed_after(server.connect(&["h2"]).await).await;
    // One byte at a time never completes the headers.
    let (read, mut write) = tokio::io::split(server.connect(&["http/1.1"]).await);
    let sender_task = tokio::spawn(async move {
        for letter in
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Drip: ".iter().chain([b'x'; 2000].iter())
        {
            if write.write_all(&[*letter]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(closed_after(read).await < Duration::from_secs(5));
    sender_task.abort();
}

/// Proves SRV-17.
#[tokio::test]
async fn idle_connection_is_closed_after_the_idle_timeout() {
    let server =
        start(ConnectionLimits { first_request_timeout: Duration::from_secs(10), ..short_timeouts() });
    let mut stream = server.connect(&["http/1.1"]).await;
    for _ in 0..4 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).await.unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 200 OK\r\n"));
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert!(closed_after(stream).await < Duration::from_secs(5));
}

/// One frame of HTTP/2 for a connection (stream 0) or a stream of it.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Proves SRV-17.
#[tokio::test]
async fn requests_beyond_max_streams_are_refused() {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const STREAMS_MAX: [u8; 2] = [0, 3];
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    assert_eq!(ConnectionLimits::default().http2_streams_max, 100);
    let server = start(ConnectionLimits { http2_streams_max: 2, ..ConnectionLimits::default() });
    let mut stream = server.connect(&["h2"]).await;
    // GET https://localhost/ encoded with the HPACK static table, three times at once.
    let get = [b"\x82\x87\x84\x01\x09".as_slice(), b"localhost"].concat();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    for id in [1, 3, 5] {
        sent.extend(frame(HEADERS, 0b101, id, &get));
    }
    stream.write_all(&sent).await.unwrap();
    let mut received = Vec::new();
    let (mut allowed, mut refused) = (None, Vec::new());
    while refused.is_empty() {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        received.push((head[3], head[8]));
        match head[3] {
            SETTINGS => {
                let mut settings = payload.chunks_exact(6);
                allowed = allowed.or(settings.find(|one| one[..2] == STREAMS_MAX).map(|one| one[5]));
            }
            RST_STREAM => refused.push((head[8], payload)),
            _ => {}
        }
    }
    assert_eq!(allowed, Some(2), "{received:?}");
    assert_eq!(refused, [(5, REFUSED_STREAM.to_vec())], "{received:?}");
}

#[tokio::test]
async fn new_connection_replaces_the_longest_idle_anonymous_one() {
    let server = start(ConnectionLimits { connections_max: 2, ..ConnectionLimits::default() });
    let first = server.connect(&["http/1.1"]).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut second = server.connect(&["http/1.1"]).await;
    assert_eq!(server.get("/healthz").await.status(), StatusCode::OK);
    assert!(closed_after(first).await < Duration::from_secs(5));
    second.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 4096];
    let length = second.read(&mut answer).await.unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200 OK\r\n"), "the younger connection is kept");
}

#[tokio::test]
async fn health_probe_is_answered_while_anonymous_connections_reach_the_limit() {
    let server = start(ConnectionLimits { connections_max: 8, ..ConnectionLimits::default() });
    let mut held = Vec::new();
    for n in 0..24 {
        if n % 3 == 0 {
            // No handshake at all.
            held.push(Held::Plain(TcpStream::connect(server.address).await.unwrap()));
            continue;
        }
        let mut stream = server.connect(&["http/1.1"]).await;
        if n % 3 == 1 {
            // A body that never arrives.
            let head = b"PUT /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
            stream.write_all(head).await.unwrap();
        }
        held.push(Held::Tls(Box::new(stream)));
        let probe = tokio::time::timeout(Duration::from_secs(5), server.get("/healthz")).await;
        assert_eq!(probe.expect("the probe is starved").status(), StatusCode::OK);
    }
    drop(held);
}

#[expect(dead_code, reason = "held open")]
enum Held {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// An API server that authenticates every token and authorizes no request, after a delay.
fn every_token_is_valid(delay: Duration) -> ApiServerClient {
    ApiServerClient::from_service(tower::service_fn(move |request: Request<Bytes>| async move {
        let is_token_review = request.uri().path().ends_with("tokenreviews");
        tokio::time::sleep(if is_token_review { Duration::ZERO } else { delay }).await;
        let status = r#"{"status":{"authenticated":true,"user":{"username":"system:serviceaccount:a:b"}}}"#;
        let body = if is_token_review { status } else { "{}" };
        Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from_static(body.as_bytes()))))
    }))
}

async fn start_with_tokens(connections_max: usize, review_delay: Duration) -> TestServer {
    start_with_api(connections_max, every_token_is_valid(review_delay)).await
}

async fn start_with_api(connections_max: usize, api: ApiServerClient) -> TestServer {
    let delegates = DelegatingClients { authentication: Some(api.clone()), authorization: Some(api) };
    let authentication = AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() };
    let (options, rng) = (AuthorizationOptions::default(), fastrand::Rng::with_seed(1));
    let registry = prometheus::Registry::new();
    let access = Access::open(&authentication, &options, delegates, &registry, rng).await.unwrap();
    start_with(ConnectionLimits { connections_max, ..ConnectionLimits::default() }, access)
}

impl TestServer {
    /// An idle connection of an authenticated user who may read nothing.
    async fn idle_with_token(&self) -> TlsStream<TcpStream> {
        let mut stream = self.connect(&["http/1.1"]).await;
        request_with_token(&mut stream, "/metrics").await;
        expect_forbidden(&mut stream).await;
        stream
    }

    async fn probe(&self) {
        let probe = tokio::time::timeout(Duration::from_secs(5), self.get("/healthz")).await;
        assert_eq!(probe.expect("the probe is starved").status(), StatusCode::OK);
    }
}

async fn request_with_token(stream: &mut TlsStream<TcpStream>, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
}

async fn expect_forbidden(stream: &mut TlsStream<TcpStream>) {
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).await.unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 403 "));
}

/// Every ServiceAccount has a token, and pods of any namespace can reach the port.
#[tokio::test]
async fn health_probe_is_answered_while_authenticated_connections_reach_the_limit() {
    let server = start_with_tokens(8, Duration::ZERO).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(server.idle_with_token().await);
    }
    server.probe().await;
    for _ in 0..8 {
        held.push(server.idle_with_token().await);
        server.probe().await;
    }
    // The longest idle one was closed.
    assert!(closed_after(held.remove(0)).await < Duration::from_secs(5));
}

/// The only anonymous connection is a probe's, before its request; authenticated clients keep connecting.
#[tokio::test]
async fn authenticated_clients_do_not_displace_a_probe_before_its_request() {
    let server = start_with_tokens(4, Duration::ZERO).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(server.idle_with_token().await);
    }
    let probe = server.connect(&["http/1.1"]).await;
    for _ in 0..4 {
        held.push(server.idle_with_token().await);
    }
    assert_eq!(get_http1(probe, "/healthz").await.status(), StatusCode::OK);
}

/// An unprivileged client can keep requests in flight: each waits for a review, and reviews are rate-limited.
#[tokio::test]
async fn health_probe_is_answered_while_all_connections_wait_for_reviews() {
    let api = ApiServerClient::from_service(tower::service_fn(|request: Request<Bytes>| async move {
        let is_token_review = request.uri().path().ends_with("tokenreviews");
        let review = String::from_utf8_lossy(request.body()).into_owned();
        if !is_token_review && !review.contains("/metrics") {
            std::future::pending::<()>().await;
        }
        let status = r#"{"status":{"authenticated":true,"user":{"username":"system:serviceaccount:a:b"}}}"#;
        let body = if is_token_review { status } else { "{}" };
        Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from_static(body.as_bytes()))))
    }));
    let server = start_with_api(4, api).await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut stream = server.idle_with_token().await;
        request_with_token(&mut stream, "/configz").await;
        waiting.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    server.probe().await;
    assert!(
        closed_after(waiting.remove(0)).await < Duration::from_secs(5),
        "the one that has waited longest"
    );
}

/// Responses make room although their connections stay open.
#[tokio::test]
async fn new_connection_waits_only_for_the_first_response_while_all_are_busy() {
    let server = start_with_tokens(2, Duration::from_millis(300)).await;
    let mut busy = [server.idle_with_token().await, server.idle_with_token().await];
    for (stream, path) in busy.iter_mut().zip(["/configz", "/flagz"]) {
        request_with_token(stream, path).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.probe().await;
    for stream in &mut busy {
        // No request in flight is cut off.
        expect_forbidden(stream).await;
    }
}

/// A request body is read only where one is expected, so no response waits for it.
#[tokio::test]
async fn response_does_not_wait_for_an_unexpected_body() {
    let server = start(ConnectionLimits::default());
    for method in ["PUT", "POST", "GET"] {
        let mut stream = server.connect(&["http/1.1"]).await;
        let head = format!("{method} /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 4096];
        let answered = tokio::time::timeout(Duration::from_secs(3), stream.read(&mut answer)).await;
        assert!(answered.expect("a response").unwrap() > 0, "{method}");
    }
}

/// Sends a request from a thread with its own runtime and waits for it, which blocks this thread.
fn blocking_get(address: SocketAddr, directory: &Path, path: &'static str) -> Option<StatusCode> {
    let directory = directory.to_owned();
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let asked = async {
                let stream = connect(address, &directory, &["http/1.1"]).await.ok()?;
                Some(get_http1(stream, path).await.status())
            };
            tokio::time::timeout(Duration::from_secs(10), asked).await.ok().flatten()
        })
    });
    client.join().unwrap()
}

/// The caller's thread renews the Lease and runs controllers, so it must not do handshakes for anyone who connects.
#[tokio::test]
async fn handshakes_and_pages_do_not_use_the_callers_thread() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServingOptions {
        bind_address: LOOPBACK,
        certificate: CertificateSource::Directory(directory.path().to_owned()),
        ..ServingOptions::default()
    };
    let health = HealthChecks::new();
    let server = || {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        Server::from_listener(listener, &options, pages(&health), Access::deny_all()).unwrap()
    };
    let first = server();
    let address = first.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(first.run_on_own_thread(async {
        let _ = stopped.await;
    }));
    tokio::task::yield_now().await;
    // This thread is blocked meanwhile.
    assert_eq!(blocking_get(address, directory.path(), "/healthz"), Some(StatusCode::OK));
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
    assert_eq!(blocking_get(address, directory.path(), "/healthz"), None);

    // Dropping the future ends the thread, too.
    let second = server();
    let address = second.address();
    let served = tokio::spawn(second.run_on_own_thread(std::future::pending()));
    tokio::task::yield_now().await;
    assert_eq!(blocking_get(address, directory.path(), "/healthz"), Some(StatusCode::OK));
    served.abort();
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "the server goes on after its future was dropped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Proves SRV-19.
#[tokio::test]
async fn shutdown_closes_socket_and_idle_connections_immediately() {
    let server =
        start(ConnectionLimits { shutdown_grace: Duration::from_secs(10), ..ConnectionLimits::default() });
    let mut idle = server.connect(&["http/1.1"]).await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 4096];
    assert!(idle.read(&mut answer).await.unwrap() > 0);
    let started_at = Instant::now();
    server.stop.send(()).unwrap();
    server.served.await.unwrap().unwrap();
    assert!(started_at.elapsed() < Duration::from_secs(5), "shutdown waited for idle connections");
    closed_after(idle).await;
    assert!(TcpStream::connect(server.address).await.is_err(), "the socket is still open");
}

/// Proves SRV-11.
#[tokio::test]
async fn tls_below_1_2_is_refused() {
    let server = start(ConnectionLimits::default());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // A ClientHello of TLS 1.1: version 3.2, 32 random bytes, no session, one cipher suite, no compression,
    // and the extensions (groups, point formats, signatures) without which it would be refused for other
    // reasons.
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    hello.extend([0, 22]);
    hello.extend([0, 10, 0, 4, 0, 2, 0, 29]);
    hello.extend([0, 11, 0, 2, 1, 0]);
    hello.extend([0, 13, 0, 4, 0, 2, 4, 1]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 0x03, 0x01, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    stream.write_all(&record).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    // Record type 21 is an alert, level 2 is fatal, 70 is protocol_version.
    assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{answer:?}");
}
