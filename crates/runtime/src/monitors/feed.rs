//! Feeds an observer with one resource: from the shared cache if there is one, else from the wire without
//! keeping anything.

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
use crate::caches::{Cache, Caches, EventHandler};
use crate::clock::Clocks;
use crate::metrics::{Metrics, QueueMetrics};
use crate::ordered_watch::OrderedWatch;

/// How what is seen of one resource reaches the observer, and what comes of it those who work.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) resource: Resource,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) sink: Arc<RwLock<Option<EffectsSink>>>,
    pub(super) clocks: Clocks,
    pub(super) metrics: Metrics,
    /// There once somebody works on what comes of it.
    pub(super) counts: Arc<OnceLock<QueueMetrics>>,
}

/// One resource that is observed.
pub(super) struct Monitor {
    pub(super) is_shared: bool,
    synced: OrderedWatch<bool>,
    stop: CancellationToken,
    /// The server does not serve it any more, as far as is known.
    retired: Arc<AtomicBool>,
}

impl Monitor {
    pub(super) fn new(is_shared: bool, stop: CancellationToken) -> Self {
        Self { is_shared, synced: OrderedWatch::new(false), stop, retired: Arc::default() }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced.get()
    }

    /// Returns as soon as it has seen everything once, or will never see more.
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

    /// Observes no more.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Observes until the server says that there is nothing to observe: what is deleted together with its
    /// kind must still be seen to go.
    pub(super) fn retire(&self) {
        if self.is_shared {
            self.stop();
        }
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Observes a shared cache.
    pub(super) fn follow(&self, feed: Feed, cache: Arc<Cache>) -> impl Future<Output = ()> + use<> {
        let (stop, synced) = (self.stop.clone(), self.synced.clone());
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = cache.wait_for_sync() => {}
            }
            let ear: Arc<dyn EventHandler> = Arc::new(Ear { feed, has_heard: AtomicBool::new(false) });
            cache.add_event_handler(ear.clone());
            synced.set(true);
            stop.cancelled().await;
            cache.remove_event_handler(&ear);
        }
    }

    /// Observes what the server sends, of which nothing is kept.
    pub(super) fn reflect(
        &self,
        feed: Feed,
        client: kube::Client,
        chance: fastrand::Rng,
        caches: &Caches,
    ) -> impl Future<Output = ()> + use<> {
        let (stop, synced) = (self.stop.clone(), self.synced.clone());
        let source = ListWatch::<PartialObjectMetadata>::new(feed.resource.clone(), Projection::METADATA);
        let troubles =
            Troubles { metrics: feed.metrics.clone(), stop: stop.clone(), retired: self.retired.clone() };
        let reflector = Reflector::new(client, source, chance).with_observer(Arc::new(troubles));
        let mut reflector = caches.with_list_mode(reflector);
        let figures = feed.metrics.observed(&feed.resource);
        async move {
            loop {
                let delta = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    delta = reflector.next() => delta,
                };
                let is_whole = matches!(delta, Delta::Replace { .. });
                let began = feed.clocks.monotonic();
                feed.take_in(delta);
                if let Some(figures) = &figures {
                    let took = feed.clocks.monotonic().saturating_sub(began);
                    figures.observe_delivery(reflector.last_sync_resource_version(), Some(took));
                }
                if is_whole {
                    synced.set(true);
                }
            }
        }
    }
}

impl Feed {
    fn take_in(&self, delta: Delta<PartialObjectMetadata>) {
        match delta {
            Delta::Replace { objects, unreadable, .. } => {
                let metas: Vec<&ObjectMeta> = objects.iter().map(PartialObjectMetadata::meta).collect();
                self.saw_all(&metas, &unreadable);
            }
            Delta::Apply(object) => self.tell(1, |observer, stir| {
                observer.on_update(&self.resource, object.meta(), stir);
            }),
            Delta::Delete(object) => self.tell(1, |observer, stir| {
                observer.on_delete(&self.resource, object.meta(), stir);
            }),
            Delta::DeleteKey { key, uid, version } => self.tell(1, |observer, stir| {
                let last = ObjectMeta { key, uid, resource_version: version, ..ObjectMeta::default() };
                observer.on_delete(&self.resource, &last, stir);
            }),
            Delta::Bookmark(_) => {}
        }
    }

    fn saw_all(&self, metas: &[&ObjectMeta], unreadable: &[Key]) {
        self.tell(metas.len(), |observer, stir| {
            observer.on_list(&self.resource, metas, unreadable, stir);
        });
    }

    /// Lets the observer hear of changes, which are counted as if they had gone through a queue. One odd
    /// object that it panics over must not keep it from hearing of others.
    fn tell(&self, changes: usize, hear: impl FnOnce(&dyn Observer, &mut Effects)) {
        let mut stir = Effects::default();
        let began = self.clocks.monotonic();
        let heard = catch_unwind(AssertUnwindSafe(|| hear(&*self.observer, &mut stir)));
        if let Some(counts) = self.counts.get().filter(|_| changes > 0) {
            counts.added_many(changes);
            counts.taken(Duration::ZERO);
            counts.worked(self.clocks.monotonic().saturating_sub(began));
        }
        if heard.is_err() {
            self.metrics.panicked(self.observer.queue());
            tracing::error!(resource = %self.resource, "an observer panicked, which is a bug; it was contained");
        }
        if let Some(sink) = &*self.sink.read() {
            sink(stir);
        }
    }
}

/// Hears of the changes to a shared cache. The first it is told is all that is there.
struct Ear {
    feed: Feed,
    has_heard: AtomicBool,
}

impl EventHandler for Ear {
    fn on_changes(&self, changes: &[AnyChange]) {
        if !self.has_heard.swap(true, Ordering::Relaxed) {
            let metas: Vec<&ObjectMeta> = changes.iter().filter_map(AnyChange::meta).collect();
            return self.feed.saw_all(&metas, &[]);
        }
        for change in changes.iter().filter(|change| !change.resync) {
            let (old, new) = (change.old.as_ref(), change.new.as_ref());
            self.feed.tell(1, |observer, stir| {
                let resource = &self.feed.resource;
                // What was deleted and made anew between two lists is told as one change.
                let replaced = |old: &ObjectMeta| new.is_none_or(|new| new.meta().uid != old.uid);
                if let Some(old) = old.map(|old| old.meta()).filter(|old| replaced(old)) {
                    observer.on_delete(resource, old, stir);
                }
                if let Some(new) = new {
                    observer.on_update(resource, new.meta(), stir);
                }
            });
        }
    }
}

/// Notes what a reflector could not do, and ends one whose resource is gone.
struct Troubles {
    metrics: Metrics,
    stop: CancellationToken,
    retired: Arc<AtomicBool>,
}

impl ReflectorObserver for Troubles {
    fn undecodable(&self, resource: &Resource, _object: &str) {
        self.metrics.undecodable(resource);
    }

    fn failed(&self, resource: &Resource, failure: &ApiError) {
        if self.retired.load(Ordering::Relaxed) {
            tracing::info!(%resource, %failure, "no longer served, no longer observed");
            self.stop.cancel();
        } else {
            tracing::warn!(%resource, %failure, "list or watch failed, trying again");
        }
    }
}
