//! The declaration of a controller: what enqueues its keys, what it reads, what it may write, how it decides.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Kind, Pod, PodParts, Resource};

use crate::reconciler::{SingleDecision, TypedReconciler};
use crate::{
    Action, AnyChange, AnyReconciler, AnyStore, Change, Effects, Index, Item, KindEntry, LoopItem,
    Measurement, Metric, Observer, Plan, Reconciler, Store, View, Write,
};

/// A controller: its name, its identity and its loops.
pub struct Controller {
    /// The canonical name, as `--controllers` takes it; its alias is in the table of upstream's controllers.
    pub name: &'static str,
    /// The service account whose credentials it uses with `--use-service-account-credentials`; `None` uses the
    /// manager's own credentials.
    pub service_account: Option<&'static str>,
    /// `source.component` of its events; `None` if it records none.
    pub event_component: Option<&'static str>,
    /// The writes that RBAC grants it. The executor refuses any other write before it is sent.
    pub grants: &'static [Grant],
    /// Multiplies `--kube-api-qps` and `--kube-api-burst` for this controller.
    pub qps_multiplier: QpsMultiplier,
    /// The metrics it observes.
    pub metrics: Vec<&'static Metric>,
    /// Receives the events of every watchable resource; the garbage collector has one.
    pub observer: Option<Arc<dyn Observer>>,
    /// Serves its debug pages.
    pub debug_handler: Option<DebugHandler>,
    /// Its work queues, each with its workers.
    pub loops: Vec<Loop>,
}

/// One rule of a controller's RBAC role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The API group; empty for the core group, `*` for any.
    pub group: &'static str,
    /// The resource, or `resource/subresource`; `*` for any, `*/scale` for that subresource of any resource.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Grant {
    /// Whether the rule allows the verb on the resource, or on its subresource if one is named.
    #[must_use]
    pub fn covers(&self, resource: &Resource, subresource: &str, verb: &str) -> bool {
        let resource_matches = match self.resource.split_once('/') {
            _ if self.resource == "*" => true,
            Some((plural, granted)) => (plural == "*" || plural == resource.plural) && granted == subresource,
            None => self.resource == resource.plural && subresource.is_empty(),
        };
        resource_matches && (self.group == "*" || self.group == resource.group) && self.verbs.contains(&verb)
    }
}

/// Answers a request for a debug page. The arguments are the path after the controller's name and the query
/// parameters; `None` is answered with 404.
pub type DebugHandler = Arc<dyn Fn(&str, &[(String, String)]) -> Option<DebugPage> + Send + Sync>;

/// A debug page of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugPage {
    /// The value of the `Content-Type` header.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// Factors on the client-side rate limit of one controller. They have no effect while requests are not throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpsMultiplier {
    /// Factor on the QPS.
    pub qps: u16,
    /// Factor on the burst.
    pub burst: u16,
}

impl QpsMultiplier {
    /// The limits of the flags, unchanged.
    pub const DEFAULT: Self = Self { qps: 1, burst: 1 };
}

/// One work queue with its workers.
pub struct Loop {
    /// The name of the queue, the `name` label of the workqueue metrics.
    pub queue: &'static str,
    /// The number of workers, and so of concurrent reconciles.
    pub workers: usize,
    /// After this many retries a failing item is dropped until an event enqueues it again; `None` retries without
    /// limit.
    pub max_retries: Option<u32>,
    /// The rate limiter of retries.
    pub rate_limiter: RateLimiter,
    /// The kind whose objects the items are named after, if they are named after objects of one kind; see
    /// [`Loop::keyed_by`].
    pub keyed_by: Option<KindEntry>,
    /// The kinds whose events enqueue items.
    pub watches: Vec<Watch>,
    /// All kinds that a reconcile reads from the caches, the watched ones included.
    pub reads: Vec<KindEntry>,
    /// The kinds in `reads` whose events enqueue nothing, each with the reason; see [`Loop::reads_unwatched`].
    pub unwatched: Vec<(KindEntry, &'static str)>,
    /// The kinds in `reads` whose caches need not be synced when the loop starts; see [`View::store_if_synced`].
    pub starts_without: Vec<KindEntry>,
    /// The cache indexes that a reconcile uses.
    pub indexes: Vec<DeclaredIndex>,
    /// The resync period of this loop, in addition to the resync of the shared caches.
    pub resync_period: Option<Duration>,
    /// Items that are enqueued when the loop starts, such as a periodic [`Pass`](crate::Pass) over all objects.
    pub initial_items: Vec<Item>,
    /// Runs once before the loop starts; see [`Loop::before_start`].
    pub start_step: Option<StartStep>,
    /// Reconciles the items.
    pub reconciler: Arc<dyn AnyReconciler>,
}

/// A step before a loop starts: it reads the caches and returns measurements. An error fails the start of the process.
pub type StartStep = Arc<dyn Fn(&View<'_>) -> Result<Vec<Measurement>, String> + Send + Sync>;

/// Why a controller cannot be constructed with its options. The process does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstructionError {
    /// The canonical name of the controller.
    pub controller: &'static str,
    /// The message, as in the original.
    pub message: String,
}

impl std::error::Error for ConstructionError {}

/// The message alone: the log line that reports it names the controller in a field.
impl fmt::Display for ConstructionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The rate limiter of one queue: exponential backoff per item and a token bucket over all items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiter {
    /// The delay after the first failure of an item; each further failure doubles it.
    pub base_delay: Duration,
    /// The longest delay of an item.
    pub max_delay: Duration,
    /// The refill rate of the token bucket.
    pub retries_per_second: f64,
    /// The size of the token bucket.
    pub retries_burst: u32,
}

impl RateLimiter {
    /// client-go's `DefaultTypedControllerRateLimiter`, which most queues of the original use.
    pub const DEFAULT: Self = Self {
        base_delay: Duration::from_millis(5),
        max_delay: Duration::from_secs(1000),
        retries_per_second: 10.0,
        retries_burst: 100,
    };
}

/// An index that a loop declares, without the type of its kind.
#[derive(Clone)]
pub struct DeclaredIndex {
    /// The indexed kind.
    pub kind: KindEntry,
    /// Its name.
    pub name: &'static str,
    add: AddIndex,
}

impl DeclaredIndex {
    /// Adds the index to a store of its kind, unless another loop has added it already.
    pub fn add_to(&self, store: &mut dyn AnyStore) {
        (self.add)(store);
    }
}

/// Enqueues items on events of one kind. Clones share the enqueue function.
#[derive(Clone)]
pub struct Watch {
    /// The kind.
    pub kind: KindEntry,
    enqueue: EnqueueFn,
}

type AddIndex = Arc<dyn Fn(&mut dyn AnyStore) + Send + Sync>;
type EnqueueFn = Arc<dyn Fn(&AnyChange, &View<'_>, &mut Effects) + Send + Sync>;

impl Watch {
    /// Collects the items that a change enqueues.
    pub fn enqueue(&self, change: &AnyChange, view: &View<'_>, items: &mut Effects) {
        (self.enqueue)(change, view, items);
    }
}

impl Controller {
    /// A controller without loops, grants or metrics.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            service_account: None,
            event_component: None,
            grants: &[],
            qps_multiplier: QpsMultiplier::DEFAULT,
            metrics: Vec::new(),
            observer: None,
            debug_handler: None,
            loops: Vec::new(),
        }
    }

    /// Sets the service account whose credentials it uses.
    #[must_use]
    pub fn service_account(mut self, service_account: &'static str) -> Self {
        self.service_account = Some(service_account);
        self
    }

    /// Sets `source.component` of its events.
    #[must_use]
    pub fn event_component(mut self, component: &'static str) -> Self {
        self.event_component = Some(component);
        self
    }

    /// Sets the writes that RBAC grants it.
    #[must_use]
    pub fn may_write(mut self, grants: &'static [Grant]) -> Self {
        self.grants = grants;
        self
    }

    /// Raises its client-side rate limit above that of the flags.
    #[must_use]
    pub fn qps_multiplier(mut self, qps_multiplier: QpsMultiplier) -> Self {
        self.qps_multiplier = qps_multiplier;
        self
    }

    /// Declares metrics it observes.
    #[must_use]
    pub fn metrics(mut self, metrics: impl IntoIterator<Item = &'static Metric>) -> Self {
        self.metrics.extend(metrics);
        self
    }

    /// Registers an observer of all watchable resources.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Registers the handler of its debug pages.
    #[must_use]
    pub fn debug_handler(
        mut self,
        handler: impl Fn(&str, &[(String, String)]) -> Option<DebugPage> + Send + Sync + 'static,
    ) -> Self {
        self.debug_handler = Some(Arc::new(handler));
        self
    }

    /// Adds a loop.
    #[must_use]
    pub fn with_loop(mut self, a_loop: Loop) -> Self {
        self.loops.push(a_loop);
        self
    }

    /// Whether the grants allow a write. An edit reads the object before it updates it, so it needs both verbs.
    #[must_use]
    pub fn is_granted<R>(grants: &[Grant], write: &Write<R>) -> bool {
        let (resource, subresource) = (&write.target.resource, write.subresource());
        let reads = match &write.action {
            Action::Edit(_) | Action::PatchMetadata(_) => true,
            Action::Put { conflict_tries, .. } => *conflict_tries > 1,
            _ => false,
        };
        let covered = |subresource: &str, verb: &str| {
            grants.iter().any(|grant| grant.covers(resource, subresource, verb))
        };
        covered(subresource, write.verb()) && (!reads || covered("", "get"))
    }
}

impl Loop {
    /// A loop with a queue of this name and one worker.
    #[must_use]
    pub fn reconciling<I: LoopItem>(queue: &'static str, reconciler: impl Reconciler<I> + 'static) -> Self {
        Self {
            queue,
            workers: 1,
            max_retries: None,
            rate_limiter: RateLimiter::DEFAULT,
            keyed_by: None,
            watches: Vec::new(),
            reads: Vec::new(),
            unwatched: Vec::new(),
            starts_without: Vec::new(),
            indexes: Vec::new(),
            resync_period: None,
            initial_items: Vec::new(),
            start_step: None,
            reconciler: Arc::new(TypedReconciler::new(queue, reconciler)),
        }
    }

    /// A loop that needs one decision per item, from the caches alone.
    #[must_use]
    pub fn deciding<I: LoopItem>(
        queue: &'static str,
        decide: impl Fn(&View<'_>, &I) -> Plan + Send + Sync + 'static,
    ) -> Self {
        Self::reconciling(queue, SingleDecision(decide))
    }

    /// Declares that items are named after objects of this kind, and that what is written for one of them concerns no
    /// later object of the same name: it does not wait until the caches have observed the writes for the earlier one.
    #[must_use]
    pub fn keyed_by<T: Kind>(mut self) -> Self {
        self.keyed_by = Some(KindEntry::of::<T>());
        self.reads::<T>()
    }

    /// Watches a kind. `enqueue` receives the old and the new state of the changed object.
    #[must_use]
    pub fn enqueue_on<T: Kind>(
        mut self,
        enqueue: impl Fn(&Change<T>, &View<'_>, &mut Effects) + Send + Sync + 'static,
    ) -> Self {
        let erased = move |change: &AnyChange, view: &View<'_>, items: &mut Effects| {
            enqueue(&change.typed::<T>(), view, items);
        };
        self.watches.push(Watch { kind: KindEntry::of::<T>(), enqueue: Arc::new(erased) });
        self.reads::<T>()
    }

    /// Reads a kind whose events enqueue nothing, for a reason: something else must enqueue the items that depend on an
    /// object of the kind, or nothing may have to. In the simulator, a read of a kind that is neither watched nor
    /// declared here fails the run.
    #[must_use]
    pub fn reads_unwatched<T: Kind>(mut self, because: &'static str) -> Self {
        self.unwatched.push((KindEntry::of::<T>(), because));
        self.reads::<T>()
    }

    /// Reads a kind.
    #[must_use]
    pub fn reads<T: Kind>(mut self) -> Self {
        let entry = KindEntry::of::<T>();
        if !self.reads.contains(&entry) {
            self.reads.push(entry);
        }
        self
    }

    /// Reads pods with these parts. A read of any other part panics in a rehearsal, and in a process in which no enabled
    /// controller declares the part.
    #[must_use]
    pub fn reads_pod_parts(self, parts: PodParts) -> Self {
        let mut declared = self.reads::<Pod>();
        let pods = KindEntry::of::<Pod>();
        for entry in declared.reads.iter_mut().filter(|entry| **entry == pods) {
            *entry = entry.clone().keeping(parts);
        }
        declared
    }

    /// Reads a kind without waiting for its cache at start. The reconcile reads it with [`View::store_if_synced`] and
    /// requeues an item that needs the kind before the cache is synced.
    #[must_use]
    pub fn starts_without<T: Kind>(mut self) -> Self {
        self.starts_without.push(KindEntry::of::<T>());
        self.reads::<T>()
    }

    /// Reads a kind by an index.
    #[must_use]
    pub fn reads_index<T: Kind>(mut self, index: Index<T>) -> Self {
        let add = move |store: &mut dyn AnyStore| {
            if let Some(store) = store.as_any_mut().downcast_mut::<Store<T>>() {
                // The error says that another loop has added the index already.
                let _ = store.add_index(index);
            }
        };
        self.indexes.push(DeclaredIndex { kind: KindEntry::of::<T>(), name: index.name, add: Arc::new(add) });
        self.reads::<T>()
    }

    /// Resyncs the watched kinds for this loop after every period; zero switches that off.
    #[must_use]
    pub fn resync_every(mut self, period: Duration) -> Self {
        self.resync_period = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// Enqueues an item when the loop starts.
    #[must_use]
    pub fn initial_item(mut self, item: impl Into<Item>) -> Self {
        self.initial_items.push(item.into());
        self
    }

    /// Runs a step once, when the caches that the loop reads are synced and before its event handlers and workers
    /// start. If it fails, the process ends with its error.
    #[must_use]
    pub fn before_start(
        mut self,
        step: impl Fn(&View<'_>) -> Result<Vec<Measurement>, String> + Send + Sync + 'static,
    ) -> Self {
        self.start_step = Some(Arc::new(step));
        self
    }

    /// Replaces the default rate limiter.
    #[must_use]
    pub fn rate_limited_by(mut self, rate_limiter: RateLimiter) -> Self {
        self.rate_limiter = rate_limiter;
        self
    }

    /// The kinds that it reads although their events enqueue nothing and no reason is declared.
    pub fn uncovered_reads(&self) -> impl Iterator<Item = &KindEntry> {
        self.reads.iter().filter(|kind| !self.covers_reads_of(kind))
    }

    /// Whether a reconcile may read a kind: its events enqueue items, there is a reason why they need not, or the loop
    /// watches nothing and repeats passes over all objects.
    #[must_use]
    pub fn covers_reads_of(&self, kind: &KindEntry) -> bool {
        let repeats_passes = self.watches.is_empty() && !self.initial_items.is_empty();
        repeats_passes
            || self.watches.iter().any(|watch| watch.kind == *kind)
            || self.unwatched.iter().any(|(unwatched, _)| unwatched == kind)
    }

    /// Sets the number of workers; at least one.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Drops a failing item after this many retries, until an event enqueues it again. Errors that
    /// [`ErrorReason::is_outage`](keleustes_objects::ErrorReason::is_outage) do not count.
    #[must_use]
    pub fn max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = Some(max_retries);
        self
    }
}
