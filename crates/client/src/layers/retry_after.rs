//! Retries a request if the response has a `Retry-After` header, and only then.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::{BoxError, ServiceExt as _};

use super::rate_limit_waits::{self, LimitedBy};
use super::{HttpService, Middleware, RequestObserver, ResponseBody};
use crate::api_error;
use crate::call::ERROR_BYTES_MAX;

/// Retries per request. Parity: the default of 10 in `client-go/rest`.
const RETRIES_MAX: u32 = 10;

/// Retries after a 429 or 5xx response with `Retry-After` in seconds.
pub struct RetryAfter {
    host: String,
    observer: Option<Arc<dyn RequestObserver>>,
}

impl RetryAfter {
    /// The observer is notified of each retry.
    #[must_use]
    pub fn new(host: String, observer: Option<Arc<dyn RequestObserver>>) -> Self {
        Self { host, observer }
    }
}

impl Middleware for RetryAfter {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let mut request = request;
        for _ in 0..RETRIES_MAX {
            let Some(again) = copy(&request) else {
                break;
            };
            let response = inner.clone().oneshot(request).await?;
            let status = response.status();
            let may_repeat = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            let Some(wait) = api_error::retry_after(response.headers()).filter(|_| may_repeat) else {
                return Ok(response);
            };
            drain(response.into_body()).await;
            tracing::debug!(method = %again.method(), path = again.uri().path(), code = status.as_u16(), ?wait, "retrying after Retry-After");
            rate_limit_waits::wait(LimitedBy::ApiServer, wait).await;
            if let Some(observer) = &self.observer {
                observer.retried(again.method(), &self.host, status.as_u16());
            }
            request = again;
        }
        inner.oneshot(request).await
    }
}

/// Reads an error body to its end, so that the connection can be reused, unless it is longer than usual.
async fn drain(mut body: ResponseBody) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
        if bytes > ERROR_BYTES_MAX {
            break;
        }
    }
}

/// `None` if the body is a stream, which can be sent only once.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}
