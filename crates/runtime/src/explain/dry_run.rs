//! Runs a reconcile without sending anything: the plan up to its first write is what the controller wants now.
//!
//! The reconcile sees the caches of this process and may read live. It works on a copy of the controller's memory. At
//! the first plan with writes it ends, because what follows depends on their outcomes. Only if it is asked in hindsight
//! does it go on as if the writes had succeeded: the leader made all of them. The executor behind it
//! believes that this process does not lead, so that it could not write even if it were asked to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use keleustes_objects::{ApiError, DiscoveredResources, Key, Resource, TypeMeta};
use keleustes_plan::{
    Action, AnyChange, Applied, BoxFuture, Context, Delay, Effects, FetchResult, Item, KindEntry,
    ListRequest, ListResult, MetadataPage, MonitorState, Outcome, PageRequest, Plan, ReadRequest,
    ReconcileError, ReconcileIo, Requeue, ScratchMemory, Step, View, Write,
};
use parking_lot::Mutex;

use super::Explainer;
use super::explanation::WantedEvent;
use crate::caches::{CacheReader, Undo};
use crate::executor::{Executor, UnknownWrites};
use crate::gate::Gate;
use crate::inspection::{RegisteredController, RegisteredLoop};

/// How long one dry run may take; it may read live.
const TIMEOUT: Duration = Duration::from_secs(3);
/// After how many plans with writes a dry run in hindsight ends.
const PLANS_MAX: usize = 8;
/// How many items of one loop are tried for one object.
const ITEMS_MAX: usize = 3;

/// What a reconcile would do now.
#[derive(Default)]
pub(crate) struct DryRun {
    pub(crate) writes: Vec<Write>,
    is_ended: bool,
    pub(super) events: Vec<WantedEvent>,
    /// How it would end without writes: the error, or the delay after which it is requeued.
    pub(super) error: Option<String>,
    pub(super) requeue_after: Option<Delay>,
    /// Why it could not be computed.
    pub(super) not_computed: Option<String>,
}

impl DryRun {
    /// What it would do, in a few words.
    pub(crate) fn summary(&self) -> String {
        match (self.writes.as_slice(), &self.error, &self.not_computed) {
            ([], None, None) => "it wants no write".to_owned(),
            ([], Some(error), _) => format!("it fails: {error}"),
            ([], None, Some(why)) => format!("what it wants is not known: {why}"),
            ([write], ..) => format!("it wants: {write}"),
            ([write, rest @ ..], ..) => format!("it wants: {write}, and {} more writes", rest.len()),
        }
    }
}

impl Explainer {
    /// The items of a loop that an event of an object enqueues.
    pub(super) fn items_for(&self, a_loop: &RegisteredLoop, resource: &Resource, key: &Key) -> Vec<Item> {
        let mut items = Vec::new();
        let mut kinds: Vec<_> = a_loop.watches.iter().map(|watch| &watch.kind).collect();
        kinds.retain(|kind| kind.resource() == resource);
        kinds.dedup();
        for kind in kinds {
            let known = self.caches.all();
            let cache = known.iter().find(|cache| cache.entry() == kind);
            let Some(object) = cache.and_then(|cache| cache.object(key)) else { continue };
            let change = AnyChange { old: None, new: Some(object), resync: false };
            items.extend(self.items_after(a_loop, kind, &change, None));
        }
        if items.is_empty() && a_loop.is_keyed_by(resource) {
            items.extend(a_loop.object_item(key));
        }
        items.sort();
        items.dedup();
        items.truncate(ITEMS_MAX);
        items
    }

    /// The items of a loop that a change enqueues, in a view that lacks another change.
    pub(crate) fn items_after(
        &self,
        a_loop: &RegisteredLoop,
        kind: &KindEntry,
        change: &AnyChange,
        undo: Option<&Undo>,
    ) -> Vec<Item> {
        let mut items = Vec::new();
        let mut scratch = ScratchMemory::default();
        for watch in a_loop.watches.iter().filter(|watch| watch.kind == *kind) {
            let Some(reader) = self.synced_reader(a_loop) else { continue };
            let mut enqueue = Effects::default();
            let collect = AssertUnwindSafe(|| {
                scratch.scope(|| {
                    with_view(&reader, undo, &mut |view| watch.enqueue(change, view, &mut enqueue));
                });
            });
            if catch_unwind(collect).is_ok() {
                items.extend(enqueue.into_items().into_iter().map(|(item, _)| item));
            }
        }
        items
    }

    /// A reader of the caches that a loop reads; `None` if one of them is not synced.
    pub(super) fn synced_reader(&self, a_loop: &RegisteredLoop) -> Option<CacheReader> {
        let reader = self.caches.reader(&a_loop.reads);
        reader.caches().iter().all(|cache| cache.list_count() > 0).then_some(reader)
    }

    /// What a reconcile of an item would do now, or if a change had not happened.
    pub(crate) async fn dry_run(
        &self,
        controller: &RegisteredController,
        a_loop: &RegisteredLoop,
        item: &Item,
        undo: Option<&Undo>,
    ) -> DryRun {
        let Some(reader) = self.synced_reader(a_loop) else {
            let not_computed = Some("a cache that it reads is not synced".to_owned());
            return DryRun { not_computed, ..DryRun::default() };
        };
        let collected = Arc::new(Mutex::new(DryRun::default()));
        let running = self.inspection.running_loop(controller.name, a_loop.queue);
        let client = running.map_or_else(|| self.client.clone(), |there| there.executor.client.clone());
        let executor = Executor {
            controller: controller.name,
            grants: controller.grants,
            client,
            gate: Arc::new(Gate::new(reader.caches(), None, self.clocks.clone())),
            unknown_writes: UnknownWrites::default(),
            caches: self.caches.clone(),
            status_coalescer: Arc::default(),
            clocks: self.clocks.clone(),
            is_leader: Arc::new(|| false),
            record: Arc::new(|_| {}),
            metrics: self.metrics.clone(),
            in_flight_max: 4,
            journal: crate::journal::Journal::new(self.clocks.clone(), 0),
            random: Mutex::new(fastrand::Rng::with_seed(0)),
        };
        let plans_left = if undo.is_some() { PLANS_MAX } else { 1 };
        let undo = undo.cloned();
        let scratch = scratch_memory(a_loop, &reader, undo.as_ref());
        let mut io = DryRunIo { reader, undo, plans_left, executor, collected: collected.clone() };
        let mut context = Context::new(&mut io);
        let reconcile = a_loop.reconciler.reconcile_boxed(&mut context, item);
        let finished = OnScratch { reconcile, scratch, collected: collected.clone() };
        let result = tokio::time::timeout(TIMEOUT, finished).await;
        let mut dry_run = std::mem::take(&mut *collected.lock());
        match result {
            Err(_) => dry_run.not_computed = Some("it took longer than 3 s".to_owned()),
            Ok(End::Panicked) => {
                dry_run.not_computed = Some("the reconcile panicked, which is a bug".to_owned());
            }
            Ok(End::Writes | End::Finished(Ok(Requeue::Forget))) => {}
            Ok(End::Finished(Ok(Requeue::After(delay) | Requeue::KeepBackoff(delay)))) => {
                dry_run.requeue_after = Some(delay);
            }
            Ok(End::Finished(Err(error))) => dry_run.error = Some(error.because),
        }
        dry_run
    }
}

/// The memory of a dry run: a copy or, in a view of an earlier moment, what a process that starts then would have.
fn scratch_memory(a_loop: &RegisteredLoop, reader: &CacheReader, undo: Option<&Undo>) -> ScratchMemory {
    if !undo.is_some_and(|undo| undo.is_rewound) {
        return ScratchMemory::default();
    }
    let mut scratch = ScratchMemory::of_new_process();
    if let Some(start) = &a_loop.start_step {
        // A reconcile on the memory without this step ends with an answer, too.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            scratch.scope(|| with_view(reader, undo, &mut |view| drop(start(view))));
        }));
    }
    scratch
}

fn with_view(reader: &CacheReader, undo: Option<&Undo>, f: &mut dyn FnMut(&View<'_>)) {
    match undo {
        Some(undo) => reader.with_view_undoing(undo, f),
        None => reader.with_view(f),
    }
}

/// How a dry run ended.
enum End {
    Finished(Result<Requeue, ReconcileError>),
    /// At the first plan with writes.
    Writes,
    Panicked,
}

/// Polls a reconcile on scratch memory until it ends or plans writes.
struct OnScratch<'a> {
    reconcile: BoxFuture<'a, Result<Requeue, ReconcileError>>,
    scratch: ScratchMemory,
    collected: Arc<Mutex<DryRun>>,
}

impl Future for OnScratch<'_> {
    type Output = End;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<End> {
        let Self { reconcile, scratch, collected } = self.get_mut();
        let step = AssertUnwindSafe(|| scratch.scope(|| reconcile.as_mut().poll(task)));
        match catch_unwind(step) {
            Err(_) => Poll::Ready(End::Panicked),
            Ok(Poll::Ready(result)) => Poll::Ready(End::Finished(result)),
            Ok(Poll::Pending) if collected.lock().is_ended => Poll::Ready(End::Writes),
            Ok(Poll::Pending) => Poll::Pending,
        }
    }
}

/// The outcome of a write that is taken for granted.
fn stored(write: &Write) -> Outcome {
    let mut outcome = Outcome::done();
    if let (Action::Put { body, .. }, Outcome::Done { object, .. }) = (&write.action, &mut outcome) {
        *object = Some(Arc::new(body.clone()));
    }
    outcome
}

/// A live object as it was known before a change that is undone: a reconcile that writes it whole first makes sure that it
/// is the cached one.
fn without(undo: &Undo, resource: &Resource, key: &Key, fetched: FetchResult) -> FetchResult {
    let Some(state) = undo.state(resource, key) else { return fetched };
    let Some((state, live)) = state.as_ref().zip(fetched?) else { return Ok(None) };
    let Ok(mut live) = serde_json::from_str::<serde_json::Value>(&live) else { return Ok(Some(live)) };
    live["metadata"]["resourceVersion"] = state.meta().resource_version.to_string().into();
    Ok(Some(live.to_string()))
}

/// Reads as the loop does, and collects what it plans.
struct DryRunIo {
    reader: CacheReader,
    undo: Option<Undo>,
    /// With how many more plans with writes it ends.
    plans_left: usize,
    executor: Executor,
    collected: Arc<Mutex<DryRun>>,
}

impl ReconcileIo for DryRunIo {
    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        with_view(&self.reader, self.undo.as_ref(), f);
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let mut collected = self.collected.lock();
        collected.events.extend(plan.events().iter().map(WantedEvent::of));
        collected.writes.extend(plan.steps().iter().flat_map(Step::writes).cloned());
        let writes = plan.steps().iter().flat_map(Step::writes).count();
        if writes > 0 && self.plans_left <= 1 {
            // What the reconcile does after these writes depends on their outcomes.
            collected.is_ended = true;
            return Box::pin(std::future::pending());
        }
        self.plans_left -= usize::from(writes > 0);
        let outcomes = plan.steps().iter().flat_map(Step::writes).map(stored).collect();
        let error = plan.error_message().map(ReconcileError::because);
        Box::pin(async move { Applied { outcomes, error } })
    }

    fn effects(&mut self, _: Effects) {}

    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        Box::pin(async move {
            let fetched = self.executor.fetch_all(resource, keys).await;
            let undone = |(key, fetched): (&Key, FetchResult)| match &self.undo {
                Some(undo) => without(undo, resource, key, fetched),
                None => fetched,
            };
            keys.iter().zip(fetched).map(undone).collect()
        })
    }

    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult> {
        Box::pin(self.executor.fetch_metadata(resource, key))
    }

    fn resource_of<'a>(
        &'a mut self,
        kind: &'a TypeMeta,
    ) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        let mapping = self.executor.caches.rest_mapping();
        Box::pin(async move {
            let found = mapping.mapping_for_kind(kind.group(), Some(kind.version()), kind.kind()).await?;
            Ok(found.map(|found| found.resource))
        })
    }

    fn list<'a>(&'a mut self, requests: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        Box::pin(self.executor.list(requests))
    }

    fn read<'a>(&'a mut self, request: &'a ReadRequest) -> BoxFuture<'a, FetchResult> {
        Box::pin(self.executor.read_any(request))
    }

    fn list_page<'a>(
        &'a mut self,
        request: &'a PageRequest,
    ) -> BoxFuture<'a, Result<MetadataPage, ApiError>> {
        Box::pin(self.executor.list_page(request))
    }

    fn monitor<'a>(&'a mut self, resource: &'a Resource, _: Duration) -> BoxFuture<'a, MonitorState> {
        let caches = &self.executor.caches;
        Box::pin(async move {
            match caches.all_monitors() {
                Some(monitors) => monitors.state_of(resource, Duration::ZERO, caches).await,
                None => MonitorState::Missing,
            }
        })
    }

    fn read_openapi<'a>(&'a mut self, document: &'a str, hash: &'a str) -> BoxFuture<'a, FetchResult> {
        Box::pin(self.executor.read_openapi(document, hash))
    }

    fn cached_discovery(&mut self) -> BoxFuture<'_, Result<Arc<DiscoveredResources>, ApiError>> {
        let mapping = self.executor.caches.rest_mapping();
        Box::pin(async move { mapping.all().await })
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        Box::pin(self.executor.discover())
    }
}
