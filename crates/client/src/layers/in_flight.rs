//! Bounds how many requests of one client wait for an answer at the same time.

use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use tokio::sync::Semaphore;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody, is_watch};

/// Lets no more than so many requests wait for the head of their answer. Watches are not counted.
#[derive(Debug)]
pub struct MaxInFlight {
    places: Semaphore,
}

impl MaxInFlight {
    /// At most this many at a time, and at least one.
    #[must_use]
    pub fn new(requests_max: usize) -> Self {
        Self { places: Semaphore::new(requests_max.clamp(1, Semaphore::MAX_PERMITS)) }
    }
}

impl Middleware for MaxInFlight {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let _place = if is_watch(&request) { None } else { Some(self.places.acquire().await?) };
        inner.oneshot(request).await
    }
}
