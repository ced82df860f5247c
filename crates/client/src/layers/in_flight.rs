//! Bounds how many requests of one client wait for an answer at the same time.

use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use tokio::sync::Semaphore;
use tower::{BoxError, ServiceExt as _};

use super::{AnswerBody, Answering, Concern, is_watch};

/// Lets no more than so many requests wait for the head of their answer. Watches are not counted.
#[derive(Debug)]
pub struct InFlight {
    places: Semaphore,
}

impl InFlight {
    /// At most this many at a time, and at least one.
    #[must_use]
    pub fn new(requests_max: usize) -> Self {
        Self { places: Semaphore::new(requests_max.clamp(1, Semaphore::MAX_PERMITS)) }
    }
}

impl Concern for InFlight {
    async fn pass<S: Answering>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<AnswerBody>, BoxError> {
        let _place = if is_watch(&request) { None } else { Some(self.places.acquire().await?) };
        inner.oneshot(request).await
    }
}
