//! One shared cache per kind: filled by one list-and-watch, read by every controller that declared it.
//!
//! A cache tells its listeners of a change only after the table holds it, in the order in which the
//! server told it, and a listener that comes late is first shown everything that is there. What wakes
//! controllers runs right here, on the task that reads the wire: wake-ups are pure and short, so no
//! second queue stands between the wire and the work queues.
//!
//! Locks are taken in one order everywhere: the listeners of one cache, then the state of a gate, then
//! tables by rank. Nobody waits for the network with one of them in hand.

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

/// Objects are not shown again more often than this, whatever is asked for.
pub(crate) const RESYNC_PERIOD_MIN: Duration = Duration::from_secs(1);

/// All caches of a process, one per kind.
#[derive(Clone)]
pub struct Caches(Arc<Shared>);

struct Shared {
    client: kube::Client,
    clocks: Clocks,
    chance: Random,
    metrics: Metrics,
    resync_period: Option<Duration>,
    uses_watch_list: AtomicBool,
    caches: Mutex<Vec<Arc<Cache>>>,
    monitors: Mutex<Vec<Arc<Monitors>>>,
    mapping: RestMapper,
    deeds: WrittenVersions,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Hears of the changes to one cache.
pub trait EventHandler: Send + Sync {
    /// The table holds these changes now. Empty if the cache only learnt that nothing happened up to
    /// a newer version.
    fn on_changes(&self, changes: &[AnyChange]);
}

/// The cache of one kind.
pub struct Cache {
    entry: KindEntry,
    /// Its place in the order in which tables are locked.
    rank: usize,
    table: RwLock<Box<dyn AnyStore>>,
    /// How many whole lists the table has taken in.
    list_count: OrderedWatch<u64>,
    /// How many deltas of any kind it has taken in.
    deltas: OrderedWatch<u64>,
    /// How often somebody wanted it to be filled afresh, the first time included.
    afresh: OrderedWatch<u64>,
    /// How often that was wanted when the list was begun that was last taken in.
    filled: OrderedWatch<u64>,
    /// When that was last wanted, and how often by then.
    wanted_afresh: Mutex<(Duration, u64)>,
    /// The version of the last change to an object that a watch has told of.
    last_event_version: Mutex<Option<ResourceVersion>>,
    /// The version of the last list.
    last_list_version: Mutex<Option<ResourceVersion>>,
    /// Held while changes are told, so that a late listener gets every object and then every change.
    listeners: Mutex<Vec<Arc<dyn EventHandler>>>,
    clocks: Clocks,
    metrics: Metrics,
    counts: Option<CacheMetrics>,
}

/// Caches that are looked at together, as if all stood still at one moment.
#[derive(Clone)]
pub struct CacheReader {
    /// By rank: two who wait for each other's tables would wait for ever.
    caches: Vec<Arc<Cache>>,
    /// Kinds that are not shown until they are known to hold all that they must.
    late: Vec<KindEntry>,
    shows_late: Arc<AtomicBool>,
    clocks: Clocks,
}

impl Caches {
    /// No caches yet; they list and watch through this client. With a resync period every object is
    /// shown again to its listeners after that time or up to twice of it; zero means never.
    #[must_use]
    pub fn new(
        client: kube::Client,
        clocks: Clocks,
        chance: Random,
        metrics: Metrics,
        resync_period: Option<Duration>,
    ) -> Self {
        Self(Arc::new(Shared {
            mapping: RestMapper::new(client.clone()),
            deeds: WrittenVersions::new(clocks.clone()),
            client,
            clocks,
            chance,
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

    /// The cache of a kind. The first who asks starts it; nobody lists a kind twice.
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
            table: RwLock::new(entry.new_store()),
            list_count: OrderedWatch::new(0),
            deltas: OrderedWatch::new(0),
            afresh: OrderedWatch::new(1),
            filled: OrderedWatch::new(0),
            wanted_afresh: Mutex::new((shared.clocks.monotonic(), 1)),
            last_event_version: Mutex::default(),
            last_list_version: Mutex::default(),
            listeners: Mutex::default(),
            clocks: shared.clocks.clone(),
            metrics: shared.metrics.clone(),
            counts: shared.metrics.cache(entry),
        });
        caches.push(cache.clone());
        shared.tasks.spawn(self.fill(cache.clone()));
        cache
    }

    /// The cache that holds all objects of a resource, if there is one already.
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

    /// What was written by those who read them, for the next leader.
    #[must_use]
    pub fn written_versions(&self) -> &WrittenVersions {
        &self.0.deeds
    }

    /// All that there are.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Cache>> {
        self.0.caches.lock().clone()
    }

    /// The monitors of an observer of everything. The first who asks starts them.
    #[must_use]
    pub fn monitors(&self, observer: &Arc<dyn Observer>) -> Arc<Monitors> {
        let shared = &self.0;
        let mut monitors = shared.monitors.lock();
        if let Some(there) = monitors.iter().find(|there| there.is_for(observer)) {
            return there.clone();
        }
        let ground = MonitorContext {
            client: shared.client.clone(),
            mapping: shared.mapping.clone(),
            clocks: shared.clocks.clone(),
            chance: shared.chance.clone(),
            metrics: shared.metrics.clone(),
            tasks: shared.tasks.clone(),
            stop: shared.stop.clone(),
        };
        let started = Monitors::start(observer.clone(), ground, self.clone());
        monitors.push(started.clone());
        started
    }

    /// What kinds are served as, learnt when it is needed and shared by all.
    #[must_use]
    pub fn rest_mapping(&self) -> &RestMapper {
        &self.0.mapping
    }

    /// A window onto the caches of these kinds.
    #[must_use]
    pub fn reader(&self, entries: &[KindEntry]) -> CacheReader {
        let mut caches: Vec<_> = entries.iter().map(|entry| self.cache(entry)).collect();
        caches.sort_by_key(|cache| cache.rank);
        caches.dedup_by_key(|cache| cache.rank);
        CacheReader { caches, late: Vec::new(), shows_late: Arc::default(), clocks: self.0.clocks.clone() }
    }

    /// Adds indexes to the caches they are of. An index that is there stays as it is.
    pub fn add_indexes(&self, indexes: &[DeclaredIndex]) {
        for index in indexes {
            index.add_to(&mut **self.cache(&index.kind).table.write());
        }
    }

    /// The kinds whose caches have not got their first whole list yet.
    #[must_use]
    pub fn unsynced(&self) -> Vec<String> {
        let caches = self.0.caches.lock();
        caches
            .iter()
            .filter(|cache| cache.list_count() == 0)
            .map(|cache| cache.entry.resource().to_string())
            .collect()
    }

    /// Ends all list-and-watches and returns when they have ended. What is cached stays readable.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Keeps a cache filled until the process stops.
    fn fill(&self, cache: Arc<Cache>) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.0.clone();
        let source = source(&cache.entry);
        let mut chance = shared.chance.fork();
        let stretch = 1.0 + chance.f64();
        let period = shared.resync_period.map(|period| period.mul_f64(stretch).max(RESYNC_PERIOD_MIN));
        let observer = Arc::new(Complaints { metrics: shared.metrics.clone() });
        let reflector = Reflector::new(shared.client.clone(), source, chance).with_observer(observer);
        let mut reflector = self.with_list_mode(reflector);
        async move {
            let mut timer = pin!(tokio::time::sleep(period.unwrap_or_default()));
            let mut afresh = 1;
            loop {
                let restarts_timer = tokio::select! {
                    biased;
                    () = shared.stop.cancelled() => return,
                    () = cache.afresh.wait_for(|wanted| wanted > afresh) => {
                        afresh = cache.afresh.get();
                        reflector.relist();
                        false
                    }
                    delta = reflector.next() => {
                        // A whole new list is as good as a resync.
                        let is_list = matches!(delta, Delta::Replace { .. });
                        cache.contain("cache", || cache.take_in(delta));
                        if is_list {
                            cache.filled.set(afresh);
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
    /// The caches behind it, in the order of their tables.
    #[must_use]
    pub fn caches(&self) -> &[Arc<Cache>] {
        &self.caches
    }

    /// The same window, with some kinds hidden until [`CacheReader::show_deferred`].
    #[must_use]
    pub fn deferring(mut self, late: &[KindEntry]) -> Self {
        late.clone_into(&mut self.late);
        self
    }

    /// The caches that are shown from the beginning, or those that are not.
    #[must_use]
    pub fn caches_where_deferred(&self, is_late: bool) -> Vec<Arc<Cache>> {
        self.caches.iter().filter(|cache| self.late.contains(&cache.entry) == is_late).cloned().collect()
    }

    /// Shows what was hidden.
    pub fn show_deferred(&self) {
        self.shows_late.store(true, Ordering::Release);
    }

    /// Shows them, all held still. The eye must not look again while it looks.
    pub fn with_view(&self, eye: &mut dyn FnMut(&View<'_>)) {
        let guards: Vec<RwLockReadGuard<'_, Box<dyn AnyStore>>> =
            self.caches.iter().map(|cache| cache.table.read()).collect();
        let shows_late = self.shows_late.load(Ordering::Acquire);
        let tables = self.caches.iter().zip(&guards).map(|(cache, guard)| (cache.entry.clone(), &***guard));
        let tables = tables.filter(|(entry, _)| shows_late || !self.late.contains(entry));
        eye(&View::new(tables.collect(), self.clocks.now()));
    }
}

/// What there is of a kind, in all namespaces.
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

    /// Its kind and part of it, as one word.
    #[must_use]
    pub fn name(&self) -> String {
        let selector = self.entry.projection().field_selector;
        selector.map_or_else(
            || self.entry.resource().to_string(),
            |selector| format!("{}?{selector}", self.entry.resource()),
        )
    }

    /// The version of the last change to an object that a watch has told of, if one has. Every cache of the same
    /// objects is told of it sooner or later, which does not hold for versions of lists and bookmarks.
    #[must_use]
    pub fn last_event_version(&self) -> Option<ResourceVersion> {
        self.last_event_version.lock().clone()
    }

    /// The version of the last list that it has taken in, if it has any.
    #[must_use]
    pub fn last_list_version(&self) -> Option<ResourceVersion> {
        self.last_list_version.lock().clone()
    }

    /// Whether it has come at least to this version. One that was never filled has come nowhere.
    #[must_use]
    pub fn is_at_least(&self, version: &ResourceVersion) -> bool {
        self.list_count() > 0 && !self.resource_version().is_older_than(version)
    }

    /// Returns as soon as it has come at least to this version.
    pub async fn wait_until_at_least(&self, version: &ResourceVersion) {
        self.deltas.wait_for(|_| self.is_at_least(version)).await;
    }

    /// Forgets how far it has come and lists anew, as of now. What is in the table stays there until then. Tells what
    /// `filled` comes to with that list.
    pub fn request_relist(&self) -> u64 {
        let mut wanted_afresh = self.wanted_afresh.lock();
        self.afresh.modify(|wanted| wanted + 1);
        let wanted = self.afresh.get();
        *wanted_afresh = (self.clocks.monotonic(), wanted);
        wanted
    }

    /// Returns when a list is in the table that was begun at this moment of the monotonic clock or later. One that is
    /// under way or done will do.
    pub async fn wait_for_list_since(&self, moment: Duration) {
        let (wanted_at, last) = *self.wanted_afresh.lock();
        let wanted = if wanted_at >= moment { last } else { self.request_relist() };
        self.filled.wait_for(|filled| filled >= wanted).await;
    }

    /// Returns as soon as the first whole list is in the table. Never, if the caches are
    /// stopped before: whoever waits has to give up waiting then.
    pub async fn wait_for_sync(&self) {
        self.list_count.wait_for(|lists| lists > 0).await;
    }

    /// How many whole lists it has taken in: one when it is first filled, one more after each gap in
    /// which changes may have gone unnoticed.
    #[must_use]
    pub fn list_count(&self) -> u64 {
        self.list_count.get()
    }

    /// The version of the world this cache has come to.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.table.read().resource_version().clone()
    }

    /// Which life of an object is in the cache, if any is.
    #[must_use]
    pub fn uid(&self, key: &Key) -> Option<Uid> {
        self.table.read().meta(key).map(|meta| meta.uid.clone())
    }

    /// Whether this life of an object is no longer in the cache, or is in it with its deletion asked for.
    #[must_use]
    pub fn has_observed_deletion(&self, key: &Key, uid: &Uid) -> bool {
        self.table.read().meta(key).is_none_or(|meta| meta.uid != *uid || meta.deletion_timestamp.is_some())
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.read().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells a listener of every object that is there, as if it had just been added, and of every
    /// change from then on. Not to be called by a listener while it is told something.
    pub fn add_event_handler(&self, listener: Arc<dyn EventHandler>) {
        let mut listeners = self.listeners.lock();
        let additions = self.table.read().additions();
        self.contain("wake-up", || listener.on_changes(&additions));
        listeners.push(listener);
    }

    /// Shows everything that is there to one listener again.
    pub fn resync_handler(&self, listener: &Arc<dyn EventHandler>) {
        let _telling = self.listeners.lock();
        let again = self.table.read().resync();
        self.contain("wake-up", || listener.on_changes(&again));
    }

    /// Stops telling a listener, and returns when nothing is being told to it any more. Not to be
    /// called by a listener while it is told something.
    pub fn remove_event_handler(&self, listener: &Arc<dyn EventHandler>) {
        self.listeners.lock().retain(|there| !Arc::ptr_eq(there, listener));
    }

    fn take_in(&self, delta: Delta<Arc<dyn AnyObject>>) {
        let began = self.clocks.monotonic();
        let listeners = self.listeners.lock();
        let (is_list, size) = match &delta {
            Delta::Replace { objects, .. } => (true, objects.len()),
            Delta::Apply(_) | Delta::Delete(_) | Delta::DeleteKey { .. } => (false, 1),
            Delta::Bookmark(_) => (false, 0),
        };
        if let Some(counts) = &self.counts {
            counts.reading(size);
        }
        let (changes, version) = {
            let mut table = self.table.write();
            let changes = match delta {
                Delta::Replace { objects, unreadable, version } => {
                    table.replace(objects, &unreadable, version)
                }
                Delta::Apply(object) => vec![table.apply(object)],
                Delta::Delete(object) => vec![table.delete(object)],
                Delta::DeleteKey { key, version, .. } => {
                    table.delete_key(&key, version).into_iter().collect()
                }
                Delta::Bookmark(version) => {
                    table.bookmark(version);
                    Vec::new()
                }
            };
            (changes, table.resource_version().clone())
        };
        if is_list {
            *self.last_list_version.lock() = Some(version.clone());
            self.list_count.modify(|lists| lists + 1);
        } else if size > 0 {
            *self.last_event_version.lock() = Some(version.clone());
        }
        self.deltas.modify(|deltas| deltas + 1);
        self.tell(&listeners, &changes);
        if let Some(counts) = &self.counts {
            let took = self.clocks.monotonic().saturating_sub(began);
            counts.observe_delivery(&version, (size > 0).then_some(took));
        }
    }

    fn resync(&self) {
        let listeners = self.listeners.lock();
        let again = self.table.read().resync();
        self.tell(&listeners, &again);
    }

    fn tell(&self, listeners: &[Arc<dyn EventHandler>], changes: &[AnyChange]) {
        for listener in listeners {
            self.contain("wake-up", || listener.on_changes(changes));
        }
    }

    /// Whatever panics over one odd object must not keep others from hearing of it, nor end the cache.
    fn contain(&self, what: &str, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.metrics.panicked(what);
            tracing::error!(resource = %self.entry.resource(), what, "a panic was contained");
        }
    }
}

/// Makes what a reflector could not do visible.
struct Complaints {
    metrics: Metrics,
}

impl ReflectorObserver for Complaints {
    fn undecodable(&self, resource: &Resource, _object: &str) {
        self.metrics.undecodable(resource);
    }

    fn failed(&self, resource: &Resource, failure: &ApiError) {
        tracing::warn!(%resource, %failure, "list or watch failed, trying again");
    }
}
