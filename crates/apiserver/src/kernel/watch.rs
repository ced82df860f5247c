//! Watches: every change of the selected objects once, in order, or an error event.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::Representation;
use super::backlog::{Backlog, Content, WatchView};
use super::options::{WatchOptions, WatchStart};
use super::request::Call;
use super::selectors::Selector;
use super::status::{ApiResult, Status, StatusReason};
use super::store::{Change, Event, SharedObject};
use super::stored_object::StoredObject;
use super::{Kernel, Reply, body};

/// The annotation on the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Identifies an open watch.
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

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watch {
    view: WatchView,
    namespace: Option<String>,
    selector: Selector,
    bookmarks: bool,
    /// Changes up to this revision are not delivered.
    after: u64,
    backlog: Backlog,
    ended: bool,
}

impl Watch {
    /// Queues the event if it matches this watch; returns whether it does.
    pub(crate) fn deliver(&mut self, event: &Event, frames_max: usize) -> bool {
        let ours = event.resource.shares_storage_with(self.view.resource);
        if self.ended || !ours || event.revision <= self.after {
            return false;
        }
        if self.namespace.as_deref().is_some_and(|ns| event.key.split_once('/').map(|(of, _)| of) != Some(ns))
        {
            return false;
        }
        self.after = event.revision;
        let (selector, resource) = (&self.selector, self.view.resource);
        let before = event.previous.as_ref().is_some_and(|previous| {
            selector.matches_parsing_late(resource, &event.key, previous, || {
                event.previous_object().unwrap_or(event.object())
            })
        });
        let deleted = event.change == Change::Deleted;
        let after =
            !deleted && selector.matches_parsing_late(resource, &event.key, &event.stored, || event.object());
        let kind = match (before, after) {
            (false, false) => return false,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if self.backlog.changes() >= frames_max {
            self.expire_slow();
            return true;
        }
        let content = if kind == "DELETED" && !deleted {
            // The object no longer matches: the client gets the last matching state with the new resourceVersion.
            Content::Own(StoredObject::new(event.stored.resource(), &last_matching(event)))
        } else {
            Content::Shared(event.stored.clone())
        };
        self.backlog.push(kind, content);
        true
    }

    fn bookmark(&mut self, revision: u64, closes_initial_events: bool, now: Timestamp) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if closes_initial_events {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let mut object = body::zero(self.view.resource);
        object["kind"] = json!(self.view.resource.kind);
        object["apiVersion"] = json!(self.view.resource.api_version());
        object["metadata"] = metadata;
        // Conversion would change a bookmark's apiVersion; a full bookmark already has the right one.
        let object = match self.view.representation {
            Representation::Full => Arc::new(object),
            _ => self.view.render(&Arc::new(object), now),
        };
        self.backlog.push("BOOKMARK", Content::encoded(&object));
    }

    fn fail(&mut self, status: &Status) {
        self.backlog.push("ERROR", Content::encoded(&status.to_value()));
        self.ended = true;
    }

    /// Ends the watch of a client that does not read with 410, instead of queueing more.
    fn expire_slow(&mut self) {
        self.backlog.clear();
        self.fail(&Status::expired("the watch was too slow to follow"));
    }
}

fn last_matching(event: &Event) -> SharedObject {
    let Some(previous) = event.previous_object() else {
        return Arc::clone(event.object());
    };
    let mut last = Value::clone(previous);
    last["metadata"]["resourceVersion"] = json!(event.revision.to_string());
    Arc::new(last)
}

impl Kernel {
    pub(crate) fn watch(&mut self, call: &Call<'_>) -> ApiResult<Reply> {
        let options = WatchOptions::parse(call)?;
        if matches!(call.representation, Representation::Table(_)) {
            call.representation.fits(call.target.resource, false, call.query.text("includeObject"))?;
        }
        let resource = call.target.resource;
        if self.watches.len() >= self.options.watches_max {
            let mut status = Status::new(StatusReason::TooManyRequests, "too many watches are open");
            status.retry_after_seconds = 1;
            return Err(status);
        }
        let mut watch = Watch {
            view: WatchView { resource, representation: call.representation },
            namespace: call.target.namespace.clone(),
            selector: options.selector,
            bookmarks: options.bookmarks,
            after: self.store.revision(),
            backlog: Backlog::default(),
            ended: false,
        };
        match options.start {
            WatchStart::InitialEvents(not_older) => match self.refuse_future(not_older) {
                Ok(()) => {
                    self.queue_initial_events(&mut watch);
                    if watch.bookmarks {
                        watch.bookmark(self.store.revision(), true, self.now);
                    }
                }
                Err(status) => watch.fail(&status),
            },
            WatchStart::Now => {}
            WatchStart::After(revision) => self.queue_changes(&mut watch, revision),
        }
        watch.backlog.mark_initial();
        self.watches_opened += 1;
        let id = WatchId(self.watches_opened);
        let (bookmarks, queued) = (watch.bookmarks, watch.backlog.bytes());
        self.watches.insert(id, watch);
        self.limit_backlogs(queued);
        let timeout = options.timeout.unwrap_or_else(|| self.random_timeout());
        Ok(Reply::Watch { id, timeout, bookmarks })
    }

    /// A random timeout for clients without timeoutSeconds, so that watches opened together do not end together.
    fn random_timeout(&mut self) -> Duration {
        let least = self.options.watch_timeout_min;
        let millis = u32::try_from(least.as_millis()).unwrap_or(u32::MAX).max(1);
        least + Duration::from_millis(self.watch_random.below(millis).into())
    }

    /// Delivers the event to every watch it matches.
    pub(crate) fn deliver(&mut self, event: &Event) {
        let mut added = 0;
        for (id, watch) in &mut self.watches {
            let before = watch.backlog.bytes();
            if watch.deliver(event, self.options.frames_max) {
                added += watch.backlog.bytes().saturating_sub(before);
                self.ready_watches.insert(*id);
            }
        }
        self.limit_backlogs(added);
    }

    /// Adds to the byte count of all queues and ends the slowest watches until it is within the limit.
    fn limit_backlogs(&mut self, added: usize) {
        self.backlog_bytes += added;
        if self.backlog_bytes <= self.options.backlog_bytes_max {
            return;
        }
        // The sum still contains bytes that clients have read since the last count.
        self.backlog_bytes = self.watches.values().map(|watch| watch.backlog.bytes()).sum();
        while self.backlog_bytes > self.options.backlog_bytes_max {
            let open = self.watches.iter_mut().filter(|(_, watch)| !watch.ended);
            let Some((id, slowest)) = open.max_by_key(|(_, watch)| watch.backlog.bytes()) else { return };
            self.backlog_bytes -= slowest.backlog.bytes();
            slowest.expire_slow();
            self.ready_watches.insert(*id);
        }
    }

    fn queue_initial_events(&self, watch: &mut Watch) {
        for (key, object) in self.store.list(watch.view.resource, watch.namespace.as_deref()) {
            if watch.selector.matches_stored(watch.view.resource, key, object) {
                watch.backlog.push("ADDED", Content::Shared(object.clone()));
            }
        }
    }

    fn queue_changes(&self, watch: &mut Watch, revision: u64) {
        watch.after = revision;
        match self.store.since(watch.view.resource, revision) {
            Some(events) => {
                for event in events {
                    watch.deliver(event, usize::MAX);
                }
            }
            None => {
                let message = format!("too old resource version: {revision} ({})", self.store.compacted());
                watch.fail(&Status::expired(message));
            }
        }
    }

    /// Takes the queued events; `None` once the watch has ended and everything was taken.
    pub fn take_frames(&mut self, id: WatchId) -> Option<Vec<Frame>> {
        self.take(id, |backlog, view, now| backlog.take_frames(view, now))
    }

    /// Like [`Kernel::take_frames`], as encoded lines: about `bytes_max` bytes, the rest later.
    pub fn take_lines(&mut self, id: WatchId, bytes_max: usize) -> Option<Vec<Bytes>> {
        self.take(id, |backlog, view, now| backlog.take_lines(view, now, bytes_max))
    }

    fn take<T>(
        &mut self,
        id: WatchId,
        what: impl FnOnce(&mut Backlog, WatchView, Timestamp) -> Vec<T>,
    ) -> Option<Vec<T>> {
        let watch = self.watches.get_mut(&id)?;
        let taken = what(&mut watch.backlog, watch.view, self.now);
        if watch.ended && watch.backlog.is_empty() {
            self.watches.remove(&id);
            // The last events are returned before the watch is reported as ended.
            if taken.is_empty() {
                return None;
            }
        }
        Some(taken)
    }

    /// Removes a watch whose client has disconnected.
    pub fn close_watch(&mut self, id: WatchId) {
        self.watches.remove(&id);
        self.ready_watches.remove(&id);
    }

    /// Watches with new events since the last call, in the order they were opened.
    pub fn take_ready_watches(&mut self) -> Vec<WatchId> {
        std::mem::take(&mut self.ready_watches).into_iter().collect()
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.watches.values().filter(|w| !w.ended).count()
    }

    /// Sends a bookmark with the current revision to every watch that asked for bookmarks.
    pub fn send_bookmarks(&mut self) {
        let ids: Vec<WatchId> = self.watches.keys().copied().collect();
        ids.into_iter().for_each(|id| self.send_bookmark(id));
    }

    /// Sends a bookmark with the current revision to a watch, if it asked for bookmarks.
    pub fn send_bookmark(&mut self, id: WatchId) {
        let (revision, now) = (self.store.revision(), self.now);
        let Some(watch) = self.watches.get_mut(&id) else { return };
        // A bookmark must not lower the revision of a watch that starts at a future one.
        if watch.bookmarks && !watch.ended && watch.after <= revision {
            watch.after = revision;
            watch.bookmark(revision, false, now);
            self.ready_watches.insert(id);
        }
    }

    /// Ends every open watch; queued events are still delivered.
    pub fn cut_watches(&mut self) {
        for (id, watch) in &mut self.watches {
            watch.ended = true;
            self.ready_watches.insert(*id);
        }
    }

    /// Ends every open watch with an ERROR event of 410 Expired.
    pub fn expire_watches(&mut self) {
        let status = Status::expired("The resourceVersion for the provided watch is too old.");
        for (id, watch) in self.watches.iter_mut().filter(|(_, w)| !w.ended) {
            watch.fail(&status);
            self.ready_watches.insert(*id);
        }
    }
}
