//! Client-side throttling (`--kube-api-qps`, `--kube-api-burst`); off by default. Watches are not throttled.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

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
    rate: RateLimit,
    bucket: Mutex<Bucket>,
    host: String,
    observer: Option<Arc<dyn RequestObserver>>,
}

struct Bucket {
    /// Negative while requests wait for future tokens.
    tokens: f64,
    filled_at: Instant,
}

impl Throttle {
    /// Starts with a full bucket.
    #[must_use]
    pub fn new(rate: RateLimit, host: String, observer: Option<Arc<dyn RequestObserver>>) -> Self {
        let bucket = Bucket { tokens: f64::from(rate.burst), filled_at: Instant::now() };
        Self { rate, bucket: Mutex::new(bucket), host, observer }
    }

    /// Takes a token and returns how long to wait for it.
    fn reserve(&self, now: Instant) -> Duration {
        let qps = f64::from(self.rate.qps);
        let mut bucket = self.bucket.lock();
        let gained = now.saturating_duration_since(bucket.filled_at).as_secs_f64() * qps;
        bucket.filled_at = now;
        bucket.tokens = (bucket.tokens + gained).min(f64::from(self.rate.burst)) - 1.0;
        Duration::try_from_secs_f64(-bucket.tokens / qps).unwrap_or_default()
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
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        if let Some(observer) = &self.observer {
            observer.throttled(request.method(), &self.host, wait);
        }
        inner.oneshot(request).await
    }
}
