//! Middleware between a client and its transport, one file each.
//!
//! A [`Middleware`] implements one function around a request; [`MiddlewareLayer`] makes a tower layer of it.
//! Nothing waits in `poll_ready`: a throttled write would there also block every watch that shares the
//! client.

mod bearer_token;
mod json_only;
mod max_in_flight;
mod observe;
mod rate_limit_waits;
mod retry_after;
mod throttle;
mod user_agent;
mod write_fence;

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt as _};

pub use bearer_token::{BearerToken, Token, TokenSource};
pub use json_only::JsonOnly;
pub use max_in_flight::MaxInFlight;
pub use observe::{Observe, ObservedRequest, RequestObserver};
pub use rate_limit_waits::{LimitedBy, RateLimitWaits};
pub use retry_after::RetryAfter;
pub use throttle::{RateLimit, Throttle};
pub use user_agent::UserAgent;
pub use write_fence::{BeforeWrite, MayWrite, WriteFence};

/// The body of a response from any transport.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A type-erased transport to an API server.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// A service that sends requests to an API server.
pub trait HttpService:
    Service<Request<Body>, Response = Response<ResponseBody>, Error = BoxError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> HttpService for S where
    S: Service<Request<Body>, Response = Response<ResponseBody>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Makes a [`Transport`] of any HTTP service.
pub fn transport<S, B>(service: S) -> Transport
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = service
        .map_response(|response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync()))
        .map_err(Into::into);
    Transport::new(service)
}

/// What a layer does around a request.
pub trait Middleware: Send + Sync + 'static {
    /// Passes the request on to `inner`, or fails, and returns the response.
    fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> impl Future<Output = Result<Response<ResponseBody>, BoxError>> + Send;
}

/// A middleware as a tower layer, and with an inner service as a tower service.
#[derive(Debug)]
pub struct MiddlewareLayer<C, S = ()> {
    middleware: Arc<C>,
    inner: S,
}

impl<C> MiddlewareLayer<C> {
    /// The layer; its services share the middleware's state.
    pub fn new(middleware: C) -> Self {
        Self::shared(Arc::new(middleware))
    }

    /// The layer of a middleware whose state the caller reads, too.
    pub fn shared(middleware: Arc<C>) -> Self {
        Self { middleware, inner: () }
    }
}

impl<C, S: Clone> Clone for MiddlewareLayer<C, S> {
    fn clone(&self) -> Self {
        Self { middleware: Arc::clone(&self.middleware), inner: self.inner.clone() }
    }
}

impl<C, S> Layer<S> for MiddlewareLayer<C> {
    type Service = MiddlewareLayer<C, S>;

    fn layer(&self, inner: S) -> MiddlewareLayer<C, S> {
        MiddlewareLayer { middleware: Arc::clone(&self.middleware), inner }
    }
}

impl<C: Middleware, S: HttpService> Service<Request<Body>> for MiddlewareLayer<C, S> {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(Arc::clone(&self.middleware).pass(request, self.inner.clone()))
    }
}

/// Whether a request is a watch.
fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "watch" && (value == "true" || value == "1"))
}

#[cfg(test)]
mod tests;
