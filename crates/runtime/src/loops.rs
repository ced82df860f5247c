//! Runs the loops of controllers: enqueues items, lets controllers decide, executes their plans, and
//! requeues.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use keleustes_client::layers::{LimitedBy, RateLimitWaits};
use keleustes_objects::{ApiError, DiscoveredResources, Key, Resource, TypeMeta};
use keleustes_plan::{
    AnyChange, Applied, BoxFuture, Context, Controller, Effects, EnqueueTiming, EnqueuedItem, FetchResult,
    Item, KindEntry, ListRequest, ListResult, Loop, MetadataPage, MonitorState, Observer, PageRequest, Plan,
    PlannedEvent, ReadRequest, ReconcileError, ReconcileIo, Requeue, View,
};
use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caches::{Cache, CacheReader, Caches, EventHandler, RESYNC_PERIOD_MIN};
use crate::clock::{Clocks, Random};
use crate::executor::{Executor, UnknownWrites};
use crate::gate::{Gate, GateDecision};
use crate::handover::PredecessorState;
use crate::inspection::{Inspection, LoopCounters};
use crate::metrics::Metrics;
use crate::monitors::{EffectsSink, Monitors};
use crate::queue::Queue;
use crate::shadow::comparison::Decider;
use crate::shadow::{Shadow, ShadowWriter};
use crate::status_coalescing::StatusCoalescer;

/// A reconcile that takes longer than this is logged.
const SLOW_RECONCILE: Duration = Duration::from_millis(250);

/// How many changes one call of an event handler processes under the read locks.
const CHANGES_PER_VIEW: usize = 1000;
/// How long a controller with an observer waits for the first list of every resource.
const OBSERVER_SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// What every loop of a controller needs from its process.
#[derive(Clone)]
pub struct ControllerContext {
    /// The shared caches.
    pub caches: Caches,
    /// The clocks.
    pub clocks: Clocks,
    /// The source of randomness.
    pub random: Random,
    /// The metrics.
    pub metrics: Metrics,
    /// Whether this process still leads.
    pub is_leader: Arc<dyn Fn() -> bool + Send + Sync>,
    /// How many writes of one plan may be in flight at once.
    pub in_flight_max: usize,
    /// What caches must have observed of the previous leader's writes.
    pub predecessor_state: Arc<PredecessorState>,
    /// Where loops and their decisions can be looked up.
    pub inspection: Inspection,
    /// Takes the decisions of a process that writes nothing.
    pub shadow: Option<Shadow>,
}

/// A running controller. Dropping it removes its event handlers; [`RunningController::stop`] also waits for
/// running reconciles.
pub struct RunningController {
    /// The controller's name.
    pub name: &'static str,
    loops: Vec<Arc<RunningLoop>>,
    event_handlers: Vec<(Arc<Cache>, Arc<dyn EventHandler>)>,
    observing: Option<(Arc<Monitors>, Arc<dyn Observer>)>,
    workers: TaskTracker,
}

/// A loop of a running controller.
pub(crate) struct RunningLoop {
    pub(crate) controller: &'static str,
    pub(crate) spec: Loop,
    pub(crate) reader: CacheReader,
    pub(crate) queue: Queue,
    pub(crate) counters: LoopCounters,
    /// How many failures of an item were caused by an API server outage. Kept only for loops with a retry
    /// limit.
    outage_failures: Mutex<BTreeMap<Item, u32>>,
    /// The requests of running reconciles that wait for a rate limit.
    rate_limit_waits: Mutex<BTreeMap<Item, Arc<RateLimitWaits>>>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) status_coalescer: Arc<Mutex<StatusCoalescer>>,
    pub(crate) executor: Executor,
    effects_router: Arc<EffectsRouter>,
    metrics: Metrics,
    clocks: Clocks,
    shadow: Option<Shadow>,
    stop: CancellationToken,
}

/// Where effects go: the queues of a controller, its events and its metrics.
struct EffectsRouter {
    queues: Vec<(&'static str, Queue)>,
    metrics: Metrics,
    record: Arc<dyn Fn(PlannedEvent) + Send + Sync>,
    is_leader: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl EffectsRouter {
    /// A router with a queue for each loop.
    fn new(
        loops: &[Loop],
        context: &ControllerContext,
        record: Arc<dyn Fn(PlannedEvent) + Send + Sync>,
    ) -> Self {
        let queue_of = |spec: &Loop| {
            let metrics = context.metrics.queue(spec.queue);
            (spec.queue, Queue::new(spec.rate_limiter, context.clocks.clone(), metrics))
        };
        let (metrics, is_leader) = (context.metrics.clone(), context.is_leader.clone());
        Self { queues: loops.iter().map(queue_of).collect(), metrics, record, is_leader }
    }

    /// Takes the effects of an observer.
    fn sink(self: &Arc<Self>) -> EffectsSink {
        let router = self.clone();
        Arc::new(move |effects| router.take(effects, None))
    }

    /// Makes effects take effect. `own` is the queue of the loop they come from, if they come from one: two loops may
    /// have queues of the same name.
    fn take(&self, mut effects: Effects, own: Option<&Queue>) {
        effects.take_measurements().iter().for_each(|measurement| self.metrics.measure(measurement));
        let events = effects.take_events().into_iter();
        events.filter(|_| (self.is_leader)()).for_each(|event| (self.record)(event));
        for EnqueuedItem { queue, item, timing } in effects.take_enqueued() {
            let queue = match queue {
                None => own.unwrap_or_else(|| panic!("an observer names the queue")),
                Some(name) => self.queue_named(name),
            };
            match timing {
                EnqueueTiming::Now => queue.add(item),
                EnqueueTiming::After(delay) => queue.add_after(item, delay),
                EnqueueTiming::RateLimited => queue.add_rate_limited(item, Duration::ZERO),
            }
        }
    }

    fn queue_named(&self, name: &str) -> &Queue {
        let found = self.queues.iter().find(|(there, _)| *there == name);
        found.map_or_else(|| panic!("no loop of this controller has a queue {name}"), |(_, queue)| queue)
    }
}

/// Starts the caches that controllers read, so that they fill before the controllers start, and adds the indexes they
/// declared. The cache of pods keeps the parts that these controllers read, so this gets all controllers of a process at
/// once.
pub fn prepare<'c>(controllers: impl IntoIterator<Item = &'c Controller> + Clone, caches: &Caches) {
    declare_pod_parts(controllers.clone(), caches);
    for controller in controllers {
        for a_loop in &controller.loops {
            let _filling = caches.reader(&a_loop.reads);
            caches.add_indexes(&a_loop.indexes);
        }
        if let Some(observer) = &controller.observer {
            let _observing = caches.monitors(observer);
        }
    }
}

/// Declares the parts of pods that controllers read.
pub(crate) fn declare_pod_parts<'c>(controllers: impl IntoIterator<Item = &'c Controller>, caches: &Caches) {
    let loops = controllers.into_iter().flat_map(|controller| &controller.loops);
    loops.flat_map(|a_loop| &a_loop.reads).for_each(|entry| caches.declare_pod_parts(entry.pod_parts()));
}

/// A controller's step before its start failed: the cluster or the options do not allow it to run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct StartError {
    /// The controller's name.
    pub controller: &'static str,
    /// The message of the step.
    pub message: String,
}

/// Starts a controller as soon as the caches it reads are synced. Its writes go through `client`, its events
/// to `record`.
///
/// Dropping the future before it resolves starts nothing.
///
/// # Errors
/// If a step before the start of one of its loops fails; then none of them is started.
pub async fn start(
    controller: Controller,
    context: &ControllerContext,
    client: kube::Client,
    record: Arc<dyn Fn(PlannedEvent) + Send + Sync>,
) -> Result<RunningController, StartError> {
    prepare([&controller], &context.caches);
    wait_until_current(&required_caches(&controller, &context.caches), &context.predecessor_state).await;
    let monitors = wait_for_monitors(&controller, context).await;
    let (name, grants) = (controller.name, controller.grants);
    controller.metrics.iter().for_each(|metric| context.metrics.declare(metric));
    context.metrics.expose_panics(name);
    run_start_steps(&controller, context)?;
    let effects_router = Arc::new(EffectsRouter::new(&controller.loops, context, record.clone()));
    let mut running = RunningController {
        name,
        loops: Vec::new(),
        event_handlers: Vec::new(),
        observing: None,
        workers: TaskTracker::new(),
    };
    if let Some((monitors, observer)) = monitors.zip(controller.observer.clone()) {
        monitors.start_leading(&observer, &effects_router.sink());
        running.observing = Some((monitors, observer));
    }
    for (spec, (_, queue)) in controller.loops.into_iter().zip(&effects_router.queues) {
        let reader = context.caches.reader(&spec.reads).deferring(&spec.starts_without);
        let owners = spec.keyed_by.as_ref().map(|kind| context.caches.cache(kind));
        let gate = Arc::new(Gate::new(reader.caches(), owners, context.clocks.clone()));
        let status_coalescer = Arc::new(Mutex::new(StatusCoalescer::default()));
        let executor = Executor {
            controller: name,
            grants,
            client: client.clone(),
            gate: gate.clone(),
            unknown_writes: UnknownWrites::default(),
            caches: context.caches.clone(),
            status_coalescer: status_coalescer.clone(),
            clocks: context.clocks.clone(),
            is_leader: context.is_leader.clone(),
            record: record.clone(),
            metrics: context.metrics.clone(),
            in_flight_max: context.in_flight_max,
            journal: context.inspection.journal().clone(),
            random: Mutex::new(context.random.fork()),
        };
        running.run(RunningLoop {
            controller: name,
            spec,
            reader,
            queue: queue.clone(),
            counters: LoopCounters::default(),
            outage_failures: Mutex::default(),
            rate_limit_waits: Mutex::default(),
            gate,
            status_coalescer,
            executor,
            effects_router: effects_router.clone(),
            metrics: context.metrics.clone(),
            clocks: context.clocks.clone(),
            shadow: context.shadow.clone(),
            stop: CancellationToken::new(),
        });
        running.show_deferred_kinds(&context.predecessor_state);
    }
    context.inspection.add_loops(&running.loops);
    running.workers.close();
    tracing::info!(controller = name, "started");
    Ok(running)
}

/// Runs the steps before the start of a controller's loops, in order.
fn run_start_steps(controller: &Controller, context: &ControllerContext) -> Result<(), StartError> {
    for a_loop in &controller.loops {
        let Some(step) = &a_loop.start_step else { continue };
        let mut result = Ok(Vec::new());
        context.caches.reader(&a_loop.reads).with_view(&mut |view| result = step(view));
        let fail = |message| StartError { controller: controller.name, message };
        result.map_err(fail)?.iter().for_each(|measurement| context.metrics.measure(measurement));
    }
    Ok(())
}

/// The caches that must be synced before a controller starts: those that its loops read.
fn required_caches(controller: &Controller, caches: &Caches) -> Vec<Arc<Cache>> {
    let reader = |a_loop: &Loop| caches.reader(&a_loop.reads).deferring(&a_loop.starts_without);
    controller.loops.iter().flat_map(|a_loop| reader(a_loop).caches_where_deferred(false)).collect()
}

/// Returns when caches are synced and have observed all that the previous leader can have written.
async fn wait_until_current(caches: &[Arc<Cache>], predecessor_state: &PredecessorState) {
    predecessor_state.wait_for_caches(caches).await;
    for cache in caches {
        cache.wait_for_sync().await;
    }
}

/// The monitors of a controller with an observer, once every resource has been listed, and these monitors and every
/// cache, from any of which they may get changes, have observed what the previous leader can have written; or after
/// 30 s, because one resource that cannot be listed must not block the others. The observer may then lack objects and
/// must read live what it depends on.
async fn wait_for_monitors(controller: &Controller, context: &ControllerContext) -> Option<Arc<Monitors>> {
    let caches = &context.caches;
    let observer = controller.observer.as_ref()?;
    let monitors = caches.monitors(observer);
    if !observer.delays_start() {
        return Some(monitors);
    }
    let until_current = async {
        // A kind that the server need not serve must not block an observer of all kinds.
        let served = caches.all().into_iter().filter(|cache| !cache.entry().projection().optional);
        wait_until_current(&served.collect::<Vec<_>>(), &context.predecessor_state).await;
        monitors.wait_for_sync_of(observer).await;
        context.predecessor_state.wait_for_monitors(&monitors).await;
    };
    if tokio::time::timeout(OBSERVER_SYNC_TIMEOUT, until_current).await.is_err() {
        tracing::warn!(
            controller = controller.name,
            unsynced = ?caches.unsynced(),
            "not all resources could be listed within 30 s, starting without them"
        );
    }
    Some(monitors)
}

impl RunningController {
    /// Adds a loop's event handlers, then starts its workers.
    fn run(&mut self, a_loop: RunningLoop) {
        let a_loop = Arc::new(a_loop);
        let first = self.event_handlers.len();
        for cache in a_loop.reader.caches() {
            let handler: Arc<dyn EventHandler> =
                Arc::new(LoopEventHandler { a_loop: a_loop.clone(), kind: cache.entry().clone() });
            cache.add_event_handler(handler.clone());
            self.event_handlers.push((cache.clone(), handler));
        }
        if let Some(period) = a_loop.spec.resync_period {
            self.workers.spawn(resync_periodically(
                a_loop.clone(),
                self.event_handlers[first..].to_vec(),
                period.max(RESYNC_PERIOD_MIN),
            ));
        }
        for item in &a_loop.spec.initial_items {
            a_loop.queue.add(item.clone());
        }
        for _ in 0..a_loop.spec.workers {
            self.workers.spawn(a_loop.clone().work());
        }
        self.loops.push(a_loop);
    }

    /// Adds the kinds that the last loop starts without to its view as soon as they are synced.
    fn show_deferred_kinds(&self, predecessor_state: &Arc<PredecessorState>) {
        let Some(a_loop) = self.loops.last().cloned().filter(|there| !there.spec.starts_without.is_empty())
        else {
            return;
        };
        let predecessor_state = predecessor_state.clone();
        self.workers.spawn(async move {
            let deferred_caches = a_loop.reader.caches_where_deferred(true);
            tokio::select! {
                biased;
                () = a_loop.stop.cancelled() => {}
                () = wait_until_current(&deferred_caches, &predecessor_state) => a_loop.reader.show_deferred(),
            }
        });
    }

    /// Starts no more reconciles, not even of queued items, and returns when the running ones have ended.
    pub async fn stop(self) {
        self.stop_accepting_work();
        self.workers.wait().await;
        tracing::info!(controller = self.name, "stopped");
    }

    fn stop_accepting_work(&self) {
        for (cache, handler) in &self.event_handlers {
            cache.remove_event_handler(handler);
        }
        for a_loop in &self.loops {
            a_loop.stop.cancel();
            a_loop.queue.shut_down();
        }
        if let Some((monitors, observer)) = &self.observing {
            monitors.stop_leading(observer);
        }
    }
}

impl Drop for RunningController {
    /// Caches hold their event handlers and loops hold their caches, so without removing the handlers neither
    /// would be freed.
    fn drop(&mut self) {
        self.stop_accepting_work();
    }
}

/// Resyncs a loop's event handlers after every period, until the loop stops.
async fn resync_periodically(
    a_loop: Arc<RunningLoop>,
    event_handlers: Vec<(Arc<Cache>, Arc<dyn EventHandler>)>,
    period: Duration,
) {
    while !a_loop.stop.is_cancelled() {
        tokio::select! {
            biased;
            () = a_loop.stop.cancelled() => return,
            () = tokio::time::sleep(period) => {}
        }
        event_handlers.iter().for_each(|(cache, handler)| cache.resync_handler(handler));
    }
}

/// The event handler of one loop at one cache.
struct LoopEventHandler {
    a_loop: Arc<RunningLoop>,
    kind: KindEntry,
}

impl EventHandler for LoopEventHandler {
    fn on_changes(&self, changes: &[AnyChange]) {
        let a_loop = &self.a_loop;
        let watches: Vec<_> = a_loop.spec.watches.iter().filter(|watch| watch.kind == self.kind).collect();
        // In chunks: the view holds read locks that block writes to the stores.
        for changes in changes.chunks(CHANGES_PER_VIEW).filter(|_| !watches.is_empty()) {
            let mut effects = Effects::default();
            a_loop.reader.with_view(&mut |view| {
                for (change, watch) in
                    changes.iter().flat_map(|change| watches.iter().map(move |w| (change, w)))
                {
                    a_loop.contain_panic_in_handler(|| watch.enqueue(change, view, &mut effects));
                }
            });
            a_loop.effects_router.take(effects, Some(&a_loop.queue));
        }
        for item in a_loop.gate.take_released() {
            a_loop.queue.add(item);
        }
    }
}

impl RunningLoop {
    /// An event handler that panics over one object must not keep others from being enqueued.
    fn contain_panic_in_handler(&self, handler: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(handler)).is_err() {
            self.metrics.panicked(self.controller);
            tracing::error!(
                controller = self.controller,
                "event handler panicked, which is a bug; contained"
            );
        }
    }

    async fn work(self: Arc<Self>) {
        let waits = Arc::<RateLimitWaits>::default();
        while let Some(item) = self.queue.next().await {
            if self.stop.is_cancelled() {
                return;
            }
            if let Err(error) = self.executor.resolve_unknown_writes(&item).await {
                self.requeue(&item, Err(error));
                self.queue.done(&item);
                continue;
            }
            match self.gate.decide(&item) {
                GateDecision::Proceed => {
                    let (lists, began) = (self.gate.list_count(), self.clocks.monotonic());
                    self.status_coalescer.lock().begin_reconcile(item.key());
                    self.rate_limit_waits.lock().insert(item.clone(), waits.clone());
                    let result = AssertUnwindSafe(waits.observe(self.sync(&item))).catch_unwind().await;
                    self.rate_limit_waits.lock().remove(&item);
                    self.requeue(&item, result.unwrap_or_else(|panic| Err(self.contain_panic(&*panic))));
                    self.requeue_for_held_back_status(&item);
                    self.log_if_slow(&item, began);
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

    /// The request of a running reconcile that has waited longest for a rate limit, and since when.
    pub(crate) fn rate_limit_wait(&self, item: &Item) -> Option<(LimitedBy, Duration)> {
        let (limited_by, since) = self.rate_limit_waits.lock().get(item)?.longest()?;
        Some((limited_by, self.clocks.monotonic().saturating_sub(since.elapsed())))
    }

    async fn sync(&self, item: &Item) -> Result<Requeue, ReconcileError> {
        if let Some(shadow) = &self.shadow {
            return self.sync_in_shadow(shadow, item).await;
        }
        let mut io = LoopIo { a_loop: self, item, shadow_writer: None };
        self.spec.reconciler.reconcile_boxed(&mut Context::new(&mut io), item).await
    }

    /// A reconcile that ends at its first plan with writes, which become decisions.
    async fn sync_in_shadow(&self, shadow: &Shadow, item: &Item) -> Result<Requeue, ReconcileError> {
        let writer = ShadowWriter::default();
        let mut io = LoopIo { a_loop: self, item, shadow_writer: Some(&writer) };
        let mut context = Context::new(&mut io);
        let planned = std::future::poll_fn(|_| match writer.has_planned() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        });
        let finished = tokio::select! {
            biased;
            result = self.spec.reconciler.reconcile_boxed(&mut context, item) => Some(result?),
            () = planned => None,
        };
        let decider = Decider { controller: self.controller, queue: self.spec.queue, item: item.clone() };
        let again = shadow.decided(&decider, writer.take());
        Ok(finished
            .or(again.map(|delay| Requeue::after(delay, "the writes of the leader")))
            .unwrap_or(Requeue::Forget))
    }

    /// Counts a reconcile, and logs it if it took long.
    fn log_if_slow(&self, item: &Item, began: Duration) {
        let took = self.clocks.monotonic().saturating_sub(began);
        self.counters.reconciled(item, took);
        if took > SLOW_RECONCILE {
            tracing::info!(controller = self.controller, %item, ?took, "slow reconcile");
        }
    }

    /// A panic ends this item's reconcile and nothing else: other items, other loops and the process continue.
    fn contain_panic(&self, panic: &(dyn Any + Send)) -> ReconcileError {
        self.metrics.panicked(self.controller);
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        ReconcileError::because(format!(
            "reconcile panicked, which is a bug: {}",
            text.unwrap_or("no panic message")
        ))
    }

    fn requeue(&self, item: &Item, result: Result<Requeue, ReconcileError>) {
        let error = match result {
            Ok(Requeue::KeepBackoff(delay)) => return self.queue.add_after(item.clone(), delay.duration),
            Ok(next) => {
                self.forget(item);
                if let Requeue::After(delay) = next {
                    self.queue.add_after(item.clone(), delay.duration);
                }
                return;
            }
            Err(error) => error,
        };
        let (controller, because) = (self.controller, &error.because);
        self.counters.failed();
        let is_dropped = self.is_retry_limit_reached(item, &error);
        let attempt = self.queue.failures(item) + 1;
        self.executor.journal.record_failure(controller, item, &error, attempt, is_dropped);
        if is_dropped {
            tracing::error!(controller, %item, because, "dropping key: retry limit reached");
            self.forget(item);
            return;
        }
        if error.quiet {
            tracing::debug!(controller, %item, because, "reconcile failed, requeued with backoff");
        } else {
            tracing::warn!(controller, %item, because, "reconcile failed, requeued with backoff");
        }
        self.queue.add_rate_limited(item.clone(), error.retry_after.unwrap_or_default());
    }

    /// However the reconcile ended: the backoff of a failed one may be minutes, and an item that is dropped has none.
    fn requeue_for_held_back_status(&self, item: &Item) {
        let wait = self.status_coalescer.lock().end_reconcile(item.key(), self.clocks.monotonic());
        if let Some(wait) = wait {
            self.queue.add_after(item.clone(), wait);
        }
    }

    /// Whether an item has used up its retries. Failures caused by an API server outage do not count: work
    /// that was requested before an outage is done after it, however long it lasts.
    fn is_retry_limit_reached(&self, item: &Item, error: &ReconcileError) -> bool {
        let Some(max) = self.spec.max_retries else { return false };
        let mut outage_failures = self.outage_failures.lock();
        if error.outage {
            *outage_failures.entry(item.clone()).or_default() += 1;
            return false;
        }
        // They still increase the backoff: an item that alternates between outages and other failures must
        // not retry too fast.
        let outages = outage_failures.get(item).copied().unwrap_or_default();
        self.queue.failures(item).saturating_sub(outages) >= max
    }

    fn forget(&self, item: &Item) {
        self.queue.forget(item);
        if self.spec.max_retries.is_some() {
            self.outage_failures.lock().remove(item);
        }
    }
}

/// The IO of a reconciler: the caches to read and the executor to apply plans.
struct LoopIo<'a> {
    a_loop: &'a RunningLoop,
    item: &'a Item,
    /// Takes the plans in place of the executor.
    shadow_writer: Option<&'a ShadowWriter>,
}

impl ReconcileIo for LoopIo<'_> {
    fn may_change_host(&self) -> bool {
        self.shadow_writer.is_none() && (self.a_loop.executor.is_leader)()
    }

    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        self.a_loop.reader.with_view(f);
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        match self.shadow_writer {
            Some(writer) => Box::pin(writer.apply(&self.a_loop.executor, plan)),
            None => Box::pin(self.a_loop.executor.apply(self.item, plan)),
        }
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

    fn effects(&mut self, effects: Effects) {
        self.a_loop.effects_router.take(effects, Some(&self.a_loop.queue));
    }

    fn list<'a>(&'a mut self, listings: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        Box::pin(self.a_loop.executor.list(listings))
    }

    fn read<'a>(&'a mut self, request: &'a ReadRequest) -> BoxFuture<'a, FetchResult> {
        Box::pin(self.a_loop.executor.read_any(request))
    }

    fn list_page<'a>(
        &'a mut self,
        request: &'a PageRequest,
    ) -> BoxFuture<'a, Result<MetadataPage, ApiError>> {
        Box::pin(self.a_loop.executor.list_page(request))
    }

    fn monitor<'a>(&'a mut self, resource: &'a Resource, wait: Duration) -> BoxFuture<'a, MonitorState> {
        let caches = &self.a_loop.executor.caches;
        Box::pin(async move {
            match caches.all_monitors() {
                Some(monitors) => monitors.state_of(resource, wait, caches).await,
                None => MonitorState::Missing,
            }
        })
    }

    fn read_openapi<'a>(&'a mut self, document: &'a str, hash: &'a str) -> BoxFuture<'a, FetchResult> {
        Box::pin(self.a_loop.executor.read_openapi(document, hash))
    }

    fn cached_discovery(&mut self) -> BoxFuture<'_, Result<Arc<DiscoveredResources>, ApiError>> {
        let mapping = self.a_loop.executor.caches.rest_mapping();
        Box::pin(async move { mapping.all().await })
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        Box::pin(self.a_loop.executor.discover())
    }
}
