//! The pure API server: a request and a clock reading in, a reply and watch frames out.
//!
//! The kernel has no clock, no IO and no chance of its own. Time comes with each request, uids and
//! generated names come from the seed given at construction, and everything it does is a function of the
//! requests it has seen, in their order.

mod accept;
mod apply;
mod body;
mod chance;
mod create;
mod delete;
mod discovery;
mod fields;
mod list;
mod metadata;
mod options;
mod patch;
mod request;
pub mod resources;
mod schema;
mod selectors;
mod status;
mod store;
mod strategic;
mod strategy;
mod token;
mod update;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::request::Request;
pub use self::status::{Cause, Outcome, Reason, Status};
pub use self::watch::{Frame, WatchId};

use self::chance::Chance;
use self::metadata::{meta_str, set_meta};
use self::request::{Call, Route, Verb};
use self::resources::Resource;
use self::store::{Event, Store};
use self::watch::Watch;

/// Namespaces that exist from the start.
const BOOTSTRAP_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// An answer that is complete when it is given.
#[derive(Debug, Clone)]
pub struct Document {
    /// HTTP status code.
    pub code: u16,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// `Retry-After` in seconds; 0 means the header is not sent.
    pub retry_after_seconds: u32,
    /// The body.
    pub body: Bytes,
}

impl Document {
    /// A JSON document.
    pub(crate) fn json(code: u16, body: &impl Serialize) -> Document {
        // Values, strings and maps with string keys always serialise.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Document { code, content_type: "application/json", retry_after_seconds: 0, body: body.into() }
    }

    /// A plain text.
    pub(crate) fn text(code: u16, body: &'static str) -> Document {
        let content_type = "text/plain; charset=utf-8";
        Document { code, content_type, retry_after_seconds: 0, body: Bytes::from_static(body.as_bytes()) }
    }
}

impl From<&Status> for Document {
    fn from(status: &Status) -> Document {
        let document = Document::json(status.reason.code(), &status.to_value());
        Document { retry_after_seconds: status.retry_after_seconds, ..document }
    }
}

/// What the kernel answers to a request.
#[derive(Debug)]
pub enum Reply {
    /// A complete answer.
    Document(Document),
    /// A watch was opened; its frames are taken with [`Kernel::take_frames`].
    Watch {
        /// The watch to take frames from.
        id: WatchId,
        /// When to end the stream, counted from now.
        timeout: Option<Duration>,
    },
}

/// The state of the API server.
#[derive(Debug)]
pub struct Kernel {
    store: Store,
    chance: Chance,
    watches: BTreeMap<WatchId, Watch>,
    watches_opened: u64,
    /// Watches that have news nobody was told of yet.
    woken: BTreeSet<WatchId>,
    /// Group versions that answer 503, as `group/version`.
    failing: BTreeSet<(String, String)>,
}

impl Kernel {
    /// A server with the bootstrap namespaces. `history_limit` bounds the changes kept for watches and old lists.
    pub fn new(seed: u64, history_limit: usize, now: Timestamp) -> Kernel {
        let mut kernel = Kernel {
            store: Store::new(history_limit),
            chance: Chance::seeded(seed),
            watches: BTreeMap::new(),
            watches_opened: 0,
            woken: BTreeSet::new(),
            failing: BTreeSet::new(),
        };
        for name in BOOTSTRAP_NAMESPACES {
            let namespace = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            // Cannot fail: the kind is served and the object is written out above.
            let _ = kernel.seed(namespace, now);
        }
        kernel
    }

    /// Answers one request.
    pub fn call(&mut self, request: &Request, now: Timestamp) -> Reply {
        match self.dispatch(request, now) {
            Ok(reply) => reply,
            Err(status) => Reply::Document(Document::from(&*status)),
        }
    }

    fn dispatch(&mut self, request: &Request, now: Timestamp) -> Outcome<Reply> {
        let not_found = || Ok(Reply::Document(Document::text(404, "404 page not found\n")));
        let Some(route) = request::route(&request.path)? else {
            return not_found();
        };
        let target = match route {
            Route::Resource(target) => target,
            route => {
                if request.method != http::Method::GET {
                    return Err(Status::method_not_allowed());
                }
                return match self.discover(&route, &request.accept)? {
                    Some(document) => Ok(Reply::Document(document)),
                    None => not_found(),
                };
            }
        };
        self.refuse_failing(target.resource.group, target.resource.version)?;
        let call = Call::new(target, request)?;
        if call.verb == Verb::Watch {
            return self.watch(&call);
        }
        let document = match (call.verb, call.target.subresource.as_deref()) {
            (Verb::Create, Some("token")) => self.token(&call, now)?,
            (Verb::Get, _) => self.get(&call)?,
            (Verb::List | Verb::Watch, _) => self.list(&call)?,
            (Verb::Create, _) => self.create(&call, now)?,
            (Verb::Update, _) => self.update(&call, now)?,
            (Verb::Patch, _) => self.patch(&call, now)?,
            (Verb::Delete, _) => self.delete(&call, now)?,
            (Verb::DeleteCollection, _) => self.delete_collection(&call, now)?,
        };
        Ok(Reply::Document(document))
    }

    fn refuse_failing(&self, group: &str, version: &str) -> Outcome<()> {
        if self.failing.contains(&(group.to_owned(), version.to_owned())) {
            let message = "the server is currently unable to handle the request";
            return Err(Status::new(Reason::ServiceUnavailable, message));
        }
        Ok(())
    }

    /// Stores an object as it is, past admission and validation: only missing system fields are filled in.
    ///
    /// An object of the same name is replaced and keeps its uid unless the new one brings its own.
    pub fn seed(&mut self, object: Value, now: Timestamp) -> Outcome<Arc<Value>> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(resource) = resources::by_kind(&text("apiVersion"), &text("kind")) else {
            let message = format!("no kind {:?} is served in {:?}", text("kind"), text("apiVersion"));
            return Err(Status::bad_request(message));
        };
        let mut object = body::conform(resource, object, options::UnknownFields::Refuse)?;
        if resource.namespaced && meta_str(&object, "namespace").is_empty() {
            set_meta(&mut object, "namespace", Some(json!("default")));
        }
        let (namespace, name) = (meta_str(&object, "namespace"), meta_str(&object, "name"));
        if name.is_empty() {
            return Err(Status::bad_request("a seeded object needs a name"));
        }
        let live = self.store.get(resource, namespace, name).cloned();
        for (field, fresh) in [("uid", self.chance.uid()), ("creationTimestamp", seconds(now))] {
            if meta_str(&object, field).is_empty() {
                let kept = live.as_ref().map(|l| meta_str(l, field).to_owned()).filter(|t| !t.is_empty());
                set_meta(&mut object, field, Some(json!(kept.unwrap_or(fresh))));
            }
        }
        let event = self.store.put(resource, object);
        Ok(self.publish(&event))
    }

    /// Removes an object at once, finalizers or not.
    pub fn unseed(&mut self, resource: &'static Resource, namespace: &str, name: &str) -> bool {
        let event = self.store.remove(resource, namespace, name, None);
        event.map(|event| self.publish(&event)).is_some()
    }

    /// One object.
    pub fn object(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(resource, namespace, name).cloned()
    }

    /// All objects of a kind, in list order.
    pub fn objects(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.store.list(resource, None).into_iter().map(|(_, object)| object).collect()
    }

    /// Every object there is, kind by kind.
    pub fn all_objects(&self) -> Vec<Arc<Value>> {
        self.store.all().cloned().collect()
    }

    /// The revision of the latest write.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Forgets history: lists and watches from older revisions are refused with 410 from now on.
    pub fn compact(&mut self) {
        self.store.compact();
    }

    /// Marks a group version as failing (503, stale in aggregated discovery) or as well again.
    pub fn set_failing(&mut self, group: &str, version: &str, failing: bool) {
        let group_version = (group.to_owned(), version.to_owned());
        if failing {
            self.failing.insert(group_version);
        } else {
            self.failing.remove(&group_version);
        }
    }

    /// Hands the event to every watch that covers it and returns its object.
    fn publish(&mut self, event: &Event) -> Arc<Value> {
        for (id, watch) in &mut self.watches {
            if watch.deliver(event) {
                self.woken.insert(*id);
            }
        }
        Arc::clone(&event.object)
    }
}

/// The time as Kubernetes writes it in metadata: whole seconds.
pub(crate) fn seconds(now: Timestamp) -> String {
    // Cutting off the fraction of a valid time leaves a valid time.
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests;
