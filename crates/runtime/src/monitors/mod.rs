//! Lets observers hear of every object of every resource that the server serves, now and later.
//!
//! What is served is asked for every half minute; resources come and go while the process runs. A
//! resource that some controller has a whole cache of is observed there, so that nothing is read or kept
//! twice; of all others only metadata is read, and kept by nobody but the observer.

mod deletable_resources;
mod feed;
mod partial_metadata;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keleustes_client::{RestMapper, discover};
use keleustes_objects::Resource;
use keleustes_plan::{Effects, Observer};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::deletable_resources::deletable_resources;
use self::feed::{Feed, Monitor};
use crate::caches::Caches;
use crate::clock::{Clocks, Random};
use crate::metrics::{Metrics, QueueMetrics, QueueSnapshot};
use crate::ordered_watch::OrderedWatch;

/// How long after one survey the next begins, and how long one waits for what it has found to be listed.
const SURVEY_EVERY: Duration = Duration::from_secs(30);

/// Takes what observing stirs up.
pub type EffectsSink = Arc<dyn Fn(Effects) + Send + Sync>;

/// What monitors need from their surroundings.
pub(crate) struct MonitorContext {
    pub(crate) client: kube::Client,
    pub(crate) mapping: RestMapper,
    pub(crate) clocks: Clocks,
    pub(crate) chance: Random,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// The monitors of one observer.
pub struct Monitors {
    observer: Arc<dyn Observer>,
    ground: MonitorContext,
    sink: Arc<RwLock<Option<EffectsSink>>>,
    counts: Arc<OnceLock<QueueMetrics>>,
    monitors: Mutex<BTreeMap<Resource, Monitor>>,
    /// Those that end as soon as the server says that there is nothing to observe.
    retired: Mutex<BTreeMap<Resource, Monitor>>,
    /// How many surveys have been made.
    surveys: OrderedWatch<u64>,
}

impl Monitors {
    /// Begins to observe.
    pub(crate) fn start(observer: Arc<dyn Observer>, ground: MonitorContext, caches: Caches) -> Arc<Self> {
        let monitors = Arc::new(Self {
            observer,
            ground,
            sink: Arc::default(),
            counts: Arc::default(),
            monitors: Mutex::default(),
            retired: Mutex::default(),
            surveys: OrderedWatch::new(0),
        });
        monitors.ground.tasks.spawn(monitors.clone().survey(caches));
        monitors
    }

    /// Whether this is the observer.
    pub(crate) fn is_for(&self, observer: &Arc<dyn Observer>) -> bool {
        Arc::ptr_eq(&self.observer, observer)
    }

    /// Returns as soon as all resources that are known have been seen as a whole, and there are some.
    pub async fn wait_for_sync(&self) {
        let mut seen = self.surveys.get();
        loop {
            for syncing in self.syncing() {
                syncing.await;
            }
            if self.all_synced() {
                return;
            }
            self.surveys.wait_for(|surveys| surveys != seen).await;
            seen = self.surveys.get();
        }
    }

    /// From now on, what is stirred up goes to this sink, beginning with all that is still to be done.
    pub fn start_leading(&self, sink: &EffectsSink) {
        // Nothing of this is told before there is somebody who works on it.
        self.ground.metrics.declare(self.observer.failures());
        self.counts.get_or_init(|| {
            let counts = self.ground.metrics.queue(self.observer.queue());
            // What is heard of is dealt with at once, so nothing ever waits.
            counts.watch(|| Some(QueueSnapshot::default()));
            counts
        });
        *self.sink.write() = Some(sink.clone());
        let mut stir = Effects::default();
        self.observer.on_start_leading(&mut stir);
        sink(stir);
    }

    /// Goes on observing; what is stirred up is dropped.
    pub fn stop_leading(&self) {
        *self.sink.write() = None;
    }

    async fn survey(self: Arc<Self>, caches: Caches) {
        let stop = self.ground.stop.clone();
        let surveys = async {
            loop {
                self.survey_once(&caches).await;
                tokio::time::sleep(SURVEY_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = surveys => {}
        }
    }

    async fn survey_once(&self, caches: &Caches) {
        let wanted = match discover(&self.ground.client).await {
            Ok(discovered) => {
                for (name, why) in &discovered.failed {
                    tracing::info!(name, why, "this part of the API could not be discovered");
                }
                let kept = self.synced_resources();
                deletable_resources(&discovered, &kept, |resource| self.observer.ignores(resource))
            }
            Err(failure) => {
                tracing::info!(%failure, "the API could not be discovered");
                None
            }
        };
        let Some(wanted) = wanted else { return self.failed() };
        let changed = self.observe(&wanted, caches);
        self.surveys.modify(|surveys| surveys + 1);
        if changed {
            self.ground.mapping.invalidate();
            let listed = async {
                for syncing in self.syncing() {
                    syncing.await;
                }
            };
            if tokio::time::timeout(SURVEY_EVERY, listed).await.is_err() {
                tracing::warn!(resources = ?self.unsynced(), "still not listed, observing the others");
                self.failed();
            }
        }
    }

    fn failed(&self) {
        if self.sink.read().is_none() {
            return;
        }
        self.ground.metrics.measure(&self.observer.failures().increment(&[]));
    }

    /// Brings the monitors in line with what is wanted, and tells whether that has changed anything.
    fn observe(&self, wanted: &BTreeSet<Resource>, caches: &Caches) -> bool {
        let mut monitors = self.monitors.lock();
        let known: BTreeSet<Resource> = monitors.keys().cloned().collect();
        for resource in known.difference(wanted) {
            // In another version it is observed from now on; or it is not served any more.
            let is_replaced =
                wanted.iter().any(|one| (&one.group, &one.plural) == (&resource.group, &resource.plural));
            match monitors.remove(resource) {
                Some(monitor) if is_replaced => monitor.stop(),
                Some(monitor) => {
                    monitor.retire();
                    self.retired.lock().insert(resource.clone(), monitor);
                }
                None => {}
            }
        }
        for resource in wanted {
            let shared = caches.unfiltered_cache(resource);
            let fits = |monitor: &Monitor| monitor.is_shared || shared.is_none();
            if monitors.get(resource).is_some_and(fits) {
                continue;
            }
            let monitor = Monitor::new(shared.is_some(), self.ground.stop.child_token());
            let feed = self.feed(resource);
            match shared {
                Some(cache) => self.ground.tasks.spawn(monitor.follow(feed, cache)),
                None => {
                    let (client, chance) = (self.ground.client.clone(), self.ground.chance.fork());
                    self.ground.tasks.spawn(monitor.reflect(feed, client, chance, caches))
                }
            };
            let before = [monitors.insert(resource.clone(), monitor), self.retired.lock().remove(resource)];
            before.iter().flatten().for_each(Monitor::stop);
        }
        known != *wanted
    }

    fn feed(&self, resource: &Resource) -> Feed {
        Feed {
            resource: resource.clone(),
            observer: self.observer.clone(),
            sink: self.sink.clone(),
            clocks: self.ground.clocks.clone(),
            metrics: self.ground.metrics.clone(),
            counts: self.counts.clone(),
        }
    }

    fn syncing(&self) -> Vec<impl Future<Output = ()> + use<>> {
        self.monitors.lock().values().map(Monitor::syncing).collect()
    }

    fn all_synced(&self) -> bool {
        let monitors = self.monitors.lock();
        !monitors.is_empty() && monitors.values().all(Monitor::is_synced)
    }

    fn synced_resources(&self) -> BTreeSet<Resource> {
        let monitors = self.monitors.lock();
        monitors.iter().filter(|(_, monitor)| monitor.is_synced()).map(|(name, _)| name.clone()).collect()
    }

    fn unsynced(&self) -> Vec<String> {
        let monitors = self.monitors.lock();
        monitors.iter().filter(|(_, one)| !one.is_synced()).map(|(name, _)| name.to_string()).collect()
    }
}
