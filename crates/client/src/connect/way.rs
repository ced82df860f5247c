//! One transport of HTTP: many requests share a connection where the server speaks HTTP/2, as API servers do, and more
//! connections are opened for more.

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
use tower::{BoxError, Service, ServiceBuilder};

use super::lanes::Lanes;
use super::observer::Told;
use crate::layers::Transport;

/// From the first packet to the end of the handshake. Shorter than a lease's renewal, so that a server
/// that is gone costs one try of several.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A connection on which nothing is heard is asked for a sign of life after the first time and given up
/// after both. Parity: `client-go`'s HTTP/2 health check.
const SIGN_OF_LIFE_AFTER: Duration = Duration::from_secs(30);
const SIGN_OF_LIFE_WITHIN: Duration = Duration::from_secs(15);
/// What the server may send ahead on one stream, and on all of them. The sum is far more than one, so
/// that many watches that are not being read do not keep an answer from coming through.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Where a way leads, and through what.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) config: Config,
    pub(super) proxy: Option<Intercept>,
    pub(super) told: Told,
}

impl Route {
    /// Makes the transport.
    pub(super) fn open(&self) -> Result<Transport, kube::Error> {
        // The provider is process-wide; whoever was first has chosen the same one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = &self.config;
        let tls = config.rustls_client_config()?;
        let dial = Dial::new(self.proxy.as_ref(), &tls);
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = &config.tls_server_name {
            let name = name.clone().try_into();
            let name =
                name.map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let mut connector = TimeoutConnector::new(builder.enable_all_versions().wrap_connector(dial));
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        let mut builder = HttpClient::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(SIGN_OF_LIFE_AFTER)
            .http2_keep_alive_timeout(SIGN_OF_LIFE_WITHIN)
            .http2_keep_alive_while_idle(true)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let lanes = Lanes::new(move || builder.build::<_, Body>(connector.clone()));
        let open = Arc::new(Open::new(&self.told));
        let service = ServiceBuilder::new()
            .map_request(move |request| open.pass(request))
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .service(lanes);
        // Answers come out of the lanes in the shape that a transport has.
        Ok(Transport::new(service))
    }
}

/// Is there as long as the transport it is in.
struct Open(Told);

impl Open {
    fn new(told: &Told) -> Self {
        told.tell(|observer| observer.transport_created());
        Self(told.clone())
    }

    /// Requests only carry this along.
    fn pass<T>(&self, request: T) -> T {
        request
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.tell(|observer| observer.transport_dropped());
    }
}

type Socket = TokioIo<TcpStream>;

/// Opens connections to a server, straight or through a proxy.
#[derive(Clone)]
enum Dial {
    Straight(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
    /// To the proxy itself with TLS, and with TLS again through it.
    TlsTunnel(Box<Tunnel<HttpsConnector<HttpConnector>>>),
    Socks(SocksV5<HttpConnector>),
}

impl Dial {
    fn new(proxy: Option<&Intercept>, tls: &rustls::ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(SIGN_OF_LIFE_AFTER));
        let Some(proxy) = proxy else { return Self::Straight(tcp) };
        let uri = proxy.uri().clone();
        match uri.scheme_str() {
            Some("http") => Self::Tunnel(showing(proxy, Tunnel::new(uri, tcp))),
            // Parity: the server's certificates vouch for the proxy, too.
            Some("https") => {
                let tls = HttpsConnector::from((tcp, tls.clone()));
                Self::TlsTunnel(Box::new(showing(proxy, Tunnel::new(uri, tls))))
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

fn showing<C>(proxy: &Intercept, tunnel: Tunnel<C>) -> Tunnel<C> {
    match proxy.basic_auth() {
        Some(password) => tunnel.with_auth(password.clone()),
        None => tunnel,
    }
}

impl Service<Uri> for Dial {
    type Response = MaybeHttpsStream<Socket>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Straight(tcp) => tcp.poll_ready(cx).map_err(BoxError::from),
            Self::Tunnel(tunnel) => tunnel.poll_ready(cx).map_err(BoxError::from),
            Self::TlsTunnel(tunnel) => tunnel.poll_ready(cx).map_err(BoxError::from),
            Self::Socks(socks) => socks.poll_ready(cx).map_err(BoxError::from),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self {
            Self::Straight(tcp) => {
                tcp.call(server).map_ok(MaybeHttpsStream::Http).map_err(BoxError::from).boxed()
            }
            Self::Tunnel(tunnel) => {
                tunnel.call(server).map_ok(MaybeHttpsStream::Http).map_err(BoxError::from).boxed()
            }
            Self::TlsTunnel(tunnel) => tunnel.call(server).map_err(BoxError::from).boxed(),
            Self::Socks(socks) => {
                socks.call(server).map_ok(MaybeHttpsStream::Http).map_err(BoxError::from).boxed()
            }
        }
    }
}

#[cfg(test)]
mod tests;
