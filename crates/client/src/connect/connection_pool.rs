//! A pool of HTTP clients with one connection each.
//!
//! An API server accepts 100 concurrent streams on one HTTP/2 connection and queues the rest. Watches never
//! end, so a cluster with many kinds fills a connection with watches, and other requests, such as the renewal
//! of the lease, would wait behind them. A hyper client opens one HTTP/2 connection per server; the pool
//! therefore uses one client for every 64 requests in flight.

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

/// Requests in flight per connection. API servers and most proxies allow 100, some are configured lower.
const REQUESTS_MAX: usize = 64;

/// HTTP clients of one server, each with its own connection.
pub(super) struct ConnectionPool<S> {
    open: Arc<dyn Fn() -> S + Send + Sync>,
    clients: Arc<Mutex<Vec<PooledClient<S>>>>,
}

struct PooledClient<S> {
    client: S,
    /// One reference per request in flight, plus the pool's own.
    slot: Arc<()>,
}

impl<S> Clone for ConnectionPool<S> {
    fn clone(&self) -> Self {
        Self { open: self.open.clone(), clients: self.clients.clone() }
    }
}

impl<S: Clone> ConnectionPool<S> {
    /// A pool that creates clients with `open` on demand.
    pub(super) fn new(open: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self { open: Arc::new(open), clients: Arc::default() }
    }

    /// A client with a free slot, and that slot. Earlier clients are preferred, so that clients that are no
    /// longer needed become idle.
    fn acquire(&self) -> (S, Arc<()>) {
        let mut clients = self.clients.lock();
        let has_free_slot = |pooled: &&PooledClient<S>| Arc::strong_count(&pooled.slot) <= REQUESTS_MAX;
        if let Some(pooled) = clients.iter().find(has_free_slot) {
            return (pooled.client.clone(), pooled.slot.clone());
        }
        let pooled = PooledClient { client: (self.open)(), slot: Arc::default() };
        let acquired = (pooled.client.clone(), pooled.slot.clone());
        clients.push(pooled);
        acquired
    }
}

impl<S, B> Service<Request<Body>> for ConnectionPool<S>
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

    /// Always ready: the pool grows on demand.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut client, slot) = self.acquire();
        async move {
            std::future::poll_fn(|cx| client.poll_ready(cx)).await.map_err(Into::into)?;
            let response = client.call(request).await.map_err(Into::into)?;
            // A response occupies its slot until its body is read or dropped.
            Ok(response.map(|body| {
                let keep_slot = move |frame| {
                    let _ = &slot;
                    frame
                };
                body.map_frame(keep_slot).map_err(Into::into).boxed_unsync()
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

    /// Responds with the client's number in a header; never responds to POST.
    fn pool() -> ConnectionPool<
        impl Service<Request<Body>, Response = Response<Empty<Bytes>>, Error = BoxError, Future: Send> + Clone,
    > {
        let opened = Arc::new(Mutex::new(0));
        ConnectionPool::new(move || {
            let mut opened = opened.lock();
            *opened += 1;
            let number = *opened;
            tower::service_fn(move |request: Request<Body>| async move {
                if request.method() == http::Method::POST {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(Response::builder().header("client", number).body(Empty::new()).unwrap())
            })
        })
    }

    fn client_number(response: &Response<ResponseBody>) -> &str {
        response.headers()["client"].to_str().unwrap()
    }

    #[tokio::test]
    async fn full_connection_opens_another_and_is_reused_once_free() {
        let mut pool = pool();
        let get = || Request::get("/").body(Body::empty()).unwrap();
        let mut watches = join_all((0..REQUESTS_MAX).map(|_| pool.call(get()))).await;
        assert!(watches.iter().all(|watch| client_number(watch.as_ref().unwrap()) == "1"));
        assert_eq!(client_number(&pool.call(get()).await.unwrap()), "2");
        drop(watches.pop());
        assert_eq!(client_number(&pool.call(get()).await.unwrap()), "1", "a read response frees its slot");

        let unanswered = pool.call(Request::post("/").body(Body::empty()).unwrap());
        assert_eq!(client_number(&pool.call(get()).await.unwrap()), "2", "a pending request keeps its slot");
        drop(unanswered);
        assert_eq!(client_number(&pool.call(get()).await.unwrap()), "1");
        assert_eq!(pool.clients.lock().len(), 2);
    }
}
