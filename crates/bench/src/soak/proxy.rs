//! A proxy between one manager and the API server that lets a share of the requests fail, and shortens credentials.
//!
//! It ends TLS: it verifies the manager's client certificate as an API server does, at every request, and passes requests
//! with it on as the manager's user. Requests with a bearer token are passed on as they are.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use keleustes_client::Connection;
use keleustes_client::layers::{ResponseBody, Transport};
use keleustes_pki::{Authority, Subject, Usage};
use keleustes_x509::Certificate;
use kube::client::Body;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::{BoxError, ServiceExt as _};

/// The share of requests that fail while faults are on.
pub(super) const FAILING: f64 = 0.01;
/// The shortest life of a token that an API server grants, in place of the hour that managers ask for.
const TOKEN_SECONDS: u32 = 600;
const LEASE: &str = "/namespaces/kube-system/leases/kube-controller-manager";

/// How a request fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// An error of the server, which has not executed the request.
    Status(StatusCode),
    /// The request is executed, and its response is lost.
    ResponseLost,
    /// The connection breaks, with all requests and watches on it.
    ConnectionBroken,
}

/// Of ten failures; breaking a connection hits all watches at once.
const FAILURES: [Failure; 10] = [
    Failure::Status(StatusCode::INTERNAL_SERVER_ERROR),
    Failure::Status(StatusCode::INTERNAL_SERVER_ERROR),
    Failure::Status(StatusCode::SERVICE_UNAVAILABLE),
    Failure::Status(StatusCode::SERVICE_UNAVAILABLE),
    Failure::Status(StatusCode::TOO_MANY_REQUESTS),
    Failure::Status(StatusCode::TOO_MANY_REQUESTS),
    Failure::ResponseLost,
    Failure::ResponseLost,
    Failure::ResponseLost,
    Failure::ConnectionBroken,
];

/// Listens until it is dropped.
pub(super) struct FaultProxy {
    address: SocketAddr,
    state: Arc<State>,
    _connections: JoinSet<()>,
}

/// What the connections share.
struct State {
    /// To the API server as the manager's user, and without credentials.
    upstream: Connection,
    faults: Mutex<Option<fastrand::Rng>>,
    counts: Counts,
    lease_written: Mutex<Option<Instant>>,
}

/// What has passed so far.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Requests with an expired client certificate.
    pub(super) expired: AtomicU64,
    /// Tokens that were issued to the manager.
    pub(super) tokens: AtomicU64,
    /// Client certificates that it has connected with.
    pub(super) certificates: Mutex<std::collections::BTreeSet<Vec<u8>>>,
}

impl FaultProxy {
    /// Opens a local port.
    pub(super) async fn start(
        authority: &Authority,
        upstream: Connection,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(tls(authority)?));
        let state = Arc::new(State {
            upstream,
            faults: Mutex::new(Some(fastrand::Rng::with_seed(seed))),
            counts: Counts::default(),
            lease_written: Mutex::new(None),
        });
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, acceptor, Arc::clone(&state)));
        Ok(Self { address, state, _connections: connections })
    }

    /// The URL to use in place of the API server's.
    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// From now on no request fails.
    pub(super) fn end_faults(&self) {
        *self.state.faults.lock() = None;
    }

    /// When the manager wrote its Lease last.
    pub(super) fn lease_written(&self) -> Option<Instant> {
        *self.state.lease_written.lock()
    }

    /// What has passed so far.
    pub(super) fn counts(&self) -> &Counts {
        &self.state.counts
    }
}

/// A serving certificate of the cluster's authority, which also signs client certificates.
fn tls(authority: &Authority) -> anyhow::Result<ServerConfig> {
    let names = [Ipv4Addr::LOCALHOST.to_string()];
    let subject = Subject { name: "kube-apiserver", group: None, alt_names: &names, usage: Usage::Server };
    let issued = authority.issue(&subject)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).context("the authority")?)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![issued.certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, acceptor.clone(), Arc::clone(&state)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let valid_until =
        certificate.and_then(|der| Certificate::from_der(der).ok()).map(|found| found.not_after);
    if let Some(der) = certificate {
        state.counts.certificates.lock().insert(der.to_vec());
    }
    let broken = Arc::new(Notify::new());
    let breaking = Arc::clone(&broken);
    let service = service_fn(move |request| {
        let (state, broken) = (Arc::clone(&state), Arc::clone(&broken));
        async move {
            // hyper wants errors of a type of their own.
            let response = state.respond(request, valid_until, &broken).await.map_err(io::Error::other);
            response.map(|response| response.map(|body| body.map_err(io::Error::other).boxed_unsync()))
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        biased;
        // The connection is dropped without a word.
        () = breaking.notified() => {}
        _ = builder.serve_connection(TokioIo::new(stream), service) => {}
    }
}

impl State {
    async fn respond(
        &self,
        request: Request<Incoming>,
        valid_until: Option<i64>,
        broken: &Notify,
    ) -> Result<Response<ResponseBody>, BoxError> {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let failure = self.draw_failure();
        if failure.is_some() {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        match failure {
            None => self.forward(request, valid_until).await,
            Some(Failure::Status(code)) => Ok(status(code)),
            Some(Failure::ResponseLost) => {
                drop(self.forward(request, valid_until).await);
                Err("the response is lost".into())
            }
            Some(Failure::ConnectionBroken) => {
                broken.notify_one();
                std::future::pending().await
            }
        }
    }

    fn draw_failure(&self) -> Option<Failure> {
        let mut faults = self.faults.lock();
        let rng = faults.as_mut()?;
        (rng.f64() < FAILING).then(|| FAILURES[rng.usize(..FAILURES.len())])
    }

    async fn forward(
        &self,
        request: Request<Incoming>,
        valid_until: Option<i64>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let (mut parts, body) = request.into_parts();
        let mut body = body.collect().await?.to_bytes();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let asks_for_token = parts.method == Method::POST && path.ends_with("/token");
        if asks_for_token {
            body = with_short_life(&body);
        }
        // The transport sets its own.
        parts.headers.remove(HOST);
        parts.headers.remove(CONTENT_LENGTH);
        let is_lease = parts.method != Method::GET && path.contains(LEASE);
        parts.uri = Uri::try_from(path)?;
        let Some(transport) = self.transport(parts.headers.contains_key(AUTHORIZATION), valid_until) else {
            self.counts.expired.fetch_add(1, Ordering::Relaxed);
            return Ok(status(StatusCode::UNAUTHORIZED));
        };
        let mut request = Request::from_parts(parts, Body::from(body.to_vec()));
        *request.version_mut() = http::Version::default();
        let response = transport.oneshot(request).await;
        if response.as_ref().is_ok_and(|response| response.status().is_success()) {
            if is_lease {
                *self.lease_written.lock() = Some(Instant::now());
            }
            self.counts.tokens.fetch_add(u64::from(asks_for_token), Ordering::Relaxed);
        }
        response
    }

    /// The transport for a request with or without a token; `None` if its client certificate has expired.
    fn transport(&self, has_token: bool, valid_until: Option<i64>) -> Option<Transport> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        match valid_until {
            _ if has_token => Some(self.upstream.anonymous()),
            None => Some(self.upstream.anonymous()),
            Some(end) if i64::try_from(now).is_ok_and(|now| now <= end) => {
                Some(self.upstream.with_credentials())
            }
            Some(_) => None,
        }
    }
}

/// A TokenRequest for a shorter life.
fn with_short_life(body: &Bytes) -> Bytes {
    let Ok(mut request) = serde_json::from_slice::<serde_json::Value>(body) else { return body.clone() };
    request["spec"]["expirationSeconds"] = TOKEN_SECONDS.into();
    Bytes::from(request.to_string())
}

/// An error as the API server writes it.
fn status(code: StatusCode) -> Response<ResponseBody> {
    let reason = match code {
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        _ => "InternalError",
    };
    let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
        "message": "injected", "code": code.as_u16()});
    let body = Full::new(Bytes::from(body.to_string()))
        .map_err(|never| -> BoxError { match never {} })
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_requested_for_ten_minutes() {
        let asked = Bytes::from_static(br#"{"kind":"TokenRequest","spec":{"expirationSeconds":3600}}"#);
        let sent: serde_json::Value = serde_json::from_slice(&with_short_life(&asked)).unwrap();
        assert_eq!(sent["spec"]["expirationSeconds"], 600);
        assert_eq!(with_short_life(&Bytes::from_static(b"no JSON")), "no JSON");
    }

    #[test]
    fn errors_are_those_of_an_api_server() {
        let response = status(StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert!(!status(StatusCode::SERVICE_UNAVAILABLE).headers().contains_key(RETRY_AFTER));
    }
}
