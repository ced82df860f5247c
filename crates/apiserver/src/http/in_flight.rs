//! Bounds the requests in flight on all connections together: their number, and the bytes of their bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;
use crate::service::Body;

/// Chunk size in which a response body is handed to the connection, which holds one chunk for a client that does not
/// read. As large as an HTTP/2 frame or a TLS record.
const PIECE_BYTES: usize = 16 * 1024;
/// Bytes are counted in units of this size.
const UNIT: usize = 1024;

/// Semaphores for requests and body bytes in flight.
#[derive(Debug, Clone)]
pub(super) struct InFlightLimits {
    requests: Arc<Semaphore>,
    units: Arc<Semaphore>,
    units_max: usize,
}

/// A share of the limits; dropping it returns the share.
#[derive(Debug)]
pub(super) struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl InFlightLimits {
    pub(super) fn new(limits: &Limits) -> InFlightLimits {
        let units_max = (limits.bytes_in_flight_max / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        InFlightLimits {
            requests: Arc::new(Semaphore::new(limits.requests_in_flight_max.min(Semaphore::MAX_PERMITS))),
            units: Arc::new(Semaphore::new(units_max)),
            units_max,
        }
    }

    /// A permit for one more request, or `None` if the limit is reached.
    pub(super) fn request(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        Some(Permit { _permit: Some(permit) })
    }

    /// A permit for `count` bytes, or `None` if the limit is reached. A body larger than the whole limit takes all of
    /// it, so that it passes alone. A body of at most one chunk needs no permit: the number of requests bounds those.
    pub(super) fn bytes(&self, count: usize) -> Option<Permit> {
        if count <= PIECE_BYTES {
            return Some(Permit { _permit: None });
        }
        let units = count.div_ceil(UNIT).clamp(1, self.units_max);
        let permit = Arc::clone(&self.units).try_acquire_many_owned(u32::try_from(units).ok()?).ok()?;
        Some(Permit { _permit: Some(permit) })
    }
}

/// A response body that is counted until it is sent, in chunks.
#[derive(Debug)]
pub(super) struct CountedBody {
    body: Body,
    /// The unsent rest of the last frame of `body`.
    rest: Bytes,
    load: InFlightLimits,
    /// For a document: the whole body. For a watch: one event at a time.
    share: Option<Permit>,
    /// Held by a document until it is sent; watches do not count as requests in flight.
    _request: Option<Permit>,
}

impl CountedBody {
    /// A document, counted in full from now on; `None` if the byte limit is reached.
    pub(super) fn document(
        body: Body,
        load: &InFlightLimits,
        request: Option<Permit>,
    ) -> Option<CountedBody> {
        let bytes = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let share = Some(load.bytes(bytes)?);
        Some(CountedBody { body, rest: Bytes::new(), load: load.clone(), share, _request: request })
    }

    /// A watch or a short error text, which is not counted.
    pub(super) fn uncounted(body: Body, load: &InFlightLimits) -> CountedBody {
        CountedBody { body, rest: Bytes::new(), load: load.clone(), share: None, _request: None }
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            if this.body.is_watch() {
                this.share = None;
            }
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            let Ok(frame) = frame;
            this.rest = frame.into_data().unwrap_or_default();
            if this.body.is_watch() && this.rest.len() > PIECE_BYTES {
                this.share = this.load.bytes(this.rest.len());
                // Ending the watch, which the client restarts later, is better than exceeding the memory limit.
                if this.share.is_none() {
                    this.rest.clear();
                    return Poll::Ready(None);
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        match self.body.size_hint().exact() {
            Some(bytes) => SizeHint::with_exact(bytes + rest),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn load(requests_max: usize, bytes_in_flight_max: usize) -> InFlightLimits {
        InFlightLimits::new(&Limits {
            requests_in_flight_max: requests_max,
            bytes_in_flight_max,
            ..Limits::default()
        })
    }

    #[test]
    fn shares_are_given_until_there_are_none_and_come_back() {
        let load = load(1, 100 * UNIT);
        let request = load.request();
        assert!(request.is_some() && load.request().is_none());
        drop(request);
        assert!(load.request().is_some());
        let some = load.bytes(90 * UNIT);
        assert!(some.is_some() && load.bytes(20 * UNIT).is_none() && load.bytes(1).is_some());
        drop(some);
        let all = load.bytes(1000 * UNIT);
        assert!(all.is_some(), "what is larger than everything goes alone");
        assert!(load.bytes(20 * UNIT).is_none() && load.bytes(UNIT).is_some());
    }

    #[tokio::test]
    async fn documents_are_held_until_they_are_sent_in_pieces() {
        let load = load(10, 100 * UNIT);
        let text = Bytes::from(vec![b'x'; 60 * UNIT]);
        let request = load.request();
        let mut answer = CountedBody::document(Body::text(text.clone()), &load, request).unwrap();
        assert_eq!(answer.size_hint().exact(), Some(60 * 1024));
        assert!(CountedBody::document(Body::text(text), &load, None).is_none(), "no room for another");
        let mut sizes = Vec::new();
        while let Some(Ok(frame)) = answer.frame().await {
            sizes.push(frame.into_data().unwrap().len());
        }
        assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 60 * UNIT - 3 * PIECE_BYTES]);
        assert!(answer.is_end_stream());
        drop(answer);
        assert!(load.bytes(100 * UNIT).is_some());
    }
}
