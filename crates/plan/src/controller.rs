//! How a controller introduces itself: what wakes it, what it reads, what it may write, how it decides.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Kind, Resource};

use crate::{
    Action, AnyChange, AnyStore, BoxFuture, Change, Context, Enqueue, Index, Item, KindEntry, Metric,
    Observer, Plan, ReconcileError, Requeue, Store, View, Write,
};

/// A controller: a name, an identity, and one loop or a few.
pub struct Controller {
    /// Its canonical name.
    pub name: &'static str,
    /// Names it is also known by.
    pub aliases: &'static [&'static str],
    /// The service account it works as, with per-controller credentials; the manager's own
    /// credentials if it has none.
    pub service_account: Option<&'static str>,
    /// The name under which it records events, if it records any.
    pub event_component: Option<&'static str>,
    /// What it may write. Anything else is stopped before it is sent.
    pub grants: &'static [Grant],
    /// How much faster than others it sends.
    pub qps_multiplier: QpsMultiplier,
    /// The figures it tells.
    pub metrics: Vec<&'static Metric>,
    /// Who hears of every object of every kind, if somebody does.
    pub observer: Option<Arc<dyn Observer>>,
    /// What it shows to people who look into the process.
    pub debug_handler: Option<DebugHandler>,
    /// Its loops.
    pub loops: Vec<Loop>,
}

/// Something that a controller may do, in the terms of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The API group; empty for the core group, `*` for any.
    pub group: &'static str,
    /// The resource, or `resource/subresource`; `*` for any.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Grant {
    /// Whether it lets this be done to a resource, or to a part of it if one is named.
    #[must_use]
    pub fn covers(&self, resource: &Resource, subresource: &str, verb: &str) -> bool {
        let part = match self.resource.split_once('/') {
            _ if self.resource == "*" => true,
            Some((plural, part)) => plural == resource.plural && part == subresource,
            None => self.resource == resource.plural && subresource.is_empty(),
        };
        part && (self.group == "*" || self.group == resource.group) && self.verbs.contains(&verb)
    }
}

/// Answers a request for a page: what follows the controller's name in the path, and the query in; the page
/// out, if there is one.
pub type DebugHandler = Arc<dyn Fn(&str, &[(String, String)]) -> Option<DebugPage> + Send + Sync>;

/// A page for people who look into the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugPage {
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// How much faster than others a controller sends, where flags hold requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpsMultiplier {
    /// So many times the rate.
    pub qps: u16,
    /// So many times the burst.
    pub burst: u16,
}

impl QpsMultiplier {
    /// As the flags say.
    pub const DEFAULT: Self = Self { qps: 1, burst: 1 };
}

/// One queue and those who work on it.
pub struct Loop {
    /// The queue's name, which is the label of its metrics.
    pub queue: &'static str,
    /// How many items are worked on at once.
    pub workers: usize,
    /// How often a failing item is tried again before it is dropped until something changes; without
    /// a number, for ever.
    pub max_retries: Option<u32>,
    /// How retries slow down.
    pub rate_limiter: RateLimiter,
    /// The kinds whose changes wake items.
    pub watches: Vec<Watch>,
    /// All kinds that decisions look at, the watched ones among them.
    pub reads: Vec<KindEntry>,
    /// Those of them that it may begin without; see [`View::known`].
    pub starts_without: Vec<KindEntry>,
    /// Indexes that decisions use.
    pub indexes: Vec<DeclaredIndex>,
    /// How often everything it watches is shown to it again, beside what the caches do for all.
    pub resync_period: Option<Duration>,
    /// Items that are there from the start; a pass over everything is one.
    pub initial_items: Vec<Item>,
    /// How it decides.
    pub loop_kind: LoopKind,
}

/// How the retries of one queue slow down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiter {
    /// The first delay of an item; each failure doubles it.
    pub base_delay: Duration,
    /// The longest delay of an item.
    pub max_delay: Duration,
    /// Retries per second over all items, in the long run.
    pub retries_per_second: f64,
    /// Retries that may come at once after a quiet time.
    pub retries_burst: f64,
}

impl RateLimiter {
    /// What most of the original's queues use.
    pub const DEFAULT: Self = Self {
        base_delay: Duration::from_millis(5),
        max_delay: Duration::from_secs(1000),
        retries_per_second: 10.0,
        retries_burst: 100.0,
    };
}

/// An index that a loop declares, by the way to add it to a table.
#[derive(Clone)]
pub struct DeclaredIndex {
    /// The kind it is of.
    pub kind: KindEntry,
    /// Its name.
    pub name: &'static str,
    add: AddIndex,
}

impl DeclaredIndex {
    /// Adds the index to a table of its kind, unless another loop has done so already.
    pub fn add_to(&self, table: &mut dyn AnyStore) {
        (self.add)(table);
    }
}

/// Enqueue items on changes of one kind.
pub struct Watch {
    /// The kind.
    pub kind: KindEntry,
    enqueue: WakeFn,
}

type AddIndex = Arc<dyn Fn(&mut dyn AnyStore) + Send + Sync>;
type WakeFn = Box<dyn Fn(&AnyChange, &View<'_>, &mut Enqueue) + Send + Sync>;

impl Watch {
    /// Collects the items that a change wakes.
    pub fn enqueue(&self, change: &AnyChange, view: &View<'_>, wakes: &mut Enqueue) {
        (self.enqueue)(change, view, wakes);
    }
}

/// How a loop decides.
pub enum LoopKind {
    /// One decision, one plan.
    Decide(Decide),
    /// Several decisions, each on the results of the writes before it.
    Reconcile(Arc<dyn Reconciler>),
}

/// Makes one decision: what is to be done about an item.
pub type Decide = Arc<dyn Fn(&View<'_>, &Item) -> Plan + Send + Sync>;

/// Several decisions in a row. Nothing but deciding and applying alternate in here.
pub trait Reconciler: Send + Sync {
    /// Works on one item.
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>>;
}

impl Controller {
    /// A controller of this name, with nothing in it yet.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
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

    /// Other names it is known by.
    #[must_use]
    pub fn also_known_as(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The service account it works as.
    #[must_use]
    pub fn service_account(mut self, service_account: &'static str) -> Self {
        self.service_account = Some(service_account);
        self
    }

    /// The name under which it records events.
    #[must_use]
    pub fn event_component(mut self, component: &'static str) -> Self {
        self.event_component = Some(component);
        self
    }

    /// What it may write.
    #[must_use]
    pub fn may_write(mut self, grants: &'static [Grant]) -> Self {
        self.grants = grants;
        self
    }

    /// Sends faster than others where flags hold requests back.
    #[must_use]
    pub fn qps_multiplier(mut self, qps_multiplier: QpsMultiplier) -> Self {
        self.qps_multiplier = qps_multiplier;
        self
    }

    /// The figures it tells.
    #[must_use]
    pub fn metrics(mut self, metrics: impl IntoIterator<Item = &'static Metric>) -> Self {
        self.metrics.extend(metrics);
        self
    }

    /// Hears of every object of every kind.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Shows people who look into the process what it knows.
    #[must_use]
    pub fn debug_handler(
        mut self,
        page: impl Fn(&str, &[(String, String)]) -> Option<DebugPage> + Send + Sync + 'static,
    ) -> Self {
        self.debug_handler = Some(Arc::new(page));
        self
    }

    /// Adds a loop.
    #[must_use]
    pub fn with_loop(mut self, a_loop: Loop) -> Self {
        self.loops.push(a_loop);
        self
    }

    /// Whether a write is within the grants. An edit reads before it writes, so it needs both verbs.
    #[must_use]
    pub fn is_granted(grants: &[Grant], write: &Write) -> bool {
        let (resource, part) = (&write.target.resource, write.subresource());
        let reads = match &write.action {
            Action::Edit(_) | Action::PatchMetadata(_) => true,
            Action::Put { conflict_tries, .. } => *conflict_tries > 1,
            _ => false,
        };
        let covered = |part: &str, verb: &str| grants.iter().any(|grant| grant.covers(resource, part, verb));
        covered(part, write.verb()) && (!reads || covered("", "get"))
    }
}

impl Loop {
    /// A loop around a queue of this name, with one worker.
    #[must_use]
    pub fn new(queue: &'static str, behaviour: LoopKind) -> Self {
        Self {
            queue,
            workers: 1,
            max_retries: None,
            rate_limiter: RateLimiter::DEFAULT,
            watches: Vec::new(),
            reads: Vec::new(),
            starts_without: Vec::new(),
            indexes: Vec::new(),
            resync_period: None,
            initial_items: Vec::new(),
            loop_kind: behaviour,
        }
    }

    /// A loop of single decisions.
    #[must_use]
    pub fn deciding(
        queue: &'static str,
        decide: impl Fn(&View<'_>, &Item) -> Plan + Send + Sync + 'static,
    ) -> Self {
        Self::new(queue, LoopKind::Decide(Arc::new(decide)))
    }

    /// A loop of scripts.
    #[must_use]
    pub fn reconciling(queue: &'static str, script: impl Reconciler + 'static) -> Self {
        Self::new(queue, LoopKind::Reconcile(Arc::new(script)))
    }

    /// Enqueue items on changes of a kind. The old and the new state are both there to be looked at.
    #[must_use]
    pub fn enqueue_on<T: Kind>(
        mut self,
        wake: impl Fn(&Change<T>, &View<'_>, &mut Enqueue) + Send + Sync + 'static,
    ) -> Self {
        let erased = move |change: &AnyChange, view: &View<'_>, wakes: &mut Enqueue| {
            wake(&change.typed::<T>(), view, wakes);
        };
        self.watches.push(Watch { kind: KindEntry::of::<T>(), enqueue: Box::new(erased) });
        self.reads::<T>()
    }

    /// Lets decisions look at a kind whose changes wake nobody.
    #[must_use]
    pub fn reads<T: Kind>(mut self) -> Self {
        let entry = KindEntry::of::<T>();
        if !self.reads.contains(&entry) {
            self.reads.push(entry);
        }
        self
    }

    /// Begins before a kind is known that few of its decisions look at. They ask with [`View::known`], and those that
    /// need it come again later.
    #[must_use]
    pub fn starts_without<T: Kind>(mut self) -> Self {
        self.starts_without.push(KindEntry::of::<T>());
        self.reads::<T>()
    }

    /// Lets decisions use an index.
    #[must_use]
    pub fn reads_index<T: Kind>(mut self, index: Index<T>) -> Self {
        let add = move |table: &mut dyn AnyStore| {
            if let Some(table) = table.as_any_mut().downcast_mut::<Store<T>>() {
                // Another loop may share the index; then it is there, which is all that is asked for.
                let _ = table.add_index(index);
            }
        };
        self.indexes.push(DeclaredIndex { kind: KindEntry::of::<T>(), name: index.name, add: Arc::new(add) });
        self.reads::<T>()
    }

    /// Is shown everything it watches again after every period; zero means never.
    #[must_use]
    pub fn resync_every(mut self, period: Duration) -> Self {
        self.resync_period = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// Begins with an item, before anything has changed.
    #[must_use]
    pub fn initial_item(mut self, item: impl Into<Item>) -> Self {
        self.initial_items.push(item.into());
        self
    }

    /// Slows retries down in its own way.
    #[must_use]
    pub fn rate_limited_by(mut self, limiter: RateLimiter) -> Self {
        self.rate_limiter = limiter;
        self
    }

    /// How many items are worked on at once.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Drops a failing item after so many retries, until something changes. Failures of a server in
    /// trouble do not count.
    #[must_use]
    pub fn max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = Some(max_retries);
        self
    }
}
