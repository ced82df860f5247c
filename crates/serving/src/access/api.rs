//! The API server as serving needs it: a request in, an answer out, over whatever carries HTTP.
//!
//! There is no Kubernetes client here. Whoever starts the server hands in a tower service that knows the
//! address and the credentials; kube's client is one, a function in a test is another.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;

use crate::metrics::CallMetrics;

/// Any error of a carrier.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The time one request may take.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Parity: staging/src/k8s.io/apiserver/pkg/server/options, the back-off of both reviews.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PAUSE_FACTOR: f64 = 1.5;
const PAUSE_JITTER: f64 = 0.2;

type Body = UnsyncBoxBody<Bytes, BoxError>;
type Carry = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, BoxError>> + Send + Sync;

/// A kind of review: a question that is created and comes back answered.
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
    // A missing one is the empty one, which says neither yes nor no.
    #[serde(default)]
    status: T,
}

/// A way to the API server, with credentials that may create reviews.
#[derive(Clone)]
pub struct ApiServerClient {
    carry: Arc<Carry>,
}

impl ApiServerClient {
    /// Speaks through a service that adds address and credentials. Requests have a path for a target and
    /// JSON for a body.
    pub fn from_service<S, B>(service: S) -> Self
    where
        S: tower::Service<Request<Bytes>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let carry = move |request| -> BoxFuture<'static, _> {
            let answer = service.clone().oneshot(request);
            Box::pin(async move {
                let answer = answer.await.map_err(Into::into)?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            })
        };
        Self { carry: Arc::new(carry) }
    }

    /// Asks what the spec asks and gets the status that answers it; tries again what may pass.
    pub(super) async fn review<T: DeserializeOwned + Default>(
        &self,
        &ReviewKind { path, api_version, kind }: &ReviewKind,
        spec: &impl Serialize,
        metrics: &CallMetrics,
        chance: &Mutex<fastrand::Rng>,
    ) -> Result<T, String> {
        let review = Review { api_version, kind, metadata: serde_json::Map::new(), spec };
        let body = Bytes::from(serde_json::to_vec(&review).map_err(|error| error.to_string())?);
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        loop {
            let began = Instant::now();
            let result = self.post(path, body.clone()).await;
            metrics
                .called(result.as_ref().map_or_else(|failure| failure.code, |(code, _)| Some(*code)), began);
            match result {
                Ok((_, answer)) => {
                    let reviewed = serde_json::from_slice(&answer);
                    return reviewed
                        .map(|Reviewed { status }| status)
                        .map_err(|error| format!("POST {path}: {error}"));
                }
                Err(failure) if !failure.may_pass || tries == TRIES => return Err(failure.text),
                Err(_) => {}
            }
            let jitter = 1.0 + PAUSE_JITTER * chance.lock().f64();
            sleep(pause.mul_f64(jitter)).await;
            pause = pause.mul_f64(PAUSE_FACTOR);
            tries += 1;
        }
    }

    async fn post(&self, path: &'static str, body: Bytes) -> Result<(StatusCode, Bytes), Failure> {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(body);
        let request = request.map_err(|error| Failure::without_answer(path, &error))?;
        self.whole(path, request).await
    }

    /// Reads one object.
    pub(super) async fn get(&self, path: &str) -> Result<Bytes, Failure> {
        let request =
            Request::get(path).body(Bytes::new()).map_err(|error| Failure::without_answer(path, &error))?;
        self.whole(path, request).await.map(|(_, body)| body)
    }

    /// Opens a stream of JSON lines.
    pub(super) async fn watch(&self, path: &str) -> Result<Lines, Failure> {
        let request =
            Request::get(path).body(Bytes::new()).map_err(|error| Failure::without_answer(path, &error))?;
        let answer = match timeout(REQUEST_LIMIT, (self.carry)(request)).await {
            Ok(answer) => answer.map_err(|error| Failure::without_answer(path, &*error))?,
            Err(_) => return Err(Failure::late(path)),
        };
        if answer.status().is_success() {
            return Ok(Lines { body: answer.into_body(), rest: Vec::new() });
        }
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(Failure::refused(path, &head, &body))
    }

    async fn whole(&self, path: &str, request: Request<Bytes>) -> Result<(StatusCode, Bytes), Failure> {
        let answer = async {
            let (head, body) = (self.carry)(request).await?.into_parts();
            Ok::<_, BoxError>((head, body.collect().await?.to_bytes()))
        };
        match timeout(REQUEST_LIMIT, answer).await {
            Ok(Ok((head, body))) if head.status.is_success() => Ok((head.status, body)),
            Ok(Ok((head, body))) => Err(Failure::refused(path, &head, &body)),
            Ok(Err(error)) => Err(Failure::without_answer(path, &*error)),
            Err(_) => Err(Failure::late(path)),
        }
    }
}

/// Why there is no answer to work with.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: Option<StatusCode>,
    pub(super) text: String,
    may_pass: bool,
}

impl Failure {
    fn late(path: &str) -> Self {
        Self { code: None, text: format!("{path}: no answer within {REQUEST_LIMIT:?}"), may_pass: false }
    }

    fn without_answer(path: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = format!("{path}: {error}");
        let mut may_pass = is_reset(error);
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            may_pass |= is_reset(error);
            cause = error.source();
        }
        Self { code: None, text, may_pass }
    }

    fn refused(path: &str, head: &http::response::Parts, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or_else(|| head.status.as_str());
        let transient = matches!(head.status.as_u16(), 429 | 500 | 504);
        let asked_to = head.headers.contains_key(RETRY_AFTER)
            || status["details"]["retryAfterSeconds"].as_u64().is_some_and(|seconds| seconds > 0);
        Self { code: Some(head.status), text: format!("{path}: {message}"), may_pass: transient || asked_to }
    }
}

fn is_reset(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// The lines of an answer that goes on.
pub(super) struct Lines {
    body: Body,
    rest: Vec<u8>,
}

impl Lines {
    /// The next whole line; `None` at the end, orderly or not.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let after = self.rest.split_off(end + 1);
                return Some(std::mem::replace(&mut self.rest, after));
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
