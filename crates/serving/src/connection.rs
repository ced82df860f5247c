//! One client holds no more than one connection's worth of the server, and not for ever.
//!
//! A connection must bring its first complete request soon, and may be quiet between requests only so
//! long. Time counts from the moment an answer was ready, so a client that never reads it is let go too.
//! This holds for HTTP/1.1 and HTTP/2 alike, which is why hyper's own header timer (HTTP/1.1 only, and
//! running between requests as well) is not used.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Pages;
use crate::server::Limits;

/// How long answers under way may take once a connection has been quiet for too long.
const PARTING: Duration = Duration::from_secs(5);

/// What connections of one server have in common.
pub(crate) struct Desk {
    pub(crate) tls: TlsAcceptor,
    pub(crate) pages: Pages,
    pub(crate) limits: Limits,
}

/// Whether the client of one connection is being served, and if not, until when it may stay.
#[derive(Clone, Copy)]
struct Activity {
    requests: usize,
    leave_at: Instant,
    /// How long an earlier answer may still take when it leaves; nothing if there was none.
    parting: Duration,
}

/// Serves one connection until the client goes, is quiet for too long, or the server ends.
pub(crate) async fn serve(
    desk: Arc<Desk>,
    stream: TcpStream,
    peer: IpAddr,
    mut ending: watch::Receiver<bool>,
) {
    let limits = desk.limits;
    let first_request_by = Instant::now() + limits.first_request_within;
    let handshake = tokio::select! {
        biased;
        _ = ending.wait_for(|ending| *ending) => return,
        handshake = tokio::time::timeout_at(first_request_by, desk.tls.accept(stream)) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    let (activity, quiet) =
        watch::channel(Activity { requests: 0, leave_at: first_request_by, parting: Duration::ZERO });
    let service = service_fn(|request: Request<Incoming>| {
        activity.send_modify(|now| now.requests += 1);
        let answer = desk.pages.answer(request.method(), request.uri(), peer);
        activity.send_modify(|now| {
            now.requests -= 1;
            now.leave_at = Instant::now() + limits.quiet_at_most;
            now.parting = PARTING;
        });
        std::future::ready(Ok::<_, Infallible>(answer.map(Full::<Bytes>::new) as Response<Full<Bytes>>))
    });
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

fn protocol(limits: Limits) -> auto::Builder<TokioExecutor> {
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

/// Waits until the client has been quiet for too long; how much longer it may stay.
async fn too_quiet(mut activity: watch::Receiver<Activity>) -> Duration {
    loop {
        let now = *activity.borrow_and_update();
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

fn part(peer: IpAddr, result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended with an error");
    }
}
