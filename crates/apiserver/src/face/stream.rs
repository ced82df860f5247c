//! Response bodies: documents, and watches that last.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use super::Shared;
use crate::kernel::WatchId;

/// So many lines are written out ahead of a watcher; the rest waits in its short form.
const LINES_AT_ONCE: usize = 64;

/// A response body: a document, or a watch that lasts. One frame is one watch event.
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
    /// A body that is there already.
    pub(crate) fn text(bytes: Bytes) -> Body {
        Body::full(bytes)
    }

    pub(super) fn watch(shared: Arc<Shared>, id: WatchId, timeout: Option<std::time::Duration>) -> Body {
        let timeout = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
        Body(Content::Watch(WatchStream { shared, id, lines: VecDeque::new(), timeout, over: false }))
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
    lines: VecDeque<Bytes>,
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
        if self.lines.is_empty() && !self.over {
            let mut state = self.shared.state.lock();
            match state.kernel.take_lines(self.id, LINES_AT_ONCE) {
                Some(lines) => {
                    self.lines.extend(lines);
                    state.wakers.insert(self.id, cx.waker().clone());
                }
                None => self.over = true,
            }
        }
        if let Some(line) = self.lines.pop_front() {
            return Poll::Ready(Some(line));
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
