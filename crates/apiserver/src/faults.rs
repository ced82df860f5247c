//! A tower layer that injects faults into chosen requests. The rules are data and are tried in the order they were
//! added.
//!
//! It wraps any HTTP service a `kube::Client` can use, so the same rules work for the embedded server and for a real
//! one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::json;
use tower::{BoxError, Layer, Service};

/// The body of every response that passes the layer.
pub type FaultyBody = UnsyncBoxBody<Bytes, BoxError>;

/// What happens to a request that a rule hits.
#[derive(Debug, Clone)]
pub enum InjectedFault {
    /// No fault: the request goes through.
    Pass,
    /// The request does not reach the server; the client gets a Status.
    Status {
        /// HTTP and Status code.
        code: u16,
        /// `Status.reason`.
        reason: String,
        /// `Status.message`.
        message: String,
        /// `Retry-After` header and `details.retryAfterSeconds`.
        retry_after_seconds: Option<u32>,
    },
    /// The request does not reach the server; the connection fails with this error.
    ConnectionError(io::ErrorKind),
    /// The request does not reach the server and no response ever comes.
    Hang,
    /// Waits, then injects the inner fault.
    DelayThen(Duration, Box<InjectedFault>),
    /// The server executes the request, but its response is lost and the inner fault answers instead.
    ApplyThen(Box<InjectedFault>),
    /// The response stream ends after this many lines (watch events).
    CutStream {
        /// Lines that still arrive.
        after_events: usize,
        /// True: the stream ends as if it were complete. False: it ends with a connection error.
        cleanly: bool,
    },
    /// The request does not reach the server; the client gets these bytes.
    RawBody {
        /// HTTP status code.
        code: u16,
        /// The body, sent as application/json.
        body: Bytes,
    },
}

impl InjectedFault {
    /// A Status without Retry-After.
    pub fn status(code: u16, reason: &str, message: &str) -> InjectedFault {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        InjectedFault::Status { code, reason, message, retry_after_seconds: None }
    }

    /// 429 with Retry-After.
    pub fn too_many_requests(retry_after_seconds: u32) -> InjectedFault {
        InjectedFault::Status {
            code: 429,
            reason: "TooManyRequests".to_owned(),
            message: "the server has received too many requests and has asked us to try again later"
                .to_owned(),
            retry_after_seconds: Some(retry_after_seconds),
        }
    }
}

/// Which requests a rule hits, how often, and with which fault.
#[derive(Debug, Clone)]
pub struct FaultRule {
    /// Only this method.
    pub method: Option<Method>,
    /// Only targets (path and query) that contain this.
    pub target_contains: Option<String>,
    /// Only this resource, by its plural and subresource: `pods`, `deployments/status`.
    pub resource: Option<String>,
    /// Only these verbs, as RBAC names them; none means all.
    pub verbs: Vec<String>,
    /// True: only watches. False: everything but watches.
    pub watch: Option<bool>,
    /// True: only writes. False: only reads (GET, HEAD, OPTIONS).
    pub writes: Option<bool>,
    /// This many matching requests pass before the rule takes effect.
    pub skip: u64,
    /// The rule hits this many requests; `None` means no limit.
    pub times: Option<u64>,
    /// The injected fault.
    pub fault: InjectedFault,
}

impl FaultRule {
    /// A rule that hits every request.
    pub fn new(fault: InjectedFault) -> FaultRule {
        FaultRule {
            method: None,
            target_contains: None,
            resource: None,
            verbs: Vec::new(),
            watch: None,
            writes: None,
            skip: 0,
            times: None,
            fault,
        }
    }

    /// Restricts the rule to a method.
    pub fn method(mut self, method: Method) -> FaultRule {
        self.method = Some(method);
        self
    }

    /// Restricts the rule to targets (path and query) that contain `part`.
    pub fn target(mut self, part: &str) -> FaultRule {
        self.target_contains = Some(part.to_owned());
        self
    }

    /// Restricts the rule to a resource, by its plural and subresource (`pods`, `deployments/status`), in all API groups
    /// and namespaces.
    pub fn resource(mut self, resource: &str) -> FaultRule {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Restricts the rule to verbs as RBAC names them: get, list, watch, create, update, patch, delete,
    /// deletecollection.
    pub fn verbs(mut self, verbs: &[&str]) -> FaultRule {
        self.verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        self
    }

    /// Restricts the rule to watches, or to requests that are not watches.
    pub fn watch(mut self, watch: bool) -> FaultRule {
        self.watch = Some(watch);
        self
    }

    /// Restricts the rule to writes, or to reads.
    pub fn writes(mut self, writes: bool) -> FaultRule {
        self.writes = Some(writes);
        self
    }

    /// Lets the first `requests` matching requests pass.
    pub fn skip(mut self, requests: u64) -> FaultRule {
        self.skip = requests;
        self
    }

    /// Limits how many requests the rule hits.
    pub fn times(mut self, times: u64) -> FaultRule {
        self.times = Some(times);
        self
    }

    fn matches<B>(&self, request: &Request<B>) -> bool {
        let target = request.uri().path_and_query().map_or("", |t| t.as_str());
        let query = request.uri().query().unwrap_or_default();
        let watches = form_urlencoded::parse(query.as_bytes())
            .any(|(k, v)| k == "watch" && !matches!(&*v, "0" | "false"));
        self.method.as_ref().is_none_or(|m| m == request.method())
            && self.target_contains.as_ref().is_none_or(|part| target.contains(part.as_str()))
            && self.resource.as_ref().is_none_or(|wanted| resource_of(request.uri().path()).0 == *wanted)
            && (self.verbs.is_empty() || self.verbs.iter().any(|verb| verb == verb_of(request, watches)))
            && self.watch.is_none_or(|w| w == watches)
            && self.writes.is_none_or(|writes| writes != request.method().is_safe())
    }
}

/// The resource of a path with its subresource, and whether the path names one object.
fn resource_of(path: &str) -> (String, bool) {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let prefix = match parts.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return (String::new(), false),
    };
    parts.drain(..prefix.min(parts.len()));
    // A namespace is a place if a resource follows, and an object otherwise; its subresources look like resources.
    if let ["namespaces", _, resource, ..] = parts.as_slice()
        && !matches!(*resource, "status" | "finalize")
    {
        parts.drain(..2);
    }
    match parts.as_slice() {
        [] => (String::new(), false),
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, subresource, ..] => (format!("{resource}/{subresource}"), true),
    }
}

/// The verb of a request, as RBAC names it; empty for methods without one.
fn verb_of<B>(request: &Request<B>, watches: bool) -> &'static str {
    let named = resource_of(request.uri().path()).1;
    match (request.method(), named) {
        (&Method::GET, _) if watches => "watch",
        (&Method::GET, false) => "list",
        (&Method::GET, true) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => "",
    }
}

/// Identifies a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultRuleId(usize);

#[derive(Debug)]
struct ActiveRule {
    rule: FaultRule,
    seen: u64,
    hits: u64,
    disabled: bool,
}

/// The active rules. Clones share them, so rules can change while requests run.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<ActiveRule>>>,
}

impl Faults {
    /// No rules: every request passes.
    pub fn new() -> Faults {
        Faults::default()
    }

    /// Appends a rule; the first rule that hits a request decides.
    pub fn add(&self, rule: FaultRule) -> FaultRuleId {
        let mut rules = self.rules.lock();
        rules.push(ActiveRule { rule, seen: 0, hits: 0, disabled: false });
        FaultRuleId(rules.len() - 1)
    }

    /// Disables a rule; its hit count stays readable.
    pub fn disable(&self, id: FaultRuleId) {
        if let Some(active) = self.rules.lock().get_mut(id.0) {
            active.disabled = true;
        }
    }

    /// Disables all rules.
    pub fn disable_all(&self) {
        self.rules.lock().iter_mut().for_each(|active| active.disabled = true);
    }

    /// How many requests a rule has hit.
    pub fn hits(&self, id: FaultRuleId) -> u64 {
        self.rules.lock().get(id.0).map_or(0, |active| active.hits)
    }

    fn fault_for<B>(&self, request: &Request<B>) -> InjectedFault {
        for active in self.rules.lock().iter_mut().filter(|a| !a.disabled) {
            if !active.rule.matches(request) {
                continue;
            }
            active.seen += 1;
            if active.seen > active.rule.skip && active.rule.times.is_none_or(|times| active.hits < times) {
                active.hits += 1;
                return active.rule.fault.clone();
            }
        }
        InjectedFault::Pass
    }
}

impl<S> Layer<S> for Faults {
    type Service = FaultInjector<S>;

    fn layer(&self, inner: S) -> FaultInjector<S> {
        FaultInjector { inner, faults: self.clone() }
    }
}

/// A service that applies the rules of [`Faults`] to its requests.
#[derive(Debug, Clone)]
pub struct FaultInjector<S> {
    inner: S,
    faults: Faults,
}

impl<S, B, R> Service<Request<B>> for FaultInjector<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<FaultyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<FaultyBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fault = self.faults.fault_for(&request);
        // tower's contract: call the instance that was polled ready.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        Box::pin(inject(fault, inner, request))
    }
}

async fn inject<S, B, R>(
    fault: InjectedFault,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<FaultyBody>, BoxError>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let boxed = |response: Response<R>| response.map(|body| body.map_err(Into::into).boxed_unsync());
    match after_delay(fault).await {
        InjectedFault::Pass => inner.call(request).await.map(boxed).map_err(Into::into),
        InjectedFault::CutStream { after_events, cleanly } => {
            let response = inner.call(request).await.map(boxed).map_err(Into::into)?;
            Ok(response
                .map(|body| CutBody { body, lines_left: after_events, cleanly, ended: false }.boxed_unsync()))
        }
        InjectedFault::ApplyThen(then) => {
            // The response is dropped: the client never sees it.
            drop(inner.call(request).await);
            answer(after_delay(*then).await).await
        }
        other => answer(other).await,
    }
}

async fn after_delay(mut fault: InjectedFault) -> InjectedFault {
    while let InjectedFault::DelayThen(delay, then) = fault {
        tokio::time::sleep(delay).await;
        fault = *then;
    }
    fault
}

/// Answers without calling the server.
async fn answer(fault: InjectedFault) -> Result<Response<FaultyBody>, BoxError> {
    match fault {
        InjectedFault::Status { code, reason, message, retry_after_seconds } => {
            let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": code});
            if let Some(seconds) = retry_after_seconds {
                status["details"] = json!({"retryAfterSeconds": seconds});
            }
            let mut response = raw(code, status.to_string().into());
            if let Some(seconds) = retry_after_seconds {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            Ok(response)
        }
        InjectedFault::RawBody { code, body } => Ok(raw(code, body)),
        InjectedFault::Hang => std::future::pending().await,
        InjectedFault::ConnectionError(kind) => Err(io::Error::from(kind).into()),
        // These faults produce no response of their own, so the connection breaks.
        InjectedFault::Pass
        | InjectedFault::DelayThen(..)
        | InjectedFault::ApplyThen(_)
        | InjectedFault::CutStream { .. } => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
    }
}

fn raw(code: u16, body: Bytes) -> Response<FaultyBody> {
    let mut response = Response::new(Full::new(body).map_err(Into::into).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body that ends after a number of lines.
struct CutBody {
    body: FaultyBody,
    lines_left: usize,
    cleanly: bool,
    ended: bool,
}

impl http_body::Body for CutBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.lines_left == 0 {
            self.ended = true;
            // kube's client takes an unexpected EOF for a clean end; it does not take a reset for one.
            let broken = || Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
            return Poll::Ready((!self.cleanly).then(broken));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => return other,
        };
        let Ok(mut data) = frame.into_data() else {
            return Poll::Ready(None);
        };
        let mut ends = data.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let cut = ends.nth(self.lines_left - 1);
        match cut {
            Some(end) => {
                data.truncate(end);
                self.lines_left = 0;
            }
            None => self.lines_left -= data.iter().filter(|byte| **byte == b'\n').count(),
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiServer;

    fn request(method: Method, target: &str, body: &str) -> Request<Full<Bytes>> {
        let request = Request::builder().method(method).uri(target);
        let request = request.header(CONTENT_TYPE, "application/json");
        request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
    }

    #[test]
    fn rules_select_by_resource_and_verb() {
        let rule = |resource: &str, verbs: &[&str]| {
            FaultRule::new(InjectedFault::Hang).resource(resource).verbs(verbs)
        };
        let pods = "/api/v1/namespaces/a/pods";
        for (resource, verb, method, target) in [
            ("pods", "list", Method::GET, "/api/v1/pods?limit=500"),
            ("pods", "list", Method::GET, pods),
            ("pods", "watch", Method::GET, "/api/v1/pods?watch=true"),
            ("pods", "get", Method::GET, "/api/v1/namespaces/a/pods/p"),
            ("pods", "create", Method::POST, pods),
            ("pods", "deletecollection", Method::DELETE, pods),
            ("pods", "delete", Method::DELETE, "/api/v1/namespaces/a/pods/p"),
            ("pods/binding", "create", Method::POST, "/api/v1/namespaces/a/pods/p/binding"),
            ("deployments/status", "update", Method::PUT, "/apis/apps/v1/namespaces/a/deployments/d/status"),
            ("replicasets", "patch", Method::PATCH, "/apis/apps/v1/namespaces/a/replicasets/r"),
            ("namespaces", "list", Method::GET, "/api/v1/namespaces"),
            ("namespaces", "get", Method::GET, "/api/v1/namespaces/pods"),
            ("namespaces/finalize", "update", Method::PUT, "/api/v1/namespaces/a/finalize"),
            ("nodes", "get", Method::GET, "/api/v1/nodes/n"),
        ] {
            let sent = request(method, target, "");
            assert!(rule(resource, &[verb]).matches(&sent), "{verb} {resource} {target}");
            assert!(rule(resource, &[]).matches(&sent), "{resource} {target}");
            assert!(rule(resource, &["get", verb, "list"]).matches(&sent), "{resource} {target}");
            assert!(!rule("secrets", &[verb]).matches(&sent), "{target}");
            assert!(!rule(resource, &["impersonate"]).matches(&sent), "{target}");
        }
        assert!(!rule("pods", &["list"]).matches(&request(Method::GET, "/api/v1/pods?watch=1", "")));
        assert!(!rule("pods", &[]).matches(&request(Method::PUT, "/api/v1/namespaces/a/pods/p/status", "")));
        assert!(!rule("pods", &[]).matches(&request(Method::GET, "/healthz", "")));
        assert!(!rule("", &["list"]).resource("pods").matches(&request(Method::GET, "/apis", "")));
    }

    #[tokio::test]
    async fn lists_of_one_kind_fail_for_ever_and_lost_responses_of_chosen_writes_take_effect() {
        let server = ApiServer::default();
        let faults = Faults::new();
        let broken = InjectedFault::status(500, "InternalError", "broken");
        let lists = faults.add(FaultRule::new(broken).resource("configmaps").verbs(&["list"]));
        let reset = Box::new(InjectedFault::ConnectionError(io::ErrorKind::ConnectionReset));
        let lost = FaultRule::new(InjectedFault::ApplyThen(reset)).resource("configmaps").verbs(&["create"]);
        let lost = faults.add(lost);
        let mut service = faults.layer(server.clone());
        let mut send = async |method: Method, target: &str, body: &str| {
            service.call(request(method, target, body)).await.map(|response| response.status().as_u16())
        };
        let (maps, secrets) = ("/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets");
        for _ in 0..50 {
            assert_eq!(send(Method::GET, maps, "").await.unwrap(), 500);
            assert_eq!(send(Method::GET, secrets, "").await.unwrap(), 200);
        }
        let body = r#"{"metadata": {"name": "a"}}"#;
        assert!(send(Method::POST, maps, body).await.is_err());
        assert!(server.object("configmaps", "default", "a").is_some());
        assert_eq!(send(Method::POST, secrets, body).await.unwrap(), 201);
        assert_eq!(send(Method::DELETE, &format!("{maps}/a"), "").await.unwrap(), 200);
        assert_eq!((faults.hits(lists), faults.hits(lost)), (50, 1));
    }
}
