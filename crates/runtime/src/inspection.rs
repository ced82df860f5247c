//! What runs in this process, for people: the controllers with their loops, and the journal of what they decided.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use keleustes_objects::{Key, Resource};
use keleustes_plan::{AnyReconciler, Controller, Grant, Item, KindEntry, Observer, StartStep, Watch};
use parking_lot::Mutex;
use serde::Serialize;

use crate::caches::Caches;
use crate::clock::Clocks;
use crate::journal::{BYTES_MAX_DEFAULT, Journal, JournalEntry};
use crate::loops::RunningLoop;

/// How many of the slowest reconciles of a loop are kept.
const SLOWEST_MAX: usize = 3;

/// What runs in this process. Clones share it.
#[derive(Clone)]
pub struct Inspection(Arc<Shared>);

struct Shared {
    journal: Journal,
    leads: AtomicBool,
    controllers: Mutex<Vec<Arc<RegisteredController>>>,
    running: Mutex<Vec<Weak<RunningLoop>>>,
}

/// What a dry run needs of a controller, whether it runs or not.
pub(crate) struct RegisteredController {
    pub(crate) name: &'static str,
    pub(crate) grants: &'static [Grant],
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) loops: Vec<RegisteredLoop>,
}

/// What a dry run needs of a loop.
pub(crate) struct RegisteredLoop {
    pub(crate) queue: &'static str,
    pub(crate) keyed_by: Option<KindEntry>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) reads: Vec<KindEntry>,
    pub(crate) initial_items: Vec<Item>,
    pub(crate) start_step: Option<StartStep>,
    pub(crate) reconciler: Arc<dyn AnyReconciler>,
}

impl RegisteredLoop {
    /// Whether its items are named after objects of this resource.
    pub(crate) fn is_keyed_by(&self, resource: &Resource) -> bool {
        self.keyed_by.as_ref().is_some_and(|kind| is_same(kind.resource(), resource))
    }

    /// The item of an object; `None` if its items are not keys of objects.
    pub(crate) fn object_item(&self, key: &Key) -> Option<Item> {
        Some(Item::from(key)).filter(|item| self.reconciler.accepts(item))
    }
}

/// Whether two resources are the same in any version.
pub(crate) fn is_same(one: &Resource, other: &Resource) -> bool {
    (&one.group, &one.plural) == (&other.group, &other.plural)
}

impl Inspection {
    /// Nothing runs yet, and the journal has its default limit.
    #[must_use]
    pub fn new(clocks: Clocks) -> Self {
        Self(Arc::new(Shared {
            journal: Journal::new(clocks, BYTES_MAX_DEFAULT),
            leads: AtomicBool::new(false),
            controllers: Mutex::default(),
            running: Mutex::default(),
        }))
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.0.journal
    }

    /// Registers controllers, also on a standby, where they do not run yet. A controller that is registered again
    /// replaces the earlier one of its name.
    pub fn register(&self, controllers: &[Controller]) {
        let mut registered = self.0.controllers.lock();
        for controller in controllers {
            let loops = controller.loops.iter().map(|a_loop| RegisteredLoop {
                queue: a_loop.queue,
                keyed_by: a_loop.keyed_by.clone(),
                watches: a_loop.watches.clone(),
                reads: a_loop.reads.clone(),
                initial_items: a_loop.initial_items.clone(),
                start_step: a_loop.start_step.clone(),
                reconciler: a_loop.reconciler.clone(),
            });
            let entry = Arc::new(RegisteredController {
                name: controller.name,
                grants: controller.grants,
                observer: controller.observer.clone(),
                loops: loops.collect(),
            });
            match registered.iter_mut().find(|there| there.name == entry.name) {
                Some(there) => *there = entry,
                None => registered.push(entry),
            }
        }
    }

    /// From now on this process leads.
    pub fn start_leading(&self) {
        self.0.leads.store(true, Ordering::Release);
    }

    /// Whether this process leads, or once led.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.0.leads.load(Ordering::Acquire)
    }

    pub(crate) fn add_loops(&self, loops: &[Arc<RunningLoop>]) {
        let mut running = self.0.running.lock();
        running.retain(|there| there.strong_count() > 0);
        running.extend(loops.iter().map(Arc::downgrade));
    }

    pub(crate) fn controllers(&self) -> Vec<Arc<RegisteredController>> {
        self.0.controllers.lock().clone()
    }

    pub(crate) fn running(&self) -> Vec<Arc<RunningLoop>> {
        self.0.running.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn running_loop(&self, controller: &str, queue: &str) -> Option<Arc<RunningLoop>> {
        self.running().into_iter().find(|there| there.controller == controller && there.spec.queue == queue)
    }

    /// What every controller is doing, and the latest decisions.
    #[must_use]
    pub fn overview(&self, caches: &Caches, decisions_max: usize) -> Overview {
        let running = self.running();
        let controllers = self.controllers();
        let summarize = |controller: &Arc<RegisteredController>| {
            let loops = running.iter().filter(|there| there.controller == controller.name);
            let loops: Vec<_> = loops.map(|a_loop| LoopOverview::of(a_loop)).collect();
            let unsynced = if loops.is_empty() { unsynced(controller, caches) } else { Vec::new() };
            let state = match (loops.is_empty(), self.leads(), unsynced.is_empty()) {
                (false, ..) => "running",
                (true, false, _) => "standby",
                (true, true, false) => "waiting for caches",
                (true, true, true) => "starting",
            };
            ControllerOverview { name: controller.name, state, unsynced, loops }
        };
        let (added, dropped) = self.journal().counts();
        Overview {
            leads: self.leads(),
            controllers: controllers.iter().map(summarize).collect(),
            journal_bytes: self.journal().bytes(),
            journal_entries: added - dropped,
            decisions: self.journal().latest(decisions_max, |_| true),
        }
    }
}

/// The kinds that a controller reads and that are not listed yet, each with the last error.
fn unsynced(controller: &RegisteredController, caches: &Caches) -> Vec<String> {
    let known = caches.all();
    let reads = controller.loops.iter().flat_map(|a_loop| &a_loop.reads);
    let missing = reads.filter_map(|kind| {
        let cache = known.iter().find(|cache| cache.entry() == kind && cache.list_count() == 0)?;
        let failure = cache.last_failure().map(|failure| format!(": {failure}")).unwrap_or_default();
        Some(format!("{}{failure}", kind.resource()))
    });
    let mut missing: Vec<_> = missing.collect();
    missing.sort();
    missing.dedup();
    missing
}

/// What every controller is doing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Whether this process leads.
    pub leads: bool,
    /// The controllers, in the order of their construction.
    pub controllers: Vec<ControllerOverview>,
    /// The size of the journal.
    pub journal_bytes: usize,
    /// The number of its entries.
    pub journal_entries: u64,
    /// The latest entries, the newest first.
    pub decisions: Vec<JournalEntry>,
}

/// What one controller is doing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerOverview {
    /// Its name.
    pub name: &'static str,
    /// One word or three.
    pub state: &'static str,
    /// The kinds that it waits for, with the last errors.
    pub unsynced: Vec<String>,
    /// Its loops, if it runs.
    pub loops: Vec<LoopOverview>,
}

/// What one loop is doing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopOverview {
    /// The name of its queue.
    pub queue: &'static str,
    /// The resource that its items are named after, as kubectl takes it.
    pub resource: Option<String>,
    /// Items that are queued now.
    pub queued: usize,
    /// Items that are being reconciled.
    pub processing: usize,
    /// Items that are queued later.
    pub waiting: usize,
    /// Items whose last reconcile failed.
    pub failing: usize,
    /// How often an item was requeued with backoff since the start.
    pub retries: u64,
    /// Reconciles since the start.
    pub reconciles: u64,
    /// Failed ones.
    pub failures: u64,
    /// The slowest reconciles since the start: the item, and milliseconds.
    pub slowest: Vec<(String, u64)>,
}

impl LoopOverview {
    fn of(a_loop: &RunningLoop) -> Self {
        let (counts, counters) = (a_loop.queue.counts(), &a_loop.counters);
        Self {
            queue: a_loop.spec.queue,
            resource: a_loop.spec.keyed_by.as_ref().map(|kind| kind.resource().to_string()),
            queued: counts.queued,
            processing: counts.processing,
            waiting: counts.waiting,
            failing: counts.failing,
            retries: counts.retries,
            reconciles: counters.reconciles.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
            slowest: counters.slowest(),
        }
    }
}

/// The counts of one loop.
#[derive(Default)]
pub(crate) struct LoopCounters {
    reconciles: AtomicU64,
    failures: AtomicU64,
    /// A reconcile that took less is not among the slowest, in microseconds.
    slowest_floor: AtomicU64,
    slowest: Mutex<Vec<(Duration, Item)>>,
}

impl LoopCounters {
    /// Counts a reconcile.
    pub(crate) fn reconciled(&self, item: &Item, took: Duration) {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if micros <= self.slowest_floor.load(Ordering::Relaxed) {
            return;
        }
        let mut slowest = self.slowest.lock();
        match slowest.iter_mut().find(|(_, there)| there == item) {
            Some((longest, _)) => *longest = took.max(*longest),
            None => slowest.push((took, item.clone())),
        }
        slowest.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        slowest.truncate(SLOWEST_MAX);
        if slowest.len() == SLOWEST_MAX {
            let floor = slowest.last().map_or(0, |(took, _)| u64::try_from(took.as_micros()).unwrap_or(0));
            self.slowest_floor.store(floor, Ordering::Relaxed);
        }
    }

    /// Counts a failure.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn slowest(&self) -> Vec<(String, u64)> {
        let slowest = self.slowest.lock();
        let shown = |(took, item): &(Duration, Item)| {
            (item.to_string(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
        };
        slowest.iter().map(shown).collect()
    }
}
