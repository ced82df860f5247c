//! The pure API server: a request and the current time in, a reply and watch frames out.
//!
//! The kernel has no clock, no IO and no randomness of its own. Time comes with each request, UIDs and generated
//! names come from the seed or the entropy source given at construction, and everything it does is a function of the sequence of requests.
//!
//! | modules | content |
//! | --- | --- |
//! | [`resources`], `table`, `types`, `custom`, `structural`, `conversion` | the served kinds, their rules and types |
//! | `request`, `options`, `accept`, `body`, `strict_json`, `selectors`, `label_syntax` | request parsing |
//! | `create`, `update`, `patch`, `strategic`, `apply`, `delete`, `list`, `watch`, `backlog` | the verbs |
//! | `defaults`, `admission`, `limit_ranger`, `prepare`, `clusterip`, `nodeports` | what the server sets |
//! | `validation`, `metadata`, `naming`, `schema`, `pod_security`, `quota`, `warnings` | errors and warnings |
//! | `scale`, `eviction`, `binding`, `token`, `reviews`, `logs`, `metrics` | subresources and virtual resources |
//! | `users`, `jwt`, `rbac` | authentication and authorization |
//! | `printing`, `discovery`, `openapi`, `status` | responses |
//! | `store`, `stored_object`, `fields`, `journal` | objects, history, managedFields, persistence |

mod accept;
mod admission;
mod apply;
mod autoscalers;
mod backlog;
mod binding;
mod body;
mod bootstrap;
mod clusterip;
mod conversion;
mod create;
mod custom;
mod defaults;
mod delete;
mod discovery;
mod events;
mod eviction;
mod fields;
mod journal;
mod jwt;
mod kernel_options;
mod label_syntax;
mod limit_ranger;
mod list;
mod logs;
mod metadata;
mod metrics;
mod naming;
mod nodeports;
mod openapi;
mod options;
mod patch;
mod pod_security;
mod prepare;
mod printing;
mod quota;
mod random;
mod rbac;
mod request;
pub mod resources;
mod reviews;
mod scale;
mod schema;
mod selectors;
mod signers;
mod status;
mod store;
mod stored_object;
mod strategic;
mod strict_json;
mod structural;
mod table;
mod token;
mod types;
mod update;
mod users;
mod validation;
mod warnings;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::clusterip::Range;
pub use self::journal::{JournalEntry, ObjectIdentity, ObjectText};
pub use self::jwt::{TokenKey, TokenSigner};
pub use self::kernel_options::KernelOptions;
pub use self::metrics::{MetricsSource, UsageOfPod};
pub use self::random::EntropySource;
pub use self::request::Request;
pub use self::status::{ApiResult, Status, StatusCause, StatusReason};
pub use self::users::{MASTERS, TokenVerifier, User};
pub use self::watch::{Frame, WatchId};

use self::metadata::{meta_str, set_meta};
use self::options::FieldValidation;
use self::random::Random;
use self::request::{Call, Route, Target, Verb};
use self::resources::{Registry, Resource, Strategy};
use self::store::{Change, Event, Store};
use self::table::metrics::{EXTERNAL_METRICS, RESOURCE_METRICS};
use self::users::IssuedToken;
use self::watch::Watch;

/// A complete response.
#[derive(Debug, Clone)]
pub struct Document {
    /// HTTP status code.
    pub code: u16,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// `Retry-After` in seconds; 0 means the header is not sent.
    pub retry_after_seconds: u32,
    /// Warnings for the client; each becomes a `Warning` header.
    pub warnings: Vec<String>,
    /// The body.
    pub body: Bytes,
}

impl Document {
    /// A JSON document.
    pub(crate) fn json(code: u16, body: &impl Serialize) -> Document {
        // Values, strings and maps with string keys always serialize.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Document::text_of_json(code, body)
    }

    /// A JSON document from its text.
    pub(crate) fn text_of_json(code: u16, body: impl Into<Bytes>) -> Document {
        Document::new(code, "application/json", body.into())
    }

    /// Plain text.
    pub(crate) fn text(code: u16, body: &'static str) -> Document {
        Document::new(code, "text/plain; charset=utf-8", Bytes::from_static(body.as_bytes()))
    }

    fn new(code: u16, content_type: &'static str, body: Bytes) -> Document {
        Document { code, content_type, retry_after_seconds: 0, warnings: Vec::new(), body }
    }
}

impl From<&Status> for Document {
    fn from(status: &Status) -> Document {
        let document = Document::json(status.reason.code(), &status.to_value());
        Document { retry_after_seconds: status.retry_after_seconds, ..document }
    }
}

/// The kernel's reply to a request.
#[derive(Debug)]
pub enum Reply {
    /// A complete response.
    Document(Document),
    /// A watch was opened; read its events with [`Kernel::take_frames`].
    Watch {
        /// The watch.
        id: WatchId,
        /// When to end the stream, from now.
        timeout: Duration,
        /// Whether the client allows bookmarks.
        bookmarks: bool,
    },
}

/// A reply, and the request's attributes for the log.
#[derive(Debug)]
pub struct Answer {
    /// The reply to send.
    pub reply: Reply,
    /// The user; `None` if authentication failed.
    pub user: Option<User>,
    /// `get`, `list`, `watch`, `create`…; the lower-case method for non-resource paths.
    pub verb: String,
    /// `resource.group/subresource` as authorization names it; empty for non-resource paths.
    pub resource: String,
}

/// The state of the API server.
#[derive(Debug)]
pub struct Kernel {
    options: KernelOptions,
    registry: Registry,
    store: Store,
    random: Random,
    /// Separate from `random`, so that watches do not influence the names of objects.
    watch_random: Random,
    /// The time of the latest request.
    now: Timestamp,
    watches: BTreeMap<WatchId, Watch>,
    watches_opened: u64,
    /// Upper bound of the bytes queued for all watches.
    backlog_bytes: usize,
    /// Watches with new events since the last [`Kernel::take_ready_watches`].
    ready_watches: BTreeSet<WatchId>,
    /// Group versions that answer 503.
    failing: BTreeSet<(String, String)>,
    /// Issued tokens that may still be valid.
    tokens: BTreeMap<String, IssuedToken>,
    /// When each event object expires, by its key.
    event_deadlines: BTreeMap<String, Timestamp>,
    journal: Vec<JournalEntry>,
    /// Warnings for the client of the current request.
    warnings: Vec<String>,
}

impl Kernel {
    /// A kernel with the bootstrap namespaces. `history_limit` bounds the changes kept for watches and lists at older
    /// revisions.
    pub fn new(seed: u64, history_limit: usize, now: Timestamp) -> Kernel {
        Kernel::with_options(KernelOptions { seed, history_limit, ..KernelOptions::default() }, now)
    }

    /// A kernel with these options.
    pub fn with_options(options: KernelOptions, now: Timestamp) -> Kernel {
        let mut kernel = Kernel::empty(options, now);
        kernel.bootstrap(now);
        kernel
    }

    /// A kernel without objects.
    fn empty(options: KernelOptions, now: Timestamp) -> Kernel {
        let mut store = Store::new(options.history_limit, options.history_bytes_max);
        if options.keep_parsed {
            store.keep_parsed();
        }
        let (random, watch_random) = Random::of(&options);
        Kernel {
            registry: Registry::new(options.gated_kinds).with_metrics(options.metrics.is_some()),
            store,
            random,
            watch_random,
            now,
            watches: BTreeMap::new(),
            watches_opened: 0,
            backlog_bytes: 0,
            ready_watches: BTreeSet::new(),
            failing: BTreeSet::new(),
            tokens: BTreeMap::new(),
            event_deadlines: BTreeMap::new(),
            journal: Vec::new(),
            warnings: Vec::new(),
            options,
        }
    }

    /// Handles one request.
    pub fn call(&mut self, request: &Request, now: Timestamp) -> Reply {
        self.answer(request, now).reply
    }

    /// Handles one request and returns its attributes too.
    pub fn answer(&mut self, request: &Request, now: Timestamp) -> Answer {
        self.now = now;
        self.expire(now);
        let mut answer = Answer {
            reply: Reply::Document(Document::text(404, "404 page not found\n")),
            user: None,
            verb: request.method.as_str().to_lowercase(),
            resource: String::new(),
        };
        match self.dispatch(request, now, &mut answer) {
            Ok(Some(reply)) => answer.reply = reply,
            Ok(None) => {}
            Err(status) => answer.reply = Reply::Document(Document::from(&*status)),
        }
        let warnings = std::mem::take(&mut self.warnings);
        if let Reply::Document(document) = &mut answer.reply {
            // kube-apiserver sends no warnings with these errors.
            let suppressed = match document.code {
                405 => true,
                406 => !request.accept.contains("as="),
                415 => request.method == http::Method::PATCH,
                _ => false,
            };
            document.warnings = if suppressed { Vec::new() } else { warnings };
        }
        answer
    }

    /// `Ok(None)` is the plain "404 page not found".
    fn dispatch(
        &mut self,
        request: &Request,
        now: Timestamp,
        answer: &mut Answer,
    ) -> ApiResult<Option<Reply>> {
        let user = self.authenticate(request, now)?;
        answer.user = Some(user.clone());
        if let Some(log) = self.options.container_log
            && let Some(target) = self.log_target(&request.path)
        {
            answer.resource = access_name(&target);
            let call = Call::new(target, request, user)?;
            self.authorize(&call)?;
            return self.log(&call, log).map(|document| Some(Reply::Document(document)));
        }
        let route = match request::route(&self.registry, &request.path) {
            Ok(route) => route,
            Err(error) => return self.authorize_unserved(&user, request).and(Err(error)),
        };
        let target = match route {
            Some(Route::Resource(target)) => target,
            None => return self.authorize_unserved(&user, request).map(|()| None),
            Some(route) => {
                self.authorize_path(&user, &answer.verb, &request.path)?;
                if request.method != http::Method::GET {
                    return Err(Status::method_not_allowed());
                }
                return Ok(self.discover(&route, request)?.map(Reply::Document));
            }
        };
        answer.resource = access_name(&target);
        self.warnings.extend(warnings::for_kind(target.resource));
        self.refuse_failing(target.resource.group, target.resource.version)?;
        let call = match Call::new(target, request, user) {
            Ok(call) => call,
            Err(error) => {
                let user = answer.user.as_ref();
                return user.map_or(Ok(()), |user| self.authorize_unserved(user, request)).and(Err(error));
            }
        };
        call.verb.as_str().clone_into(&mut answer.verb);
        self.authorize(&call)?;
        if call.verb == Verb::Watch {
            return self.watch(&call).map(Some);
        }
        self.serve(&call, now).map(|document| Some(Reply::Document(document)))
    }

    fn serve(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let resource = call.target.resource;
        if matches!(resource.group, "authentication.k8s.io" | "authorization.k8s.io") {
            return self.review(call, now);
        }
        if let Some(source) = self.options.metrics
            && matches!(resource.group, RESOURCE_METRICS | EXTERNAL_METRICS)
        {
            return self.metrics(call, source, now);
        }
        if resource.kind == "Binding" {
            return self.bind(call, now);
        }
        match (call.verb, call.target.subresource.as_deref()) {
            (Verb::Create, Some("token")) => self.token(call, now),
            (Verb::Create, Some("binding")) => self.bind(call, now),
            (Verb::Create, Some("eviction")) => self.evict(call, now),
            (_, Some("scale")) => self.scale(call, now),
            (Verb::Get, _) => self.get(call),
            (Verb::List | Verb::Watch, _) => self.list(call),
            (Verb::Create, _) => self.create(call, now),
            (Verb::Update, _) => self.update(call, now),
            (Verb::Patch, _) => self.patch(call, now),
            (Verb::Delete, _) => self.delete(call, now),
            (Verb::DeleteCollection, _) => self.delete_collection(call, now),
        }
    }

    /// Handles strict decoding errors as `fieldValidation` asks: ignore, warn, or reject with `refusal`.
    fn apply_field_validation(
        &mut self,
        strict_errors: Vec<String>,
        validation: FieldValidation,
        refusal: impl FnOnce(&[String]) -> Box<Status>,
    ) -> ApiResult<()> {
        match validation {
            FieldValidation::Strict if !strict_errors.is_empty() => return Err(refusal(&strict_errors)),
            FieldValidation::Warn => self.warnings.extend(strict_errors),
            _ => {}
        }
        Ok(())
    }

    fn refuse_failing(&self, group: &str, version: &str) -> ApiResult<()> {
        if self.failing.contains(&(group.to_owned(), version.to_owned())) {
            let message = "the server is currently unable to handle the request";
            return Err(Status::new(StatusReason::ServiceUnavailable, message));
        }
        Ok(())
    }

    /// Stores an object without admission and validation; only missing system fields are set.
    ///
    /// An existing object with the same name is replaced and keeps its uid unless the new one sets its own.
    pub fn seed(&mut self, object: Value, now: Timestamp) -> ApiResult<Arc<Value>> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(resource) = self.registry.by_kind(&text("apiVersion"), &text("kind")) else {
            let message = format!("no kind {:?} is served in {:?}", text("kind"), text("apiVersion"));
            return Err(Status::bad_request(message));
        };
        let decoded = body::conform(resource, object)?;
        if !decoded.strict_errors.is_empty() {
            return Err(body::strict_decoding_error(resource, &decoded.strict_errors));
        }
        let mut object = conversion::to_storage_version(resource, decoded.object);
        if resource.namespaced && meta_str(&object, "namespace").is_empty() {
            set_meta(&mut object, "namespace", Some(json!("default")));
        }
        let (namespace, name) = (meta_str(&object, "namespace"), meta_str(&object, "name"));
        if name.is_empty() {
            return Err(Status::bad_request("a seeded object needs a name"));
        }
        let live = self.store.get(resource, namespace, name);
        for (field, generated) in [("uid", self.random.uid()), ("creationTimestamp", seconds(now))] {
            if meta_str(&object, field).is_empty() {
                let existing = live.as_ref().map(|l| meta_str(l, field).to_owned()).filter(|t| !t.is_empty());
                set_meta(&mut object, field, Some(json!(existing.unwrap_or(generated))));
            }
        }
        let event = self.store.put(resource, object);
        Ok(self.publish(&event, now))
    }

    /// Removes an object immediately, regardless of finalizers.
    pub fn remove_object(&mut self, resource: &'static Resource, namespace: &str, name: &str) -> bool {
        let event = self.store.remove(resource, namespace, name, None);
        let now = self.now;
        event.map(|event| self.publish(&event, now)).is_some()
    }

    /// The resource with that plural, or `plural.group`.
    pub fn resource(&self, name: &str) -> Option<&'static Resource> {
        self.registry.by_name(name)
    }

    /// One object.
    pub fn object(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(resource, namespace, name)
    }

    /// All objects of a kind, in list order.
    pub fn objects(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.store.values(resource, None)
    }

    /// All objects, kind by kind.
    pub fn all_objects(&self) -> Vec<Arc<Value>> {
        self.store.all().collect()
    }

    /// The revision of the latest write.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Drops the history: lists and watches at older revisions get 410 from now on.
    pub fn compact(&mut self) {
        self.store.compact();
    }

    /// Marks a group version as failing (503, stale in aggregated discovery) or as healthy.
    pub fn set_failing(&mut self, group: &str, version: &str, failing: bool) {
        let group_version = (group.to_owned(), version.to_owned());
        if failing {
            self.failing.insert(group_version);
        } else {
            self.failing.remove(&group_version);
        }
    }

    /// Delivers the event to all watches, runs its side effects, and returns its object.
    fn publish(&mut self, event: &Event, now: Timestamp) -> Arc<Value> {
        self.deliver(event);
        self.record(event);
        let deleted = event.change == Change::Deleted;
        match event.resource.strategy {
            Strategy::CustomResourceDefinition => return self.crd_changed(event, now),
            Strategy::Custom if deleted => self.custom_object_removed(event.resource, now),
            Strategy::Service if deleted => self.release(event.object(), now),
            Strategy::Event => self.set_event_deadline(&event.key, deleted, now),
            _ => {}
        }
        Arc::clone(event.object())
    }

    /// Sets when an event object expires: the TTL after its last write.
    fn set_event_deadline(&mut self, key: &str, deleted: bool, now: Timestamp) {
        let deadline = self.options.event_ttl.and_then(|ttl| now.checked_add(ttl).ok());
        match deadline.filter(|_| !deleted) {
            Some(deadline) => self.event_deadlines.insert(key.to_owned(), deadline),
            None => self.event_deadlines.remove(key),
        };
    }

    /// Removes expired event objects.
    fn expire(&mut self, now: Timestamp) {
        if self.event_deadlines.values().all(|deadline| *deadline > now) {
            return;
        }
        let due: Vec<String> =
            self.event_deadlines.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        let Some(events) = resources::by_path("", "v1", "events") else { return };
        for key in due {
            self.event_deadlines.remove(&key);
            let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
            self.remove_object(events, namespace, name);
        }
    }
}

/// `resource.group/subresource`, as authorization and the log name the target.
fn access_name(target: &Target) -> String {
    match &target.subresource {
        Some(subresource) => format!("{}/{subresource}", target.resource.qualified()),
        None => target.resource.qualified(),
    }
}

/// A time as metadata has it: in whole seconds.
pub(crate) fn seconds(now: Timestamp) -> String {
    // A valid time without its fraction is valid.
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests;
