//! One shared cache per kind: filled by one list and watch, read by every controller that declared it.
//!
//! A cache calls its event handlers only after the store holds the change, in the order of the watch, and a
//! handler that is added late first gets every object as an addition. Event handlers run on the task that
//! reads the watch: they are pure and short, so there is no second queue between the watch and the work
//! queues.
//!
//! Locks are taken in one order everywhere: the event handlers of one cache, then the state of a gate, then
//! stores by rank. None of them is held while waiting for the network.

mod undo;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keleustes_client::{Delta, ListWatch, Reflector, ReflectorObserver, RestMapper};
use keleustes_objects::{ApiError, Key, ObjectMeta, PodParts, Projection, Resource, ResourceVersion, Uid};
use keleustes_plan::{AnyChange, AnyObject, AnyStore, DeclaredIndex, KindEntry, Observer, View};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Clocks, Random};
use crate::failure_log::FailureLog;
use crate::handover::WrittenVersions;
use crate::list_progress::{Advance, ListProgress};
use crate::metrics::{CacheMetrics, Metrics};
use crate::monitors::{MonitorContext, Monitors};
use crate::ordered_watch::OrderedWatch;

pub(crate) use self::undo::Undo;

/// The shortest resync period, whatever is configured.
pub(crate) const RESYNC_PERIOD_MIN: Duration = Duration::from_secs(1);

/// All caches of a process, one per kind.
#[derive(Clone)]
pub struct Caches(Arc<Shared>);

/// The clients of caches and monitors, each with a user agent of its own, as in the original.
#[derive(Clone)]
pub struct InformerClients {
    /// Lists and watches the kinds that controllers read.
    pub informers: kube::Client,
    /// Lists and watches the metadata of all other kinds.
    pub metadata: kube::Client,
    /// Discovers the served resources.
    pub discovery: kube::Client,
}

impl From<kube::Client> for InformerClients {
    /// One client for everything.
    fn from(client: kube::Client) -> Self {
        Self { informers: client.clone(), metadata: client.clone(), discovery: client }
    }
}

struct Shared {
    clients: InformerClients,
    clocks: Clocks,
    random: Random,
    metrics: Metrics,
    resync_period: Option<Duration>,
    uses_watch_list: AtomicBool,
    /// The parts of pods that some controller of the process reads.
    pod_parts: Mutex<PodParts>,
    caches: Mutex<Vec<Arc<Cache>>>,
    monitors: Mutex<Option<Arc<Monitors>>>,
    rest_mapper: RestMapper,
    written_versions: WrittenVersions,
    failures: Arc<FailureLog>,
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
    /// How far the store is, and which lists were requested.
    progress: Arc<ListProgress>,
    /// Locked while changes are delivered, so that a handler added late gets every object first and then
    /// every change.
    event_handlers: Mutex<Vec<Arc<dyn EventHandler>>>,
    /// Why the last list or watch failed, until the next one succeeds.
    last_failure: Mutex<Option<String>>,
    clocks: Clocks,
    metrics: Metrics,
    counts: Option<CacheMetrics>,
    /// Why the API server refused the last list or watch; `None` after a list.
    refusal: Mutex<Option<ApiError>>,
    /// Whether the API server has accepted a list or watch.
    was_accepted: AtomicBool,
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
    /// No caches yet; they list and watch through these clients. With a resync period, every object is
    /// delivered again to the event handlers after once to twice that time; zero means never.
    #[must_use]
    pub fn new(
        clients: impl Into<InformerClients>,
        clocks: Clocks,
        random: Random,
        metrics: Metrics,
        resync_period: Option<Duration>,
    ) -> Self {
        let clients = clients.into();
        for part in ["cache", "event-handler"] {
            metrics.expose_panics(part);
        }
        Self(Arc::new(Shared {
            rest_mapper: RestMapper::new(clients.discovery.clone()),
            written_versions: WrittenVersions::new(clocks.clone()),
            failures: Arc::new(FailureLog::new(clocks.clone())),
            clients,
            clocks,
            random,
            metrics,
            resync_period: resync_period.filter(|period| !period.is_zero()),
            uses_watch_list: AtomicBool::new(true),
            pod_parts: Mutex::default(),
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

    /// Declares parts of pods that controllers read. The cache of pods keeps all declared parts, so this comes before the
    /// cache starts.
    pub fn declare_pod_parts(&self, parts: PodParts) {
        let mut declared = self.0.pod_parts.lock();
        *declared = declared.and(parts);
    }

    /// The cache of a kind. The first call starts it; no kind is listed twice.
    ///
    /// # Panics
    /// If the cache of pods has started without parts that the entry reads: see [`Caches::declare_pod_parts`].
    #[must_use]
    pub fn cache(&self, entry: &KindEntry) -> Arc<Cache> {
        let shared = &self.0;
        let mut caches = shared.caches.lock();
        if let Some(there) = caches.iter().find(|cache| cache.entry == *entry) {
            let (wanted, kept) = (entry.pod_parts(), there.entry.pod_parts());
            assert!(kept.contains(wanted), "the cache of {entry:?} keeps {kept:?} and not {wanted:?}");
            return there.clone();
        }
        shared.metrics.expose_undecodable(entry.resource());
        let cache = Arc::new(Cache {
            entry: entry.clone().keeping(*shared.pod_parts.lock()),
            rank: caches.len(),
            store: RwLock::new(entry.new_store()),
            list_count: OrderedWatch::new(0),
            progress: Arc::new(ListProgress::new(shared.clocks.clone())),
            event_handlers: Mutex::default(),
            last_failure: Mutex::default(),
            clocks: shared.clocks.clone(),
            metrics: shared.metrics.clone(),
            counts: shared.metrics.cache(entry),
            refusal: Mutex::default(),
            was_accepted: AtomicBool::new(false),
        });
        caches.push(cache.clone());
        shared.tasks.spawn(self.fill(cache.clone()));
        cache
    }

    /// The cache of all objects of a resource, if there is one already.
    #[must_use]
    pub fn unfiltered_cache(&self, resource: &Resource) -> Option<Arc<Cache>> {
        let holds_all = |cache: &&Arc<Cache>| {
            let (there, projection) = (cache.entry.resource(), cache.entry.projection());
            projection.field_selector.is_none()
                && projection.namespace.is_empty()
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

    /// The monitors, if they have been started.
    #[must_use]
    pub fn all_monitors(&self) -> Option<Arc<Monitors>> {
        self.0.monitors.lock().clone()
    }

    /// The monitors, which all observers share. The first call starts them.
    #[must_use]
    pub fn monitors(&self, observer: &Arc<dyn Observer>) -> Arc<Monitors> {
        let shared = &self.0;
        let mut monitors = shared.monitors.lock();
        if let Some(there) = &*monitors {
            there.subscribe(observer);
            return there.clone();
        }
        let ground = MonitorContext {
            clients: shared.clients.clone(),
            rest_mapper: shared.rest_mapper.clone(),
            clocks: shared.clocks.clone(),
            random: shared.random.clone(),
            metrics: shared.metrics.clone(),
            tasks: shared.tasks.clone(),
            stop: shared.stop.clone(),
        };
        let started = Monitors::start(ground, self.clone());
        started.subscribe(observer);
        *monitors = Some(started.clone());
        started
    }

    /// The client that lists and watches.
    #[must_use]
    pub fn client(&self) -> &kube::Client {
        &self.0.clients.informers
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

    /// Which failures of lists and watches are logged.
    pub(crate) fn failures(&self) -> &Arc<FailureLog> {
        &self.0.failures
    }

    /// The resources whose caches have not had their first list yet, without those that the server need not serve.
    #[must_use]
    pub fn unsynced(&self) -> Vec<String> {
        let caches = self.0.caches.lock();
        caches
            .iter()
            .filter(|cache| cache.list_count() == 0 && !cache.entry.projection().optional)
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
        let observer = Arc::new(ErrorObserver { failures: shared.failures.clone(), cache: cache.clone() });
        let reflector =
            Reflector::new(shared.clients.informers.clone(), source, random).with_observer(observer);
        let mut reflector = self.with_list_mode(reflector);
        async move {
            let mut timer = pin!(tokio::time::sleep(period.unwrap_or_default()));
            let mut requested_list = 1;
            loop {
                let restarts_timer = tokio::select! {
                    biased;
                    () = shared.stop.cancelled() => return,
                    number = cache.progress.wait_for_request_after(requested_list) => {
                        requested_list = number;
                        reflector.relist();
                        false
                    }
                    delta = reflector.next() => {
                        // A relist counts as a resync.
                        let is_list = matches!(delta, Delta::Replace { .. });
                        cache.contain("cache", || cache.store_delta(delta));
                        if is_list {
                            cache.progress.list_delivered(requested_list);
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

/// The objects of a kind, in the namespace of its projection or in all.
pub(crate) fn source(entry: &KindEntry) -> ListWatch<Arc<dyn AnyObject>> {
    ListWatch {
        resource: entry.resource().clone(),
        namespace: entry.projection().namespace.to_owned(),
        label_selector: String::new(),
        field_selector: String::new(),
        projection: entry.projection().clone(),
        accepts_protobuf: entry.supports_protobuf(),
        decoder: entry.decoder(),
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

    /// The resource with the namespace and the field selector of the projection, as one word.
    #[must_use]
    pub fn name(&self) -> String {
        let Projection { namespace, field_selector, .. } = self.entry.projection();
        let (slash, question_mark) =
            (if namespace.is_empty() { "" } else { "/" }, if field_selector.is_some() { "?" } else { "" });
        let selector = field_selector.unwrap_or_default();
        format!("{namespace}{slash}{}{question_mark}{selector}", self.entry.resource())
    }

    /// How far the store is, and which lists were requested. The store keeps its content until a requested list
    /// has come.
    #[must_use]
    pub fn progress(&self) -> &Arc<ListProgress> {
        &self.progress
    }

    /// Returns when the store holds a list that was requested at this monotonic time or later. A list that is
    /// running or done already counts.
    pub async fn wait_for_list_since(&self, moment: Duration) {
        self.progress.wait_for_list_since(moment).await;
    }

    /// Returns as soon as the store holds its first list. Never, if the caches are stopped before: the caller
    /// has to stop waiting then.
    pub async fn wait_for_sync(&self) {
        self.list_count.wait_for(|lists| lists > 0).await;
    }

    /// Why the cache has no list yet, if the API server refused its requests: the kind is not served, or this process may
    /// not list it. Other failures pass by themselves and are not reported.
    #[must_use]
    pub fn refusal(&self) -> Option<ApiError> {
        let is_needed = self.list_count() == 0 && !self.entry.projection().optional;
        self.refusal.lock().clone().filter(|_| is_needed)
    }

    /// Whether the API server has not answered yet, and may still refuse the kind. A list that it has begun to send is no
    /// refusal any more, however long it takes.
    #[must_use]
    pub fn may_be_refused(&self) -> bool {
        let was_accepted = self.was_accepted.load(Ordering::Acquire);
        !was_accepted && self.refusal().is_none() && !self.entry.projection().optional
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

    /// One object.
    #[must_use]
    pub fn object(&self, key: &Key) -> Option<Arc<dyn AnyObject>> {
        self.store.read().object(key)
    }

    /// Calls `f` with the metadata of every object, under the read lock.
    pub fn for_each_meta(&self, f: &mut dyn FnMut(&ObjectMeta)) {
        self.store.read().for_each_meta(f);
    }

    /// Why the last list or watch failed; `None` if it did not.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().clone()
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
        self.last_failure.lock().take();
        let began = self.clocks.monotonic();
        let event_handlers = self.event_handlers.lock();
        let (advance, size) = match &delta {
            Delta::Replace { objects, .. } => (Advance::List, objects.len()),
            Delta::Apply(_) | Delta::Delete(_) | Delta::DeleteKey { .. } => (Advance::Event, 1),
            Delta::Bookmark(_) => (Advance::Bookmark, 0),
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
        self.progress.advance(advance, &version);
        if advance == Advance::List {
            self.list_count.modify(|lists| lists + 1);
        }
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
    failures: Arc<FailureLog>,
    cache: Arc<Cache>,
}

impl ReflectorObserver for ErrorObserver {
    fn accepted(&self) {
        self.cache.was_accepted.store(true, Ordering::Release);
        *self.cache.refusal.lock() = None;
    }

    fn undecodable(&self, resource: &Resource, _object: &str) {
        self.cache.metrics.undecodable(resource);
    }

    fn failed(&self, resource: &Resource, failure: &ApiError) {
        log_failure(&self.failures, resource, failure);
        *self.cache.last_failure.lock() = Some(failure.to_string());
        let is_refused = matches!(failure.code, 401 | 403 | 404 | 405);
        *self.cache.refusal.lock() = is_refused.then(|| failure.clone());
    }
}

/// Logs a failed list or watch, unless an equal failure was logged just now, perhaps for another resource.
pub(crate) fn log_failure(failures: &FailureLog, resource: &Resource, failure: &ApiError) {
    if let Some(others) = failures.note(&failure.to_string()) {
        tracing::warn!(%resource, %failure, others, "list or watch failed, retrying");
    }
}
