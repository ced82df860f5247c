//! Client-side throttling (`--kube-api-qps`, `--kube-api-burst`); off by default. Watches are not throttled.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use keleustes_rate::TokenBucket;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use super::rate_limit_waits::{self, LimitedBy};
use super::{HttpService, Middleware, RequestObserver, ResponseBody, is_watch};

/// The rate limit of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Requests per second on average.
    pub qps: f32,
    /// Requests that may be sent at once.
    pub burst: u32,
}

/// A token bucket; requests pass in the order in which they arrive.
pub struct Throttle {
    bucket: Mutex<TokenBucket>,
    started_at: Instant,
    host: String,
    observer: Option<Arc<dyn RequestObserver>>,
}

impl Throttle {
    /// Starts with a full bucket.
    #[must_use]
    pub fn new(rate: RateLimit, host: String, observer: Option<Arc<dyn RequestObserver>>) -> Self {
        let bucket = Mutex::new(TokenBucket::new(f64::from(rate.qps), rate.burst));
        Self { bucket, started_at: Instant::now(), host, observer }
    }

    /// Takes a token and returns how long to wait for it.
    fn reserve(&self, now: Instant) -> Duration {
        self.bucket.lock().reserve(now.saturating_duration_since(self.started_at))
    }
}

impl Middleware for Throttle {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        // Parity: client-go's `Request.Watch` takes no token. A throttled watch would delay every cache.
        if is_watch(&request) {
            return inner.oneshot(request).await;
        }
        let wait = self.reserve(Instant::now());
        rate_limit_waits::wait(LimitedBy::Client, wait).await;
        if let Some(observer) = &self.observer {
            observer.throttled(request.method(), &self.host, wait);
        }
        inner.oneshot(request).await
    }
}
