//! What requests on all connections hold together is bounded: in number, and in bytes that came in or wait to go out.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;
use crate::service::Body;

/// Pieces in which an answer is handed to the connection, which holds one of them for a client that does not read. As
/// large as a frame of HTTP/2 or a record of TLS.
const PIECE_BYTES: usize = 16 * 1024;
/// Bytes are counted in units of this many.
const UNIT: usize = 1024;

/// Counts what is under way.
#[derive(Debug, Clone)]
pub(super) struct InFlightLimits {
    requests: Arc<Semaphore>,
    units: Arc<Semaphore>,
    units_max: usize,
}

/// Part of what may be under way; dropping it gives it back.
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

    /// A place for one more request; none if there are too many already.
    pub(super) fn request(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        Some(Permit { _permit: Some(permit) })
    }

    /// Room for so many bytes; none if too many are held already. What is larger than all the room there is takes it
    /// all, so that it is let through alone; what is small does not have to wait for it, the number of requests bounds
    /// it well enough.
    pub(super) fn bytes(&self, count: usize) -> Option<Permit> {
        if count <= PIECE_BYTES {
            return Some(Permit { _permit: None });
        }
        let units = count.div_ceil(UNIT).clamp(1, self.units_max);
        let permit = Arc::clone(&self.units).try_acquire_many_owned(u32::try_from(units).ok()?).ok()?;
        Some(Permit { _permit: Some(permit) })
    }
}

/// An answer on its way to a client: counted until it is handed over, in pieces.
#[derive(Debug)]
pub(super) struct CountedBody {
    body: Body,
    /// The rest of what the body gave last.
    rest: Bytes,
    load: InFlightLimits,
    /// For the whole of a document; for a watch, which lasts, for one event at a time.
    share: Option<Permit>,
    /// Kept by a document until it is sent; a watch is counted elsewhere.
    _request: Option<Permit>,
}

impl CountedBody {
    /// A document: the whole of it is held from now on; none if there is no room.
    pub(super) fn document(
        body: Body,
        load: &InFlightLimits,
        request: Option<Permit>,
    ) -> Option<CountedBody> {
        let bytes = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let share = Some(load.bytes(bytes)?);
        Some(CountedBody { body, rest: Bytes::new(), load: load.clone(), share, _request: request })
    }

    /// A watch, or a few words, for which there is always room.
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
                // A client that begins again later is better than a server that holds more than it can.
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
