//! What happens to a request between a caller and the connection, one concern a file.
//!
//! Each concern says in one function what it does around a request; [`MiddlewareLayer`] makes a tower layer of
//! it. Nothing is held back in `poll_ready`: there a waiting write would also hold back every watch that
//! shares the client.

mod bearer_token;
mod in_flight;
mod observe;
mod permit;
mod retry;
mod throttle;
mod user_agent;

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
pub use in_flight::MaxInFlight;
pub use observe::{Observe, ObservedRequest, RequestObserver};
pub use permit::{MayWrite, WriteFence};
pub use retry::RetryAfter;
pub use throttle::{RateLimit, Throttle};
pub use user_agent::UserAgent;

/// The body of an answer, whoever sends it.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// Any way to an API server.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// A service that answers requests to an API server.
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

/// Makes a [`Transport`] of any service that speaks HTTP.
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

/// One concern: what it does around a request.
pub trait Middleware: Send + Sync + 'static {
    /// Passes a request on, or not, and its answer back.
    fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> impl Future<Output = Result<Response<ResponseBody>, BoxError>> + Send;
}

/// A concern as a tower layer, and with a service inside as a tower service.
#[derive(Debug)]
pub struct MiddlewareLayer<C, S = ()> {
    concern: Arc<C>,
    inner: S,
}

impl<C> MiddlewareLayer<C> {
    /// The layer; services made from it share the concern's state.
    pub fn new(concern: C) -> Self {
        Self::shared(Arc::new(concern))
    }

    /// The layer of a concern whose state others look at, too.
    pub fn shared(concern: Arc<C>) -> Self {
        Self { concern, inner: () }
    }
}

impl<C, S: Clone> Clone for MiddlewareLayer<C, S> {
    fn clone(&self) -> Self {
        Self { concern: Arc::clone(&self.concern), inner: self.inner.clone() }
    }
}

impl<C, S> Layer<S> for MiddlewareLayer<C> {
    type Service = MiddlewareLayer<C, S>;

    fn layer(&self, inner: S) -> MiddlewareLayer<C, S> {
        MiddlewareLayer { concern: Arc::clone(&self.concern), inner }
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
        Box::pin(Arc::clone(&self.concern).pass(request, self.inner.clone()))
    }
}

/// Whether a request stays open for as long as it likes.
fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "watch" && (value == "true" || value == "1"))
}

#[cfg(test)]
mod tests;
