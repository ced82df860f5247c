//! One shared cache per kind: filled by one list and watch, read by every controller that declared it.
//!
//! A cache calls its event handlers only after the store holds the change, in the order of the watch, and a
//! handler that is added late first gets every object as an addition. Event handlers run on the task that
//! reads the watch: they are pure and short, so there is no second queue between the watch and the work
//! queues.
//!
//! Locks are taken in one order everywhere: the event handlers of one cache, then the state of a gate, then
//! stores by rank. None of them is held while waiting for the network.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keleustes_client::{Delta, ListWatch, Reflector, ReflectorObserver, RestMapper};
use keleustes_objects::{ApiError, Key, ObjectMeta, Resource, ResourceVersion, Uid};
use keleustes_plan::{AnyChange, AnyObject, AnyStore, DeclaredIndex, KindEntry, Observer, View};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Clocks, Random};
use crate::handover::WrittenVersions;
use crate::metrics::{CacheMetrics, Metrics};
use crate::monitors::{MonitorContext, Monitors};
use crate::ordered_watch::OrderedWatch;

/// The shortest resync period, whatever is configured.
pub(crate) const RESYNC_PERIOD_MIN: Duration = Duration::from_secs(1);

/// All caches of a process, one per kind.
#[derive(Clone)]
pub struct Caches(Arc<Shared>);

struct Shared {
    client: kube::Client,
    clocks: Clocks,
    random: Random,
    metrics: Metrics,
    resync_period: Option<Duration>,
    uses_watch_list: AtomicBool,
    caches: Mutex<Vec<Arc<Cache>>>,
    monitors: Mutex<Vec<Arc<Monitors>>>,
    rest_mapper: RestMapper,
    written_versions: WrittenVersions,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Receives the changes of one cache.
pub trait EventHandler: Send + Sync {
    /// The store holds these changes now. Empty if the cache only advanced to a newer resourceVersion (a
    /// bookmark).
    fn on_changes(&self, changes: &[AnyChange]);
}

/// The cache of one kind.
pub struct Cache {
    entry: KindEntry,
    /// Its place in the order in which stores are locked.
    rank: usize,
    store: RwLock<Box<dyn AnyStore>>,
    /// How many lists the store has taken over.
    list_count: OrderedWatch<u64>,
    /// How many deltas of any kind the store has taken over.
    deltas: OrderedWatch<u64>,
    /// The number of the last list that was requested; the first one is 1.
    requested_list: OrderedWatch<u64>,
    /// The number of the last list that was stored.
    stored_list: OrderedWatch<u64>,
    /// When the last list was requested, and its number.
    last_request: Mutex<(Duration, u64)>,
    /// The resourceVersion of the last watch event about an object.
    last_event_version: Mutex<Option<ResourceVersion>>,
    /// The resourceVersion of the last list.
    last_list_version: Mutex<Option<ResourceVersion>>,
    /// Locked while changes are delivered, so that a handler added late gets every object first and then
    /// every change.
    event_handlers: Mutex<Vec<Arc<dyn EventHandler>>>,
    clocks: Clocks,
    metrics: Metrics,
    counts: Option<CacheMetrics>,
}

/// Reads several caches together, at one moment.
#[derive(Clone)]
pub struct CacheReader {
    /// By rank: two readers that lock in different orders could deadlock.
    caches: Vec<Arc<Cache>>,
    /// Kinds that are hidden until [`CacheReader::show_deferred`].
    deferred: Vec<KindEntry>,
    shows_deferred: Arc<AtomicBool>,
    clocks: Clocks,
}

impl Caches {
    /// No caches yet; they list and watch through this client. With a resync period, every object is
    /// delivered again to the event handlers after once to twice that time; zero means never.
    #[must_use]
    pub fn new(
        client: kube::Client,
        clocks: Clocks,
        random: Random,
        metrics: Metrics,
        resync_period: Option<Duration>,
    ) -> Self {
        Self(Arc::new(Shared {
            rest_mapper: RestMapper::new(client.clone()),
            written_versions: WrittenVersions::new(clocks.clone()),
            client,
            clocks,
            random,
            metrics,
            resync_period: resync_period.filter(|period| !period.is_zero()),
            uses_watch_list: AtomicBool::new(true),
            caches: Mutex::default(),
            monitors: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Caches that start from now on list before they watch, and send no watch-list requests (feature gate
    /// `WatchListClient` off).
    pub fn disable_watch_list(&self) {
        self.0.uses_watch_list.store(false, Ordering::Release);
    }

    /// A reflector that lists as the caches do.
    pub(crate) fn with_list_mode<T>(&self, reflector: Reflector<T>) -> Reflector<T> {
        if self.0.uses_watch_list.load(Ordering::Acquire) {
            reflector
        } else {
            reflector.without_watch_list()
        }
    }

    /// The cache of a kind. The first call starts it; no kind is listed twice.
    #[must_use]
    pub fn cache(&self, entry: &KindEntry) -> Arc<Cache> {
        let shared = &self.0;
        let mut caches = shared.caches.lock();
        if let Some(there) = caches.iter().find(|cache| cache.entry == *entry) {
            return there.clone();
        }
        let cache = Arc::new(Cache {
            entry: entry.clone(),
            rank: caches.len(),
            store: RwLock::new(entry.new_store()),
            list_count: OrderedWatch::new(0),
            deltas: OrderedWatch::new(0),
            requested_list: OrderedWatch::new(1),
            stored_list: OrderedWatch::new(0),
            last_request: Mutex::new((shared.clocks.monotonic(), 1)),
            last_event_version: Mutex::default(),
            last_list_version: Mutex::default(),
            event_handlers: Mutex::default(),
            clocks: shared.clocks.clone(),
            metrics: shared.metrics.clone(),
            counts: shared.metrics.cache(entry),
        });
        caches.push(cache.clone());
        shared.tasks.spawn(self.fill(cache.clone()));
        cache
    }

    /// The cache of a resource without a field selector, if there is one already.
    #[must_use]
    pub fn unfiltered_cache(&self, resource: &Resource) -> Option<Arc<Cache>> {
        let holds_all = |cache: &&Arc<Cache>| {
            let (there, projection) = (cache.entry.resource(), cache.entry.projection());
            projection.field_selector.is_none()
                && (&there.group, &there.version, &there.plural)
                    == (&resource.group, &resource.version, &resource.plural)
        };
        self.0.caches.lock().iter().find(holds_all).cloned()
    }

    /// The versions written by this process, for the next leader.
    #[must_use]
    pub fn written_versions(&self) -> &WrittenVersions {
        &self.0.written_versions
    }

    /// All caches.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Cache>> {
        self.0.caches.lock().clone()
    }

    /// The monitors of an observer. The first call starts them.
    #[must_use]
    pub fn monitors(&self, observer: &Arc<dyn Observer>) -> Arc<Monitors> {
        let shared = &self.0;
        let mut monitors = shared.monitors.lock();
        if let Some(there) = monitors.iter().find(|there| there.is_for(observer)) {
            return there.clone();
        }
        let ground = MonitorContext {
            client: shared.client.clone(),
            rest_mapper: shared.rest_mapper.clone(),
            clocks: shared.clocks.clone(),
            random: shared.random.clone(),
            metrics: shared.metrics.clone(),
            tasks: shared.tasks.clone(),
            stop: shared.stop.clone(),
        };
        let started = Monitors::start(observer.clone(), ground, self.clone());
        monitors.push(started.clone());
        started
    }

    /// The mapping from kinds to resources, discovered on demand and shared by all.
    #[must_use]
    pub fn rest_mapping(&self) -> &RestMapper {
        &self.0.rest_mapper
    }

    /// A reader of the caches of these kinds.
    #[must_use]
    pub fn reader(&self, entries: &[KindEntry]) -> CacheReader {
        let mut caches: Vec<_> = entries.iter().map(|entry| self.cache(entry)).collect();
        caches.sort_by_key(|cache| cache.rank);
        caches.dedup_by_key(|cache| cache.rank);
        CacheReader {
            caches,
            deferred: Vec::new(),
            shows_deferred: Arc::default(),
            clocks: self.0.clocks.clone(),
        }
    }

    /// Adds indexes to the caches of their kinds. An index that exists stays as it is.
    pub fn add_indexes(&self, indexes: &[DeclaredIndex]) {
        for index in indexes {
            index.add_to(&mut **self.cache(&index.kind).store.write());
        }
    }

    /// The resources whose caches have not had their first list yet.
    #[must_use]
    pub fn unsynced(&self) -> Vec<String> {
        let caches = self.0.caches.lock();
        caches
            .iter()
            .filter(|cache| cache.list_count() == 0)
            .map(|cache| cache.entry.resource().to_string())
            .collect()
    }

    /// Ends all lists and watches and returns when they have ended. The cached objects stay readable.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Fills a cache until the process stops.
    fn fill(&self, cache: Arc<Cache>) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.0.clone();
        let source = source(&cache.entry);
        let mut random = shared.random.fork();
        let factor = 1.0 + random.f64();
        let period = shared.resync_period.map(|period| period.mul_f64(factor).max(RESYNC_PERIOD_MIN));
        let observer = Arc::new(ErrorObserver { metrics: shared.metrics.clone() });
        let reflector = Reflector::new(shared.client.clone(), source, random).with_observer(observer);
        let mut reflector = self.with_list_mode(reflector);
        async move {
            let mut timer = pin!(tokio::time::sleep(period.unwrap_or_default()));
            let mut requested_list = 1;
            loop {
                let restarts_timer = tokio::select! {
                    biased;
                    () = shared.stop.cancelled() => return,
                    () = cache.requested_list.wait_for(|number| number > requested_list) => {
                        requested_list = cache.requested_list.get();
                        reflector.relist();
                        false
                    }
                    delta = reflector.next() => {
                        // A relist counts as a resync.
                        let is_list = matches!(delta, Delta::Replace { .. });
                        cache.contain("cache", || cache.store_delta(delta));
                        if is_list {
                            cache.stored_list.set(requested_list);
                        }
                        is_list
                    }
                    () = &mut timer, if period.is_some() => {
                        cache.resync();
                        true
                    }
                };
                if let Some(period) = period.filter(|_| restarts_timer) {
                    timer.as_mut().reset(Instant::now() + period);
                }
            }
        }
    }
}

impl CacheReader {
    /// The caches, in the order of their locks.
    #[must_use]
    pub fn caches(&self) -> &[Arc<Cache>] {
        &self.caches
    }

    /// The same reader, with some kinds hidden until [`CacheReader::show_deferred`].
    #[must_use]
    pub fn deferring(mut self, deferred: &[KindEntry]) -> Self {
        deferred.clone_into(&mut self.deferred);
        self
    }

    /// The caches that are visible from the start, or those that are hidden at first.
    #[must_use]
    pub fn caches_where_deferred(&self, is_deferred: bool) -> Vec<Arc<Cache>> {
        self.caches
            .iter()
            .filter(|cache| self.deferred.contains(&cache.entry) == is_deferred)
            .cloned()
            .collect()
    }

    /// Makes the hidden kinds visible.
    pub fn show_deferred(&self) {
        self.shows_deferred.store(true, Ordering::Release);
    }

    /// Calls `f` with a view, under the read locks of all stores. `f` must not call this method again.
    pub fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        let guards: Vec<RwLockReadGuard<'_, Box<dyn AnyStore>>> =
            self.caches.iter().map(|cache| cache.store.read()).collect();
        let shows_deferred = self.shows_deferred.load(Ordering::Acquire);
        let stores = self.caches.iter().zip(&guards).map(|(cache, guard)| (cache.entry.clone(), &***guard));
        let stores = stores.filter(|(entry, _)| shows_deferred || !self.deferred.contains(entry));
        f(&View::new(stores.collect(), self.clocks.now()));
    }
}

/// The objects of a kind in all namespaces.
pub(crate) fn source(entry: &KindEntry) -> ListWatch<Arc<dyn AnyObject>> {
    ListWatch {
        resource: entry.resource().clone(),
        projection: entry.projection().clone(),
        namespace: String::new(),
        accepts_protobuf: entry.supports_protobuf(),
        decode: entry.decode(),
        meta: meta_of,
    }
}

fn meta_of(object: &Arc<dyn AnyObject>) -> &ObjectMeta {
    object.meta()
}

impl Cache {
    /// The kind.
    #[must_use]
    pub fn entry(&self) -> &KindEntry {
        &self.entry
    }

    /// The resource and its field selector, as one word.
    #[must_use]
    pub fn name(&self) -> String {
        let selector = self.entry.projection().field_selector;
        selector.map_or_else(
            || self.entry.resource().to_string(),
            |selector| format!("{}?{selector}", self.entry.resource()),
        )
    }

    /// The resourceVersion of the last watch event about an object, if there was one. Every cache of the same
    /// objects receives it sooner or later, which does not hold for the resourceVersions of lists and
    /// bookmarks.
    #[must_use]
    pub fn last_event_version(&self) -> Option<ResourceVersion> {
        self.last_event_version.lock().clone()
    }

    /// The resourceVersion of the last list, if there was one.
    #[must_use]
    pub fn last_list_version(&self) -> Option<ResourceVersion> {
        self.last_list_version.lock().clone()
    }

    /// Whether the cache is at this resourceVersion or a later one. A cache without a list is not.
    #[must_use]
    pub fn is_at_least(&self, version: &ResourceVersion) -> bool {
        self.list_count() > 0 && !self.resource_version().is_older_than(version)
    }

    /// Returns as soon as the cache is at this resourceVersion or a later one.
    pub async fn wait_until_at_least(&self, version: &ResourceVersion) {
        self.deltas.wait_for(|_| self.is_at_least(version)).await;
    }

    /// Requests a list of the newest state. The store keeps its content until then. Returns the number of
    /// that list.
    pub fn request_relist(&self) -> u64 {
        let mut last_request = self.last_request.lock();
        self.requested_list.modify(|number| number + 1);
        let number = self.requested_list.get();
        *last_request = (self.clocks.monotonic(), number);
        number
    }

    /// Returns when the store holds a list that was requested at this monotonic time or later. A list that is
    /// running or done already counts.
    pub async fn wait_for_list_since(&self, moment: Duration) {
        let (requested_at, last) = *self.last_request.lock();
        let number = if requested_at >= moment { last } else { self.request_relist() };
        self.stored_list.wait_for(|stored_list| stored_list >= number).await;
    }

    /// Returns as soon as the store holds its first list. Never, if the caches are stopped before: the caller
    /// has to stop waiting then.
    pub async fn wait_for_sync(&self) {
        self.list_count.wait_for(|lists| lists > 0).await;
    }

    /// How many lists the store has taken over: one when it is first filled, one more after each gap in which
    /// watch events may have been missed.
    #[must_use]
    pub fn list_count(&self) -> u64 {
        self.list_count.get()
    }

    /// The resourceVersion that the cache has observed.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.store.read().resource_version().clone()
    }

    /// The UID of an object in the cache, if it is there.
    #[must_use]
    pub fn uid(&self, key: &Key) -> Option<Uid> {
        self.store.read().meta(key).map(|meta| meta.uid.clone())
    }

    /// Whether the object with this UID is no longer in the cache, or is terminating there.
    #[must_use]
    pub fn has_observed_deletion(&self, key: &Key, uid: &Uid) -> bool {
        self.store.read().meta(key).is_none_or(|meta| meta.uid != *uid || meta.deletion_timestamp.is_some())
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.read().len()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Delivers every object to a handler as an addition, and every change from then on. An event handler
    /// must not call this.
    pub fn add_event_handler(&self, handler: Arc<dyn EventHandler>) {
        let mut event_handlers = self.event_handlers.lock();
        let additions = self.store.read().additions();
        self.contain("event-handler", || handler.on_changes(&additions));
        event_handlers.push(handler);
    }

    /// Delivers every object to one handler again.
    pub fn resync_handler(&self, handler: &Arc<dyn EventHandler>) {
        let _delivering = self.event_handlers.lock();
        let again = self.store.read().resync();
        self.contain("event-handler", || handler.on_changes(&again));
    }

    /// Removes a handler, and returns when no delivery to it is running any more. An event handler must not
    /// call this.
    pub fn remove_event_handler(&self, handler: &Arc<dyn EventHandler>) {
        self.event_handlers.lock().retain(|there| !Arc::ptr_eq(there, handler));
    }

    fn store_delta(&self, delta: Delta<Arc<dyn AnyObject>>) {
        let began = self.clocks.monotonic();
        let event_handlers = self.event_handlers.lock();
        let (is_list, size) = match &delta {
            Delta::Replace { objects, .. } => (true, objects.len()),
            Delta::Apply(_) | Delta::Delete(_) | Delta::DeleteKey { .. } => (false, 1),
            Delta::Bookmark(_) => (false, 0),
        };
        if let Some(counts) = &self.counts {
            counts.reading(size);
        }
        let (changes, version) = {
            let mut store = self.store.write();
            let changes = match delta {
                Delta::Replace { objects, unreadable, version } => {
                    store.replace(objects, &unreadable, version)
                }
                Delta::Apply(object) => vec![store.apply(object)],
                Delta::Delete(object) => vec![store.delete(object)],
                Delta::DeleteKey { key, version, .. } => {
                    store.delete_key(&key, version).into_iter().collect()
                }
                Delta::Bookmark(version) => {
                    store.bookmark(version);
                    Vec::new()
                }
            };
            (changes, store.resource_version().clone())
        };
        if is_list {
            *self.last_list_version.lock() = Some(version.clone());
            self.list_count.modify(|lists| lists + 1);
        } else if size > 0 {
            *self.last_event_version.lock() = Some(version.clone());
        }
        self.deltas.modify(|deltas| deltas + 1);
        self.deliver(&event_handlers, &changes);
        if let Some(counts) = &self.counts {
            let took = self.clocks.monotonic().saturating_sub(began);
            counts.observe_delivery(&version, (size > 0).then_some(took));
        }
    }

    fn resync(&self) {
        let event_handlers = self.event_handlers.lock();
        let again = self.store.read().resync();
        self.deliver(&event_handlers, &again);
    }

    fn deliver(&self, event_handlers: &[Arc<dyn EventHandler>], changes: &[AnyChange]) {
        for handler in event_handlers {
            self.contain("event-handler", || handler.on_changes(changes));
        }
    }

    /// A panic over one object must not keep other handlers from receiving it, nor end the cache.
    fn contain(&self, what: &str, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.metrics.panicked(what);
            tracing::error!(resource = %self.entry.resource(), what, "contained a panic, which is a bug");
        }
    }
}

/// Counts and logs the errors of a reflector.
struct ErrorObserver {
    metrics: Metrics,
}

impl ReflectorObserver for ErrorObserver {
    fn undecodable(&self, resource: &Resource, _object: &str) {
        self.metrics.undecodable(resource);
    }

    fn failed(&self, resource: &Resource, failure: &ApiError) {
        tracing::warn!(%resource, %failure, "list or watch failed, retrying");
    }
}
