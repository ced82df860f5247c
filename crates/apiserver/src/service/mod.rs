//! The HTTP service: a tower service that passes requests to the kernel and streams watches.

mod build;
mod log;
mod stream;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, WARNING};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tower::BoxError;

pub use self::build::Builder;
pub use self::log::LoggedRequest;
use self::log::RequestLog;
pub use self::stream::Body;
use crate::clock::Clock;
use crate::kernel::resources::Resource;
use crate::kernel::{
    ApiResult, Document, JournalEntry, Kernel, Reply, Request as KernelRequest, Status, StatusReason, User,
    WatchId,
};

/// Longer bodies are not read to the end: they exceed the kernel's limit anyway.
const BODY_BYTES_READ_MAX: usize = 4 * 1024 * 1024;

/// The embedded API server; clones share its state.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
    /// The user of requests without credentials.
    user: Option<User>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    bookmark_interval: Duration,
}

struct State {
    kernel: Kernel,
    /// The tasks that wait for events, by watch.
    wakers: BTreeMap<WatchId, Waker>,
    log: RequestLog,
}

impl Shared {
    /// Runs `work` on the state, then notifies the tasks of watches with new events, in the order the watches were
    /// opened.
    fn with<T>(&self, work: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = (self.clock)();
        let mut state = self.state.lock();
        let result = work(&mut state, now);
        let ready = state.kernel.take_ready_watches();
        let wakers: Vec<Waker> = ready.iter().filter_map(|id| state.wakers.remove(id)).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

/// Direct access to the state for tests, without HTTP.
impl ApiServer {
    /// A builder with seed 0, the system clock and generous limits.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same server, for requests of this user unless they have a token or certificate.
    pub fn acting_as(&self, user: User) -> ApiServer {
        ApiServer { shared: Arc::clone(&self.shared), user: Some(user) }
    }

    /// Stores an object without admission and validation; its apiVersion and kind select the resource.
    ///
    /// Missing uid, creationTimestamp and namespace ("default") are set; an existing object with the same name is
    /// replaced. Watches receive the change.
    pub fn seed(&self, object: Value) -> ApiResult<Arc<Value>> {
        self.shared.with(|state, now| state.kernel.seed(object, now))
    }

    /// Removes an object immediately, regardless of finalizers; returns whether it existed.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.shared.with(|state, _| {
            let resource = state.kernel.resource(resource);
            resource.is_some_and(|resource| state.kernel.remove_object(resource, namespace, name))
        })
    }

    /// One object; `resource` is a plural or `plural.group`, `namespace` is empty for cluster-scoped kinds.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.shared.with(|state, _| {
            let resource = state.kernel.resource(resource)?;
            state.kernel.object(resource, namespace, name)
        })
    }

    /// All objects of a resource in list order; none for an unknown resource.
    pub fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        self.shared.with(|state, _| {
            let of = |resource: &'static Resource| state.kernel.objects(resource);
            state.kernel.resource(resource).map(of).unwrap_or_default()
        })
    }

    /// All objects, resource by resource, in list order.
    pub fn snapshot(&self) -> Vec<Arc<Value>> {
        self.shared.with(|state, _| state.kernel.all_objects())
    }

    /// The resourceVersion of the latest write.
    pub fn resource_version(&self) -> u64 {
        self.shared.with(|state, _| state.kernel.revision())
    }

    /// Drops the history: watches and exact lists at older resourceVersions get 410 from now on. Open watches
    /// continue.
    pub fn compact(&self) {
        self.shared.with(|state, _| state.kernel.compact());
    }

    /// Sends a bookmark to every open watch that allows bookmarks, in addition to the periodic ones.
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

    /// Makes a group version fail with 503 (and be stale in aggregated discovery), or work again.
    pub fn set_group_version_failing(&self, group: &str, version: &str, failing: bool) {
        self.shared.with(|state, _| state.kernel.set_failing(group, version, failing));
    }

    /// The logged requests, oldest first.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.shared.with(|state, _| state.log.requests())
    }

    /// Clears the request log.
    pub fn clear_requests(&self) {
        self.shared.with(|state, _| state.log.clear());
    }

    /// The changes since the last call, if the journal is enabled.
    pub fn take_journal(&self) -> Vec<JournalEntry> {
        self.shared.with(|state, _| state.kernel.take_journal())
    }

    /// The full state, in an order in which it can be restored. Clears the journal, whose changes the state contains.
    pub fn dump(&self) -> Vec<JournalEntry> {
        self.shared.with(|state, _| {
            state.kernel.take_journal();
            state.kernel.dump()
        })
    }

    fn answer(&self, request: &KernelRequest) -> Response<Body> {
        let reply = self.shared.with(|state, now| {
            let answer = state.kernel.answer(request, now);
            state.log.record(request, &answer);
            answer.reply
        });
        match reply {
            Reply::Document(document) => respond(document),
            Reply::Watch { id, timeout, bookmarks } => {
                let shared = Arc::clone(&self.shared);
                let mut response = Response::new(Body::watch(shared, id, timeout, bookmarks));
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

fn respond(document: Document) -> Response<Body> {
    let mut response = Response::new(Body::full(document.body));
    *response.status_mut() = StatusCode::from_u16(document.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(document.content_type));
    if document.retry_after_seconds > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(document.retry_after_seconds));
    }
    for warning in &document.warnings {
        let quoted: String = warning.chars().filter(|c| !c.is_control()).flat_map(escaped).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(WARNING, value);
        }
    }
    response
}

/// Escapes a character for a quoted string in a header.
fn escaped(c: char) -> impl Iterator<Item = char> {
    matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c])
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
                Err(error) => return Ok(respond(Document::from(&*unreadable_body(&*error)))),
            };
            let request = kernel_request(parts, body, server.user.as_ref());
            Ok(server.answer(&request))
        }
        .boxed()
    }
}

fn unreadable_body(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Box<Status> {
    if error.is::<http_body_util::LengthLimitError>() {
        return Status::new(StatusReason::RequestEntityTooLarge, "Request entity too large");
    }
    Status::new(StatusReason::BadRequest, format!("the body of the request could not be read: {error}"))
}

/// The request for the kernel. A user that the service knows (from a certificate or an in-process caller) comes
/// first, then a token, then the user of this handle.
fn kernel_request(parts: Parts, body: Bytes, handle: Option<&User>) -> KernelRequest {
    let header = |name: &str| {
        let value = parts.headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let authorization = header(AUTHORIZATION.as_str());
    let known = parts.extensions.get::<User>().cloned();
    let user = known.or_else(|| handle.filter(|_| authorization.is_empty()).cloned());
    let impersonated = header("impersonate-user");
    let impersonate = (!impersonated.is_empty()).then(|| User {
        name: impersonated,
        uid: header("impersonate-uid"),
        groups: parts
            .headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|group| group.to_str().ok())
            .map(str::to_owned)
            .collect(),
        ..User::default()
    });
    KernelRequest {
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        accept: header(ACCEPT.as_str()),
        content_type: header(CONTENT_TYPE.as_str()),
        user_agent: header(USER_AGENT.as_str()),
        method: parts.method,
        authorization,
        user,
        impersonate,
        body,
    }
}
