//! Delivers the objects of every served resource to observers.
//!
//! Discovery runs every 30 s; resources come and go while the process runs. A resource with a shared,
//! unfiltered cache is observed there, so that it is neither read nor kept twice; of all others only metadata
//! is read, and it is kept by nothing but the observer.

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

/// How long after one discovery the next one starts, and how long to wait for newly found resources to be
/// listed.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);

/// Takes the effects of an observer.
pub type EffectsSink = Arc<dyn Fn(Effects) + Send + Sync>;

/// What monitors need from their process.
pub(crate) struct MonitorContext {
    pub(crate) client: kube::Client,
    pub(crate) rest_mapper: RestMapper,
    pub(crate) clocks: Clocks,
    pub(crate) random: Random,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// The monitors of one observer.
pub struct Monitors {
    observer: Arc<dyn Observer>,
    context: MonitorContext,
    sink: Arc<RwLock<Option<EffectsSink>>>,
    queue_metrics: Arc<OnceLock<QueueMetrics>>,
    monitors: Mutex<BTreeMap<Resource, Monitor>>,
    /// Monitors of resources that are no longer served; each stops when its watch fails.
    retired: Mutex<BTreeMap<Resource, Monitor>>,
    /// How many discoveries have been completed.
    discoveries: OrderedWatch<u64>,
}

impl Monitors {
    /// Starts observing.
    pub(crate) fn start(observer: Arc<dyn Observer>, context: MonitorContext, caches: Caches) -> Arc<Self> {
        let monitors = Arc::new(Self {
            observer,
            context,
            sink: Arc::default(),
            queue_metrics: Arc::default(),
            monitors: Mutex::default(),
            retired: Mutex::default(),
            discoveries: OrderedWatch::new(0),
        });
        monitors.context.tasks.spawn(monitors.clone().discover_periodically(caches));
        monitors
    }

    /// Whether these are the monitors of this observer.
    pub(crate) fn is_for(&self, observer: &Arc<dyn Observer>) -> bool {
        Arc::ptr_eq(&self.observer, observer)
    }

    /// Returns as soon as all known resources, at least one, have been listed.
    pub async fn wait_for_sync(&self) {
        let mut seen = self.discoveries.get();
        loop {
            for syncing in self.syncing() {
                syncing.await;
            }
            if self.all_synced() {
                return;
            }
            self.discoveries.wait_for(|discoveries| discoveries != seen).await;
            seen = self.discoveries.get();
        }
    }

    /// From now on effects go to this sink, starting with those of `on_start_leading`.
    pub fn start_leading(&self, sink: &EffectsSink) {
        // These metrics appear only once this process processes effects, as with the original.
        self.context.metrics.declare(self.observer.failures());
        self.queue_metrics.get_or_init(|| {
            let queue_metrics = self.context.metrics.queue(self.observer.queue());
            // Changes are processed immediately, so nothing ever waits.
            queue_metrics.watch(|| Some(QueueSnapshot::default()));
            queue_metrics
        });
        *self.sink.write() = Some(sink.clone());
        let mut effects = Effects::default();
        self.observer.on_start_leading(&mut effects);
        sink(effects);
    }

    /// Keeps observing, but drops all effects.
    pub fn stop_leading(&self) {
        *self.sink.write() = None;
    }

    async fn discover_periodically(self: Arc<Self>, caches: Caches) {
        let stop = self.context.stop.clone();
        let discoveries = async {
            loop {
                self.discover_once(&caches).await;
                tokio::time::sleep(DISCOVERY_PERIOD).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = discoveries => {}
        }
    }

    async fn discover_once(&self, caches: &Caches) {
        let wanted = match discover(&self.context.client).await {
            Ok(discovered) => {
                for (name, why) in &discovered.failed {
                    tracing::info!(name, why, "discovery of this group version failed");
                }
                let kept = self.synced_resources();
                deletable_resources(&discovered, &kept, |resource| self.observer.ignores(resource))
            }
            Err(failure) => {
                tracing::info!(%failure, "discovery failed");
                None
            }
        };
        let Some(wanted) = wanted else { return self.count_failure() };
        let changed = self.observe(&wanted, caches);
        self.discoveries.modify(|discoveries| discoveries + 1);
        if changed {
            self.context.rest_mapper.invalidate();
            let listed = async {
                for syncing in self.syncing() {
                    syncing.await;
                }
            };
            if tokio::time::timeout(DISCOVERY_PERIOD, listed).await.is_err() {
                tracing::warn!(resources = ?self.unsynced(), "resources not listed within 30 s, observing the others");
                self.count_failure();
            }
        }
    }

    fn count_failure(&self) {
        if self.sink.read().is_none() {
            return;
        }
        self.context.metrics.measure(&self.observer.failures().increment(&[]));
    }

    /// Starts and stops monitors as wanted, and returns whether the set of resources has changed.
    fn observe(&self, wanted: &BTreeSet<Resource>, caches: &Caches) -> bool {
        let mut monitors = self.monitors.lock();
        let known: BTreeSet<Resource> = monitors.keys().cloned().collect();
        for resource in known.difference(wanted) {
            // It is observed in another version from now on, or it is not served any more.
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
            let monitor = Monitor::new(shared.is_some(), self.context.stop.child_token());
            let feed = self.feed(resource);
            match shared {
                Some(cache) => self.context.tasks.spawn(monitor.observe_cache(feed, cache)),
                None => {
                    let (client, random) = (self.context.client.clone(), self.context.random.fork());
                    self.context.tasks.spawn(monitor.observe_watch(feed, client, random, caches))
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
            clocks: self.context.clocks.clone(),
            metrics: self.context.metrics.clone(),
            queue_metrics: self.queue_metrics.clone(),
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
