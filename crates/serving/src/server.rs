//! The socket: bound before anything is promised, bounded in connections, closed in order.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::access::Access;
use crate::connection::{self, Desk};
use crate::tls::{Pairs, Tls};
use crate::{Pages, ServingError, ServingOptions};

/// Connections that wait to be accepted while all places are taken.
const BACKLOG: i32 = 128;
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(3 * 60);
/// The pause after a failed accept: long enough for descriptors or memory to become free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket with a certificate and pages to serve.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    desk: Arc<Desk>,
    tls: Tls,
    /// What clients are greeted with.
    pairs: Pairs,
    reload_every: Duration,
}

impl Server {
    /// Binds the address; `None` if the options say that nothing is served.
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

    /// Serves on a socket that is bound already, whatever address and port the options name.
    ///
    /// # Errors
    /// If the socket cannot be used or there is no usable certificate.
    pub fn from_listener(
        listener: std::net::TcpListener,
        options: &ServingOptions,
        pages: Pages,
        access: Access,
    ) -> Result<Self, ServingError> {
        let asked = SocketAddr::new(options.bind_address, options.port);
        let unusable = |cause| ServingError::Bind { address: asked, cause };
        listener.set_nonblocking(true).map_err(unusable)?;
        let listener = TcpListener::from_std(listener).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let tls = Tls::open(options, SystemTime::now())?;
        let pairs = tls.read()?;
        let greeting = tls.greeting(&pairs, access.hints())?;
        let desk = Desk {
            greeting: RwLock::new(greeting),
            pages,
            access,
            limits: options.limits,
            unauthenticated_http2_dos_mitigation: options.unauthenticated_http2_dos_mitigation,
        };
        let reload_every = options.reload_every;
        // Clients can connect from now on, whenever the first of them is answered.
        tracing::info!("Serving securely on {address}");
        Ok(Self { listener, address, desk: Arc::new(desk), tls, pairs, reload_every })
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
        let Self { listener, address, desk, tls, pairs, reload_every } = self;
        let (end, ending) = watch::channel(false);
        let mut connections = JoinSet::new();
        let served = {
            let accepting = accept_all(&listener, address, &desk, &ending, &mut connections);
            tokio::select! {
                biased;
                () = stop => Ok(()),
                error = accepting => Err(error),
                () = reload(&desk, &tls, pairs, reload_every) => unreachable!("it never ends"),
                () = desk.access.follow() => unreachable!("it never ends"),
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

/// Lets greetings follow their files and the CAs that clients are told of; never ends.
///
/// Files are read rather than watched: they are few and small, and what is mounted into a pod changes by
/// links that a watch on a file would miss.
async fn reload(desk: &Desk, tls: &Tls, mut pairs: Pairs, every: Duration) {
    let mut trust = desk.access.trust_version();
    let mut complaint = None;
    loop {
        tokio::time::sleep(every).await;
        desk.access.reload();
        let fresh_trust = desk.access.trust_version();
        let fresh = tls.read().and_then(|fresh| {
            let same = fresh == pairs && fresh_trust == trust;
            let greeting = (!same).then(|| tls.greeting(&fresh, desk.access.hints())).transpose()?;
            Ok(greeting.map(|greeting| (fresh, greeting)))
        });
        let fault = match fresh {
            Ok(None) => None,
            Ok(Some((fresh, greeting))) => {
                tracing::info!("certificates or client CAs have changed and are in use now");
                *desk.greeting.write() = greeting;
                (pairs, trust) = (fresh, fresh_trust);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(fault) = fault.as_ref().filter(|fault| complaint.as_ref() != Some(*fault)) {
            tracing::warn!("{fault}; the certificates known so far stay in use");
        }
        complaint = fault;
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
                    connection::serve(desk, stream, peer, ending).await;
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
fn listen(address: SocketAddr, share_port: bool) -> io::Result<std::net::TcpListener> {
    if address.ip().is_unspecified() {
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match listen_on(both, share_port) {
            // A system without IPv6: one family is all there is.
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
    // Lets a restarted process have its port back while old connections linger; it does not let two
    // processes listen at once.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share_port)?;
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
