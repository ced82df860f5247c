//! Plays decisions through without any API: for decision tables, and for whoever wants to know what
//! would be done before it is.
//!
//! A [`World`] has two sides. The caches are what a controller sees; the live objects are what a fresh
//! read would find. They are equal unless a test says otherwise, which is how staleness is told.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use keleustes_objects::{Failure, Key, Kind, Resource, Text, Time, Uid, Version};
use serde_json::Value;

use crate::{
    Action, AnyTable, Applied, Behaviour, BoxFuture, Change, Context, Edited, EventNote, Hands, Item,
    KindEntry, Loop, Measurement, Next, Now, OnFailure, Outcome, Plan, Retry, View, Wakes, Write,
};

/// A small world of caches and live objects.
pub struct World {
    tables: Vec<(KindEntry, Box<dyn AnyTable>)>,
    live: BTreeMap<String, Value>,
    refusals: BTreeMap<String, Failure>,
    now: Now,
}

impl Default for World {
    fn default() -> Self {
        let now = Now { wall: Time::from_unix_seconds(1_800_000_000), monotonic: Duration::from_secs(1000) };
        Self { tables: Vec::new(), live: BTreeMap::new(), refusals: BTreeMap::new(), now }
    }
}

impl World {
    /// An empty world that a loop can look at: it has a table for every kind the loop declared.
    #[must_use]
    pub fn of(a_loop: &Loop) -> Self {
        let mut world = Self::default();
        for entry in &a_loop.reads {
            let mut table = entry.new_table();
            for index in a_loop.indexes.iter().filter(|index| index.kind == *entry) {
                index.add_to(&mut *table);
            }
            world.tables.push((entry.clone(), table));
        }
        world
    }

    /// Lets time pass, on both clocks.
    #[must_use]
    pub fn later(mut self, passed: Duration) -> Self {
        self.let_pass(passed);
        self
    }

    /// Lets time pass, on both clocks.
    pub fn let_pass(&mut self, passed: Duration) {
        let seconds = i64::try_from(passed.as_secs()).unwrap_or(i64::MAX);
        self.now.wall = Time::from_unix_seconds(self.now.wall.unix_seconds().saturating_add(seconds));
        self.now.monotonic += passed;
    }

    /// Adds an object to the caches and to the live world.
    #[must_use]
    pub fn with<T: Kind>(self, json: Value) -> Self {
        self.cached::<T>(json.clone()).live::<T>(json)
    }

    /// Adds an object to the caches only.
    ///
    /// # Panics
    /// If it cannot be decoded, or the loop did not declare its kind.
    #[must_use]
    pub fn cached<T: Kind>(mut self, json: Value) -> Self {
        let wanted = KindEntry::of::<T>();
        let object: T = serde_json::from_value(json).expect("a well-formed object");
        let table = self.tables.iter_mut().find(|(entry, _)| *entry == wanted).expect("a declared kind");
        table.1.apply(Arc::new(object));
        self
    }

    /// Adds an object to the live world only.
    ///
    /// # Panics
    /// If it cannot be decoded.
    #[must_use]
    pub fn live<T: Kind>(mut self, json: Value) -> Self {
        let object: T = serde_json::from_value(json.clone()).expect("a well-formed object");
        self.live.insert(T::RESOURCE.object_path(object.key()), json);
        self
    }

    /// Makes requests about an object fail. `verb` is `get` or a write's verb.
    #[must_use]
    pub fn refusing<T: Kind>(mut self, verb: &str, key: &Key, failure: Failure) -> Self {
        self.refusals.insert(format!("{verb} {}", T::RESOURCE.object_path(key)), failure);
        self
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

    /// The items that a change wakes, one line each.
    #[must_use]
    pub fn wakes<T: Kind>(&self, a_loop: &Loop, change: Change<T>) -> Vec<String> {
        let (kind, change, mut wakes) = (KindEntry::of::<T>(), change.into(), Wakes::default());
        for watch in a_loop.watches.iter().filter(|watch| watch.kind == kind) {
            watch.wake(&change, &self.view(), &mut wakes);
        }
        wakes.into_items().into_iter().map(|(item, _)| item.to_string()).collect()
    }

    /// Works on one item and tells what was done, one line per write, with the reason and what became
    /// of it where that was not plain success.
    pub fn sync(&mut self, a_loop: &Loop, item: impl Into<Item>) -> String {
        let item = item.into();
        let mut hands = Rehearsing { world: self, transcript: String::new() };
        let result = match &a_loop.behaviour {
            Behaviour::Decide(decide) => {
                let plan = decide(&hands.world.view(), &item);
                let revisit = plan.revisit().map_or(Next::Done, Next::Revisit);
                now_or_never(hands.apply(plan)).all_done().map(|()| revisit)
            }
            Behaviour::Script(script) => {
                let script = script.clone();
                now_or_never(script.sync(&mut Context::new(&mut hands), &item))
            }
        };
        let mut transcript = hands.transcript;
        // Writing to a String cannot fail.
        let _ = match result {
            Ok(Next::Done) => Ok(()),
            Ok(Next::Revisit(delay)) => writeln!(transcript, "revisit after {delay:?}"),
            Err(Retry { because, .. }) => writeln!(transcript, "retry: {because}"),
        };
        transcript
    }
}

/// The hands of a rehearsal: they change the live objects of a world and keep minutes.
struct Rehearsing<'w> {
    world: &'w mut World,
    transcript: String,
}

impl Rehearsing<'_> {
    fn carry_out(&mut self, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        if let Some(complaint) = plan.complaint() {
            applied.retry = Some(Retry::because(complaint));
        }
        for measurement in plan.measurements() {
            self.note_measurement(measurement);
        }
        for event in plan.events() {
            self.note_event(event);
        }
        let writes = plan.steps().iter().flat_map(crate::Step::writes);
        let mut stopped = false;
        for write in writes {
            let outcome = if stopped { Outcome::NotTried } else { self.write(write) };
            if let Outcome::Failed(failure) = &outcome {
                stopped |= write.on_failure == OnFailure::StopAndRetry;
                if write.on_failure != OnFailure::LogOnly {
                    applied.retry.get_or_insert_with(|| Retry::because(failure.to_string()));
                }
            }
            if let Some(event) = write.report.as_ref().and_then(|report| report(&outcome)) {
                self.note_event(&event);
            }
            applied.outcomes.push(outcome);
        }
        applied
    }

    fn note_event(&mut self, event: &EventNote) {
        let (kind, reason, message) = (event.kind.as_str(), &event.reason, &event.message);
        let _ = writeln!(self.transcript, "event {kind} {reason}: {message}");
    }

    fn note_measurement(&mut self, measurement: &Measurement) {
        let Measurement { metric, labels, value } = measurement;
        let _ = writeln!(self.transcript, "measure {}{{{}}} {value}", metric.name, labels.join(","));
    }

    fn write(&mut self, write: &Write) -> Outcome {
        let path = write.target.resource.object_path(&write.target.key);
        let refused = self.world.refusals.get(&format!("{} {path}", write.verb())).cloned();
        let result = match (refused, &write.action) {
            (Some(failure), _) if write.tolerated.contains(&failure.reason) => {
                Ok(format!(" (refused, which is fine: {failure})"))
            }
            (Some(failure), _) => Err(failure),
            (
                None,
                Action::Create(body)
                | Action::Apply { fields: body, .. }
                | Action::Patch { body, .. }
                | Action::Put { body, .. },
            ) => Ok(format!(": {body}")),
            (None, Action::Edit(edit)) => return self.edit(write, edit, &path),
            (None, Action::Delete { .. }) => {
                self.world.live.remove(&path);
                Ok(String::new())
            }
        };
        let (note, outcome) = match result {
            Ok(note) => (note, done_with(write)),
            Err(failure) => (format!(" FAILED: {failure}"), Outcome::Failed(failure)),
        };
        let _ = writeln!(self.transcript, "{write}{note}");
        outcome
    }

    fn edit(&mut self, write: &Write, edit: &crate::Edit, path: &str) -> Outcome {
        let Some(live) = self.world.live.get_mut(path) else {
            let _ = writeln!(self.transcript, "{write} (gone)");
            return Outcome::Unneeded;
        };
        let live_version = Version::from(live["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        if edit.decided_on.as_ref().is_some_and(|decided_on| *decided_on != live_version) {
            let _ = writeln!(self.transcript, "{write} (moved on)");
            return Outcome::Unneeded;
        }
        let before = live.clone();
        let (note, outcome) = match (edit.change)(live) {
            Edited::Changed if *live == before => unreachable!("an edit said it changed what it left alone"),
            Edited::Changed => {
                let (uid, name) = (Uid::default(), write.target.key.name.clone());
                (String::new(), Outcome::Done { version: live_version, uid, name })
            }
            Edited::Unneeded => (" (unneeded)".to_owned(), Outcome::Unneeded),
            Edited::Impossible(why) => (format!(" (impossible: {why})"), Outcome::Unneeded),
        };
        let _ = writeln!(self.transcript, "{write}{note}");
        outcome
    }
}

impl Hands for Rehearsing<'_> {
    fn look(&self, eye: &mut dyn FnMut(&View<'_>)) {
        eye(&self.world.view());
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let applied = self.carry_out(&plan);
        Box::pin(async move { applied })
    }

    fn measure(&mut self, measurement: Measurement) {
        self.note_measurement(&measurement);
    }

    fn fetch<'a>(
        &'a mut self,
        resource: &'a Resource,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<String>, Failure>> {
        let path = resource.object_path(key);
        let _ = writeln!(self.transcript, "get {resource} {key}");
        let answer = match self.world.refusals.get(&format!("get {path}")) {
            Some(failure) => Err(failure.clone()),
            None => Ok(self.world.live.get(&path).map(Value::to_string)),
        };
        Box::pin(async move { answer })
    }
}

/// What the server would answer; a name it chose ends in `-new`.
fn done_with(write: &Write) -> Outcome {
    let name = match &write.action {
        Action::Create(body) if write.target.key.name.is_empty() => {
            Text::from(format!("{}new", body["metadata"]["generateName"].as_str().unwrap_or_default()))
        }
        _ => write.target.key.name.clone(),
    };
    Outcome::Done { version: Version::default(), uid: Uid::default(), name }
}

/// Finishes a future that never waits: everything a rehearsal touches answers at once.
fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a script waited for something other than its hands"),
    }
}
