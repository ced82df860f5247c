//! A transport that reloads the client certificate from disk.
//!
//! The API server verifies the client certificate on every request, so a connection opened with an expired
//! certificate is useless: a changed certificate gets a new transport with new connections. Watches on the
//! old connections end when the server ends them.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt as _};

use super::http_transport::TransportConfig;
use crate::layers::{ResponseBody, Transport};

/// How often the files are read, at most; only when a request is sent.
const RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The transport with the configured credentials. It reloads the client certificate if that is in files.
pub(super) fn with_certificate_reload(config: &TransportConfig) -> Result<Transport, kube::Error> {
    let user = &config.config.auth_info;
    let files = [
        user.client_certificate.as_ref().filter(|_| user.client_certificate_data.is_none()),
        user.client_key.as_ref().filter(|_| user.client_key_data.is_none()),
    ];
    let files: Vec<_> = files.into_iter().flatten().map(PathBuf::from).collect();
    // Before the transport reads them: a pair that is replaced in between is loaded at the next check.
    let contents = read_files(&files);
    let transport = config.open()?;
    if files.is_empty() {
        return Ok(transport);
    }
    let current = Mutex::new(Current { transport, contents, read_at: Instant::now() });
    Ok(Transport::new(ReloadingTransport(Arc::new(Shared { config: config.clone(), files, current }))))
}

#[derive(Clone)]
struct ReloadingTransport(Arc<Shared>);

struct Shared {
    config: TransportConfig,
    files: Vec<PathBuf>,
    current: Mutex<Current>,
}

struct Current {
    transport: Transport,
    contents: Vec<Option<Vec<u8>>>,
    read_at: Instant,
}

impl Shared {
    /// The current transport. If the new pair cannot be used, the old transport stays: certificate and key
    /// are not replaced atomically.
    fn transport(&self) -> Transport {
        let mut current = self.current.lock();
        if current.read_at.elapsed() < RELOAD_INTERVAL {
            return current.transport.clone();
        }
        current.read_at = Instant::now();
        let contents = read_files(&self.files);
        if contents != current.contents {
            match self.config.open() {
                Ok(transport) => {
                    tracing::info!(files = ?self.files, "client certificate changed, opening new connections");
                    current.transport = transport;
                    current.contents = contents;
                }
                Err(error) => {
                    tracing::warn!(files = ?self.files, %error, "cannot use new client certificate, keeping the old one");
                }
            }
        }
        current.transport.clone()
    }
}

fn read_files(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|file| std::fs::read(file).ok()).collect()
}

impl Service<Request<Body>> for ReloadingTransport {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.transport().oneshot(request))
    }
}
