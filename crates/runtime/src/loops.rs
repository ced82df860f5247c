//! Runs the loops of controllers: wakes items, lets controllers decide, has plans carried out, and
//! decides what follows.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use keleustes_objects::{Failure, Key, Resource};
use keleustes_plan::{
    AnyChange, Applied, Behaviour, BoxFuture, Context, Controller, EventNote, Hands, Item, KindEntry, Loop,
    Next, Plan, Retry, View, Wakes,
};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::caches::{Cache, Caches, Listener};
use crate::clock::{Chance, Clocks};
use crate::executor::Executor;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::queue::Queue;

/// What every loop needs from its surroundings.
#[derive(Clone)]
pub struct Surroundings {
    /// The shared caches.
    pub caches: Caches,
    /// The clocks.
    pub clocks: Clocks,
    /// The source of chance.
    pub chance: Chance,
    /// The metrics.
    pub metrics: Metrics,
    /// Whether this process still leads.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// How many writes of one plan may be under way at once.
    pub in_flight_max: usize,
}

/// A controller at work. Dropping it does not stop it; [`Running::stop`] does.
pub struct Running {
    /// Its name.
    pub name: &'static str,
    loops: Vec<Arc<RunningLoop>>,
    workers: TaskTracker,
}

struct RunningLoop {
    controller: &'static str,
    what: Loop,
    caches: Caches,
    reads: Vec<Arc<Cache>>,
    queue: Queue,
    gate: Arc<Gate>,
    executor: Executor,
    metrics: Metrics,
}

/// Asks for the caches that a controller reads, so that they fill before it starts, and adds the
/// indexes it declared.
pub fn prepare(controller: &Controller, caches: &Caches) {
    for a_loop in &controller.loops {
        for entry in &a_loop.reads {
            let _filling = caches.cache(entry);
        }
        caches.add_indexes(&a_loop.indexes);
    }
}

/// Starts a controller as soon as the caches it reads are filled. Its writes go through `client`,
/// its events to `record`.
pub async fn start(
    controller: Controller,
    surroundings: &Surroundings,
    client: kube::Client,
    record: Arc<dyn Fn(EventNote) + Send + Sync>,
) -> Running {
    prepare(&controller, &surroundings.caches);
    let (name, grants) = (controller.name, controller.grants);
    let mut running = Running { name, loops: Vec::new(), workers: TaskTracker::new() };
    for what in controller.loops {
        let reads: Vec<_> = what.reads.iter().map(|entry| surroundings.caches.cache(entry)).collect();
        for cache in &reads {
            cache.synced().await;
        }
        let gate = Arc::new(Gate::new(reads.clone()));
        let executor = Executor {
            controller: name,
            grants,
            client: client.clone(),
            gate: gate.clone(),
            leads: surroundings.leads.clone(),
            record: record.clone(),
            in_flight_max: surroundings.in_flight_max,
            chance: Mutex::new(surroundings.chance.fork()),
        };
        let metrics = surroundings.metrics.clone();
        let queue = Queue::new(what.limiter, surroundings.clocks.clone(), metrics.queue(what.queue));
        let caches = surroundings.caches.clone();
        let a_loop =
            Arc::new(RunningLoop { controller: name, what, caches, reads, queue, gate, executor, metrics });
        a_loop.listen();
        for _ in 0..a_loop.what.workers {
            running.workers.spawn(a_loop.clone().work());
        }
        running.loops.push(a_loop);
    }
    running.workers.close();
    tracing::info!(controller = name, "started");
    running
}

impl Running {
    /// Takes no more work and returns when the work under way has ended.
    pub async fn stop(self) {
        for a_loop in &self.loops {
            a_loop.queue.shut_down();
        }
        self.workers.wait().await;
        tracing::info!(controller = self.name, "stopped");
    }
}

/// One loop's ear at one cache.
struct Ear {
    a_loop: Arc<RunningLoop>,
    kind: KindEntry,
}

impl Listener for Ear {
    fn changed(&self, changes: &[AnyChange]) {
        let a_loop = &self.a_loop;
        let watches: Vec<_> = a_loop.what.watches.iter().filter(|watch| watch.kind == self.kind).collect();
        if !changes.is_empty() && !watches.is_empty() {
            let mut wakes = Wakes::default();
            a_loop.look(&mut |view| {
                for change in changes {
                    for watch in &watches {
                        watch.wake(change, view, &mut wakes);
                    }
                }
            });
            for (item, delay) in wakes.into_items() {
                a_loop.queue.add_after(item, delay);
            }
        }
        for item in a_loop.gate.release() {
            a_loop.queue.add(item);
        }
    }
}

impl RunningLoop {
    fn look(&self, eye: &mut dyn FnMut(&View<'_>)) {
        self.caches.look(&self.reads, eye);
    }

    fn listen(self: &Arc<Self>) {
        for cache in &self.reads {
            cache.subscribe(Arc::new(Ear { a_loop: self.clone(), kind: cache.entry().clone() }));
        }
    }

    async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.next().await {
            if self.gate.lets_through(&item) {
                let result = AssertUnwindSafe(self.sync(&item)).catch_unwind().await;
                self.follow_up(&item, result.unwrap_or_else(|_| Err(self.contain_panic())));
            } else {
                self.metrics.held_back(self.controller);
            }
            self.queue.done(&item);
        }
    }

    async fn sync(&self, item: &Item) -> Result<Next, Retry> {
        match &self.what.behaviour {
            Behaviour::Decide(decide) => {
                let mut plan = None;
                self.look(&mut |view| plan = Some(decide(view, item)));
                let plan = plan.unwrap_or_default();
                let next = plan.revisit().map_or(Next::Done, Next::Revisit);
                self.executor.apply(&item.key, plan).await.all_done().map(|()| next)
            }
            Behaviour::Script(script) => {
                let mut hands = RealHands { a_loop: self, key: &item.key };
                script.sync(&mut Context::new(&mut hands), item).await
            }
        }
    }

    /// A panic ends this item's turn and nothing else: other items, other loops, the process go on.
    fn contain_panic(&self) -> Retry {
        self.metrics.panicked(self.controller);
        Retry::because("the decision panicked, which is a bug; it was contained")
    }

    fn follow_up(&self, item: &Item, result: Result<Next, Retry>) {
        let retry = match result {
            Ok(next) => {
                self.queue.forget(item);
                if let Next::Revisit(delay) = next {
                    self.queue.add_after(item.clone(), delay);
                }
                return;
            }
            Err(retry) => retry,
        };
        let (controller, because) = (self.controller, &retry.because);
        if self.what.retries_max.is_some_and(|max| self.queue.failures(item) >= max) {
            tracing::error!(controller, %item, because, "giving up until something changes");
            self.queue.forget(item);
            return;
        }
        tracing::warn!(controller, %item, because, "trying again later");
        self.queue.add_rate_limited(item.clone(), retry.after.unwrap_or_default());
    }
}

/// The hands of a script at work: caches to look at, an executor to apply plans.
struct RealHands<'a> {
    a_loop: &'a RunningLoop,
    key: &'a Key,
}

impl Hands for RealHands<'_> {
    fn look(&self, eye: &mut dyn FnMut(&View<'_>)) {
        self.a_loop.look(eye);
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        Box::pin(self.a_loop.executor.apply(self.key, plan))
    }

    fn fetch<'a>(
        &'a mut self,
        resource: &'a Resource,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<String>, Failure>> {
        Box::pin(self.a_loop.executor.fetch(resource, key))
    }
}
