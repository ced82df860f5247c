//! Delivers the objects of every served resource to observers.
//!
//! Discovery runs every 30 s; resources come and go while the process runs. A resource with a shared,
//! unfiltered cache is observed there, so that it is neither read nor kept twice; of all others only metadata
//! is read, by one list and watch for all observers, and it is kept by nothing but the observers.

mod deletable_resources;
mod feed;
mod partial_metadata;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keleustes_client::{RestMapper, discover};
use keleustes_objects::{DiscoveredResources, Resource, ResourceVersion};
use keleustes_plan::{Effects, MonitorState, Observer};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::deletable_resources::deletable_resources;
use self::feed::{Feed, Monitor, Subscriber};
use crate::caches::{Caches, InformerClients};
use crate::clock::{Clocks, Random};
use crate::list_progress::ListProgress;
use crate::metrics::{Metrics, QueueSnapshot};
use crate::ordered_watch::OrderedWatch;

/// How long after one discovery the next one starts, and how long to wait for newly found resources to be
/// listed.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);

/// Takes the effects of an observer.
pub type EffectsSink = Arc<dyn Fn(Effects) + Send + Sync>;

/// What monitors need from their process.
pub(crate) struct MonitorContext {
    pub(crate) clients: InformerClients,
    pub(crate) rest_mapper: RestMapper,
    pub(crate) clocks: Clocks,
    pub(crate) random: Random,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// The monitors of all observers of a process.
pub struct Monitors {
    context: MonitorContext,
    subscribers: Mutex<Vec<Arc<Subscriber>>>,
    monitors: Mutex<BTreeMap<Resource, Monitor>>,
    /// Monitors of resources that are no longer served; each stops when its watch fails.
    retired: Mutex<BTreeMap<Resource, Monitor>>,
    /// How many discoveries have been completed, and how many subscribers they took into account.
    discoveries: OrderedWatch<(u64, usize)>,
    /// How many observers have subscribed.
    subscriptions: OrderedWatch<usize>,
}

impl Monitors {
    /// Starts discovery, for observers that subscribe now or later.
    pub(crate) fn start(context: MonitorContext, caches: Caches) -> Arc<Self> {
        let monitors = Arc::new(Self {
            context,
            subscribers: Mutex::default(),
            monitors: Mutex::default(),
            retired: Mutex::default(),
            discoveries: OrderedWatch::new((0, 0)),
            subscriptions: OrderedWatch::new(0),
        });
        monitors.context.tasks.spawn(monitors.clone().discover_periodically(caches));
        monitors
    }

    /// Delivers all objects to this observer, too, unless it has subscribed already.
    pub(crate) fn subscribe(&self, observer: &Arc<dyn Observer>) {
        let mut subscribers = self.subscribers.lock();
        if subscribers.iter().any(|known| Arc::ptr_eq(&known.observer, observer)) {
            return;
        }
        self.context.metrics.expose_panics(observer.queue().unwrap_or("observer"));
        subscribers.push(Arc::new(Subscriber {
            observer: observer.clone(),
            sink: RwLock::default(),
            queue_metrics: OnceLock::new(),
        }));
        let count = subscribers.len();
        drop(subscribers);
        self.subscriptions.set(count);
    }

    /// Returns as soon as all known resources, at least one, have been listed for all observers.
    pub async fn wait_for_sync(&self) {
        self.wait_until_synced(None).await;
    }

    /// Returns as soon as all known resources that this observer observes, at least one, have been listed.
    pub async fn wait_for_sync_of(&self, observer: &Arc<dyn Observer>) {
        self.wait_until_synced(self.subscriber(observer).as_ref()).await;
    }

    async fn wait_until_synced(&self, subscriber: Option<&Arc<Subscriber>>) {
        let subscribers = self.subscribers.lock().len();
        self.discoveries.wait_for(|(_, known)| known >= subscribers).await;
        let mut seen = self.discoveries.get();
        loop {
            for syncing in self.syncing(subscriber) {
                syncing.await;
            }
            if self.all_synced(subscriber) {
                return;
            }
            self.discoveries.wait_for(|discoveries| discoveries != seen).await;
            seen = self.discoveries.get();
        }
    }

    /// The lists and watches that these monitors do not share with a cache, each with what ends it.
    pub(crate) fn own_watches(&self) -> Vec<(Resource, Arc<ListProgress>, CancellationToken)> {
        let monitors = self.monitors.lock();
        let own = monitors.iter().filter_map(|(resource, monitor)| {
            let (progress, stop) = monitor.own_watch()?;
            Some((resource.clone(), progress, stop))
        });
        own.collect()
    }

    /// The resources with a list and watch of the monitors' own, each with the resourceVersion that it has reached;
    /// `None` before the first list.
    #[must_use]
    pub fn reached(&self) -> Vec<(Resource, Option<ResourceVersion>)> {
        let own = self.own_watches().into_iter();
        let reached =
            |progress: &ListProgress| progress.last_event_version().or(progress.last_list_version());
        own.map(|(resource, progress, _)| (resource, reached(&progress))).collect()
    }

    /// How far the monitor of a resource is. One that has not delivered its first list gets this long to do so.
    pub(crate) async fn state_of(
        &self,
        resource: &Resource,
        wait: Duration,
        caches: &Caches,
    ) -> MonitorState {
        let Some(syncing) = self.monitors.lock().get(resource).map(Monitor::syncing) else {
            return MonitorState::Missing;
        };
        let _elapsed = tokio::time::timeout(wait, syncing).await;
        let reached = match self.monitors.lock().get(resource) {
            // It was retired meanwhile.
            None => return MonitorState::Missing,
            Some(monitor) if !monitor.is_synced() => None,
            Some(monitor) if monitor.is_shared => {
                caches.unfiltered_cache(resource).map(|cache| cache.resource_version())
            }
            Some(monitor) => monitor.own_watch().and_then(|(progress, _)| progress.reached_version()),
        };
        reached.map_or(MonitorState::Listing, MonitorState::Reached)
    }

    /// From now on the effects of an observer go to this sink, starting with those of `on_start_leading`.
    pub fn start_leading(&self, observer: &Arc<dyn Observer>, sink: &EffectsSink) {
        let Some(subscriber) = self.subscriber(observer) else { return };
        // These metrics appear only once this process processes effects, as with the original.
        observer.failures().into_iter().for_each(|failures| self.context.metrics.declare(failures));
        if let Some(queue) = observer.queue() {
            subscriber.queue_metrics.get_or_init(|| {
                let queue_metrics = self.context.metrics.queue(queue);
                // Changes are processed immediately, so nothing ever waits.
                queue_metrics.watch(|| Some(QueueSnapshot::default()));
                queue_metrics
            });
        }
        *subscriber.sink.write() = Some(sink.clone());
        let mut effects = Effects::default();
        observer.on_start_leading(&mut effects);
        sink(effects);
    }

    /// Keeps observing, but drops all effects of an observer.
    pub fn stop_leading(&self, observer: &Arc<dyn Observer>) {
        if let Some(subscriber) = self.subscriber(observer) {
            *subscriber.sink.write() = None;
        }
    }

    fn subscriber(&self, observer: &Arc<dyn Observer>) -> Option<Arc<Subscriber>> {
        self.subscribers.lock().iter().find(|known| Arc::ptr_eq(&known.observer, observer)).cloned()
    }

    async fn discover_periodically(self: Arc<Self>, caches: Caches) {
        let stop = self.context.stop.clone();
        let discoveries = async {
            loop {
                let known = self.subscribers.lock().len();
                self.discover_once(&caches).await;
                // A new observer does not wait for the next discovery.
                let subscribed = self.subscriptions.wait_for(|subscriptions| subscriptions > known);
                let _elapsed = tokio::time::timeout(DISCOVERY_PERIOD, subscribed).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = discoveries => {}
        }
    }

    async fn discover_once(&self, caches: &Caches) {
        let subscribers = self.subscribers.lock().clone();
        let found = match discover(&self.context.clients.discovery).await {
            Ok(discovered) => {
                for (name, why) in &discovered.failed {
                    tracing::info!(name, why, "discovery of this group version failed");
                }
                let is_ignored = |one: &_| subscribers.iter().all(|known| known.observer.ignores(one));
                deletable_resources(&discovered, &self.synced_resources(), is_ignored)
                    .map(|wanted| (wanted, discovered))
            }
            Err(failure) => {
                tracing::info!(%failure, "discovery failed");
                None
            }
        };
        let Some((wanted, discovered)) = found else { return self.count_failure() };
        let changed = self.observe(&wanted, &discovered, &subscribers, caches);
        self.discoveries.modify(|(discoveries, _)| (discoveries + 1, subscribers.len()));
        if changed {
            self.context.rest_mapper.invalidate();
            let listed = async {
                for syncing in self.syncing(None) {
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
        let leading = |subscriber: &&Arc<Subscriber>| subscriber.sink.read().is_some();
        for subscriber in self.subscribers.lock().iter().filter(leading) {
            let failures = subscriber.observer.failures().into_iter();
            failures.for_each(|failures| self.context.metrics.measure(&failures.increment(&[])));
        }
    }

    /// Starts and stops monitors as wanted, and returns whether the set of resources has changed.
    fn observe(
        &self,
        wanted: &BTreeSet<Resource>,
        discovered: &DiscoveredResources,
        subscribers: &[Arc<Subscriber>],
        caches: &Caches,
    ) -> bool {
        self.forget_stopped(wanted, caches);
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
            let before = monitors.remove(resource);
            let fitting = before.as_ref().is_some_and(fits);
            let (monitor, before) = match before {
                Some(monitor) if fitting => (monitor, None),
                before => {
                    let (stop, clocks) = (self.context.stop.child_token(), self.context.clocks.clone());
                    (Monitor::new(shared.is_some(), stop, clocks), before)
                }
            };
            // The verbs of a resource whose group version cannot be discovered now are not known.
            let found = discovered.resources.iter().find(|one| one.resource == *resource);
            let wants = |subscriber: &&Arc<Subscriber>| {
                !monitor.feeds(subscriber) && found.is_some_and(|one| !subscriber.observer.ignores(one))
            };
            for subscriber in subscribers.iter().filter(wants) {
                subscriber.observer.on_resource(resource);
                monitor.subscribe(subscriber.clone(), fitting);
                if let Some(cache) = &shared {
                    let alone = Arc::new(RwLock::new(vec![subscriber.clone()]));
                    let feed = self.feed(resource, alone);
                    self.context.tasks.spawn(monitor.observe_cache(feed, cache.clone()));
                }
            }
            if !fitting && shared.is_none() {
                self.start_watch(resource, &monitor, caches);
            }
            monitors.insert(resource.clone(), monitor);
            [before, self.retired.lock().remove(resource)].iter().flatten().for_each(Monitor::stop);
        }
        known != *wanted
    }

    /// Frees the monitors of resources that are not served any more, and their metrics: custom kinds may come and go for years.
    fn forget_stopped(&self, wanted: &BTreeSet<Resource>, caches: &Caches) {
        self.retired.lock().retain(|resource, monitor| {
            let same = |one: &Resource| (&one.group, &one.plural) == (&resource.group, &resource.plural);
            if monitor.is_stopped() && !wanted.iter().any(same) && caches.unfiltered_cache(resource).is_none()
            {
                self.context.metrics.forget_undecodable(resource);
            }
            !monitor.is_stopped()
        });
    }

    /// Starts the list and watch of a monitor that shares no cache.
    fn start_watch(&self, resource: &Resource, monitor: &Monitor, caches: &Caches) {
        let feed = self.feed(resource, monitor.subscribers().clone());
        let (client, random) = (self.context.clients.metadata.clone(), self.context.random.fork());
        self.context.tasks.spawn(monitor.observe_watch(feed, client, random, caches));
    }

    fn feed(&self, resource: &Resource, subscribers: Arc<RwLock<Vec<Arc<Subscriber>>>>) -> Feed {
        Feed {
            resource: resource.clone(),
            subscribers,
            clocks: self.context.clocks.clone(),
            metrics: self.context.metrics.clone(),
        }
    }

    fn syncing(&self, subscriber: Option<&Arc<Subscriber>>) -> Vec<impl Future<Output = ()> + use<>> {
        self.monitors_of(subscriber, |_, monitor| monitor.syncing())
    }

    fn all_synced(&self, subscriber: Option<&Arc<Subscriber>>) -> bool {
        let synced = self.monitors_of(subscriber, |_, monitor| monitor.is_synced());
        !synced.is_empty() && synced.into_iter().all(|synced| synced)
    }

    /// What `read` reads of the monitors of one subscriber, or of all.
    fn monitors_of<R>(
        &self,
        subscriber: Option<&Arc<Subscriber>>,
        read: impl Fn(&Resource, &Monitor) -> R,
    ) -> Vec<R> {
        let monitors = self.monitors.lock();
        let is_fed = |monitor: &Monitor| subscriber.is_none_or(|subscriber| monitor.feeds(subscriber));
        monitors.iter().filter(|(_, monitor)| is_fed(monitor)).map(|(name, one)| read(name, one)).collect()
    }

    fn synced_resources(&self) -> BTreeSet<Resource> {
        let synced = self.monitors_of(None, |name, monitor| monitor.is_synced().then(|| name.clone()));
        synced.into_iter().flatten().collect()
    }

    fn unsynced(&self) -> Vec<String> {
        let unsynced =
            self.monitors_of(None, |name, monitor| (!monitor.is_synced()).then(|| name.to_string()));
        unsynced.into_iter().flatten().collect()
    }
}
