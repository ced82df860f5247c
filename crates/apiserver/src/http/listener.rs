//! Connections are bounded in number, time and size, and end together.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::HttpError;
use super::pki::{Pki, user_of};
use crate::face::{ApiServer, Body};
use crate::kernel::User;

/// What one client may take of the server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; more are closed unheard.
    pub connections_max: usize,
    /// Requests at once on one connection of HTTP/2.
    pub streams_max: u32,
    /// Bytes of one request's headers.
    pub header_bytes_max: usize,
    /// Bytes of one request's body.
    pub body_bytes_max: usize,
    /// Time for the TLS handshake.
    pub handshake_within: Duration,
    /// Time for the headers of a request.
    pub headers_within: Duration,
    /// Time for the body of a request.
    pub body_within: Duration,
    /// Time for answers under way when the server stops.
    pub stop_within: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 4096,
            streams_max: 20_000,
            header_bytes_max: 64 * 1024,
            body_bytes_max: 4 * 1024 * 1024,
            handshake_within: Duration::from_secs(10),
            headers_within: Duration::from_secs(30),
            body_within: Duration::from_secs(30),
            stop_within: Duration::from_secs(5),
        }
    }
}

/// A server on its socket; dropping it ends the server at once, [`Serving::stop`] in an orderly way.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    pki: Arc<Pki>,
    server: ApiServer,
    ending: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's authority.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The text of a kubeconfig file for a user.
    pub fn kubeconfig(&self, user: &User) -> Result<String, HttpError> {
        self.pki.kubeconfig(self.address, user)
    }

    /// Takes no new requests, ends watches cleanly, lets answers under way finish, and returns.
    pub async fn stop(mut self) {
        // Nobody listening any more means the task has ended already.
        let _ = self.ending.send(true);
        self.server.cut_watches();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Puts the server on a socket; port 0 takes any free one.
pub async fn serve(
    server: ApiServer,
    address: SocketAddr,
    pki: Pki,
    limits: Limits,
) -> Result<Serving, HttpError> {
    let listener =
        TcpListener::bind(address).await.map_err(|source| HttpError::Listen { address, source })?;
    let address = listener.local_addr().map_err(|source| HttpError::Listen { address, source })?;
    let acceptor = TlsAcceptor::from(Arc::new(pki.server_config(address.ip())?));
    let (ending, ended) = watch::channel(false);
    let task = tokio::spawn(accept(listener, acceptor, server.clone(), limits, ended));
    Ok(Serving { address, pki: Arc::new(pki), server, ending, task })
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    server: ApiServer,
    limits: Limits,
    mut ended: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file handles, most likely; those in use will be given back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (acceptor, server, ended) = (acceptor.clone(), server.clone(), ended.clone());
        connections.spawn(async move {
            connection(stream, acceptor, server, limits, ended).await;
            drop(place);
        });
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.stop_within, all).await.is_err() {
        connections.abort_all();
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    server: ApiServer,
    limits: Limits,
    mut ended: watch::Receiver<bool>,
) {
    // Small answers are the rule; waiting to fill packets would only delay them.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(limits.handshake_within, acceptor.accept(stream)).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let user = certificates.and_then(|chain| chain.first()).and_then(user_of);
    let service = service_fn(move |request| {
        let (server, user) = (server.clone(), user.clone());
        async move { Ok::<_, Infallible>(answer(server, user, request, limits).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers_within)
        .max_buf_size(limits.header_bytes_max.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // The guard that the wait gives is let go at once, for it must not be held while waiting for something else.
    let over = async { drop(ended.wait_for(|ended| *ended).await) };
    tokio::select! {
        biased;
        _ = connection.as_mut() => {}
        () = over => {
            connection.as_mut().graceful_shutdown();
            // How the client leaves is its own affair.
            let _ = connection.await;
        }
    }
}

async fn answer(
    mut server: ApiServer,
    user: Option<User>,
    request: Request<Incoming>,
    limits: Limits,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let body = match timeout(limits.body_within, Limited::new(body, limits.body_bytes_max).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "Request entity too large\n");
        }
        Ok(Err(_)) => return refuse(StatusCode::BAD_REQUEST, "the body of the request could not be read\n"),
        Err(_) => {
            return refuse(StatusCode::REQUEST_TIMEOUT, "the body of the request did not arrive in time\n");
        }
    };
    if let Some(user) = user {
        parts.extensions.insert(user);
    }
    // The face answers everything; it has no way to fail.
    match server.call(Request::from_parts(parts, Full::new(body))).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn refuse(code: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::text(Bytes::from_static(why.as_bytes())));
    *response.status_mut() = code;
    response
}
