//! Runs a loop against in-memory objects without an API server and writes a transcript, for the decision tables of
//! controllers.
//!
//! A [`RehearsalCluster`] holds two sets of objects: the caches, which the controller reads, and the live objects,
//! which a GET returns. They are equal unless a test makes the caches stale.

mod io;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use keleustes_objects::{
    ApiError, DiscoveredResources, ErrorReason, Key, Kind, PodParts, Resource, ResourceVersion, Time, Uid,
};
use serde_json::{Value, json};

use self::io::RehearsalIo;
use crate::{
    AnyChange, AnyStore, Change, Context, Effects, EnqueuedItem, Guard, Item, KindEntry, Loop, MonitorState,
    Now, ReconcileError, Requeue, Target, View,
};

/// The caches and the live objects of a rehearsal.
pub struct RehearsalCluster {
    stores: Vec<(KindEntry, Box<dyn AnyStore>)>,
    live: BTreeMap<String, Value>,
    /// Failures by verb and path; a number limits how often the request fails.
    failures: BTreeMap<String, (ApiError, Option<u32>)>,
    /// By path: the state an object has after the first failed request for it; `None` deletes it.
    changes_on_failure: BTreeMap<String, Option<Value>>,
    /// Paths of objects that stay terminating when they are deleted.
    blocked_deletions: BTreeSet<String>,
    /// By verb and path: what the server stores for writes that return the stored object, in order.
    stored: BTreeMap<String, VecDeque<Value>>,
    discovery: Result<DiscoveredResources, ApiError>,
    /// The monitors by resource; the others are missing.
    monitors: BTreeMap<Resource, MonitorState>,
    /// The resourceVersion of every list in pages.
    list_version: ResourceVersion,
    /// Whether writes are sent.
    leads: bool,
    now: Now,
}

impl Default for RehearsalCluster {
    fn default() -> Self {
        let now = Now {
            wall: Time::from_unix_seconds(1_800_000_000),
            wall_subsecond_nanoseconds: 0,
            monotonic: Duration::from_secs(1000),
        };
        Self {
            stores: Vec::new(),
            live: BTreeMap::new(),
            failures: BTreeMap::new(),
            changes_on_failure: BTreeMap::new(),
            blocked_deletions: BTreeSet::new(),
            stored: BTreeMap::new(),
            discovery: Ok(DiscoveredResources::default()),
            monitors: BTreeMap::new(),
            list_version: ResourceVersion::from("1000"),
            leads: true,
            now,
        }
    }
}

impl RehearsalCluster {
    /// An empty cluster with a store for every kind that the loop declares.
    #[must_use]
    pub fn of(a_loop: &Loop) -> Self {
        let mut cluster = Self::default();
        for entry in &a_loop.reads {
            let mut store = entry.new_store();
            for index in a_loop.indexes.iter().filter(|index| index.kind == *entry) {
                index.add_to(&mut *store);
            }
            cluster.stores.push((entry.clone(), store));
        }
        cluster
    }

    /// Advances both clocks.
    #[must_use]
    pub fn with_clock_advanced(mut self, by: Duration) -> Self {
        self.advance_clock(by);
        self
    }

    /// Advances both clocks.
    pub fn advance_clock(&mut self, by: Duration) {
        let by_wall = Duration::from_nanos(self.now.wall_subsecond_nanoseconds.into()) + by;
        let seconds = i64::try_from(by_wall.as_secs()).unwrap_or(i64::MAX);
        self.now.wall = Time::from_unix_seconds(self.now.wall.unix_seconds().saturating_add(seconds));
        self.now.wall_subsecond_nanoseconds = by_wall.subsec_nanos();
        self.now.monotonic += by;
    }

    /// Sets the wall clock, as a jump does; the monotonic clock is not affected.
    pub fn set_wall_clock(&mut self, wall: Time, nanoseconds: u32) {
        (self.now.wall, self.now.wall_subsecond_nanoseconds) = (wall, nanoseconds);
    }

    /// Adds an object to the caches and to the live objects.
    #[must_use]
    pub fn with<T: Kind>(self, json: Value) -> Self {
        self.with_cached::<T>(json.clone()).with_live::<T>(json)
    }

    /// Adds an object to the caches only.
    ///
    /// # Panics
    /// If it cannot be decoded, or the loop does not declare its kind.
    #[must_use]
    pub fn with_cached<T: Kind>(self, json: Value) -> Self {
        let object: T = serde_json::from_value(json).expect("a well-formed object");
        self.with_cached_objects([object])
    }

    /// Adds decoded objects to the caches only, for clusters with very many of them.
    ///
    /// # Panics
    /// If the loop does not declare their kind.
    #[must_use]
    pub fn with_cached_objects<T: Kind>(mut self, objects: impl IntoIterator<Item = T>) -> Self {
        for object in objects {
            self.cache(&Arc::new(object));
        }
        self
    }

    /// Stores an object as the cache of the loop does: with the declared parts only.
    fn cache<T: Kind>(&mut self, object: &Arc<T>) -> AnyChange {
        let object = self.declared_parts(object);
        self.store_mut::<T>().apply(object)
    }

    /// The object with the parts that the loop declares, if its kind is divided into parts.
    fn declared_parts<T: Kind>(&self, object: &Arc<T>) -> Arc<T> {
        let wanted = KindEntry::of::<T>();
        let declared = self.stores.iter().find(|(entry, _)| *entry == wanted);
        let parts = declared.map_or(PodParts::NONE, |(entry, _)| entry.pod_parts());
        object.with_parts(parts).map_or_else(|| object.clone(), Arc::new)
    }

    /// The change as the loop's handlers receive it: with the declared parts only.
    fn change_of_declared_parts<T: Kind>(&self, change: Change<T>) -> AnyChange {
        if change.is_unchanged() {
            return change.into(); // Both states are one object.
        }
        let (old, new, resync) = change.into_parts();
        let of_declared_parts = |object: Option<Arc<T>>| object.map(|object| self.declared_parts(&object));
        Change::from_parts(of_declared_parts(old), of_declared_parts(new), resync).into()
    }

    /// Adds a live object that the caches do not hold.
    ///
    /// # Panics
    /// If it cannot be decoded.
    #[must_use]
    pub fn with_live<T: Kind>(mut self, json: Value) -> Self {
        let object: T = serde_json::from_value(json.clone()).expect("a well-formed object");
        self.live.insert(T::RESOURCE.object_path(object.key()), json);
        self
    }

    /// Adds a live object of any resource.
    #[must_use]
    pub fn with_live_resource(mut self, resource: &Resource, json: Value) -> Self {
        let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default();
        let path = resource.object_path(&Key::namespaced(text("namespace"), text("name")));
        self.live.insert(path, json);
        self
    }

    /// Makes a deletion only set the deletionTimestamp of an object, as for a pod that terminates slowly.
    #[must_use]
    pub fn with_blocked_deletion(mut self, resource: &Resource, key: &Key) -> Self {
        self.blocked_deletions.insert(resource.object_path(key));
        self
    }

    /// Sets the response to reads of a path, such as `/apis/apps/v1/namespaces/a/deployments/b/scale`.
    #[must_use]
    pub fn with_response(mut self, path: &str, json: Value) -> Self {
        self.live.insert(path.to_owned(), json);
        self
    }

    /// Sets the object that the server stores at the next write with this verb to this path, if the write returns it;
    /// the path of a create ends in the name, which is empty for a review. Without it, that is the body of the write.
    #[must_use]
    pub fn storing(mut self, verb: &str, path: &str, object: Value) -> Self {
        self.stored.entry(format!("{verb} {path}")).or_default().push_back(object);
        self
    }

    fn next_stored(&mut self, verb: &str, path: &str) -> Option<Value> {
        self.stored.get_mut(&format!("{verb} {path}"))?.pop_front()
    }

    /// Sets the result of API discovery.
    #[must_use]
    pub fn with_discovery(mut self, discovery: Result<DiscoveredResources, ApiError>) -> Self {
        self.discovery = discovery;
        self
    }

    /// Sets the state of a resource's monitor.
    #[must_use]
    pub fn with_monitor(mut self, resource: &Resource, state: MonitorState) -> Self {
        self.monitors.insert(resource.clone(), state);
        self
    }

    /// Sets the resourceVersion of lists in pages, which is 1000 by default.
    #[must_use]
    pub fn with_list_version(mut self, version: &str) -> Self {
        self.list_version = ResourceVersion::from(version);
        self
    }

    /// Sends no write, as a process that does not lead any more.
    #[must_use]
    pub fn without_leading(mut self) -> Self {
        self.leads = false;
        self
    }

    /// Makes requests for an object fail. `verb` is `get` or the verb of a write.
    #[must_use]
    pub fn failing<T: Kind>(self, verb: &str, key: &Key, error: ApiError) -> Self {
        self.failing_at(verb, &T::RESOURCE.object_path(key), error, None)
    }

    /// Makes requests to a path fail, `times` times or always. `verb` is `get`, `list` or the verb of a write.
    #[must_use]
    pub fn failing_at(mut self, verb: &str, path: &str, error: ApiError, times: Option<u32>) -> Self {
        self.failures.insert(format!("{verb} {path}"), (error, times));
        self
    }

    /// Changes or deletes an object at the first failed request for it: that change is what made the request fail.
    #[must_use]
    pub fn changing_on_failure(mut self, path: &str, new: Option<Value>) -> Self {
        self.changes_on_failure.insert(path.to_owned(), new);
        self
    }

    /// The error of a request, if it fails this time.
    fn next_failure(&mut self, verb: &str, path: &str) -> Option<ApiError> {
        let (error, times) = self.failures.get_mut(&format!("{verb} {path}"))?;
        match times {
            Some(0) => return None,
            Some(times) => *times -= 1,
            None => {}
        }
        let error = error.clone();
        match self.changes_on_failure.remove(path) {
            Some(Some(new)) => drop(self.live.insert(path.to_owned(), new)),
            Some(None) => drop(self.live.remove(path)),
            None => {}
        }
        Some(error)
    }

    /// The error of a guard that the live objects do not satisfy.
    fn guard_failure(&self, guard: &Guard) -> Option<ApiError> {
        let Guard::RecheckOwner(Target { resource, key, uid, .. }) = guard;
        let live = self.live.get(&resource.object_path(key)).map(|object| &object["metadata"]);
        let message = match live {
            None => "the owner is gone",
            Some(live) if Uid::from(live["uid"].as_str().unwrap_or_default()) != *uid => {
                "the owner is another one"
            }
            Some(live) if !live["deletionTimestamp"].is_null() => "the owner is being deleted",
            Some(_) => return None,
        };
        Some(ApiError::transport(ErrorReason::Other, message))
    }

    fn paths_below(&self, collection: &str) -> Vec<String> {
        let below = |path: &&String| path.rsplit_once('/').is_some_and(|(parent, _)| parent == collection);
        self.live.keys().filter(below).cloned().collect()
    }

    /// Deletes an object as the server does: one with finalizers only gets a deletionTimestamp.
    fn delete(&mut self, path: &str) {
        let now = self.now.wall.to_string();
        let Some(object) = self.live.get_mut(path) else { return };
        let has_finalizers =
            object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if has_finalizers || self.blocked_deletions.contains(path) {
            object["metadata"]["deletionTimestamp"] = json!(now);
        } else {
            self.live.remove(path);
        }
    }

    /// A live object.
    #[must_use]
    pub fn live_object<T: Kind>(&self, key: &Key) -> Option<&Value> {
        self.live.get(&T::RESOURCE.object_path(key))
    }

    /// A view of the caches.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(self.stores.iter().map(|(entry, store)| (entry.clone(), &**store)).collect(), self.now)
    }

    /// Adds or updates an object in the caches and among the live objects, and returns the enqueued items.
    ///
    /// # Panics
    /// If it cannot be decoded, or the loop does not declare its kind.
    pub fn put<T: Kind>(&mut self, a_loop: &Loop, json: Value) -> Vec<String> {
        let object: T = serde_json::from_value(json.clone()).expect("a well-formed object");
        self.live.insert(T::RESOURCE.object_path(object.key()), json);
        let change = self.cache(&Arc::new(object));
        self.items_enqueued_by::<T>(a_loop, &change)
    }

    /// Removes an object from the caches and from the live objects, and returns the enqueued items.
    ///
    /// # Panics
    /// If it is not cached.
    pub fn take<T: Kind>(&mut self, a_loop: &Loop, key: &Key) -> Vec<String> {
        self.live.remove(&T::RESOURCE.object_path(key));
        let last = self.view().get::<T>(key).expect("a cached object").clone();
        let change = self.store_mut::<T>().delete(last);
        self.items_enqueued_by::<T>(a_loop, &change)
    }

    fn store_mut<T: Kind>(&mut self) -> &mut dyn AnyStore {
        let wanted = KindEntry::of::<T>();
        let found = self.stores.iter_mut().find(|(entry, _)| *entry == wanted);
        &mut *found.expect("a declared kind").1
    }

    /// The items that a change enqueues, one line each.
    #[must_use]
    pub fn enqueued_by<T: Kind>(&self, a_loop: &Loop, change: Change<T>) -> Vec<String> {
        self.items_enqueued_by::<T>(a_loop, &self.change_of_declared_parts(change))
    }

    /// The items that a change enqueues, each with its delay, which is zero for those added at once.
    #[must_use]
    pub fn enqueued_with_delays<T: Kind>(&self, a_loop: &Loop, change: Change<T>) -> Vec<(String, Duration)> {
        let items =
            self.enqueue::<T>(a_loop, &self.change_of_declared_parts(change)).into_items().into_iter();
        items.map(|(item, delay)| (item.to_string(), delay.unwrap_or_default())).collect()
    }

    /// The events that a change records, one line each.
    #[must_use]
    pub fn events_recorded_by<T: Kind>(&self, a_loop: &Loop, change: Change<T>) -> Vec<String> {
        let events = self.enqueue::<T>(a_loop, &self.change_of_declared_parts(change)).take_events();
        events.iter().map(ToString::to_string).collect()
    }

    fn items_enqueued_by<T: Kind>(&self, a_loop: &Loop, change: &AnyChange) -> Vec<String> {
        let items = self.enqueue::<T>(a_loop, change).into_items().into_iter();
        items.map(|(item, _)| item.to_string()).collect()
    }

    fn enqueue<T: Kind>(&self, a_loop: &Loop, change: &AnyChange) -> Effects {
        let (kind, mut enqueue) = (KindEntry::of::<T>(), Effects::default());
        for watch in a_loop.watches.iter().filter(|watch| watch.kind == kind) {
            watch.enqueue(change, &self.view(), &mut enqueue);
        }
        for EnqueuedItem { item, .. } in enqueue.enqueued().iter().filter(|added| added.queue.is_none()) {
            assert!(a_loop.reconciler.accepts(item), "{} cannot reconcile {item}", a_loop.queue);
        }
        enqueue
    }

    /// Runs the loop's step before its start and returns the measurements, one line each.
    ///
    /// # Errors
    /// The error of the step.
    pub fn start(&mut self, a_loop: &Loop) -> Result<String, String> {
        let measured = a_loop.start_step.as_ref().map_or(Ok(Vec::new()), |step| step(&self.view()))?;
        let mut io = RehearsalIo { cluster: self, transcript: String::new() };
        measured.iter().for_each(|measurement| io.write_measurement(measurement));
        Ok(io.transcript)
    }

    /// The measurements that a change makes, one line each.
    pub fn measured_by<T: Kind>(&mut self, a_loop: &Loop, change: Change<T>) -> String {
        let measured = self.enqueue::<T>(a_loop, &self.change_of_declared_parts(change)).take_measurements();
        let mut io = RehearsalIo { cluster: self, transcript: String::new() };
        measured.iter().for_each(|measurement| io.write_measurement(measurement));
        io.transcript
    }

    /// Reconciles one item and returns the transcript: one line per write with its reason, and its outcome unless that
    /// is plain success.
    pub fn reconcile(&mut self, a_loop: &Loop, item: impl Into<Item>) -> String {
        let item = item.into();
        let mut io = RehearsalIo { cluster: self, transcript: String::new() };
        let result = now_or_never(a_loop.reconciler.reconcile_boxed(&mut Context::new(&mut io), &item));
        let mut transcript = io.transcript;
        // Writing to a String cannot fail.
        let _ = match result {
            Ok(Requeue::Forget) => Ok(()),
            Ok(Requeue::After(delay)) => writeln!(transcript, "requeue after {:?}", delay.duration),
            Ok(Requeue::KeepBackoff(delay)) => {
                writeln!(transcript, "requeue with kept backoff after {:?}", delay.duration)
            }
            Err(ReconcileError { because, .. }) => writeln!(transcript, "retry: {because}"),
        };
        transcript
    }

    /// Reconciles one item and returns what the queue does with it.
    ///
    /// # Errors
    /// That of the reconcile.
    pub fn requeue(&mut self, a_loop: &Loop, item: impl Into<Item>) -> Result<Requeue, ReconcileError> {
        let mut io = RehearsalIo { cluster: self, transcript: String::new() };
        now_or_never(a_loop.reconciler.reconcile_boxed(&mut Context::new(&mut io), &item.into()))
    }

    /// Reconciles one item and returns the transcript without the bodies of the writes.
    pub fn outline(&mut self, a_loop: &Loop, item: impl Into<Item>) -> String {
        let transcript = self.reconcile(a_loop, item);
        let without_body = |line: &str| format!("{}\n", line.split(": {").next().unwrap_or_default());
        transcript.lines().map(without_body).collect()
    }

    /// Reconciles one item and returns the bodies of the writes whose lines start with `beginning`, each with the name
    /// of its target.
    ///
    /// # Panics
    /// If such a line has no body.
    pub fn bodies(&mut self, a_loop: &Loop, item: impl Into<Item>, beginning: &str) -> Vec<(String, Value)> {
        let transcript = self.reconcile(a_loop, item);
        let lines = transcript.lines().filter_map(|line| line.strip_prefix(beginning)?.split_once(": {"));
        lines
            .map(|(line, body)| {
                let key = line.split_whitespace().next().unwrap_or_default();
                let name = key.rsplit('/').next().unwrap_or_default();
                (name.to_owned(), serde_json::from_str(&format!("{{{body}")).expect("a body"))
            })
            .collect()
    }
}

/// The rows of the caches that `work` reads on this thread, for tests that work does not grow with the number of objects.
pub fn rows_read<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = crate::store::rows_read();
    let result = work();
    (result, crate::store::rows_read() - before)
}

/// Whether a transcript ends with a retry because of an error with this message, be it that of a write or of a read.
#[must_use]
pub fn is_retried_because(transcript: &str, message: &str) -> bool {
    let error = transcript.lines().next_back().and_then(|line| line.strip_prefix("retry: "));
    let rest = error.and_then(|error| error.strip_suffix(message));
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(": "))
}

/// Completes a future that is never pending: all I/O of a rehearsal completes at once.
fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a reconciler awaited something other than its ReconcileIo"),
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::Pod;

    use super::*;
    use crate::Reconciler;

    struct WaitsForTheWorld;

    impl Reconciler for WaitsForTheWorld {
        async fn reconcile(
            &self,
            _: &mut Context<'_>,
            _: &keleustes_objects::Key,
        ) -> Result<Requeue, ReconcileError> {
            std::future::pending().await
        }
    }

    #[test]
    #[should_panic(expected = "awaited something other than its ReconcileIo")]
    fn reconcile_that_waits_for_more_than_responses_is_caught() {
        let a_loop = Loop::reconciling("waiting", WaitsForTheWorld);
        let _ = RehearsalCluster::of(&a_loop).reconcile(&a_loop, keleustes_objects::Key::cluster("a"));
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "p", "namespace": "a", "resourceVersion": "1"},
            "spec": {"imagePullSecrets": [{"name": "registry"}]}})
    }

    /// A loop that reads the Secrets of every pod, with what it declares.
    fn reading_secrets(declared: PodParts) -> Loop {
        Loop::deciding("secrets", |view, _: &Key| {
            let names = view.all::<Pod>().flat_map(|pod| pod.spec.secret_names());
            assert_eq!(names.map(|name| name.as_str()).collect::<Vec<_>>(), ["registry"]);
            crate::Plan::none()
        })
        .enqueue_on::<Pod>(|change, _, items| {
            change.old_and_new().for_each(|pod| assert_eq!(pod.spec.secret_names().len(), 1));
            items.add(&change.latest().meta.key);
        })
        .reads_pod_parts(declared)
    }

    #[test]
    fn declared_part_of_a_pod_is_read() {
        let a_loop = reading_secrets(PodParts::SECRET_NAMES);
        let mut cluster = RehearsalCluster::of(&a_loop);
        assert_eq!(cluster.put::<Pod>(&a_loop, pod()), ["a/p"]);
        let added = Change::added(Arc::new(serde_json::from_value::<Pod>(pod()).unwrap()));
        assert_eq!(cluster.enqueued_by(&a_loop, added), ["a/p"]);
        let _ = cluster.reconcile(&a_loop, Key::namespaced("a", "p"));
    }

    #[test]
    #[should_panic(expected = "SECRET_NAMES of a pod is read without being declared")]
    fn decision_that_reads_an_undeclared_part_of_a_pod_is_caught() {
        let a_loop = reading_secrets(PodParts::RESOURCES);
        let mut cluster = RehearsalCluster::of(&a_loop).with::<Pod>(pod());
        let _ = cluster.reconcile(&a_loop, Key::namespaced("a", "p"));
    }

    #[test]
    #[should_panic(expected = "SECRET_NAMES of a pod is read without being declared")]
    fn handler_that_reads_an_undeclared_part_of_a_pod_is_caught() {
        let a_loop = reading_secrets(PodParts::NONE);
        let added = Change::added(Arc::new(serde_json::from_value::<Pod>(pod()).unwrap()));
        let _ = RehearsalCluster::of(&a_loop).enqueued_by(&a_loop, added);
    }
}
