//! The HTTP transport: TLS, proxy, keep-alive and credentials of one configuration. With HTTP/2 up to 64
//! requests share a connection, and the pool opens more connections when needed.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt as _, RustlsTlsError};
use tokio::net::TcpStream;
use tower::{BoxError, Layer as _, Service, ServiceBuilder};

use super::connection_pool::ConnectionPool;
use super::observer::ObserverHandle;
use super::token_file::TokenFile;
use crate::layers::{BearerToken, MiddlewareLayer, Transport};

/// For TCP connect and TLS handshake together. Shorter than the lease's renew deadline, so that an
/// unreachable server costs one of several renewal attempts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An HTTP/2 connection without received frames is pinged after the interval and closed after the timeout.
/// Parity: `client-go`'s HTTP/2 health check.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// HTTP/2 flow-control windows of one stream and of a connection. The connection window is 64 times larger,
/// so that watches that are not being read do not block other responses.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Server, credentials and proxy of a transport.
#[derive(Clone)]
pub(super) struct TransportConfig {
    pub(super) config: Config,
    pub(super) proxy: Option<Intercept>,
    pub(super) observer: ObserverHandle,
}

impl TransportConfig {
    /// Builds the transport.
    pub(super) fn open(&self) -> Result<Transport, kube::Error> {
        // The crypto provider is process-wide; an error means that the same provider is already installed.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut config = self.config.clone();
        let token_file = TokenFile::take_from(&mut config.auth_info)?;
        let tls = config.rustls_client_config()?;
        let proxy_connector = ProxyConnector::new(self.proxy.as_ref(), &tls);
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = &config.tls_server_name {
            let name = name.clone().try_into();
            let name =
                name.map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let mut connector =
            TimeoutConnector::new(builder.enable_all_versions().wrap_connector(proxy_connector));
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut builder = HttpClient::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let pool = ConnectionPool::new(move || builder.build::<_, Body>(connector.clone()));
        let open = Arc::new(TransportGuard::new(&self.observer));
        let server = without_path(&config.cluster_url);
        let service = ServiceBuilder::new()
            .map_err(move |error: BoxError| ServerError::wrap(&server, error))
            .map_request(move |request| open.keep(request))
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .service(pool);
        // The pool already returns responses with a `ResponseBody`.
        let transport = Transport::new(service);
        let Some(file) = token_file else { return Ok(transport) };
        Ok(Transport::new(MiddlewareLayer::new(BearerToken::new(Arc::new(file))).layer(transport)))
    }
}

/// A failed connection, with the server that it was meant for.
#[derive(Debug, thiserror::Error)]
#[error("API server {server}")]
struct ServerError {
    server: String,
    source: BoxError,
}

impl ServerError {
    /// Names the server in errors of the connection. Others, such as those of credential plugins, are not its fault.
    fn wrap(server: &str, error: BoxError) -> BoxError {
        let mut causes =
            std::iter::successors(Some(&*error as &(dyn std::error::Error + 'static)), |cause| {
                cause.source()
            });
        let is_of_connection = causes
            .any(|cause| cause.is::<hyper_util::client::legacy::Error>() || cause.is::<std::io::Error>());
        match is_of_connection {
            true => Box::new(Self { server: server.to_owned(), source: error }),
            false => error,
        }
    }
}

/// Scheme, host and port.
fn without_path(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}", url.scheme_str().unwrap_or("https"))
}

/// Notifies the observer when the transport that owns it is created and dropped.
struct TransportGuard(ObserverHandle);

impl TransportGuard {
    fn new(observer: &ObserverHandle) -> Self {
        observer.notify(|observer| observer.transport_created());
        Self(observer.clone())
    }

    /// Returns the request unchanged; calling it keeps the guard inside the service.
    fn keep<T>(&self, request: T) -> T {
        request
    }
}

impl Drop for TransportGuard {
    fn drop(&mut self) {
        self.0.notify(|observer| observer.transport_dropped());
    }
}

type Socket = TokioIo<TcpStream>;

/// Opens TCP connections to the server, directly or through a proxy.
#[derive(Clone)]
enum ProxyConnector {
    Direct(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
    /// TLS to the proxy, and TLS to the server inside the tunnel.
    TlsTunnel(Box<Tunnel<HttpsConnector<HttpConnector>>>),
    Socks(SocksV5<HttpConnector>),
}

impl ProxyConnector {
    fn new(proxy: Option<&Intercept>, tls: &rustls::ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE_INTERVAL));
        let Some(proxy) = proxy else { return Self::Direct(tcp) };
        let uri = proxy.uri().clone();
        match uri.scheme_str() {
            Some("http") => Self::Tunnel(with_proxy_auth(proxy, Tunnel::new(uri, tcp))),
            // Parity: the proxy's certificate is verified with the API server's CA, too.
            Some("https") => {
                let tls = HttpsConnector::from((tcp, tls.clone()));
                Self::TlsTunnel(Box::new(with_proxy_auth(proxy, Tunnel::new(uri, tls))))
            }
            _ => {
                let socks = SocksV5::new(uri, tcp);
                Self::Socks(match proxy.raw_auth() {
                    Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                    None => socks,
                })
            }
        }
    }
}

fn with_proxy_auth<C>(proxy: &Intercept, tunnel: Tunnel<C>) -> Tunnel<C> {
    match proxy.basic_auth() {
        Some(password) => tunnel.with_auth(password.clone()),
        None => tunnel,
    }
}

impl Service<Uri> for ProxyConnector {
    type Response = MaybeHttpsStream<Socket>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(tcp) => tcp.poll_ready(cx).map_err(BoxError::from),
            Self::Tunnel(tunnel) => tunnel.poll_ready(cx).map_err(BoxError::from),
            Self::TlsTunnel(tunnel) => tunnel.poll_ready(cx).map_err(BoxError::from),
            Self::Socks(socks) => socks.poll_ready(cx).map_err(BoxError::from),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self {
            Self::Direct(tcp) => tcp.call(server).map_ok(discarding_on_close).map_err(BoxError::from).boxed(),
            Self::Tunnel(tunnel) => {
                tunnel.call(server).map_ok(discarding_on_close).map_err(BoxError::from).boxed()
            }
            Self::TlsTunnel(tunnel) => tunnel.call(server).map_err(BoxError::from).boxed(),
            Self::Socks(socks) => {
                socks.call(server).map_ok(discarding_on_close).map_err(BoxError::from).boxed()
            }
        }
    }
}

/// The kernel discards what it has not yet sent when the connection is closed, also because the process was killed. Otherwise
/// it would go on sending for minutes, and a write of a dead leader could arrive in the term of the next one.
fn discarding_on_close(socket: Socket) -> MaybeHttpsStream<Socket> {
    // A kernel that refuses this sends a little longer, no more.
    let _ = socket.inner().set_zero_linger();
    MaybeHttpsStream::Http(socket)
}

#[cfg(test)]
mod tests;
