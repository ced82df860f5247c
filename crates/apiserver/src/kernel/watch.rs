//! Watches see every change of what they select, once, in order, or are told that they cannot.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::Representation;
use super::kept::Kept;
use super::options::{WatchOptions, WatchStart};
use super::request::Call;
use super::resources::Resource;
use super::selectors::Selector;
use super::status::{Outcome, Reason, Status};
use super::store::{Change, Event, Stored};
use super::{Kernel, Reply, body, printing};

/// The annotation on the bookmark that closes the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Names an open watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(u64);

/// One event of a watch stream.
#[derive(Debug, Clone)]
pub struct Frame {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: &'static str,
    /// The object, or the Status of an error.
    pub object: Arc<Value>,
}

/// An event that waits for its watcher.
#[derive(Debug)]
struct Queued {
    kind: &'static str,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// What is kept is what is sent.
    Kept(Kept),
    /// Something made for this watch alone.
    Made(Stored),
}

impl Queued {
    /// The line sent to the client.
    fn line(&self) -> Bytes {
        let made;
        let text = match &self.content {
            Content::Kept(kept) => kept.text(),
            Content::Made(value) => {
                made = value.to_string();
                &made
            }
        };
        let mut line = String::with_capacity(text.len() + 40);
        line.push_str("{\"type\":\"");
        line.push_str(self.kind);
        line.push_str("\",\"object\":");
        line.push_str(text);
        line.push_str("}\n");
        line.into()
    }

    fn frame(self) -> Frame {
        let object = match self.content {
            Content::Kept(kept) => kept.value(),
            Content::Made(value) => value,
        };
        Frame { kind: self.kind, object }
    }
}

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watch {
    resource: &'static Resource,
    namespace: Option<String>,
    selector: Selector,
    representation: Representation,
    bookmarks: bool,
    /// Changes up to this revision are none of the client's business.
    after: u64,
    outbox: VecDeque<Queued>,
    ended: bool,
}

impl Watch {
    /// Queues the event if it concerns this watch; says whether it does.
    pub(crate) fn deliver(&mut self, event: &Event, now: Timestamp, frames_max: usize) -> bool {
        let ours = event.resource.shares_storage_with(self.resource);
        if self.ended || !ours || event.revision <= self.after {
            return false;
        }
        if self.namespace.as_deref().is_some_and(|ns| event.key.split_once('/').map(|(of, _)| of) != Some(ns))
        {
            return false;
        }
        self.after = event.revision;
        let (selector, resource) = (&self.selector, self.resource);
        let before = event.previous.as_ref().is_some_and(|previous| {
            selector.chooses(resource, &event.key, previous, || event.before().unwrap_or(event.object()))
        });
        let deleted = event.change == Change::Deleted;
        let after = !deleted && selector.chooses(resource, &event.key, &event.kept, || event.object());
        let kind = match (before, after) {
            (false, false) => return false,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if self.outbox.len() >= frames_max {
            // A client that does not read is told to begin again, instead of being remembered for.
            self.outbox.clear();
            self.fail(&Status::expired("the watch was too slow to follow"));
            return true;
        }
        if kind == "DELETED" && !deleted {
            // The object left the selection: the client sees it as it last was there, at the new version.
            let content = self.content_of_value(&departed(event), now);
            self.outbox.push_back(Queued { kind, content });
        } else {
            self.push(kind, &event.kept, now);
        }
        true
    }

    fn push(&mut self, kind: &'static str, object: &Kept, now: Timestamp) {
        let plain = self.representation == Representation::Whole && object.is_shown_as(self.resource);
        let content =
            if plain { Content::Kept(object.clone()) } else { self.content_of_value(&object.value(), now) };
        self.outbox.push_back(Queued { kind, content });
    }

    fn content_of_value(&self, object: &Stored, now: Timestamp) -> Content {
        Content::Made(printing::shown(self.resource, self.representation, object, now))
    }

    fn bookmark(&mut self, revision: u64, closes_initial_events: bool, now: Timestamp) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if closes_initial_events {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let mut object = body::zero(self.resource);
        object["kind"] = json!(self.resource.kind);
        object["apiVersion"] = json!(self.resource.api_version());
        object["metadata"] = metadata;
        // A view of other objects is made from theirs; a bookmark is nobody's and stays as it is.
        let object = match self.representation {
            Representation::Whole => Arc::new(object),
            other => printing::shown(self.resource, other, &Arc::new(object), now),
        };
        self.outbox.push_back(Queued { kind: "BOOKMARK", content: Content::Made(object) });
    }

    fn fail(&mut self, status: &Status) {
        let content = Content::Made(Arc::new(status.to_value()));
        self.outbox.push_back(Queued { kind: "ERROR", content });
        self.ended = true;
    }
}

fn departed(event: &Event) -> Stored {
    let Some(previous) = event.before() else {
        return Arc::clone(event.object());
    };
    let mut last = Value::clone(previous);
    last["metadata"]["resourceVersion"] = json!(event.revision.to_string());
    Arc::new(last)
}

impl Kernel {
    pub(crate) fn watch(&mut self, call: &Call<'_>) -> Outcome<Reply> {
        let options = WatchOptions::parse(call)?;
        let resource = call.target.resource;
        let query = &call.query;
        let selector = Selector::parse(resource, query.text("labelSelector"), query.text("fieldSelector"))?;
        let mut watch = Watch {
            resource,
            namespace: call.target.namespace.clone(),
            selector,
            representation: call.representation,
            bookmarks: options.bookmarks,
            after: self.store.revision(),
            outbox: VecDeque::new(),
            ended: false,
        };
        match options.start {
            WatchStart::State => self.fill_state(&mut watch),
            WatchStart::StateWithMark(not_older) => match self.refuse_future(not_older) {
                Ok(()) => {
                    self.fill_state(&mut watch);
                    if watch.bookmarks {
                        watch.bookmark(self.store.revision(), true, self.now);
                    }
                }
                Err(status) => watch.fail(&status),
            },
            WatchStart::Now => {}
            WatchStart::After(revision) => self.fill_changes(&mut watch, revision),
        }
        if self.watches.len() >= self.settings.watches_max {
            let mut status = Status::new(Reason::TooManyRequests, "too many watches are open");
            status.retry_after_seconds = 1;
            return Err(status);
        }
        self.watches_opened += 1;
        let id = WatchId(self.watches_opened);
        self.watches.insert(id, watch);
        Ok(Reply::Watch { id, timeout: options.timeout })
    }

    fn fill_state(&self, watch: &mut Watch) {
        for (key, object) in self.store.list(watch.resource, watch.namespace.as_deref()) {
            if watch.selector.accepts(watch.resource, key, object) {
                watch.push("ADDED", object, self.now);
            }
        }
    }

    fn fill_changes(&self, watch: &mut Watch, revision: u64) {
        watch.after = revision;
        match self.store.since(watch.resource, revision) {
            Some(events) => {
                for event in events {
                    watch.deliver(event, self.now, usize::MAX);
                }
            }
            None => {
                let message = format!("too old resource version: {revision} ({})", self.store.compacted());
                watch.fail(&Status::expired(message));
            }
        }
    }

    /// Takes what the watch has to say; `None` once it has said everything and is over.
    pub fn take_frames(&mut self, id: WatchId) -> Option<Vec<Frame>> {
        self.take(id).map(|queued| queued.into_iter().map(Queued::frame).collect())
    }

    /// Like [`Kernel::take_frames`], as the lines that are sent, and no more than `limit` of them at once.
    pub fn take_lines(&mut self, id: WatchId, limit: usize) -> Option<Vec<Bytes>> {
        let watch = self.watches.get_mut(&id)?;
        if watch.outbox.len() > limit {
            return Some(watch.outbox.drain(..limit).map(|queued| queued.line()).collect());
        }
        self.take(id).map(|queued| queued.iter().map(Queued::line).collect())
    }

    fn take(&mut self, id: WatchId) -> Option<VecDeque<Queued>> {
        let watch = self.watches.get_mut(&id)?;
        let queued = std::mem::take(&mut watch.outbox);
        if watch.ended {
            self.watches.remove(&id);
            // The last words of a watch are given before it is reported as over.
            if queued.is_empty() {
                return None;
            }
        }
        Some(queued)
    }

    /// Forgets a watch whose client has gone.
    pub fn close_watch(&mut self, id: WatchId) {
        self.watches.remove(&id);
        self.woken.remove(&id);
    }

    /// Watches that got news since the last call, in the order they were opened.
    pub fn take_woken(&mut self) -> Vec<WatchId> {
        std::mem::take(&mut self.woken).into_iter().collect()
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.watches.values().filter(|w| !w.ended).count()
    }

    /// Sends a bookmark with the current revision to every watch that asked for bookmarks.
    pub fn send_bookmarks(&mut self) {
        let (revision, now) = (self.store.revision(), self.now);
        // A watch opened at a future revision must not be led back by a bookmark.
        let wanted = |w: &Watch| w.bookmarks && !w.ended && w.after <= revision;
        for (id, watch) in self.watches.iter_mut().filter(|(_, w)| wanted(w)) {
            watch.after = revision;
            watch.bookmark(revision, false, now);
            self.woken.insert(*id);
        }
    }

    /// Ends every open watch; what is queued is still delivered.
    pub fn cut_watches(&mut self) {
        for (id, watch) in &mut self.watches {
            watch.ended = true;
            self.woken.insert(*id);
        }
    }

    /// Ends every open watch with an ERROR event of 410 Expired.
    pub fn expire_watches(&mut self) {
        let status = Status::expired("The resourceVersion for the provided watch is too old.");
        for (id, watch) in self.watches.iter_mut().filter(|(_, w)| !w.ended) {
            watch.fail(&status);
            self.woken.insert(*id);
        }
    }
}
