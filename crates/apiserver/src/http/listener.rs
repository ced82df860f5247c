//! Accepts connections; bounds their number, duration and size, and shuts them down together.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::in_flight::{CountedBody, InFlightLimits};
use super::pki::{Pki, user_of};
use super::{HttpError, Limits};
use crate::kernel::User;
use crate::service::{ApiServer, Body};

/// Send buffer per HTTP/2 stream.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// A server on its socket. Dropping it aborts the server; [`RunningServer::stop`] shuts it down gracefully.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    pki: Arc<Pki>,
    server: ApiServer,
    ending: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningServer {
    /// The address the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's certificate authority.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The text of a kubeconfig file for a user.
    pub fn kubeconfig(&self, user: &User) -> Result<String, HttpError> {
        self.pki.kubeconfig(self.address, user)
    }

    /// Graceful shutdown: stops accepting requests, ends watches cleanly and waits for responses in flight.
    pub async fn stop(mut self) {
        // An error means that the accept task has ended already.
        let _ = self.ending.send(true);
        self.server.cut_watches();
        let _ = (&mut self.task).await;
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Binds the server to a socket; port 0 picks a free port.
pub async fn serve(
    server: ApiServer,
    address: SocketAddr,
    pki: Pki,
    limits: Limits,
) -> Result<RunningServer, HttpError> {
    let listener =
        TcpListener::bind(address).await.map_err(|source| HttpError::Listen { address, source })?;
    let address = listener.local_addr().map_err(|source| HttpError::Listen { address, source })?;
    let acceptor = TlsAcceptor::from(Arc::new(pki.server_config(address.ip())?));
    let (ending, ended) = watch::channel(false);
    let common =
        Common { acceptor, server: server.clone(), limits, in_flight: InFlightLimits::new(&limits), ended };
    let task = tokio::spawn(accept(listener, common));
    Ok(RunningServer { address, pki: Arc::new(pki), server, ending, task })
}

/// State shared by all connections of a server.
#[derive(Clone)]
struct Common {
    acceptor: TlsAcceptor,
    server: ApiServer,
    limits: Limits,
    in_flight: InFlightLimits,
    ended: watch::Receiver<bool>,
}

async fn accept(listener: TcpListener, mut common: Common) {
    let slots = Arc::new(Semaphore::new(common.limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = common.ended.wait_for(|ended| *ended) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Most likely out of file descriptors; wait until open connections close.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let common = common.clone();
        connections.spawn(async move {
            connection(stream, common).await;
            drop(permit);
        });
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(common.limits.shutdown_timeout, all).await.is_err() {
        connections.abort_all();
    }
}

async fn connection(stream: TcpStream, common: Common) {
    let limits = common.limits;
    // Most responses are small; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    let accepted = common.acceptor.accept(Box::pin(stream));
    let Ok(Ok(stream)) = timeout(limits.handshake_timeout, accepted).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let user = certificates.and_then(|chain| chain.first()).and_then(user_of);
    let mut ended = common.ended.clone();
    let (received, mut first_request) = watch::channel(false);
    let service = service_fn(move |request| {
        let (common, user) = (common.clone(), user.clone());
        received.send_replace(true);
        async move { Ok::<_, Infallible>(answer(common, user, request).await) }
    });
    let builder = protocols(&limits);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A client that connects has to send its first request within the header timeout.
    let idle = async {
        if timeout(limits.headers_timeout, first_request.wait_for(|received| *received)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    // The guard that `wait_for` returns is dropped at once: it must not be held across another await.
    let shutdown = async { drop(ended.wait_for(|ended| *ended).await) };
    tokio::select! {
        biased;
        _ = connection.as_mut() => {}
        () = shutdown => {
            connection.as_mut().graceful_shutdown();
            // How the client closes its side does not matter.
            let _ = connection.await;
        }
        () = idle => {}
    }
}

fn protocols(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers_timeout)
        .max_buf_size(limits.header_bytes_max.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

async fn answer(mut common: Common, user: Option<User>, request: Request<Incoming>) -> Response<CountedBody> {
    let (limits, in_flight) = (common.limits, common.in_flight);
    let Some(permit) = in_flight.request() else { return too_busy(&in_flight) };
    let (mut parts, body) = request.into_parts();
    let expected = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    let expected = expected.unwrap_or(usize::MAX).min(limits.body_bytes_max);
    let Some(_body_permit) = in_flight.bytes(expected) else { return too_busy(&in_flight) };
    let body = match timeout(limits.body_timeout, Limited::new(body, limits.body_bytes_max).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return refuse(&in_flight, StatusCode::PAYLOAD_TOO_LARGE, "Request entity too large\n");
        }
        Ok(Err(_)) => {
            return refuse(
                &in_flight,
                StatusCode::BAD_REQUEST,
                "the body of the request could not be read\n",
            );
        }
        Err(_) => {
            let why = "the body of the request did not arrive in time\n";
            return refuse(&in_flight, StatusCode::REQUEST_TIMEOUT, why);
        }
    };
    if let Some(user) = user {
        parts.extensions.insert(user);
    }
    // The service's error type is `Infallible`.
    let response = match common.server.call(Request::from_parts(parts, Full::new(body))).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (parts, body) = response.into_parts();
    if body.is_watch() {
        // Watches are long-lived, and the kernel limits their number itself.
        return Response::from_parts(parts, CountedBody::uncounted(body, &in_flight));
    }
    match CountedBody::document(body, &in_flight, Some(permit)) {
        Some(body) => Response::from_parts(parts, body),
        None => too_busy(&in_flight),
    }
}

/// kube-apiserver's answer when max-requests-inflight is reached.
fn too_busy(in_flight: &InFlightLimits) -> Response<CountedBody> {
    let mut response =
        refuse(in_flight, StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn refuse(in_flight: &InFlightLimits, code: StatusCode, why: &'static str) -> Response<CountedBody> {
    let body = Body::text(Bytes::from_static(why.as_bytes()));
    let mut response = Response::new(CountedBody::uncounted(body, in_flight));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
