//! Serves one connection, with time limits.
//!
//! The first request must arrive within `first_request_timeout`, and a connection may be idle between
//! requests for `idle_timeout`. The idle time counts from the moment the response is ready, so a client that
//! never reads it is disconnected, too. This applies to HTTP/1.1 and HTTP/2 alike; hyper's header timeout is
//! not used because it covers only HTTP/1.1 and also runs between requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, USER_AGENT};
use http::request::Parts;
use http::{Method, Request, Response, Version};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::access::{Access, AuthResult};
use crate::options::ConnectionLimits;
use crate::pages::{PageRequest, Pages};
use crate::tls::TlsServer;

/// How long responses in flight may take after the idle timeout.
const IDLE_GRACE: Duration = Duration::from_secs(5);
/// The only request body that is read is a number.
const BODY_BYTES_MAX: usize = 1024;
/// How long a client may take to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Parity: staging/src/k8s.io/apiserver/pkg/server/httplog, where requests are logged from verbosity 3 on.
const REQUEST_LOG: &str = "keleustes_serving::connection::v3";

/// The state that all connections of a server share.
pub(crate) struct ServerContext {
    pub(crate) tls_server: RwLock<TlsServer>,
    pub(crate) pages: Pages,
    pub(crate) access: Access,
    pub(crate) limits: ConnectionLimits,
    pub(crate) unauthenticated_http2_dos_mitigation: bool,
}

/// One connection and its peer.
struct Client {
    context: Arc<ServerContext>,
    peer: SocketAddr,
    certificates: Vec<CertificateDer<'static>>,
    activity: watch::Sender<Activity>,
}

/// The activity of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Activity {
    pub(crate) requests: usize,
    /// Those of them that an authenticated user is authorized to send.
    pub(crate) authorized: usize,
    /// Since when the connection has been idle or, with requests in flight, busy.
    pub(crate) since: Instant,
    /// Whether a request of this connection was authenticated.
    pub(crate) authenticated: bool,
    idle_deadline: Instant,
    /// How long responses in flight may take after `idle_deadline`; zero before the first request.
    grace: Duration,
    /// Whether to close the connection after the responses in flight.
    close_after_responses: bool,
}

impl Activity {
    /// A connection before its handshake.
    pub(crate) fn started(limits: ConnectionLimits) -> Self {
        let now = Instant::now();
        Self {
            requests: 0,
            authorized: 0,
            since: now,
            authenticated: false,
            idle_deadline: now + limits.first_request_timeout,
            grace: Duration::ZERO,
            close_after_responses: false,
        }
    }
}

/// Serves one connection until the client closes it, it is idle for too long, or the server shuts down.
pub(crate) async fn serve(
    context: Arc<ServerContext>,
    stream: TcpStream,
    peer: SocketAddr,
    activity: watch::Sender<Activity>,
    mut shutdown: watch::Receiver<bool>,
) {
    let limits = context.limits;
    let first_request_by = activity.borrow().idle_deadline;
    let Ok(local) = stream.local_addr() else { return };
    let acceptor = context.tls_server.read().acceptor(local.ip());
    let handshake = tokio::select! {
        biased;
        _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        handshake = tokio::time::timeout_at(first_request_by, acceptor.accept(stream)) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    let activity_receiver = activity.subscribe();
    let client = Arc::new(Client { context, peer, certificates, activity });
    let service = service_fn(move |request| Arc::clone(&client).serve_request(request));
    let builder = protocol(limits);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let grace = tokio::select! {
        biased;
        result = connection.as_mut() => return log_end(peer, result),
        _ = shutdown.wait_for(|shutdown| *shutdown) => limits.shutdown_grace,
        grace = wait_until_close(activity_receiver) => grace,
    };
    connection.as_mut().graceful_shutdown();
    if let Ok(result) = timeout(grace, connection).await {
        log_end(peer, result);
    }
}

impl Client {
    /// Responds to one request and records the activity.
    async fn serve_request(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let started = Instant::now();
        self.activity.send_modify(|now| {
            if now.requests == 0 {
                now.since = Instant::now();
            }
            now.requests += 1;
        });
        let in_flight = RequestInFlight(&self);
        let (mut head, body) = request.into_parts();
        let is_head = head.method == Method::HEAD;
        let response = self.response(&mut head, body).await;
        drop(in_flight);
        let (latency, status) = (started.elapsed(), response.status().as_u16());
        let agent = head.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        tracing::debug!(
            target: REQUEST_LOG,
            verb = %head.method, uri = %head.uri, ?latency, user_agent = agent, source = %self.peer, status, "HTTP"
        );
        Ok(if is_head { without_body(response) } else { response.map(Full::new) })
    }

    async fn response(&self, head: &mut Parts, body: Incoming) -> Response<Bytes> {
        let path = percent_decode_str(head.uri.path()).decode_utf8_lossy().into_owned();
        if let Some(response) = self.context.access.log_in(head, &path) {
            return response;
        }
        let admission = self.context.access.authenticate_and_authorize(head, &path, &self.certificates).await;
        let unauthenticated = match &admission {
            AuthResult::Allowed(user)
            | AuthResult::Forbidden { user, .. }
            | AuthResult::AuthorizerError { user, .. } => user.is_anonymous(),
            AuthResult::Unauthenticated => true,
        };
        if !unauthenticated {
            self.activity.send_modify(|now| now.authenticated = true);
        }
        if unauthenticated
            && head.version == Version::HTTP_2
            && self.context.unauthenticated_http2_dos_mitigation
        {
            // Mitigates HTTP/2 denial of service: an unauthenticated client gets one request per connection.
            self.activity.send_modify(|now| now.close_after_responses = true);
        }
        let granted = matches!(admission, AuthResult::Allowed(_));
        let _authorized = (granted && !unauthenticated).then(|| AuthorizedInFlight::new(self));
        // Pages that are open to everyone take no body, so an anonymous client cannot make the server wait for one.
        let body = if granted && Pages::takes_body(&head.method, &path) {
            let collected = timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
            collected.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes)
        } else {
            Some(Bytes::new())
        };
        let page_request = PageRequest {
            method: &head.method,
            uri: &head.uri,
            path: &path,
            headers: &head.headers,
            body: body.as_deref(),
        };
        if !granted {
            return self.context.pages.refuse(&admission, &page_request);
        }
        if let Some(response) = self.context.pages.subtree_response(&page_request).await {
            return response;
        }
        // A panic in a page must not end the process: its controllers keep running.
        catch_unwind(AssertUnwindSafe(|| self.context.pages.response(&page_request))).unwrap_or_else(|_| {
            tracing::error!(verb = %head.method, uri = %head.uri, "panic while serving request");
            Pages::panicked()
        })
    }
}

/// Counts one request in flight until it is dropped.
struct RequestInFlight<'a>(&'a Client);

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        let idle_timeout = self.0.context.limits.idle_timeout;
        self.0.activity.send_modify(|now| {
            now.requests -= 1;
            now.since = Instant::now();
            now.idle_deadline = Instant::now() + idle_timeout;
            now.grace = IDLE_GRACE;
        });
    }
}

/// Counts one authorized request in flight until it is dropped.
struct AuthorizedInFlight<'a>(&'a Client);

impl<'a> AuthorizedInFlight<'a> {
    fn new(client: &'a Client) -> Self {
        client.activity.send_modify(|now| now.authorized += 1);
        Self(client)
    }
}

impl Drop for AuthorizedInFlight<'_> {
    fn drop(&mut self) {
        self.0.activity.send_modify(|now| now.authorized -= 1);
    }
}

/// The response to HEAD: everything but the body.
fn without_body(mut response: Response<Bytes>) -> Response<Full<Bytes>> {
    let length = response.body().len();
    if length > 0 {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response.map(|_| Full::default())
}

fn protocol(limits: ConnectionLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(limits.header_bytes_max as usize)
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.header_bytes_max)
        .max_concurrent_streams(limits.http2_streams_max);
    builder
}

/// Waits until the connection should be closed; returns the grace period for responses in flight.
async fn wait_until_close(mut activity: watch::Receiver<Activity>) -> Duration {
    loop {
        let now = *activity.borrow_and_update();
        if now.close_after_responses {
            return IDLE_GRACE;
        }
        let changed = if now.requests > 0 {
            activity.changed().await
        } else {
            tokio::select! {
                biased;
                changed = activity.changed() => changed,
                () = sleep_until(now.idle_deadline) => return now.grace,
            }
        };
        if changed.is_err() {
            // The connection is closed.
            return Duration::ZERO;
        }
    }
}

fn log_end(peer: SocketAddr, result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended with an error");
    }
}
