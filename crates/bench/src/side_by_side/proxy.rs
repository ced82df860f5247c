//! A TCP proxy between a manager and its API server that counts the bytes without reading them.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Listens until it is dropped.
pub(super) struct CountingProxy {
    address: SocketAddr,
    received: Arc<AtomicU64>,
    _connections: JoinSet<()>,
}

impl CountingProxy {
    /// Opens a local port that forwards to another one.
    pub(super) async fn start(port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let received = Arc::new(AtomicU64::new(0));
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, port, received.clone()));
        Ok(Self { address, received, _connections: connections })
    }

    /// The URL to use in place of the API server's.
    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// How many bytes the server has sent so far.
    pub(super) fn received(&self) -> f64 {
        self.received.load(Ordering::Relaxed) as f64
    }
}

async fn accept(listener: TcpListener, port: u16, received: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(copy_bytes(client, port, received.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Copies bytes in both directions until both ends are closed. The ends notice a broken connection
/// themselves.
async fn copy_bytes(mut client: TcpStream, port: u16, received: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut server = Counted { stream: server, received };
    let _ = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut server, 16 * 1024, 256 * 1024).await;
}

/// A stream that counts what is read from it.
struct Counted {
    stream: TcpStream,
    received: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.received.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        outcome
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
