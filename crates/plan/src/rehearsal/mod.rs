//! Plays decisions through without any API: for decision tables, and for whoever wants to know what
//! would be done before it is.
//!
//! A [`World`] has two sides. The caches are what a controller sees; the live objects are what a fresh
//! read would find. They are equal unless a test says otherwise, which is how staleness is told.

mod hands;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use keleustes_objects::{ApiError, DiscoveredResources, ErrorReason, Key, Kind, Resource, Time, Uid};
use serde_json::{Value, json};

use self::hands::Rehearsing;
use crate::{
    AnyChange, AnyStore, Change, Context, Enqueue, Guard, Item, KindEntry, Loop, LoopKind, Now,
    ReconcileError, ReconcileIo as _, Requeue, Target, View,
};

/// A small world of caches and live objects.
pub struct RehearsalCluster {
    tables: Vec<(KindEntry, Box<dyn AnyStore>)>,
    live: BTreeMap<String, Value>,
    /// By verb and path; those with a number end after so many times.
    refusals: BTreeMap<String, (ApiError, Option<u32>)>,
    /// What comes of objects, by path, when a request about them first fails.
    moves: BTreeMap<String, Option<Value>>,
    /// Paths of objects that are asked to go and stay.
    staying: BTreeSet<String>,
    discovered: Result<DiscoveredResources, ApiError>,
    now: Now,
}

impl Default for RehearsalCluster {
    fn default() -> Self {
        let now = Now { wall: Time::from_unix_seconds(1_800_000_000), monotonic: Duration::from_secs(1000) };
        Self {
            tables: Vec::new(),
            live: BTreeMap::new(),
            refusals: BTreeMap::new(),
            moves: BTreeMap::new(),
            staying: BTreeSet::new(),
            discovered: Ok(DiscoveredResources::default()),
            now,
        }
    }
}

impl RehearsalCluster {
    /// An empty world that a loop can look at: it has a table for every kind the loop declared.
    #[must_use]
    pub fn of(a_loop: &Loop) -> Self {
        let mut world = Self::default();
        for entry in &a_loop.reads {
            let mut table = entry.new_store();
            for index in a_loop.indexes.iter().filter(|index| index.kind == *entry) {
                index.add_to(&mut *table);
            }
            world.tables.push((entry.clone(), table));
        }
        world
    }

    /// Lets time pass, on both clocks.
    #[must_use]
    pub fn with_clock_advanced(mut self, passed: Duration) -> Self {
        self.advance_clock(passed);
        self
    }

    /// Lets time pass, on both clocks.
    pub fn advance_clock(&mut self, passed: Duration) {
        let seconds = i64::try_from(passed.as_secs()).unwrap_or(i64::MAX);
        self.now.wall = Time::from_unix_seconds(self.now.wall.unix_seconds().saturating_add(seconds));
        self.now.monotonic += passed;
    }

    /// Adds an object to the caches and to the live world.
    #[must_use]
    pub fn with<T: Kind>(self, json: Value) -> Self {
        self.with_cached::<T>(json.clone()).with_live::<T>(json)
    }

    /// Adds an object to the caches only.
    ///
    /// # Panics
    /// If it cannot be decoded, or the loop did not declare its kind.
    #[must_use]
    pub fn with_cached<T: Kind>(mut self, json: Value) -> Self {
        let object: T = serde_json::from_value(json).expect("a well-formed object");
        self.table_mut::<T>().apply(Arc::new(object));
        self
    }

    /// Adds an object to the live world only.
    ///
    /// # Panics
    /// If it cannot be decoded.
    #[must_use]
    pub fn with_live<T: Kind>(mut self, json: Value) -> Self {
        let object: T = serde_json::from_value(json.clone()).expect("a well-formed object");
        self.live.insert(T::RESOURCE.object_path(object.key()), json);
        self
    }

    /// Adds an object of any resource to the live world.
    #[must_use]
    pub fn with_live_resource(mut self, resource: &Resource, json: Value) -> Self {
        let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default();
        let path = resource.object_path(&Key::namespaced(text("namespace"), text("name")));
        self.live.insert(path, json);
        self
    }

    /// Keeps an object there however often it is deleted, as one does whose end takes time.
    #[must_use]
    pub fn with_blocked_deletion(mut self, resource: &Resource, key: &Key) -> Self {
        self.staying.insert(resource.object_path(key));
        self
    }

    /// Serves these resources.
    #[must_use]
    pub fn with_discovery(mut self, discovered: Result<DiscoveredResources, ApiError>) -> Self {
        self.discovered = discovered;
        self
    }

    /// Makes requests about an object fail. `verb` is `get` or a write's verb.
    #[must_use]
    pub fn failing<T: Kind>(self, verb: &str, key: &Key, failure: ApiError) -> Self {
        self.failing_at(verb, &T::RESOURCE.object_path(key), failure, None)
    }

    /// Makes requests to a path fail, so many times or always. `verb` is `get`, `list` or a write's verb.
    #[must_use]
    pub fn failing_at(mut self, verb: &str, path: &str, failure: ApiError, times: Option<u32>) -> Self {
        self.refusals.insert(format!("{verb} {path}"), (failure, times));
        self
    }

    /// Changes an object, or takes it away, at the first request about it that fails: the failure came of it.
    #[must_use]
    pub fn changing_on_failure(mut self, path: &str, now: Option<Value>) -> Self {
        self.moves.insert(path.to_owned(), now);
        self
    }

    /// Whether a request fails, this time.
    fn refusal(&mut self, verb: &str, path: &str) -> Option<ApiError> {
        let (failure, times) = self.refusals.get_mut(&format!("{verb} {path}"))?;
        match times {
            Some(0) => return None,
            Some(times) => *times -= 1,
            None => {}
        }
        let failure = failure.clone();
        match self.moves.remove(path) {
            Some(Some(now)) => drop(self.live.insert(path.to_owned(), now)),
            Some(None) => drop(self.live.remove(path)),
            None => {}
        }
        Some(failure)
    }

    /// What a fresh look at the live world has against a write.
    fn objection(&self, guard: &Guard) -> Option<ApiError> {
        let Guard::RecheckOwner(Target { resource, key, uid }) = guard;
        let live = self.live.get(&resource.object_path(key)).map(|object| &object["metadata"]);
        let why = match live {
            None => "the owner is gone",
            Some(live) if Uid::from(live["uid"].as_str().unwrap_or_default()) != *uid => {
                "the owner is another one"
            }
            Some(live) if !live["deletionTimestamp"].is_null() => "the owner is being deleted",
            Some(_) => return None,
        };
        Some(ApiError::transport(ErrorReason::Other, why))
    }

    fn paths_below(&self, collection: &str) -> Vec<String> {
        let below = |path: &&String| path.rsplit_once('/').is_some_and(|(there, _)| there == collection);
        self.live.keys().filter(below).cloned().collect()
    }

    /// Deletes an object as the server does: what finalizers hold is only marked.
    fn delete(&mut self, path: &str) {
        let now = self.now.wall.to_string();
        let Some(object) = self.live.get_mut(path) else { return };
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        if held || self.staying.contains(path) {
            object["metadata"]["deletionTimestamp"] = json!(now);
        } else {
            self.live.remove(path);
        }
    }

    /// The live object at a path.
    #[must_use]
    pub fn live_object<T: Kind>(&self, key: &Key) -> Option<&Value> {
        self.live.get(&T::RESOURCE.object_path(key))
    }

    /// The caches, as a controller sees them.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(self.tables.iter().map(|(entry, table)| (entry.clone(), &**table)).collect(), self.now)
    }

    /// Puts an object into the caches and into the live world, and tells the items that this wakes.
    ///
    /// # Panics
    /// If it cannot be decoded, or the loop did not declare its kind.
    pub fn put<T: Kind>(&mut self, a_loop: &Loop, json: Value) -> Vec<String> {
        let object: T = serde_json::from_value(json.clone()).expect("a well-formed object");
        self.live.insert(T::RESOURCE.object_path(object.key()), json);
        let change = self.table_mut::<T>().apply(Arc::new(object));
        self.enqueue_on::<T>(a_loop, &change)
    }

    /// Takes an object out of the caches and out of the live world, and tells the items that this wakes.
    ///
    /// # Panics
    /// If it is not cached.
    pub fn take<T: Kind>(&mut self, a_loop: &Loop, key: &Key) -> Vec<String> {
        self.live.remove(&T::RESOURCE.object_path(key));
        let last = self.view().get::<T>(key).expect("a cached object").clone();
        let change = self.table_mut::<T>().delete(last);
        self.enqueue_on::<T>(a_loop, &change)
    }

    fn table_mut<T: Kind>(&mut self) -> &mut dyn AnyStore {
        let wanted = KindEntry::of::<T>();
        let found = self.tables.iter_mut().find(|(entry, _)| *entry == wanted);
        &mut *found.expect("a declared kind").1
    }

    /// The items that a change wakes, one line each.
    #[must_use]
    pub fn enqueued_by<T: Kind>(&self, a_loop: &Loop, change: Change<T>) -> Vec<String> {
        self.enqueue_on::<T>(a_loop, &change.into())
    }

    fn enqueue_on<T: Kind>(&self, a_loop: &Loop, change: &AnyChange) -> Vec<String> {
        let (kind, mut wakes) = (KindEntry::of::<T>(), Enqueue::default());
        for watch in a_loop.watches.iter().filter(|watch| watch.kind == kind) {
            watch.enqueue(change, &self.view(), &mut wakes);
        }
        wakes.into_items().into_iter().map(|(item, _)| item.to_string()).collect()
    }

    /// Works on one item and tells what was done, one line per write, with the reason and what became
    /// of it where that was not plain success.
    pub fn reconcile(&mut self, a_loop: &Loop, item: impl Into<Item>) -> String {
        let item = item.into();
        let mut hands = Rehearsing { world: self, transcript: String::new() };
        let result = match &a_loop.loop_kind {
            LoopKind::Decide(decide) => {
                let plan = decide(&hands.world.view(), &item);
                let revisit = plan.requeue_delay().map_or(Requeue::Forget, Requeue::After);
                now_or_never(hands.apply(plan)).all_done().map(|()| revisit)
            }
            LoopKind::Reconcile(script) => {
                let script = script.clone();
                now_or_never(script.reconcile(&mut Context::new(&mut hands), &item))
            }
        };
        let mut transcript = hands.transcript;
        // Writing to a String cannot fail.
        let _ = match result {
            Ok(Requeue::Forget) => Ok(()),
            Ok(Requeue::After(delay)) => writeln!(transcript, "requeue after {delay:?}"),
            Ok(Requeue::KeepBackoff(delay)) => {
                writeln!(transcript, "requeue with kept backoff after {delay:?}")
            }
            Err(ReconcileError { because, .. }) => writeln!(transcript, "retry: {because}"),
        };
        transcript
    }

    /// Works on one item and tells what was done, without the bodies of writes.
    pub fn outline(&mut self, a_loop: &Loop, item: impl Into<Item>) -> String {
        let transcript = self.reconcile(a_loop, item);
        let without_body = |line: &str| format!("{}\n", line.split(": {").next().unwrap_or_default());
        transcript.lines().map(without_body).collect()
    }

    /// Works on one item and tells the bodies of those writes whose lines begin so, each with the name of its
    /// target.
    ///
    /// # Panics
    /// If a line that begins so is not about a write with a body.
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

/// Finishes a future that never waits: everything a rehearsal touches answers at once.
fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a script waited for something other than its hands"),
    }
}
