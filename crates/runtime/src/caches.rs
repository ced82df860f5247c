//! One shared cache per kind: filled by one list-and-watch, read by every controller that declared it.
//!
//! A cache tells its listeners of a change only after the table holds it, in the order in which the
//! server told it, and a listener that comes late is first shown everything that is there. What wakes
//! controllers runs right here, on the task that reads the wire: wake-ups are pure and short, so no
//! second queue stands between the wire and the work queues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use keleustes_client::{Delta, Reflector, ReflectorObserver, Source};
use keleustes_objects::{Failure, Key, Meta, Resource, Uid, Version};
use keleustes_plan::{AnyChange, AnyObject, AnyTable, DeclaredIndex, KindEntry, View};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Chance, Clocks};
use crate::metrics::Metrics;

/// All caches of a process, one per kind.
#[derive(Clone)]
pub struct Caches(Arc<Shared>);

struct Shared {
    client: kube::Client,
    clocks: Clocks,
    chance: Chance,
    metrics: Metrics,
    resync_period: Option<Duration>,
    caches: Mutex<Vec<Arc<Cache>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Hears of the changes to one cache.
pub trait Listener: Send + Sync {
    /// The table holds these changes now. Empty if the cache only learnt that nothing happened up to
    /// a newer version.
    fn changed(&self, changes: &[AnyChange]);
}

/// The cache of one kind.
pub struct Cache {
    entry: KindEntry,
    table: RwLock<Box<dyn AnyTable>>,
    synced: watch::Sender<bool>,
    /// Held while changes are told, so that a late listener gets every object and then every change.
    listeners: Mutex<Vec<Arc<dyn Listener>>>,
    metrics: Metrics,
}

impl Caches {
    /// No caches yet; they list and watch through this client. With a resync period every object is
    /// shown again to its listeners once in that time or up to twice of it.
    #[must_use]
    pub fn new(
        client: kube::Client,
        clocks: Clocks,
        chance: Chance,
        metrics: Metrics,
        resync_period: Option<Duration>,
    ) -> Self {
        Self(Arc::new(Shared {
            client,
            clocks,
            chance,
            metrics,
            resync_period,
            caches: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// The cache of a kind. The first who asks starts it; nobody lists a kind twice.
    #[must_use]
    pub fn cache(&self, entry: &KindEntry) -> Arc<Cache> {
        let mut caches = self.0.caches.lock();
        if let Some(there) = caches.iter().find(|cache| cache.entry == *entry) {
            return there.clone();
        }
        let cache = Arc::new(Cache {
            entry: entry.clone(),
            table: RwLock::new(entry.new_table()),
            synced: watch::Sender::new(false),
            listeners: Mutex::default(),
            metrics: self.0.metrics.clone(),
        });
        caches.push(cache.clone());
        self.0.tasks.spawn(self.fill(cache.clone()));
        cache
    }

    /// Adds indexes to the caches they are of. An index that is there stays as it is.
    pub fn add_indexes(&self, indexes: &[DeclaredIndex]) {
        for index in indexes {
            index.add_to(&mut **self.cache(&index.kind).table.write());
        }
    }

    /// Shows a view of these caches, all of them held still.
    pub fn look(&self, caches: &[Arc<Cache>], eye: &mut dyn FnMut(&View<'_>)) {
        let guards: Vec<RwLockReadGuard<'_, Box<dyn AnyTable>>> =
            caches.iter().map(|cache| cache.table.read()).collect();
        let tables = caches.iter().zip(&guards).map(|(cache, guard)| (cache.entry.clone(), &***guard));
        eye(&View::new(tables.collect(), self.0.clocks.now()));
    }

    /// The kinds whose caches have not got their first whole list yet.
    #[must_use]
    pub fn unsynced(&self) -> Vec<String> {
        let caches = self.0.caches.lock();
        caches
            .iter()
            .filter(|cache| !*cache.synced.borrow())
            .map(|cache| cache.entry.resource().to_string())
            .collect()
    }

    /// Ends all list-and-watches and returns when they have ended.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Keeps a cache filled until the process stops.
    fn fill(&self, cache: Arc<Cache>) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.0.clone();
        let source = Source {
            resource: cache.entry.resource().clone(),
            projection: cache.entry.projection().clone(),
            namespace: String::new(),
            decode: cache.entry.decode(),
            meta: meta_of,
        };
        let mut chance = shared.chance.fork();
        let resync = shared.resync_period.map(|period| period.mul_f64(1.0 + chance.f64()));
        let reflector = Reflector::new(shared.client.clone(), source, chance);
        let observer = Arc::new(Complaints { metrics: shared.metrics.clone() });
        let mut reflector = reflector.observed_by(observer);
        async move {
            let mut due = resync.map(|period| tokio::time::Instant::now() + period);
            loop {
                let resync_due = async move {
                    match due {
                        Some(due) => tokio::time::sleep_until(due).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = shared.stop.cancelled() => return,
                    delta = reflector.next() => {
                        // A whole new list is as good as a resync; the time starts again.
                        if matches!(delta, Delta::Replace { .. }) {
                            due = resync.map(|period| tokio::time::Instant::now() + period);
                        }
                        cache.take_in(delta);
                    }
                    () = resync_due => {
                        cache.resync();
                        due = resync.map(|period| tokio::time::Instant::now() + period);
                    }
                }
            }
        }
    }
}

fn meta_of(object: &Arc<dyn AnyObject>) -> &Meta {
    object.meta()
}

impl Cache {
    /// The kind.
    #[must_use]
    pub fn entry(&self) -> &KindEntry {
        &self.entry
    }

    /// Returns as soon as the first whole list is in the table.
    pub async fn synced(&self) {
        // The sender lives as long as the cache, so waiting cannot fail.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// The version of the world this cache has come to.
    #[must_use]
    pub fn version(&self) -> Version {
        self.table.read().version().clone()
    }

    /// Whether this life of an object is no longer in the cache, or is in it with its deletion asked for.
    #[must_use]
    pub fn has_seen_deletion(&self, key: &Key, uid: &Uid) -> bool {
        self.table.read().meta(key).is_none_or(|meta| meta.uid != *uid || meta.deleted_at.is_some())
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
    /// change from then on.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) {
        let mut listeners = self.listeners.lock();
        let additions = self.table.read().additions();
        self.tell_one(&*listener, &additions);
        listeners.push(listener);
    }

    /// Stops telling a listener. What it has been told stays told.
    pub fn unsubscribe(&self, listener: &Arc<dyn Listener>) {
        self.listeners.lock().retain(|there| !Arc::ptr_eq(there, listener));
    }

    fn take_in(&self, delta: Delta<Arc<dyn AnyObject>>) {
        let listeners = self.listeners.lock();
        let mut synced = false;
        let (changes, version) = {
            let mut table = self.table.write();
            let changes = match delta {
                Delta::Replace { objects, version } => {
                    synced = true;
                    table.replace(objects, version)
                }
                Delta::Apply(object) => vec![table.apply(object)],
                Delta::Delete(object) => vec![table.delete(object)],
                Delta::Bookmark(version) => {
                    table.bookmark(version);
                    Vec::new()
                }
            };
            (changes, table.version().clone())
        };
        self.metrics.store_version(self.entry.resource(), &version);
        for listener in &*listeners {
            self.tell_one(&**listener, &changes);
        }
        if synced {
            self.synced.send_replace(true);
        }
    }

    fn resync(&self) {
        let listeners = self.listeners.lock();
        let again = self.table.read().resync();
        for listener in &*listeners {
            self.tell_one(&**listener, &again);
        }
    }

    /// A listener that panics over one odd object must not keep others from hearing of it, nor end
    /// the cache.
    fn tell_one(&self, listener: &dyn Listener, changes: &[AnyChange]) {
        if catch_unwind(AssertUnwindSafe(|| listener.changed(changes))).is_err() {
            self.metrics.panicked("wake-up");
            tracing::error!(resource = %self.entry.resource(), "a wake-up panicked and was contained");
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

    fn failed(&self, resource: &Resource, failure: &Failure) {
        tracing::warn!(%resource, %failure, "list or watch failed, trying again");
    }
}
