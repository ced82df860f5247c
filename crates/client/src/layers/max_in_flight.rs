//! Limits the requests in flight of one client.

use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use tokio::sync::Semaphore;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody, is_watch};

/// Limits how many requests wait for their response headers. Watches do not count.
#[derive(Debug)]
pub struct MaxInFlight {
    permits: Semaphore,
}

impl MaxInFlight {
    /// Allows this many requests in flight, and at least one.
    #[must_use]
    pub fn new(requests_max: usize) -> Self {
        Self { permits: Semaphore::new(requests_max.clamp(1, Semaphore::MAX_PERMITS)) }
    }
}

impl Middleware for MaxInFlight {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let _permit = if is_watch(&request) { None } else { Some(self.permits.acquire().await?) };
        inner.oneshot(request).await
    }
}
