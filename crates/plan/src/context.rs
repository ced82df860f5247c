//! What a script of several decisions works with: a view, hands that apply plans, and their answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    ApiError, ArcStr, DiscoveredResources, ErrorReason, InternedStr, Key, Kind, Object, PartialObjectMeta,
    Resource, ResourceVersion, TypeMeta, Uid,
};

use crate::{AnyObject, Effects, Item, KindEntry, Measurement, Plan, View};

/// A future that any executor may drive.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the world offers to a script. The runtime has one made of caches and connections, a
/// rehearsal one made of tables.
pub trait ReconcileIo: Send {
    /// Shows the caches as they are at this moment.
    fn with_view(&self, eye: &mut dyn FnMut(&View<'_>));
    /// Carries out a plan.
    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied>;
    /// Notes a measurement.
    fn measure(&mut self, measurement: Measurement);
    /// Puts another item into the queue of the same loop.
    fn enqueue(&mut self, item: Item);
    /// Reads objects afresh, as JSON, all at once: one answer for each key, in order.
    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>>;
    /// Reads the metadata of one object afresh, as JSON; `None` if it is not there.
    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult>;
    /// The resource of a kind as it is served now or was a moment ago; `None` if there is none.
    fn resource_of<'a>(&'a mut self, line: &'a TypeMeta)
    -> BoxFuture<'a, Result<Option<Resource>, ApiError>>;
    /// Enqueue other items and records events.
    fn effects(&mut self, stir: Effects);
    /// Lists afresh, all at once: one answer for each question, in order.
    fn list<'a>(&'a mut self, listings: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>>;
    /// Asks the server anew what it serves.
    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>>;
}

/// An object as the server has it, as JSON; `None` if it is not there.
pub type FetchResult = Result<Option<String>, ApiError>;

/// What is to be listed.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// Objects of this kind.
    pub kind: KindEntry,
    /// In this namespace; empty for all.
    pub namespace: InternedStr,
    /// At most so many; all, if there is no number.
    pub limit: Option<u32>,
}

/// The objects that a list came to.
pub type ListResult = Result<Vec<Arc<dyn AnyObject>>, ApiError>;

/// What a script of several decisions works with.
pub struct Context<'a> {
    io: &'a mut dyn ReconcileIo,
}

impl<'a> Context<'a> {
    /// A context over some hands.
    pub fn new(hands: &'a mut dyn ReconcileIo) -> Self {
        Self { io: hands }
    }

    /// The hands themselves, for whoever stands between a script and the world.
    pub fn io(&mut self) -> &mut dyn ReconcileIo {
        self.io
    }

    /// Gathers facts from the caches as they are at this moment.
    pub fn gather<R>(&self, gather: impl FnOnce(&View<'_>) -> R) -> R {
        let (mut gather, mut facts) = (Some(gather), None);
        self.io.with_view(&mut |view| {
            if let Some(gather) = gather.take() {
                facts = Some(gather(view));
            }
        });
        facts.unwrap_or_else(|| unreachable!("look shows the view before it returns"))
    }

    /// Carries out a plan and tells what became of it.
    pub async fn apply(&mut self, plan: Plan) -> Applied {
        self.io.apply(plan).await
    }

    /// Notes a measurement.
    pub fn measure(&mut self, measurement: Measurement) {
        self.io.measure(measurement);
    }

    /// Enqueue another item of the same loop, for a reason that lies in no object of its own.
    pub fn enqueue(&mut self, item: impl Into<Item>) {
        self.io.enqueue(item.into());
    }

    /// Reads one object afresh.
    ///
    /// # Errors
    /// If the server could not be asked, or its answer could not be read. An object that is not
    /// there is no error.
    pub async fn fetch<T: Kind>(&mut self, key: &Key) -> Result<Option<T>, ReconcileError> {
        let mut answers = self.fetch_all(std::slice::from_ref(key)).await;
        answers.pop().unwrap_or_else(|| unreachable!("one key, one answer"))
    }

    /// Reads objects afresh, all at once: one answer for each key, in order.
    pub async fn fetch_all<T: Kind>(&mut self, keys: &[Key]) -> Vec<Result<Option<T>, ReconcileError>> {
        let answers = self.io.fetch(&T::RESOURCE, keys).await.into_iter();
        answers.zip(keys).map(|(answer, key)| read(answer, key)).collect()
    }

    /// Reads the metadata of one object of any resource afresh.
    ///
    /// # Errors
    /// If the server could not be asked, or its answer could not be read. An object that is not
    /// there is no error.
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

    /// The resource of a kind as it is served now or was a moment ago; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be known whether there is one.
    pub async fn resource_of(&mut self, line: &TypeMeta) -> Result<Option<Resource>, ApiError> {
        self.io.resource_of(line).await
    }

    /// Enqueue other items and records events.
    pub fn effects(&mut self, stir: Effects) {
        self.io.effects(stir);
    }

    /// Lists the objects of a kind afresh, in one namespace.
    ///
    /// # Errors
    /// If the server could not be asked, or not every object could be read.
    pub async fn list<T: Kind>(&mut self, namespace: &str) -> Result<Vec<Arc<T>>, ApiError> {
        let listing = ListRequest { kind: KindEntry::of::<T>(), namespace: namespace.into(), limit: None };
        let mut answers = self.io.list(&[listing]).await;
        answers.pop().unwrap_or_else(|| unreachable!("one question, one answer")).map(typed)
    }

    /// Lists the metadata of many resources afresh, in one namespace and all at once: one answer for each
    /// resource, in order, none of them longer than `at_most`.
    pub async fn list_metadata<'r>(
        &mut self,
        resources: impl IntoIterator<Item = &'r Resource>,
        namespace: &str,
        at_most: Option<u32>,
    ) -> Vec<Result<Vec<Arc<PartialObjectMeta>>, ApiError>> {
        let listing = |resource: &Resource| ListRequest {
            kind: KindEntry::metadata_of(resource.clone()),
            namespace: namespace.into(),
            limit: at_most,
        };
        let listings: Vec<_> = resources.into_iter().map(listing).collect();
        self.io.list(&listings).await.into_iter().map(|listed| listed.map(typed)).collect()
    }

    /// Asks the server anew what it serves.
    ///
    /// # Errors
    /// If nothing at all could be learnt.
    pub async fn discover(&mut self) -> Result<DiscoveredResources, ApiError> {
        self.io.discover().await
    }
}

fn read<T: Kind>(answer: FetchResult, key: &Key) -> Result<Option<T>, ReconcileError> {
    let Some(json) = answer
        .map_err(|failure| ReconcileError::from_api_error(&failure, format!("reading {key}: {failure}")))?
    else {
        return Ok(None);
    };
    // The error of the decoder may quote the object, so it is not repeated.
    serde_json::from_str(&json)
        .map(Some)
        .map_err(|_| ReconcileError::because(format!("{} {key} cannot be read", T::RESOURCE)))
}

fn typed<T: Object>(objects: Vec<Arc<dyn AnyObject>>) -> Vec<Arc<T>> {
    let downcast = |object: Arc<dyn AnyObject>| object.into_any().downcast();
    objects
        .into_iter()
        .map(|object| downcast(object).unwrap_or_else(|_| panic!("listed as another kind")))
        .collect()
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, or was refused in a way that is as good.
    Done {
        /// The state it led to; empty if the server did not say.
        resource_version: ResourceVersion,
        /// The life it led to; empty if the server did not say.
        uid: Uid,
        /// The name, which the server may have chosen; empty if it did not say.
        name: ArcStr,
    },
    /// There was nothing to write when it came to it.
    Unneeded,
    /// It was refused or got lost.
    Failed(ApiError),
    /// A failure before it stopped the plan; or it only tells how things stand, and its item has told much lately.
    NotSent,
}

impl Outcome {
    /// Success of which nothing is known but that it is one.
    #[must_use]
    pub fn done() -> Self {
        Self::Done {
            resource_version: ResourceVersion::default(),
            uid: Uid::default(),
            name: ArcStr::default(),
        }
    }
}

/// What became of a plan: one outcome per write, in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// One per write.
    pub outcomes: Vec<Outcome>,
    /// Why the item is to be tried again, if it is.
    pub error: Option<ReconcileError>,
}

impl Applied {
    /// Goes on only if nothing asks for another try.
    ///
    /// # Errors
    /// The reason for another try.
    pub fn all_done(self) -> Result<(), ReconcileError> {
        self.error.map_or(Ok(()), Err)
    }
}

/// What follows a finished item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing, until something changes.
    Forget,
    /// Another look after a while.
    After(Duration),
    /// Another look after a while. It did not fail, but is not through either: earlier failures still
    /// count, should it fail again.
    KeepBackoff(Duration),
}

/// The item is to be tried again later, ever more slowly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileError {
    /// For the log.
    pub because: String,
    /// The server's wish, if it expressed one.
    pub retry_after: Option<Duration>,
    /// Nothing is wrong that an operator would want to read of.
    pub quiet: bool,
    /// The server is in trouble, not the item: an item is never given up for that.
    pub outage: bool,
}

impl ReconcileError {
    /// Tries again later for this reason.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self { because: reason.into(), retry_after: None, quiet: false, outage: false }
    }

    /// Tries again because a call failed, when the server wants it.
    #[must_use]
    pub fn from_api_error(failure: &ApiError, reason: impl Into<String>) -> Self {
        Self { retry_after: failure.retry_after, outage: failure.reason.is_outage(), ..Self::because(reason) }
    }

    /// The same, without a line in the log: it is in the order of things.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }
}
