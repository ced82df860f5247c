//! Watches see every change of what they select, once, in order, or are told that they cannot.

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

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watch {
    view: WatchView,
    namespace: Option<String>,
    selector: Selector,
    bookmarks: bool,
    /// Changes up to this revision are none of the client's business.
    after: u64,
    backlog: Backlog,
    ended: bool,
}

impl Watch {
    /// Queues the event if it concerns this watch; says whether it does.
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
            self.give_up();
            return true;
        }
        let content = if kind == "DELETED" && !deleted {
            // The object left the selection: the client sees it as it last was there, at the new version.
            Content::Own(StoredObject::new(event.stored.resource(), &departed(event)))
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
        // A view of other objects is made from theirs; a bookmark is nobody's and stays as it is.
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

    /// A client that does not read is told to begin again, instead of being remembered for.
    fn give_up(&mut self) {
        self.backlog.clear();
        self.fail(&Status::expired("the watch was too slow to follow"));
    }
}

fn departed(event: &Event) -> SharedObject {
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
        if self.watches.len() >= self.settings.watches_max {
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
        watch.backlog.mark_initial();
        self.watches_opened += 1;
        let id = WatchId(self.watches_opened);
        let (bookmarks, waiting) = (watch.bookmarks, watch.backlog.bytes());
        self.watches.insert(id, watch);
        self.bound_backlogs(waiting);
        let timeout = options.timeout.unwrap_or_else(|| self.timeout_by_chance());
        Ok(Reply::Watch { id, timeout, bookmarks })
    }

    /// Clients that name no end get one at a random time, so that those who came together do not come back together.
    fn timeout_by_chance(&mut self) -> Duration {
        let least = self.settings.watch_timeout_min;
        let millis = u32::try_from(least.as_millis()).unwrap_or(u32::MAX).max(1);
        least + Duration::from_millis(self.watch_random.below(millis).into())
    }

    /// Hands the event to every watch that covers it.
    pub(crate) fn deliver(&mut self, event: &Event) {
        let mut added = 0;
        for (id, watch) in &mut self.watches {
            let before = watch.backlog.bytes();
            if watch.deliver(event, self.settings.frames_max) {
                added += watch.backlog.bytes().saturating_sub(before);
                self.woken.insert(*id);
            }
        }
        self.bound_backlogs(added);
    }

    /// Notes that more waits for watchers now, and cuts off the slowest until it is within bounds again.
    fn bound_backlogs(&mut self, added: usize) {
        self.backlog_bytes += added;
        if self.backlog_bytes <= self.settings.backlog_bytes_max {
            return;
        }
        // What watchers have taken since it was last counted is still in the sum.
        self.backlog_bytes = self.watches.values().map(|watch| watch.backlog.bytes()).sum();
        while self.backlog_bytes > self.settings.backlog_bytes_max {
            let living = self.watches.iter_mut().filter(|(_, watch)| !watch.ended);
            let Some((id, slowest)) = living.max_by_key(|(_, watch)| watch.backlog.bytes()) else { return };
            self.backlog_bytes -= slowest.backlog.bytes();
            slowest.give_up();
            self.woken.insert(*id);
        }
    }

    fn fill_state(&self, watch: &mut Watch) {
        for (key, object) in self.store.list(watch.view.resource, watch.namespace.as_deref()) {
            if watch.selector.matches_stored(watch.view.resource, key, object) {
                watch.backlog.push("ADDED", Content::Shared(object.clone()));
            }
        }
    }

    fn fill_changes(&self, watch: &mut Watch, revision: u64) {
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

    /// Takes what the watch has to say; `None` once it has said everything and is over.
    pub fn take_frames(&mut self, id: WatchId) -> Option<Vec<Frame>> {
        self.take(id, |backlog, view, now| backlog.take_frames(view, now))
    }

    /// Like [`Kernel::take_frames`], as the lines that are sent: about so many bytes of them, the rest later.
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
            // The last words of a watch are given before it is reported as over.
            if taken.is_empty() {
                return None;
            }
        }
        Some(taken)
    }

    /// Forgets a watch whose client has gone.
    pub fn close_watch(&mut self, id: WatchId) {
        self.watches.remove(&id);
        self.woken.remove(&id);
    }

    /// Watches that got news since the last call, in the order they were opened.
    pub fn take_ready_watches(&mut self) -> Vec<WatchId> {
        std::mem::take(&mut self.woken).into_iter().collect()
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
        // A watch opened at a future revision must not be led back by a bookmark.
        if watch.bookmarks && !watch.ended && watch.after <= revision {
            watch.after = revision;
            watch.bookmark(revision, false, now);
            self.woken.insert(id);
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
