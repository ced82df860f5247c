//! The HTTP face: one tower service that turns requests into kernel calls and watches into streaming bodies.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Sleep;
use tower::BoxError;

use crate::clock::{self, Clock};
use crate::kernel::resources::{self, Resource};
use crate::kernel::{
    Document, Frame as WatchFrame, Kernel, Outcome, Reason, Reply, Request as KernelRequest, Status, WatchId,
};

/// Bodies longer than this are not read to the end; the kernel refuses them.
const BODY_BYTES_READ_MAX: usize = 4 * 1024 * 1024;

/// The embedded API server; clones share one state.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    log_limit: usize,
}

struct State {
    kernel: Kernel,
    /// Who waits for the next frame of which watch.
    wakers: BTreeMap<WatchId, Waker>,
    log: VecDeque<LoggedRequest>,
}

impl Shared {
    /// Runs `work` on the state, then wakes the watches it gave news to, in the order they were opened.
    fn with<T>(&self, work: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = (self.clock)();
        let mut state = self.state.lock();
        let result = work(&mut state, now);
        let woken = state.kernel.take_woken();
        let wakers: Vec<Waker> = woken.iter().filter_map(|id| state.wakers.remove(id)).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

/// One request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// `User-Agent` header, or empty.
    pub user_agent: String,
    /// The body of a write; empty for reads.
    pub body: Bytes,
}

impl LoggedRequest {
    /// The body as JSON; null if there is none or it is something else.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Settings of a new server.
pub struct Builder {
    seed: u64,
    history_limit: usize,
    log_limit: usize,
    clock: Clock,
}

impl Builder {
    /// Seed of uids, generated names and tokens.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = seed;
        self
    }

    /// How many changes are kept for watches and old lists.
    pub fn history_limit(mut self, events: usize) -> Builder {
        self.history_limit = events;
        self
    }

    /// How many requests [`ApiServer::requests`] remembers.
    pub fn request_log_limit(mut self, requests: usize) -> Builder {
        self.log_limit = requests;
        self
    }

    /// Where the server reads the time.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// A server with the bootstrap namespaces and nothing else.
    pub fn build(self) -> ApiServer {
        let kernel = Kernel::new(self.seed, self.history_limit, (self.clock)());
        let state = State { kernel, wakers: BTreeMap::new(), log: VecDeque::new() };
        let shared = Shared { state: Mutex::new(state), clock: self.clock, log_limit: self.log_limit };
        ApiServer { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Handles for tests: everything here works on the state directly, past the HTTP face.
impl ApiServer {
    /// Settings with seed 0, the machine's clock and generous limits.
    pub fn builder() -> Builder {
        Builder { seed: 0, history_limit: 100_000, log_limit: 100_000, clock: clock::system() }
    }

    /// Stores an object as it is, past admission and validation; the kind is told by apiVersion and kind.
    ///
    /// Missing uid, creationTimestamp and namespace ("default") are filled in; an object of the same name is
    /// replaced. Watches see the change.
    pub fn seed(&self, object: Value) -> Outcome<Arc<Value>> {
        self.shared.with(|state, now| state.kernel.seed(object, now))
    }

    /// Removes an object at once, finalizers or not; says whether it was there.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> bool {
        let Some(resource) = resources::by_name(resource) else {
            return false;
        };
        self.shared.with(|state, _| state.kernel.unseed(resource, namespace, name))
    }

    /// One object; `resource` is a plural or `plural.group`, `namespace` is empty for cluster-scoped kinds.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let resource = resources::by_name(resource)?;
        self.shared.with(|state, _| state.kernel.object(resource, namespace, name))
    }

    /// All objects of a kind in list order; none for a kind that is not served.
    pub fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        let of = |resource: &'static Resource| self.shared.with(|state, _| state.kernel.objects(resource));
        resources::by_name(resource).map(of).unwrap_or_default()
    }

    /// Every object there is, kind by kind, in list order.
    pub fn snapshot(&self) -> Vec<Arc<Value>> {
        self.shared.with(|state, _| state.kernel.all_objects())
    }

    /// The resource version of the latest write.
    pub fn resource_version(&self) -> u64 {
        self.shared.with(|state, _| state.kernel.revision())
    }

    /// Drops all history: watches and exact lists from older resource versions get 410 from now on.
    /// Watches that are already open go on undisturbed.
    pub fn compact(&self) {
        self.shared.with(|state, _| state.kernel.compact());
    }

    /// Sends a bookmark to every open watch that allows bookmarks.
    pub fn send_bookmarks(&self) {
        self.shared.with(|state, _| state.kernel.send_bookmarks());
    }

    /// Ends all watch streams cleanly.
    pub fn cut_watches(&self) {
        self.shared.with(|state, _| state.kernel.cut_watches());
    }

    /// Ends all watch streams with an ERROR event of 410 Expired.
    pub fn expire_watches(&self) {
        self.shared.with(|state, _| state.kernel.expire_watches());
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.shared.with(|state, _| state.kernel.open_watches())
    }

    /// Lets a group version answer 503 (and be stale in aggregated discovery), or be well again.
    pub fn set_group_version_failing(&self, group: &str, version: &str, failing: bool) {
        self.shared.with(|state, _| state.kernel.set_failing(group, version, failing));
    }

    /// The requests that arrived, oldest first.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.shared.with(|state, _| state.log.iter().cloned().collect())
    }

    /// Forgets the requests that arrived so far.
    pub fn clear_requests(&self) {
        self.shared.with(|state, _| state.log.clear());
    }

    fn answer(&self, request: &KernelRequest) -> Response<Body> {
        let limit = self.shared.log_limit;
        let reply = self.shared.with(|state, now| {
            state.record(request, limit);
            state.kernel.call(request, now)
        });
        match reply {
            Reply::Document(document) => respond(document),
            Reply::Watch { id, timeout } => {
                let stream = WatchStream {
                    shared: Arc::clone(&self.shared),
                    id,
                    frames: VecDeque::new(),
                    timeout: timeout.map(|t| Box::pin(tokio::time::sleep(t))),
                    over: false,
                };
                let mut response = Response::new(Body(Content::Watch(stream)));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
        }
    }
}

impl Default for ApiServer {
    fn default() -> ApiServer {
        ApiServer::builder().build()
    }
}

impl State {
    fn record(&mut self, request: &KernelRequest, limit: usize) {
        let target = if request.query.is_empty() {
            request.path.clone()
        } else {
            format!("{}?{}", request.path, request.query)
        };
        let body = if request.method == Method::GET { Bytes::new() } else { request.body.clone() };
        let user_agent = request.user_agent.clone();
        self.log.push_back(LoggedRequest { method: request.method.clone(), target, user_agent, body });
        while self.log.len() > limit {
            self.log.pop_front();
        }
    }
}

fn respond(document: Document) -> Response<Body> {
    let mut response = Response::new(Body::full(document.body));
    *response.status_mut() = StatusCode::from_u16(document.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(document.content_type));
    if document.retry_after_seconds > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(document.retry_after_seconds));
    }
    response
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = match Limited::new(body, BODY_BYTES_READ_MAX).collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(error) => return Ok(respond(Document::from(&*unreadable(&*error)))),
            };
            let header = |name| {
                let value = parts.headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
                value.unwrap_or_default().to_owned()
            };
            let request = KernelRequest {
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                accept: header(ACCEPT),
                content_type: header(CONTENT_TYPE),
                user_agent: header(USER_AGENT),
                method: parts.method,
                body,
            };
            Ok(server.answer(&request))
        }
        .boxed()
    }
}

fn unreadable(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Box<Status> {
    if error.is::<http_body_util::LengthLimitError>() {
        return Status::new(Reason::RequestEntityTooLarge, "Request entity too large");
    }
    Status::new(Reason::BadRequest, format!("the body of the request could not be read: {error}"))
}

/// A response body: a document, or a watch that lasts. One frame is one watch event.
#[derive(Debug)]
pub struct Body(Content);

#[derive(Debug)]
enum Content {
    Full(Option<Bytes>),
    Watch(WatchStream),
}

impl Body {
    fn full(bytes: Bytes) -> Body {
        Body(Content::Full(Some(bytes).filter(|b| !b.is_empty())))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut self.0 {
            Content::Full(bytes) => Poll::Ready(bytes.take()),
            Content::Watch(stream) => stream.poll_line(cx),
        };
        data.map(|data| data.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Content::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Content::Watch(_) => SizeHint::default(),
        }
    }
}

/// The open end of a watch; dropping it closes the watch.
struct WatchStream {
    shared: Arc<Shared>,
    id: WatchId,
    /// Taken from the kernel, not yet sent.
    frames: VecDeque<WatchFrame>,
    timeout: Option<Pin<Box<Sleep>>>,
    over: bool,
}

impl fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl WatchStream {
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.frames.is_empty() && !self.over {
            let mut state = self.shared.state.lock();
            match state.kernel.take_frames(self.id) {
                Some(frames) => {
                    self.frames.extend(frames);
                    state.wakers.insert(self.id, cx.waker().clone());
                }
                None => self.over = true,
            }
        }
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(frame.encode()));
        }
        let timed_out = self.timeout.as_mut().is_some_and(|t| t.poll_unpin(cx).is_ready());
        if self.over || timed_out {
            self.over = true;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.kernel.close_watch(self.id);
        state.wakers.remove(&self.id);
    }
}
