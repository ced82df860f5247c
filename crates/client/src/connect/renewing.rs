//! A way to the server that follows the client certificate on disk.
//!
//! The server judges a certificate anew with each request, so a connection that was opened with the old one is
//! of no use once that has run out: a change makes a new way, with connections of its own. Watches on the old
//! connections end in their own time.

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

use super::way::Route;
use crate::layers::{ResponseBody, Transport};

/// How often the files are looked at, when there is a request to send.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The transport with the credentials of a configuration; one that follows files if it names any.
pub(super) fn following_files(route: &Route) -> Result<Transport, kube::Error> {
    let user = &route.config.auth_info;
    let files = [
        user.client_certificate.as_ref().filter(|_| user.client_certificate_data.is_none()),
        user.client_key.as_ref().filter(|_| user.client_key_data.is_none()),
    ];
    let files: Vec<_> = files.into_iter().flatten().map(PathBuf::from).collect();
    let transport = route.open()?;
    if files.is_empty() {
        return Ok(transport);
    }
    let content = contents(&files);
    let current = Mutex::new(Current { transport, content, looked_at: Instant::now() });
    Ok(Transport::new(Renewing(Arc::new(Shared { route: route.clone(), files, current }))))
}

#[derive(Clone)]
struct Renewing(Arc<Shared>);

struct Shared {
    route: Route,
    files: Vec<PathBuf>,
    current: Mutex<Current>,
}

struct Current {
    transport: Transport,
    content: Vec<Option<Vec<u8>>>,
    looked_at: Instant,
}

impl Shared {
    /// The way to take now. A pair that cannot be used leaves the old one: certificate and key are not replaced
    /// in one moment.
    fn transport(&self) -> Transport {
        let mut current = self.current.lock();
        if current.looked_at.elapsed() < LOOK_EVERY {
            return current.transport.clone();
        }
        current.looked_at = Instant::now();
        let content = contents(&self.files);
        if content != current.content {
            match self.route.open() {
                Ok(transport) => {
                    tracing::info!(files = ?self.files, "the client certificate has changed; connecting anew");
                    current.transport = transport;
                    current.content = content;
                }
                Err(error) => {
                    tracing::warn!(files = ?self.files, %error, "the new client certificate cannot be used");
                }
            }
        }
        current.transport.clone()
    }
}

fn contents(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|file| std::fs::read(file).ok()).collect()
}

impl Service<Request<Body>> for Renewing {
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
