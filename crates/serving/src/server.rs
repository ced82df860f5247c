//! The socket: bound before anything is promised, bounded in connections, closed in order.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{CertificateSource, tls_config};
use crate::connection::{self, Desk};
use crate::{Pages, ServingError};

/// Connections that wait to be accepted while all places are taken.
const BACKLOG: i32 = 128;
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(3 * 60);
/// The pause after a failed accept: long enough for descriptors or memory to become free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServingOptions {
    /// `--bind-address`; an unspecified one means all interfaces of both IP families.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 serves nothing.
    pub port: u16,
    /// Where the certificate comes from.
    pub certificate: CertificateSource,
    /// Whether HTTP/2 is offered (`--disable-http2-serving` turns it off).
    pub http2: bool,
    /// What clients may hold on to.
    pub limits: Limits,
}

impl Default for ServingOptions {
    fn default() -> Self {
        Self {
            bind_address: IpAddr::from([0, 0, 0, 0]),
            port: 10257,
            certificate: CertificateSource::Generated,
            http2: true,
            limits: Limits::default(),
        }
    }
}

/// What clients may hold on to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; more wait to be accepted. The original has no such bound.
    pub connections_max: usize,
    /// The size of a request's head.
    pub header_bytes_max: u32,
    /// Requests at a time on one HTTP/2 connection.
    pub http2_streams_max: u32,
    /// The time for TLS handshake and head of the first request together.
    pub first_request_within: Duration,
    /// The time between an answer and the next request.
    pub quiet_at_most: Duration,
    /// The time that answers under way may take once the server is told to end.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            header_bytes_max: 1 << 20,
            http2_streams_max: 100,
            first_request_within: Duration::from_secs(32),
            quiet_at_most: Duration::from_secs(90),
            shutdown_grace: Duration::from_secs(1),
        }
    }
}

/// A bound socket with a certificate and pages to serve.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    desk: Arc<Desk>,
}

impl Server {
    /// Binds the address; `None` if the options say that nothing is served.
    ///
    /// # Errors
    /// If the address cannot be bound or there is no usable certificate.
    pub fn bind(options: &ServingOptions, pages: Pages) -> Result<Option<Self>, ServingError> {
        if options.port == 0 {
            return Ok(None);
        }
        let address = SocketAddr::new(options.bind_address, options.port);
        let listener = listen(address).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => ServingError::PortInUse { address },
            _ => ServingError::Bind { address, cause },
        })?;
        Self::on(listener, options, pages).map(Some)
    }

    /// Serves on a socket that is bound already, whatever address and port the options name.
    ///
    /// # Errors
    /// If the socket cannot be used or there is no usable certificate.
    pub fn on(
        listener: std::net::TcpListener,
        options: &ServingOptions,
        pages: Pages,
    ) -> Result<Self, ServingError> {
        let asked = SocketAddr::new(options.bind_address, options.port);
        let unusable = |cause| ServingError::Bind { address: asked, cause };
        listener.set_nonblocking(true).map_err(unusable)?;
        let listener = TcpListener::from_std(listener).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let tls = tls_config(&options.certificate, options.bind_address, options.http2, SystemTime::now())?;
        let desk = Desk { tls: TlsAcceptor::from(Arc::new(tls)), pages, limits: options.limits };
        Ok(Self { listener, address, desk: Arc::new(desk) })
    }

    /// The address that is served on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves, then closes the socket at once and lets answers under way end.
    ///
    /// Dropping the future closes everything without waiting.
    ///
    /// # Errors
    /// If the socket itself fails; the process should end then, since nobody can ask for its health.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServingError> {
        let Self { listener, address, desk } = self;
        tracing::info!("Serving securely on {address}");
        let (end, ending) = watch::channel(false);
        let mut connections = JoinSet::new();
        let served = {
            let accepting = accept_all(&listener, address, &desk, &ending, &mut connections);
            tokio::select! {
                biased;
                () = stop => Ok(()),
                error = accepting => Err(error),
            }
        };
        drop(listener);
        end.send_replace(true);
        // Each connection knows its grace, so this ends.
        while let Some(ended) = connections.join_next().await {
            note_panic(ended);
        }
        served
    }
}

/// Accepts while there are places; returns only if the socket fails.
async fn accept_all(
    listener: &TcpListener,
    address: SocketAddr,
    desk: &Arc<Desk>,
    ending: &watch::Receiver<bool>,
    connections: &mut JoinSet<()>,
) -> ServingError {
    let places = Arc::new(Semaphore::new(desk.limits.connections_max));
    loop {
        while let Some(ended) = connections.try_join_next() {
            note_panic(ended);
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            unreachable!("nobody closes the semaphore");
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                keep_alive(&stream);
                let (desk, ending) = (Arc::clone(desk), ending.clone());
                connections.spawn(async move {
                    connection::serve(desk, stream, peer.ip(), ending).await;
                    drop(place);
                });
            }
            // The socket does not listen any more; waiting will not help.
            Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => {
                return ServingError::Accept { address, cause };
            }
            // One client gave up early, or descriptors or memory are short for now.
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Binds as the original does: an unspecified address serves both IP families from one socket.
fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    if address.ip().is_unspecified() {
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match listen_on(both) {
            // A system without IPv6: one family is all there is.
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {}
            bound => return bound,
        }
    }
    listen_on(address)
}

fn listen_on(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Lets a restarted process have its port back while old connections linger; it does not let two
    // processes listen at once.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn keep_alive(stream: &TcpStream) {
    let keep_alive = TcpKeepalive::new().with_time(TCP_KEEP_ALIVE).with_interval(TCP_KEEP_ALIVE);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keep_alive) {
        // Quiet connections are let go without it, only later.
        tracing::debug!(%error, "TCP keep-alive could not be set");
    }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "serving a connection failed");
    }
}
