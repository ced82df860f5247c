//! Lets a change leave only while it may be made.

use std::io;
use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody};

/// Says whether changes may still be made.
pub type MayWrite = Arc<dyn Fn() -> bool + Send + Sync>;

/// Asks right before a change leaves. Whoever sent it has asked, too, but that may be long ago by then: a request
/// waits for its turn, for a token, and for as long as the server tells it to before it is repeated.
pub struct WriteFence {
    may_write: MayWrite,
}

impl WriteFence {
    /// Lets changes pass as long as this says so.
    #[must_use]
    pub fn new(may_write: MayWrite) -> Self {
        Self { may_write }
    }
}

impl Middleware for WriteFence {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        if request.method().is_safe() || (self.may_write)() {
            inner.oneshot(request).await
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "not sent: it may not be made any more")
                .into())
        }
    }
}
