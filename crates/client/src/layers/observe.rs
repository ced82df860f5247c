//! Reports requests to an observer, for metrics: number, duration, sizes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use super::{HttpService, Middleware, ResponseBody, is_watch};

/// A finished request, or a watch whose response headers have arrived.
#[derive(Clone, Debug)]
pub struct ObservedRequest {
    /// The method.
    pub method: Method,
    /// Host and port of the server.
    pub host: Arc<str>,
    /// The path without the query.
    pub path: String,
    /// Whether the request is a watch.
    pub is_watch: bool,
    /// The status code; `None` without a response.
    pub code: Option<u16>,
    /// From sending to the end of the response; for a watch to the response headers.
    pub duration: Duration,
    /// The size of the request body.
    pub request_bytes: u64,
    /// The size of the response body as far as it was read; `None` for watches.
    pub response_bytes: Option<u64>,
}

/// Receives notifications about requests. Each retry is a request of its own.
pub trait RequestObserver: Send + Sync {
    /// A request finished.
    fn observed(&self, request: &ObservedRequest) {
        let _ = request;
    }

    /// The client-side rate limiter delayed a request by this long, which may be zero.
    fn throttled(&self, method: &Method, host: &str, waited: Duration) {
        let _ = (method, host, waited);
    }

    /// A request is retried after a response with this status code.
    fn retried(&self, method: &Method, host: &str, code: u16) {
        let _ = (method, host, code);
    }
}

/// Reports each request to an observer.
pub struct Observe {
    host: Arc<str>,
    observer: Arc<dyn RequestObserver>,
}

impl Observe {
    /// Reports requests to this host to this observer.
    #[must_use]
    pub fn new(host: &str, observer: Arc<dyn RequestObserver>) -> Self {
        Self { host: Arc::from(host), observer }
    }
}

impl Middleware for Observe {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let started_at = Instant::now();
        let mut observed = ObservedRequest {
            method: request.method().clone(),
            host: Arc::clone(&self.host),
            path: request.uri().path().to_owned(),
            is_watch: is_watch(&request),
            code: None,
            duration: Duration::ZERO,
            request_bytes: request.body().size_hint().exact().unwrap_or_default(),
            response_bytes: None,
        };
        let answer = inner.oneshot(request).await;
        let response = match answer {
            Ok(response) if !observed.is_watch => {
                observed.code = Some(response.status().as_u16());
                observed.response_bytes = Some(0);
                let observer = Arc::clone(&self.observer);
                return Ok(response.map(|body| {
                    let counted = Counted { body, observed, started_at, observer };
                    counted.boxed_unsync()
                }));
            }
            other => other,
        };
        observed.code = response.as_ref().ok().map(|response| response.status().as_u16());
        observed.duration = started_at.elapsed();
        self.observer.observed(&observed);
        response
    }
}

/// A response body that counts the bytes read and reports the request when it is dropped.
struct Counted {
    body: ResponseBody,
    observed: ObservedRequest,
    started_at: Instant,
    observer: Arc<dyn RequestObserver>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Some(bytes) = &mut self.observed.response_bytes
        {
            *bytes += data.len() as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.observed.duration = self.started_at.elapsed();
        self.observer.observed(&self.observed);
    }
}
