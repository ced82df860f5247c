//! More connections where one is full.
//!
//! A server takes a hundred requests at once on one connection of HTTP/2 and lets others wait. Watches never end, so a
//! cluster with many kinds fills a connection with them, and behind them would wait, among others, the renewal of the
//! lease. The client below knows one connection; so there is one client for so many requests, and one more when all
//! are taken.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use tower::{BoxError, Service};

use crate::layers::ResponseBody;

/// How many requests share a connection. API servers and most proxies take a hundred; a few may be set to less.
const REQUESTS_MAX: usize = 64;

/// Clients of one server, each with a connection of its own.
pub(super) struct Lanes<S> {
    open: Arc<dyn Fn() -> S + Send + Sync>,
    lanes: Arc<Mutex<Vec<Lane<S>>>>,
}

struct Lane<S> {
    client: S,
    /// Every request under way has one of these, and so has the lane.
    taken: Arc<()>,
}

impl<S> Clone for Lanes<S> {
    fn clone(&self) -> Self {
        Self { open: self.open.clone(), lanes: self.lanes.clone() }
    }
}

impl<S: Clone> Lanes<S> {
    /// Opens clients this way when they are needed.
    pub(super) fn new(open: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self { open: Arc::new(open), lanes: Arc::default() }
    }

    /// A client with room for one more request, and that room. The first come first, so that lanes that are no longer
    /// needed run empty.
    fn take(&self) -> (S, Arc<()>) {
        let mut lanes = self.lanes.lock();
        let has_room = |lane: &&Lane<S>| Arc::strong_count(&lane.taken) <= REQUESTS_MAX;
        if let Some(lane) = lanes.iter().find(has_room) {
            return (lane.client.clone(), lane.taken.clone());
        }
        let lane = Lane { client: (self.open)(), taken: Arc::default() };
        let taken = (lane.client.clone(), lane.taken.clone());
        lanes.push(lane);
        taken
    }
}

impl<S, B> Service<Request<Body>> for Lanes<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    /// There is always room.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut client, taken) = self.take();
        async move {
            std::future::poll_fn(|cx| client.poll_ready(cx)).await.map_err(Into::into)?;
            let response = client.call(request).await.map_err(Into::into)?;
            // An answer takes the room until it has been read, or given up.
            Ok(response.map(|body| {
                let held = move |frame| {
                    let _ = &taken;
                    frame
                };
                body.map_frame(held).map_err(Into::into).boxed_unsync()
            }))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use http_body_util::Empty;

    use super::*;

    /// Says which client it is; what is asked for with POST is never answered.
    fn lanes() -> Lanes<
        impl Service<Request<Body>, Response = Response<Empty<Bytes>>, Error = BoxError, Future: Send> + Clone,
    > {
        let opened = Arc::new(Mutex::new(0));
        Lanes::new(move || {
            let mut opened = opened.lock();
            *opened += 1;
            let number = *opened;
            tower::service_fn(move |request: Request<Body>| async move {
                if request.method() == http::Method::POST {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(Response::builder().header("lane", number).body(Empty::new()).unwrap())
            })
        })
    }

    fn lane(response: &Response<ResponseBody>) -> &str {
        response.headers()["lane"].to_str().unwrap()
    }

    #[tokio::test]
    async fn a_full_lane_lets_nobody_wait_and_is_used_again() {
        let mut lanes = lanes();
        let get = || Request::get("/").body(Body::empty()).unwrap();
        let mut watches = join_all((0..REQUESTS_MAX).map(|_| lanes.call(get()))).await;
        assert!(watches.iter().all(|watch| lane(watch.as_ref().unwrap()) == "1"));
        assert_eq!(lane(&lanes.call(get()).await.unwrap()), "2");
        drop(watches.pop());
        assert_eq!(lane(&lanes.call(get()).await.unwrap()), "1", "what has been read makes room");

        let unanswered = lanes.call(Request::post("/").body(Body::empty()).unwrap());
        assert_eq!(lane(&lanes.call(get()).await.unwrap()), "2", "so does not what is still waited for");
        drop(unanswered);
        assert_eq!(lane(&lanes.call(get()).await.unwrap()), "1");
        assert_eq!(lanes.lanes.lock().len(), 2);
    }
}
