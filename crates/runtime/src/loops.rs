//! Runs the loops of controllers: wakes items, lets controllers decide, has plans carried out, and
//! decides what follows.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use keleustes_objects::{ApiError, DiscoveredResources, Key, Resource, TypeMeta};
use keleustes_plan::{
    AnyChange, Applied, BoxFuture, Context, Controller, Effects, Enqueue, EnqueuedItem, FetchResult, Item,
    KindEntry, ListRequest, ListResult, Loop, LoopKind, Measurement, Plan, PlannedEvent, ReconcileError,
    ReconcileIo, Requeue, View,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caches::{Cache, CacheReader, Caches, EventHandler, RESYNC_PERIOD_MIN};
use crate::clock::{Clocks, Random};
use crate::executor::Executor;
use crate::gate::{Gate, GateDecision};
use crate::handover::PredecessorState;
use crate::metrics::Metrics;
use crate::monitors::{EffectsSink, Monitors};
use crate::queue::Queue;
use crate::status_coalescing::StatusCoalescer;

/// A turn that takes longer than this is told, with its item.
const SLOW_TURN: Duration = Duration::from_millis(250);

/// How many changes are told to a loop at once.
const CHANGES_AT_ONCE: usize = 1000;
/// How long a controller that observes everything waits until everything has been seen once.
const OBSERVED_WITHIN: Duration = Duration::from_secs(30);

/// What every loop needs from its surroundings.
#[derive(Clone)]
pub struct ControllerContext {
    /// The shared caches.
    pub caches: Caches,
    /// The clocks.
    pub clocks: Clocks,
    /// The source of chance.
    pub random: Random,
    /// The metrics.
    pub metrics: Metrics,
    /// Whether this process still leads.
    pub is_leader: Arc<dyn Fn() -> bool + Send + Sync>,
    /// How many writes of one plan may be under way at once.
    pub in_flight_max: usize,
    /// What caches must know of the leader before.
    pub predecessor_state: Arc<PredecessorState>,
}

/// A controller at work. Dropped, it hears of nothing any more; [`Running::stop`] lets the work under way end.
pub struct RunningController {
    /// Its name.
    pub name: &'static str,
    loops: Vec<Arc<RunningLoop>>,
    ears: Vec<(Arc<Cache>, Arc<dyn EventHandler>)>,
    monitors: Option<Arc<Monitors>>,
    workers: TaskTracker,
}

struct RunningLoop {
    controller: &'static str,
    what: Loop,
    window: CacheReader,
    queue: Queue,
    /// How many of an item's failures were those of a server in trouble. Kept only where items can be given up.
    held_up: Mutex<BTreeMap<Item, u32>>,
    gate: Arc<Gate>,
    pace: Arc<Mutex<StatusCoalescer>>,
    executor: Executor,
    outbox: Arc<Outbox>,
    metrics: Metrics,
    clocks: Clocks,
    stop: CancellationToken,
}

/// Where items of one loop go that another one stirs up, and events that belong to no plan.
struct Outbox {
    queues: Vec<(&'static str, Queue)>,
    record: Arc<dyn Fn(PlannedEvent) + Send + Sync>,
    leads: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Outbox {
    fn take(&self, stir: Effects) {
        for EnqueuedItem { queue: name, item, rate_limited: slowly } in stir.enqueued {
            let found = self.queues.iter().find(|(there, _)| *there == name);
            let (_, queue) = found.unwrap_or_else(|| panic!("no loop of this controller has a queue {name}"));
            if slowly { queue.add_rate_limited(item, Duration::ZERO) } else { queue.add(item) }
        }
        stir.events.into_iter().filter(|_| (self.leads)()).for_each(|event| (self.record)(event));
    }
}

/// Asks for the caches that a controller reads, so that they fill before it starts, and adds the
/// indexes it declared.
pub fn prepare(controller: &Controller, caches: &Caches) {
    for a_loop in &controller.loops {
        let _filling = caches.reader(&a_loop.reads);
        caches.add_indexes(&a_loop.indexes);
    }
    if let Some(observer) = &controller.observer {
        let _observing = caches.monitors(observer);
    }
}

/// Starts a controller as soon as the caches it reads are filled. Its writes go through `client`,
/// its events to `record`.
///
/// Whoever gives up waiting and drops this has started nothing.
pub async fn start(
    controller: Controller,
    surroundings: &ControllerContext,
    client: kube::Client,
    record: Arc<dyn Fn(PlannedEvent) + Send + Sync>,
) -> RunningController {
    prepare(&controller, &surroundings.caches);
    known(&needed(&controller, &surroundings.caches), &surroundings.predecessor_state).await;
    let monitors = observed(&controller, &surroundings.caches).await;
    let (name, grants) = (controller.name, controller.grants);
    controller.metrics.iter().for_each(|metric| surroundings.metrics.declare(metric));
    let queue_of = |what: &Loop| {
        let metrics = surroundings.metrics.queue(what.queue);
        (what.queue, Queue::new(what.rate_limiter, surroundings.clocks.clone(), metrics))
    };
    let outbox = Arc::new(Outbox {
        queues: controller.loops.iter().map(queue_of).collect(),
        record: record.clone(),
        leads: surroundings.is_leader.clone(),
    });
    let mut running = RunningController {
        name,
        loops: Vec::new(),
        ears: Vec::new(),
        monitors: None,
        workers: TaskTracker::new(),
    };
    if let Some(monitors) = monitors {
        let sink = outbox.clone();
        let sink: EffectsSink = Arc::new(move |stir| sink.take(stir));
        monitors.start_leading(&sink);
        running.monitors = Some(monitors);
    }
    for (what, (_, queue)) in controller.loops.into_iter().zip(&outbox.queues) {
        let window = surroundings.caches.reader(&what.reads).deferring(&what.starts_without);
        // By convention, items are named after objects of the first kind that wakes them.
        let owners = what.watches.first().map(|watch| surroundings.caches.cache(&watch.kind));
        let gate = Arc::new(Gate::new(window.caches(), owners, surroundings.clocks.clone()));
        let pace = Arc::new(Mutex::new(StatusCoalescer::default()));
        let executor = Executor {
            controller: name,
            grants,
            client: client.clone(),
            gate: gate.clone(),
            caches: surroundings.caches.clone(),
            status_coalescer: pace.clone(),
            clocks: surroundings.clocks.clone(),
            is_leader: surroundings.is_leader.clone(),
            record: record.clone(),
            metrics: surroundings.metrics.clone(),
            in_flight_max: surroundings.in_flight_max,
            random: Mutex::new(surroundings.random.fork()),
        };
        running.run(RunningLoop {
            controller: name,
            what,
            window,
            queue: queue.clone(),
            held_up: Mutex::default(),
            gate,
            pace,
            executor,
            outbox: outbox.clone(),
            metrics: surroundings.metrics.clone(),
            clocks: surroundings.clocks.clone(),
            stop: CancellationToken::new(),
        });
        running.learn_late(&surroundings.predecessor_state);
    }
    running.workers.close();
    tracing::info!(controller = name, "started");
    running
}

/// The caches without which a controller does not begin. Whoever observes everything may hear of it from any.
fn needed(controller: &Controller, caches: &Caches) -> Vec<Arc<Cache>> {
    if controller.observer.is_some() {
        return caches.all();
    }
    let window = |a_loop: &Loop| caches.reader(&a_loop.reads).deferring(&a_loop.starts_without);
    controller.loops.iter().flat_map(|a_loop| window(a_loop).caches_where_deferred(false)).collect()
}

/// Returns when caches are filled and know all that the leader before can have done.
async fn known(caches: &[Arc<Cache>], legacy: &PredecessorState) {
    legacy.wait_for_caches(caches).await;
    for cache in caches {
        cache.wait_for_sync().await;
    }
}

/// The monitors of a controller that observes, once all there is has been listed.
async fn observed(controller: &Controller, caches: &Caches) -> Option<Arc<Monitors>> {
    let monitors = caches.monitors(controller.observer.as_ref()?);
    if tokio::time::timeout(OBSERVED_WITHIN, monitors.wait_for_sync()).await.is_err() {
        // One kind that cannot be listed must not keep all others waiting.
        tracing::warn!(controller = controller.name, "not all resources could be listed, starting without");
    }
    Some(monitors)
}

impl RunningController {
    /// Lets a loop hear of everything, then lets its workers begin.
    fn run(&mut self, a_loop: RunningLoop) {
        let a_loop = Arc::new(a_loop);
        let first = self.ears.len();
        for cache in a_loop.window.caches() {
            let ear: Arc<dyn EventHandler> =
                Arc::new(Ear { a_loop: a_loop.clone(), kind: cache.entry().clone() });
            cache.add_event_handler(ear.clone());
            self.ears.push((cache.clone(), ear));
        }
        if let Some(period) = a_loop.what.resync_period {
            self.workers.spawn(show_again(
                a_loop.clone(),
                self.ears[first..].to_vec(),
                period.max(RESYNC_PERIOD_MIN),
            ));
        }
        for item in &a_loop.what.initial_items {
            a_loop.queue.add(item.clone());
        }
        for _ in 0..a_loop.what.workers {
            self.workers.spawn(a_loop.clone().work());
        }
        self.loops.push(a_loop);
    }

    /// Shows the last loop what it begins without as soon as that is known.
    fn learn_late(&self, legacy: &Arc<PredecessorState>) {
        let Some(a_loop) = self.loops.last().cloned().filter(|there| !there.what.starts_without.is_empty())
        else {
            return;
        };
        let legacy = legacy.clone();
        self.workers.spawn(async move {
            let late = a_loop.window.caches_where_deferred(true);
            tokio::select! {
                biased;
                () = a_loop.stop.cancelled() => {}
                () = known(&late, &legacy) => a_loop.window.show_deferred(),
            }
        });
    }

    /// Takes up no more work, also none that is queued, and returns when the work under way has ended.
    pub async fn stop(self) {
        self.take_up_no_more();
        self.workers.wait().await;
        tracing::info!(controller = self.name, "stopped");
    }

    fn take_up_no_more(&self) {
        for (cache, ear) in &self.ears {
            cache.remove_event_handler(ear);
        }
        for a_loop in &self.loops {
            a_loop.stop.cancel();
            a_loop.queue.shut_down();
        }
        if let Some(monitors) = &self.monitors {
            monitors.stop_leading();
        }
    }
}

impl Drop for RunningController {
    /// Nobody works on where nobody waits for the end. Caches know their listeners and loops know their caches, so
    /// one of the two must let go, or neither is ever freed.
    fn drop(&mut self) {
        self.take_up_no_more();
    }
}

/// Shows a loop what it watches again after every period, until it stops.
async fn show_again(
    a_loop: Arc<RunningLoop>,
    ears: Vec<(Arc<Cache>, Arc<dyn EventHandler>)>,
    period: Duration,
) {
    while !a_loop.stop.is_cancelled() {
        tokio::select! {
            biased;
            () = a_loop.stop.cancelled() => return,
            () = tokio::time::sleep(period) => {}
        }
        ears.iter().for_each(|(cache, ear)| cache.resync_handler(ear));
    }
}

/// One loop's ear at one cache.
struct Ear {
    a_loop: Arc<RunningLoop>,
    kind: KindEntry,
}

impl EventHandler for Ear {
    fn on_changes(&self, changes: &[AnyChange]) {
        let a_loop = &self.a_loop;
        let watches: Vec<_> = a_loop.what.watches.iter().filter(|watch| watch.kind == self.kind).collect();
        // In portions: while tables are looked at, nobody can write to them.
        for changes in changes.chunks(CHANGES_AT_ONCE).filter(|_| !watches.is_empty()) {
            let mut wakes = Enqueue::default();
            a_loop.window.with_view(&mut |view| {
                for (change, watch) in
                    changes.iter().flat_map(|change| watches.iter().map(move |w| (change, w)))
                {
                    a_loop.contain_wake(|| watch.enqueue(change, view, &mut wakes));
                }
            });
            for (item, delay) in wakes.into_items() {
                a_loop.queue.add_after(item, delay);
            }
        }
        for item in a_loop.gate.take_released() {
            a_loop.queue.add(item);
        }
    }
}

impl RunningLoop {
    /// One odd object that a wake-up panics over must not keep others from waking their items.
    fn contain_wake(&self, wake: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(wake)).is_err() {
            self.metrics.panicked(self.controller);
            tracing::error!(
                controller = self.controller,
                "a wake-up panicked, which is a bug; it was contained"
            );
        }
    }

    async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.next().await {
            if self.stop.is_cancelled() {
                return;
            }
            match self.gate.decide(&item) {
                GateDecision::Proceed => {
                    let (lists, began) = (self.gate.list_count(), self.clocks.monotonic());
                    self.pace.lock().begin_reconcile(&item.key);
                    let result = AssertUnwindSafe(self.sync(&item)).catch_unwind().await;
                    self.follow_up(&item, result.unwrap_or_else(|panic| Err(self.contain_panic(&*panic))));
                    self.tell_if_slow(&item, began);
                    if self.gate.list_count() != lists {
                        self.queue.add(item.clone());
                    }
                }
                GateDecision::HoldFor(at_most) => {
                    self.metrics.held_back(self.controller);
                    self.queue.add_after(item.clone(), at_most);
                }
            }
            self.queue.done(&item);
        }
    }

    async fn sync(&self, item: &Item) -> Result<Requeue, ReconcileError> {
        match &self.what.loop_kind {
            LoopKind::Decide(decide) => {
                let mut plan = None;
                self.window.with_view(&mut |view| plan = Some(decide(view, item)));
                let plan = plan.unwrap_or_default();
                let next = plan.requeue_delay().map_or(Requeue::Forget, Requeue::After);
                self.executor.apply(item, plan).await.all_done().map(|()| next)
            }
            LoopKind::Reconcile(script) => {
                let mut hands = RealHands { a_loop: self, item };
                script.reconcile(&mut Context::new(&mut hands), item).await
            }
        }
    }

    fn tell_if_slow(&self, item: &Item, began: Duration) {
        let took = self.clocks.monotonic().saturating_sub(began);
        if took > SLOW_TURN {
            tracing::info!(controller = self.controller, %item, ?took, "a slow turn");
        }
    }

    /// A panic ends this item's turn and nothing else: other items, other loops, the process go on.
    fn contain_panic(&self, panic: &(dyn Any + Send)) -> ReconcileError {
        self.metrics.panicked(self.controller);
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        ReconcileError::because(format!(
            "a bug was contained: {}",
            text.unwrap_or("a panic without a message")
        ))
    }

    fn follow_up(&self, item: &Item, result: Result<Requeue, ReconcileError>) {
        let retry = match result {
            Ok(Requeue::KeepBackoff(delay)) => return self.queue.add_after(item.clone(), delay),
            Ok(next) => {
                self.forget(item);
                if let Some(wait) = self.pace.lock().end_reconcile(&item.key, self.clocks.monotonic()) {
                    self.queue.add_after(item.clone(), wait);
                }
                if let Requeue::After(delay) = next {
                    self.queue.add_after(item.clone(), delay);
                }
                return;
            }
            Err(retry) => retry,
        };
        let (controller, because) = (self.controller, &retry.because);
        if self.is_hopeless(item, &retry) {
            tracing::error!(controller, %item, because, "giving up until something changes");
            self.forget(item);
            return;
        }
        if retry.quiet {
            tracing::debug!(controller, %item, because, "trying again later");
        } else {
            tracing::warn!(controller, %item, because, "trying again later");
        }
        self.queue.add_rate_limited(item.clone(), retry.retry_after.unwrap_or_default());
    }

    /// Whether an item has used up its retries. Those that met a server in trouble do not count: what
    /// was asked for before an outage comes about after it, however long that lasts.
    fn is_hopeless(&self, item: &Item, retry: &ReconcileError) -> bool {
        let Some(max) = self.what.max_retries else { return false };
        let mut held_up = self.held_up.lock();
        if retry.outage {
            *held_up.entry(item.clone()).or_default() += 1;
            return false;
        }
        // They still make the waits longer: who meets now the one and now the other must not try all the time.
        let outages = held_up.get(item).copied().unwrap_or_default();
        self.queue.failures(item).saturating_sub(outages) >= max
    }

    fn forget(&self, item: &Item) {
        self.queue.forget(item);
        if self.what.max_retries.is_some() {
            self.held_up.lock().remove(item);
        }
    }
}

/// The hands of a script at work: caches to look at, an executor to apply plans.
struct RealHands<'a> {
    a_loop: &'a RunningLoop,
    item: &'a Item,
}

impl ReconcileIo for RealHands<'_> {
    fn with_view(&self, eye: &mut dyn FnMut(&View<'_>)) {
        self.a_loop.window.with_view(eye);
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        Box::pin(self.a_loop.executor.apply(self.item, plan))
    }

    fn measure(&mut self, measurement: Measurement) {
        self.a_loop.metrics.measure(&measurement);
    }

    fn enqueue(&mut self, item: Item) {
        self.a_loop.queue.add(item);
    }

    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        Box::pin(async move {
            let answers = self.a_loop.executor.fetch_all(resource, keys).await;
            for (key, _) in keys.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Ok(Some(_)))) {
                self.a_loop.gate.expect_fetched(self.item, resource, key);
            }
            answers
        })
    }

    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult> {
        Box::pin(self.a_loop.executor.fetch_metadata(resource, key))
    }

    fn resource_of<'a>(
        &'a mut self,
        line: &'a TypeMeta,
    ) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        let mapping = self.a_loop.executor.caches.rest_mapping();
        Box::pin(async move {
            let found = mapping.mapping_for_kind(line.group(), Some(line.version()), line.kind()).await?;
            Ok(found.map(|found| found.resource))
        })
    }

    fn effects(&mut self, stir: Effects) {
        self.a_loop.outbox.take(stir);
    }

    fn list<'a>(&'a mut self, listings: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        Box::pin(self.a_loop.executor.list(listings))
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        Box::pin(self.a_loop.executor.discover())
    }
}
