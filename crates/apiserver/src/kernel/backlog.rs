//! The queue of events per watch. Its size is counted, so that a client that does not read is disconnected before it
//! costs much memory.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use super::accept::Representation;
use super::printing;
use super::resources::Resource;
use super::stored_object::{SharedObject, StoredObject};
use super::watch::Frame;

/// The kind and representation a watch asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchView {
    pub(crate) resource: &'static Resource,
    pub(crate) representation: Representation,
}

impl WatchView {
    pub(crate) fn render(self, object: &SharedObject, now: Timestamp) -> SharedObject {
        printing::render(self.resource, self.representation, object, now)
    }

    /// Whether the stored text can be sent unchanged.
    fn is_sent_unchanged(self, stored: &StoredObject) -> bool {
        self.representation == Representation::Full && stored.can_be_sent_as(self.resource)
    }
}

/// The object of a queued event.
#[derive(Debug)]
pub(crate) enum Content {
    /// Shared with the store and other watches; rendered for this watch when it is sent.
    Shared(StoredObject),
    /// Held by this watch only.
    Own(StoredObject),
    /// JSON in its final form.
    Encoded(Box<str>),
}

impl Content {
    /// An object that is sent unchanged.
    pub(crate) fn encoded(object: &Value) -> Content {
        Content::Encoded(object.to_string().into())
    }

    fn text(&self, view: WatchView, now: Timestamp, columns_sent: bool) -> Cow<'_, str> {
        if columns_sent && matches!(view.representation, Representation::Table(_)) {
            let table = self.text(view, now, false);
            // Cannot fail: the text was serialized from a value.
            let mut table: Value = serde_json::from_str(&table).unwrap_or_default();
            if table["kind"] == "Table" {
                table["columnDefinitions"] = Value::Null;
            }
            return table.to_string().into();
        }
        match self {
            Content::Encoded(text) => Cow::Borrowed(text),
            Content::Shared(stored) | Content::Own(stored) if view.is_sent_unchanged(stored) => {
                Cow::Borrowed(stored.text())
            }
            Content::Shared(stored) | Content::Own(stored) => {
                view.render(&stored.value(), now).to_string().into()
            }
        }
    }
}

/// A queued event.
#[derive(Debug)]
struct QueuedEvent {
    kind: &'static str,
    content: Content,
}

impl QueuedEvent {
    /// Bytes held by this watch only.
    fn bytes(&self) -> usize {
        let own = match &self.content {
            Content::Shared(_) => 0,
            Content::Own(stored) => stored.text().len(),
            Content::Encoded(text) => text.len(),
        };
        size_of::<QueuedEvent>() + own
    }

    /// The line sent to the client.
    fn line(&self, view: WatchView, now: Timestamp, columns_sent: bool) -> Bytes {
        let text = self.content.text(view, now, columns_sent);
        let mut line = String::with_capacity(text.len() + 40);
        line.push_str("{\"type\":\"");
        line.push_str(self.kind);
        line.push_str("\",\"object\":");
        line.push_str(&text);
        line.push_str("}\n");
        line.into()
    }

    fn frame(&self, view: WatchView, now: Timestamp, columns_sent: bool) -> Frame {
        // Cannot fail: the text was serialized from a value.
        let object = serde_json::from_str(&self.content.text(view, now, columns_sent)).unwrap_or_default();
        Frame { kind: self.kind, object: Arc::new(object) }
    }
}

/// The queued events of one watch, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: VecDeque<QueuedEvent>,
    bytes: usize,
    /// How many of the oldest events are initial events; they do not count as lag.
    initial: usize,
    /// Whether the column definitions have been sent; later rows leave them out.
    columns_sent: bool,
}

impl Backlog {
    pub(crate) fn push(&mut self, kind: &'static str, content: Content) {
        let queued = QueuedEvent { kind, content };
        self.bytes += queued.bytes();
        self.queue.push_back(queued);
    }

    /// Marks everything queued so far as initial events.
    pub(crate) fn mark_initial(&mut self) {
        self.initial = self.queue.len();
    }

    /// How many changes the client is behind.
    pub(crate) fn changes(&self) -> usize {
        self.queue.len() - self.initial
    }

    /// Bytes held by this watch only.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Backlog::default();
    }

    fn pop(&mut self) -> Option<QueuedEvent> {
        let queued = self.queue.pop_front()?;
        self.bytes -= queued.bytes();
        self.initial = self.initial.saturating_sub(1);
        Some(queued)
    }

    /// Takes all events, as objects.
    pub(crate) fn take_frames(&mut self, view: WatchView, now: Timestamp) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(queued) = self.pop() {
            frames.push(queued.frame(view, now, std::mem::replace(&mut self.columns_sent, true)));
        }
        frames
    }

    /// Takes the oldest events as encoded lines: about `bytes_max` bytes, at least one line.
    pub(crate) fn take_lines(&mut self, view: WatchView, now: Timestamp, bytes_max: usize) -> Vec<Bytes> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max {
            let Some(queued) = self.pop() else { break };
            let line = queued.line(view, now, std::mem::replace(&mut self.columns_sent, true));
            bytes += line.len();
            lines.push(line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resources::by_name;
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn view() -> WatchView {
        WatchView { resource: by_name("pods").unwrap(), representation: Representation::Full }
    }

    fn filled(events: usize) -> Backlog {
        let mut backlog = Backlog::default();
        for at in 0..events {
            backlog.push("ADDED", Content::encoded(&json!({ "at": at })));
        }
        backlog
    }

    #[test]
    fn initial_events_do_not_count_as_lag() {
        let mut backlog = filled(3);
        backlog.mark_initial();
        assert_eq!(backlog.changes(), 0);
        backlog.push("MODIFIED", Content::encoded(&json!({})));
        assert_eq!(backlog.changes(), 1);
        assert_eq!(backlog.take_lines(view(), NOW, 1).len(), 1);
        assert_eq!(backlog.changes(), 1);
        backlog.take_lines(view(), NOW, usize::MAX);
        backlog.push("MODIFIED", Content::encoded(&json!({})));
        assert_eq!(backlog.changes(), 1);
    }

    #[test]
    fn taken_events_are_no_longer_counted() {
        let mut backlog = filled(10);
        let all = backlog.bytes();
        assert!(all >= 10 * "{\"at\":0}".len(), "{all}");
        let line = backlog.take_lines(view(), NOW, 1);
        assert_eq!(line[0], "{\"type\":\"ADDED\",\"object\":{\"at\":0}}\n");
        assert_eq!(backlog.bytes(), all / 10 * 9);
        assert_eq!(backlog.take_frames(view(), NOW).len(), 9);
        assert!(backlog.is_empty() && backlog.bytes() == 0);
    }
}
