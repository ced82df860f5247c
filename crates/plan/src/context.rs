//! What a reconcile of several steps works with: the caches, live reads, writes and their outcomes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use keleustes_objects::{
    ApiError, ArcStr, DiscoveredResources, ErrorReason, InternedStr, Key, Kind, Object, PartialObjectMeta,
    PodParts, Resource, ResourceVersion, Time, TypeMeta, Uid,
};

use crate::{
    AnyObject, Effects, Item, KindEntry, Measurement, MonitorState, Plan, PlannedEvent, ReadRequest, Scale,
    View, Write,
};

/// A future that any executor may drive.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The I/O of a reconcile. The runtime implements it with caches and API requests, the rehearsal with in-memory
/// stores.
pub trait ReconcileIo: Send {
    /// Calls `f` with a view of the caches as they are now.
    fn with_view(&self, f: &mut dyn FnMut(&View<'_>));
    /// Applies a plan.
    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied>;
    /// Reads live objects as JSON with concurrent GETs: one result per key, in order.
    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>>;
    /// Reads the live metadata of one object as JSON; `None` if it is not found.
    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult>;
    /// The resource of a kind from the cached discovery; `None` if the server does not serve the kind.
    fn resource_of<'a>(&'a mut self, kind: &'a TypeMeta)
    -> BoxFuture<'a, Result<Option<Resource>, ApiError>>;
    /// Enqueues items, records events and observes metrics.
    fn effects(&mut self, effects: Effects);
    /// Lists live objects with concurrent requests: one result per request, in order.
    fn list<'a>(&'a mut self, requests: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>>;
    /// The cached result of API discovery, at most half a minute old.
    fn cached_discovery(&mut self) -> BoxFuture<'_, Result<Arc<DiscoveredResources>, ApiError>> {
        let discovery = self.discover();
        Box::pin(async move { discovery.await.map(Arc::new) })
    }
    /// Runs API discovery without a cache.
    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>>;
    /// Reads what is not an object of a known kind; `None` if it is not found.
    fn read<'a>(&'a mut self, request: &'a ReadRequest) -> BoxFuture<'a, FetchResult>;
    /// Lists one page of live metadata.
    fn list_page<'a>(
        &'a mut self,
        request: &'a PageRequest,
    ) -> BoxFuture<'a, Result<MetadataPage, ApiError>> {
        let message = format!("{} cannot be listed in pages here", request.resource);
        Box::pin(async move { Err(ApiError::transport(ErrorReason::Other, message)) })
    }
    /// The state of a resource's monitor, which has this long to deliver its first list.
    fn monitor<'a>(&'a mut self, _resource: &'a Resource, _wait: Duration) -> BoxFuture<'a, MonitorState> {
        Box::pin(async { MonitorState::Missing })
    }

    /// Reads an OpenAPI v3 document, such as `apis/apps/v1`, or the index of all documents if the path is empty; `None`
    /// if it is not found. With a hash from the index, the response may be cached on the way.
    fn read_openapi<'a>(&'a mut self, document: &'a str, hash: &'a str) -> BoxFuture<'a, FetchResult> {
        let _ = (document, hash);
        Box::pin(async { Ok(None) })
    }

    /// Whether a reconcile may change what is not behind the API server, such as files of this host. A dry run, a shadow
    /// and a process that does not lead any more may not; no write would follow the change.
    fn may_change_host(&self) -> bool {
        false
    }
}

/// A live object as JSON; `None` if it is not found.
pub type FetchResult = Result<Option<String>, ApiError>;

/// A live list request.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// The kind to list.
    pub kind: KindEntry,
    /// The namespace; empty for all namespaces.
    pub namespace: InternedStr,
    /// The maximum number of objects; `None` lists all.
    pub limit: Option<u32>,
    /// The label selector, as the API writes it; empty for all objects.
    pub label_selector: String,
    /// The field selector, as the API writes it; empty for all objects.
    pub field_selector: String,
}

impl ListRequest {
    /// Lists all objects of a kind in one namespace, or in all namespaces if it is empty. Unlike cached pods, live ones
    /// have all parts.
    #[must_use]
    pub fn new(kind: KindEntry, namespace: &str) -> Self {
        let kind = kind.keeping(PodParts::ALL);
        let (label_selector, field_selector) = (String::new(), String::new());
        Self { kind, namespace: namespace.into(), limit: None, label_selector, field_selector }
    }
}

/// A request for one page of a live list of metadata.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The resource.
    pub resource: Resource,
    /// The namespace; empty for all namespaces.
    pub namespace: String,
    /// The maximum number of objects; `None` lists all in one page.
    pub limit: Option<u32>,
    /// The token of the previous page; `None` for the first page.
    pub continue_token: Option<String>,
}

/// One page of a live list of metadata.
#[derive(Clone, Debug, Default)]
pub struct MetadataPage {
    /// The resourceVersion of the list.
    pub resource_version: ResourceVersion,
    /// The token of the next page, if there is one.
    pub continue_token: Option<String>,
    /// The objects.
    pub objects: Vec<PartialObjectMeta>,
}

/// The listed objects.
pub type ListResult = Result<Vec<Arc<dyn AnyObject>>, ApiError>;

/// The typed face of [`ReconcileIo`] that a [`Reconciler`](crate::Reconciler) is given.
pub struct Context<'a> {
    io: &'a mut dyn ReconcileIo,
}

impl<'a> Context<'a> {
    /// A context over an implementation of the I/O.
    pub fn new(io: &'a mut dyn ReconcileIo) -> Self {
        Self { io }
    }

    /// The underlying I/O, for wrappers such as the simulator's mutants.
    pub fn io(&mut self) -> &mut dyn ReconcileIo {
        self.io
    }

    /// Gathers the inputs of a decision from the caches as they are now.
    pub fn gather<R>(&self, gather: impl FnOnce(&View<'_>) -> R) -> R {
        let (mut gather, mut inputs) = (Some(gather), None);
        self.io.with_view(&mut |view| {
            if let Some(gather) = gather.take() {
                inputs = Some(gather(view));
            }
        });
        inputs.unwrap_or_else(|| unreachable!("with_view calls its argument before it returns"))
    }

    /// Whether the host may be changed. If not, a reconcile goes on as if it had been, so that a dry run and a shadow see
    /// the writes that follow.
    #[must_use]
    pub fn may_change_host(&self) -> bool {
        self.io.may_change_host()
    }

    /// Applies a plan and returns the outcomes of its writes.
    pub async fn apply(&mut self, plan: Plan) -> Applied {
        self.io.apply(plan).await
    }

    /// Observes a metric.
    pub fn measure(&mut self, measurement: Measurement) {
        let mut effects = Effects::default();
        effects.measure(measurement);
        self.io.effects(effects);
    }

    /// Records an event that belongs to no plan.
    pub fn record(&mut self, event: PlannedEvent) {
        let mut effects = Effects::default();
        effects.record(event);
        self.io.effects(effects);
    }

    /// Enqueues another item of the same loop, for a cause that no watch event of that item reports.
    pub fn enqueue(&mut self, item: impl Into<Item>) {
        let mut effects = Effects::default();
        effects.add(item);
        self.io.effects(effects);
    }

    /// Reads one live object.
    ///
    /// # Errors
    /// If the request fails or the response cannot be decoded. An object that is not found is no error.
    pub async fn fetch<T: Kind>(&mut self, key: &Key) -> Result<Option<T>, ReconcileError> {
        let mut results = self.fetch_all(std::slice::from_ref(key)).await;
        results.pop().unwrap_or_else(|| unreachable!("one result per key"))
    }

    /// Reads live objects with concurrent GETs: one result per key, in order.
    pub async fn fetch_all<T: Kind>(&mut self, keys: &[Key]) -> Vec<Result<Option<T>, ReconcileError>> {
        let results = self.io.fetch(&T::RESOURCE, keys).await.into_iter();
        results.zip(keys).map(|(result, key)| decode(result, key)).collect()
    }

    /// Reads the live metadata of one object of any resource.
    ///
    /// # Errors
    /// If the request fails or the response cannot be decoded. An object that is not found is no error.
    pub async fn fetch_metadata(
        &mut self,
        resource: &Resource,
        key: &Key,
    ) -> Result<Option<PartialObjectMeta>, ApiError> {
        let Some(json) = self.io.fetch_metadata(resource, key).await? else {
            return Ok(None);
        };
        let unreadable = || {
            ApiError::transport(ErrorReason::UnreadableResponse, format!("{resource} {key} cannot be read"))
        };
        serde_json::from_str(&json).map(Some).map_err(|_| unreadable())
    }

    /// The resource of a kind from the cached discovery; `None` if the server does not serve the kind.
    ///
    /// # Errors
    /// If discovery of the kind's group version failed.
    pub async fn resource_of(&mut self, kind: &TypeMeta) -> Result<Option<Resource>, ApiError> {
        self.io.resource_of(kind).await
    }

    /// Enqueues items in any queue of the controller, records events and observes metrics.
    pub fn effects(&mut self, effects: Effects) {
        self.io.effects(effects);
    }

    /// Lists the live objects of a kind in one namespace.
    ///
    /// # Errors
    /// If the request fails or one of the objects cannot be decoded.
    pub async fn list<T: Kind>(&mut self, namespace: &str) -> Result<Vec<Arc<T>>, ApiError> {
        self.list_selected(ListRequest::new(KindEntry::of::<T>(), namespace)).await
    }

    /// Lists the live objects that a request selects.
    ///
    /// # Errors
    /// If the request fails or one of the objects cannot be decoded.
    ///
    /// # Panics
    /// If the request is for another kind than `T`.
    pub async fn list_selected<T: Object>(&mut self, request: ListRequest) -> Result<Vec<Arc<T>>, ApiError> {
        let mut results = self.io.list(&[request]).await;
        results.pop().unwrap_or_else(|| unreachable!("one result per request")).map(typed)
    }

    /// Lists the live metadata of several resources in one namespace with concurrent requests: one result per
    /// resource, in order, each of at most `limit` objects.
    pub async fn list_metadata<'r>(
        &mut self,
        resources: impl IntoIterator<Item = &'r Resource>,
        namespace: &str,
        limit: Option<u32>,
    ) -> Vec<Result<Vec<Arc<PartialObjectMeta>>, ApiError>> {
        let request = |resource: &Resource| ListRequest {
            limit,
            ..ListRequest::new(KindEntry::metadata_of(resource.clone()), namespace)
        };
        let requests: Vec<_> = resources.into_iter().map(request).collect();
        self.io.list(&requests).await.into_iter().map(|listed| listed.map(typed)).collect()
    }

    /// Lists one page of the live metadata of any resource, with the resourceVersion of the list.
    ///
    /// # Errors
    /// If the request fails or one of the objects cannot be decoded.
    pub async fn list_page(&mut self, request: &PageRequest) -> Result<MetadataPage, ApiError> {
        self.io.list_page(request).await
    }

    /// How far the monitor of a resource is. One that has not delivered its first list gets this long to do so.
    pub async fn monitor(&mut self, resource: &Resource, wait: Duration) -> MonitorState {
        self.io.monitor(resource, wait).await
    }

    /// The cached result of API discovery, at most half a minute old, for mappings from any kind to its resources.
    ///
    /// # Errors
    /// If discovery never succeeded.
    pub async fn cached_discovery(&mut self) -> Result<Arc<DiscoveredResources>, ApiError> {
        self.io.cached_discovery().await
    }

    /// Runs API discovery without a cache.
    ///
    /// # Errors
    /// If no group could be discovered.
    pub async fn discover(&mut self) -> Result<DiscoveredResources, ApiError> {
        self.io.discover().await
    }

    /// Reads the `scale` subresource of an object of any kind; `None` if it is not found.
    ///
    /// # Errors
    /// If the request fails or the response is no Scale.
    pub async fn fetch_scale(&mut self, resource: &Resource, key: &Key) -> Result<Option<Scale>, ApiError> {
        let request = ReadRequest::subresource(resource, key, "scale");
        let Some(json) = self.io.read(&request).await? else { return Ok(None) };
        Scale::from_json(&json).map(Some).ok_or_else(|| {
            let message = format!("the scale of {resource} {key} cannot be read");
            ApiError::transport(ErrorReason::UnreadableResponse, message)
        })
    }

    /// Reads an OpenAPI v3 document, such as `apis/apps/v1`, or the index of all documents if the path is empty, as JSON;
    /// `None` if it is not found.
    ///
    /// # Errors
    /// If the request fails, or the response is too large.
    pub async fn read_openapi(&mut self, document: &str, hash: &str) -> FetchResult {
        self.io.read_openapi(document, hash).await
    }

    /// Reads what is not an object of a known kind, such as a response of an aggregated API, as JSON; `None` if it is
    /// not found.
    ///
    /// # Errors
    /// If the request fails, or the response is larger than the request allows.
    pub async fn read(&mut self, request: &ReadRequest) -> FetchResult {
        self.io.read(request).await
    }
}

fn decode<T: Kind>(result: FetchResult, key: &Key) -> Result<Option<T>, ReconcileError> {
    let Some(json) =
        result.map_err(|error| ReconcileError::from_api_error(&error, format!("reading {key}: {error}")))?
    else {
        return Ok(None);
    };
    // The decoder's error may quote the object, so it is left out.
    let object: T = serde_json::from_str(&json)
        .map_err(|_| ReconcileError::because(format!("{} {key} cannot be read", T::RESOURCE)))?;
    // The name may come from a field that a user wrote, and the caller signs, deletes or keeps by what is returned.
    if object.key() != key {
        let message = format!("{} {key} was requested, {} was returned", T::RESOURCE, object.key());
        return Err(ReconcileError::because(message));
    }
    Ok(Some(object))
}

fn typed<T: Object>(objects: Vec<Arc<dyn AnyObject>>) -> Vec<Arc<T>> {
    let downcast = |object: Arc<dyn AnyObject>| object.into_any().downcast();
    objects
        .into_iter()
        .map(|object| downcast(object).unwrap_or_else(|_| panic!("listed as another kind")))
        .collect()
}

/// The outcome of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, or failed with an error that the write ignores.
    Done {
        /// The resourceVersion after the write; empty if the response had none.
        resource_version: ResourceVersion,
        /// The UID of the written object; empty if the response had none.
        uid: Uid,
        /// The name, which the server generates from `generateName`; empty if the response had none.
        name: ArcStr,
        /// The creationTimestamp of the written object; `None` if the response had none.
        creation_timestamp: Option<Time>,
        /// The stored object, if the write asks for it with [`Write::returning_object`].
        object: Option<Arc<Value>>,
    },
    /// The live object needed no write.
    Unneeded,
    /// The request failed.
    Failed(ApiError),
    /// Not sent: an earlier failure stopped the plan, or the executor coalesces the status updates of the item.
    NotSent,
}

impl Outcome {
    /// Success without details from a response.
    #[must_use]
    pub fn done() -> Self {
        Self::Done {
            resource_version: ResourceVersion::default(),
            uid: Uid::default(),
            name: ArcStr::default(),
            creation_timestamp: None,
            object: None,
        }
    }

    /// The stored object of a write that asks for it, in the projection that the caller needs; `None` if the write was
    /// not done, or the object does not decode.
    #[must_use]
    pub fn stored<T: DeserializeOwned>(&self) -> Option<T> {
        let Self::Done { object: Some(object), .. } = self else { return None };
        T::deserialize(&**object).ok()
    }
}

/// The outcomes of a plan: one per write, in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// One per write.
    pub outcomes: Vec<Outcome>,
    /// The error with which the item is requeued, if there is one.
    pub error: Option<ReconcileError>,
}

impl Applied {
    /// Returns the error of the plan, if there is one.
    ///
    /// # Errors
    /// The first failure after which the item is requeued.
    pub fn all_done(self) -> Result<(), ReconcileError> {
        self.error.map_or(Ok(()), Err)
    }
}

/// What the queue does with an item after a reconcile without error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Forgets the item, its backoff included, until an event enqueues it.
    Forget,
    /// Forgets the backoff and enqueues the item after this delay.
    After(Delay),
    /// Enqueues the item after this delay and keeps its failure count: the reconcile did not fail, but is not
    /// finished either.
    KeepBackoff(Delay),
}

/// What the item of a periodic loop waits for.
pub const NEXT_PASS: &str = "the next periodic pass";

/// How long an item waits for nothing but the time, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// How long.
    pub duration: Duration,
    /// What it waits for, in the words of the API: `its progress deadline`, `ttlSecondsAfterFinished`.
    pub reason: &'static str,
}

impl Delay {
    /// Waits this long for something.
    #[must_use]
    pub fn of(duration: Duration, reason: &'static str) -> Self {
        Self { duration, reason }
    }

    /// The shorter one of two; the first if they are equal.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other.duration < self.duration { other } else { self }
    }
}

impl Requeue {
    /// Forgets the backoff and enqueues the item after a delay; the reason says what it waits for.
    #[must_use]
    pub fn after(duration: Duration, reason: &'static str) -> Self {
        Self::After(Delay::of(duration, reason))
    }

    /// Enqueues the item after the shortest of several delays, or forgets it if there is none.
    #[must_use]
    pub fn after_any(delays: impl IntoIterator<Item = Delay>) -> Self {
        delays.into_iter().reduce(Delay::min).map_or(Self::Forget, Self::After)
    }
}

/// A failed reconcile. The item is requeued with backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileError {
    /// The message for the log.
    pub because: String,
    /// The server's Retry-After.
    pub retry_after: Option<Duration>,
    /// The retry is expected and not logged.
    pub quiet: bool,
    /// The API server failed, not the item: such an error does not count towards `max_retries`.
    pub outage: bool,
}

impl ReconcileError {
    /// An error with this message.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self { because: reason.into(), retry_after: None, quiet: false, outage: false }
    }

    /// An error caused by a failed request; it takes over the server's Retry-After.
    #[must_use]
    pub fn from_api_error(error: &ApiError, reason: impl Into<String>) -> Self {
        Self { retry_after: error.retry_after, outage: error.reason.is_outage(), ..Self::because(reason) }
    }

    /// An error caused by a failed write of a plan.
    #[must_use]
    pub fn from_write(write: &Write, error: &ApiError) -> Self {
        Self::from_api_error(error, format!("{write}: {}", write.failure_text(error)))
    }

    /// The same error without a log line, for a retry that is expected.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }
}
