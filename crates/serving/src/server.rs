//! The HTTPS server: binds the socket, accepts a limited number of connections and shuts down gracefully.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::access::Access;
use crate::connection::{self, Activity, ServerContext};
use crate::tls::{Pairs, Tls};
use crate::{Pages, ServingError, ServingOptions};

/// The accept backlog while the connection limit is reached.
const BACKLOG: i32 = 128;
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(3 * 60);
/// The delay after a failed accept, for file descriptors or memory to become free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often connections are examined while none of them may be closed.
const RESPONSE_PAUSE: Duration = Duration::from_millis(20);
/// How long an anonymous connection is kept before authenticated ones that are idle or wait for a review: the default
/// timeout of a kubelet's probe. Reviews are given as long before their connection may be closed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A bound socket with certificates and pages.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    context: Arc<ServerContext>,
    tls: Tls,
    /// The certificates in use.
    pairs: Pairs,
    reload_every: Duration,
}

impl Server {
    /// Binds the address; `None` if the port is 0.
    ///
    /// # Errors
    /// If the address cannot be bound or there is no usable certificate.
    pub fn bind(
        options: &ServingOptions,
        pages: Pages,
        access: Access,
    ) -> Result<Option<Self>, ServingError> {
        if options.port == 0 {
            return Ok(None);
        }
        let address = SocketAddr::new(options.bind_address, options.port);
        let listener = listen(address, options.permit_port_sharing).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => ServingError::PortInUse { address },
            _ => ServingError::Bind { address, cause },
        })?;
        Self::from_listener(listener, options, pages, access).map(Some)
    }

    /// Serves on an already bound socket; address and port of the options are ignored.
    ///
    /// # Errors
    /// If the socket cannot be used or there is no usable certificate.
    pub fn from_listener(
        listener: std::net::TcpListener,
        options: &ServingOptions,
        pages: Pages,
        access: Access,
    ) -> Result<Self, ServingError> {
        let configured = SocketAddr::new(options.bind_address, options.port);
        let unusable = |cause| ServingError::Bind { address: configured, cause };
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let tls = Tls::open(options, SystemTime::now())?;
        let pairs = tls.read()?;
        let tls_server = tls.tls_server(&pairs, access.hints())?;
        let context = ServerContext {
            tls_server: RwLock::new(tls_server),
            pages,
            access,
            limits: options.limits,
            unauthenticated_http2_dos_mitigation: options.unauthenticated_http2_dos_mitigation,
        };
        let reload_every = options.reload_every;
        // Clients can connect from now on, although requests are served only by `run`.
        tracing::info!("Serving securely on {address}");
        Ok(Self { listener, address, context: Arc::new(context), tls, pairs, reload_every })
    }

    /// The address of the socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves, then closes the socket and waits for the responses in flight.
    ///
    /// Dropping the future closes everything without waiting.
    ///
    /// # Errors
    /// If the socket itself fails; the process should end then, because its health can no longer be probed.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServingError> {
        let Self { listener, address, context, tls, pairs, reload_every } = self;
        let listener =
            TcpListener::from_std(listener).map_err(|cause| ServingError::Bind { address, cause })?;
        let (shutdown_sender, shutdown) = watch::channel(false);
        let mut connections = Connections::default();
        let served = {
            let accepting = accept_all(&listener, address, &context, &shutdown, &mut connections);
            tokio::select! {
                biased;
                () = stop => Ok(()),
                error = accepting => Err(error),
                () = reload(&context, &tls, pairs, reload_every) => unreachable!("an endless loop"),
                () = context.access.watch_config_map() => unreachable!("an endless loop"),
            }
        };
        drop(listener);
        shutdown_sender.send_replace(true);
        // Each connection has a shutdown grace period, so this ends.
        while let Some(joined) = connections.tasks.join_next().await {
            log_panic(joined);
        }
        served
    }
}

impl Server {
    /// Serves on a thread with an async runtime of its own, so that neither handshakes nor large pages share a thread
    /// with the caller's tasks. Anyone who can connect can cause handshakes.
    ///
    /// Dropping the future closes everything without waiting.
    ///
    /// # Errors
    /// As [`run`](Self::run), or if the thread cannot be started or panics.
    pub async fn run_on_own_thread(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServingError> {
        let (mut result_sender, result) = oneshot::channel();
        let serve = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(cause) => return drop(result_sender.send(Err(ServingError::Thread { cause }))),
            };
            let served = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = result_sender.closed() => None,
                    served = self.run(stop) => Some(served),
                }
            });
            if let Some(served) = served {
                let _ = result_sender.send(served);
            }
        };
        std::thread::Builder::new()
            .name("secure-serving".to_owned())
            .spawn(serve)
            .map_err(|cause| ServingError::Thread { cause })?;
        result.await.unwrap_or_else(|_| {
            Err(ServingError::Thread { cause: io::Error::other("the serving thread panicked") })
        })
    }
}

/// Reloads certificates and client CAs; never ends.
///
/// Files are polled and not watched: they are few and small, and a pod's volumes change through symbolic
/// links, which a watch on the file would miss.
async fn reload(context: &ServerContext, tls: &Tls, mut pairs: Pairs, every: Duration) {
    let mut trust = context.access.trust_version();
    let mut last_error = None;
    loop {
        tokio::time::sleep(every).await;
        context.access.reload();
        let fresh_trust = context.access.trust_version();
        let fresh = tls.read().and_then(|fresh| {
            let same = fresh == pairs && fresh_trust == trust;
            let tls_server = (!same).then(|| tls.tls_server(&fresh, context.access.hints())).transpose()?;
            Ok(tls_server.map(|tls_server| (fresh, tls_server)))
        });
        let error_text = match fresh {
            Ok(None) => None,
            Ok(Some((fresh, tls_server))) => {
                tracing::info!("reloaded certificates or client CAs");
                *context.tls_server.write() = tls_server;
                (pairs, trust) = (fresh, fresh_trust);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(error_text) =
            error_text.as_ref().filter(|error_text| last_error.as_ref() != Some(*error_text))
        {
            tracing::warn!("cannot reload certificates, keeping the old ones: {error_text}");
        }
        last_error = error_text;
    }
}

/// The tasks of all connections.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: Vec<OpenConnection>,
}

struct OpenConnection {
    task: AbortHandle,
    activity: watch::Receiver<Activity>,
}

impl Connections {
    /// Makes room for a new connection. At the limit an open one is closed, see [`replaceable`], so that clients
    /// cannot keep health probes out, with or without a token. Only while all connections have an authorized request in
    /// flight, or an authenticated one since less than a second, the new one waits.
    async fn make_room(&mut self, connections_max: usize) {
        loop {
            while let Some(joined) = self.tasks.try_join_next() {
                log_panic(joined);
            }
            self.open.retain(|connection| !connection.task.is_finished());
            if self.open.len() < connections_max {
                return;
            }
            let now = Instant::now();
            let candidates = self.open.iter().enumerate();
            let candidates = candidates
                .filter_map(|(index, open)| Some((replaceable(&open.activity.borrow(), now)?, index)));
            if let Some(((rank, _), index)) = candidates.min() {
                self.open.swap_remove(index).task.abort();
                tracing::debug!(?rank, "connection limit reached, closing a connection");
                return;
            }
            // A response frees its connection, too, without ending the task.
            if let Ok(Some(joined)) = timeout(RESPONSE_PAUSE, self.tasks.join_next()).await {
                log_panic(joined);
            }
        }
    }
}

/// Which connections are closed first to make room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    AnonymousIdle,
    AuthenticatedIdle,
    /// Its requests have waited for reviews for a while. A user who may read nothing can send requests without end, and
    /// each waits for a review.
    AuthenticatedWaiting,
    /// It may be a health probe before its request, so clients with a token must not be able to displace it.
    AnonymousNew,
    AnonymousBusy,
}

/// The rank of a connection, and since when it has been idle or busy; `None` while it has an authorized request in
/// flight, or an authenticated one that may still be reviewed in time.
fn replaceable(activity: &Activity, now: Instant) -> Option<(Rank, Instant)> {
    let Activity { requests, authorized, since, authenticated, .. } = *activity;
    let is_recent = now.saturating_duration_since(since) < PROBE_TIMEOUT;
    let rank = match (authenticated, requests > 0) {
        (true, true) if authorized > 0 || is_recent => return None,
        (true, true) => Rank::AuthenticatedWaiting,
        (true, false) => Rank::AuthenticatedIdle,
        (false, true) => Rank::AnonymousBusy,
        (false, false) if is_recent => Rank::AnonymousNew,
        (false, false) => Rank::AnonymousIdle,
    };
    Some((rank, since))
}

/// Accepts connections up to the limit; returns only if the socket fails.
async fn accept_all(
    listener: &TcpListener,
    address: SocketAddr,
    context: &Arc<ServerContext>,
    shutdown: &watch::Receiver<bool>,
    connections: &mut Connections,
) -> ServingError {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                connections.make_room(context.limits.connections_max).await;
                keep_alive(&stream);
                let (activity, watched) = watch::channel(Activity::started(context.limits));
                let (context, shutdown) = (Arc::clone(context), shutdown.clone());
                let serving = connection::serve(context, stream, peer, activity, shutdown);
                let task = connections.tasks.spawn(serving);
                connections.open.push(OpenConnection { task, activity: watched });
            }
            // The socket is no longer listening, so a retry is useless.
            Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => {
                return ServingError::Accept { address, cause };
            }
            // The client gave up early, or file descriptors or memory are short.
            Err(error) => {
                tracing::warn!(%error, "cannot accept connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Binds as the original does: an unspecified address serves both IP families from one socket.
fn listen(address: SocketAddr, share_port: bool) -> io::Result<std::net::TcpListener> {
    if address.ip().is_unspecified() {
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match listen_on(both, share_port) {
            // A system without IPv6.
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {}
            bound => return bound,
        }
    }
    listen_on(address, share_port)
}

fn listen_on(address: SocketAddr, share_port: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restarted process can bind its port again while old connections are in TIME_WAIT; two processes still
    // cannot listen at once.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share_port)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn keep_alive(stream: &TcpStream) {
    let keep_alive = TcpKeepalive::new().with_time(TCP_KEEP_ALIVE).with_interval(TCP_KEEP_ALIVE);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keep_alive) {
        // Idle connections are closed by the idle timeout, too.
        tracing::debug!(%error, "cannot set TCP keep-alive");
    }
}

fn log_panic(joined: Result<(), tokio::task::JoinError>) {
    if let Err(error) = joined
        && !error.is_cancelled()
    {
        tracing::error!(%error, "connection task panicked");
    }
}
