//! Response bodies: documents and watch streams.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::Shared;
use crate::kernel::WatchId;

/// How many bytes are encoded ahead for a watch; further events stay queued in the kernel.
const BYTES_AT_ONCE: usize = 16 * 1024;
/// The last bookmark precedes the end of a watch by this much, so that the client can resume close to the end.
const LAST_BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Thirty years.
const THIRTY_YEARS: Duration = Duration::from_secs(86_400 * 365 * 30);

/// A response body: a document or a watch stream. One frame is one watch event.
#[derive(Debug)]
pub struct Body(Content);

#[derive(Debug)]
enum Content {
    Full(Option<Bytes>),
    Watch(WatchStream),
}

impl Body {
    pub(super) fn full(bytes: Bytes) -> Body {
        Body(Content::Full(Some(bytes).filter(|b| !b.is_empty())))
    }
}

impl Body {
    /// Whether this is a watch stream.
    pub(crate) fn is_watch(&self) -> bool {
        matches!(self.0, Content::Watch(_))
    }

    /// A body with this content.
    pub fn text(bytes: Bytes) -> Body {
        Body::full(bytes)
    }

    pub(super) fn watch(shared: Arc<Shared>, id: WatchId, timeout: Duration, bookmarks: bool) -> Body {
        let now = Instant::now();
        // A timeout beyond the range of the clock is never reached.
        let ends_at = now.checked_add(timeout).unwrap_or_else(|| now + THIRTY_YEARS);
        let timer = Timer::new(ends_at, bookmarks.then_some(shared.bookmark_interval));
        Body(Content::Watch(WatchStream { shared, id, lines: VecDeque::new(), timer, ended: false }))
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

/// A watch stream; dropping it closes the watch.
struct WatchStream {
    shared: Arc<Shared>,
    id: WatchId,
    /// Encoded but not yet sent.
    lines: VecDeque<Bytes>,
    timer: Timer,
    ended: bool,
}

impl fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl WatchStream {
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if self.lines.is_empty() && !self.ended {
                self.take_lines(cx);
            }
            if let Some(line) = self.lines.pop_front() {
                return Poll::Ready(Some(line));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.timer.poll(cx)) {
                Due::Bookmark => self.shared.with(|state, _| state.kernel.send_bookmark(self.id)),
                Due::End => self.ended = true,
            }
        }
    }

    fn take_lines(&mut self, cx: &Context<'_>) {
        let mut state = self.shared.state.lock();
        match state.kernel.take_lines(self.id, BYTES_AT_ONCE) {
            Some(lines) => {
                self.lines.extend(lines);
                state.wakers.insert(self.id, cx.waker().clone());
            }
            None => self.ended = true,
        }
    }
}

/// What the timer of a watch triggers.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    Bookmark,
    End,
}

/// Schedules bookmarks and the end of a watch.
struct Timer {
    ends_at: Instant,
    bookmark_interval: Option<Duration>,
    next: Due,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    fn new(ends_at: Instant, bookmark_interval: Option<Duration>) -> Timer {
        let mut timer =
            Timer { ends_at, bookmark_interval, next: Due::End, sleep: Box::pin(sleep_until(ends_at)) };
        timer.schedule(Instant::now());
        timer
    }

    /// Schedules the next bookmark after the interval or shortly before the end, whichever is first; after the last
    /// one, the end.
    fn schedule(&mut self, now: Instant) {
        let last = self.ends_at.checked_sub(LAST_BOOKMARK_BEFORE_END).filter(|last| *last > now);
        let bookmark = self.bookmark_interval.and_then(|every| Some(last?.min(now.checked_add(every)?)));
        self.next = if bookmark.is_some() { Due::Bookmark } else { Due::End };
        self.sleep.as_mut().reset(bookmark.unwrap_or(self.ends_at));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Due> {
        ready!(self.sleep.poll_unpin(cx));
        let due = std::mem::replace(&mut self.next, Due::End);
        if due == Due::Bookmark {
            self.schedule(Instant::now());
        }
        Poll::Ready(due)
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.kernel.close_watch(self.id);
        state.wakers.remove(&self.id);
    }
}
