//! Which requests of a task wait for a rate limit, so that others can say why the task takes so long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

tokio::task_local! {
    static CURRENT: Arc<RateLimitWaits>;
}

/// Whose rate limit a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The client's own (`--kube-api-qps`).
    Client,
    /// The API server's, which has answered with `Retry-After`.
    ApiServer,
}

/// The requests of one task that wait for a rate limit.
#[derive(Debug, Default)]
pub struct RateLimitWaits(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    requests: BTreeMap<u64, (LimitedBy, Instant)>,
    last_number: u64,
}

impl RateLimitWaits {
    /// Runs a future, and observes the requests that it sends itself, not in other tasks.
    pub async fn observe<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// The request that has waited longest: for what, and since when.
    #[must_use]
    pub fn longest(&self) -> Option<(LimitedBy, Instant)> {
        self.0.lock().requests.first_key_value().map(|(_, wait)| *wait)
    }
}

/// Waits for a rate limit.
pub(super) async fn wait(limited_by: LimitedBy, duration: Duration) {
    if duration.is_zero() {
        return;
    }
    let _waiting = CURRENT.try_with(|waits| OneWait::begin(waits.clone(), limited_by));
    tokio::time::sleep(duration).await;
}

/// A request that waits until this is dropped, also if the request is given up.
struct OneWait {
    waits: Arc<RateLimitWaits>,
    number: u64,
}

impl OneWait {
    fn begin(waits: Arc<RateLimitWaits>, limited_by: LimitedBy) -> Self {
        let mut waiting = waits.0.lock();
        waiting.last_number += 1;
        let number = waiting.last_number;
        waiting.requests.insert(number, (limited_by, Instant::now()));
        drop(waiting);
        Self { waits, number }
    }
}

impl Drop for OneWait {
    fn drop(&mut self) {
        self.waits.0.lock().requests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn longest_wait_is_known_until_it_ends_or_is_given_up() {
        let (waits, began) = (Arc::<RateLimitWaits>::default(), Instant::now());
        let seconds = Duration::from_secs;
        let both = waits.observe(async {
            tokio::join!(wait(LimitedBy::Client, seconds(5)), wait(LimitedBy::ApiServer, seconds(9)));
        });
        assert!(tokio::time::timeout(seconds(1), both).await.is_err());
        assert_eq!(waits.longest(), None, "they are given up");
        let both = waits.observe(async {
            tokio::join!(wait(LimitedBy::Client, seconds(5)), wait(LimitedBy::ApiServer, seconds(9)));
        });
        let look = async {
            tokio::time::sleep(seconds(2)).await;
            assert_eq!(waits.longest(), Some((LimitedBy::Client, began + seconds(1))));
            tokio::time::sleep(seconds(4)).await;
            assert_eq!(waits.longest(), Some((LimitedBy::ApiServer, began + seconds(1))));
        };
        tokio::join!(both, look);
        assert_eq!(waits.longest(), None);
    }
}
