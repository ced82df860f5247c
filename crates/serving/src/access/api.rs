//! A minimal client of the API server: reviews, one GET and one watch.
//!
//! There is no Kubernetes client here. The caller passes in a tower service that knows the address and the
//! credentials, such as kube's client or, in a test, a function.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use keleustes_rate::TokenBucket;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;

use crate::metrics::CallMetrics;

/// Any transport error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The timeout of one request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Parity: staging/src/k8s.io/apiserver/pkg/server/options, the rate limit of each delegate.
const REVIEWS_PER_SECOND: f64 = 200.0;
const REVIEWS_BURST: u32 = 400;
/// Parity: staging/src/k8s.io/apiserver/pkg/server/options, the back-off of both reviews.
const ATTEMPTS_MAX: u32 = 5;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_FACTOR: f64 = 1.5;
const BACKOFF_JITTER: f64 = 0.2;
/// A ConfigMap has at most 1 MiB; a larger response comes from a broken or hostile peer.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

type Body = UnsyncBoxBody<Bytes, BoxError>;
type SendFn = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, BoxError>> + Send + Sync;

/// A kind of review: an object whose POST returns its status.
pub(super) struct ReviewKind {
    pub(super) path: &'static str,
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a, S> {
    api_version: &'static str,
    kind: &'static str,
    metadata: serde_json::Map<String, Value>,
    spec: &'a S,
}

#[derive(Deserialize)]
struct Reviewed<T> {
    // A missing status is the empty one, which neither allows nor denies.
    #[serde(default)]
    status: T,
}

/// A client of the API server, with credentials that may create reviews.
#[derive(Clone)]
pub struct ApiServerClient {
    send: Arc<SendFn>,
    limit: Arc<ReviewLimit>,
}

/// Limits the reviews: anyone can cause them, by sending random bearer tokens.
struct ReviewLimit {
    bucket: Mutex<TokenBucket>,
    started_at: Instant,
}

impl ReviewLimit {
    fn new() -> Self {
        let bucket = Mutex::new(TokenBucket::new(REVIEWS_PER_SECOND, REVIEWS_BURST));
        Self { bucket, started_at: Instant::now() }
    }

    /// Takes a token and returns how long to wait for it; `None` if that is longer than a request may take.
    fn reserve(&self, now: Instant) -> Option<Duration> {
        let now = now.saturating_duration_since(self.started_at);
        self.bucket.lock().reserve_within(now, REQUEST_TIMEOUT)
    }
}

impl ApiServerClient {
    /// A client over a service that adds address and credentials. The target of a request is a path, its body
    /// JSON.
    pub fn from_service<S, B>(service: S) -> Self
    where
        S: tower::Service<Request<Bytes>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let send = move |request| -> BoxFuture<'static, _> {
            let response = service.clone().oneshot(request);
            Box::pin(async move {
                let response = response.await.map_err(Into::into)?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            })
        };
        Self { send: Arc::new(send), limit: Arc::new(ReviewLimit::new()) }
    }

    /// Posts a review and returns its status; retries transient errors.
    pub(super) async fn review<T: DeserializeOwned + Default>(
        &self,
        &ReviewKind { path, api_version, kind }: &ReviewKind,
        spec: &impl Serialize,
        metrics: &CallMetrics,
        rng: &Mutex<fastrand::Rng>,
    ) -> Result<T, String> {
        let review = Review { api_version, kind, metadata: serde_json::Map::new(), spec };
        let body = Bytes::from(serde_json::to_vec(&review).map_err(|error| error.to_string())?);
        let mut backoff = INITIAL_BACKOFF;
        let mut attempts = 1;
        loop {
            let Some(wait) = self.limit.reserve(Instant::now()) else {
                return Err(format!("POST {path}: too many requests wait for the client rate limiter"));
            };
            sleep(wait).await;
            let started_at = Instant::now();
            let result = self.post(path, body.clone()).await;
            metrics.called(
                result.as_ref().map_or_else(|failure| failure.code, |(code, _)| Some(*code)),
                started_at,
            );
            match result {
                Ok((_, response)) => {
                    let reviewed = serde_json::from_slice(&response);
                    return reviewed
                        .map(|Reviewed { status }| status)
                        .map_err(|error| format!("POST {path}: {error}"));
                }
                Err(failure) if !failure.is_transient || attempts == ATTEMPTS_MAX => return Err(failure.text),
                Err(_) => {}
            }
            let jitter = 1.0 + BACKOFF_JITTER * rng.lock().f64();
            sleep(backoff.mul_f64(jitter)).await;
            backoff = backoff.mul_f64(BACKOFF_FACTOR);
            attempts += 1;
        }
    }

    async fn post(&self, path: &'static str, body: Bytes) -> Result<(StatusCode, Bytes), RequestError> {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(body);
        let request = request.map_err(|error| RequestError::transport_error(path, &error))?;
        self.send_and_collect(path, request).await
    }

    /// Gets one object.
    pub(super) async fn get(&self, path: &str) -> Result<Bytes, RequestError> {
        let request = Request::get(path)
            .body(Bytes::new())
            .map_err(|error| RequestError::transport_error(path, &error))?;
        self.send_and_collect(path, request).await.map(|(_, body)| body)
    }

    /// Opens a watch.
    pub(super) async fn watch(&self, path: &str) -> Result<Lines, RequestError> {
        let request = Request::get(path)
            .body(Bytes::new())
            .map_err(|error| RequestError::transport_error(path, &error))?;
        let response = match timeout(REQUEST_TIMEOUT, (self.send)(request)).await {
            Ok(response) => response.map_err(|error| RequestError::transport_error(path, &*error))?,
            Err(_) => return Err(RequestError::timed_out(path)),
        };
        if response.status().is_success() {
            return Ok(Lines { body: response.into_body(), rest: Vec::new() });
        }
        let (head, body) = response.into_parts();
        // If the error body cannot be read, the status code is enough.
        let body =
            timeout(REQUEST_TIMEOUT, collect(body)).await.ok().and_then(Result::ok).unwrap_or_default();
        Err(RequestError::error_status(path, &head, &body))
    }

    async fn send_and_collect(
        &self,
        path: &str,
        request: Request<Bytes>,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        let response = async {
            let (head, body) = (self.send)(request).await?.into_parts();
            Ok::<_, BoxError>((head, collect(body).await?))
        };
        match timeout(REQUEST_TIMEOUT, response).await {
            Ok(Ok((head, body))) if head.status.is_success() => Ok((head.status, body)),
            Ok(Ok((head, body))) => Err(RequestError::error_status(path, &head, &body)),
            Ok(Err(error)) => Err(RequestError::transport_error(path, &*error)),
            Err(_) => Err(RequestError::timed_out(path)),
        }
    }
}

/// Reads a body up to the limit.
async fn collect(mut body: Body) -> Result<Bytes, BoxError> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else { continue };
        if read.len() + data.len() > RESPONSE_BYTES_MAX {
            return Err(format!("the response exceeds {RESPONSE_BYTES_MAX} bytes").into());
        }
        read.extend_from_slice(data);
    }
    Ok(read.freeze())
}

/// Why a request failed.
#[derive(Debug)]
pub(super) struct RequestError {
    pub(super) code: Option<StatusCode>,
    pub(super) text: String,
    is_transient: bool,
}

impl RequestError {
    fn timed_out(path: &str) -> Self {
        Self {
            code: None,
            text: format!("{path}: no response within {REQUEST_TIMEOUT:?}"),
            is_transient: false,
        }
    }

    fn transport_error(path: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = format!("{path}: {error}");
        let mut is_transient = is_reset(error);
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            is_transient |= is_reset(error);
            cause = error.source();
        }
        Self { code: None, text, is_transient }
    }

    fn error_status(path: &str, head: &http::response::Parts, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or_else(|| head.status.as_str());
        let transient = matches!(head.status.as_u16(), 429 | 500 | 504);
        let has_retry_after = head.headers.contains_key(RETRY_AFTER)
            || status["details"]["retryAfterSeconds"].as_u64().is_some_and(|seconds| seconds > 0);
        Self {
            code: Some(head.status),
            text: format!("{path}: {message}"),
            is_transient: transient || has_retry_after,
        }
    }
}

fn is_reset(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// The lines of a watch.
pub(super) struct Lines {
    body: Body,
    rest: Vec<u8>,
}

impl Lines {
    /// The next complete line; `None` at the end of the response, after an error or if the line is too long.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let after = self.rest.split_off(end + 1);
                return Some(std::mem::replace(&mut self.rest, after));
            }
            if self.rest.len() > RESPONSE_BYTES_MAX {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
