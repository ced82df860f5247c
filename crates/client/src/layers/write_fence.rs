//! Fencing: refuses writes once this process may no longer write.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use keleustes_objects::{ApiError, ErrorReason};
use kube::client::Body;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody};

/// Whether this process may still write, for example because it holds the lease.
pub type MayWrite = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a write waits for before it is checked, because the transport would wait for it afterwards.
pub type BeforeWrite = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Checks right before a write is sent. The caller has checked as well, but a request may since have waited
/// for the throttle, for a token and for a `Retry-After`.
pub struct WriteFence {
    may_write: MayWrite,
    before: Option<BeforeWrite>,
}

impl WriteFence {
    /// Allows writes while `may_write` returns true.
    #[must_use]
    pub fn new(may_write: MayWrite) -> Self {
        Self { may_write, before: None }
    }

    /// Waits for something before each check: a credential plugin of the transport below may run for a minute.
    #[must_use]
    pub fn after(self, before: BeforeWrite) -> Self {
        Self { before: Some(before), ..self }
    }
}

impl Middleware for WriteFence {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let is_write = !request.method().is_safe();
        if let Some(before) = self.before.as_ref().filter(|_| is_write) {
            before().await;
        }
        if !is_write || (self.may_write)() {
            inner.oneshot(request).await
        } else {
            // The reason says that it took no effect.
            let why = "not sent: this process may no longer write";
            Err(ApiError::transport(ErrorReason::ConnectionRefused, why).into())
        }
    }
}
