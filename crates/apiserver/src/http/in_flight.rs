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
const CHUNK_BYTES: usize = 16 * 1024;
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
        if count <= CHUNK_BYTES {
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
    in_flight: InFlightLimits,
    /// For a document: the whole body. For a watch: one event at a time.
    bytes_permit: Option<Permit>,
    /// Held by a document until it is sent; watches do not count as requests in flight.
    _request: Option<Permit>,
}

impl CountedBody {
    /// A document, counted in full from now on; `None` if the byte limit is reached.
    pub(super) fn document(
        body: Body,
        in_flight: &InFlightLimits,
        request: Option<Permit>,
    ) -> Option<CountedBody> {
        let bytes = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let bytes_permit = Some(in_flight.bytes(bytes)?);
        Some(CountedBody {
            body,
            rest: Bytes::new(),
            in_flight: in_flight.clone(),
            bytes_permit,
            _request: request,
        })
    }

    /// A watch or a short error text, which is not counted.
    pub(super) fn uncounted(body: Body, in_flight: &InFlightLimits) -> CountedBody {
        CountedBody {
            body,
            rest: Bytes::new(),
            in_flight: in_flight.clone(),
            bytes_permit: None,
            _request: None,
        }
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
                this.bytes_permit = None;
            }
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            let Ok(frame) = frame;
            this.rest = frame.into_data().unwrap_or_default();
            if this.body.is_watch() && this.rest.len() > CHUNK_BYTES {
                this.bytes_permit = this.in_flight.bytes(this.rest.len());
                // Ending the watch, which the client restarts later, is better than exceeding the memory limit.
                if this.bytes_permit.is_none() {
                    this.rest.clear();
                    return Poll::Ready(None);
                }
            }
        }
        let chunk = this.rest.split_to(this.rest.len().min(CHUNK_BYTES));
        Poll::Ready(Some(Ok(Frame::data(chunk))))
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

    fn in_flight(requests_max: usize, bytes_in_flight_max: usize) -> InFlightLimits {
        InFlightLimits::new(&Limits {
            requests_in_flight_max: requests_max,
            bytes_in_flight_max,
            ..Limits::default()
        })
    }

    #[test]
    fn permits_are_limited_and_returned() {
        let in_flight = in_flight(1, 100 * UNIT);
        let request = in_flight.request();
        assert!(request.is_some() && in_flight.request().is_none());
        drop(request);
        assert!(in_flight.request().is_some());
        let some = in_flight.bytes(90 * UNIT);
        assert!(some.is_some() && in_flight.bytes(20 * UNIT).is_none() && in_flight.bytes(1).is_some());
        drop(some);
        let all = in_flight.bytes(1000 * UNIT);
        assert!(all.is_some(), "a body larger than the limit passes alone");
        assert!(in_flight.bytes(20 * UNIT).is_none() && in_flight.bytes(UNIT).is_some());
    }

    #[tokio::test]
    async fn documents_are_counted_until_sent_in_chunks() {
        let in_flight = in_flight(10, 100 * UNIT);
        let text = Bytes::from(vec![b'x'; 60 * UNIT]);
        let request = in_flight.request();
        let mut answer = CountedBody::document(Body::text(text.clone()), &in_flight, request).unwrap();
        assert_eq!(answer.size_hint().exact(), Some(60 * 1024));
        assert!(
            CountedBody::document(Body::text(text), &in_flight, None).is_none(),
            "the byte limit is reached"
        );
        let mut sizes = Vec::new();
        while let Some(Ok(frame)) = answer.frame().await {
            sizes.push(frame.into_data().unwrap().len());
        }
        assert_eq!(sizes, [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, 60 * UNIT - 3 * CHUNK_BYTES]);
        assert!(answer.is_end_stream());
        drop(answer);
        assert!(in_flight.bytes(100 * UNIT).is_some());
    }
}
