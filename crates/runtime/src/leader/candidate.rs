//! In a coordinated election, keeps the LeaseCandidate of this process and answers its pings.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use keleustes_objects::{ApiError, ErrorReason, Key, Resource};
use keleustes_plan::{Item, RateLimiter};
use kube::Client;
use serde_json::{Value, json};

use super::record::micro_time;
use super::single_object::{Change, SingleObject};
use crate::clock::Clocks;
use crate::metrics::Metrics;
use crate::queue::Queue;

static LEASE_CANDIDATES: Resource =
    Resource::built_in_version("coordination.k8s.io", "v1beta1", "LeaseCandidate");

/// The namespace of LeaseCandidates for the manager's Lease and the name of that Lease, whatever lock is
/// configured: the original ignores its lock flags here, too.
const NAMESPACE: &str = "kube-system";
const LEASE_NAME: &str = "kube-controller-manager";

/// The only strategy that the API server implements.
const STRATEGY: &str = "OldestEmulationVersion";

/// The name of the renewal queue in metrics.
const QUEUE: &str = "leasecandidate";

/// How long after a renewal the next one is due, with or without a ping.
const RENEW_EVERY: Duration = Duration::from_secs(5 * 60);

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait before watching again after a watch failed.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// What a process publishes as a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// The name of the LeaseCandidate, which becomes the holder identity if it is chosen.
    pub identity: String,
    /// `major.minor.patch` of this program.
    pub binary_version: String,
    /// `major.minor.patch` of the version it emulates.
    pub emulation_version: String,
}

impl Candidacy {
    /// The spec to write: a new one, or the current one renewed.
    fn spec(&self, current: Option<&Value>, wall: Timestamp) -> Value {
        let mut spec = match current {
            Some(candidate) => candidate["spec"].clone(),
            None => json!({
                "leaseName": LEASE_NAME,
                "binaryVersion": self.binary_version,
                "emulationVersion": self.emulation_version,
                "strategy": STRATEGY,
            }),
        };
        spec["renewTime"] = micro_time(wall).into();
        spec
    }
}

/// Whether the API server has pinged the candidate since its last renewal.
fn is_pinged(candidate: &Value) -> bool {
    let time = |name: &str| candidate["spec"][name].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    time("pingTime").is_some_and(|pinged| time("renewTime").is_none_or(|renewed| pinged > renewed))
}

/// Keeps the LeaseCandidate of this process.
pub struct Candidate {
    candidacy: Candidacy,
    object: SingleObject,
    clocks: Clocks,
    /// Holds at most one item: the candidate.
    queue: Queue,
    item: Item,
    synced: Arc<AtomicBool>,
}

impl Candidate {
    /// Prepares; nothing is sent yet.
    #[must_use]
    pub fn new(client: Client, candidacy: Candidacy, clocks: Clocks, metrics: &Metrics) -> Self {
        let key = Key::namespaced(NAMESPACE, candidacy.identity.as_str());
        let queue = Queue::new(RateLimiter::DEFAULT, clocks.clone(), metrics.queue(QUEUE));
        let object = SingleObject::new(client, &LEASE_CANDIDATES, key.clone(), REQUEST_TIMEOUT);
        Self { candidacy, object, clocks, queue, item: key.into(), synced: Arc::default() }
    }

    /// The health check `informer-sync`: fails until it is known whether the candidate exists.
    pub fn health(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let synced = Arc::clone(&self.synced);
        move || match synced.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("1 informers not started yet: [*v1beta1.LeaseCandidate]".to_owned()),
        }
    }

    /// Creates the candidate, renews it every 5 minutes and on every ping, until `stop`. The candidate is not
    /// deleted: the manager's role does not allow it, and the API server cleans up.
    ///
    /// Run it before, during and after leading: a leader must answer pings, too, or another is chosen.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut changes = self.object.changes(WATCH_PAUSE);
        let queue = self.queue.clone();
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return,
                Some(change) = changes.next() => {
                    self.observe(change);
                    continue;
                }
                Some(_) = queue.next() => {}
            }
            tokio::select! {
                biased;
                () = &mut stop => return,
                result = self.renew() => self.schedule_next(result),
            }
        }
    }

    fn observe(&mut self, change: Change) {
        let is_newer = self.object.take(change);
        let first = !self.synced.swap(true, Ordering::Relaxed);
        if first || is_newer && self.object.observed().is_some_and(is_pinged) {
            self.queue.add(self.item.clone());
        }
    }

    async fn renew(&mut self) -> Result<(), ApiError> {
        let wall = Timestamp::from_nanosecond(self.clocks.wall_nanoseconds().into()).unwrap_or_default();
        let spec = self.candidacy.spec(self.object.observed(), wall);
        let written = self.object.write(spec).await;
        if let Err(ApiError {
            reason: ErrorReason::Conflict | ErrorReason::AlreadyExists | ErrorReason::NotFound,
            ..
        }) = written
        {
            // The watch delivers the change as well, but it may be interrupted; the next renewal fails again
            // if this read fails.
            let _ = self.object.read().await;
        }
        written
    }

    fn schedule_next(&self, result: Result<(), ApiError>) {
        match result {
            Ok(()) => {
                self.queue.forget(&self.item);
                self.queue.add_after(self.item.clone(), RENEW_EVERY);
            }
            Err(failure) => {
                tracing::warn!(reason = %failure, "failed to renew the LeaseCandidate");
                self.queue.add_rate_limited(self.item.clone(), failure.retry_after.unwrap_or_default());
            }
        }
        self.queue.done(&self.item);
    }
}
