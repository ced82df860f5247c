//! One client holds no more than one connection's worth of the server, and not for ever.
//!
//! A connection must bring its first complete request soon, and may be quiet between requests only so
//! long. Time counts from the moment an answer was ready, so a client that never reads it is let go too.
//! This holds for HTTP/1.1 and HTTP/2 alike, which is why hyper's own header timer (HTTP/1.1 only, and
//! running between requests as well) is not used.

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

use crate::access::{Access, Admission};
use crate::options::ConnectionLimits;
use crate::pages::{Asked, Pages};
use crate::tls::Greeting;

/// How long answers under way may take once a connection has been quiet for too long.
const PARTING: Duration = Duration::from_secs(5);
/// The only body that is read is a number.
const BODY_BYTES_MAX: usize = 1024;

/// What connections of one server have in common.
pub(crate) struct Desk {
    pub(crate) greeting: RwLock<Greeting>,
    pub(crate) pages: Pages,
    pub(crate) access: Access,
    pub(crate) limits: ConnectionLimits,
    pub(crate) unauthenticated_http2_dos_mitigation: bool,
}

/// One connection, and who is at its other end.
struct Client {
    desk: Arc<Desk>,
    peer: SocketAddr,
    certificates: Vec<CertificateDer<'static>>,
    activity: watch::Sender<Activity>,
}

/// Whether the client of one connection is being served, and if not, until when it may stay.
#[derive(Clone, Copy)]
struct Activity {
    requests: usize,
    leave_at: Instant,
    /// How long an earlier answer may still take when it leaves; nothing if there was none.
    parting: Duration,
    /// Whether it is to leave as soon as it has its answers.
    unwelcome: bool,
}

/// Serves one connection until the client goes, is quiet for too long, or the server ends.
pub(crate) async fn serve(
    desk: Arc<Desk>,
    stream: TcpStream,
    peer: SocketAddr,
    mut ending: watch::Receiver<bool>,
) {
    let limits = desk.limits;
    let first_request_by = Instant::now() + limits.first_request_timeout;
    let Ok(local) = stream.local_addr() else { return };
    let acceptor = desk.greeting.read().acceptor(local.ip());
    let handshake = tokio::select! {
        biased;
        _ = ending.wait_for(|ending| *ending) => return,
        handshake = tokio::time::timeout_at(first_request_by, acceptor.accept(stream)) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    let begun =
        Activity { requests: 0, leave_at: first_request_by, parting: Duration::ZERO, unwelcome: false };
    let (activity, quiet) = watch::channel(begun);
    let client = Arc::new(Client { desk, peer, certificates, activity });
    let service = service_fn(move |request| Arc::clone(&client).attend(request));
    let builder = protocol(limits);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let parting = tokio::select! {
        biased;
        result = connection.as_mut() => return part(peer, result),
        _ = ending.wait_for(|ending| *ending) => limits.shutdown_grace,
        parting = too_quiet(quiet) => parting,
    };
    connection.as_mut().graceful_shutdown();
    if let Ok(result) = timeout(parting, connection).await {
        part(peer, result);
    }
}

impl Client {
    /// Answers one request, and notes when.
    async fn attend(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let begun = Instant::now();
        self.activity.send_modify(|now| now.requests += 1);
        let attending = Attending(&self);
        let (mut head, body) = request.into_parts();
        let is_head = head.method == Method::HEAD;
        let answer = self.answer(&mut head, body).await;
        drop(attending);
        let (latency, status) = (begun.elapsed(), answer.status().as_u16());
        let agent = head.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        tracing::debug!(
            verb = %head.method, uri = %head.uri, ?latency, user_agent = agent, source = %self.peer, status, "HTTP"
        );
        Ok(if is_head { without_body(answer) } else { answer.map(Full::new) })
    }

    async fn answer(&self, head: &mut Parts, body: Incoming) -> Response<Bytes> {
        let path = percent_decode_str(head.uri.path()).decode_utf8_lossy().into_owned();
        let admission = self.desk.access.admit(head, &path, &self.certificates).await;
        let stranger = match &admission {
            Admission::Granted(user) | Admission::Forbidden { user, .. } | Admission::Failed { user, .. } => {
                user.is_anonymous()
            }
            Admission::Unknown => true,
        };
        if stranger && head.version == Version::HTTP_2 && self.desk.unauthenticated_http2_dos_mitigation {
            // HTTP/2 is cheap to abuse; strangers get no more of it than one request.
            self.activity.send_modify(|now| now.unwelcome = true);
        }
        let granted = matches!(admission, Admission::Granted(_));
        let body = if granted && head.method == Method::PUT {
            let whole = Limited::new(body, BODY_BYTES_MAX).collect().await;
            whole.ok().map(http_body_util::Collected::to_bytes)
        } else {
            Some(Bytes::new())
        };
        let asked = Asked {
            method: &head.method,
            uri: &head.uri,
            path: &path,
            headers: &head.headers,
            body: body.as_deref(),
        };
        if !granted {
            return self.desk.pages.refuse(&admission, &asked);
        }
        // A page that fails must not take the process along: its controllers may be well.
        catch_unwind(AssertUnwindSafe(|| self.desk.pages.answer(&asked))).unwrap_or_else(|_| {
            tracing::error!(verb = %head.method, uri = %head.uri, "a page panicked");
            Pages::panicked()
        })
    }
}

/// Counts as being served until dropped, however that comes about.
struct Attending<'a>(&'a Client);

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        let idle_timeout = self.0.desk.limits.idle_timeout;
        self.0.activity.send_modify(|now| {
            now.requests -= 1;
            now.leave_at = Instant::now() + idle_timeout;
            now.parting = PARTING;
        });
    }
}

/// What HEAD is answered: everything but the body.
fn without_body(mut answer: Response<Bytes>) -> Response<Full<Bytes>> {
    let length = answer.body().len();
    if length > 0 {
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    answer.map(|_| Full::default())
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

/// Waits until the client has been quiet for too long or should not stay; how much longer it may.
async fn too_quiet(mut activity: watch::Receiver<Activity>) -> Duration {
    loop {
        let now = *activity.borrow_and_update();
        if now.unwelcome {
            return PARTING;
        }
        let changed = if now.requests > 0 {
            activity.changed().await
        } else {
            tokio::select! {
                biased;
                changed = activity.changed() => changed,
                () = sleep_until(now.leave_at) => return now.parting,
            }
        };
        if changed.is_err() {
            // The connection is gone, and with it the need to watch it.
            return Duration::ZERO;
        }
    }
}

fn part(peer: SocketAddr, result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended with an error");
    }
}
