//! Feeds observers with the objects of one resource: from the shared cache if there is one, else from a
//! watch whose objects are not kept.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keleustes_client::{Delta, ListWatch, Reflector, ReflectorObserver};
use keleustes_objects::{ApiError, Key, Object as _, ObjectMeta, Projection, Resource};
use keleustes_plan::{AnyChange, Effects, Observer};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::EffectsSink;
use super::partial_metadata::PartialObjectMetadata;
use crate::caches::{Cache, Caches, EventHandler, log_failure};
use crate::clock::Clocks;
use crate::failure_log::FailureLog;
use crate::list_progress::{Advance, ListProgress};
use crate::metrics::{Metrics, QueueMetrics};
use crate::ordered_watch::OrderedWatch;

/// An observer, and where its effects go.
pub(super) struct Subscriber {
    pub(super) observer: Arc<dyn Observer>,
    /// Takes the effects while its controller runs.
    pub(super) sink: RwLock<Option<EffectsSink>>,
    /// Set once a controller processes the effects.
    pub(super) queue_metrics: OnceLock<QueueMetrics>,
}

/// Passes changes of one resource to observers, and the effects of each observer to its sink.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) resource: Resource,
    pub(super) subscribers: Arc<RwLock<Vec<Arc<Subscriber>>>>,
    pub(super) clocks: Clocks,
    pub(super) metrics: Metrics,
}

/// One observed resource.
pub(super) struct Monitor {
    pub(super) is_shared: bool,
    synced: OrderedWatch<bool>,
    /// The observers of the resource.
    subscribers: Arc<RwLock<Vec<Arc<Subscriber>>>>,
    /// The progress of a list and watch of its own; that of a shared cache is the cache's.
    progress: Arc<ListProgress>,
    stop: CancellationToken,
    /// The API server no longer serves the resource, according to discovery.
    retired: Arc<AtomicBool>,
}

impl Monitor {
    pub(super) fn new(is_shared: bool, stop: CancellationToken, clocks: Clocks) -> Self {
        let progress = Arc::new(ListProgress::new(clocks));
        let (synced, subscribers) = (OrderedWatch::new(false), Arc::default());
        Self { is_shared, synced, subscribers, progress, stop, retired: Arc::default() }
    }

    /// The observers of the resource.
    pub(super) fn subscribers(&self) -> &Arc<RwLock<Vec<Arc<Subscriber>>>> {
        &self.subscribers
    }

    /// Whether this subscriber observes the resource.
    pub(super) fn feeds(&self, subscriber: &Arc<Subscriber>) -> bool {
        self.subscribers.read().iter().any(|known| Arc::ptr_eq(known, subscriber))
    }

    /// Adds a subscriber. One that comes after the monitor has started gets a list of its own.
    pub(super) fn subscribe(&self, subscriber: Arc<Subscriber>, is_late: bool) {
        self.subscribers.write().push(subscriber);
        if is_late {
            self.synced.set(false);
        }
        if is_late && !self.is_shared {
            self.progress.request_relist();
        }
    }

    /// The progress of its own list and watch, if it has one, and what ends it.
    pub(super) fn own_watch(&self) -> Option<(Arc<ListProgress>, CancellationToken)> {
        (!self.is_shared).then(|| (self.progress.clone(), self.stop.clone()))
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced.get()
    }

    /// Returns as soon as the first list was delivered, or the monitor is stopped.
    pub(super) fn syncing(&self) -> impl Future<Output = ()> + use<> {
        let (stop, synced) = (self.stop.clone(), self.synced.clone());
        async move {
            tokio::select! {
                biased;
                () = synced.wait_for(|synced| synced) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Stops observing.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Whether it observes nothing any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Observes until the watch fails: deletions of objects that are deleted together with their
    /// CustomResourceDefinition must still be delivered.
    pub(super) fn retire(&self) {
        if self.is_shared {
            self.stop();
        }
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Observes a shared cache; `feed` is that of new subscribers.
    pub(super) fn observe_cache(&self, feed: Feed, cache: Arc<Cache>) -> impl Future<Output = ()> + use<> {
        let (stop, synced) = (self.stop.clone(), self.synced.clone());
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = cache.wait_for_sync() => {}
            }
            let handler: Arc<dyn EventHandler> =
                Arc::new(ObserverEventHandler { feed, has_listed: AtomicBool::new(false) });
            cache.add_event_handler(handler.clone());
            synced.set(true);
            stop.cancelled().await;
            cache.remove_event_handler(&handler);
        }
    }

    /// Observes a list and watch of its own, without keeping objects.
    pub(super) fn observe_watch(
        &self,
        feed: Feed,
        client: kube::Client,
        random: fastrand::Rng,
        caches: &Caches,
    ) -> impl Future<Output = ()> + use<> {
        let (stop, synced, progress) = (self.stop.clone(), self.synced.clone(), self.progress.clone());
        let source = ListWatch::<PartialObjectMetadata>::new(feed.resource.clone(), Projection::METADATA);
        let errors = ErrorObserver {
            metrics: feed.metrics.clone(),
            failures: caches.failures().clone(),
            stop: stop.clone(),
            retired: self.retired.clone(),
        };
        let reflector = Reflector::new(client, source, random).with_observer(Arc::new(errors));
        let mut reflector = caches.with_list_mode(reflector);
        feed.metrics.expose_undecodable(&feed.resource);
        let metrics = feed.metrics.observed(&feed.resource);
        async move {
            let mut requested_list = 1;
            loop {
                let delta = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    number = progress.wait_for_request_after(requested_list) => {
                        requested_list = number;
                        reflector.relist();
                        continue;
                    }
                    delta = reflector.next() => delta,
                };
                let advance = match &delta {
                    Delta::Replace { .. } => Advance::List,
                    Delta::Apply(_) | Delta::Delete(_) | Delta::DeleteKey { .. } => Advance::Event,
                    Delta::Bookmark(_) => Advance::Bookmark,
                };
                let began = feed.clocks.monotonic();
                feed.deliver_delta(delta);
                progress.advance(advance, reflector.last_sync_resource_version());
                if let Some(metrics) = &metrics {
                    let took = feed.clocks.monotonic().saturating_sub(began);
                    metrics.observe_delivery(reflector.last_sync_resource_version(), Some(took));
                }
                if advance == Advance::List {
                    progress.list_delivered(requested_list);
                    synced.set(true);
                }
            }
        }
    }
}

impl Feed {
    fn deliver_delta(&self, delta: Delta<PartialObjectMetadata>) {
        match delta {
            Delta::Replace { objects, unreadable, .. } => {
                let metas: Vec<&ObjectMeta> = objects.iter().map(PartialObjectMetadata::meta).collect();
                self.deliver_list(&metas, &unreadable);
            }
            Delta::Apply(object) => self.deliver(1, |observer, effects| {
                observer.on_update(&self.resource, object.meta(), effects);
            }),
            Delta::Delete(object) => self.deliver(1, |observer, effects| {
                observer.on_delete(&self.resource, object.meta(), effects);
            }),
            Delta::DeleteKey { key, uid, version } => {
                let last = ObjectMeta { key, uid, resource_version: version, ..ObjectMeta::default() };
                self.deliver(1, |observer, effects| observer.on_delete(&self.resource, &last, effects));
            }
            Delta::Bookmark(_) => {}
        }
    }

    fn deliver_list(&self, metas: &[&ObjectMeta], unreadable: &[Key]) {
        self.deliver(metas.len(), |observer, effects| {
            observer.on_list(&self.resource, metas, unreadable, effects);
        });
    }

    /// Calls the observers; the changes are counted as if they had gone through a work queue. A panic over one
    /// object must not keep others from being delivered.
    fn deliver(&self, changes: usize, call: impl Fn(&dyn Observer, &mut Effects)) {
        let subscribers = self.subscribers.read().clone();
        subscribers.iter().for_each(|subscriber| self.deliver_to(subscriber, changes, &call));
    }

    fn deliver_to(
        &self,
        subscriber: &Subscriber,
        changes: usize,
        call: &impl Fn(&dyn Observer, &mut Effects),
    ) {
        let mut effects = Effects::default();
        let began = self.clocks.monotonic();
        let result = catch_unwind(AssertUnwindSafe(|| call(&*subscriber.observer, &mut effects)));
        if let Some(queue_metrics) = subscriber.queue_metrics.get().filter(|_| changes > 0) {
            queue_metrics.added_many(changes);
            queue_metrics.taken(Duration::ZERO);
            queue_metrics.worked(self.clocks.monotonic().saturating_sub(began));
        }
        if result.is_err() {
            self.metrics.panicked(subscriber.observer.queue().unwrap_or("observer"));
            tracing::error!(resource = %self.resource, "observer panicked, which is a bug; contained");
        }
        if let Some(sink) = &*subscriber.sink.read() {
            sink(effects);
        }
    }
}

/// Receives the changes of a shared cache. The first delivery contains all objects.
struct ObserverEventHandler {
    feed: Feed,
    has_listed: AtomicBool,
}

impl EventHandler for ObserverEventHandler {
    fn on_changes(&self, changes: &[AnyChange]) {
        if !self.has_listed.swap(true, Ordering::Relaxed) {
            let metas: Vec<&ObjectMeta> = changes.iter().filter_map(AnyChange::meta).collect();
            return self.feed.deliver_list(&metas, &[]);
        }
        for change in changes.iter().filter(|change| !change.is_unchanged()) {
            let (old, new) = (change.old.as_ref(), change.new.as_ref());
            self.feed.deliver(1, |observer, effects| {
                let resource = &self.feed.resource;
                // An object that was deleted and recreated between two lists is delivered as one change.
                let replaced = |old: &ObjectMeta| new.is_none_or(|new| new.meta().uid != old.uid);
                if let Some(old) = old.map(|old| old.meta()).filter(|old| replaced(old)) {
                    observer.on_delete(resource, old, effects);
                }
                if let Some(new) = new {
                    observer.on_update(resource, new.meta(), effects);
                }
            });
        }
    }
}

/// Counts and logs the errors of a reflector, and stops the monitor of a resource that is no longer served.
struct ErrorObserver {
    metrics: Metrics,
    failures: Arc<FailureLog>,
    stop: CancellationToken,
    retired: Arc<AtomicBool>,
}

impl ReflectorObserver for ErrorObserver {
    fn undecodable(&self, resource: &Resource, _object: &str) {
        self.metrics.undecodable(resource);
    }

    fn failed(&self, resource: &Resource, failure: &ApiError) {
        if self.retired.load(Ordering::Relaxed) {
            tracing::info!(%resource, %failure, "resource is no longer served, stopped observing it");
            self.stop.cancel();
        } else {
            log_failure(&self.failures, resource, failure);
        }
    }
}
